"""What began in a line of talk, and what it began in, by either link: the session that spawned it, or a named run."""

import json
from datetime import UTC, datetime

import pytest

import perdure
from perdure.archive.archive import Delta
from perdure.types import Origin

START = datetime(2026, 1, 15, 9, tzinfo=UTC)


class Talks:
    """A home in which runs are captured with the links that they name."""

    def __init__(self, place):
        self.home = perdure.open(place, user="ada")

    def say(self, words, session, *, runtime="messages", parent_session=None, **how):
        data = json.dumps({"role": "user", "content": words, "timestamp": START.isoformat()}).encode() + b"\n"
        delta = Delta(Origin(runtime, session, session, parent_session, None), "ada", "box", data, 0, **how)
        (answer,) = self.home.archive.store([delta], now=START, tombstones={})
        self.home.upkeep.catch_up()
        return answer.run_id

    def below(self, run_id):
        return [one.run_id for one in self.home.runs.thread(run_id).list_spawned()]


@pytest.fixture
def talks(tmp_path):
    made = Talks(tmp_path / "home")
    yield made
    made.home.close()


def test_run_with_a_named_parent_is_found_from_both_ends(talks):
    top = talks.say("The lighthouse is painted.", "top")
    named = talks.say("The ladder is looked at.", "named", parent_run_id=top)
    spawned = talks.say("The paint is looked at.", "spawned", parent_session="top")
    deep = talks.say("A rung is looked at.", "deep", parent_run_id=named)
    talks.say("The buoy is moored.", "elsewhere")
    assert sorted(talks.below(top)) == sorted([named, spawned])
    assert talks.below(named) == [deep]
    assert (
        talks.home.runs.thread(named).find_parent_run() == top
        and talks.home.runs.thread(spawned).find_parent_run() == top
    )
    assert (
        talks.home.runs.thread(deep).find_parent_run() == named
        and talks.home.runs.thread(top).find_parent_run() is None
    )


def test_run_with_two_parents_appears_once_below_the_named_run(talks):
    top, other = talks.say("The lighthouse is painted.", "top"), talks.say("The buoy is moored.", "other")
    both = talks.say("The ladder is looked at.", "both", parent_session="other", parent_run_id=top)
    same = talks.say("The paint is looked at.", "same", parent_session="top", parent_run_id=top)
    assert sorted(talks.below(top)) == sorted([both, same]) and talks.below(other) == []
    assert talks.home.runs.thread(both).find_parent_run() == top
