"""Who may talk with the agent, and sessions that are held: over a scripted model, without a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.errors import Busy
from perdure.floor.platforms import WEB
from perdure.home import Home
from perdure.surfaces.live_sessions import LiveEvent, LiveSessions, TurnRequest
from rig.model_server import Answer, ModelServer


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, model: ModelServer) -> Iterator[Home]:
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    role = f'[models.roles.resident]\nprovider = "openai"\nmodel = "m"\nurl = "{model.url}/v1"\n'
    (place / "config.toml").write_text(f'{role}[models.embedder]\nkind = "off"\n')
    with perdure.open(place, user="ada") as opened:
        yield opened


@pytest.fixture
def live(home: Home) -> Iterator[LiveSessions]:
    sessions = LiveSessions(home.clone_for_thread, "ada", on_turn_end=lambda: None, max_sessions=1)
    yield sessions
    sessions.close()


@pytest.mark.parametrize(
    ("user", "address", "is_remote_allowed", "words"),
    [
        ("ada", "127.0.0.1", False, ""),
        ("ada", "::1", False, ""),
        ("ada", "192.168.1.7", False, "remote_agent"),
        ("ada", "", False, "remote_agent"),
        ("ada", "192.168.1.7", True, ""),
        ("bob", "127.0.0.1", True, "own user"),
    ],
)
def test_who_may_talk_with_the_agent(home: Home, user: str, address: str, is_remote_allowed: bool, words: str) -> None:
    sessions = LiveSessions(home.clone_for_thread, "ada", on_turn_end=lambda: None, allows_remote=is_remote_allowed)
    refusal = sessions.find_refusal(user, address)
    assert words in refusal and bool(words) == bool(refusal)
    sessions.close()


def test_a_session_that_nobody_uses_is_given_up(home: Home, live: LiveSessions) -> None:
    with live.begin(WEB) as held:
        turn = held.start_turn(TurnRequest("hello"))
        assert turn is not None and turn.ended.wait(10)
    live.give_up_idle(held.last_used_s + 299)
    assert live.find(held.session) is held
    live.give_up_idle(held.last_used_s + 301)
    assert live.find(held.session) is None
    with live.resume(home, held.session, WEB) as again:
        assert again.session == held.session and again is not held


def test_a_session_is_not_given_up_before_its_turn(home: Home, live: LiveSessions) -> None:
    """Between two steps of a thread that found the session, the sweep comes, and another one needs room."""
    with live.begin(WEB) as first:
        pass
    with live.resume(home, first.session, WEB) as used:
        live.give_up_idle(used.last_used_s + 301)
        with pytest.raises(Busy), live.begin(WEB):
            pass
        turn = used.start_turn(TurnRequest("hello"))
        assert turn is not None and turn.ended.wait(10) and turn.said == "OK."
    with live.begin(WEB) as second:
        assert (live.find(first.session), live.find(second.session)) == (None, second)


def test_listeners_hear_of_a_session_whenever_it_is_held(home: Home, live: LiveSessions) -> None:
    events, ended = list[LiveEvent](), threading.Event()

    def listen(event: LiveEvent) -> None:
        events.append(event)
        if event.kind == "end":
            ended.set()

    with live.begin(WEB) as held:
        live.add_listener(held.session, listen)
        held.start_turn(TurnRequest("hello there"))
    assert ended.wait(10)
    assert "".join(event.text for event in events if event.kind == "text") == "OK."
    live.remove_listener(held.session, listen)
    n_events = len(events)
    again = held.start_turn(TurnRequest("again"))
    assert again is not None and again.ended.wait(10)
    assert len(events) == n_events


def test_the_end_cancels_what_goes_on(live: LiveSessions, model: ModelServer) -> None:
    model.answers.append(Answer(hangs=True))
    with live.begin(WEB) as held:
        turn = held.start_turn(TurnRequest("hello"))
    assert turn is not None and not turn.ended.is_set()
    live.close()
    assert turn.ended.is_set() and live.find(held.session) is None
