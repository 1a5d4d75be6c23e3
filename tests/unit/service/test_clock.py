"""Which jobs are due: by their expression, their last run, and whether they run or are paused."""

import threading
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from perdure.config import JobsConfig
from perdure.errors import DiskFull
from perdure.jobs import JobLog, JobResult
from perdure.service.builtin_jobs import BUILTIN_JOBS
from perdure.service.clock import JobClock
from rig.index_rows import START

OFF = dict.fromkeys((job.name for job in BUILTIN_JOBS), "")


def make_clock(folder, **expressions):
    home = SimpleNamespace(path=folder, config=SimpleNamespace(jobs=JobsConfig(**(OFF | expressions))))
    return JobClock(lambda: None, home, tick_s=1)


def run(folder, name, at):
    JobLog(folder).run(name, lambda: JobResult("done"), trigger="clock", now=lambda: at)


def due(clock, now, known_at=START):
    return clock._list_due(known_at, now)


def test_job_is_due_at_its_time_and_not_again_after_its_run(tmp_path):
    clock = make_clock(tmp_path, pack="0 10 * * *")
    assert due(clock, START + timedelta(minutes=59)) == []
    assert due(clock, START + timedelta(minutes=60)) == ["pack"]
    run(tmp_path, "pack", START + timedelta(minutes=60))
    assert due(clock, START + timedelta(minutes=61)) == []
    assert due(clock, START + timedelta(days=1, minutes=60)) == ["pack"]


def test_missed_run_of_a_watchdog_is_skipped_and_of_others_caught_up(tmp_path):
    """Three hours after 10:00: pack runs once, the watchdog waits for its next time."""
    clock = make_clock(tmp_path, pack="0 10 * * *", watchdog="0 10 * * *")
    assert due(clock, START + timedelta(hours=4)) == ["pack"]


def test_job_is_not_due_while_it_is_switched_off_paused_or_running(tmp_path):
    clock, now = make_clock(tmp_path, pack="0 10 * * *", sweep="0 10 * * *"), START + timedelta(hours=1)
    assert due(clock, now) == ["sweep", "pack"]
    JobLog(tmp_path).pause("sweep")
    assert due(clock, now) == ["pack"]
    release = threading.Event()
    clock._threads["pack"] = threading.Thread(target=release.wait, daemon=True)
    clock._threads["pack"].start()
    assert due(clock, now) == []
    release.set()
    clock._threads["pack"].join(10)
    assert due(clock, now) == ["pack"]


def test_requested_job_is_due_at_once_and_only_once(tmp_path):
    clock = make_clock(tmp_path, embed="0 0 1 1 *")
    clock.request("embed")
    assert due(clock, START) == ["embed"]
    clock._open_home = fail
    clock._start("embed", threading.Event())
    clock._threads["embed"].join(10)
    assert due(clock, START) == []


def test_request_starts_no_job_that_is_off_paused_or_failed(tmp_path):
    """A model that does not answer is asked again at the job's own time, not for every new capture."""
    clock = make_clock(tmp_path, embed="0 0 1 1 *")
    for name in ("embed", "pack"):
        clock.request(name)
    JobLog(tmp_path).pause("embed")
    assert due(clock, START) == []
    JobLog(tmp_path).resume("embed")
    assert due(clock, START) == ["embed"]
    JobLog(tmp_path).run("embed", fail, trigger="clock", now=lambda: START)
    assert due(clock, START) == []


def fail():
    raise DiskFull("/")


@pytest.mark.parametrize("hours", [-26, -1])
def test_clock_that_was_set_back_starts_nothing_twice(tmp_path, hours):
    clock = make_clock(tmp_path, pack="0 10 * * *")
    run(tmp_path, "pack", START + timedelta(hours=1))
    assert due(clock, START + timedelta(hours=hours)) == []


def test_job_whose_record_cannot_be_written_keeps_no_other_from_starting(tmp_path):
    """The history of pack is a folder, so that its interrupted run cannot be noted."""
    log = JobLog(tmp_path)
    run(tmp_path, "pack", START)
    log.record(replace(log.read_latest("pack"), result="running"))
    (tmp_path / "run/jobs/pack.jsonl").unlink()
    (tmp_path / "run/jobs/pack.jsonl").mkdir()
    clock = make_clock(tmp_path, pack="0 10 * * *", verify="0 10 * * *")
    assert due(clock, START + timedelta(hours=1)) == ["verify"]
