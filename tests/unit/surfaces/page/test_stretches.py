"""What was recalled beside the turns of a stretch: the reader's own, by who and when."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from perdure.index.session_turns import MAX_TIME_GAP
from perdure.surfaces.web.transcript_slices import find_injections

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


def turn(name, after, role="user"):
    return SimpleNamespace(turn_id=name, role=role, stated_at=AT + after)


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


@pytest.mark.parametrize("other", [{"runtime": "codex"}, {"agent": "x"}])
def test_recalls_of_another_runtime_or_agent_are_left_out(other):
    assert beside([told("a", timedelta(), **other)], TURNS) == {}


def test_recall_of_a_sub_agent_stands_in_its_own_session():
    assert beside([told("a", timedelta(), agent="x"), told("b", timedelta())], TURNS, session="s/x") == {"t1": ["a"]}


def test_own_recalls_do_not_stand_beside_shared_turns():
    assert beside([told("a", timedelta())], TURNS, owner="joel") == {}
