"""Homes for many who ask: one object for one question at a time, kept for the next of the same identity.

The loop that talks to clients never touches a home. A desk of threads does; each desk has threads and a queue of its
own, so that captures, questions and slow work never wait for one another.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from perdure.errors import NotFound, UsageError
from perdure.home import Home
from perdure.surfaces.http.faults import Refused, retry
from perdure.types import Identity

T = TypeVar("T")
Key = tuple[Identity | None, bool]
Make = Callable[[Identity | None, bool], Home]  # (whose, whether it only reads) -> a home
_MOST_IDLE = 24  # each holds a few files open


class Homes:
    """Home objects that nobody uses at the moment, by whose they are; the least recently used one goes first."""

    def __init__(self, make: Make, *, most_idle: int = _MOST_IDLE) -> None:
        self._make = make
        self._most_idle = most_idle
        self._idle: OrderedDict[Key, list[Home]] = OrderedDict()
        self._lock = threading.Lock()
        self._is_closed = False

    @contextlib.contextmanager
    def lent(self, identity: Identity | None, *, read_only: bool) -> Iterator[Home]:
        """A home of this identity (of the server's own user, without one) for the block, and for nobody else.

        One in whose use something failed that is not the question's fault is not used again.
        """
        key = (identity, read_only)
        home = self._taken(key) or self._make(identity, read_only)
        try:
            yield home
        except (Refused, UsageError, NotFound):
            self._put(key, home)
            raise
        except BaseException:
            home.close()
            raise
        self._put(key, home)

    def _taken(self, key: Key) -> Home | None:
        with self._lock:
            found = self._idle.get(key, [])
            home = found.pop() if found else None
            if not found:
                self._idle.pop(key, None)
            return home

    def _put(self, key: Key, home: Home) -> None:
        gone: list[Home] = []
        with self._lock:
            if self._is_closed:
                gone = [home]
            else:
                self._idle.setdefault(key, []).append(home)
                self._idle.move_to_end(key)
                while sum(map(len, self._idle.values())) > self._most_idle:
                    oldest, homes = next(iter(self._idle.items()))
                    gone.append(homes.pop(0))
                    if not homes:
                        del self._idle[oldest]
        for one in gone:
            one.close()

    def close(self) -> None:
        """Close those that nobody uses; those that are in use, when they come back."""
        with self._lock:
            self._is_closed = True
            gone = [home for homes in self._idle.values() for home in homes]
            self._idle.clear()
        for home in gone:
            home.close()


class Desk:
    """A few threads, and a queue of bearable length."""

    def __init__(self, name: str, *, n_threads: int, most: int) -> None:
        """most: questions that are being answered or wait."""
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix=f"perdure-http-{name}")
        self._most = most
        self._n = 0
        self._lock = threading.Lock()

    @property
    def n_waiting(self) -> int:
        """Questions that are being answered or wait."""
        return self._n

    async def ask(self, question: Callable[[], T]) -> T:
        """The answer. Raises what the question raises, and Refused (503) when too many wait."""
        return await asyncio.wrap_future(self._submitted(question))

    def begin(self, work: Callable[[], None], *, failed: Callable[[BaseException], None]) -> None:
        """Do something that nobody waits for. Raises Refused (503) when too much waits."""

        def ended(future: Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()):
                failed(error)

        self._submitted(work).add_done_callback(ended)

    def _submitted(self, question: Callable[[], T]) -> Future[T]:
        with self._lock:
            if self._n >= self._most:
                raise retry("busy", "Too many wait already. Try again in a moment.")
            self._n += 1
        future = self._pool.submit(question)
        future.add_done_callback(lambda _: self._leave())
        return future

    def _leave(self) -> None:
        with self._lock:
            self._n -= 1

    def close(self) -> None:
        """Let what is being answered come to its end."""
        self._pool.shutdown(wait=True, cancel_futures=True)
