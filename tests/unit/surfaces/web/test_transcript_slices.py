"""Which transcripts are cached for the next slice, and the injections beside its turns."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from perdure.archive.store import LedgerEntry
from perdure.errors import NotFound
from perdure.index.session_turns import MAX_TIME_GAP
from perdure.surfaces.web.transcript_slices import TranscriptCache, find_injections
from perdure.types import Part, Turn

MB = 1_000_000


class House:
    """A home of runs of 10 MB, which counts how often each was read."""

    def __init__(self, user="ada"):
        self.path, self.user, self.n_read, self.change = "/home", user, Counter(), 1
        self.archive = SimpleNamespace(get_entry=self.get_entry)
        self.runs = self  # the room that reads them

    def get_entry(self, name):
        return LedgerEntry(name, "ada", 0, 10 * MB, "", None, self.change)

    def transcript(self, run_id):
        self.n_read[run_id] += 1
        turn = Turn("user", "person", ((0, 9),), (Part("text", f"{run_id} {self.change}"),))
        return SimpleNamespace(parsed=SimpleNamespace(turns=(turn,)))

    def get(self, run_id):
        if self.user == "eve":
            raise NotFound(run_id)


def test_transcript_is_cached_while_used_and_reread_when_changed():
    home, opened = House(), TranscriptCache(max_age_s=100)
    for at in (0, 90, 180):
        assert opened.get_turns(home, "a", now_s=at)[0].text() == "a 1"
    assert home.n_read["a"] == 1
    home.change = 2
    assert opened.get_turns(home, "a", now_s=181)[0].text() == "a 2"


def test_unused_transcript_expires():
    home, opened = House(), TranscriptCache(max_age_s=100)
    opened.get_turns(home, "a", now_s=0)
    opened.get_turns(home, "b", now_s=101)
    opened.get_turns(home, "a", now_s=102)
    assert home.n_read == {"a": 2, "b": 1}


def test_cache_keeps_a_bounded_size_and_always_the_last():
    """Of 10 MB each, 25 MB hold two; the one not asked for longest goes. 5 MB hold the last alone."""
    home, opened = House(), TranscriptCache(max_bytes=25 * MB)
    for name in ("a", "b", "a", "c", "a", "b"):
        opened.get_turns(home, name, now_s=0)
    assert home.n_read == {"a": 1, "b": 2, "c": 1}
    home, opened = House(), TranscriptCache(max_bytes=5 * MB)
    for name in ("a", "a", "b", "b", "a"):
        opened.get_turns(home, name, now_s=0)
    assert home.n_read == {"a": 2, "b": 1}


def test_cache_is_per_reader_and_checks_access_each_time():
    opened, ada, bob = TranscriptCache(), House(), House("bob")
    opened.get_turns(ada, "a", now_s=0)
    opened.get_turns(bob, "a", now_s=0)
    assert bob.n_read["a"] == 1
    with pytest.raises(NotFound):
        opened.get_turns(House("eve"), "a", now_s=0)


def watching(opened):
    with opened._lock:
        return opened._timer


def test_timer_drops_an_expired_transcript():
    """On a quiet server nothing else would take what was forgotten out of its memory."""
    opened = TranscriptCache(max_age_s=0.01)
    opened.get_turns(House(), "a")
    opened.get_turns(House(), "b")
    while (timer := watching(opened)) is not None:
        timer.join()
    assert not opened._entries and opened._n_bytes == 0


AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


def turn(name, after, role="user", author="person"):
    return SimpleNamespace(turn_id=name, role=role, author=author, stated_at=AT + after)


def told(nonce, after, runtime="pi", agent=""):
    return SimpleNamespace(nonce=nonce, at=AT + after, runtime=runtime, agent=agent)


def beside(given, turns, *, owner="ada", session="s"):
    """Turn -> nonces, for ada. What is asked of the home is a session's recalls of a time, and no journal."""

    def between(of, *, since_at, until_at):
        times = [one.stated_at for one in turns if one.role == "user"]
        assert (of, since_at, until_at) == ("s", min(times) - MAX_TIME_GAP, max(times) + MAX_TIME_GAP)
        return given

    home = SimpleNamespace(user="ada", memories=SimpleNamespace(injections=SimpleNamespace(list_between=between)))
    view = SimpleNamespace(user=owner, runtime="pi", session=session)
    return {name: [one.nonce for one in found] for name, found in find_injections(home, view, turns).items()}


TURNS = [turn("t1", timedelta()), turn("t2", timedelta(minutes=1), "assistant"), turn("t3", timedelta(minutes=2))]


def test_recall_is_placed_at_the_nearest_message_in_time():
    given = [told("a", timedelta(seconds=1)), told("b", timedelta(seconds=90)), told("c", timedelta(minutes=4))]
    assert beside(given, TURNS) == {"t1": ["a"], "t3": ["b"]}


def test_recall_is_placed_at_what_a_person_typed_not_at_a_nearer_notice():
    notice = turn("n", timedelta(seconds=1), author="machine")
    assert beside([told("a", timedelta(seconds=1))], [*TURNS, notice]) == {"t1": ["a"]}


@pytest.mark.parametrize("other", [{"runtime": "codex"}, {"agent": "x"}])
def test_recalls_of_another_runtime_or_agent_are_left_out(other):
    assert beside([told("a", timedelta(), **other)], TURNS) == {}


def test_recall_of_a_sub_agent_stands_in_its_own_session():
    assert beside([told("a", timedelta(), agent="x"), told("b", timedelta())], TURNS, session="s/x") == {"t1": ["a"]}


def test_own_recalls_do_not_stand_beside_shared_turns():
    assert beside([told("a", timedelta())], TURNS, owner="joel") == {}
