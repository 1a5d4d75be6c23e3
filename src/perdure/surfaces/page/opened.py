"""Transcripts that were read a moment ago, so that the next piece of a long one does not read all of it again.

What is kept is named by its place in the ledger, which moves whenever its bytes change: nothing stale is ever given. It
is little, and let go a minute after it was last given, also where nobody asks for anything any more: what was forgotten
or is not shared any longer lives on in the memory of a server for so long and no longer.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from perdure.home import Home
from perdure.types import Turn

MOST_BYTES = 48_000_000  # of transcripts as they were captured; their turns take about as much again
KEPT_S = 60.0  # since it was last given

Turns = Mapping[int, Turn]  # by the offset of their first line
_Key = tuple[str, str, str, int | None]


@dataclass
class _Kept:
    turns: Turns
    n_bytes: int
    asked_s: float


class Opened:
    """The turns of transcripts by whose eyes read them."""

    def __init__(self, *, most_bytes: int = MOST_BYTES, kept_s: float = KEPT_S) -> None:
        """Nothing is kept yet."""
        self._most_bytes, self._kept_s = most_bytes, kept_s
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None  # runs while something is kept

    def turns(self, home: Home, run_id: str, *, now_s: float | None = None) -> Turns:
        """The turns of a captured run. Raises NotFound, DamagedRun."""
        now_s = time.monotonic() if now_s is None else now_s
        held = home.archive.held(run_id)
        if held.user != home.user:  # whether it may still be read is asked each time
            home.run(run_id)
        key = (str(home.path), home.user, run_id, held.change)
        with self._lock:
            self._let_go(now_s)
            if (kept := self._kept.get(key)) is not None:
                kept.asked_s = now_s
                self._kept.move_to_end(key)
                return kept.turns
        turns = {turn.offset: turn for turn in home.transcript(run_id).parsed.turns}
        with self._lock:
            if key not in self._kept:
                self._kept[key] = _Kept(turns, held.to_offset - held.from_offset, now_s)
                self._n_bytes += self._kept[key].n_bytes
            self._let_go(now_s)
            self._watch(self._kept_s)
        return turns

    def _watch(self, wait_s: float) -> None:
        """Look again after a while, where nobody does already."""
        if self._timer is None and self._kept:
            self._timer = threading.Timer(wait_s, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        """Let go, and look again when the next is to be."""
        now_s = time.monotonic()
        with self._lock:
            self._timer = None
            self._let_go(now_s)
            if self._kept:
                self._watch(next(iter(self._kept.values())).asked_s + self._kept_s - now_s)

    def _let_go(self, now_s: float) -> None:
        """Keep what was asked for lately, and of that no more than there is room for; the last in any case."""
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            is_too_much = self._n_bytes > self._most_bytes and len(self._kept) > 1
            if not is_too_much and now_s - oldest.asked_s < self._kept_s:
                return
            self._n_bytes -= oldest.n_bytes
            del self._kept[key]
