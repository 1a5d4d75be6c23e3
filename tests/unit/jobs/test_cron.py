from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from perdure.config import JobsConfig
from perdure.errors import ConfigFault, NotFound
from perdure.jobs.cron import GRACE_S, check, is_due, next_at
from perdure.schedule import JOBS, job, when

AT = datetime(2026, 5, 4, 12, 0)


def test_a_job_is_due_once_for_each_time_and_not_before():
    assert not is_due("*/5 * * * *", since=AT, now=AT + timedelta(minutes=4, seconds=59), missed="skip")
    assert is_due("*/5 * * * *", since=AT, now=AT + timedelta(minutes=5), missed="skip")
    began = AT + timedelta(minutes=5, seconds=3)
    assert not is_due("*/5 * * * *", since=began, now=AT + timedelta(minutes=9), missed="skip")


def test_three_days_missed_are_one_run_or_none():
    late = AT + timedelta(days=3, minutes=2)
    assert is_due("30 3 * * *", since=AT, now=late, missed="once")
    assert not is_due("30 3 * * *", since=AT, now=late, missed="skip")
    assert not is_due("30 3 * * *", since=late, now=late + timedelta(minutes=1), missed="once")


def test_a_busy_machine_that_is_a_minute_late_has_missed_nothing():
    assert is_due("0 13 * * *", since=AT, now=AT + timedelta(hours=1, seconds=GRACE_S), missed="skip")
    assert not is_due("0 13 * * *", since=AT, now=AT + timedelta(hours=1, seconds=GRACE_S + 1), missed="skip")


def test_an_hour_that_summer_time_leaves_out_runs_all_the_same():
    """In Berlin 02:30 does not exist on 2026-03-29; as Debian's cron does, it runs at 03:00 (01:00 UTC)."""
    before = datetime(2026, 3, 29, 0, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert next_at("30 2 * * *", before).astimezone(ZoneInfo("UTC")).strftime("%H:%M") == "01:00"


def test_never_is_never():
    assert next_at("", AT) is None
    assert not is_due("", since=AT, now=AT + timedelta(days=400), missed="once")


@pytest.mark.parametrize("wrong", ["* * * *", "61 * * * *", "every day", "* * * * * *"])
def test_what_is_no_expression_is_named(wrong):
    with pytest.raises(ConfigFault, match=r"jobs\.pack"):
        check(wrong, name="jobs.pack")


def test_every_job_has_a_setting_and_a_time():
    assert when(JobsConfig()).keys() == {known.name for known in JOBS}
    assert all(when(JobsConfig()).values())
    with pytest.raises(ConfigFault):
        when(JobsConfig(sweep="soon"))
    with pytest.raises(NotFound, match="sweep"):
        job("swep")
