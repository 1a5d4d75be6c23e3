"""A small simulator of discrete events: cores that share their time, pools with lanes, processes that use them.

Pure and seeded by its caller. A process is a generator; it yields what it waits for: `Wait`, `Work` on cores, or `Take`
of a place in a pool, which it gives back by `Pool.release`. Cores share their time equally among all work (as an
operating system does), so that work of s seconds on a core of its own takes longer among others. A pool serves the lane
of the smallest number first, within a lane whoever came first; nothing is interrupted.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any


class Simulation:
    """The clock and what is to happen."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def call_after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call something after so many seconds."""
        heapq.heappush(self._events, (self.now_s + delay_s, next(self._numbers), call))

    def start(self, process: Process) -> None:
        """Let a process run until it waits, and so on."""
        wanted = next(process, None)
        if wanted is not None:
            wanted.begin(self, lambda: self.start(process))

    def run(self, until_s: float) -> None:
        """Run until a time; what is not over by then is left."""
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, call = heapq.heappop(self._events)
            call()
        self.now_s = until_s


@dataclass(frozen=True)
class Wait:
    """Wait for so many seconds."""

    seconds: float

    def begin(self, simulation: Simulation, resume: Callable[[], None]) -> None:
        """Resume when they are over."""
        simulation.call_after(self.seconds, resume)


class Cores:
    """Some cores, which share their time equally among everything that runs on them."""

    def __init__(self, simulation: Simulation, n: int) -> None:
        self._simulation, self._n = simulation, n
        self._served_s = 0.0  # by each piece of work that was there from the beginning
        self._updated_s = 0.0
        self._work: list[tuple[float, int, Callable[[], None]]] = []  # (served when done, number, resume)
        self._numbers = itertools.count()
        self._version = 0
        self.busy_s = 0.0  # of all cores

    def _update(self) -> None:
        passed_s = self._simulation.now_s - self._updated_s
        if self._work:
            self._served_s += passed_s * min(1.0, self._n / len(self._work))
            self.busy_s += passed_s * min(self._n, len(self._work))
        self._updated_s = self._simulation.now_s

    def add(self, seconds: float, resume: Callable[[], None]) -> None:
        """Run work of so many seconds of one core, then resume."""
        self._update()
        heapq.heappush(self._work, (self._served_s + seconds, next(self._numbers), resume))
        self._plan()

    def _plan(self) -> None:
        self._version += 1
        if self._work:
            version, rate = self._version, min(1.0, self._n / len(self._work))
            delay_s = max(0.0, self._work[0][0] - self._served_s) / rate
            self._simulation.call_after(delay_s, lambda: self._finish(version))

    def _finish(self, version: int) -> None:
        if version == self._version:
            self._update()
            _, _, resume = heapq.heappop(self._work)
            self._plan()
            resume()


@dataclass(frozen=True)
class Work:
    """Use so many seconds of a core, in some threads at once."""

    cores: Cores
    seconds: float
    n_threads: int = 1

    def begin(self, simulation: Simulation, resume: Callable[[], None]) -> None:  # noqa: ARG002
        """Resume when every thread is done."""
        n_left = self.n_threads

        def count() -> None:
            nonlocal n_left
            n_left -= 1
            if not n_left:
                resume()

        for _ in range(self.n_threads):
            self.cores.add(self.seconds / self.n_threads, count)


class Pool:
    """Some places, each for one at a time: processes, or a lock."""

    def __init__(self, n: int) -> None:
        self._n_free = n
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []  # (lane, number, resume)
        self._numbers = itertools.count()

    def release(self) -> None:
        """Give a place back; whoever is next gets it."""
        if self._waiting:
            heapq.heappop(self._waiting)[2]()
        else:
            self._n_free += 1

    def add(self, lane: int, resume: Callable[[], None]) -> None:
        """Resume with a place, at once if one is free."""
        if self._n_free:
            self._n_free -= 1
            resume()
        else:
            heapq.heappush(self._waiting, (lane, next(self._numbers), resume))

    def count_waiting(self) -> int:
        """Return how many wait."""
        return len(self._waiting)


@dataclass(frozen=True)
class Take:
    """Take a place of a pool. lane: the smallest goes first."""

    pool: Pool
    lane: int = 0

    def begin(self, simulation: Simulation, resume: Callable[[], None]) -> None:  # noqa: ARG002
        """Resume with the place."""
        self.pool.add(self.lane, resume)


Process = Generator[Wait | Work | Take, Any, None]
