"""What happens, told at once to those who listen: each has a queue of bearable length; who does not read is dropped.

Before each piece it is asked again whether its listener may still hear it, so that a revoked machine hears no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Send

from perdure.surfaces.http.answers import Json
from perdure.surfaces.http.faults import retry
from perdure.types import Identity

_MOST_WAITING = 100  # events that one listener has not read
_MOST_LISTENERS = 8  # of one user
_HEARTBEAT_S = 15.0
_UNREAD_S = 30.0  # so long may a piece wait until the connection takes it
Allowed = Callable[[], Awaitable[bool]]  # whether the credential of a listener still stands for the same
EVERYBODY = ""  # the user of what concerns those who see to the whole home


@dataclass(eq=False)
class _Listener:
    user: str
    is_admin: bool
    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(_MOST_WAITING))
    is_dropped: bool = False

    def put(self, said: bytes | None) -> None:
        """Called in its loop. None ends it."""
        if said is None or self.queue.full():
            self.is_dropped = True
            with contextlib.suppress(asyncio.QueueEmpty):
                self.queue.get_nowait()
            said = None
        self.queue.put_nowait(said)


class _Stream(StreamingResponse):
    """A stream that ends when its client does not read."""

    async def stream_response(self, send: Send) -> None:
        """Send piece by piece, each within its time."""

        async def in_time(message: Message) -> None:
            await asyncio.wait_for(send(message), _UNREAD_S)

        with contextlib.suppress(TimeoutError):
            await super().stream_response(in_time)


class Hub:
    """Who listens. Any thread may publish."""

    def __init__(self) -> None:
        self._listeners: set[_Listener] = set()
        self._lock = threading.Lock()
        self._n = 0

    def publish(self, user: str, kind: str, said: Json) -> None:
        """Tell the listeners of a user; what is of nobody (EVERYBODY), those who may see to the whole home."""
        with self._lock:
            self._n += 1
            raw = f"id: {self._n}\nevent: {kind}\ndata: {msgspec.json.encode(said).decode()}\n\n".encode()
            for one in self._listeners:
                if one.user == user or (user == EVERYBODY and one.is_admin):
                    self._put(one, raw)

    def close(self) -> None:
        """End them all."""
        with self._lock:
            for one in self._listeners:
                self._put(one, None)

    @staticmethod
    def _put(one: _Listener, raw: bytes | None) -> None:
        with contextlib.suppress(RuntimeError):  # its loop has ended, and with it the listener
            one.loop.call_soon_threadsafe(one.put, raw)

    @property
    def users(self) -> set[str]:
        """Of whom anybody listens."""
        with self._lock:
            return {one.user for one in self._listeners}

    def response(self, identity: Identity, allowed: Allowed) -> Response:
        """The stream of one listener, which ends where it is not allowed any more. Raises Refused when this user has
        too many.
        """
        one = _Listener(identity.user, identity.is_admin, asyncio.get_running_loop())
        with self._lock:
            if sum(other.user == one.user for other in self._listeners) >= _MOST_LISTENERS:
                raise retry("busy", "Too many listen already.", after_s=60, status=429)
            self._listeners.add(one)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
        return _Stream(self._told(one, allowed), media_type="text/event-stream", headers=headers)

    async def _told(self, one: _Listener, allowed: Allowed) -> AsyncIterator[bytes]:
        try:
            yield b": perdure\n\n"
            while not one.is_dropped:
                try:
                    said = await asyncio.wait_for(one.queue.get(), _HEARTBEAT_S)
                except TimeoutError:
                    said = b": still here\n\n"
                if said is None or not await allowed():
                    return
                yield said
        finally:
            with self._lock:
                self._listeners.discard(one)
