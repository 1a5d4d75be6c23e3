"""What makes one text of another, line by line. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Literal, NamedTuple

_AROUND = 2  # lines of what stayed that are shown beside a change


class Row(NamedTuple):
    """One line of a difference. A gap holds where the next lines stand in the new text."""

    kind: Literal["same", "add", "del", "gap"]
    text: str


def difference(old: str, new: str, name: str) -> list[str]:
    """What makes a text of another, as lines of a unified diff; none where they are the same."""
    return list(difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, n=_AROUND, lineterm=""))


def rows(old: str, new: str) -> list[Row]:
    """The same as rows that can be shown.

    >>> rows("a\\nb", "a\\nc")
    [Row(kind='same', text='a'), Row(kind='del', text='b'), Row(kind='add', text='c')]
    """
    return list(_rows(old.splitlines(), new.splitlines()))


def _rows(old: list[str], new: list[str]) -> Iterator[Row]:
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(_AROUND):
        if group[0][3]:
            yield Row("gap", f"line {group[0][3] + 1}")
        for tag, from_old, to_old, from_new, to_new in group:
            if tag == "equal":
                yield from (Row("same", line) for line in old[from_old:to_old])
                continue
            yield from (Row("del", line) for line in old[from_old:to_old])
            yield from (Row("add", line) for line in new[from_new:to_new])
