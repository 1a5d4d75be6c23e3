"""A real HTTP server on loopback that answers as embedding endpoints do, well or badly, as a test tells it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from perdure.testing import FakeEmbedder

Reply = tuple[int, bytes]


class Endpoint:
    """The server; `replies` are given first, one a request, then good answers. `seen` holds what was asked."""

    def __init__(self) -> None:
        self.replies: list[Reply | Callable[[BaseHTTPRequestHandler], None]] = []
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        self.model = FakeEmbedder()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.seen.append((self.path, dict(self.headers), body))
                reply = endpoint.replies.pop(0) if endpoint.replies else endpoint.good(self.path, body)
                if callable(reply):
                    reply(self)
                    return
                status, data = reply
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def good(self, path: str, body: Any) -> Reply:
        rows = [[float(n) for n in row] for row in self.model.embed(body["input"], "document")]
        if path.endswith("/api/embed"):
            return 200, json.dumps({"model": body["model"], "embeddings": rows}).encode()
        data = [{"object": "embedding", "index": n, "embedding": row} for n, row in enumerate(rows)]
        return 200, json.dumps({"object": "list", "data": data[::-1]}).encode()
