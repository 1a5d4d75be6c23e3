"""Whether the data path works, asked of it at most once in a few seconds, however many want to know."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from perdure.errors import PerdureError
from perdure.home import Home

FRESH_S = 5.0  # so long what was found is told again


@dataclass(frozen=True, slots=True)
class Probed:
    """What one probe found."""

    problems: tuple[str, ...]
    took_ms: float
    checked_at: datetime


class Probe:
    """What the last probe found. Any thread may ask; those who ask at once wait for one probe."""

    def __init__(self, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._last: tuple[float, Probed] | None = None

    def found(self, home: Home) -> Probed:
        """The last finding while it is fresh, else a new one."""
        with self._lock:
            if self._last is None or self._now_s() - self._last[0] >= FRESH_S:
                probed = _probed(home)
                self._last = (self._now_s(), probed)
            return self._last[1]


def _probed(home: Home) -> Probed:
    started_s, problems = time.perf_counter(), []
    try:
        home.probe()
    except (PerdureError, OSError) as error:
        problems.append(f"the data path fails ({getattr(error, 'code', type(error).__name__)})")
    return Probed(tuple(problems), (time.perf_counter() - started_s) * 1000, datetime.now(UTC))
