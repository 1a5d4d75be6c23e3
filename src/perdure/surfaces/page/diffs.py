"""What a tool call changed in files, as the lines of a diff; read off its input, in the words of every client. Pure.

An edit names what it replaces and what it puts there, a write the whole content, a patch its own lines. What is none of
these changes nothing here: a shell command may change files, and does not say so. Only what is shown is kept, and what
costs too much to compare is shown as all removed and all added.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple

from perdure.surfaces import differences
from perdure.text import one_line

Kind = Literal["add", "del", "same", "gap"]

MOST_ROWS = 120  # of one change that are shown
MOST_FILES = 20  # of one call that are shown, each by itself
MOST_STEPS = 5_000_000  # of all comparisons of a page: 0.1 s of the costliest lines
ROW_CHARS = 1_000
PATH_CHARS = 200
_PATHS = ("file_path", "path", "filePath", "absolute_path", "notebook_path", "filename")
_OLD = ("old_string", "old_str", "oldText", "oldString")
_NEW = ("new_string", "new_str", "newText", "newString", "insert_text")
_WHOLE = ("content", "file_text", "contents", "new_source")
_WRITES = re.compile(r"write|create|notebookedit|save", re.IGNORECASE)
_PATCH = re.compile(r"^\*\*\* Begin Patch\n(.*?)(?:^\*\*\* End Patch|\Z)", re.S | re.M)
_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+?)\s*$")
_MOVED = "*** Move to: "


class Row(NamedTuple):
    """One line of a diff."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Change:
    """What one call does to one file."""

    path: str
    rows: tuple[Row, ...]  # at most MOST_ROWS
    n_added: int
    n_removed: int
    n_more: int = 0  # rows that are not shown
    is_cut: bool = False  # a row is longer than is shown


@dataclass(slots=True)
class Room:
    """What is left for a page."""

    steps: int = MOST_STEPS  # of comparisons


@dataclass(slots=True)
class _Made:
    """A change that grows: of its rows no more than are shown."""

    path: str
    rows: list[Row] = field(default_factory=list)
    n_rows: int = 0
    n_added: int = 0
    n_removed: int = 0

    def add(self, rows: Iterable[Row]) -> None:
        """These rows behind the others."""
        for row in rows:
            self.n_rows += 1
            self.n_added += row.kind == "add"
            self.n_removed += row.kind == "del"
            if len(self.rows) < MOST_ROWS:
                self.rows.append(row)

    @property
    def is_full(self) -> bool:
        """Whether no more rows are shown."""
        return len(self.rows) >= MOST_ROWS

    def done(self) -> Change:
        """The change as it is shown."""
        is_cut = any(len(row.text) > ROW_CHARS for row in self.rows)
        rows = tuple(Row(row.kind, _cut(row.text)) for row in self.rows)
        return Change(self.path, rows, self.n_added, self.n_removed, self.n_rows - len(rows), is_cut)


def changes(name: str, given: Any, room: Room | None = None) -> tuple[Change, ...]:
    """The changes of one call, a file each, behind MOST_FILES of them the rest as one; none for a call that does not
    say what it changes.

    given: its input, decoded: an object, or the text of tools that take free text. room: of the page.
    """
    if patch := next(_patches(given), None):
        return _few(_of_patch(patch))
    if not isinstance(given, dict):
        return ()
    path = _first(given, _PATHS)
    pieces = given["edits"] if isinstance(given.get("edits"), list) else [given]
    made = _Made(_path(path))
    for piece in pieces:
        if isinstance(piece, dict):
            _edit(made, piece, room or Room())
    if not made.n_rows and path and _WRITES.search(f"{name[:100]} {str(given.get('command', ''))[:100]}"[:100]):
        made.add(_all("add", _first(given, _WHOLE).splitlines()))
    return (made.done(),) if made.n_rows else ()


def _few(found: Iterator[Change]) -> tuple[Change, ...]:
    """The first changes, and the rest as one that shows no rows."""
    first = tuple(islice(found, MOST_FILES))
    n = n_added = n_removed = n_rows = 0
    for one in found:
        n, n_added, n_removed = n + 1, n_added + one.n_added, n_removed + one.n_removed
        n_rows += len(one.rows) + one.n_more
    return (*first, Change(f"{n:,} more files", (), n_added, n_removed, n_rows)) if n else first


def _first(given: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of these fields that is a text, or ""."""
    return next((value for name in names if isinstance(value := given.get(name), str)), "")


def _patches(given: Any) -> Iterator[str]:
    """The patches among the texts of an input."""
    values = given.values() if isinstance(given, dict) else [given]
    for value in values:
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and (match := _PATCH.search(text)):
                yield match[1]


def _of_patch(patch: str) -> Iterator[Change]:
    """The changes of a patch in the format of `apply_patch`."""
    made = _Made("")
    for line in patch.splitlines():
        if match := _FILE.match(line):
            if made.path:
                yield made.done()
            made = _Made(_path(match[1]))
        elif line.startswith(_MOVED):
            made.path = _path(f"{made.path} → {line.removeprefix(_MOVED)}")
        else:
            made.add([_patched(line)])
    if made.path:
        yield made.done()


def _patched(line: str) -> Row:
    if line.startswith("@@"):
        return Row("gap", line.strip("@ "))
    kinds: dict[str, Kind] = {"+": "add", "-": "del"}
    return Row(kinds.get(line[:1], "same"), line[1:])


def _edit(made: _Made, piece: Mapping[str, Any], room: Room) -> None:
    """Add what an edit replaces by what; only counted where nothing more of it is shown."""
    old, new = _first(piece, _OLD), _first(piece, _NEW)
    if old == new:
        return
    if made.n_rows:
        made.add([Row("gap", "")])
    before, after = old.splitlines(), new.splitlines()
    if made.is_full:
        gone, come = Counter(before), Counter(after)
        made.n_removed += (gone - come).total()
        made.n_added += (come - gone).total()
        made.n_rows += (gone - come).total() + (come - gone).total()
        return
    steps = differences.steps(before, after)
    is_compared = steps <= room.steps
    room.steps -= steps if is_compared else 0
    made.add(_compared(before, after) if is_compared else [*_all("del", before), *_all("add", after)])


def _compared(before: Sequence[str], after: Sequence[str]) -> Iterator[Row]:
    """The lines that differ, with a few around them."""
    for n, group in enumerate(differences.groups(before, after, MOST_STEPS)):
        if n:
            yield Row("gap", "")
        for tag, low, high, left, right in group:
            if tag == "equal":
                yield from (Row("same", line) for line in before[low:high])
                continue
            yield from _all("del", before[low:high])
            yield from _all("add", after[left:right])


def _all(kind: Kind, lines: Sequence[str]) -> Iterator[Row]:
    return (Row(kind, line) for line in lines)


def _path(said: str) -> str:
    """A path as far as it is shown."""
    return one_line(said, PATH_CHARS)


def _cut(line: str) -> str:
    return line if len(line) <= ROW_CHARS else f"{line[:ROW_CHARS]}…"
