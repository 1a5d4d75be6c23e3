"""A provider that keeps the bytes it was sent, and answers with the bytes that a test gives it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Sent:
    """A request as it came."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


@dataclass
class Reply:
    """An answer, chunk by chunk."""

    chunks: list[bytes] = field(default_factory=lambda: [b"{}"])
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    pause_s: float = 0.0  # before each chunk
    hangs: bool = False  # after the last chunk, until the client is gone
    breaks: bool = False  # closes the connection after the last chunk, without an end
    has_length: bool = False


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as providers do; else a second small write waits 40 ms for its acknowledgement
    server: Upstream

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        raw = self._read_body()
        sent = Sent(self.command, self.path, list(self.headers.items()), raw)
        reply = self.server.reply(sent)
        self.server.sent.append(sent)
        self.send_response_only(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.has_length:
            self.send_header("Content-Length", str(sum(map(len, reply.chunks))))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for chunk in reply.chunks:
                time.sleep(reply.pause_s)
                self.wfile.write(chunk if reply.has_length else b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
            if reply.hangs:
                self.connection.settimeout(20)
                self.server.ended.append(self.connection.recv(1) == b"")
                self.close_connection = True
            elif reply.breaks:
                self.close_connection = True
            elif not reply.has_length:
                self.wfile.write(b"0\r\n\r\n")
        except OSError as error:
            self.server.ended.append(isinstance(error, (BrokenPipeError, ConnectionResetError)))
            self.close_connection = True

    do_GET = do_POST = do_HEAD = do_DELETE = do_OPTIONS = _answer

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while n_bytes := int(self.rfile.readline(), 16):
            body += self.rfile.read(n_bytes)
            self.rfile.readline()
        self.rfile.readline()
        return body


class Upstream(ThreadingHTTPServer):
    """Use it as a context. `sent` is what came; `ended` tells for each answer that hung if its client went away."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, reply: Callable[[Sent], Reply] = lambda _: Reply()) -> None:
        super().__init__(("127.0.0.1", 0), _Door)
        self.reply, self.sent, self.ended = reply, [], []

    def handle_error(self, *_: object) -> None:
        """Clients that go away are part of the tests."""

    def __enter__(self) -> Upstream:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"
