"""Where agents keep their transcripts on this machine. Standard library only; nothing is opened here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

_KINDS = {".jsonl", ".json", ".db"}
_NOTES = {".md", ".markdown"}

Environment = Callable[[str], str | None]

# runtime -> (folder under the user's home, variable that moves it with what of it lies below, patterns below it)
_PLACES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("claude-code", ".claude", "CLAUDE_CONFIG_DIR", ("projects/*/*.jsonl", "projects/*/*/subagents/*.jsonl")),
    ("codex", ".codex", "CODEX_HOME", ("sessions/*/*/*/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl")),
    ("pi", ".pi/agent", "PI_CODING_AGENT_DIR", ("sessions/*/*.jsonl",)),
    (
        "gemini-cli",
        ".gemini",
        "GEMINI_CLI_HOME/.gemini",
        ("tmp/*/chats/*.json", "tmp/*/chats/*.jsonl", "tmp/*/chats/*/*.jsonl"),
    ),
    ("copilot-cli", ".copilot", "COPILOT_HOME", ("session-state/*/events.jsonl", "session-state/*.jsonl")),
    ("opencode", ".local/share/opencode", "XDG_DATA_HOME/opencode", ("opencode.db", "opencode-*.db")),
)


def find(user_home: Path, environment: Environment, *, only: str | None = None) -> Iterator[tuple[str, Path]]:
    """(runtime, path) of every transcript (of one runtime) in the standard places, each one's oldest name first."""
    for runtime, folder, variable, patterns in _PLACES:
        if only not in (None, runtime):
            continue
        root = root_of(user_home, environment, folder, variable)
        for pattern in patterns:
            for path in sorted(root.glob(pattern)):
                yield runtime, path


def roots(user_home: Path, environment: Environment) -> Iterator[tuple[str, Path]]:
    """(runtime, folder) of every standard place, whether it exists or not."""
    for runtime, folder, variable, _ in _PLACES:
        yield runtime, root_of(user_home, environment, folder, variable)


def root_of(user_home: Path, environment: Environment, folder: str, variable: str) -> Path:
    """A folder under the user's home, or where a variable moves it: "CODEX_HOME", or "XDG_DATA_HOME/opencode" below."""
    name, _, below = variable.partition("/")
    moved = environment(name)
    return Path(moved).expanduser() / below if moved else user_home / folder


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
