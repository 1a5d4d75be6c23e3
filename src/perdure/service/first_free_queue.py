"""A queue for threads with places: of those that wait, the one with the lowest place takes the next item.

The threads of a queue of Python take turns, so each of them fills its caches, although one would do.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FirstFreeQueue(Generic[T]):
    """Items in the order in which they come; the threads that wait for them in the order of their places."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: deque[T] = deque()
        self._waiting: dict[int, queue.SimpleQueue[T]] = {}  # by place

    def qsize(self) -> int:
        """Return the number of items that no thread has taken yet."""
        return len(self._items)

    def put(self, item: T) -> None:
        """Give an item to the first thread that waits, or else to the next one that asks."""
        with self._lock:
            if self._waiting:
                self._waiting.pop(min(self._waiting)).put(item)
            else:
                self._items.append(item)

    def get(self, place: int, *, timeout_s: float) -> T:
        """Wait for an item. place: of this thread; no other one has it. Raises queue.Empty after the time."""
        with self._lock:
            if self._items:
                return self._items.popleft()
            own_item = self._waiting[place] = queue.SimpleQueue()
        try:
            return own_item.get(timeout=timeout_s)
        except queue.Empty:
            with self._lock:
                if self._waiting.pop(place, None) is not None:
                    raise
        return own_item.get()  # it was given while the time ran out
