"""What became of the runs of jobs: `run/jobs/<name>.json` for the latest, `<name>.jsonl` for those before, bounded.

Derived: losing it costs the history, and missed runs are then not known to be missed. A job holds the lock of its name
while it runs, across processes; the kernel frees it, so a run that was killed shows as interrupted, never as running.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from perdure.capture.files import append_line, locked, make_folder
from perdure.capture.files import replace as put
from perdure.errors import Busy, PerdureError

KEPT = 200  # runs of each job in its history
Result = Literal["running", "done", "nothing", "failed", "interrupted", "busy"]


@dataclass(frozen=True)
class Share:
    """What a run came to for one of the home's users. It is for them alone."""

    result: Result
    why: str = ""
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """What a job says it did."""

    why: str  # in words
    counts: Mapping[str, float] = field(default_factory=dict)
    did: bool = True  # False: there was nothing to do
    by_user: Mapping[str, Share] = field(default_factory=dict)  # of a job that is done for each user


def summed(by_user: Mapping[str, Share]) -> Done:
    """What a job that was done for each user came to for all of them, naming none.

    >>> summed({"ada": Share("done", "2 made", {"new": 2}), "eve": Share("nothing")}).why
    '2 users: 1 done, 1 nothing'
    """
    counts: dict[str, float] = defaultdict(float)
    for share in by_user.values():
        for name, n in share.counts.items():
            counts[name] += n
    results = Counter(share.result for share in by_user.values())
    said = ", ".join(f"{n} {result}" for result, n in sorted(results.items()))
    why = next(iter(by_user.values())).why if len(by_user) == 1 else f"{len(by_user)} users: {said}"
    return Done(why, dict(counts), did=results["done"] > 0, by_user=by_user)


@dataclass(frozen=True)
class Envelope:
    """What happened in one run, and why."""

    job: str
    started_at: datetime
    trigger: str  # "clock" or "person"
    result: Result = "running"
    why: str = ""
    counts: Mapping[str, float] = field(default_factory=dict)
    took_ms: float = 0.0
    pid: int = 0
    by_user: Mapping[str, Share] = field(default_factory=dict)  # empty for a job of the whole home

    def seen_by(self, user: str) -> Envelope:
        """The run as one user may see it: of a job that is done for each, only what it came to for them."""
        if not self.by_user:
            return self
        own = self.by_user.get(user, Share("nothing"))
        return replace(self, result=own.result, why=own.why, counts=own.counts, by_user={})


class Book:
    """The records of one home's jobs. Any process and thread may write."""

    def __init__(self, home: Path) -> None:
        """Nothing is made before the first run."""
        self._folder = home / "run" / "jobs"
        self._paused = home / "paused-jobs"

    def run(self, job: str, work: Callable[[], Done], *, trigger: str, now: Callable[[], datetime]) -> Envelope:
        """Run a job and record what became of it; a run while another one goes on is only reported, as busy."""
        make_folder(self._folder)
        try:
            with locked(self._folder / f"{job}.lock", wait_s=0.2):  # somebody may only be looking
                self.settle(job, locked_by_us=True)
                begun = Envelope(job, now(), trigger, pid=os.getpid())
                self._write(begun)
                ended = _worked(begun, work, now)
                self._write(ended)
                self._keep(ended)
                return ended
        except Busy:
            return Envelope(job, now(), trigger, "busy", "it is running already")

    def latest(self, job: str) -> Envelope | None:
        """The run that is going on, or the last one."""
        try:
            return _decoded((self._folder / f"{job}.json").read_bytes())
        except OSError:
            return None

    def settle(self, job: str, *, locked_by_us: bool = False) -> Envelope | None:
        """The latest run. One that claims to be running while nobody holds the lock was interrupted: now it says so."""
        found = self.latest(job)
        if found is None or found.result != "running" or not (locked_by_us or self._is_free(job)):
            return found
        ended = replace(found, result="interrupted", why="its process ended before it did")
        self._write(ended)
        self._keep(ended)
        return ended

    def history(self, job: str) -> list[Envelope]:
        """Its runs, oldest first; of those that did nothing only the last."""
        try:
            raw = (self._folder / f"{job}.jsonl").read_bytes()
        except OSError:
            return []
        return [found for line in raw.splitlines() if (found := _decoded(line))][-KEPT:]

    def drop(self, user: str) -> None:
        """Take a user, and what was done for them, out of every record; one of them alone goes as a whole."""
        for path in self._folder.glob("*.json*"):
            found = [envelope for line in path.read_bytes().splitlines() if (envelope := _decoded(line))]
            others = [item for item in found if set(item.by_user) != {user}]
            kept = [replace(item, by_user={u: s for u, s in item.by_user.items() if u != user}) for item in others]
            if kept != found:
                put(path, b"".join(_encoded(item) + b"\n" for item in kept), sync=False)

    def paused(self) -> set[str]:
        """Jobs that the clock leaves alone. This is the owner's word, and not derived."""
        try:
            return set(self._paused.read_text().split())
        except OSError:
            return set()

    def pause(self, job: str) -> None:
        """Leave it to whoever runs it by hand."""
        put(self._paused, "".join(f"{name}\n" for name in sorted({*self.paused(), job})).encode())

    def resume(self, job: str) -> bool:
        """Let the clock run it again; whether it had been paused."""
        left = self.paused() - {job}
        was = job in self.paused()
        put(self._paused, "".join(f"{name}\n" for name in sorted(left)).encode())
        return was

    def _is_free(self, job: str) -> bool:
        try:
            with locked(self._folder / f"{job}.lock", wait_s=0):
                return True
        except Busy:
            return False

    def _write(self, envelope: Envelope) -> None:
        put(self._folder / f"{envelope.job}.json", _encoded(envelope), sync=False)

    def _keep(self, envelope: Envelope) -> None:
        """Add to the history; one that did nothing is already in `latest`."""
        path = self._folder / f"{envelope.job}.jsonl"
        if envelope.result == "nothing":
            return
        append_line(path, _encoded(envelope))
        lines = path.read_bytes().splitlines(keepends=True)
        if len(lines) > 2 * KEPT:
            put(path, b"".join(lines[-KEPT:]), sync=False)


def _worked(begun: Envelope, work: Callable[[], Done], now: Callable[[], datetime]) -> Envelope:
    """The envelope of a run that ended, however it did."""
    try:
        done = work()
    except (PerdureError, OSError) as error:
        why = f"{getattr(error, 'code', type(error).__name__)}: {error}"
        ended = replace(begun, result="failed", why=why)
    else:
        counts, by_user = dict(done.counts), dict(done.by_user)
        ended = replace(begun, result=_result(done), why=done.why, counts=counts, by_user=by_user)
    return replace(ended, took_ms=round((now() - begun.started_at).total_seconds() * 1000, 1))


def _result(done: Done) -> Result:
    if any(share.result == "failed" for share in done.by_user.values()):
        return "failed"
    return "done" if done.did else "nothing"


def _encoded(envelope: Envelope) -> bytes:
    return json.dumps({**asdict(envelope), "started_at": envelope.started_at.isoformat()}).encode()


def _decoded(raw: bytes) -> Envelope | None:
    """An envelope; None for what is none (a torn line, say)."""
    try:
        body = json.loads(raw)
        by_user = {user: Share(**share) for user, share in body.get("by_user", {}).items()}
        return Envelope(**{**body, "started_at": datetime.fromisoformat(body["started_at"]), "by_user": by_user})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
