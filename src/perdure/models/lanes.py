"""Three lanes to one embedder: a query overtakes fresh text, fresh text overtakes bulk; in a lane, first is first.

One thread embeds. Work is cut into items of at most `item_chars`, so that a query waits for one item at most: the one
in flight finishes first. Bulk runs in one process of a home at a time (a file lock); while another process holds the
turn, this one's bulk waits and its other lanes go on.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np

from perdure.errors import ReadOnlyHome
from perdure.models.embedder import Embedder, Kind, ModelTag
from perdure.models.vectors import Vectors

Lane = Literal["query", "ingest", "bulk"]
LANES: tuple[Lane, ...] = ("query", "ingest", "bulk")

TURN_POLL_S = 0.1  # how often a waiting bulk lane looks whether the other process is done


@dataclass(frozen=True, slots=True)
class Answer:
    """Vectors, and what they waited for."""

    vectors: Vectors
    depth_before: Mapping[Lane, int]  # texts of each lane that waited or were in flight when this was submitted
    queued_ms: float  # from being submitted to its first item's start
    compute_ms: float  # of its own items
    total_ms: float  # from being submitted to its last vector


@dataclass(slots=True)
class _Job:
    """One submission, and how far it has come."""

    texts: Sequence[str]
    kind: Kind
    lane: Lane
    submitted_s: float
    depth_before: Mapping[Lane, int]
    answer: Future[Answer] = field(default_factory=Future)
    rows: list[Vectors] = field(default_factory=list)
    n_done: int = 0  # texts that have their vector
    started_s: float | None = None
    compute_s: float = 0.0

    def next_texts(self, most_chars: int) -> Sequence[str]:
        """The next item: as many texts as fit, at least one."""
        end, n_chars = self.n_done, 0
        while end < len(self.texts) and (end == self.n_done or n_chars + len(self.texts[end]) <= most_chars):
            n_chars += len(self.texts[end])
            end += 1
        return self.texts[self.n_done : end]


class Lanes:
    """The queue and its thread. Any thread may submit; close it, or what waits is lost."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        turn: Path | None = None,
        item_chars: int,
        poll_s: float = TURN_POLL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """item_chars: text of one item; `choose` knows how much suits an embedder.

        turn: the lock file that processes take turns by for bulk; None for a home that no other process uses.
        """
        self.embedder = embedder
        self._turn = Turn(turn)
        self._item_chars = item_chars
        self._poll_s = poll_s
        self._clock = clock
        self._jobs: dict[Lane, deque[_Job]] = {lane: deque() for lane in LANES}
        self._changed = threading.Condition()
        self._closed = False
        self._n_holding = 0  # answers being made, while which no bulk item begins
        self._thread: threading.Thread | None = None

    def submit(self, texts: Sequence[str], *, kind: Kind, lane: Lane) -> Future[Answer]:
        """Queue texts; the future holds their vectors, or the embedder's error. Cancelling works until it starts."""
        with self._changed:
            if self._closed:
                raise RuntimeError("these lanes are closed")
            if lane == "bulk":
                self._turn.open()
            job = _Job(tuple(texts), kind, lane, self._clock(), self.depth())
            self._jobs[lane].append(job)
            self._start()
            self._changed.notify_all()
        return job.answer

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Begin no bulk item for so long: what is being answered needs the processor. The one in flight finishes."""
        with self._changed:
            self._n_holding += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_holding -= 1
                self._changed.notify_all()

    def through(self, lane: Lane) -> Through:
        """One lane as an embedder, for code that only wants vectors."""
        return Through(self, lane)

    def depth(self) -> dict[Lane, int]:
        """Texts of each lane that wait or are in flight."""
        with self._changed:
            return {lane: sum(len(job.texts) - job.n_done for job in jobs) for lane, jobs in self._jobs.items()}

    def close(self) -> None:
        """Let the item in flight finish, cancel the rest."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        for jobs in self._jobs.values():
            for job in jobs:
                job.answer.cancel()
                if job.answer.running():
                    job.answer.set_exception(RuntimeError("closed before it was done"))
            jobs.clear()
        self._turn.close()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="perdure-embed", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            with _Delivery(job):
                self._step(job)
            self._settle(job)

    def _next(self) -> _Job | None:
        """Wait for the job whose item is next; None when closed."""
        with self._changed:
            while not self._closed:
                waiting = [lane for lane in LANES if self._jobs[lane]]
                if waiting and (waiting[0] != "bulk" or (not self._n_holding and self._turn.take())):
                    return self._jobs[waiting[0]][0]
                self._changed.wait(self._poll_s if waiting else None)
        return None

    def _step(self, job: _Job) -> None:
        """One item of a job; with the last one, its answer."""
        if job.started_s is None:
            if not job.answer.set_running_or_notify_cancel():
                return
            job.started_s = self._clock()
        item = job.next_texts(self._item_chars)
        before_s = self._clock()
        job.rows.append(self.embedder.embed(item, job.kind))
        now_s = self._clock()
        job.compute_s += now_s - before_s
        with self._changed:
            job.n_done += len(item)
        if job.n_done == len(job.texts):
            job.answer.set_result(self._answer(job, job.started_s, now_s))

    def _answer(self, job: _Job, started_s: float, now_s: float) -> Answer:
        none = np.zeros((0, self.embedder.tag.dimension), np.float32)
        return Answer(
            vectors=np.concatenate(job.rows) if job.texts else none,
            depth_before=job.depth_before,
            queued_ms=(started_s - job.submitted_s) * 1000,
            compute_ms=job.compute_s * 1000,
            total_ms=(now_s - job.submitted_s) * 1000,
        )

    def _settle(self, job: _Job) -> None:
        """Take a finished, failed or cancelled job off its lane; hand the turn on when bulk is empty."""
        with self._changed:
            if job.answer.done():
                self._jobs[job.lane].popleft()
            if not self._jobs["bulk"]:
                self._turn.give_back()


class Through:
    """An embedder whose texts wait in a lane. Unlike others, it may be used from several threads."""

    def __init__(self, lanes: Lanes, lane: Lane) -> None:
        """See `Lanes.through`."""
        self._lanes = lanes
        self._lane: Lane = lane

    @property
    def tag(self) -> ModelTag:
        """That of the embedder behind the lanes."""
        return self._lanes.embedder.tag

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:
        """As the socket says, after what comes first."""
        return self._lanes.submit(texts, kind=kind, lane=self._lane).result().vectors


class _Delivery:
    """Whatever is raised inside goes to who waits for the job: the thread must outlive every error."""

    def __init__(self, job: _Job) -> None:
        self._job = job

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if error is not None:
            self._job.answer.set_exception(error)
        return error is not None


class Turn:
    """A lock between processes that is asked for without waiting; the kernel frees it when its holder dies."""

    def __init__(self, path: Path | None) -> None:
        """path: the lock file, in a folder that exists; None for a turn that is always free."""
        self._path = path
        self._descriptor: int | None = None

    def open(self) -> None:
        """Open the lock file, if that has not been done. Raises ReadOnlyHome."""
        if self._path is not None and self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise ReadOnlyHome(str(self._path)) from error

    def take(self) -> bool:
        """Whether it is ours now."""
        if self._descriptor is None:
            return self._path is None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def give_back(self) -> None:
        """Let others have it."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Release it with its file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
