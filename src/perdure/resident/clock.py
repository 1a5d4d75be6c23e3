"""The thread that starts built-in jobs when they are due, each in a thread and with a home object of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from perdure import schedule
from perdure.capture import log
from perdure.errors import PerdureError
from perdure.home import Home
from perdure.jobs import cron
from perdure.jobs.book import Book, Done, Envelope, summed
from perdure.resident import everyone


def run(home: Home, name: str, *, trigger: str, stop: schedule.Stop = lambda: False) -> Envelope:
    """Run one built-in job on a home, for each of its users where it is theirs, record it, and return what became of
    it. Raises NotFound.
    """
    job = schedule.job(name)
    return _recorded(home, name, lambda: everyone.worked(job, home, stop), trigger)


def run_own(home: Home, name: str, work: Callable[[], Done]) -> Envelope:
    """Do what a job does for this home's user alone, because they asked; recorded as a run of it that is theirs."""
    return _recorded(home, name, lambda: summed({home.user: everyone.share(work)}), "person")


def _recorded(home: Home, name: str, work: Callable[[], Done], trigger: str) -> Envelope:
    ended = Book(home.path).run(name, work, trigger=trigger, now=_now)
    if ended.result not in ("nothing", "busy"):
        log.note(home.path, "job", job=name, result=ended.result, took_ms=ended.took_ms, counts=dict(ended.counts))
    return ended


def _now() -> datetime:
    return datetime.now().astimezone()


class Clock:
    """Looks at the table every few seconds."""

    def __init__(self, make: Callable[[], Home], home: Home, *, tick_s: float) -> None:
        """make: a home object for the thread of a job."""
        self._make = make
        self._home = home
        self._tick_s = tick_s
        self._book = Book(home.path)
        self._when = schedule.when(home.config.jobs)
        self._threads: dict[str, threading.Thread] = {}

    def run(self, stopped: threading.Event) -> None:
        """Start what is due, until stopped; then let what runs come to its next stop."""
        known_at = _now()
        while not stopped.is_set():
            for name in self._due(known_at, _now()):
                self._begin(name, stopped)
            stopped.wait(self._tick_s)
        for thread in self._threads.values():
            thread.join(timeout=5)

    def _due(self, known_at: datetime, now: datetime) -> list[str]:
        """Jobs that are to begin now. known_at: since when a job without a history has been known."""
        paused = self._book.paused()
        found = []
        for job in schedule.JOBS:
            running = self._threads.get(job.name)
            if job.name in paused or not self._when[job.name] or (running and running.is_alive()):
                continue
            latest = self._book.settle(job.name)
            since = latest.started_at if latest else known_at
            if cron.is_due(self._when[job.name], since=since.astimezone(now.tzinfo), now=now, missed=job.missed):
                found.append(job.name)
        return found

    def _begin(self, name: str, stopped: threading.Event) -> None:
        thread = threading.Thread(target=self._work, args=(name, stopped), name=f"perdure-{name}", daemon=True)
        self._threads[name] = thread
        thread.start()

    def _work(self, name: str, stopped: threading.Event) -> None:
        try:
            with self._make() as home:
                run(home, name, trigger="clock", stop=stopped.is_set)
        except (PerdureError, OSError) as error:
            log.note(self._home.path, "job", job=name, result="failed", code=str(getattr(error, "code", error)))
