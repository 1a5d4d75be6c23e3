"""Outputs are cut in whole lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.agent.tools.output import take_first, take_last

LINES = st.lists(st.text("aé\U0001f600", max_size=12), max_size=12)


@given(LINES, st.integers(1, 8), st.integers(1, 40))
def test_first_and_last_lines_have_room(lines: list[str], max_lines: int, max_bytes: int) -> None:
    for cut, is_first in ((take_first(lines, max_lines=max_lines, max_bytes=max_bytes), True),
                          (take_last(lines, max_lines=max_lines, max_bytes=max_bytes), False)):  # fmt: skip
        assert len(cut.lines) <= max_lines
        assert sum(len(line.encode()) for line in cut.lines) <= max_bytes
        if not cut.is_cut:
            assert cut.lines == lines
        elif len(cut.lines) > 1:
            assert cut.lines == (lines[: len(cut.lines)] if is_first else lines[-len(cut.lines) :])


def test_a_cut_is_made_at_the_limits() -> None:
    """3 lines of 4 bytes with their ends are 12 bytes: 11 have room for two."""
    assert take_first(["abc"] * 3, max_bytes=12).lines == ["abc"] * 3
    assert take_first(["abc"] * 3, max_bytes=11) == (["abc"] * 2, True)
    assert take_last(["ab", "cd", "ef"], max_lines=2) == (["cd", "ef"], True)
