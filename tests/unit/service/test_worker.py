"""The worker decides whose turn it is; one user's failure or backlog costs nobody else theirs."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from perdure.errors import DiskFull, UsageError
from perdure.jobs import JobResult
from perdure.memories.stated import build_mark
from perdure.service import worker
from perdure.service.builtin_jobs import BuiltinJob
from perdure.service.health import HealthState
from perdure.service.worker import IngestWorker, StatementProgress, UserHomes
from rig.index_rows import START, ArchiveFile


class FakeHome:
    """A home of some users that records who was opened and closed."""

    def __init__(self, *users, user="ada", opened=None):
        self.user, self.users = user, users
        self.opened = [] if opened is None else opened
        self.config = SimpleNamespace(machine="laptop")
        self.sharing = SimpleNamespace(users=lambda: sorted(users))
        self.is_closed = False

    def clone_for_thread(self, *, identity):
        home = FakeHome(*self.users, user=identity.user, opened=self.opened)
        self.opened.append(home)
        return home

    def close(self):
        self.is_closed = True


def job(work, **fields):
    return BuiltinJob("test", "is a test", "once", work, for_each_user=True, **fields)


def never():
    return False


# a job for each user --------------------------------------------------------------------------------------------


def test_job_runs_for_each_user_with_a_home_of_their_own():
    home, seen = FakeHome("ada", "bob", "eve"), []

    def work(user_home, stop):
        seen.append(user_home.user)
        return JobResult("done", {"n": 1})

    result = worker.run_for_users(job(work), home, never)
    assert seen == ["ada", "bob", "eve"] and result.counts["n"] == 3
    assert [one.user for one in home.opened] == ["bob", "eve"] and all(one.is_closed for one in home.opened)


def test_failure_of_one_user_costs_no_other_their_turn():
    seen = []

    def work(user_home, stop):
        seen.append(user_home.user)
        if user_home.user == "ada":
            raise DiskFull("/data")
        return JobResult("fine", {"n": 1})

    result = worker.run_for_users(job(work), FakeHome("ada", "bob"), never)
    assert seen == ["ada", "bob"] and "disk-full" in str(result) and result.counts["n"] == 1


def test_job_of_the_whole_home_runs_once():
    result = worker.run_for_users(
        BuiltinJob("test", "is a test", "once", lambda home, stop: JobResult(home.user)), FakeHome("ada", "bob"), never
    )
    assert result.why == "ada"


def test_stop_ends_the_round_before_the_next_user():
    seen = []

    def work(user_home, stop):
        seen.append(user_home.user)
        return JobResult("done")

    worker.run_for_users(job(work), FakeHome("ada", "bob", "eve"), lambda: len(seen) == 2)
    assert seen == ["ada", "bob"]


def test_time_limit_reaches_the_work_as_a_stop():
    """The share of each user is over at once; without a limit the check is the caller's own."""
    stops = []

    def work(user_home, stop):
        stops.append(stop())
        return JobResult("done")

    worker.run_for_users(job(work, max_s=-1.0), FakeHome("ada", "bob"), never)
    worker.run_for_users(job(work), FakeHome("ada"), never)
    assert stops == [True, True, False]


def test_least_recently_used_home_is_closed_first(monkeypatch):
    monkeypatch.setattr(worker, "MAX_OPEN_HOMES", 2)
    home = FakeHome("ada", "bob", "eve", "kim")
    with UserHomes(home) as homes:
        assert homes.open_as_user("ada") is home
        bob, _ = homes.open_as_user("bob"), homes.open_as_user("eve")
        assert homes.open_as_user("bob") is bob
        homes.open_as_user("kim")
        assert [one.user for one in home.opened if one.is_closed] == ["eve"]
    assert all(one.is_closed for one in home.opened) and not home.is_closed


# turns ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ingest():
    return IngestWorker(Path("/nowhere"), lambda: None, HealthState(START), round_s=1, prove_s=1, slice_s=-1.0)


def test_users_take_turns_while_the_index_is_behind(ingest):
    """A slice holds one user here; the next round goes on with the one after, and everyone comes once in three."""
    rounds = [list(ingest._take_turns("embed", ["ada", "bob", "eve"], is_behind=True)) for _ in range(4)]
    assert rounds == [["ada"], ["bob"], ["eve"], ["ada"]]
    assert list(ingest._take_turns("embed", ["ada", "bob", "eve"], is_behind=False)) == ["bob", "eve", "ada"]
    assert list(ingest._take_turns("stated", ["ada"], is_behind=True)) == ["ada"]  # a step has turns of its own


@pytest.fixture
def archive(tmp_path) -> Iterator[ArchiveFile]:
    file = ArchiveFile(tmp_path)
    yield file
    file.close()


def test_users_wait_until_the_rules_have_read_their_captures(archive):
    progress, ledger, users = StatementProgress(), archive.archive.ledger, ["ada", "bob"]
    assert progress.list_waiting_users(ledger, users) == []
    archive.capture("s", "one")
    assert progress.list_waiting_users(ledger, users) == ["ada"]
    ledger.set_meta(build_mark("ada"), str(ledger.get_last_change()))
    assert progress.list_waiting_users(ledger, users) == []
    archive.capture("t", "two", user="bob")
    assert progress.list_waiting_users(ledger, users) == ["bob"]


# requests -------------------------------------------------------------------------------------------------------


def test_event_is_read_from_a_list_or_an_object():
    event = worker._parse_event({"client": "pi", "kind": "prompt", "session": "s", "prompt": "hi", "later": 1})
    assert (event.client, event.prompt) == ("pi", "hi")
    assert worker._parse_event(list(event)) == event


@pytest.mark.parametrize(
    "raw", [None, 7, "x", [], [1], {}, {"client": "pi"}, {"client": 1, "kind": "prompt", "session": "s"}]
)
def test_malformed_event_is_refused(raw):
    with pytest.raises(UsageError):
        worker._parse_event(raw)


def test_moment_of_a_request_needs_the_form_of_an_instant():
    assert worker._parse_now(None) is None and worker._parse_now("2026-03-02T09:00:00Z") == START
    with pytest.raises(UsageError):
        worker._parse_now("soon")
