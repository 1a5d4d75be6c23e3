"""The socket of the resident process: private, one line of JSON a request, and limits that hold."""

import json
import socket
import threading

import pytest

from perdure.capture import events
from perdure.errors import HomeNotPrivate, PerdureError
from perdure.service import lock, server
from perdure.service.client import ask_health
from rig.index_rows import START


def send(*pieces, close=True):
    """What `read_request` makes of these bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(5)
        for piece in pieces:
            ours.sendall(piece)
        if close:
            ours.shutdown(socket.SHUT_WR)
        return server.read_request(theirs)


@pytest.mark.parametrize(
    ("pieces", "request_fields"),
    [
        ((b'{"op": "health"}\n',), {"op": "health"}),
        ((b'{"op": ', b'"wake"}\n'), {"op": "wake"}),
        ((b"[1]\n",), None), ((b"{\n",), None), ((b'{"op": "health"}',), None), ((b"",), None), ((b"\xff\n",), None),
    ],
)  # fmt: skip
def test_request_is_one_line_with_an_object(pieces, request_fields):
    assert send(*pieces) == request_fields


def test_endless_line_is_not_read_on(monkeypatch):
    monkeypatch.setattr(events, "MAX_LINE_BYTES", 100)
    assert send(b"x" * 150_000, close=False) is None


def test_line_that_ends_beyond_the_limit_is_not_taken(monkeypatch):
    """The block that ends the line counts, too: 100 bytes are allowed, and these are 123."""
    monkeypatch.setattr(events, "MAX_LINE_BYTES", 100)
    assert send(b'{"op": "health", "x": "' + b"x" * 97 + b'"}\n') is None
    assert send(b'{"op": "health"}\n') == {"op": "health"}


@pytest.mark.parametrize(
    ("limit", "limit_ms"), [(500, 500), (0, 1), (-7, 1), (10**9, 60_000), ("5", 10_000), (None, 10_000), (2.9, 2)]
)
def test_limit_of_a_request_stays_within_bounds(limit, limit_ms):
    assert server._read_limit_ms({"limit_ms": limit}) == limit_ms


def test_socket_is_private_and_replaces_that_of_a_dead_process(tmp_path):
    address = tmp_path / "run" / "socket"
    for _ in range(2):
        with server.open_socket(address):
            assert address.stat().st_mode & 0o777 == 0o600 and address.parent.stat().st_mode & 0o777 == 0o700
        assert not address.exists()
        address.touch()


def test_folder_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(HomeNotPrivate), server.open_socket(tmp_path / "run" / "socket"):
        pass


def test_page_answers_with_its_address_or_its_error():
    assert server._answer_page(lambda: "http://x") == {"page": "http://x"}

    def fails():
        raise PerdureError("no page")

    assert server._answer_page(fails)["error"]["detail"] == "no page"


def test_health_of_a_silent_resident_is_a_problem(tmp_path):
    assert ask_health(tmp_path) is None
    with lock.hold_lock(tmp_path, now=START):
        answer = ask_health(tmp_path, timeout_s=0.2)
        assert answer["healthy"] is False and "does not answer" in answer["problems"][0]


def test_health_is_what_the_resident_answers(tmp_path):
    answer = {"healthy": True, "problems": []}
    with lock.hold_lock(tmp_path, now=START), server.open_socket(events.to_socket_path(tmp_path)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                assert server.read_request(connection) == {"op": "health"}
                connection.sendall(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert ask_health(tmp_path, timeout_s=10) == answer
        thread.join(10)
