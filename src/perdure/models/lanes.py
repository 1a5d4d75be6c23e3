"""Three lanes to one embedder: a query overtakes fresh text, and fresh text overtakes bulk; a lane is
first in, first out.

One thread embeds. Work is cut into items of at most `item_chars`, so that a query waits for at most one
item: the one in flight finishes first. Bulk runs in one process of a home at a time (a file lock).
While another process holds the lock, this process's bulk lane waits and its other lanes continue.
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
from msgspec import Struct

from perdure.errors import ReadOnlyHome
from perdure.models.embedder import Embedder, ModelTag, TextKind, Vectors

Lane = Literal["query", "ingest", "bulk"]
LANES: tuple[Lane, ...] = ("query", "ingest", "bulk")

LOCK_POLL_S = 0.1  # how often a waiting bulk lane tries the lock


class EmbedResult(Struct, frozen=True):
    """The vectors of one submission, with its waiting times."""

    vectors: Vectors
    depth_before: Mapping[Lane, int]  # texts of each lane that waited or were in flight at submission
    queued_ms: float  # from submission to the start of its first item
    compute_ms: float  # time of its own items
    total_ms: float  # from submission to its last vector


@dataclass(slots=True)
class _EmbedJob:
    """One submission and its progress."""

    texts: Sequence[str]
    kind: TextKind
    lane: Lane
    submitted_s: float
    depth_before: Mapping[Lane, int]
    future: Future[EmbedResult] = field(default_factory=Future)
    rows: list[Vectors] = field(default_factory=list)
    n_done: int = 0  # texts that have a vector
    started_s: float | None = None
    compute_s: float = 0.0

    def select_next_texts(self, max_chars: int) -> Sequence[str]:
        """Return the texts of the next item: as many as fit, at least one."""
        end, n_chars = self.n_done, 0
        while end < len(self.texts) and (end == self.n_done or n_chars + len(self.texts[end]) <= max_chars):
            n_chars += len(self.texts[end])
            end += 1
        return self.texts[self.n_done : end]


class EmbeddingLanes:
    """The queue and its thread. Any thread may submit. Close it at the end; texts that still wait are then
    cancelled.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        bulk_lock_path: Path | None = None,
        item_chars: int,
        poll_s: float = LOCK_POLL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Build the lanes; the thread starts with the first submission.

        item_chars: text of one item; `choose_embedder` knows how much suits an embedder. bulk_lock_path: the
        lock file by which processes take turns with bulk; None for a home that no other process uses.
        """
        self.embedder = embedder
        self._bulk_lock = BulkLock(bulk_lock_path)
        self._item_chars = item_chars
        self._poll_s = poll_s
        self._clock = clock
        self._jobs: dict[Lane, deque[_EmbedJob]] = {lane: deque() for lane in LANES}
        self._condition = threading.Condition()
        self._is_closed = False
        self._n_bulk_pauses = 0  # open `pause_bulk` contexts: no bulk item begins meanwhile
        self._thread: threading.Thread | None = None

    def submit(self, texts: Sequence[str], *, kind: TextKind, lane: Lane) -> Future[EmbedResult]:
        """Queue texts; the future holds their vectors, or the embedder's error. It can be cancelled until it starts."""
        with self._condition:
            if self._is_closed:
                raise RuntimeError("these lanes are closed")
            if lane == "bulk":
                self._bulk_lock.open()
            job = _EmbedJob(tuple(texts), kind, lane, self._clock(), self.count_waiting_texts())
            self._jobs[lane].append(job)
            self._start_thread()
            self._condition.notify_all()
        return job.future

    @contextmanager
    def pause_bulk(self) -> Iterator[None]:
        """Begin no bulk item inside this context, because a request needs the processor. The one in flight finishes."""
        with self._condition:
            self._n_bulk_pauses += 1
        try:
            yield
        finally:
            with self._condition:
                self._n_bulk_pauses -= 1
                self._condition.notify_all()

    def to_embedder(self, lane: Lane) -> LaneEmbedder:
        """Return one lane as an embedder, for code that only wants vectors."""
        return LaneEmbedder(self, lane)

    def count_waiting_texts(self) -> dict[Lane, int]:
        """Return the number of texts in each lane that wait or are in flight."""
        with self._condition:
            return {lane: sum(len(job.texts) - job.n_done for job in jobs) for lane, jobs in self._jobs.items()}

    def close(self) -> None:
        """Let the item in flight finish, and cancel the rest."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()
        for jobs in self._jobs.values():
            for job in jobs:
                job.future.cancel()
                if job.future.running():
                    job.future.set_exception(RuntimeError("closed before it was done"))
            jobs.clear()
        self._bulk_lock.close()

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_jobs, name="perdure-embed", daemon=True)
            self._thread.start()

    def _run_jobs(self) -> None:
        while (job := self._wait_for_job()) is not None:
            with _ErrorDelivery(job):
                self._embed_item(job)
            self._finish_job(job)

    def _wait_for_job(self) -> _EmbedJob | None:
        """Wait for the job of the next item; return None when the lanes are closed."""
        with self._condition:
            while not self._is_closed:
                waiting_lanes = [lane for lane in LANES if self._jobs[lane]]
                if waiting_lanes and (
                    waiting_lanes[0] != "bulk" or (not self._n_bulk_pauses and self._bulk_lock.try_acquire())
                ):
                    return self._jobs[waiting_lanes[0]][0]
                self._condition.wait(self._poll_s if waiting_lanes else None)
        return None

    def _embed_item(self, job: _EmbedJob) -> None:
        """Embed one item of a job; after the last item, set the job's result."""
        if job.started_s is None:
            if not job.future.set_running_or_notify_cancel():
                return
            job.started_s = self._clock()
        item = job.select_next_texts(self._item_chars)
        before_s = self._clock()
        job.rows.append(self.embedder.embed(item, job.kind))
        now_s = self._clock()
        job.compute_s += now_s - before_s
        with self._condition:
            job.n_done += len(item)
        if job.n_done == len(job.texts):
            job.future.set_result(self._make_result(job, job.started_s, now_s))

    def _make_result(self, job: _EmbedJob, started_s: float, now_s: float) -> EmbedResult:
        empty = np.zeros((0, self.embedder.tag.dimension), np.float32)
        return EmbedResult(
            vectors=np.concatenate(job.rows) if job.texts else empty,
            depth_before=job.depth_before,
            queued_ms=(started_s - job.submitted_s) * 1000,
            compute_ms=job.compute_s * 1000,
            total_ms=(now_s - job.submitted_s) * 1000,
        )

    def _finish_job(self, job: _EmbedJob) -> None:
        """Remove a finished, failed or cancelled job from its lane; release the bulk lock when the bulk lane is
        empty.
        """
        with self._condition:
            if job.future.done():
                self._jobs[job.lane].popleft()
            if not self._jobs["bulk"]:
                self._bulk_lock.release()


class LaneEmbedder:
    """An embedder whose texts wait in a lane. Unlike other embedders, several threads may use it."""

    def __init__(self, lanes: EmbeddingLanes, lane: Lane) -> None:
        """Bind a lane; see `EmbeddingLanes.to_embedder`."""
        self._lanes = lanes
        self._lane: Lane = lane

    @property
    def tag(self) -> ModelTag:
        """The tag of the embedder behind the lanes."""
        return self._lanes.embedder.tag

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """Return the vectors, after the texts that are ahead in the queue; see `Embedder.embed`."""
        return self._lanes.submit(texts, kind=kind, lane=self._lane).result().vectors


class _ErrorDelivery:
    """Gives an error raised inside it to the job's future: the thread must survive every error."""

    def __init__(self, job: _EmbedJob) -> None:
        self._job = job

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is not None:
            self._job.future.set_exception(error)
        return error is not None


class BulkLock:
    """A lock between processes, taken without waiting; the kernel frees it when its holder dies."""

    def __init__(self, path: Path | None) -> None:
        """Store the path. path: the lock file, in an existing folder; None for a lock that is always free."""
        self._path = path
        self._descriptor: int | None = None

    def open(self) -> None:
        """Open the lock file, if it is not open yet. Raises ReadOnlyHome."""
        if self._path is not None and self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise ReadOnlyHome(str(self._path)) from error

    def try_acquire(self) -> bool:
        """Try to take the lock; return True if this process has it now."""
        if self._descriptor is None:
            return self._path is None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Release the lock for other processes."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock file, which also releases the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
