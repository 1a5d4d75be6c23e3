"""The resident of a machine that keeps nothing itself: it sends what waits in the outbox, and tells whether it can.

It holds nothing, so that ending it in any way loses nothing; hooks send for themselves and go on without it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.capture import alert, log, outbox, remote, rules, ship, wire
from perdure.errors import Busy, PerdureError
from perdure.jobs import post
from perdure.resident.health import rss_bytes
from perdure.resident.serve import listening, read_request

ROUND_S = 2.0  # between two looks at the outbox
_WAIT_S = 1.0  # for a hook that is sending
_REQUEST_S = 10.0  # so long may who asks take to say what


class Shipping:
    """The outbox of a machine, emptied for as long as this runs."""

    def __init__(self, home: Path, *, round_s: float = ROUND_S) -> None:
        """Nothing is sent before `run`."""
        self.home = home
        self.stopped = threading.Event()
        self._round_s = round_s
        self._wanted = threading.Event()
        self._since_at = datetime.now(UTC)
        self._problem = ""

    def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Send until stopped. Raises AlreadyServing."""
        with post.held(self.home, now=self._since_at), listening(wire.address(self.home)) as line:
            log.note(self.home, "shipping")
            threading.Thread(target=self._accept, args=(line,), daemon=True).start()
            ready()
            while not self.stopped.is_set():
                self.round()
                self._wanted.wait(self._round_s)
                self._wanted.clear()
            log.note(self.home, "stopped")

    def round(self) -> None:
        """Send what waits, where the home is not known to be away; a fault is noted and tried again."""
        problem = ""
        try:
            found = rules.read(self.home)
            if not remote.rests(self.home):
                ship.ship(found, wait_s=_WAIT_S)
            else:
                problem = self._problem
            alert.of_outbox(found)
        except Busy:
            problem = self._problem
        except (PerdureError, OSError) as error:
            problem = str(error)
            if problem != self._problem:
                log.note(self.home, "not-shipped", error=problem)
        self._problem = problem

    def stop(self) -> None:
        """End it after what is being sent."""
        self.stopped.set()
        self._wanted.set()

    def health(self) -> dict[str, Any]:
        """How it is, in numbers; `problems` is empty when all is well."""
        waiting = outbox.backlog(self.home / "outbox")
        problems = [self._problem] if self._problem else []
        return {
            "healthy": not problems, "problems": problems, "alert": list(alert.current(self.home)), "http": "",
            "pid": os.getpid(), "since_at": self._since_at.isoformat(), "rss_bytes": rss_bytes(),
            "outbox": {"files": waiting.n_files, "bytes": waiting.n_bytes},
        }  # fmt: skip

    def _accept(self, line: socket.socket) -> None:
        while not self.stopped.is_set():
            try:
                connection, _ = line.accept()
                with connection:
                    connection.settimeout(_REQUEST_S)
                    request = read_request(connection)
                    connection.sendall(json.dumps(self._answer(request or {})).encode() + b"\n")
            except OSError:  # closed, because the process ends; or who asked is gone
                continue

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("op") == "health":
            return self.health()
        if request.get("op") == "stop":
            self.stop()
            return {"ok": True}
        if request.get("op") == "wake":
            self._wanted.set()
            return {"ok": True}
        return {"error": {"code": "usage-error"}}
