"""A thread with a home of its own: functions run in it one after the other, while the event loop goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from perdure.home import Home

Result = TypeVar("Result")


class HomeThread:
    """Runs functions with a home that is opened at the first of them. Close it."""

    def __init__(self, open_home: Callable[[], Home], name: str) -> None:
        self._open_home = open_home
        self._home: Home | None = None
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[Home], Result]) -> Future[Result]:
        """Run a function after all that were submitted before. It runs to its end, whoever waits for it."""
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                future.set_result(function(self._get_home()))
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
                future.set_exception(error)

        self._jobs.put(work)
        return future

    def close(self) -> None:
        """Close the home after what was submitted; nothing waits for that."""
        self._jobs.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait until the home is closed; False if that takes longer."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _get_home(self) -> Home:
        if self._home is None:
            self._home = self._open_home()
        return self._home

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        if self._home is not None:
            self._home.close()
