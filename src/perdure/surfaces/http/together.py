"""Captures that wait at the same time are made durable together: one flush of the disk for all of them.

Each gets an answer of its own, and only after its bytes are durable. Whoever comes first does the work for those who
came meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from perdure.archive.archive import Answer, Delta

_MOST_BYTES = 64 * 1024 * 1024  # that are made durable at once
Store = Callable[[Sequence[Delta]], list[Answer]]
Waiting = tuple[Delta, Future[Answer]]


class Together:
    """Those who wait. Any thread may come."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []
        self._listed = threading.Lock()
        self._storing = threading.Lock()

    def store(self, delta: Delta, store: Store) -> Answer:
        """The archive's answer to one delta. store: what makes several durable. Raises what that raises."""
        answer: Future[Answer] = Future()
        with self._listed:
            self._waiting.append((delta, answer))
        with self._storing:
            while not answer.done():
                _settle(self._next(), store)
        return answer.result()

    def _next(self) -> list[Waiting]:
        """The first of those who wait, as many as may go at once; of one source only one, so that no order matters."""
        with self._listed:
            taken: list[Waiting] = []
            left: list[Waiting] = []
            n_bytes, sources = 0, set()
            for delta, answer in self._waiting:
                source = (delta.user, delta.origin.runtime, delta.origin.session)
                n_bytes += len(delta.data)
                fits = not taken or (n_bytes <= _MOST_BYTES and source not in sources)
                (taken if fits else left).append((delta, answer))
                sources.add(source)
            self._waiting = left
        return taken


def _settle(batch: Sequence[Waiting], store: Store) -> None:
    """Store a batch; where one of it is refused, each by itself, so that only that one hears of it."""
    try:
        for (_, answer), kept in zip(batch, store([delta for delta, _ in batch]), strict=True):
            answer.set_result(kept)
    except Exception as error:  # noqa: BLE001 - it is raised where its answer is waited for
        if len(batch) == 1:
            batch[0][1].set_exception(error)
            return
        for one in batch:
            _settle([one], store)
