"""A home for callers of any thread or event loop: one thread of its own carries out all calls, in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from perdure.errors import ReadOnlyHome, UsageError
from perdure.home import Home
from perdure.state.store import StateFile

Answer = TypeVar("Answer")
Work = Callable[[Home, StateFile], Answer]  # what is to be done with a home and the state file of its user


class HomeCalls:
    """The thread, with a clone of a home that is made at its first use. Close it before the home."""

    def __init__(self, home: Home) -> None:
        """Raises UsageError for a home on another machine, ReadOnlyHome."""
        if not isinstance(home, Home):
            raise UsageError("this needs a home on this machine, from perdure.open()")
        if not home.writable:
            raise ReadOnlyHome(str(home.path))
        self._home = home
        self._clone: Home | None = None
        self._state: StateFile | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="perdure")

    def run(self, work: Work[Answer]) -> Answer:
        """Carry out `work` and return its answer."""
        return self._submit(work).result()

    async def run_async(self, work: Work[Answer]) -> Answer:
        """Carry out `work` and return its answer; the event loop goes on."""
        return await asyncio.wrap_future(self._submit(work))

    def _submit(self, work: Work[Answer]) -> Future[Answer]:
        return self._thread.submit(self._carry_out, work)

    def _carry_out(self, work: Work[Answer]) -> Answer:
        if self._clone is None or self._state is None:
            self._state = StateFile(self._home.path, self._home.user)
            self._clone = self._home.clone_for_thread()
        return work(self._clone, self._state)

    def close(self) -> None:
        """Wait for what is under way and release every file. A second call does nothing."""
        if self._clone is not None and self._state is not None:
            self._thread.submit(self._clone.close).result()
            self._thread.submit(self._state.close).result()
            self._clone = self._state = None
        self._thread.shutdown()


class HomeCaller:
    """Whatever calls a home through `HomeCalls`, and is closed with it."""

    _home: HomeCalls

    def close(self) -> None:
        """Release every file. Nothing is lost by not calling it."""
        self._home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
