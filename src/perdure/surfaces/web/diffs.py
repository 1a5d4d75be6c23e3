"""Show what a tool call changed in files as the lines of a diff, read from its input, for every client. Pure.

An edit names the old and the new text, a write names the whole content, a patch has its own lines. Any
other call shows no change: a shell command may change files and does not say so. Only the rows that are
shown are kept, and edits that cost too much to compare are shown as all removed and all added.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple

from perdure.surfaces import text_diff
from perdure.text import one_line

RowKind = Literal["add", "del", "same", "gap"]

MAX_ROWS = 120  # rows of one change that are shown
MAX_FILES = 20  # files of one call that are shown one by one
MAX_STEPS = 5_000_000  # of all comparisons of a page: 0.1 s of the costliest lines
ROW_CHARS = 1_000
PATH_CHARS = 200
_PATH_FIELDS = ("file_path", "path", "filePath", "absolute_path", "notebook_path", "filename")
_OLD_TEXT_FIELDS = ("old_string", "old_str", "oldText", "oldString", "old")
_NEW_TEXT_FIELDS = ("new_string", "new_str", "newText", "newString", "insert_text", "new")
_CONTENT_FIELDS = ("content", "file_text", "contents", "new_source", "text")
_WRITES = re.compile(r"write|create|notebookedit|save", re.IGNORECASE)
_PATCH = re.compile(r"^\*\*\* Begin Patch\n(.*?)(?:^\*\*\* End Patch|\Z)", re.S | re.M)
_FILE_HEADER = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+?)\s*$")
_MOVE_HEADER = "*** Move to: "


class DiffRow(NamedTuple):
    """One line of a diff."""

    kind: RowKind
    text: str


@dataclass(frozen=True, slots=True)
class FileDiff:
    """The change of one file by one call."""

    path: str
    rows: tuple[DiffRow, ...]  # as many as are shown
    n_added: int
    n_removed: int
    n_more: int = 0  # rows that are not shown
    is_cut: bool = False  # a row is longer than is shown


@dataclass(slots=True)
class DiffBudget:
    """The remaining budget of a page."""

    steps: int = MAX_STEPS  # left for comparisons


@dataclass(slots=True)
class _ChangeBuilder:
    """A change under construction: keeps no more rows than are shown."""

    path: str
    rows: list[DiffRow] = field(default_factory=list)
    n_rows: int = 0
    n_added: int = 0
    n_removed: int = 0

    def add(self, rows: Iterable[DiffRow]) -> None:
        """Append rows."""
        for row in rows:
            self.n_rows += 1
            self.n_added += row.kind == "add"
            self.n_removed += row.kind == "del"
            if len(self.rows) < MAX_ROWS:
                self.rows.append(row)

    @property
    def is_full(self) -> bool:
        """True if no more rows are shown."""
        return len(self.rows) >= MAX_ROWS

    def build(self) -> FileDiff:
        """Return the change as it is shown."""
        is_cut = any(len(row.text) > ROW_CHARS for row in self.rows)
        rows = tuple(DiffRow(row.kind, _cut_line(row.text)) for row in self.rows)
        return FileDiff(self.path, rows, self.n_added, self.n_removed, self.n_rows - len(rows), is_cut)


def list_changes(name: str, call_input: Any, budget: DiffBudget | None = None) -> tuple[FileDiff, ...]:
    """Return the changes of one call, one per file; none if the call names no change.

    Beyond MAX_FILES the rest is one change. call_input: the decoded input: an object, or the text of tools that
    take free text. budget: of the page.
    """
    if patch := next(_find_patches(call_input), None):
        return _limit_files(_parse_patch(patch))
    if not isinstance(call_input, dict):
        return ()
    path = _find_text(call_input, _PATH_FIELDS)
    pieces = call_input["edits"] if isinstance(call_input.get("edits"), list) else [call_input]
    builder = _ChangeBuilder(_shorten_path(path))
    for piece in pieces:
        if isinstance(piece, dict):
            _add_edit(builder, piece, budget or DiffBudget())
    if not builder.n_rows and path and _WRITES.search(f"{name[:100]} {str(call_input.get('command', ''))[:100]}"[:100]):
        builder.add(_to_rows("add", _find_text(call_input, _CONTENT_FIELDS).splitlines()))
    return (builder.build(),) if builder.n_rows else ()


def _limit_files(changes: Iterator[FileDiff]) -> tuple[FileDiff, ...]:
    """Return the first changes, and the rest as one change without rows."""
    first = tuple(islice(changes, MAX_FILES))
    n = n_added = n_removed = n_rows = 0
    for change in changes:
        n, n_added, n_removed = n + 1, n_added + change.n_added, n_removed + change.n_removed
        n_rows += len(change.rows) + change.n_more
    return (*first, FileDiff(f"{n:,} more files", (), n_added, n_removed, n_rows)) if n else first


def _find_text(fields: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the first of these fields that is a text, or ""."""
    return next((value for name in names if isinstance(value := fields.get(name), str)), "")


def _find_patches(call_input: Any) -> Iterator[str]:
    """Yield the patches among the texts of an input."""
    values = call_input.values() if isinstance(call_input, dict) else [call_input]
    for value in values:
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and (match := _PATCH.search(text)):
                yield match[1]


def _parse_patch(patch: str) -> Iterator[FileDiff]:
    """Yield the changes of a patch in the format of `apply_patch`."""
    builder = _ChangeBuilder("")
    for line in patch.splitlines():
        if match := _FILE_HEADER.match(line):
            if builder.path:
                yield builder.build()
            builder = _ChangeBuilder(_shorten_path(match[1]))
        elif line.startswith(_MOVE_HEADER):
            builder.path = _shorten_path(f"{builder.path} → {line.removeprefix(_MOVE_HEADER)}")
        else:
            builder.add([_parse_patch_line(line)])
    if builder.path:
        yield builder.build()


def _parse_patch_line(line: str) -> DiffRow:
    if line.startswith("@@"):
        return DiffRow("gap", line.strip("@ "))
    kinds: dict[str, RowKind] = {"+": "add", "-": "del"}
    return DiffRow(kinds.get(line[:1], "same"), line[1:])


def _add_edit(builder: _ChangeBuilder, piece: Mapping[str, Any], budget: DiffBudget) -> None:
    """Add the rows of an edit; only count them if no more rows are shown."""
    old, new = _find_text(piece, _OLD_TEXT_FIELDS), _find_text(piece, _NEW_TEXT_FIELDS)
    if old == new:
        return
    if builder.n_rows:
        builder.add([DiffRow("gap", "")])
    before, after = old.splitlines(), new.splitlines()
    if builder.is_full:
        removed, added = Counter(before), Counter(after)
        builder.n_removed += (removed - added).total()
        builder.n_added += (added - removed).total()
        builder.n_rows += (removed - added).total() + (added - removed).total()
        return
    steps = text_diff.count_steps(before, after)
    is_compared = steps <= budget.steps
    budget.steps -= steps if is_compared else 0
    builder.add(_compare_lines(before, after) if is_compared else [*_to_rows("del", before), *_to_rows("add", after)])


def _compare_lines(before: Sequence[str], after: Sequence[str]) -> Iterator[DiffRow]:
    """Yield the lines that differ, with a few around them."""
    for n, group in enumerate(text_diff.group_changes(before, after, MAX_STEPS)):
        if n:
            yield DiffRow("gap", "")
        for tag, low, high, left, right in group:
            if tag == "equal":
                yield from (DiffRow("same", line) for line in before[low:high])
                continue
            yield from _to_rows("del", before[low:high])
            yield from _to_rows("add", after[left:right])


def _to_rows(kind: RowKind, lines: Sequence[str]) -> Iterator[DiffRow]:
    return (DiffRow(kind, line) for line in lines)


def _shorten_path(path: str) -> str:
    """Return a path as far as it is shown."""
    return one_line(path, PATH_CHARS)


def _cut_line(line: str) -> str:
    return line if len(line) <= ROW_CHARS else f"{line[:ROW_CHARS]}…"
