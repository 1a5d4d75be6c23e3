"""A remote home that does what a test tells it to: the routes a thin machine asks, over HTTP, with no home behind it.

It answers captures as an archive does (stored, already, accepted, diverged, gap), in memory.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Asked = tuple[str, str, dict[str, list[str]], bytes]  # method, path, query, body
Said = tuple[int, dict[str, Any] | bytes]
SECRET = "secret-of-a-test"


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one write: two would wait 40 ms for the acknowledgement of the first
    server: ScriptedRemote

    def setup(self) -> None:
        super().setup()
        self.server.n_connections += 1

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        n_bytes = int(self.headers.get("Content-Length") or 0)
        if n_bytes > self.server.most_bytes:
            self.close_connection = True
            self._say((413, {"error": {"code": "too-large"}}))
            return
        self._answer(self.rfile.read(n_bytes))

    def _answer(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        asked = (self.command, parts.path, parse_qs(parts.query, keep_blank_values=True), body)
        with self.server.lock:
            self.server.asked.append(asked)
            said = self.server.answer(asked, self.headers.get("Authorization") or "")
        time.sleep(self.server.delay_s)
        if said is None:
            self.close_connection = True  # hangs up without a word
        else:
            self._say(said)

    def _say(self, said: Said) -> None:
        status, body = said
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class ScriptedRemote(ThreadingHTTPServer):
    """Answers captures, events and what `replies` has for other routes; `script` comes before all of them."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Door)
        self.lock = threading.Lock()
        self.script: list[Said | None] = []  # answers to the next requests, whatever they are; None hangs up
        self.replies: dict[str, Said] = {}  # path -> answer
        self.headers: dict[str, str] = {}
        self.asked: list[Asked] = []
        self.sources: dict[tuple[str, str], list[bytes]] = {}  # (runtime, session) -> bytes of each generation
        self.secrets = {SECRET}
        self.text, self.notice = "", ""  # what it says to an event
        self.delay_s = 0.0
        self.most_bytes = 1 << 40
        self.n_connections = 0

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> ScriptedRemote:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Say nothing of a client that hung up."""

    def held(self, session: str, *, runtime: str = "claude-code", generation: int = 0) -> bytes:
        """What it was sent of a session."""
        return self.sources[runtime, session][generation]

    def captures(self) -> list[Asked]:
        """The captures it was asked to take, in order."""
        return [asked for asked in self.asked if asked[1].endswith("/api/runs")]

    def answer(self, asked: Asked, authorization: str) -> Said | None:
        """What it says; None to hang up."""
        _, path, query, body = asked
        if self.script:
            return self.script.pop(0)
        if path == "/api/alive" and path not in self.replies:
            return 200, {"alive": True}
        if authorization.removeprefix("Bearer ") not in self.secrets:
            return 401, {"error": {"code": "unauthorized"}}
        if path in self.replies:
            return self.replies[path]
        if path == "/api/me":
            return 200, {"user": "ada", "machine": "laptop", "machine_id": "m1", "is_admin": False, "version": "0"}
        if path == "/api/hook":
            kind = json.loads(body)["event"]["kind"]
            return 200, {"text": self.text.format(kind=kind), "notice": self.notice}
        if path == "/api/runs":
            return self._captured({name: values[0] for name, values in query.items()}, body)
        return 404, {"error": {"code": "not-found"}}

    def _captured(self, fields: dict[str, str], body: bytes) -> Said:
        held = self.sources.setdefault((fields["runtime"], fields["session"]), [b""])
        latest = len(held) - 1
        if fields.get("emitted") == "true":
            fresh = [row for row in body.splitlines(keepends=True) if row not in held[-1].splitlines(keepends=True)]
            held[-1] += b"".join(fresh)
            return 202, {"outcome": "stored", "accepted_up_to": len(held[-1]), "generation": latest}
        generation, low = int(fields.get("generation", latest)), int(fields.get("from_offset", 0))
        if generation == latest + 1:
            held.append(b"")
        known, high = held[generation], low + len(body)
        place = {"accepted_up_to": len(known), "generation": generation}
        if low > len(known):
            return 409, {"error": {"code": "gap"}, **place}
        if known[low:high] != body[: max(0, len(known) - low)]:
            return 409, {"error": {"code": "diverged"}, **place}
        if low < len(known):
            return 202, {"outcome": "accepted" if high > len(known) else "already", **place}
        held[generation] += body
        return 202, {"outcome": "stored", **place, "accepted_up_to": high}
