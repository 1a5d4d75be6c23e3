"""What was put beside messages, and what of it was used: the journals' events of it as rows, found again.

Ids and numbers, never words. Rows are in the order of the journals, so that the newest have the greatest numbers; of
two judgements of one injection the first counts, as in the replay of memories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec

from perdure.archive.injected import FLOOR
from perdure.archive.journal import places, tails, was_rewritten
from perdure.errors import NotFound
from perdure.index import memories, weeks
from perdure.index.journals import last_read, read_until
from perdure.index.store import Connection
from perdure.index.values import ms
from perdure.memories import events
from perdure.memories.replay import Noted

_TOLD = "told CROSS JOIN injection ON injection.id = told.injection"
_MEMORY = "mem-"


@dataclass(frozen=True, slots=True)
class Reason:
    """One cue of an injection, in numbers."""

    cue: str  # a turn or a memory
    score: float = 0.0
    legs: Mapping[str, float] = field(default_factory=dict)
    n_tokens: int = 0

    @property
    def is_memory(self) -> bool:
        """Whether it is a memory; else it is a turn."""
        return self.cue.startswith(_MEMORY)


@dataclass(frozen=True, slots=True)
class Injection:
    """What was put beside one message."""

    nonce: str
    at: datetime
    runtime: str
    session: str  # "" where a model asked by a tool, and did not say in which
    agent: str  # a sub-agent in it, or ""
    digest: str  # of the block
    reasons: tuple[Reason, ...]  # of each cue, best first
    n_tokens: int
    n_chars: int
    took_ms: float
    timings_ms: Mapping[str, float]  # step -> time
    degraded: tuple[str, ...]
    intent: str
    used: frozenset[str] | None = None  # what the answer rested on; None before anybody looked


@dataclass(frozen=True, slots=True)
class Week:
    """What was shown in a week, of which it is known whether it was used."""

    begins_on: date  # its Monday, in UTC
    n_injections: int
    n_turns: int  # cues that are turns
    n_memories: int  # cues that are memories
    n_used_turns: int
    n_used_memories: int
    n_waiting: int  # injections that nobody looked at yet; no cue of them is counted

    @property
    def n_cues(self) -> int:
        """Turns and memories together."""
        return self.n_turns + self.n_memories

    @property
    def n_used(self) -> int:
        """Of those, the ones that an answer rested on."""
        return self.n_used_turns + self.n_used_memories


# writing ------------------------------------------------------------------------------------------------------


def clear(index: Connection, user: int) -> None:
    """Take away all of an owner's."""
    index.db.execute("DELETE FROM told WHERE user = ?", (user,))
    index.db.execute("DELETE FROM injection WHERE user = ?", (user,))


def write(index: Connection, user: int, found: Iterable[Noted]) -> None:
    """Write what these events say, in their order."""
    for event in found:
        if _is_recall(event):
            _insert(index, user, event)
        elif event.type == events.USED and event.data.get("nonce"):
            _judge(index, user, event.data)


def _is_recall(event: Noted) -> bool:
    return event.type == events.INJECTED and event.data.get("kind") != FLOOR and bool(event.data.get("nonce"))


def _insert(index: Connection, user: int, event: Noted) -> None:
    cues = list(dict.fromkeys(event.data["turns"]))
    n_memories = sum(cue.startswith(_MEMORY) for cue in cues)
    values = event.data["nonce"], ms(event.at), event.data.get("session", ""), len(cues) - n_memories, n_memories
    query = """INSERT OR IGNORE INTO injection(user, nonce, at_ms, session, n_turns, n_memories, body)
        VALUES (?, ?, ?, ?, ?, ?, ?)"""
    index.db.execute(query, (user, *values, msgspec.json.encode(event.data)))
    if index.db.changes():
        number = index.db.last_insert_rowid()
        index.db.executemany("INSERT INTO told VALUES (?, ?, ?)", [(user, cue, number) for cue in cues])


def _judge(index: Connection, user: int, data: Mapping[str, Any]) -> None:
    used = list(dict.fromkeys(data.get("cues", ())))
    n_memories = sum(cue.startswith(_MEMORY) for cue in used)
    query = """UPDATE injection SET used = ?, n_used_turns = ?, n_used_memories = ?
        WHERE user = ? AND nonce = ? AND used IS NULL"""
    raw = msgspec.json.encode(used).decode()
    index.db.execute(query, (raw, len(used) - n_memories, n_memories, user, data["nonce"]))


# reading ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Injections:
    """One owner's. folder: their journal, from whose end what the index has not read yet is added."""

    index: Connection
    user: str
    folder: Path

    def newest(self, *, session: str = "", cue: str = "", before: str = "", limit: int = 20) -> list[Injection]:
        """The newest, of a session, that told a cue, that are older than the one of a nonce. Raises NotFound for a
        nonce that there is not.
        """
        with self.index.reading():
            fresh, judged = self._unread()
            if before and before in fresh:
                names = list(fresh)
                fresh = {name: fresh[name] for name in names[: names.index(before)]}
                before = ""
            elif before:
                fresh = {}
            wanted = [one for one in reversed(fresh.values()) if _is_of(one, session, cue)]
            rows = self._rows(session, cue, before, limit)
            return [_judged(one, judged) for one in [*wanted, *rows]][:limit]

    def between(self, session: str, *, since_at: datetime, until_at: datetime) -> list[Injection]:
        """Those of a session from one moment to another, oldest first."""
        query = """SELECT body, at_ms, used FROM injection
            WHERE user = ? AND session = ? AND at_ms BETWEEN ? AND ? ORDER BY id"""
        with self.index.reading():
            fresh, judged = self._unread()
            rows = self.index.rows(query, self._number, session, ms(since_at), ms(until_at))
        wanted = [one for one in fresh.values() if one.session == session and since_at <= one.at <= until_at]
        return [_judged(one, judged) for one in [*(_of_row(*row) for row in rows), *wanted]]

    def get(self, nonce: str) -> Injection:
        """The one of this nonce. Raises NotFound."""
        query = "SELECT body, at_ms, used FROM injection WHERE user = ? AND nonce = ?"
        with self.index.reading():
            fresh, judged = self._unread()
            rows = [_of_row(*row) for row in self.index.rows(query, self._number, nonce)]
        found = [*rows, *(one for name, one in fresh.items() if name == nonce)]
        if not found:
            raise NotFound(f"no recall {nonce}")
        return _judged(found[0], judged)

    def weeks(self, *, since_at: datetime) -> list[Week]:
        """What was shown and used, by the week, oldest first; without what the index has not read yet."""
        query = f"""SELECT {weeks.sql("at_ms")} AS week, count(*),
              sum(iif(n_used_turns IS NULL, 0, n_turns)), sum(iif(n_used_turns IS NULL, 0, n_memories)),
              sum(n_used_turns), sum(n_used_memories), sum(n_used_turns IS NULL)
            FROM injection WHERE user = ? AND at_ms >= ? GROUP BY week ORDER BY week"""
        rows = self.index.rows(query, self._number, ms(since_at))
        return [Week(date.fromisoformat(week), *(n or 0 for n in counts)) for week, *counts in rows]

    @property
    def _number(self) -> int | None:
        return self.index.known("user", self.user)

    def _rows(self, session: str, cue: str, before: str, limit: int) -> Iterator[Injection]:
        source, tests = "injection", ["injection.user = ?"]
        values: list[int | str | None] = [self._number]
        if cue:
            source, tests = _TOLD, ["told.user = ?", "told.cue = ?"]
            values.append(cue)
        for test, value in (("session = ?", session), ("injection.id < ?", self._place(before))):
            if value:
                tests.append(test)
                values.append(value)
        order = "told.injection" if cue else "injection.id"
        query = f"SELECT body, at_ms, used FROM {source} WHERE {' AND '.join(tests)} ORDER BY {order} DESC LIMIT ?"
        return (_of_row(*row) for row in self.index.rows(query, *values, limit))

    def _place(self, nonce: str) -> int:
        """The number of an injection; 0 where none is named. Raises NotFound."""
        if not nonce:
            return 0
        rows = self.index.rows("SELECT id FROM injection WHERE user = ? AND nonce = ?", self._number, nonce)
        if not rows:
            raise NotFound(f"no recall {nonce}")
        return int(rows[0][0])

    def _unread(self) -> tuple[dict[str, Injection], dict[str, frozenset[str]]]:
        """(what was injected behind what the index has read of the journal, by nonce and oldest first; what was used).

        Nothing of a journal that was put anew, or to which a merge brought what is older than what was read: the index
        reads that one as a whole, and soon. The caller holds one snapshot, in which the rows are just what was read.
        """
        known, now = read_until(self.index, self.user), places(self.folder)
        if known == now or was_rewritten(known, now):
            return {}, {}
        found = [memories.noted(event) for event in tails(self.folder, known, now, memories.TYPES)[0]]
        if found and found[0].order <= last_read(self.index, self.user):
            return {}, {}
        fresh = {event.data["nonce"]: _made(event.data, event.at) for event in found if _is_recall(event)}
        judged: dict[str, frozenset[str]] = {}
        for event in found:
            if event.type == events.USED and event.data.get("nonce"):
                judged.setdefault(event.data["nonce"], frozenset(event.data.get("cues", ())))
        return fresh, judged


def _is_of(one: Injection, session: str, cue: str) -> bool:
    return (not session or one.session == session) and (not cue or any(reason.cue == cue for reason in one.reasons))


def _judged(one: Injection, judged: Mapping[str, frozenset[str]]) -> Injection:
    return replace(one, used=judged.get(one.nonce)) if one.used is None else one


def _of_row(body: bytes, at_ms: int, used: str | None) -> Injection:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    found = None if used is None else frozenset(msgspec.json.decode(used, type=list[str]))
    return replace(_made(msgspec.json.decode(body), at), used=found)


def _made(data: Mapping[str, Any], at: datetime) -> Injection:
    """An event's data as what they mean; what an older one does not say has no number."""
    said: Sequence[Mapping[str, Any]] = data.get("cues", ())
    known = {reason["turn"]: reason for reason in said}
    reasons = tuple(
        Reason(cue, one.get("score", 0.0), one.get("legs", {}), one.get("n_tokens", 0))
        for cue in dict.fromkeys(data["turns"])
        for one in [known.get(cue, {})]
    )
    return Injection(
        data["nonce"], at, data.get("runtime", ""), data.get("session", ""), data.get("agent", ""),
        data.get("digest", ""), reasons, data.get("n_tokens", 0), data.get("n_chars", 0), data.get("took_ms", 0.0),
        data.get("timings_ms", {}), tuple(data.get("degraded", ())), data.get("intent", ""),
    )  # fmt: skip
