"""The process of `perdure worker`: it takes items from the queue and carries them out, beside any number of others.

Ending it in any way loses nothing: an item of a killed worker goes to another one, and what was captured is found by
the next look, whether the queue has an item for it or not.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from functools import partial

from perdure import log
from perdure.agent.queue_runner import QueueRunner
from perdure.environ import local_now
from perdure.errors import ConfigFault, IndexUnreachable, PerdureError
from perdure.home import Home
from perdure.service import health
from perdure.service.clock import JobClock
from perdure.service.duties import hold_duty
from perdure.service.store_worker import StoreWorker
from perdure.service.unit import report_alive
from perdure.service.work_items import ItemWork, list_waiting_items, queue_job
from perdure.service.worker_list import WorkerFile
from perdure.work_queue import WorkItem, WorkQueue

LOOK_S = 2.0  # between two looks for captures that nobody put into the queue
_TICK_S = 5.0  # between two looks at the clock
_RETRY_S = 2.0  # after the server of the queue was away
_NICENESS = 5  # answers of other processes on this machine come first
_SWITCH_S = 0.001


class WorkerProcess:
    """One worker of a home."""

    def __init__(self, home: Home, *, now: Callable[[], datetime] = local_now) -> None:
        """home: this object alone uses it until it is done. Raises ConfigFault where the settings want no workers."""
        if not home.config.workers.enabled:
            raise ConfigFault("workers.enabled is not true: `perdure serve` does the work itself")
        self.home = home
        self.stop_event = threading.Event()
        self.file = WorkerFile(home.path)
        self._now = now
        self._clone_lock = threading.Lock()
        self._works: dict[str, ItemWork] = {}  # by slot
        self._queue: WorkQueue | None = None
        home.connections.vectors()  # one model for all threads

    def run(self, *, on_ready: Callable[[], None] = lambda: None) -> None:
        """Work until stopped."""
        sys.setswitchinterval(_SWITCH_S)
        health.raise_file_limit()
        health.share_memory_arenas()
        os.nice(_NICENESS)
        with self.file.hold():
            log.append_entry(self.home.path, "working", pid=os.getpid())
            threads = [
                threading.Thread(target=loop, args=(self.stop_event,), name=f"perdure-{name}", daemon=True)
                for name, loop in self._list_loops()
            ]
            for thread in threads:
                thread.start()
            on_ready()
            self._work()
            for thread in threads:
                thread.join(timeout=5)
            log.append_entry(self.home.path, "stopped-working", pid=os.getpid())

    def _list_loops(self) -> list[tuple[str, Callable[[threading.Event], None]]]:
        path, config = self.home.path, self.home.config
        job_clock = JobClock(self._clone_home, self.home, tick_s=_TICK_S, now=self._now, queue_job=self._queue_job)
        duties = [("clock", job_clock.run)]
        if config.archive.store:
            duties.append(("store", StoreWorker(self._clone_home).run))
        return [
            ("look", self._look),
            ("agents", QueueRunner(path, config.agents).run),
            *((name, partial(hold_duty, path, name, run)) for name, run in duties),
        ]

    def _clone_home(self) -> Home:
        with self._clone_lock:
            return self.home.clone_for_thread()

    def _put(self, item: WorkItem, *, after_s: float = 0.0) -> bool:
        if self._queue is None:
            raise IndexUnreachable("the queue")
        return self._queue.put(item, after_s=after_s)

    def _queue_job(self, name: str) -> None:
        queue_job(self.home, self._put, name)

    # items ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Take items until stopped, whenever the server of the queue answers."""
        while not self.stop_event.is_set():
            try:
                self._queue = self._queue or WorkQueue(self.home.config.index)
                self.file.note_problem("")
                self._queue.work(self._carry_out, self.stop_event)
            except PerdureError as error:
                self.file.note_problem(str(error))
                log.append_entry(self.home.path, "failed", client="worker", kind="queue", code=error.code)
                self.stop_event.wait(_RETRY_S)
        if self._queue is not None:
            self._queue.close()

    def _carry_out(self, item: WorkItem) -> None:
        """Carry out one item, in the thread of its slot."""
        self.file.note_begin(item.slot, f"{item.kind} {item.name}".strip())
        is_done = False
        try:
            work = self._works.get(item.slot)
            if work is None:
                work = self._works[item.slot] = ItemWork(self._clone_home, self._put, self.stop_event)
            is_done = work.carry_out(item)
        except Exception as error:  # noqa: BLE001 - one item must not end the thread that all others need
            code = str(getattr(error, "code", type(error).__name__))
            log.append_entry(self.home.path, "failed", client="worker", kind=item.kind, code=code)
            self._works.pop(item.slot, None)  # begin with new homes
        finally:
            self.file.note_end(item.slot, has_failed=not is_done)

    def _look(self, stop_event: threading.Event) -> None:
        """Put in what was captured and has no item: an item may be lost, a capture may not."""
        last_code = ""
        with self._clone_home() as home:
            while not stop_event.wait(LOOK_S):
                report_alive()
                try:
                    for item in list_waiting_items(home):
                        self._put(item)
                    last_code = ""
                except (PerdureError, OSError) as error:
                    code = str(getattr(error, "code", type(error).__name__))
                    if code != last_code:
                        log.append_entry(home.path, "failed", client="worker", kind="look", code=code)
                    last_code = code
