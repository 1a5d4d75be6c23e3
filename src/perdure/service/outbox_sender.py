"""The resident process of a thin machine: it sends the outbox to the remote home and reports if it can.

It holds nothing, so ending it in any way loses nothing; hooks send for themselves and work without it.
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

from perdure import log
from perdure.capture import alert, deliver, enqueue, events, policy, remote
from perdure.errors import Busy, PerdureError
from perdure.service import lock
from perdure.service.health import read_rss_bytes
from perdure.service.server import open_socket, read_request
from perdure.service.unit import report_alive

ROUND_S = 2.0  # between two looks at the outbox
_WAIT_S = 1.0  # for a hook that is sending
_REQUEST_S = 10.0  # longest time to read a request


class OutboxSender:
    """Empties a machine's outbox as long as it runs."""

    def __init__(self, home: Path, *, round_s: float = ROUND_S) -> None:
        self.home = home
        self.stop_event = threading.Event()
        self._round_s = round_s
        self._wake = threading.Event()
        self._since_at = datetime.now(UTC)
        self._problem = ""

    def run(self, *, on_ready: Callable[[], None] = lambda: None) -> None:
        """Send until stopped. Raises AlreadyServing."""
        with lock.hold_lock(self.home, now=self._since_at), open_socket(events.to_socket_path(self.home)) as listener:
            log.append_entry(self.home, "shipping")
            threading.Thread(target=self._accept_connections, args=(listener,), daemon=True).start()
            on_ready()
            while not self.stop_event.is_set():
                self.send_waiting()
                report_alive()
                self._wake.wait(self._round_s)
                self._wake.clear()
            log.append_entry(self.home, "stopped")

    def send_waiting(self) -> None:
        """Send the outbox, unless the remote home is known to be away; a failure is logged and tried again."""
        problem = ""
        try:
            capture_rules = policy.read_rules(self.home)
            if not remote.is_resting(self.home):
                deliver.deliver_outbox(capture_rules, wait_s=_WAIT_S)
            else:
                problem = self._problem
            alert.check_outbox(capture_rules)
        except Busy:
            problem = self._problem
        except (PerdureError, OSError) as error:
            problem = str(error)
            if problem != self._problem:
                log.append_entry(self.home, "not-shipped", error=problem)
        self._problem = problem

    def stop(self) -> None:
        """Stop after the present delivery."""
        self.stop_event.set()
        self._wake.set()

    def report_health(self) -> dict[str, Any]:
        """Report the health in numbers; `problems` is empty if all is well."""
        backlog = enqueue.measure_backlog(self.home / "outbox")
        problems = [self._problem] if self._problem else []
        return {
            "healthy": not problems,
            "problems": problems,
            "alert": list(alert.read_problems(self.home)),
            "http": "",
            "pid": os.getpid(),
            "since_at": self._since_at.isoformat(),
            "rss_bytes": read_rss_bytes(),
            "outbox": {"files": backlog.n_files, "bytes": backlog.n_bytes},
        }

    def _accept_connections(self, listener: socket.socket) -> None:
        while not self.stop_event.is_set():
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(_REQUEST_S)
                    request = read_request(connection)
                    connection.sendall(json.dumps(self._answer_request(request or {})).encode() + b"\n")
            except OSError:  # closed because the process ends, or the client is gone
                continue

    def _answer_request(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("op") == "health":
            return self.report_health()
        if request.get("op") == "stop":
            self.stop()
            return {"ok": True}
        if request.get("op") == "wake":
            self._wake.set()
            return {"ok": True}
        return {"error": {"code": "usage-error"}}
