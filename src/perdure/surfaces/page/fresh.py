"""What was worked out a moment ago, told again instead of worked out anew.

Each visitor has their own: nobody is told what was worked out for another.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
FRESH_S = 60.0
_MOST = 32  # that are kept; the least recently made goes first


class Fresh(Generic[T]):
    """Any thread may ask; two that ask at once may both work."""

    def __init__(self, *, fresh_s: float = FRESH_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s = fresh_s
        self._now_s = now_s
        self._made: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._lock = threading.Lock()

    def told(self, key: Hashable, make: Callable[[], T]) -> T:
        """What is kept under a key while it is fresh, else what is made now. key: whose it is, and of what."""
        with self._lock:
            known = self._made.get(key)
        if known is not None and self._now_s() - known[0] < self._fresh_s:
            return known[1]
        made = make()
        with self._lock:
            self._made.pop(key, None)
            self._made[key] = self._now_s(), made
            while len(self._made) > _MOST:
                self._made.popitem(last=False)
        return made
