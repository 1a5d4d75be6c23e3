"""One connection. Heads must come in time, what is written must be read in time, and no crowd keeps anybody out.

Where too many stand, the one on which nothing has been asked for longest gives way, so that a new one is always let in.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure.surfaces.http import faults

CONNECTIONS = 512  # that stand at a time
IDLE_OF_ONE = 64  # of them, from one address, those on which nothing is being asked
_UNREAD_MS = 60_000  # so long may a client leave unread what was written to it
_UNREAD_OPTION: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)  # where the system has it (Linux)


class Line(H11Protocol):
    """A connection on which heads must come in time, and what is written must be read in time."""

    head_s = 30.0  # so long may the head of a request take
    heard_s = 0.0  # when something last came, by the clock of the loop
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head."""
        super().connection_made(transport)
        line = transport.get_extra_info("socket")
        if line is not None and _UNREAD_OPTION is not None:
            line.setsockopt(socket.IPPROTO_TCP, _UNREAD_OPTION, _UNREAD_MS)
        self._watch()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._unwatch()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in the envelope that every refusal has."""
        body = msgspec.json.encode(faults.answer(faults.bad(msg)).body)
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        for event in (h11.Response(status_code=400, headers=head), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        """Begin to wait for the head of a request, unless one is being answered."""
        self.heard_s = self.loop.time()
        if not self.is_idle:
            self._unwatch()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(self.head_s, self.transport.abort)

    def _unwatch(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _make_room(self) -> None:
        """Cut off the connection that has waited longest, of this address or of all, where too many stand."""
        lines = [one for one in self.connections if isinstance(one, Line) and one.is_idle and one is not self]
        others = sorted(lines, key=lambda one: one.heard_s)
        same = [one for one in others if one.host == self.host]
        if len(same) >= IDLE_OF_ONE:
            same[0].cut()
        elif len(self.connections) > CONNECTIONS:
            (others or [self])[0].cut()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being asked over it."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def host(self) -> str:
        """Who is at the other end."""
        return self.client[0] if self.client else ""

    def cut(self) -> None:
        """End it at once, and count it no more."""
        self._unwatch()
        self.connections.discard(self)
        self.transport.abort()
