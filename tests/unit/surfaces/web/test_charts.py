"""The geometry of charts, worked out by hand: a box of 40 high, 10 wide for each point."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.surfaces.web.charts import HEIGHT, Chart, ChartBar, ChartLine, ChartSeries, draw_chart, round_up


def said(n):
    return f"{n:g}"


def test_part_is_drawn_inside_its_whole():
    """The top of 0, 6 and 8 is 8, so 8 fills the box of 40, 6 takes 30 of it, 2 takes 10, and nothing has no bar.

    What is a part is half as wide, in the middle of the other.
    """
    series = (ChartSeries("all", (0, 6, 8)), ChartSeries("used", (0, 2, 0)))
    found = draw_chart(Chart("Use", ("a", "b", "c"), series, said))
    assert found.bars == (ChartBar(11, 10, 8, 30, 0), ChartBar(21, 0, 8, 40, 0), ChartBar(13, 30, 4, 10, 1))
    assert (found.width, found.scale, found.lines) == (30, ("8", "4"), ())


def test_line_is_broken_at_a_missing_number():
    """Of a top of 1, 0.5 lies at half the height, 20; a point alone is a line of no length, so that it is seen."""
    found = draw_chart(
        Chart("Share", ("a", "b", "c", "d"), (ChartSeries("x", (1.0, 0.5, None, 0.0)),), said, "lines", top=1.0)
    )
    assert found.lines == (ChartLine("M5 0h0L15 20M35 40h0", 0),)


def test_the_table_and_the_pointer_say_every_number():
    series = (ChartSeries("median", (10, None)), ChartSeries("worst", (20, 30)))
    found = draw_chart(Chart("Time", ("Mon", "Tue"), series, said, "lines"))
    assert found.rows == (("Mon", ("10", "20")), ("Tue", ("–", "30")))
    assert [point.text for point in found.points] == ["Mon: 10 median, 20 worst", "Tue: – median, 30 worst"]
    assert found.summary == "Time, Mon to Tue. The latest, Tue: – median, 30 worst."


def test_chart_scale_omits_a_half_that_rounds_badly():
    found = draw_chart(Chart("Runs", ("a",), (ChartSeries("runs", (1,)),), lambda n: f"{n:.0f}"))
    assert found.scale == ("1", "")


def test_empty_chart_draws_nothing():
    found = draw_chart(Chart("Runs", (), (ChartSeries("runs", ()),), said))
    assert (found.bars, found.rows, found.summary) == ((), (), "Runs: nothing yet")


@given(st.lists(st.none() | st.integers(0, 10**12), min_size=1, max_size=12))
def test_everything_stays_inside_the_box(values):
    names = tuple(str(n) for n in range(len(values)))
    found = draw_chart(Chart("x", names, (ChartSeries("x", tuple(values)),), said))
    for bar in found.bars:
        assert bar.y >= 0 and bar.y + bar.height <= HEIGHT + 0.01 and bar.x + bar.width <= found.width


@given(st.floats(1e-6, 1e15))
def test_rounded_maximum_is_at_most_twice_the_value(most):
    assert most <= round_up(most) * (1 + 1e-9) and round_up(most) <= 2 * most * (1 + 1e-9)
