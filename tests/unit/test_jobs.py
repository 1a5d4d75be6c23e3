"""The log of job runs, and the times at which a job is due."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from perdure.environ import LOCAL_ZONE
from perdure.errors import ArchiveFault, ConfigFault
from perdure.jobs import (
    GRACE_S,
    MAX_RUNS,
    JobLog,
    JobResult,
    check_expression,
    find_last_start,
    find_latest_time,
    find_next_time,
    is_due,
)

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def clock():
    times = iter(NOW + timedelta(seconds=n) for n in range(10_000))
    return lambda: next(times)


def test_run_records_its_result_and_reason(tmp_path):
    book = JobLog(tmp_path)
    ended = book.run("pack", lambda: JobResult("3 packed", {"runs": 3}), trigger="clock", now=clock())
    assert (ended.result, ended.why, ended.counts, ended.took_ms) == ("done", "3 packed", {"runs": 3}, 1000.0)
    assert book.read_latest("pack") == ended
    assert JobLog(tmp_path).read_history("pack") == [ended]


def test_idle_run_is_the_latest_but_not_in_the_history(tmp_path):
    book = JobLog(tmp_path)
    book.run("sweep", lambda: JobResult("nothing new", did_work=False), trigger="clock", now=clock())
    assert book.read_latest("sweep").result == "nothing"
    assert book.read_history("sweep") == []


def test_failure_is_recorded_and_the_next_run_continues(tmp_path):
    def fails():
        raise ArchiveFault("the disk")

    book = JobLog(tmp_path)
    assert book.run("pack", fails, trigger="clock", now=clock()).result == "failed"
    book.run("pack", lambda: JobResult("fine"), trigger="person", now=clock())
    assert [(run.result, run.trigger) for run in book.read_history("pack")] == [("failed", "clock"), ("done", "person")]
    assert "archive-fault" in book.read_history("pack")[0].why


def test_a_job_never_runs_twice_at_once_even_in_two_processes(tmp_path):
    """A second book stands for a second process: the lock is on an open file, not on the object."""
    entered, leave = threading.Event(), threading.Event()

    def slow():
        entered.set()
        assert leave.wait(10)
        return JobResult("done")

    first = threading.Thread(target=lambda: JobLog(tmp_path).run("pack", slow, trigger="clock", now=clock()))
    first.start()
    assert entered.wait(10)
    assert JobLog(tmp_path).settle_latest("pack").result == "running"
    assert JobLog(tmp_path).run("pack", lambda: JobResult("?"), trigger="person", now=clock()).result == "busy"
    leave.set()
    first.join(10)
    assert [run.why for run in JobLog(tmp_path).read_history("pack")] == ["done"]


def test_run_of_a_killed_process_shows_as_interrupted(tmp_path):
    book = JobLog(tmp_path)

    class Killed(BaseException):
        pass

    def dies():
        raise Killed

    with pytest.raises(Killed):
        book.run("verify", dies, trigger="clock", now=clock())
    assert book.read_latest("verify").result == "running"
    assert book.settle_latest("verify").result == "interrupted"
    assert [run.result for run in book.read_history("verify")] == ["interrupted"]


def test_the_history_is_bounded_and_survives_a_torn_line(tmp_path):
    book, now = JobLog(tmp_path), clock()
    for n in range(2 * MAX_RUNS + 5):
        book.run("sweep", lambda n=n: JobResult(str(n)), trigger="clock", now=now)
    assert [run.why for run in book.read_history("sweep")] == [str(n) for n in range(MAX_RUNS + 5, 2 * MAX_RUNS + 5)]
    path = tmp_path / "run" / "jobs" / "sweep.jsonl"
    assert len(path.read_bytes().splitlines()) <= 2 * MAX_RUNS
    path.write_bytes(path.read_bytes()[:-20])
    assert len(book.read_history("sweep")) >= MAX_RUNS - 1


def test_paused_jobs_are_remembered(tmp_path):
    JobLog(tmp_path).pause("pack")
    JobLog(tmp_path).pause("sweep")
    assert JobLog(tmp_path).resume("pack")
    assert not JobLog(tmp_path).resume("pack")
    assert JobLog(tmp_path).list_paused() == {"sweep"}


def test_jobs_that_are_paused_at_once_are_all_paused(tmp_path):
    """The page, the API and a command may each pause one."""
    names = [f"job-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: JobLog(tmp_path).pause(name), names))
    assert JobLog(tmp_path).list_paused() == set(names)


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


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("expression", "began", "times"),
    [
        ("0 9 * * *", (2026, 10, 24, 8), ["24 09:00", "25 09:00"]),
        ("30 0 * * *", (2026, 10, 24, 8), ["25 00:30", "26 00:30"]),
        ("30 2 * * *", (2026, 10, 24, 8), ["25 02:30", "26 02:30"]),
        ("0 9 * * *", (2026, 3, 28, 8), ["28 09:00", "29 09:00"]),
        ("30 2 * * *", (2026, 3, 28, 8), ["29 03:00", "30 02:30"]),
        ("0 */2 * * *", (2026, 10, 24, 23), ["25 00:00", "25 02:00", "25 02:00", "25 04:00"]),
    ],
)
def test_changed_clocks_start_no_job_twice(expression, began, times):
    """Looked at each minute. A job of every second hour starts at both hours 02:00, as in Debian's cron."""
    since = datetime(*began).astimezone(LOCAL_ZONE)
    starts, due_at = [], []
    now_s = since.timestamp()
    while len(starts) < len(times):
        now_s += 60
        now = datetime.fromtimestamp(now_s + 0.5, LOCAL_ZONE)
        if is_due(expression, since=since, now=now, missed="once"):
            since = now
            starts.append(f"{now:%d %H:%M}")
            due_at.append(find_latest_time(expression, now).astimezone(UTC))
    assert starts == times
    assert due_at == sorted(set(due_at))


def test_a_start_far_in_the_future_does_not_count():
    """A clock that was wrong noted it. Half a minute ahead is a clock that was set right: the start counts."""
    soon, in_ten_years = NOW + timedelta(seconds=30), NOW + timedelta(days=3650)
    assert find_last_start([NOW, soon], NOW) == soon
    assert find_last_start([NOW - timedelta(days=1), in_ten_years], NOW) == NOW - timedelta(days=1)
    assert find_last_start([in_ten_years], NOW) == NOW - timedelta(seconds=GRACE_S)
