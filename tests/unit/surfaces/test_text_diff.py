"""What makes one text of another."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.surfaces.text_diff import MAX_ROWS, DiffLine, make_diff_lines, make_unified_diff

LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30).map("\n".join)


@given(LINES, LINES)
def test_rows_equal_a_unified_diff(old, new):
    marks = {"same": " ", "add": "+", "del": "-"}
    told = [marks[row.kind] + row.text for row in make_diff_lines(old, new) if row.kind != "gap"]
    assert told == [line for line in make_unified_diff(old, new, "n")[2:] if not line.startswith("@@")]


def test_gap_gives_the_numbers_of_the_next_lines():
    """The ninth line changes; two stay on either side, so what is shown begins at line 7."""
    old = "\n".join(f"line {n}" for n in range(1, 13))
    found = make_diff_lines(old, old.replace("line 9", "line nine"))
    assert found[0] == DiffLine("gap", "line 7")
    assert [row.text for row in found if row.kind == "same"] == ["line 7", "line 8", "line 10", "line 11"]


def test_difference_over_its_budget_is_one_change_with_a_gap():
    """600 lines that repeat by 600 such, between a hundred that stay on each side, of which two are shown."""
    head, tail = [f"head {n}" for n in range(100)], [f"tail {n}" for n in range(100)]
    old, new = ["x", "y"] * 300, ["y", "x", "z"] * 200
    found = make_diff_lines("\n".join(head + old + tail), "\n".join(head + new + tail))
    kinds = [row.kind for row in found]
    assert (kinds.count("del"), kinds.count("add")) == (600, 600) and found[0] == DiffLine("gap", "line 99")
    assert [row.text for row in found if row.kind == "same"] == ["head 98", "head 99", "tail 0", "tail 1"]


def test_difference_of_many_rows_is_cut_with_a_gap():
    found = make_diff_lines("a\n" * 5000, "b\n" * 5000)
    assert len(found) == MAX_ROWS + 1 and found[-1] == DiffLine("gap", "8,000 more lines")


def test_near_texts_of_repeated_lines_are_compared_at_the_change():
    """3,000 blank lines in each make 9 million pairs; one line in the midst is another."""
    lines = [f"line {n}" if n % 2 else "" for n in range(6000)]
    found = make_diff_lines("\n".join(lines), "\n".join([*lines[:3001], "another", *lines[3002:]]))
    assert [row.kind for row in found] == ["gap", "same", "same", "del", "add", "same", "same"]
