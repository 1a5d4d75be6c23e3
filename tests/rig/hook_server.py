"""A receiver of webhooks, over HTTP or HTTPS, that answers what a test tells it to."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple


class HookRequest(NamedTuple):
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes


class HookServer(ThreadingHTTPServer):
    """Use it as a context. answers: (status, headers) of the next requests; then 204 for all."""

    daemon_threads = True

    def __init__(self, *answers: tuple[int, dict[str, str]], tls: Path | None = None) -> None:
        """tls: a file with certificate and key."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.requests = list(answers), list[HookRequest]()
        self.scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.server_address[1]}/hook"

    def handle_error(self, *_: object) -> None:
        """A client that does not trust us goes away."""

    def __enter__(self) -> HookServer:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: HookServer

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(HookRequest(self.path, headers, body))
        status, more = self.server.answers.pop(0) if self.server.answers else (204, {})
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()
