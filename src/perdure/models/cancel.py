"""Stop an answer that another thread sets an event for, also while nothing arrives.

A blocking read cannot wait for an event, so the answer is read in a thread of its own. At a cancel that thread's
sockets are shut down, its caller returns at once, and the thread ends as soon as its read does.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from perdure.errors import ModelCancelled
from perdure.models.chat import TokenUsage

POLL_S = 0.02  # how often a waiting caller looks at the event
_CLOSE_WAIT_S = 0.05  # for the reading thread to end, so that the usage is complete
_END = object()
_Piece = TypeVar("_Piece")


class CallSockets:
    """The sockets of one call, which any thread may shut down."""

    def __init__(self) -> None:
        """Begin without a socket; `add` is told of each one that opens."""
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self.is_closed = False

    def add(self, event_name: str, info: Mapping[str, Any]) -> None:
        """Keep a duplicate of each socket that connects: the trace extension of httpcore calls this.

        A duplicate, because TLS takes the socket over while it is still shaking hands.
        """
        if not event_name.endswith("connect_tcp.complete"):
            return
        opened = info["return_value"].get_extra_info("socket")
        with self._lock:
            self._sockets.append(socket.socket(fileno=os.dup(opened.fileno())))
        if self.is_closed:
            self.close()

    def close(self) -> None:
        """Shut all sockets down, also those that open later: a read in another thread then ends."""
        with self._lock:
            self.is_closed = True
            for opened in self._sockets:
                with suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)
                opened.close()
            self._sockets.clear()


def deliver(
    produce: Callable[[Callable[[_Piece], None]], None],
    receive: Callable[[_Piece], None],
    cancel: threading.Event | None,
    close: Callable[[], None],
) -> None:
    """Give each piece that `produce` makes to `receive`, in this thread, until `cancel` is set.

    produce: is given a function that takes a piece; without `cancel` it runs in this thread. close: makes it end.
    Raises ModelCancelled, and every error of `produce` and `receive`.
    """
    if cancel is None:
        produce(receive)
        return
    if cancel.is_set():
        error = ModelCancelled("before it began")
        error.usage = TokenUsage()
        raise error
    pieces: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        try:
            produce(pieces.put)
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            pieces.put(error)
        pieces.put(_END)

    thread = threading.Thread(target=read, name="perdure-answer", daemon=True)
    thread.start()
    try:
        _receive_pieces(pieces, receive, cancel)
    finally:
        close()
        thread.join(_CLOSE_WAIT_S)


def _receive_pieces(pieces: queue.SimpleQueue[Any], receive: Callable[[Any], None], cancel: threading.Event) -> None:
    while True:
        if cancel.is_set():
            raise ModelCancelled("while it was answering")
        try:
            piece = pieces.get(timeout=POLL_S)
        except queue.Empty:
            continue
        if piece is _END:
            return
        if isinstance(piece, BaseException):
            raise piece
        receive(piece)
