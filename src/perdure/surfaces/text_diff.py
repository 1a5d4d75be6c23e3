"""The difference of two texts, line by line. Pure.

Comparing lines that repeat costs more than their number suggests. Beyond a number of steps nothing is
compared, and the part that differs is shown as all removed and all added.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

MAX_STEPS = 5_000_000  # of one comparison; 0.02 µs each on the lines that cost the most
MAX_ROWS = 2_000  # of a difference that are shown
_CONTEXT_LINES = 2  # lines of what stayed that are shown beside a change
ChangeGroup: TypeAlias = "Sequence[tuple[str, int, int, int, int]]"  # as difflib has them


class DiffLine(NamedTuple):
    """One line of a difference. The text of a gap tells where the next lines are in the new text."""

    kind: Literal["same", "add", "del", "gap"]
    text: str


def make_unified_diff(old: str, new: str, name: str) -> list[str]:
    """Return the lines of a unified diff; none if the texts are the same."""
    return list(difflib.unified_diff(old.splitlines(), new.splitlines(), name, name, n=_CONTEXT_LINES, lineterm=""))


def make_diff_lines(old: str, new: str) -> list[DiffLine]:
    """Return the difference as lines to show: at most MAX_ROWS, and one more that counts the others.

    >>> make_diff_lines("a\\nb", "a\\nc")
    [DiffLine(kind='same', text='a'), DiffLine(kind='del', text='b'), DiffLine(kind='add', text='c')]
    """
    diff_lines = list(_iterate_diff_lines(old.splitlines(), new.splitlines()))
    n_more = len(diff_lines) - MAX_ROWS
    return diff_lines if n_more <= 0 else [*diff_lines[:MAX_ROWS], DiffLine("gap", f"{n_more:,} more lines")]


def _iterate_diff_lines(old: list[str], new: list[str]) -> Iterator[DiffLine]:
    for group in group_changes(old, new, MAX_STEPS):
        if group[0][3]:
            yield DiffLine("gap", f"line {group[0][3] + 1}")
        for tag, from_old, to_old, from_new, to_new in group:
            if tag == "equal":
                yield from (DiffLine("same", line) for line in old[from_old:to_old])
                continue
            yield from (DiffLine("del", line) for line in old[from_old:to_old])
            yield from (DiffLine("add", line) for line in new[from_new:to_new])


def group_changes(old: Sequence[str], new: Sequence[str], most_steps: int) -> list[ChangeGroup]:
    """Group the changes with a few lines around them, near ones together; one large change if comparing costs
    too much.

    If comparing everything costs too much, the common beginning and end are left out first.
    """
    start, end = (
        (0, 0)
        if count_steps(old, new) <= most_steps
        else (max(0, n - _CONTEXT_LINES) for n in _count_common_ends(old, new))
    )
    inner_old, inner_new = old[start : len(old) - end], new[start : len(new) - end]
    if count_steps(inner_old, inner_new) > most_steps:
        return [_make_one_change(old, new)]
    matcher = difflib.SequenceMatcher(None, inner_old, inner_new, autojunk=False)
    return [
        [(tag, a + start, b + start, c + start, d + start) for tag, a, b, c, d in group]
        for group in matcher.get_grouped_opcodes(_CONTEXT_LINES)
    ]


def _make_one_change(old: Sequence[str], new: Sequence[str]) -> ChangeGroup:
    """Return everything between the common beginning and end as one change, with a few lines around it."""
    start, end = _count_common_ends(old, new)
    old_end, new_end, n_before, n_after = (
        len(old) - end,
        len(new) - end,
        min(start, _CONTEXT_LINES),
        min(end, _CONTEXT_LINES),
    )
    return [
        ("equal", start - n_before, start, start - n_before, start),
        ("replace", start, old_end, start, new_end),
        ("equal", old_end, old_end + n_after, new_end, new_end + n_after),
    ]


def count_steps(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the most that comparing can cost: the pairs of equal lines, times the lines of the shorter text.

    Here x meets two, and the shorter text has two lines:

    >>> count_steps("x.", "ax!x")
    4
    """
    counts = Counter(new)
    return sum(counts[line] for line in old) * min(len(old), len(new))


def _count_common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return (the number of lines at the common beginning, the number of lines at the common end after it)."""
    n_shorter = min(len(old), len(new))
    start = next((n for n in range(n_shorter) if old[n] != new[n]), n_shorter)
    end = next((n for n in range(n_shorter - start) if old[-1 - n] != new[-1 - n]), n_shorter - start)
    return start, end
