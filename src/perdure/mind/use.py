"""Noticing use: after a turn, which of the cues that were put beside its prompt the agent's answer rests on.

Each injection is judged once, when its answer is whole, by one `used` event that carries the injection's nonce: what
is judged again (by a process that was killed, by another home) is left out by the replay. By words alone, no model is
asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from perdure.archive import injected
from perdure.archive.journal import Event, Journal
from perdure.index import exchanges
from perdure.index import memories as rows
from perdure.index.exchanges import Exchange
from perdure.index.store import Connection
from perdure.memories import events, use

WITHIN = timedelta(days=30)  # an injection whose answer was not captured by then is left alone
SETTLED = timedelta(minutes=10)  # so long after its last words an answer is whole, though no prompt follows


@dataclass(frozen=True, slots=True)
class Judged:
    """What a look at the answers found."""

    n_injections: int = 0  # that were judged
    n_cues: int = 0  # that were put into them
    n_used: int = 0  # of those
    n_waiting: int = 0  # injections whose answer is not there, or not whole


@dataclass(frozen=True)
class Judge:
    """One owner's injections and the answers to them. index: brought up to date with the archive."""

    user: str
    journal: Journal
    index: Connection

    def judge(self, *, now: datetime, limit_s: float | None, stop: Callable[[], bool] | None) -> Judged:
        """Judge every injection whose answer is whole, oldest first, for so long."""
        ends_s = time.monotonic() + limit_s if limit_s is not None else None
        pending = injected.unjudged(self.journal, since_at=now - WITHIN)
        n_done = n_cues = n_used = 0
        for event in pending:
            if (stop and stop()) or (ends_s is not None and time.monotonic() > ends_s):
                break
            found = self._exchange(event)
            if found is None or not _is_whole(found, now):
                continue
            used = [cue for cue in event.data["turns"] if self._is_used(cue, found)]
            self._note(event, used, now)
            n_done, n_cues, n_used = n_done + 1, n_cues + len(event.data["turns"]), n_used + len(used)
        return Judged(n_done, n_cues, n_used, len(pending) - n_done)

    def _exchange(self, event: Event) -> Exchange | None:
        data = event.data
        session = "/".join(filter(None, (data["session"], data.get("agent", ""))))
        return exchanges.exchange(self.index, self.user, data["runtime"], session, event.happened_at)

    def _is_used(self, cue: str, found: Exchange) -> bool:
        return any(use.is_used(found.prompt, piece, found.answer) for piece in self._texts(cue))

    def _texts(self, cue: str) -> Sequence[str]:
        """The words of a memory or a turn; none when it was forgotten meanwhile."""
        if cue.startswith("mem-"):
            return [memory.text for memory in rows.of_ids(self.index, self.user, [cue])]
        return exchanges.pieces(self.index, self.user, cue)

    def _note(self, event: Event, used: Sequence[str], now: datetime) -> None:
        who = {name: event.data.get(name, "") for name in ("runtime", "session", "agent")}
        data = events.used(event.data["nonce"], used, at=event.happened_at, **who)
        self.journal.append(events.USED, data, now=now)


def _is_whole(found: Exchange, now: datetime) -> bool:
    """Whether nothing more is to be expected of an answer."""
    if not found.answer:
        return False
    return found.ended or (found.last_at is not None and now - found.last_at >= SETTLED)
