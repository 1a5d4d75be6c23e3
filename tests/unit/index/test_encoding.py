"""Weeks, as Python and the index count them, and which text gets a vector."""

from datetime import UTC, date, datetime, timedelta

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.index import encoding
from perdure.index.encoding import count_embedded_chars

TODAY = date(2026, 3, 18)  # a Wednesday


def test_weeks_begin_on_mondays_and_end_with_this_one():
    assert encoding.list_mondays(TODAY, 3) == [date(2026, 3, 2), date(2026, 3, 9), date(2026, 3, 16)]
    assert len(encoding.list_mondays(TODAY)) == encoding.HALF_YEAR_WEEKS
    assert encoding.get_day_start(TODAY) == datetime(2026, 3, 18, tzinfo=UTC)


@given(st.integers(0, 4_000_000_000_000))
def test_a_query_counts_by_the_same_week(at_ms):
    ((said,),) = apsw.Connection(":memory:").execute(f"SELECT {encoding.build_week_sql('?')}", (at_ms,)).fetchall()
    day = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).date()
    assert said == str(encoding.get_monday(day))


@pytest.mark.parametrize(
    ("author", "n", "expected"),
    [("person", 0, None), ("person", 9, None), ("agent", 0, 400), ("agent", 1, 0), ("machine", 0, 400),
     ("tool", 0, 150), ("tool", 7, 0)],
)  # fmt: skip
def test_extent_depends_on_the_author(author, n, expected):
    assert count_embedded_chars(author, n) == expected
