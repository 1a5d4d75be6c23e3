"""The time zone of the machine."""

from datetime import UTC, date, datetime

import pytest

from perdure.environ import LOCAL_ZONE, local_now
from perdure.recall.times import find_times

pytestmark = pytest.mark.usefixtures("berlin")


def test_the_zone_of_now_has_the_offsets_of_other_days():
    now = local_now()
    assert abs((datetime.now(UTC) - now).total_seconds()) < 5
    hours = [now.replace(month=month, day=1).strftime("%z") for month in (1, 7)]
    assert hours == ["+0100", "+0200"]


@pytest.mark.parametrize(("now", "begins"), [
    (datetime(2026, 11, 27, 9, tzinfo=UTC), datetime(2026, 6, 30, 22, tzinfo=UTC)),
    (datetime(2026, 8, 1, 9, tzinfo=UTC), datetime(2026, 6, 30, 22, tzinfo=UTC)),
])  # fmt: skip
def test_a_month_begins_at_midnight_of_its_own_season(now, begins):
    (window,) = find_times("what broke in July 2026?", now.astimezone(LOCAL_ZONE)).windows
    assert window.since_at.astimezone(UTC) == begins
    assert window.since_at.date() == date(2026, 7, 1)
