"""The work in the background as items of the queue: which there are to do now, and how one is carried out.

Each item is a slice: it ends within seconds, and what it leaves is a new item at the end of the queue. So users take
turns, and a backfill of one delays nobody else's first search. An item may be done again at any time: what it does
follows from the archive, and what is done already is not done twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

from perdure import log
from perdure.errors import Busy, ModelFault, NotFound, PerdureError
from perdure.home import Home
from perdure.jobs import JobLog, JobResult
from perdure.service import builtin_jobs, clock
from perdure.service.worker import SLICE_S, UserHomes, log_capture
from perdure.work_queue import WorkItem

_MAX_PAUSE_S = 300.0
_FIRST_PAUSE_S = 2.0
_BUSY_S = 1.0

PutItem = Callable[..., bool]  # WorkQueue.put


def list_waiting_items(home: Home) -> Iterator[WorkItem]:
    """Yield an item for everything that was captured and is not indexed yet."""
    if home.captures.has_waiting():
        yield WorkItem("capture", "intake")
    for user in home.upkeep.list_behind():
        yield WorkItem("capture", "ingest", user)


def queue_job(home: Home, put: PutItem, name: str) -> None:
    """Put a built-in job that is due into the queue, with its last run: who carries it out sees whether it is new."""
    put(WorkItem("job", "job", name, _read_last_start(JobLog(home.path), name)))


def _read_last_start(job_log: JobLog, name: str) -> str:
    last_run = job_log.settle_latest(name)
    return last_run.started_at.isoformat() if last_run else ""


class ItemWork:
    """Carries out items with home objects that one thread uses. Close it in that thread."""

    def __init__(self, open_home: Callable[[], Home], put: PutItem, stop_event: threading.Event) -> None:
        """open_home: opens a home object for this thread. put: puts an item into the queue."""
        self._home = open_home()
        self._user_homes = UserHomes(self._home)
        self._put, self._stop_event = put, stop_event

    def close(self) -> None:
        """Close the homes."""
        self._user_homes.__exit__(None, None, None)
        self._home.close()

    def carry_out(self, item: WorkItem) -> bool:
        """Do one item and put in what is left; return False if it failed. A failed item waits longer each time."""
        work = {"intake": self._take_in, "ingest": self._ingest, "embed": self._embed, "job": self._run_job}[item.kind]
        try:
            work(item)
        except Busy:
            self._put(item, after_s=_BUSY_S)
        except (PerdureError, OSError) as error:
            code = str(getattr(error, "code", type(error).__name__))
            log.append_entry(self._home.path, "failed", client="worker", kind=item.kind, code=code)
            if item.kind != "job":  # the clock sees to those
                self._put_again(item)
            return False
        return True

    def _put_again(self, item: WorkItem) -> None:
        n_failures = int(item.note or 0) + 1
        pause_s = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2.0**n_failures)
        self._put(item._replace(note=str(n_failures)), after_s=pause_s)

    def _take_in(self, item: WorkItem) -> None:
        """Move the outbox into the archive, for a slice."""
        self._home.captures.drain(limit_s=SLICE_S)
        for waiting_item in list_waiting_items(self._home):
            if waiting_item != item or self._home.captures.count_waiting():
                self._put(waiting_item)

    def _ingest(self, item: WorkItem) -> None:
        """Index a slice of one user's captures, keep what they state, and embed the newest for a moment."""
        if (home := self._open(item.name)) is None:
            return
        result = home.upkeep.catch_up_user(limit_s=SLICE_S, note=partial(log_capture, home))
        if result.n_behind:
            self._put(item._replace(note=""), after_s=0.0 if result.n_runs else _BUSY_S)
        else:
            home.upkeep.embed_new()
        if home.upkeep.find_newest_unembedded(item.name):
            self._put(WorkItem("embed", "embed", item.name))

    def _embed(self, item: WorkItem) -> None:
        """Make vectors for one user, for a slice."""
        if (home := self._open(item.name)) is None:
            return
        try:
            result = home.upkeep.embed_indexed(limit_s=builtin_jobs.EMBED_SLICE_S)
        except NotFound:  # there is no embedder
            return
        if result.n_left and not self._stop_event.is_set():
            if not result.n_done:
                raise ModelFault("no text was embedded")
            self._put(item._replace(note=""))

    def _run_job(self, item: WorkItem) -> None:
        """Run a built-in job, unless it began after it was put in: then another worker had it."""
        job_log = JobLog(self._home.path)
        if _read_last_start(job_log, item.name) != item.note:
            return
        if item.name == "embed":
            clock.record_run(self._home, item.name, self._queue_embedding, "clock")
        else:
            clock.run_job(self._home, item.name, trigger="clock", stop=self._stop_event.is_set)

    def _queue_embedding(self) -> JobResult:
        """Put in an item for each user whose vectors are missing: they take turns."""
        users = [
            user for user in self._user_homes.list_users() if self._home.upkeep.find_newest_unembedded(user)
        ]  # fmt: skip
        for user in users:
            self._put(WorkItem("embed", "embed", user))
        return JobResult(f"queued for {len(users)} users", {"users": len(users)}, did_work=bool(users))

    def _open(self, user: str) -> Home | None:
        """Return the home as a user; None if this home holds nothing of them any more."""
        return self._user_homes.open_as_user(user) if user in self._user_homes.list_users() else None
