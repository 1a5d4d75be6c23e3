"""Writes into one tier: in order, tried again until the tier takes them, and never in the way of another tier.

Each write has a key of its own, and a tier takes a key once; so a write whose answer was lost can be tried again. After
three failures nothing is tried for 30 seconds. At most 1,000 writes wait: then the oldest is dropped, and counted.
The queue lives in memory. The home's archive, which is written first, is what survives the process.
"""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from perdure.errors import PerdureError, TierFault, UsageError

MAX_WAITING = 1_000  # writes
MAX_FAILURES = 3  # one after the other
PAUSE_S = 30.0
Value = TypeVar("Value")


@contextlib.contextmanager
def map_client_errors(name: str) -> Iterator[None]:
    """Turn whatever the client of a tier raises into TierFault: each library has a tree of errors of its own."""
    try:
        yield
    except Exception as error:
        raise TierFault(f"{name}: {error}") from error


@dataclass
class TierStatus:
    """What became of the writes into one tier, and of reading it."""

    delivered: int = 0  # writes that the tier took
    failed: int = 0  # tries, of writes and reads, that the tier refused or did not answer
    dropped: int = 0  # writes that were given up: too many waited, or the owner forbids it
    waiting: int = 0
    last_error: str = ""  # of the last try; "" while all is well


class TierQueue:
    """The writes into one tier that wait, and its breaker."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._writes: OrderedDict[str, Callable[[], object]] = OrderedDict()
        self._status = TierStatus()
        self._n_failures = 0  # since the last success
        self._paused_until_s = 0.0

    @property
    def status(self) -> TierStatus:
        """The counts as they are now."""
        self._status.waiting = len(self._writes)
        return self._status

    @property
    def is_paused(self) -> bool:
        """Has the tier failed so often that nothing is tried now?"""
        return self._n_failures >= MAX_FAILURES and self._clock() < self._paused_until_s

    def write(self, key: str, write: Callable[[], object]) -> None:
        """Do a write now, or as soon as the tier takes it; writes keep their order. A key that waits is not doubled."""
        self._writes.setdefault(key, write)
        while len(self._writes) > MAX_WAITING:
            self._writes.popitem(last=False)
            self._status.dropped += 1
        self.flush()

    def flush(self) -> bool:
        """Do what waits, unless the tier is paused. Return True if nothing waits any more."""
        while self._writes and not self.is_paused:
            key, write = next(iter(self._writes.items()))
            try:
                write()
            except UsageError as error:  # the owner forbids it: to wait would do it later all the same
                del self._writes[key]
                self._status.dropped += 1
                self._status.last_error = str(error)
            except (PerdureError, OSError) as error:
                self._note_failure(error)
                break
            else:
                del self._writes[key]
                self._status.delivered += 1
                self._note_success()
        return not self._writes

    def read(self, read: Callable[[], Value], default: Value) -> Value:
        """Return what a tier holds; `default` if it is paused or does not answer, which is counted."""
        if self.is_paused:
            return default
        self.flush()
        if self.is_paused:
            return default
        try:
            value = read()
        except (PerdureError, OSError) as error:
            self._note_failure(error)
            return default
        self._note_success()
        return value

    def _note_success(self) -> None:
        self._n_failures, self._status.last_error = 0, ""

    def _note_failure(self, error: Exception) -> None:
        self._status.failed += 1
        self._status.last_error = str(error)
        self._n_failures += 1
        if self._n_failures >= MAX_FAILURES:
            self._paused_until_s = self._clock() + PAUSE_S
