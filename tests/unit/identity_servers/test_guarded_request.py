"""Requests to servers that strangers name: where they go, and where they never go."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from perdure.errors import IdentityFault, IdentityServerAway
from perdure.identity_servers.guarded_request import MAX_ANSWER_BYTES, RequestRules, ask_json, is_public, parse_address

OPEN = RequestRules(("localhost",), limit_s=2)


@pytest.fixture
def server() -> Iterator[Callable[..., str]]:
    """Answer every request with a status, headers and a body; return the address of the server."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int = 200, body: bytes = b"{}", **headers: str) -> str:
        class Desk(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Desk))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://localhost:{servers[-1].server_address[1]}"

    yield start
    for one in servers:
        one.shutdown()
        one.server_close()


PRIVATE = (
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.1.1", "198.18.0.1",
    "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1",
    "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "2001:db8::1", "not a number",
)  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_told_from_public_ones(address: str) -> None:
    assert not is_public(address)
    assert is_public("9.9.9.9") and is_public("2620:fe::fe") and is_public("::ffff:9.9.9.9")


@pytest.mark.parametrize("numbers", [["10.0.0.7"], ["9.9.9.9", "10.0.0.7"], ["::1", "9.9.9.9"]])
def test_only_public_addresses_are_asked(numbers: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with one private address among public ones is refused, and nothing is connected to."""
    rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, 443)) for number in numbers]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("it connected"))
    with pytest.raises(IdentityFault, match=r"^pds\.example has an address that is not public: name the host"):
        ask_json("https://pds.example/xrpc", RequestRules())


def test_what_was_looked_up_is_connected_to(server: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """So a name that changes its address between the check and the connection leads nowhere else."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: str, *arguments: Any, **options: Any) -> Any:
        asked.append(host)
        return real(host if host != "pds.example" else "127.0.0.1", *arguments, **options)

    port = server(body=b'{"a": 1}').rpartition(":")[2]
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert ask_json(f"http://pds.example:{port}/", RequestRules(("pds.example",))) == (200, {"a": 1})
    assert asked[0] == "pds.example" and asked.count("pds.example") == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://pds.example/", "ftp://pds.example/", "file:///etc/passwd", "https://", "https:///x", "pds.example",
        "https://user@pds.example/", "https://user:secret@pds.example/", "https://pds.example/#x", "https://[::1",
        "https://pds.example:99999/", "https://pds.example:0/", "https://pds.example/a b", "https://pds.example/\n",
        "https://pds.éxample/", "javascript:alert(1)", "",
    ],
)  # fmt: skip
def test_odd_addresses_are_refused(url: str) -> None:
    with pytest.raises(IdentityFault) as caught:
        parse_address(url, RequestRules())
    assert "secret" not in str(caught.value)


def test_plain_http_is_for_named_hosts_only(server: Callable[..., str]) -> None:
    url = server()
    assert ask_json(url, OPEN) == ask_json(url, RequestRules(is_all_private=True)) == (200, {})
    with pytest.raises(IdentityFault):
        ask_json(url, RequestRules())
    with pytest.raises(IdentityFault):
        ask_json(url.replace("localhost", "127.0.0.1"), OPEN)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(server: Callable[..., str], status: int) -> None:
    elsewhere = server(body=b'{"stolen": true}')
    with pytest.raises(IdentityFault, match="not followed"):
        ask_json(server(status, Location=elsewhere), OPEN)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_is_away(server: Callable[..., str], status: int) -> None:
    with pytest.raises(IdentityServerAway):
        ask_json(server(status), OPEN)


@pytest.mark.parametrize("body", [b"", b"[]", b"not json", b"\xff", b"[" * 100_000, b'"text"', b"null"])
def test_an_answer_that_is_no_object_is_empty(server: Callable[..., str], body: bytes) -> None:
    assert ask_json(server(body=body), OPEN) == (200, {})


def test_a_long_answer_is_cut_off(server: Callable[..., str]) -> None:
    with pytest.raises(IdentityServerAway, match="more than"):
        ask_json(server(body=b" " * (MAX_ANSWER_BYTES + 1)), OPEN)


def test_who_does_not_answer_is_away() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(IdentityServerAway):
            ask_json(f"http://localhost:{port}/", OPEN._replace(limit_s=0.2))
    with pytest.raises(IdentityServerAway):
        ask_json(f"http://localhost:{port}/", OPEN)
