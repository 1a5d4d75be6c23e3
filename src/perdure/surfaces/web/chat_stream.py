"""What happens in a session of the chat, as server-sent events: the answer as far as it came, and that a page changed.

The answer is a text and nothing else, whole each time, so that its secrets are masked and no piece can be missed. All
markup comes from the page itself, which a browser asks for again after a change.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.responses import Response

from perdure.access.redact import mask
from perdure.surfaces.http.events import EventStreamResponse
from perdure.surfaces.http.responses import refuse_for_now
from perdure.surfaces.live_sessions import LiveEvent, LiveSessions
from perdure.surfaces.web.render import clean

MAX_LISTENERS = 32  # of all sessions: each is a tab
_HEARTBEAT_S = 15.0
_CHECK_S = 2.0  # how often the visitor is looked up again, while something happens
_FRAME_S = 0.1  # after a piece
_CHANGE_S = 0.4  # after a change, for which a tab asks for its page again
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}


def open_stream(live: LiveSessions, session: str, is_allowed: Callable[[], Awaitable[bool]]) -> Response:
    """Return the stream of one tab; it ends when is_allowed returns False. Raises HttpRefusal (429)."""
    if live.n_listeners >= MAX_LISTENERS:
        raise refuse_for_now("busy", "Too many tabs listen already.", after_s=60, status=429)
    return EventStreamResponse(
        _stream_events(live, session, is_allowed), media_type="text/event-stream", headers=_HEADERS
    )


async def _stream_events(
    live: LiveSessions, session: str, is_allowed: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[LiveEvent]()

    def tell(event: LiveEvent) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the stream
            loop.call_soon_threadsafe(queue.put_nowait, event)

    live.add_listener(session, tell)
    checked_s = time.monotonic()
    try:
        yield _render("change", _read_partial(live, session))
        while not live.is_closed:
            kinds = await _wait_for_kinds(queue)
            if not kinds or time.monotonic() - checked_s >= _CHECK_S:
                checked_s = time.monotonic()
                if not await is_allowed():
                    return
            if not kinds:
                yield b": still here\n\n"
                continue
            is_text = kinds == {"text"}
            yield _render("text" if is_text else "change", _read_partial(live, session))
            await asyncio.sleep(_FRAME_S if is_text else _CHANGE_S)
    finally:
        live.remove_listener(session, tell)


async def _wait_for_kinds(queue: asyncio.Queue[LiveEvent]) -> set[str]:
    """Return what kinds of events came since, at least one; none if nothing happens for a while."""
    try:
        kinds: set[str] = {(await asyncio.wait_for(queue.get(), _HEARTBEAT_S)).kind}
    except TimeoutError:
        return set()
    while not queue.empty():
        kinds.add(queue.get_nowait().kind)
    return kinds


def _read_partial(live: LiveSessions, session: str) -> str:
    held = live.find(session)
    return clean(mask(held.partial)).lstrip() if held is not None else ""


def _render(kind: str, text: str) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(text)}\n\n".encode()
