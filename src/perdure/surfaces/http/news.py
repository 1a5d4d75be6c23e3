"""What happened in the home, whoever did it: read off the log and the journals, and told to those who listen.

One thread looks every second. It tells what is new since it looked before, in ids and numbers and never in words.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from perdure.archive.injected import TYPE as INJECTED
from perdure.archive.injected import is_floor
from perdure.archive.journal import Event, Read, places, tails, was_rewritten
from perdure.capture import log
from perdure.memories.events import TYPE as MEMORIES
from perdure.surfaces.http.events import EVERYBODY, Hub

TICK_S = 1.0
_CAPTURED = ("run_id", "machine", "runtime", "turn_count", "bytes")
_JOB = ("job", "result", "took_ms")


class News:
    """Where the reading has come to."""

    def __init__(self, home: Path, hub: Hub) -> None:
        self._home = home
        self._hub = hub
        self._lock = threading.Lock()
        self._log: tuple[int, int] = self._log_end()
        self._read: dict[str, dict[str, Read]] = {}  # user -> how far their journal was read

    def run(self, stopped: threading.Event) -> None:
        """Look, until stopped."""
        while not stopped.wait(TICK_S):
            try:
                self.look()
            except OSError as error:  # a file that is rewritten at this moment: the next look sees it
                log.note(self._home, "failed", client="http", kind="events", code=type(error).__name__)

    def begin(self, user: str) -> None:
        """Somebody begins to listen: what comes from now on is news to them."""
        with self._lock:
            if user not in self._hub.users:
                self._read[user] = places(self._folder(user))

    def look(self) -> None:
        """Tell what is new."""
        with self._lock:
            for line in self._fresh_lines():
                self._tell_line(line)
            for user in self._hub.users:
                self._tell_events(user)

    def _folder(self, user: str) -> Path:
        return self._home / "archive" / "journal" / user

    # the log ----------------------------------------------------------------------------------------------

    def _log_end(self) -> tuple[int, int]:
        try:
            found = log.path_of(self._home).stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_ino, found.st_size

    def _fresh_lines(self) -> list[dict[str, Any]]:
        inode, size = self._log_end()
        start = self._log[1] if self._log[0] == inode else 0
        if size <= start:
            return []
        with log.path_of(self._home).open("rb") as file:
            file.seek(start)
            raw = file.read(size - start)
        whole = raw[: raw.rfind(b"\n") + 1]
        self._log = inode, start + len(whole)
        return [json.loads(line) for line in whole.splitlines() if line.startswith(b"{")]

    def _tell_line(self, line: dict[str, Any]) -> None:
        if line.get("what") == "captured":
            self._hub.publish(str(line.get("user")), "captured", {name: line.get(name) for name in _CAPTURED})
        elif line.get("what") == "job":
            self._hub.publish(EVERYBODY, "job", {name: line.get(name) for name in _JOB})

    # the journals -----------------------------------------------------------------------------------------

    def _tell_events(self, user: str) -> None:
        folder = self._folder(user)
        known, now = self._read.get(user), places(folder)
        if known is None or was_rewritten(known, now):
            self._read[user] = now
            return
        fresh, self._read[user] = tails(folder, known, now, (MEMORIES, INJECTED))
        for event in fresh:
            if event.type == MEMORIES:
                self._hub.publish(user, "memory", _told(event))
            elif not is_floor(event):
                self._hub.publish(user, "injected", _injected(event))


def _injected(event: Event) -> dict[str, Any]:
    """Which recall went into which session, and how much it was."""
    said = {name: event.data.get(name) for name in ("nonce", "runtime", "session", "n_tokens")}
    return {**said, "n_cues": len(event.data.get("turns", ()))}


def _told(event: Event) -> dict[str, Any]:
    """What became of which memories, and by whom."""
    ops = event.data.get("ops", [])
    return {"by": event.data.get("by"), "memories": [{"memory_id": op.get("id"), "done": op.get("op")} for op in ops]}
