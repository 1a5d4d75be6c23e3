"""What was recalled beside the turns of a stretch: the reader's own, by who and when."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from perdure.index.exchanges import NEAR
from perdure.surfaces.page.stretches import injected_beside

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


def turn(name, after, role="user"):
    return SimpleNamespace(turn_id=name, role=role, stated_at=AT + after)


def told(nonce, after, runtime="pi", agent=""):
    return SimpleNamespace(nonce=nonce, at=AT + after, runtime=runtime, agent=agent)


def beside(given, turns, *, owner="ada", session="s"):
    """Turn -> nonces, for ada. What is asked of the home is a session's recalls of a time, and no journal."""

    def between(of, *, since_at, until_at):
        times = [one.stated_at for one in turns if one.role == "user"]
        assert (of, since_at, until_at) == ("s", min(times) - NEAR, max(times) + NEAR)
        return given

    home = SimpleNamespace(user="ada", injections=SimpleNamespace(between=between))
    view = SimpleNamespace(user=owner, runtime="pi", session=session)
    return {name: [one.nonce for one in found] for name, found in injected_beside(home, view, turns).items()}


TURNS = [turn("t1", timedelta()), turn("t2", timedelta(minutes=1), "assistant"), turn("t3", timedelta(minutes=2))]


def test_a_recall_stands_beside_the_message_that_is_nearest_in_time():
    given = [told("a", timedelta(seconds=1)), told("b", timedelta(seconds=90)), told("c", timedelta(minutes=4))]
    assert beside(given, TURNS) == {"t1": ["a"], "t3": ["b"]}


@pytest.mark.parametrize("other", [{"runtime": "codex"}, {"agent": "x"}])
def test_what_another_runtime_or_agent_was_told_is_not_beside_it(other):
    assert beside([told("a", timedelta(), **other)], TURNS) == {}


def test_what_a_sub_agent_was_told_stands_in_its_own_talk():
    assert beside([told("a", timedelta(), agent="x"), told("b", timedelta())], TURNS, session="s/x") == {"t1": ["a"]}


def test_beside_what_another_shares_nothing_of_ones_own_stands():
    assert beside([told("a", timedelta())], TURNS, owner="joel") == {}
