"""The folders in which agents keep their transcripts on this machine. Standard library only; opens no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

_TRANSCRIPT_SUFFIXES = {".jsonl", ".json", ".db"}
_MARKDOWN_SUFFIXES = {".md", ".markdown"}

EnvironmentReader = Callable[[str], str | None]

# (runtime, folder under the user's home, variable that replaces it + subfolder, patterns below the folder)
_STANDARD_FOLDERS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
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


def find_transcripts(
    user_home: Path, environment: EnvironmentReader, *, only_runtime: str | None = None
) -> Iterator[tuple[str, Path]]:
    """Yield (runtime, path) of every transcript (of one runtime) in the standard folders, sorted by name."""
    for runtime, folder, variable, patterns in _STANDARD_FOLDERS:
        if only_runtime not in (None, runtime):
            continue
        root = resolve_root(user_home, environment, folder, variable)
        for pattern in patterns:
            for path in sorted(root.glob(pattern)):
                yield runtime, path


def list_roots(user_home: Path, environment: EnvironmentReader) -> Iterator[tuple[str, Path]]:
    """Yield (runtime, folder) of every standard folder, whether it exists or not."""
    for runtime, folder, variable, _ in _STANDARD_FOLDERS:
        yield runtime, resolve_root(user_home, environment, folder, variable)


def resolve_root(user_home: Path, environment: EnvironmentReader, folder: str, variable: str) -> Path:
    """Return a folder under the user's home, or where a variable moves it.

    variable: "CODEX_HOME", or with a folder below it "XDG_DATA_HOME/opencode".
    """
    name, _, subfolder = variable.partition("/")
    other_root = environment(name)
    return Path(other_root).expanduser() / subfolder if other_root else user_home / folder


def find_files_below(path: Path) -> Iterator[Path]:
    """Yield the files that a person's path stands for: itself, or the possible transcripts below a folder.

    Markdown counts only in a folder that holds nothing else: beside transcripts it explains them.
    """
    if not path.is_dir():
        yield path
        return
    paths = [
        file
        for file in sorted(path.rglob("*"))
        if file.suffix in _TRANSCRIPT_SUFFIXES | _MARKDOWN_SUFFIXES and file.is_file()
    ]
    transcripts = [file for file in paths if file.suffix in _TRANSCRIPT_SUFFIXES]
    yield from transcripts or paths
