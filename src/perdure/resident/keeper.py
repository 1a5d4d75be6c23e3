"""The thread that archives what waits in the outbox, brings the index up to date and embeds what is new.

In slices, so that its pulse never stops for long. Whatever fails is tried again in the next round and counts against
health meanwhile; nothing that was captured depends on it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from perdure.capture import log
from perdure.errors import Busy, PerdureError
from perdure.home import Home
from perdure.index.catchup import Projected
from perdure.resident.health import Vitals

SLICE_S = 2.0  # so long does one step of a round work at most, but for its last item


class Keeper:
    """One home object of its own, and a loop."""

    def __init__(self, make: Callable[[], Home], vitals: Vitals, *, round_s: float, prove_s: float) -> None:
        """make: a home object for this thread. round_s: pause between two rounds. prove_s: between two test writes."""
        self._make = make
        self._vitals = vitals
        self._round_s = round_s
        self._prove_s = prove_s
        self._wake = threading.Event()
        self._written_s = 0.0
        self._position = ""

    def wake(self) -> None:
        """Something was captured: do not wait for the next round."""
        self._wake.set()

    def run(self, stopped: threading.Event) -> None:
        """Rounds, until stopped."""
        with self._make() as home:
            while not stopped.is_set():
                self._round(home)
                self._wake.wait(self._round_s)
                self._wake.clear()

    def _round(self, home: Home) -> None:
        try:
            self._step(home)
            self._vitals.prove("keeper")
        except Exception as error:  # noqa: BLE001 - the next round tries again; health says what it was
            code = str(getattr(error, "code", type(error).__name__))
            if self._vitals.trouble.get("keeper") != code:
                log.note(home.path, "failed", client="keeper", kind="round", code=code)
            self._vitals.trouble["keeper"] = code
            self._vitals.counts["failed-rounds"] += 1

    def _step(self, home: Home) -> None:
        self._vitals.counts["drained"] += home.drain(limit_s=SLICE_S)
        self._vitals.prove("keeper")
        done = home.catch_up(limit_s=SLICE_S, note=lambda run: self._note(home, run))
        self._vitals.n_behind = done.n_behind
        self._vitals.prove("keeper")
        if time.monotonic() - self._written_s >= self._prove_s:
            self._prove_write(home)
        home.keep_stated(limit_s=SLICE_S)
        home.embed_new()

    def _note(self, home: Home, projected: Projected) -> None:
        """A line about one capture, in numbers."""
        run = projected.run
        self._vitals.prove("keeper")
        self._vitals.counts["runs"] += 1
        log.note(
            home.path, "captured" if projected.n_turns else "empty", run_id=run.run_id, user=run.source.user,
            machine=run.machine, runtime=run.source.runtime, format=run.source.runtime, turn_count=projected.n_turns,
            chunk_count=projected.n_chunks, chunk_errors=projected.n_malformed, bytes=run.n_bytes,
            duration_ms=round(projected.took_ms, 1),
        )  # fmt: skip

    def _prove_write(self, home: Home) -> None:
        """A real write into the index, read back. Where another process holds the pen, its progress is the proof."""
        index, stamp = home.index(create=True), datetime.now(UTC).isoformat()
        try:
            with index.writing():
                index.set_meta(probe=stamp)
            if index.meta("probe") != stamp:
                raise PerdureError("what was written into the index was not read back")
        except Busy:
            self._vitals.trouble["write"] = "busy"
            if (index.meta("change") or "") == self._position:
                return
        self._position = index.meta("change") or ""
        self._written_s = time.monotonic()
        self._vitals.prove("write")
