"""Where agents keep their transcripts on this machine. Standard library only; nothing is opened here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

_KINDS = {".jsonl", ".json", ".db"}
_NOTES = {".md", ".markdown"}

Environment = Callable[[str], str | None]

# runtime -> (folder under the user's home, variable that moves it, patterns below it)
_PLACES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("claude-code", ".claude", "CLAUDE_CONFIG_DIR", ("projects/*/*.jsonl", "projects/*/*/subagents/*.jsonl")),
    ("codex", ".codex", "CODEX_HOME", ("sessions/*/*/*/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl")),
    ("pi", ".pi/agent", "PI_CODING_AGENT_DIR", ("sessions/*/*.jsonl",)),
    ("gemini-cli", ".gemini", "", ("tmp/*/chats/*.json", "tmp/*/chats/*.jsonl")),
    ("copilot-cli", ".copilot", "COPILOT_HOME", ("session-state/*/events.jsonl", "session-state/*.jsonl")),
    ("opencode", ".local/share/opencode", "OPENCODE_DATA_DIR", ("opencode.db",)),
)


def find(user_home: Path, environment: Environment) -> Iterator[tuple[str, Path]]:
    """(runtime, path) of every transcript in the standard places, each runtime's oldest name first."""
    for runtime, folder, variable, patterns in _PLACES:
        moved = environment(variable) if variable else None
        root = Path(moved).expanduser() if moved else user_home / folder
        for pattern in patterns:
            for path in sorted(root.glob(pattern)):
                yield runtime, path


def roots(user_home: Path, environment: Environment) -> Iterator[tuple[str, Path]]:
    """(runtime, folder) of every standard place, whether it exists or not."""
    for runtime, folder, variable, _ in _PLACES:
        moved = environment(variable) if variable else None
        yield runtime, Path(moved).expanduser() if moved else user_home / folder


def below(path: Path) -> Iterator[Path]:
    """The files that a path given by a person stands for: itself, or the files below a folder that could be
    transcripts. Markdown counts in a folder that holds nothing else: beside transcripts it explains them.
    """
    if not path.is_dir():
        yield path
        return
    found = [p for p in sorted(path.rglob("*")) if p.suffix in _KINDS | _NOTES and p.is_file()]
    transcripts = [p for p in found if p.suffix in _KINDS]
    yield from transcripts or found
