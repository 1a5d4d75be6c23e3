"""The thread that starts built-in jobs when they are due, each in a thread with a home object of its own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

from perdure import jobs, log
from perdure.agent import start_jobs
from perdure.agent.job_definition import JobDefinition
from perdure.agent.start_jobs import DueJob
from perdure.environ import local_now
from perdure.errors import PerdureError
from perdure.home import Home
from perdure.jobs import JobLog, JobResult, JobRun, sum_user_results
from perdure.service import builtin_jobs, worker
from perdure.turn import locate_error


def run_job(home: Home, name: str, *, trigger: str, stop: builtin_jobs.StopCheck = lambda: False) -> JobRun:
    """Run one built-in job on a home, for each user if the job is per user; record and return the run.

    Raises NotFound.
    """
    job = builtin_jobs.find_job(name)
    return record_run(home, name, lambda: worker.run_for_users(job, home, stop), trigger)


def run_own_job(home: Home, name: str, work: Callable[[], JobResult]) -> JobRun:
    """Run a job for this home's user alone, because they asked; the recorded run is theirs."""
    return record_run(home, name, lambda: sum_user_results({home.user: worker.run_for_user(work)}), "person")


def record_run(home: Home, name: str, work: Callable[[], JobResult], trigger: str) -> JobRun:
    """Run the work of a job, unless it runs already; record and log the run."""
    job_run = JobLog(home.path).run(name, work, trigger=trigger, now=local_now)
    if job_run.result not in ("nothing", "busy"):
        log.append_entry(
            home.path, "job", job=name, result=job_run.result, took_ms=job_run.took_ms, counts=dict(job_run.counts)
        )
    return job_run


class JobClock:
    """The thread that looks at the job table every few seconds."""

    def __init__(
        self,
        open_home: Callable[[], Home],
        home: Home,
        *,
        tick_s: float,
        now: Callable[[], datetime] = local_now,
        queue_job: Callable[[str], None] | None = None,
    ) -> None:
        """Read the schedule. open_home: opens a home object for a job's thread. now: tells the time, for tests.

        queue_job: gets the name of each built-in job that is due, instead of a thread here.
        """
        self._open_home = open_home
        self._home = home
        self._tick_s = tick_s
        self._now = now
        self._queue_job = queue_job
        self._job_log = JobLog(home.path)
        self._expressions = builtin_jobs.read_expressions(home.config.jobs)
        self._threads: dict[str, threading.Thread] = {}
        self._requested_jobs: set[str] = set()
        self._failures: dict[str, str] = {}  # by job: the last one that was logged

    def request(self, name: str) -> None:
        """Start a job at the next look, before its time, unless it is switched off, paused or failed last time."""
        self._requested_jobs.add(name)

    def run(self, stop_event: threading.Event) -> None:
        """Start due jobs until stopped; then let running jobs reach their next stop."""
        known_at = self._now()
        with self._open_home() as home:
            while not stop_event.is_set():
                with self._note_failure("clock"):
                    for name in self._list_due(known_at, self._now()):
                        self._start(name, stop_event)
                self._start_own_jobs(home, stop_event)
                stop_event.wait(self._tick_s)
        for thread in self._threads.values():
            thread.join(timeout=5)

    def _list_due(self, known_at: datetime, now: datetime) -> list[str]:
        """Return the jobs to start now. known_at: since when a job without a history has been known."""
        paused = self._job_log.list_paused()
        due_jobs = []
        for job in builtin_jobs.BUILTIN_JOBS:
            with self._note_failure(job.name):
                if job.name not in paused and self._is_due(job, known_at, now):
                    due_jobs.append(job.name)
        return due_jobs

    def _is_due(self, job: builtin_jobs.BuiltinJob, known_at: datetime, now: datetime) -> bool:
        expression, thread = self._expressions[job.name], self._threads.get(job.name)
        if not expression or (thread and thread.is_alive()):
            return False
        latest_run = self._job_log.settle_latest(job.name)
        if job.name in self._requested_jobs and not (latest_run and latest_run.result == "failed"):
            return True
        since_at = jobs.find_last_start([latest_run.started_at if latest_run else known_at], now)
        return jobs.is_due(expression, since=since_at.astimezone(now.tzinfo), now=now, missed=job.missed)

    def _start(self, name: str, stop_event: threading.Event) -> None:
        self._requested_jobs.discard(name)
        if self._queue_job is not None:
            try:
                self._queue_job(name)
            except PerdureError as error:
                self._log_failure(name, error)
            return
        self._start_thread(name, lambda home: run_job(home, name, trigger="clock", stop=stop_event.is_set))

    def _start_thread(self, name: str, work: Callable[[Home], object]) -> None:
        thread = threading.Thread(target=self._run, args=(name, work), name=f"perdure-{name}", daemon=True)
        self._threads[name] = thread
        thread.start()

    def _run(self, name: str, work: Callable[[Home], object]) -> None:
        try:
            with self._open_home() as home:
                work(home)
        except (PerdureError, OSError) as error:
            self._log_failure(name, error)

    def _log_failure(self, name: str, error: Exception) -> None:
        code = str(getattr(error, "code", error if isinstance(error, OSError) else type(error).__name__))
        log.append_entry(self._home.path, "job", job=name, result="failed", code=code, at_line=locate_error(error))

    @contextlib.contextmanager
    def _note_failure(self, name: str) -> Iterator[None]:
        """Let no error of a job end the clock, which starts them all. It is logged once; the next look tries again."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - without the clock no job of the home runs
            if self._failures.get(name) != str(error):
                self._failures[name] = str(error)
                self._log_failure(name, error)

    # jobs of the owner ------------------------------------------------------------------------------------

    def _start_own_jobs(self, home: Home, stop_event: threading.Event) -> None:
        """Start the owner's jobs whose time has come; one that cannot start keeps no other from it."""
        with self._note_failure("jobs"):
            now = self._now()
            for job in start_jobs.list_due(home, now):
                with self._note_failure(job.definition.name):
                    self._start_own_job(home, job, now, stop_event)

    def _start_own_job(self, home: Home, job: DueJob, now: datetime, stop_event: threading.Event) -> None:
        name = job.definition.name
        if not job.definition.command:
            start_jobs.start_job(home, job.definition, trigger="clock", due_at=job.due_at, now=now)
        elif not ((thread := self._threads.get(name)) and thread.is_alive()):
            self._start_thread(name, partial(_run_command, job.definition, stop_event))


def _run_command(definition: JobDefinition, stop_event: threading.Event, home: Home) -> None:
    start_jobs.run_command(home, definition, trigger="clock", stop=stop_event.is_set)
