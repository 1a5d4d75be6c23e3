"""Write memories into the notes of a repository, where a team reviews them and every agent of the team reads them.

The notes are Markdown files in `.perdure/notes/`, one line a memory; `capture.host_memories` reads them. Secrets are
masked. Nothing is committed: the team reviews the change as any other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from perdure.access.redact import mask
from perdure.disk import map_os_errors
from perdure.errors import EditRefused, UsageError
from perdure.text import printable
from perdure.types import Memory

FOLDER = Path(".perdure/notes")
DEFAULT_NAME = "team.md"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,80}\.md")


def write_notes(cwd: Path, memories: Sequence[Memory], name: str, *, dry_run: bool = False) -> tuple[Path, list[str]]:
    """Add the memories that a file of notes lacks to its end; return (the file, the lines that it lacked).

    cwd: a folder of the repository or of one of its worktrees. Raises UsageError outside a repository or if the name
    is none of a note, EditRefused if a link stands where the notes belong: nothing is written outside the repository.
    """
    repository = next((folder for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), None)
    if repository is None:
        raise UsageError(f"{cwd} is in no git repository: the notes of a team are a folder of its repository")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a file of notes: letters, digits, dots and dashes, and .md at its end"
        )
    path = repository / FOLDER / name
    for place in (path, *list(path.parents)[:2]):
        if place.is_symlink():
            raise EditRefused(f"{place} is a link; notes are written only inside the repository")
    with map_os_errors(path):
        old = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        known = {line.rpartition(" (")[0] for line in old.splitlines()}
        lines = list(dict.fromkeys(map(_format_line, memories)))
        lines = [line for line in lines if line.rpartition(" (")[0] not in known]
        if lines and not dry_run:
            path.parent.mkdir(parents=True, exist_ok=True)
            before = "# Team notes\n\n" if not old else "" if old.endswith("\n") else "\n"
            with path.open("a", encoding="utf-8") as file:
                file.write(before + "".join(f"{line}\n" for line in lines))
    return path, lines


def _format_line(memory: Memory) -> str:
    """Format a memory as one list item with its date, without secrets.

    >>> from datetime import UTC, datetime
    >>> at = datetime(2026, 3, 1, tzinfo=UTC)
    >>> _format_line(Memory("m", "We use\\nuv.", "fact", "tools/uv", "a", None, at, at, "owner", "remembered"))
    '- We use uv. (2026-03-01)'
    """
    return f"- {' '.join(printable(mask(memory.text)).split())} ({memory.stated_at:%Y-%m-%d})"
