"""A resident home that says what a test tells it to: on the real socket, without a home behind it."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

from perdure.capture import events, hook


class _Door(socketserver.StreamRequestHandler):
    server: ScriptedResident

    def handle(self) -> None:
        raw = self.rfile.readline()
        if not raw:
            return
        request = json.loads(raw)
        if request["op"] == "hook":
            self._serve_hook(request)
            return
        if "event" not in request:
            self.server.told.append(request)
            self.wfile.write(b'{"ok": true}\n')
            return
        try:
            self.wfile.write(self._answer_event(request))
        except BrokenPipeError:
            return  # the hook had no more time

    def _serve_hook(self, request: dict[str, Any]) -> None:
        try:
            for part in hook.serve_event(request, ask_home=lambda asked: json.loads(self._answer_event(asked))):
                self.wfile.write(part)
        except BrokenPipeError:
            return

    def _answer_event(self, request: dict[str, Any]) -> bytes:
        self.server.asked.append(request)
        time.sleep(self.server.delay_s)
        event = request["event"]
        text = self.server.text.format(n=len(self.server.asked), kind=event["kind"], session=event["session"])
        answer = {"text": text, "notice": self.server.notice}
        return self.server.raw or json.dumps(answer).encode() + b"\n"


class ScriptedResident(socketserver.ThreadingUnixStreamServer):
    """Answers every event with `text`, in which {n}, {kind} and {session} are filled in, after `delay_s`."""

    daemon_threads = True

    def __init__(self, home: Path, text: str = "", *, notice: str = "", delay_s: float = 0, raw: bytes = b"") -> None:
        place = events.to_socket_path(home)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        super().__init__(str(place), _Door)
        self.text, self.notice, self.delay_s, self.raw = text, notice, delay_s, raw
        self.asked: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []  # requests that are no events, such as reports of a proxy
        self._place = place

    def __enter__(self) -> ScriptedResident:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._place.unlink(missing_ok=True)
