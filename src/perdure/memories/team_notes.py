"""The notes of a repository, which a team reviews and every agent of the team reads.

They are Markdown files in `.perdure/notes/`, one line a memory; `capture.host_memories` takes them into the archive.
`write_notes` adds memories to them, with secrets masked, and commits nothing: the team reviews the change as any other.
`read_notes` returns the lines as they are now, for whoever compares them. A link is never followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from perdure.access.redact import mask
from perdure.disk import map_os_errors
from perdure.errors import EditRefused, UsageError
from perdure.text import printable
from perdure.types import Memory

FOLDER = Path(".perdure/notes")
DEFAULT_NAME = "team.md"
_MAX_FILES, _MAX_BYTES, _MAX_NOTES = 20, 1 << 16, 500  # that are compared with memories; recall reads them at a message
_DATE = re.compile(r" \((\d{4}-\d\d-\d\d)\)$")
_ITEM = re.compile(r"(?:[-*+]|\d{1,3}[.)])\s+")
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


class TeamNote(NamedTuple):
    """One line of a team's notes."""

    text: str  # without its mark and date
    file: str  # its name in the folder
    dated: str = ""  # yyyy-mm-dd, as the line has it


def read_notes(project: str | None) -> list[TeamNote]:
    """Return the notes of a repository on this disk; none if there are none."""
    if not project or not project.startswith("/") or "\0" in project:
        return []
    folder = Path(project) / FOLDER
    if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
        return []
    return list(islice(_iter_notes(folder), _MAX_NOTES))


def _iter_notes(folder: Path) -> Iterator[TeamNote]:
    for path in sorted(folder.glob("*.md"))[:_MAX_FILES]:
        if path.is_symlink() or not path.is_file():
            continue
        with map_os_errors(path), path.open("rb") as file:
            text = file.read(_MAX_BYTES).decode("utf-8-sig", "replace")
        for line in text.splitlines():
            if (note := parse_note(line, path.name)) is not None:
                yield note


def parse_note(line: str, file: str) -> TeamNote | None:
    """Return the note of a line; None for a heading or an empty line.

    >>> parse_note("- We use uv. (2026-03-01)", "team.md")
    TeamNote(text='We use uv.', file='team.md', dated='2026-03-01')
    """
    plain_line = " ".join(printable(line).split())
    if not plain_line or plain_line.startswith("#"):
        return None
    date = _DATE.search(plain_line)
    words = _ITEM.sub("", plain_line[: date.start()] if date else plain_line, count=1)
    return TeamNote(words, file, date[1] if date else "") if words else None
