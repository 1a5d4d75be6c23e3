"""A server that answers as Athena's published contract says, with the files of tests/data/athena."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).parents[1] / "data" / "athena"


class AthenaServer(ThreadingHTTPServer):
    """Answers with the files of tests/data/athena, and keeps what it was asked. `fails` lets it answer 503."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.headers_seen: list[dict[str, str]] = []
        self.fails = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def count(self, ending: str) -> int:
        return sum(path.partition("?")[0].endswith(ending) for _, path, _ in self.asked)


class _Handler(BaseHTTPRequestHandler):
    server: AthenaServer

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any]) -> None:
        self.server.asked.append((self.command, self.path, body))
        self.server.headers_seen.append(dict(self.headers))
        path = self.path.partition("?")[0]
        name = {"sessions": "session", "events": "event", "context": "context", "search": "search"}[path.split("/")[-1]]
        status = 503 if self.server.fails > 0 else 200
        self.server.fails -= status == 503
        data = (ANSWERS / f"{name}.json").read_bytes() if status == 200 else b'{"message": "later"}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass
