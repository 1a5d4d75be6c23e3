import json
import threading
from datetime import UTC, datetime, timedelta

import pytest

from perdure.errors import AlreadyServing, ArchiveFault
from perdure.jobs import MAX_RUNS, JobLog, JobResult
from perdure.service import lock

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


def test_only_one_process_holds_the_lock_and_a_second_learns_who(tmp_path):
    with lock.hold_lock(tmp_path, now=NOW):
        who = lock.find_resident(tmp_path)
        assert who.since_at == NOW
        refused = pytest.raises(AlreadyServing, match=f"process {who.pid} since 2026-05-04")
        with refused, lock.hold_lock(tmp_path, now=NOW):
            pass
    assert lock.find_resident(tmp_path) is None
    (tmp_path / "run" / "serve.json").write_text(json.dumps({"pid": 1, "since_at": NOW.isoformat()}))
    assert lock.find_resident(tmp_path) is None
    with lock.hold_lock(tmp_path, now=NOW):
        pass
