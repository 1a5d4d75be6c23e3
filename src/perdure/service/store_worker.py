"""The thread of the resident home that keeps the archive's store and this machine alike. A slow store delays nobody."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from perdure import log
from perdure.errors import PerdureError
from perdure.home import Home

_PUBLISH_S = 2.0  # between two looks for what is new here; without news that is a look at the disk
_COLLECT_S = 30.0  # between two looks for what is new there


class StoreWorker:
    """A loop with a home object of its own."""

    def __init__(
        self, open_home: Callable[[], Home], *, publish_s: float = _PUBLISH_S, collect_s: float = _COLLECT_S
    ) -> None:
        """open_home: opens a home object for this thread. publish_s, collect_s: between two looks here, and there."""
        self._open_home, self._publish_s, self._collect_s = open_home, publish_s, collect_s

    def run(self, stop_event: threading.Event) -> None:
        """Publish and collect until stopped."""
        collected_s = -self._collect_s
        with self._open_home() as home:
            while not stop_event.wait(self._publish_s):
                try:
                    home.connections.publish_quietly()
                    if time.monotonic() - collected_s >= self._collect_s:
                        collected_s = time.monotonic()
                        home.upkeep.collect_quietly()
                except (PerdureError, OSError) as error:  # the next look tries again
                    log.append_entry(home.path, "failed", client="store", kind="round", code=type(error).__name__)
