"""What makes one text of another."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.surfaces.differences import Row, difference, rows

LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=30).map("\n".join)


@given(LINES, LINES)
def test_rows_say_what_a_unified_diff_says(old, new):
    marks = {"same": " ", "add": "+", "del": "-"}
    told = [marks[row.kind] + row.text for row in rows(old, new) if row.kind != "gap"]
    assert told == [line for line in difference(old, new, "n")[2:] if not line.startswith("@@")]


def test_a_gap_says_where_the_next_lines_stand():
    """The ninth line changes; two stay on either side, so what is shown begins at line 7."""
    old = "\n".join(f"line {n}" for n in range(1, 13))
    found = rows(old, old.replace("line 9", "line nine"))
    assert found[0] == Row("gap", "line 7")
    assert [row.text for row in found if row.kind == "same"] == ["line 7", "line 8", "line 10", "line 11"]
