"""The geometry of charts, worked out by hand: a box of 40 high, 10 wide for each point."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.surfaces.page.charts import HEIGHT, Bar, Chart, Line, Series, ceiling, drawn


def said(n):
    return f"{n:g}"


def test_a_part_stands_inside_of_its_whole():
    """The top of 0, 6 and 8 is 8, so 8 fills the box of 40, 6 takes 30 of it, 2 takes 10, and nothing has no bar.

    What is a part is half as wide, in the middle of the other.
    """
    series = (Series("all", (0, 6, 8)), Series("used", (0, 2, 0)))
    found = drawn(Chart("Use", ("a", "b", "c"), series, said))
    assert found.bars == (Bar(11, 10, 8, 30, 0), Bar(21, 0, 8, 40, 0), Bar(13, 30, 4, 10, 1))
    assert (found.width, found.scale, found.lines) == (30, ("8", "4"), ())


def test_a_line_is_broken_where_there_is_no_number():
    """Of a top of 1, 0.5 lies at half the height, 20; a point alone is a line of no length, so that it is seen."""
    found = drawn(Chart("Share", ("a", "b", "c", "d"), (Series("x", (1.0, 0.5, None, 0.0)),), said, "lines", top=1.0))
    assert found.lines == (Line("M5 0h0L15 20M35 40h0", 0),)


def test_the_table_and_the_pointer_say_every_number():
    series = (Series("median", (10, None)), Series("worst", (20, 30)))
    found = drawn(Chart("Time", ("Mon", "Tue"), series, said, "lines"))
    assert found.rows == (("Mon", ("10", "20")), ("Tue", ("–", "30")))
    assert [point.said for point in found.points] == ["Mon: 10 median, 20 worst", "Tue: – median, 30 worst"]
    assert found.summary == "Time, Mon to Tue. The latest, Tue: – median, 30 worst."


def test_a_scale_whose_half_words_cannot_tell_names_it_not():
    found = drawn(Chart("Runs", ("a",), (Series("runs", (1,)),), lambda n: f"{n:.0f}"))
    assert found.scale == ("1", "")


def test_nothing_is_drawn_of_nothing():
    found = drawn(Chart("Runs", (), (Series("runs", ()),), said))
    assert (found.bars, found.rows, found.summary) == ((), (), "Runs: nothing yet")


@given(st.lists(st.none() | st.integers(0, 10**12), min_size=1, max_size=12))
def test_everything_stays_inside_of_the_box(values):
    names = tuple(str(n) for n in range(len(values)))
    found = drawn(Chart("x", names, (Series("x", tuple(values)),), said))
    for bar in found.bars:
        assert bar.y >= 0 and bar.y + bar.height <= HEIGHT + 0.01 and bar.x + bar.width <= found.width


@given(st.floats(1e-6, 1e15))
def test_the_top_is_never_below_and_less_than_twice_and_a_bit_too_high(most):
    assert most <= ceiling(most) * (1 + 1e-9) and ceiling(most) <= 2 * most * (1 + 1e-9)
