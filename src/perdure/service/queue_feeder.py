"""The part of a `perdure serve` process that feeds the queue of the workers, where the settings want workers.

It stands where the ingest worker stands otherwise, and does none of its work: a capture that was acknowledged is in
the archive or the outbox, and an item in the queue only says that there is something to do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from perdure import log
from perdure.errors import PerdureError
from perdure.home import Home
from perdure.service.health import HealthState
from perdure.service.work_items import list_waiting_items
from perdure.service.worker_list import list_workers
from perdure.work_queue import WorkItem, WorkQueue

_POLL_S = 0.05  # between two looks whether a reader's captures are indexed
_COUNTED_S = 1.0  # how many runs of a user wait is counted again after this time


class QueueFeeder:
    """Puts in what was captured, and waits for it where a reader asks. Any thread may call it, `run` in one."""

    def __init__(self, open_home: Callable[[], Home], health_state: HealthState, *, round_s: float) -> None:
        """open_home: opens a home object for the thread. round_s: between two looks when nothing wakes it."""
        self._open_home, self._health_state, self._round_s = open_home, health_state, round_s
        self._wake = threading.Event()
        self._queue: WorkQueue | None = None
        self._queue_lock = threading.Lock()
        self._counts: dict[str, tuple[float, int]] = {}  # user -> (when counted, runs that wait)
        self._n_workers = 1  # at the last look
        self._items: dict[str, dict[str, int]] = {}  # slot -> items that wait and run, at the last look

    def wake(self) -> None:
        """Look now, because something was captured."""
        self._wake.set()

    def run(self, stop_event: threading.Event) -> None:
        """Look and put in until stopped."""
        with self._open_home() as home:
            while not stop_event.is_set():
                self._feed(home)
                self._wake.wait(self._round_s)
                self._wake.clear()
        if self._queue is not None:
            self._queue.close()

    def _feed(self, home: Home) -> None:
        try:
            for item in list_waiting_items(home):
                self._open_queue(home).put(item)
            counts = self._open_queue(home).count_items()
            self._items = {slot: count._asdict() for slot, count in counts.items()}
            self._n_workers = len(list_workers(home.path))
            if self._n_workers:
                self._health_state.record_proof("keeper")
                self._health_state.record_proof("write")
            else:
                self._health_state.failure_codes["keeper"] = "no worker runs"
        except (PerdureError, OSError) as error:
            code = str(getattr(error, "code", type(error).__name__))
            if self._health_state.failure_codes.get("keeper") != code:
                log.append_entry(home.path, "failed", client="serve", kind="queue", code=code)
            self._health_state.failure_codes["keeper"] = code

    def _open_queue(self, home: Home) -> WorkQueue:
        with self._queue_lock:
            self._queue = self._queue or WorkQueue(home.config.index)
            return self._queue

    def catch_up_for_reader(self, home: Home, limit_s: float) -> None:
        """Let a worker index what waits of a reader, and wait for it, for at most so many seconds.

        home: of the reader, in their thread. Where no worker lives, nobody is waited for.
        """
        ends_s, is_owner = time.monotonic() + limit_s, home.user == home.config.user
        has_asked = False
        while (is_owner and home.captures.count_waiting()) or home.upkeep.count_behind():
            if not has_asked:
                has_asked = True
                kind, name = ("ingest", home.user) if home.upkeep.count_behind() else ("intake", "")
                try:
                    self._open_queue(home).put(WorkItem("capture", kind, name))
                except PerdureError:  # what is indexed answers all the same
                    return
            if not self._n_workers or time.monotonic() + _POLL_S > ends_s:
                return
            time.sleep(_POLL_S)

    def find_overload(self, home: Home, user: str) -> int:
        """Return how many runs of a user wait for the index if these are too many to take more; else 0."""
        counted_s, n_waiting = self._counts.get(user, (0.0, 0))
        if time.monotonic() - counted_s > _COUNTED_S:
            n_waiting = home.upkeep.count_behind(user)
            self._counts[user] = (time.monotonic(), n_waiting)
        return n_waiting if n_waiting >= home.config.workers.max_waiting else 0

    def report(self, home: Home) -> dict[str, Any]:
        """Return the workers that live and the items of each slot, as far as the last look saw them."""
        return {"workers": msgspec.to_builtins(list_workers(home.path)), "queue": self._items}
