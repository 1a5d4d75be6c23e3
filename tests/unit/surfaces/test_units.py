"""Times as people write them."""

import time
from datetime import UTC, datetime

import pytest

from perdure.errors import UsageError
from perdure.surfaces.units import format_zoned_time, parse_moment

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)


def test_an_age_is_counted_from_now():
    assert parse_moment("12h", now=NOW) == datetime(2026, 11, 21, 21, tzinfo=UTC)


@pytest.mark.parametrize("said", ["someday", "0001-01-01", "9999-12-31T23:59:59-14:00", "2026-13-40", "", "999999w"])
def test_invalid_time_is_refused(said):
    with pytest.raises(UsageError, match="is not a time"):
        parse_moment(said)


def test_a_time_of_the_page_names_its_zone(monkeypatch):
    """10:00 in UTC is noon in Berlin in summer, and 11:00 in winter."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    shown = [format_zoned_time(datetime(2026, month, 1, 10, tzinfo=UTC)) for month in (1, 7)]
    monkeypatch.undo()
    time.tzset()
    assert shown == ["2026-01-01 11:00 CET", "2026-07-01 12:00 CEST"]
