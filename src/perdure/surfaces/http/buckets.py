"""Token buckets: so many requests a minute of each, and no more at once than that. Pure; the clock is a parameter."""

from __future__ import annotations

from collections import OrderedDict

_MOST = 10_000  # of which it is remembered how much they asked; the one that asked least recently goes first


class Buckets:
    """A bucket for each name, full at first. Not for several threads."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # name -> (tokens, at)

    def take(self, name: str, now_s: float) -> float:
        """Take a token: 0 when there was one, else the seconds until there is.

        >>> few = Buckets(2)
        >>> [few.take("a", 0), few.take("a", 0), few.take("a", 0), few.take("b", 0), few.take("a", 30)]
        [0.0, 0.0, 30.0, 0.0, 0.0]
        """
        rate = self.per_minute / 60
        tokens, at_s = self._left.get(name, (float(self.per_minute), now_s))
        tokens = min(float(self.per_minute), tokens + max(0.0, now_s - at_s) * rate)
        is_there = tokens >= 1
        self._left[name] = (tokens - 1 if is_there else tokens, now_s)
        self._left.move_to_end(name)
        if len(self._left) > _MOST:
            self._left.popitem(last=False)
        return 0.0 if is_there else (1 - tokens) / rate
