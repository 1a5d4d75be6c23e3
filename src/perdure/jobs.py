"""Scheduled jobs: when one is due, and the log of its runs. Knows no job by name."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from cronsim import CronSim, CronSimError

from perdure.disk import append_line, lock_file, make_folder, replace_file
from perdure.errors import Busy, ConfigFault, PerdureError

MAX_RUNS = 200  # runs of each job in its history
MAX_OUTPUT_CHARS = 4000  # of a command, its end
JobOutcome = Literal["running", "queued", "done", "nothing", "failed", "interrupted", "busy", "cancelled"]


@dataclass(frozen=True)
class UserJobResult:
    """The result of a run for one of the home's users; only that user may see it."""

    result: JobOutcome
    why: str = ""
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class JobResult:
    """The result that a job returns."""

    why: str  # in words
    counts: Mapping[str, float] = field(default_factory=dict)
    did_work: bool = True  # False: there was nothing to do
    by_user: Mapping[str, UserJobResult] = field(default_factory=dict)  # for a job that runs for each user
    output: str = ""  # of a command, its end; masked
    has_failed: bool = False


def sum_user_results(by_user: Mapping[str, UserJobResult]) -> JobResult:
    """Sum up a job that was done for each user, without naming any user.

    >>> ada = UserJobResult("done", "2 made", {"new": 2})
    >>> sum_user_results({"ada": ada, "eve": UserJobResult("nothing")}).why
    '2 users: 1 done, 1 nothing'
    """
    counts: dict[str, float] = defaultdict(float)
    for user_result in by_user.values():
        for name, count in user_result.counts.items():
            counts[name] += count
    results = Counter(user_result.result for user_result in by_user.values())
    breakdown = ", ".join(f"{count} {result}" for result, count in sorted(results.items()))
    why = next(iter(by_user.values())).why if len(by_user) == 1 else f"{len(by_user)} users: {breakdown}"
    return JobResult(why, dict(counts), did_work=results["done"] > 0, by_user=by_user)


@dataclass(frozen=True)
class JobRun:
    """One run of a job and its result."""

    job: str
    started_at: datetime
    trigger: str  # "clock" or "person"
    result: JobOutcome = "running"
    why: str = ""
    counts: Mapping[str, float] = field(default_factory=dict)
    took_ms: float = 0.0
    pid: int = 0
    by_user: Mapping[str, UserJobResult] = field(default_factory=dict)  # empty for a job of the whole home
    output: str = ""  # of a command, its end; masked

    def to_user_view(self, user: str) -> JobRun:
        """Return the run as one user may see it: of a job done for each user, only this user's result."""
        if not self.by_user:
            return self
        user_result = self.by_user.get(user, UserJobResult("nothing"))
        return replace(self, result=user_result.result, why=user_result.why, counts=user_result.counts, by_user={})


class JobLog:
    """The log of one home's job runs. Any process and thread may write."""

    def __init__(self, home: Path) -> None:
        """Make nothing before the first run."""
        self._folder = home / "run" / "jobs"
        self._paused_path = home / "paused-jobs"

    def run(self, job: str, work: Callable[[], JobResult], *, trigger: str, now: Callable[[], datetime]) -> JobRun:
        """Run a job and record the result; if another run is going on, only report it as busy."""
        make_folder(self._folder)
        try:
            with lock_file(self._folder / f"{job}.lock", wait_s=0.2):  # another process may only be checking the lock
                self.settle_latest(job, locked_by_us=True)
                started_run = JobRun(job, now(), trigger, pid=os.getpid())
                self._write_latest(started_run)
                ended_run = _run_work(started_run, work, now)
                self._write_latest(ended_run)
                self._append_history(ended_run)
                return ended_run
        except Busy:
            return JobRun(job, now(), trigger, "busy", "it is already running")

    def record(self, job_run: JobRun) -> JobRun:
        """Record a run that was queued, or that could not be: from then on the job is due at its next time."""
        make_folder(self._folder)
        self._write_latest(job_run)
        if job_run.result != "queued":
            self._append_history(job_run)
        return job_run

    def forget_job(self, job: str) -> None:
        """Delete what is recorded of a job that is no more."""
        for ending in ("json", "jsonl", "lock", "cancel"):
            (self._folder / f"{job}.{ending}").unlink(missing_ok=True)
        self.resume(job)

    def cancel(self, job: str) -> bool:
        """Ask a command that runs to end; return False if none does."""
        if (latest_run := self.settle_latest(job)) is None or latest_run.result != "running":
            return False
        self.to_cancel_path(job).touch(mode=0o600)
        return True

    def to_cancel_path(self, job: str) -> Path:
        """Return the path of the file whose presence asks a command to end."""
        return self._folder / f"{job}.cancel"

    def read_latest(self, job: str) -> JobRun | None:
        """Return the present run, or the last one."""
        try:
            return _decode_run((self._folder / f"{job}.json").read_bytes())
        except OSError:
            return None

    def settle_latest(self, job: str, *, locked_by_us: bool = False) -> JobRun | None:
        """Return the latest run.

        If it claims to be running but nobody holds the lock, record it as interrupted first.
        """
        latest_run = self.read_latest(job)
        if latest_run is None or latest_run.result != "running" or not (locked_by_us or self._is_unlocked(job)):
            return latest_run
        ended_run = replace(latest_run, result="interrupted", why="its process ended before the job")
        self._write_latest(ended_run)
        self._append_history(ended_run)
        return ended_run

    def read_history(self, job: str) -> list[JobRun]:
        """Return the runs, oldest first; of those that did nothing only the last is kept."""
        lines = _read_lines(self._folder / f"{job}.jsonl")
        return [job_run for line in lines if (job_run := _decode_run(line))][-MAX_RUNS:]

    def drop_user(self, user: str) -> None:
        """Remove a user and their results from every record; delete a run that was for them alone."""
        for path in self._folder.glob("*.json*"):
            runs = [job_run for line in path.read_bytes().splitlines() if (job_run := _decode_run(line))]
            other_runs = [run for run in runs if set(run.by_user) != {user}]
            kept_runs = [
                replace(
                    run, by_user={owner: user_result for owner, user_result in run.by_user.items() if owner != user}
                )
                for run in other_runs
            ]
            if kept_runs != runs:
                replace_file(path, b"".join(_encode_run(run) + b"\n" for run in kept_runs), sync=False)

    def list_holding(self, matches: Callable[[str], bool]) -> list[str]:
        """Return the jobs of which a recorded output, or reason, has words that match."""
        return sorted(
            path.stem
            for path in self._folder.glob("*.json")
            if any(matches(_read_words(run)) for run in (*self.read_history(path.stem), self.read_latest(path.stem)))
        )

    def drop_outputs(self, job: str, matches: Callable[[str], bool]) -> None:
        """Delete what runs of a job said, where its words match. That they ran, and how it ended, stays."""
        for path in (self._folder / f"{job}.json", self._folder / f"{job}.jsonl"):
            runs = [run for line in _read_lines(path) if (run := _decode_run(line))]
            kept_runs = [replace(run, output="", why="") if matches(_read_words(run)) else run for run in runs]
            if kept_runs != runs:
                replace_file(path, b"".join(_encode_run(run) + b"\n" for run in kept_runs))

    def list_paused(self) -> set[str]:
        """Return the jobs that the clock must not start. The owner decides this; it is not derived."""
        try:
            return set(self._paused_path.read_text().split())
        except OSError:
            return set()

    def pause(self, job: str) -> None:
        """Pause a job: the clock no longer starts it."""
        with self._change_paused() as paused_jobs:
            paused_jobs.add(job)

    def resume(self, job: str) -> bool:
        """Resume a job; return True if it was paused."""
        with self._change_paused() as paused_jobs:
            was_paused = job in paused_jobs
            paused_jobs.discard(job)
        return was_paused

    @contextlib.contextmanager
    def _change_paused(self) -> Iterator[set[str]]:
        """Yield the paused jobs, and write what became of them; nobody else writes them meanwhile."""
        make_folder(self._folder)
        with lock_file(self._folder / ".paused.lock"):
            paused_jobs = self.list_paused()
            yield paused_jobs
            replace_file(self._paused_path, "".join(f"{name}\n" for name in sorted(paused_jobs)).encode())

    def _is_unlocked(self, job: str) -> bool:
        try:
            with lock_file(self._folder / f"{job}.lock", wait_s=0):
                return True
        except Busy:
            return False

    def _write_latest(self, job_run: JobRun) -> None:
        replace_file(self._folder / f"{job_run.job}.json", _encode_run(job_run), sync=False)

    def _append_history(self, job_run: JobRun) -> None:
        """Add a run to the history; a run that did nothing is only in the latest file."""
        path = self._folder / f"{job_run.job}.jsonl"
        if job_run.result == "nothing":
            return
        append_line(path, _encode_run(job_run))
        lines = path.read_bytes().splitlines(keepends=True)
        if len(lines) > 2 * MAX_RUNS:
            replace_file(path, b"".join(lines[-MAX_RUNS:]), sync=False)


def _read_lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except OSError:
        return []


def _read_words(job_run: JobRun | None) -> str:
    return f"{job_run.why}\n{job_run.output}" if job_run else ""


def _run_work(started_run: JobRun, work: Callable[[], JobResult], now: Callable[[], datetime]) -> JobRun:
    """Run the work and return the run with its result, also if the work failed."""
    try:
        result = work()
    except (PerdureError, OSError) as error:
        why = f"{getattr(error, 'code', type(error).__name__)}: {error}"
        ended_run = replace(started_run, result="failed", why=why)
    else:
        counts, by_user = dict(result.counts), dict(result.by_user)
        ended_run = replace(started_run, result=_find_outcome(result), why=result.why, counts=counts, by_user=by_user)
        ended_run = replace(ended_run, output=result.output)
    return replace(ended_run, took_ms=round((now() - started_run.started_at).total_seconds() * 1000, 1))


def _find_outcome(result: JobResult) -> JobOutcome:
    if result.has_failed or any(user_result.result == "failed" for user_result in result.by_user.values()):
        return "failed"
    return "done" if result.did_work else "nothing"


def _encode_run(job_run: JobRun) -> bytes:
    return json.dumps({**asdict(job_run), "started_at": job_run.started_at.isoformat()}).encode()


def _decode_run(raw: bytes) -> JobRun | None:
    """Decode a run; None if the line holds none (a torn line, say)."""
    try:
        body = json.loads(raw)
        by_user = {user: UserJobResult(**fields) for user, fields in body.get("by_user", {}).items()}
        return JobRun(**{**body, "started_at": datetime.fromisoformat(body["started_at"]), "by_user": by_user})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


GRACE_S = 90  # later than this after its time, a run counts as missed

MAX_AHEAD = timedelta(hours=1)  # further in the future, a start was noted by a clock that was wrong

MissedRuns = Literal["skip", "once"]  # for missed runs: no run, or one run for all of them


def check_expression(expression: str, *, name: str) -> None:
    """Raise ConfigFault unless this is a cron expression of five fields; "" switches a job off."""
    if not expression:
        return
    try:
        if len(expression.split()) != 5:
            raise CronSimError("it needs five fields")
        CronSim(expression, datetime(2026, 1, 1))
    except CronSimError as error:
        raise ConfigFault(
            f"{name} = {expression!r} ({error}; like '*/5 * * * *', or empty to switch the job off)"
        ) from error


def find_next_time(expression: str, after_at: datetime) -> datetime | None:
    """Return the first time after `after_at`, in its time zone; None if there is none.

    >>> str(find_next_time("30 3 * * *", datetime(2026, 1, 1, 4)))
    '2026-01-02 03:30:00'
    """
    return next(CronSim(expression, after_at), None) if expression else None


def find_latest_time(expression: str, now: datetime) -> datetime | None:
    """Return the last time that is not after `now`; None if there is none.

    >>> str(find_latest_time("30 3 * * *", datetime(2026, 1, 2, 3, 30)))
    '2026-01-02 03:30:00'
    """
    inclusive = now.replace(microsecond=now.microsecond or 1)  # cronsim begins with the second itself; `+` would forget
    return next(CronSim(expression, inclusive, reverse=True), None) if expression else None  # which of two hours it is


def find_last_start(moments: Iterable[datetime], now: datetime) -> datetime:
    """Return the last of the moments at which a job began, or was first known.

    One far in the future does not count: a clock that was wrong would keep the job from running until then.
    """
    return max((at for at in moments if at - now <= MAX_AHEAD), default=now - timedelta(seconds=GRACE_S))


def is_due(expression: str, *, since: datetime, now: datetime, missed: MissedRuns) -> bool:
    """Return True if a job must run now. since: when it last began, or was first known.

    >>> is_due("0 * * * *", since=datetime(2026, 1, 1, 3, 10), now=datetime(2026, 1, 1, 6, 30), missed="once")
    True
    >>> is_due("0 * * * *", since=datetime(2026, 1, 1, 3, 10), now=datetime(2026, 1, 1, 6, 30), missed="skip")
    False
    """
    first_at = find_next_time(expression, since)
    now_s = now.timestamp()  # within one zone, datetimes are compared by the clock's hands
    if first_at is None or first_at.timestamp() > now_s:
        return False
    if missed == "once":
        return True
    latest_at = next(CronSim(expression, now, reverse=True), first_at)
    return now_s - max(first_at.timestamp(), latest_at.timestamp()) <= GRACE_S
