import json
import threading
from datetime import UTC, datetime, timedelta

import pytest

from perdure.errors import AlreadyServing, ArchiveFault
from perdure.jobs import post
from perdure.jobs.book import KEPT, Book, Done

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def clock():
    times = iter(NOW + timedelta(seconds=n) for n in range(10_000))
    return lambda: next(times)


def test_a_run_leaves_what_happened_and_why(tmp_path):
    book = Book(tmp_path)
    ended = book.run("pack", lambda: Done("3 packed", {"runs": 3}), trigger="clock", now=clock())
    assert (ended.result, ended.why, ended.counts, ended.took_ms) == ("done", "3 packed", {"runs": 3}, 1000.0)
    assert book.latest("pack") == ended
    assert Book(tmp_path).history("pack") == [ended]


def test_what_did_nothing_is_the_latest_and_no_history(tmp_path):
    book = Book(tmp_path)
    book.run("sweep", lambda: Done("nothing new", did=False), trigger="clock", now=clock())
    assert book.latest("sweep").result == "nothing"
    assert book.history("sweep") == []


def test_a_failure_is_recorded_and_the_next_run_goes_on(tmp_path):
    def fails():
        raise ArchiveFault("the disk")

    book = Book(tmp_path)
    assert book.run("pack", fails, trigger="clock", now=clock()).result == "failed"
    book.run("pack", lambda: Done("fine"), trigger="person", now=clock())
    assert [(run.result, run.trigger) for run in book.history("pack")] == [("failed", "clock"), ("done", "person")]
    assert "archive-fault" in book.history("pack")[0].why


def test_a_job_never_runs_twice_at_once_even_in_two_processes(tmp_path):
    """A second book stands for a second process: the lock is on an open file, not on the object."""
    entered, leave = threading.Event(), threading.Event()

    def slow():
        entered.set()
        assert leave.wait(10)
        return Done("done")

    first = threading.Thread(target=lambda: Book(tmp_path).run("pack", slow, trigger="clock", now=clock()))
    first.start()
    assert entered.wait(10)
    assert Book(tmp_path).settle("pack").result == "running"
    assert Book(tmp_path).run("pack", lambda: Done("?"), trigger="person", now=clock()).result == "busy"
    leave.set()
    first.join(10)
    assert [run.why for run in Book(tmp_path).history("pack")] == ["done"]


def test_a_run_whose_process_was_killed_shows_as_interrupted(tmp_path):
    book = Book(tmp_path)

    class Killed(BaseException):
        pass

    def dies():
        raise Killed

    with pytest.raises(Killed):
        book.run("verify", dies, trigger="clock", now=clock())
    assert book.latest("verify").result == "running"
    assert book.settle("verify").result == "interrupted"
    assert [run.result for run in book.history("verify")] == ["interrupted"]


def test_the_history_is_bounded_and_survives_a_torn_line(tmp_path):
    book, now = Book(tmp_path), clock()
    for n in range(2 * KEPT + 5):
        book.run("sweep", lambda n=n: Done(str(n)), trigger="clock", now=now)
    assert [run.why for run in book.history("sweep")] == [str(n) for n in range(KEPT + 5, 2 * KEPT + 5)]
    path = tmp_path / "run" / "jobs" / "sweep.jsonl"
    assert len(path.read_bytes().splitlines()) <= 2 * KEPT
    path.write_bytes(path.read_bytes()[:-20])
    assert len(book.history("sweep")) >= KEPT - 1


def test_paused_jobs_are_remembered(tmp_path):
    Book(tmp_path).pause("pack")
    Book(tmp_path).pause("sweep")
    assert Book(tmp_path).resume("pack")
    assert not Book(tmp_path).resume("pack")
    assert Book(tmp_path).paused() == {"sweep"}


def test_only_one_holds_the_post_and_a_second_is_told_who(tmp_path):
    with post.held(tmp_path, now=NOW):
        who = post.resident(tmp_path)
        assert who.since_at == NOW
        refused = pytest.raises(AlreadyServing, match=f"process {who.pid} since 2026-05-04")
        with refused, post.held(tmp_path, now=NOW):
            pass
    assert post.resident(tmp_path) is None
    (tmp_path / "run" / "serve.json").write_text(json.dumps({"pid": 1, "since_at": NOW.isoformat()}))
    assert post.resident(tmp_path) is None
    with post.held(tmp_path, now=NOW):
        pass
