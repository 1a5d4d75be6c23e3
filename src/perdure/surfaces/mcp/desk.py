"""A home behind an asynchronous edge: a few threads, each with a home of its own, and a question is asked in one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from perdure.home import Home

T = TypeVar("T")


class Asked(Protocol):
    """Where a question to a home is asked."""

    async def ask(self, question: Callable[[Home], T]) -> T:
        """The answer of a function that is given the home. Raises what that raises."""


class Desk:
    """Answers questions to a home without holding up the loop that asks."""

    def __init__(self, make: Callable[[], Home], *, n_threads: int = 2) -> None:
        """make: a home for one thread."""
        self._make = make
        self._own = threading.local()
        self._homes: list[Home] = []
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix="perdure-mcp")
        self._waiting = CapacityLimiter(64)

    async def ask(self, question: Callable[[Home], T]) -> T:
        """The answer of a function that is given the home. Raises what that raises."""
        future = self._pool.submit(lambda: question(self._home()))
        return await anyio.to_thread.run_sync(future.result, limiter=self._waiting, abandon_on_cancel=True)

    def _home(self) -> Home:
        if not hasattr(self._own, "home"):
            self._own.home = self._make()
            self._homes.append(self._own.home)
        home: Home = self._own.home
        return home

    def close(self) -> None:
        """Wait for what is being answered, and close the homes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for home in self._homes:
            home.close()
