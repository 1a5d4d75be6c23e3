from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from perdure.config import JobsConfig
from perdure.errors import ConfigFault, NotFound
from perdure.jobs import GRACE_S, check_expression, find_next_time, is_due
from perdure.service.builtin_jobs import BUILTIN_JOBS, find_job, read_expressions

AT = datetime(2026, 5, 4, 12, 0)


def test_a_job_is_due_once_for_each_time_and_not_before():
    assert not is_due("*/5 * * * *", since=AT, now=AT + timedelta(minutes=4, seconds=59), missed="skip")
    assert is_due("*/5 * * * *", since=AT, now=AT + timedelta(minutes=5), missed="skip")
    began = AT + timedelta(minutes=5, seconds=3)
    assert not is_due("*/5 * * * *", since=began, now=AT + timedelta(minutes=9), missed="skip")


def test_three_missed_days_cause_at_most_one_run():
    late = AT + timedelta(days=3, minutes=2)
    assert is_due("30 3 * * *", since=AT, now=late, missed="once")
    assert not is_due("30 3 * * *", since=AT, now=late, missed="skip")
    assert not is_due("30 3 * * *", since=late, now=late + timedelta(minutes=1), missed="once")


def test_start_a_minute_late_is_not_missed():
    assert is_due("0 13 * * *", since=AT, now=AT + timedelta(hours=1, seconds=GRACE_S), missed="skip")
    assert not is_due("0 13 * * *", since=AT, now=AT + timedelta(hours=1, seconds=GRACE_S + 1), missed="skip")


def test_hour_skipped_by_summer_time_still_runs():
    """In Berlin 02:30 does not exist on 2026-03-29; as Debian's cron does, it runs at 03:00 (01:00 UTC)."""
    before = datetime(2026, 3, 29, 0, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert find_next_time("30 2 * * *", before).astimezone(ZoneInfo("UTC")).strftime("%H:%M") == "01:00"


def test_never_is_never():
    assert find_next_time("", AT) is None
    assert not is_due("", since=AT, now=AT + timedelta(days=400), missed="once")


@pytest.mark.parametrize("wrong", ["* * * *", "61 * * * *", "every day", "* * * * * *"])
def test_invalid_expression_is_named(wrong):
    with pytest.raises(ConfigFault, match=r"jobs\.pack"):
        check_expression(wrong, name="jobs.pack")


def test_every_job_has_a_setting_and_a_time():
    assert read_expressions(JobsConfig()).keys() == {known.name for known in BUILTIN_JOBS}
    assert all(read_expressions(JobsConfig()).values())
    with pytest.raises(ConfigFault):
        read_expressions(JobsConfig(sweep="soon"))
    with pytest.raises(NotFound, match="sweep"):
        find_job("swep")
