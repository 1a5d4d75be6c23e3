"""What makes one text of another, line by line. Pure.

Comparing lines that repeat costs more than their number says: beyond a number of steps nothing is compared, and what
differs is shown as all removed and all added.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

STEPS = 5_000_000  # of one comparison; 0.02 µs each on the lines that cost the most
MOST_ROWS = 2_000  # of a difference that are shown
_AROUND = 2  # lines of what stayed that are shown beside a change
Group: TypeAlias = "Sequence[tuple[str, int, int, int, int]]"  # as difflib has them


class Row(NamedTuple):
    """One line of a difference. A gap holds where the next lines stand in the new text."""

    kind: Literal["same", "add", "del", "gap"]
    text: str


def difference(old: str, new: str, name: str) -> list[str]:
    """What makes a text of another, as lines of a unified diff; none where they are the same."""
    return list(difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, n=_AROUND, lineterm=""))


def rows(old: str, new: str) -> list[Row]:
    """The same as rows that can be shown: at most MOST_ROWS, and one that says that there are more.

    >>> rows("a\\nb", "a\\nc")
    [Row(kind='same', text='a'), Row(kind='del', text='b'), Row(kind='add', text='c')]
    """
    found = list(islice(_rows(old.splitlines(), new.splitlines()), MOST_ROWS + 1))
    return [*found[:MOST_ROWS], Row("gap", "more lines than fit here")] if len(found) > MOST_ROWS else found


def _rows(old: list[str], new: list[str]) -> Iterator[Row]:
    for group in groups(old, new, STEPS):
        if group[0][3]:
            yield Row("gap", f"line {group[0][3] + 1}")
        for tag, from_old, to_old, from_new, to_new in group:
            if tag == "equal":
                yield from (Row("same", line) for line in old[from_old:to_old])
                continue
            yield from (Row("del", line) for line in old[from_old:to_old])
            yield from (Row("add", line) for line in new[from_new:to_new])


def groups(old: Sequence[str], new: Sequence[str], most_steps: int) -> list[Group]:
    """The changes with a few lines around them, near ones together; one large change where comparing costs more.

    What both begin and end with is left out first where all of it costs too much.
    """
    start, end = (0, 0) if steps(old, new) <= most_steps else (max(0, n - _AROUND) for n in _ends(old, new))
    inner_old, inner_new = old[start : len(old) - end], new[start : len(new) - end]
    if steps(inner_old, inner_new) > most_steps:
        return [_whole(old, new)]
    matcher = difflib.SequenceMatcher(None, inner_old, inner_new, autojunk=False)
    return [
        [(tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in group]
        for group in matcher.get_grouped_opcodes(_AROUND)
    ]


def _whole(old: Sequence[str], new: Sequence[str]) -> Group:
    """All between what both begin and end with as one change, with a few lines around it."""
    start, end = _ends(old, new)
    gone, come, lead, tail = len(old) - end, len(new) - end, min(start, _AROUND), min(end, _AROUND)
    return [
        ("equal", start - lead, start, start - lead, start),
        ("replace", start, gone, start, come),
        ("equal", gone, gone + tail, come, come + tail),
    ]


def steps(old: Sequence[str], new: Sequence[str]) -> int:
    """What comparing costs at the most: the pairs of equal lines, for each line of the shorter text.

    Here x meets two, and the shorter text has two lines:

    >>> steps("x.", "ax!x")
    4
    """
    counted = Counter(new)
    return sum(counted[line] for line in old) * min(len(old), len(new))


def _ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """(how many lines both begin with, how many behind those both end with)."""
    most = min(len(old), len(new))
    start = next((n for n in range(most) if old[n] != new[n]), most)
    end = next((n for n in range(most - start) if old[-1 - n] != new[-1 - n]), most - start)
    return start, end
