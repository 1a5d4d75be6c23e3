"""Share between requests what is scarce: homes, threads, disk flushes, request rates and health probes.

The event loop never touches a home; the threads of a WorkerPool do. Each pool has threads and a queue of
its own, so that captures, questions and slow work never wait for one another. A home serves one question
at a time, and is kept for the next question of the same identity. Captures that wait at the same time
share one flush of the disk. Token buckets limit the requests per minute; they are pure, with the clock as
a parameter.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from perdure.archive.archive import Delta, StoreResult
from perdure.errors import IdentityFault, NotFound, PerdureError, UsageError
from perdure.home import Home
from perdure.service.health import run_probe
from perdure.surfaces.http.responses import HttpRefusal, refuse_for_now
from perdure.types import Identity

T = TypeVar("T")
HomeKey = tuple[Identity | None, bool]
MakeHome = Callable[[Identity | None, bool], Home]  # (identity, read_only) -> a home
_MAX_IDLE_HOMES = 24  # each holds a few files open


class HomePool:
    """Home objects that are not in use, by owner; the least recently used one is closed first."""

    def __init__(self, make_home: MakeHome, *, max_idle: int = _MAX_IDLE_HOMES) -> None:
        self._make_home = make_home
        self._max_idle = max_idle
        self._idle: OrderedDict[HomeKey, list[Home]] = OrderedDict()
        self._lock = threading.Lock()
        self._is_closed = False

    @contextlib.contextmanager
    def lend(self, identity: Identity | None, *, read_only: bool) -> Iterator[Home]:
        """Lend a home of this identity for the block, to nobody else; without an identity, of the server's own user.

        If the block fails for a reason that is not the question's fault, the home is closed and not used again.
        """
        key = (identity, read_only)
        home = self._take_idle(key) or self._make_home(identity, read_only)
        home.refresh_live_settings()
        try:
            yield home
        except (HttpRefusal, UsageError, NotFound, IdentityFault):
            self._give_back(key, home)
            raise
        except BaseException:
            home.close()
            raise
        self._give_back(key, home)

    def _take_idle(self, key: HomeKey) -> Home | None:
        with self._lock:
            idle_homes = self._idle.get(key, [])
            home = idle_homes.pop() if idle_homes else None
            if not idle_homes:
                self._idle.pop(key, None)
            return home

    def _give_back(self, key: HomeKey, home: Home) -> None:
        surplus: list[Home] = []
        with self._lock:
            if self._is_closed:
                surplus = [home]
            else:
                self._idle.setdefault(key, []).append(home)
                self._idle.move_to_end(key)
                while sum(map(len, self._idle.values())) > self._max_idle:
                    oldest_key, homes = next(iter(self._idle.items()))
                    surplus.append(homes.pop(0))
                    if not homes:
                        del self._idle[oldest_key]
        for surplus_home in surplus:
            surplus_home.close()

    def close(self) -> None:
        """Close the idle homes now, and homes in use when they are given back."""
        with self._lock:
            self._is_closed = True
            idle_homes = [home for homes in self._idle.values() for home in homes]
            self._idle.clear()
        for home in idle_homes:
            home.close()


class WorkerPool:
    """A few threads with a queue of limited length."""

    def __init__(self, name: str, *, n_threads: int, max_waiting: int) -> None:
        """max_waiting: tasks that run or wait."""
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix=f"perdure-http-{name}")
        self._max_waiting = max_waiting
        self._n_waiting = 0
        self._lock = threading.Lock()

    @property
    def n_waiting(self) -> int:
        """The number of tasks that run or wait."""
        return self._n_waiting

    async def run_task(self, task: Callable[[], T]) -> T:
        """Run a task and return its result. Raises its errors, and HttpRefusal (503) when too many tasks wait."""
        return await asyncio.wrap_future(self._submit(task))

    def start_task(self, task: Callable[[], None], *, on_error: Callable[[BaseException], None]) -> None:
        """Start a task whose result nobody waits for. Raises HttpRefusal (503) when too many tasks wait."""

        def report_failure(future: Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()):
                on_error(error)

        self._submit(task).add_done_callback(report_failure)

    def _submit(self, task: Callable[[], T]) -> Future[T]:
        with self._lock:
            if self._n_waiting >= self._max_waiting:
                raise refuse_for_now("busy", "Too many requests wait already. Try again in a moment.")
            self._n_waiting += 1
        future = self._threads.submit(task)
        future.add_done_callback(lambda _: self._count_down())
        return future

    def _count_down(self) -> None:
        with self._lock:
            self._n_waiting -= 1

    def close(self) -> None:
        """Let the running tasks finish; cancel those that wait."""
        self._threads.shutdown(wait=True, cancel_futures=True)


_MAX_BATCH_BYTES = 64 * 1024 * 1024  # of the captures in one batch
StoreDeltas = Callable[[Sequence[Delta]], list[StoreResult]]
WaitingCapture = tuple[Delta, Future[StoreResult]]


class CaptureBatcher:
    """Makes captures that wait at the same time durable together, with one flush of the disk.

    Each capture gets its own answer, only after its bytes are durable. The first thread that comes does the
    work for those that came meanwhile. Any thread may call it.
    """

    def __init__(self) -> None:
        self._queue: list[WaitingCapture] = []
        self._queue_lock = threading.Lock()
        self._store_lock = threading.Lock()

    def store_delta(self, delta: Delta, store: StoreDeltas) -> StoreResult:
        """Store one delta and return the archive's answer. store: makes several deltas durable; its errors are
        raised.
        """
        result: Future[StoreResult] = Future()
        with self._queue_lock:
            self._queue.append((delta, result))
        with self._store_lock:
            while not result.done():
                _store_batch(self._take_batch(), store)
        return result.result()

    def _take_batch(self) -> list[WaitingCapture]:
        """Take the first waiting captures, up to the size of a batch.

        Of one source only one capture is taken, so that their order cannot matter.
        """
        with self._queue_lock:
            batch: list[WaitingCapture] = []
            rest: list[WaitingCapture] = []
            n_bytes, sources = 0, set()
            for delta, result in self._queue:
                source = (delta.user, delta.origin.runtime, delta.origin.session)
                n_bytes += len(delta.data)
                fits = not batch or (n_bytes <= _MAX_BATCH_BYTES and source not in sources)
                (batch if fits else rest).append((delta, result))
                sources.add(source)
            self._queue = rest
        return batch


def _store_batch(batch: Sequence[WaitingCapture], store: StoreDeltas) -> None:
    """Store a batch; if it is refused, store each capture alone, so that only the bad one gets the error."""
    try:
        for (_, result), store_result in zip(batch, store([delta for delta, _ in batch]), strict=True):
            result.set_result(store_result)
    except Exception as error:  # noqa: BLE001 - raised in the thread that waits for the result
        if len(batch) == 1:
            batch[0][1].set_exception(error)
            return
        for waiting_capture in batch:
            _store_batch([waiting_capture], store)


_MAX_BUCKETS = 10_000  # names that are remembered; the least recent one is dropped first


class TokenBuckets:
    """A token bucket for each name, full at first. Not for several threads."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._tokens_left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # name -> (tokens, at)

    def take_token(self, name: str, now_s: float) -> float:
        """Take a token; return 0 if there was one, else the seconds until there is one.

        >>> few = TokenBuckets(2)
        >>> [few.take_token(name, now_s) for name, now_s in (("a", 0), ("a", 0), ("a", 0), ("b", 0), ("a", 30))]
        [0.0, 0.0, 30.0, 0.0, 0.0]
        """
        rate = self.per_minute / 60
        tokens, filled_at_s = self._tokens_left.get(name, (float(self.per_minute), now_s))
        tokens = min(float(self.per_minute), tokens + max(0.0, now_s - filled_at_s) * rate)
        has_token = tokens >= 1
        self._tokens_left[name] = (tokens - 1 if has_token else tokens, now_s)
        self._tokens_left.move_to_end(name)
        if len(self._tokens_left) > _MAX_BUCKETS:
            self._tokens_left.popitem(last=False)
        return 0.0 if has_token else (1 - tokens) / rate

    def give_back(self, name: str) -> None:
        """Give back a token that was taken.

        >>> few = TokenBuckets(1)
        >>> few.take_token("a", 0), few.give_back("a"), few.take_token("a", 0)
        (0.0, None, 0.0)
        """
        tokens, filled_at_s = self._tokens_left.get(name, (float(self.per_minute), 0.0))
        self._tokens_left[name] = (min(float(self.per_minute), tokens + 1), filled_at_s)


PROBE_FRESH_S = 5.0  # a result is reused for this long


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one health probe."""

    problems: tuple[str, ...]
    took_ms: float
    checked_at: datetime


class HealthProbe:
    """Probes the data path, at most once in a few seconds.

    Any thread may ask; concurrent callers wait for one probe.
    """

    def __init__(
        self, *, now_s: Callable[[], float] = time.monotonic, probe: Callable[[Home], float] = run_probe
    ) -> None:
        self._now_s = now_s
        self._probe = probe
        self._lock = threading.Lock()
        self._last_result: tuple[float, ProbeResult] | None = None

    def check_health(self, home: Home) -> ProbeResult:
        """Return the last result while it is fresh, else the result of a new probe."""
        with self._lock:
            if self._last_result is None or self._now_s() - self._last_result[0] >= PROBE_FRESH_S:
                result = self._probe_home(home)
                self._last_result = (self._now_s(), result)
            return self._last_result[1]

    def _probe_home(self, home: Home) -> ProbeResult:
        started_s, problems = time.perf_counter(), []
        try:
            self._probe(home)
        except (PerdureError, OSError) as error:
            problems.append(f"the data path fails ({getattr(error, 'code', type(error).__name__)})")
        return ProbeResult(tuple(problems), (time.perf_counter() - started_s) * 1000, datetime.now(UTC))
