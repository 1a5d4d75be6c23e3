"""When a stream begins, and what a failure is before and after: without a server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from perdure.errors import ModelUnreachable
from perdure.surfaces.agent_api.answers import AnswerHead
from perdure.surfaces.agent_api.app import AgentApi, _Exchange
from perdure.surfaces.agent_api.requests import read_request
from perdure.surfaces.live_sessions import LiveEvent, LiveTurn

BODY = json.dumps({"model": "perdure", "messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
NONE: Any = None  # of the server, nothing is asked


async def stream(*events: LiveEvent, ping_s: float = 10.0, n_pings: int = 0) -> list[bytes]:
    """Return the pieces of the stream of a turn that fails. n_pings: so many come before its events."""
    turn = LiveTurn(is_attended=False)
    turn.error = ModelUnreachable("the endpoint went away")
    exchange = _Exchange(read_request("chat", BODY, {}), AnswerHead("chat", "1", 0), None, asyncio.Queue(), turn)
    pieces, given = AgentApi(NONE, NONE, ping_s)._stream(exchange), []
    given += [await anext(pieces) for _ in range(n_pings)]
    for event in events:
        exchange.events.put_nowait(event)
    given += [piece async for piece in pieces]
    return given


def test_before_its_first_piece_a_failure_is_raised() -> None:
    with pytest.raises(ModelUnreachable, match="went away"):
        asyncio.run(stream(LiveEvent("change"), LiveEvent("end")))


def test_after_a_word_or_a_sign_of_life_a_failure_is_an_event() -> None:
    word, failure = asyncio.run(stream(LiveEvent("text", "It"), LiveEvent("end")))
    assert word.startswith(b'data: {"id"') and b'"content": "It"' in word and b"went away" in failure
    ping, again, failure = asyncio.run(stream(LiveEvent("end"), ping_s=0.001, n_pings=2))
    assert ping.startswith(b'data: {"id"') and ping.endswith(again) and b"went away" in failure
