"""What a tool call changed in files, as the lines of a diff; read off its input, in the words of every client. Pure.

An edit names what it replaces and what it puts there, a write the whole content, a patch its own lines. What is none of
these changes nothing here: a shell command may change files, and does not say so.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Kind = Literal["add", "del", "same", "gap"]

MOST_ROWS = 120  # of one change that are shown
_MOST_COMPARED = 400  # lines on either side; more are shown as all removed and all added, to stay within milliseconds
_CONTEXT = 2
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


def changes(name: str, given: Any) -> tuple[Change, ...]:
    """The changes of one call, a file each; none for a call that does not say what it changes.

    given: its input, decoded: an object, or the text of tools that take free text.
    """
    if patch := next(_patches(given), None):
        return tuple(_of_patch(patch))
    if not isinstance(given, dict):
        return ()
    path = _first(given, _PATHS)
    pieces = given["edits"] if isinstance(given.get("edits"), list) else [given]
    edits = [rows for piece in pieces if isinstance(piece, dict) and (rows := _edited(piece))]
    if not edits and path and _WRITES.search(f"{name} {given.get('command', '')}"[:100]):
        edits = [_all("add", whole)] if (whole := _first(given, _WHOLE)) else []
    rows = [row for n, piece in enumerate(edits) for row in ([Row("gap", "")] if n else []) + piece]
    return (_change(path, rows),) if rows else ()


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
    path = ""
    rows: list[Row] = []
    for line in patch.splitlines():
        if match := _FILE.match(line):
            if path:
                yield _change(path, rows)
            path, rows = match[1], []
        elif line.startswith(_MOVED):
            path = f"{path} → {line.removeprefix(_MOVED)}"
        else:
            rows.append(_patched(line))
    if path:
        yield _change(path, rows)


def _patched(line: str) -> Row:
    if line.startswith("@@"):
        return Row("gap", line.strip("@ "))
    kinds: dict[str, Kind] = {"+": "add", "-": "del"}
    return Row(kinds.get(line[:1], "same"), line[1:])


def _edited(piece: Mapping[str, Any]) -> list[Row]:
    """What an edit replaces by what."""
    old, new = _first(piece, _OLD), _first(piece, _NEW)
    if old == new:
        return []
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > _MOST_COMPARED:
        return [*_all("del", old), *_all("add", new)]
    return list(_compared(before, after))


def _compared(before: Sequence[str], after: Sequence[str]) -> Iterator[Row]:
    """The lines that differ, with a few around them."""
    groups = difflib.SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_CONTEXT)
    for n, group in enumerate(groups):
        if n:
            yield Row("gap", "")
        for tag, low, high, left, right in group:
            if tag == "equal":
                yield from (Row("same", line) for line in before[low:high])
                continue
            yield from (Row("del", line) for line in before[low:high])
            yield from (Row("add", line) for line in after[left:right])


def _all(kind: Kind, text: str) -> list[Row]:
    return [Row(kind, line) for line in text.splitlines()]


def _change(path: str, rows: Sequence[Row]) -> Change:
    kinds = [row.kind for row in rows]
    n_more = max(0, len(rows) - MOST_ROWS)
    return Change(path, tuple(rows[:MOST_ROWS]), kinds.count("add"), kinds.count("del"), n_more)
