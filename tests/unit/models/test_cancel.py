"""The pieces of an answer, read by another thread until they end or are not wanted any more."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from perdure.errors import ModelCancelled
from perdure.models.cancel import CallSockets, deliver
from perdure.models.chat import TokenUsage


def produce_numbers(give: Callable[[int], None]) -> None:
    for number in range(3):
        give(number)


@pytest.mark.parametrize("cancel", [None, threading.Event()])
def test_all_pieces_arrive_in_order_and_in_this_thread(cancel: threading.Event | None) -> None:
    received: list[tuple[int, threading.Thread]] = []
    deliver(produce_numbers, lambda n: received.append((n, threading.current_thread())), cancel, lambda: None)
    assert received == [(n, threading.current_thread()) for n in range(3)]


@pytest.mark.parametrize("cancel", [None, threading.Event()])
def test_errors_of_both_sides_are_raised(cancel: threading.Event | None) -> None:
    closed: list[bool] = []

    def fail(_: Any) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        deliver(fail, lambda _: None, cancel, lambda: closed.append(True))
    with pytest.raises(LookupError, match="mine"):
        deliver(produce_numbers, fail, cancel, lambda: closed.append(True))
    assert closed == ([] if cancel is None else [True, True])


def test_a_cancel_ends_a_read_that_would_never_end() -> None:
    near, far = socket.socketpair()
    sockets, cancel, ended = CallSockets(), threading.Event(), threading.Event()

    class Stream:
        def get_extra_info(self, _: str) -> socket.socket:
            return near

    def read(give: Callable[[bytes], None]) -> None:
        sockets.add("connection.connect_tcp.started", {})
        sockets.add("connection.connect_tcp.complete", {"return_value": Stream()})
        give(near.recv(1))
        near.recv(1)
        ended.set()

    far.send(b"a")
    with pytest.raises(ModelCancelled):
        deliver(read, lambda _: cancel.set(), cancel, sockets.close)
    assert ended.wait(5) and far.recv(1) == b""
    near.close()
    far.close()


def test_a_socket_that_opens_after_the_cancel_is_shut() -> None:
    near, far = socket.socketpair()

    class Stream:
        def get_extra_info(self, _: str) -> socket.socket:
            return near

    sockets = CallSockets()
    sockets.close()
    sockets.add("connection.connect_tcp.complete", {"return_value": Stream()})
    assert far.recv(1) == b""
    near.close()
    far.close()


def test_nothing_begins_after_a_cancel() -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(ModelCancelled) as caught:
        deliver(lambda _: pytest.fail("began"), lambda _: None, cancel, lambda: None)
    assert caught.value.usage == TokenUsage()
