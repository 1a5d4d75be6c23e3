"""Which transcripts are kept for the next piece, and for how long."""

from collections import Counter
from types import SimpleNamespace

import pytest

from perdure.archive.store import Held
from perdure.errors import NotFound
from perdure.surfaces.page.opened import Opened
from perdure.types import Part, Turn

MB = 1_000_000


class House:
    """A home of runs of 10 MB, which counts how often each was read."""

    def __init__(self, user="ada"):
        self.path, self.user, self.n_read, self.change = "/home", user, Counter(), 1
        self.archive = SimpleNamespace(held=lambda name: Held(name, "ada", 0, 10 * MB, "", None, self.change))

    def transcript(self, run_id):
        self.n_read[run_id] += 1
        turn = Turn("user", "person", ((0, 9),), (Part("text", f"{run_id} {self.change}"),))
        return SimpleNamespace(parsed=SimpleNamespace(turns=(turn,)))

    def run(self, run_id):
        if self.user == "eve":
            raise NotFound(run_id)


def test_a_transcript_is_read_once_while_it_is_asked_for_and_anew_when_its_bytes_change():
    home, opened = House(), Opened(kept_s=100)
    for at in (0, 90, 180):
        assert opened.turns(home, "a", now_s=at)[0].text() == "a 1"
    assert home.n_read["a"] == 1
    home.change = 2
    assert opened.turns(home, "a", now_s=181)[0].text() == "a 2"


def test_what_nobody_asked_for_is_let_go():
    home, opened = House(), Opened(kept_s=100)
    opened.turns(home, "a", now_s=0)
    opened.turns(home, "b", now_s=101)
    opened.turns(home, "a", now_s=102)
    assert home.n_read == {"a": 2, "b": 1}


def test_there_is_room_for_so_much_and_the_last_in_any_case():
    """Of 10 MB each, 25 MB hold two; the one not asked for longest goes. 5 MB hold the last alone."""
    home, opened = House(), Opened(most_bytes=25 * MB)
    for name in ("a", "b", "a", "c", "a", "b"):
        opened.turns(home, name, now_s=0)
    assert home.n_read == {"a": 1, "b": 2, "c": 1}
    home, opened = House(), Opened(most_bytes=5 * MB)
    for name in ("a", "a", "b", "b", "a"):
        opened.turns(home, name, now_s=0)
    assert home.n_read == {"a": 2, "b": 1}


def test_each_reader_has_their_own_and_whether_it_may_be_read_is_asked_each_time():
    opened, ada, bob = Opened(), House(), House("bob")
    opened.turns(ada, "a", now_s=0)
    opened.turns(bob, "a", now_s=0)
    assert bob.n_read["a"] == 1
    with pytest.raises(NotFound):
        opened.turns(House("eve"), "a", now_s=0)


def watching(opened):
    with opened._lock:
        return opened._timer


def test_what_was_read_is_let_go_though_nobody_asks_again():
    """On a quiet server nothing else would take what was forgotten out of its memory."""
    opened = Opened(kept_s=0.01)
    opened.turns(House(), "a")
    opened.turns(House(), "b")
    while (timer := watching(opened)) is not None:
        timer.join()
    assert not opened._kept and opened._n_bytes == 0
