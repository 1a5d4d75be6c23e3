"""Writes into one tier: in order, tried again until the tier takes them, and never in the way of another tier.

A thread does them, so that who writes need not wait; it ends when there is nothing to do. Each write has a key of its
own, and a tier takes a key once; so a write whose answer was lost can be tried again. After three failures nothing is
tried for 30 seconds. At most 1,000 writes wait: a tier that is only slow then holds up the writer, and of one that is
down the oldest is dropped, and counted. The queue lives in memory: the home's archive is what survives the process.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from perdure.errors import PerdureError, TierFault, UsageError

MAX_WAITING = 1_000  # writes
MAX_FAILURES = 3  # one after the other
PAUSE_S = 30.0
WAIT_S = 5.0  # at most, for writes that came before a read
_IDLE_S = 5.0  # until a thread without work ends
Value = TypeVar("Value")
Default = TypeVar("Default")


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
    """The writes into one tier that wait, and its breaker. The tier is used by one thread at a time."""

    def __init__(self, *, has_thread: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        """has_thread: False for writes that are tried in the writer's own thread, before `write` returns."""
        self._has_thread, self._clock = has_thread, clock
        self._tier = threading.Lock()  # held while the tier is used
        self._changed = threading.Condition()  # holds the lock of everything below
        self._thread: threading.Thread | None = None
        self._is_due = False  # is there something that the thread has not tried yet?
        self._writes: OrderedDict[str, Callable[[], object]] = OrderedDict()
        self._status = TierStatus()
        self._n_failures = 0  # since the last success
        self._paused_until_s = 0.0

    @property
    def status(self) -> TierStatus:
        """The counts as they are now."""
        with self._changed:
            return replace(self._status, waiting=len(self._writes))

    @property
    def is_paused(self) -> bool:
        """Has the tier failed so often that nothing is tried now?"""
        return self._n_failures >= MAX_FAILURES and self._clock() < self._paused_until_s

    def is_behind(self, key: str, k: int) -> bool:
        """Does this write wait, or do more than k?"""
        return key in self._writes or len(self._writes) > k

    def write(self, key: str, write: Callable[[], object]) -> None:
        """Do a write as soon as the tier takes it; writes keep their order. A key that waits is not doubled."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._writes) < MAX_WAITING or self._n_failures, WAIT_S)
            self._writes.setdefault(key, write)
            while len(self._writes) > MAX_WAITING:
                self._writes.popitem(last=False)
                self._status.dropped += 1
        self._begin()

    def settle(self, wait_s: float = WAIT_S) -> bool:
        """Wait until everything has been tried that came before. Return True if nothing waits any more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_due, wait_s)
            return not self._writes

    def flush(self, wait_s: float = WAIT_S) -> bool:
        """Try again what waits, unless the tier is paused. Return True if nothing waits any more."""
        if self._writes:
            self._begin()
        return self.settle(wait_s)

    def read(self, read: Callable[[], Value], default: Default) -> Value | Default:
        """Return what a tier holds, earlier writes included if it takes them within WAIT_S; `default` if it is paused
        or does not answer, which is counted.
        """
        if not self.is_paused:
            self.flush()
        if self.is_paused:
            return default
        try:
            with self._tier:
                value = read()
        except (PerdureError, OSError) as error:
            self._note(error)
            return default
        self._note(None)
        return value

    def _begin(self) -> None:
        if not self._has_thread:
            self._try_all()
            return
        with self._changed:
            self._is_due = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="perdure-tier", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    is_due = self._changed.wait_for(lambda: self._is_due, PAUSE_S if self._writes else _IDLE_S)
                    if not is_due and not self._writes:
                        self._thread = None
                        return
                self._try_all()
        except BaseException:  # a fault of the program: it ends this thread, and nobody waits for it
            with self._changed:
                self._thread = None
                self._end_round()
            raise

    def _try_all(self) -> None:
        """Do what waits, until a write fails."""
        while True:
            with self._changed:
                if not self._writes or self.is_paused:
                    self._end_round()
                    return
                key, write = next(iter(self._writes.items()))
            refusal: Exception | None = None
            try:
                with self._tier:
                    write()
            except (PerdureError, OSError) as error:
                refusal = error
            with self._changed:
                if isinstance(refusal, UsageError):  # the owner forbids it: to wait would do it later all the same
                    self._status.dropped += 1
                    self._status.last_error = str(refusal)
                elif self._note(refusal):
                    self._status.delivered += 1
                else:
                    self._end_round()
                    return
                self._writes.pop(key, None)
                self._changed.notify_all()

    def _end_round(self) -> None:
        self._is_due = False
        self._changed.notify_all()

    def _note(self, error: Exception | None) -> bool:
        """Count what became of one use of the tier. Return True for a success."""
        with self._changed:
            if error is None:
                self._n_failures, self._status.last_error = 0, ""
                return True
            self._status.failed += 1
            self._status.last_error = error.detail if isinstance(error, TierFault) else str(error)
            self._n_failures += 1
            if self._n_failures >= MAX_FAILURES:
                self._paused_until_s = self._clock() + PAUSE_S
            return False
