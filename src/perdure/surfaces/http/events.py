"""Events of the home, sent to listeners as they happen.

`ActivityFeed` reads the log and the journals once a second in one thread, and publishes what is new in ids
and numbers, never in words, whoever caused it. `Subscribers` holds the listeners: each has a queue of
limited length, and one that does not read is dropped. Before each piece is sent, the credential of its
listener is checked again, so that a revoked machine gets no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Send

from perdure import log
from perdure.archive import memory_events
from perdure.archive.injections import EVENT_TYPE, is_floor
from perdure.archive.journal import FilePosition, JournalEvent, measure_files, read_new_events, was_rewritten
from perdure.surfaces.http.responses import Json, refuse_for_now
from perdure.types import Identity

_MAX_UNREAD_EVENTS = 100  # events that one listener has not read
_MAX_LISTENERS = 8  # of one user
_HEARTBEAT_S = 15.0
_MAX_SEND_S = 30.0  # longest time until the connection accepts a piece
IsAllowed = Callable[[], Awaitable[bool]]  # returns True while the credential of a listener has the same identity
ADMINS = ""  # stands for the user of an event that only admins receive


@dataclass(eq=False)
class _EventListener:
    user: str
    is_admin: bool
    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(_MAX_UNREAD_EVENTS))
    is_dropped: bool = False

    def push(self, frame: bytes | None) -> None:
        """Queue a frame, called in the listener's loop. None ends the listener."""
        if frame is None or self.queue.full():
            self.is_dropped = True
            with contextlib.suppress(asyncio.QueueEmpty):
                self.queue.get_nowait()
            frame = None
        self.queue.put_nowait(frame)


class EventStreamResponse(StreamingResponse):
    """A stream that ends when its client does not read."""

    async def stream_response(self, send: Send) -> None:
        """Send piece by piece, each within its time."""

        async def send_in_time(message: Message) -> None:
            await asyncio.wait_for(send(message), _MAX_SEND_S)

        with contextlib.suppress(TimeoutError):
            await super().stream_response(send_in_time)


class Subscribers:
    """The listeners. Any thread may publish."""

    def __init__(self) -> None:
        self._listeners: set[_EventListener] = set()
        self._lock = threading.Lock()
        self._n_events = 0

    def publish(self, user: str, event_type: str, fields: Json) -> None:
        """Send an event to the listeners of a user; an event of no user (ADMINS) goes to the listeners of admins."""
        with self._lock:
            self._n_events += 1
            frame = (
                f"id: {self._n_events}\nevent: {event_type}\ndata: {msgspec.json.encode(fields).decode()}\n\n".encode()
            )
            for listener in self._listeners:
                if listener.user == user or (user == ADMINS and listener.is_admin):
                    self._push_frame(listener, frame)

    def close(self) -> None:
        """End all listeners."""
        with self._lock:
            for listener in self._listeners:
                self._push_frame(listener, None)

    @staticmethod
    def _push_frame(listener: _EventListener, frame: bytes | None) -> None:
        with contextlib.suppress(RuntimeError):  # its loop has ended, and with it the listener
            listener.loop.call_soon_threadsafe(listener.push, frame)

    @property
    def users(self) -> set[str]:
        """The users who have a listener."""
        with self._lock:
            return {listener.user for listener in self._listeners}

    def open_stream(self, identity: Identity, is_allowed: IsAllowed) -> Response:
        """Return the stream of a new listener; it ends when is_allowed returns False.

        Raises HttpRefusal when this user has too many listeners.
        """
        listener = _EventListener(identity.user, identity.is_admin, asyncio.get_running_loop())
        with self._lock:
            if sum(known_listener.user == listener.user for known_listener in self._listeners) >= _MAX_LISTENERS:
                raise refuse_for_now("busy", "Too many clients listen already.", after_s=60, status=429)
            self._listeners.add(listener)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
        return EventStreamResponse(
            self._stream_frames(listener, is_allowed), media_type="text/event-stream", headers=headers
        )

    async def _stream_frames(self, listener: _EventListener, is_allowed: IsAllowed) -> AsyncIterator[bytes]:
        try:
            yield b": perdure\n\n"
            while not listener.is_dropped:
                try:
                    frame = await asyncio.wait_for(listener.queue.get(), _HEARTBEAT_S)
                except TimeoutError:
                    frame = b": still here\n\n"
                if frame is None or not await is_allowed():
                    return
                yield frame
        finally:
            with self._lock:
                self._listeners.discard(listener)


POLL_S = 1.0
_CAPTURE_FIELDS = ("run_id", "machine", "runtime", "turn_count", "bytes")
_JOB_FIELDS = ("job", "result", "took_ms")


class ActivityFeed:
    """Reads new log lines and journal events, and publishes them."""

    def __init__(self, home_path: Path, subscribers: Subscribers) -> None:
        self._home_path = home_path
        self._subscribers = subscribers
        self._lock = threading.Lock()
        self._log_position: tuple[int, int] = self._read_log_end()
        self._journal_positions: dict[
            str, dict[str, FilePosition]
        ] = {}  # user -> positions up to which their journal was read

    def watch(self, stopped: threading.Event) -> None:
        """Publish changes every second, until stopped."""
        while not stopped.wait(POLL_S):
            try:
                self.publish_changes()
            except OSError as error:  # the file is being rewritten: the next poll reads it
                log.append_entry(self._home_path, "failed", client="http", kind="events", code=type(error).__name__)

    def add_listener(self, user: str) -> None:
        """Note the present state of a user's journal when they begin to listen: only later events are new to them."""
        with self._lock:
            if user not in self._subscribers.users:
                self._journal_positions[user] = measure_files(self._journal_folder(user))

    def publish_changes(self) -> None:
        """Publish all that is new since the last call."""
        with self._lock:
            for log_entry in self._read_new_log_lines():
                self._publish_log_line(log_entry)
            for user in self._subscribers.users:
                self._publish_journal_events(user)

    def _journal_folder(self, user: str) -> Path:
        return self._home_path / "archive" / "journal" / user

    # the log ----------------------------------------------------------------------------------------------

    def _read_log_end(self) -> tuple[int, int]:
        try:
            file_status = log.to_log_path(self._home_path).stat()
        except FileNotFoundError:
            return 0, 0
        return file_status.st_ino, file_status.st_size

    def _read_new_log_lines(self) -> list[dict[str, Any]]:
        inode, size = self._read_log_end()
        start = self._log_position[1] if self._log_position[0] == inode else 0
        if size <= start:
            return []
        with log.to_log_path(self._home_path).open("rb") as file:
            file.seek(start)
            raw = file.read(size - start)
        complete_lines = raw[: raw.rfind(b"\n") + 1]
        self._log_position = inode, start + len(complete_lines)
        return [json.loads(line) for line in complete_lines.splitlines() if line.startswith(b"{")]

    def _publish_log_line(self, log_entry: dict[str, Any]) -> None:
        if log_entry.get("what") == "captured":
            self._subscribers.publish(
                str(log_entry.get("user")), "captured", {name: log_entry.get(name) for name in _CAPTURE_FIELDS}
            )
        elif log_entry.get("what") == "job":
            self._subscribers.publish(ADMINS, "job", {name: log_entry.get(name) for name in _JOB_FIELDS})

    # the journals -----------------------------------------------------------------------------------------

    def _publish_journal_events(self, user: str) -> None:
        folder = self._journal_folder(user)
        old_positions, new_positions = self._journal_positions.get(user), measure_files(folder)
        if old_positions is None or was_rewritten(old_positions, new_positions):
            self._journal_positions[user] = new_positions
            return
        new_events, self._journal_positions[user] = read_new_events(
            folder, old_positions, new_positions, (memory_events.EVENT_TYPE, EVENT_TYPE)
        )
        for event in new_events:
            if event.type == memory_events.EVENT_TYPE:
                self._subscribers.publish(user, "memory", _describe_memory_event(event))
            elif not is_floor(event):
                self._subscribers.publish(user, "injected", _describe_injection(event))


def _describe_injection(event: JournalEvent) -> dict[str, Any]:
    """Describe an injection: which recall went into which session, and its size."""
    fields = {name: event.data.get(name) for name in ("nonce", "runtime", "session", "n_tokens")}
    return {**fields, "n_cues": len(event.data.get("turns", ()))}


def _describe_memory_event(event: JournalEvent) -> dict[str, Any]:
    """Describe a memory event: which memories changed, how, and by whom."""
    ops = event.data.get("ops", [])
    return {"by": event.data.get("by"), "memories": [{"memory_id": op.get("id"), "done": op.get("op")} for op in ops]}
