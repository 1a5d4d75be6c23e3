"""The thread that archives what waits in the outbox, brings the index up to date and embeds what is new.

In slices, so that its pulse never stops for long. Whatever fails is tried again in the next round and counts against
health meanwhile; nothing that was captured depends on it. In each round every user gets a turn of the same length,
whatever waits for the others; while the index is behind, only as many as a slice holds, and the next round goes on
with the next. What was captured must be found before anything is made of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from perdure.archive.store import Ledger
from perdure.capture import log
from perdure.errors import Busy, PerdureError
from perdure.home import Home
from perdure.index.catchup import Projected
from perdure.mind.stated import mark_of
from perdure.resident.everyone import Everyone
from perdure.resident.health import Vitals

SLICE_S = 2.0  # so long does one step of a round work at most, but for its last item


class Heard:
    """How far the captures of each user are known to hold nothing at which the rules of statements have not looked."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._upto: dict[str, int] = {}  # user -> number of a change in the ledger
        self._epoch: str | None = None

    def waiting(self, ledger: Ledger, users: Sequence[str]) -> list[str]:
        """The users at whose newest captures the rules have yet to look."""
        if ledger.meta("epoch") != self._epoch:  # it was made anew, and counts differently now
            self._upto, self._epoch = {}, ledger.meta("epoch")
        newest = ledger.last_change()
        found = []
        for user in users:
            looked = max(self._upto.get(user, 0), int(ledger.meta(mark_of(user)) or 0))
            if ledger.changes(looked, limit=1, user=user):
                found.append(user)
            else:
                self._upto[user] = newest
        return found


class Keeper:
    """One home object of its own, and a loop."""

    def __init__(
        self, make: Callable[[], Home], vitals: Vitals, *, round_s: float, prove_s: float, slice_s: float = SLICE_S
    ) -> None:
        """make: a home object for this thread. round_s: pause between two rounds. prove_s: between two test writes."""
        self._make = make
        self._vitals = vitals
        self._round_s = round_s
        self._prove_s = prove_s
        self._slice_s = slice_s
        self._wake = threading.Event()
        self._written_s = 0.0
        self._position = ""
        self._heard = Heard()
        self._last: dict[str, str] = {}  # what is done for each user -> for whom it was done last

    def wake(self) -> None:
        """Something was captured: do not wait for the next round."""
        self._wake.set()

    def run(self, stopped: threading.Event) -> None:
        """Rounds, until stopped."""
        with self._make() as home, Everyone(home) as everyone:
            while not stopped.is_set():
                if not self.round(home, everyone):
                    self._wake.wait(self._round_s)
                self._wake.clear()

    def round(self, home: Home, everyone: Everyone) -> bool:
        """One round, and whether it left off amid its work; whatever fails counts against health, and is tried again in
        the next.
        """
        try:
            is_amid = self._step(home, everyone)
            self._vitals.prove("keeper")
            return is_amid
        except Exception as error:  # noqa: BLE001 - the next round tries again; health says what it was
            code = str(getattr(error, "code", type(error).__name__))
            if self._vitals.trouble.get("keeper") != code:
                log.note(home.path, "failed", client="keeper", kind="round", code=code)
            self._vitals.trouble["keeper"] = code
            self._vitals.counts["failed-rounds"] += 1
            return False

    def _step(self, home: Home, everyone: Everyone) -> bool:
        self._vitals.counts["drained"] += home.drain(limit_s=self._slice_s)
        self._vitals.prove("keeper")
        done = home.catch_up(limit_s=self._slice_s, note=lambda run: self._note(home, run), everyone=True)
        self._vitals.n_behind = done.n_behind
        self._vitals.prove("keeper")
        if time.monotonic() - self._written_s >= self._prove_s:
            self._prove_write(home)
        users = everyone.users()
        is_behind = done.n_behind > 0
        if home.config.memories.stated:
            waiting = self._heard.waiting(home.archive.ledger, users[1:])  # of the first it is done by now
            self._keep_stated(everyone, waiting, is_behind=is_behind)
        for user in self._in_turn("embed", users, is_behind=is_behind):
            home.embed_new(user)
            self._vitals.prove("keeper")
        return is_behind and done.n_runs > 0

    def _in_turn(self, what: str, users: Sequence[str], *, is_behind: bool) -> Iterator[str]:
        """Each user, beginning with the one behind who came last. While the index is behind, a slice and no more: what
        cannot be found yet comes first, and the next round goes on with the next user.
        """
        ends_s, last = time.monotonic() + self._slice_s, self._last.get(what, "")
        for user in sorted(users, key=lambda user: (user <= last, user)):
            self._last[what] = user
            yield user
            if is_behind and time.monotonic() >= ends_s:
                return

    def _keep_stated(self, everyone: Everyone, waiting: Sequence[str], *, is_behind: bool) -> None:
        """Keep what was stated in the others' new captures; whoever fails is tried again, after everybody else's turn.

        Raises the first failure.
        """
        failures = []
        for user in self._in_turn("stated", waiting, is_behind=is_behind):
            try:
                everyone.as_user(user).keep_stated(limit_s=self._slice_s / len(waiting))
            except Busy:  # what another process is at, it finishes
                continue
            except (PerdureError, OSError) as error:
                failures.append(error)
            self._vitals.prove("keeper")
        if failures:
            raise failures[0]

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
