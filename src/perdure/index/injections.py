"""Injections: what was put beside messages, and what of it was used. Events of the journals as rows, and
their reading.

Ids and numbers, never words. Rows are in the order of the journals, so the newest have the greatest
numbers. When one injection is judged twice, the first judgement counts, as in the replay of memories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec

from perdure.archive import memory_events
from perdure.archive.injections import ACTION, FLOOR
from perdure.archive.journal import measure_files, read_new_events, was_rewritten
from perdure.errors import RecallMissing
from perdure.index import encoding, memory_rows
from perdure.index.encoding import to_ms
from perdure.index.memory_replay import ReplayEvent
from perdure.index.store import IndexConnection, get_journal_positions, get_last_journal_order

_TOLD_INJECTIONS = "told CROSS JOIN injection ON injection.id = told.injection"
_MEMORY_ID_PREFIX = "mem-"


@dataclass(frozen=True, slots=True)
class CueReason:
    """One cue of an injection, in numbers."""

    cue: str  # id of a turn or a memory
    score: float = 0.0
    legs: Mapping[str, float] = field(default_factory=dict)
    n_tokens: int = 0

    @property
    def is_memory(self) -> bool:
        """True for a memory, False for a turn."""
        return self.cue.startswith(_MEMORY_ID_PREFIX)


@dataclass(frozen=True, slots=True)
class Injection:
    """The cues that were put beside one message."""

    nonce: str
    at: datetime
    runtime: str
    session: str  # "" when a model asked through a tool and named no session
    agent: str  # a sub-agent of the session, or ""
    digest: str  # of the block
    reasons: tuple[CueReason, ...]  # of each cue, best first
    n_tokens: int
    n_chars: int
    took_ms: float
    timings_ms: Mapping[str, float]  # step -> time
    degraded: tuple[str, ...]
    intent: str
    used: frozenset[str] | None = None  # cues that the answer used; None before they are judged

    @property
    def source_session(self) -> str:
        """The session as transcripts name it: that of the sub-agent, if one was told."""
        return f"{self.session}/{self.agent}" if self.agent else self.session


@dataclass(frozen=True, slots=True)
class ShadowBlock:
    """A block that was recorded and not given."""

    injection: Injection
    judged: Mapping[str, Any]  # the numbers by which recall spoke: relevance, coverage, judged_for, …
    label: str  # "right", "wrong", or "" without an answer of the person


@dataclass(frozen=True, slots=True)
class UsageWeek:
    """The cues shown in one week; only injections that are judged count."""

    begins_on: date  # its Monday, in UTC
    n_injections: int
    n_turns: int  # cues that are turns
    n_memories: int  # cues that are memories
    n_used_turns: int
    n_used_memories: int
    n_waiting: int  # injections that are not judged yet; their cues are not counted

    @property
    def n_cues(self) -> int:
        """Turns and memories together."""
        return self.n_turns + self.n_memories

    @property
    def n_used(self) -> int:
        """The number of these cues that an answer used."""
        return self.n_used_turns + self.n_used_memories


# writing ------------------------------------------------------------------------------------------------------


def clear(index: IndexConnection, user: int) -> None:
    """Delete all injections of an owner."""
    index.db.execute("DELETE FROM told WHERE user = ?", (user,))
    index.db.execute("DELETE FROM injection WHERE user = ?", (user,))


def write(index: IndexConnection, user: int, replay_events: Iterable[ReplayEvent]) -> None:
    """Write the injections and judgements in these events, in their order."""
    for event in replay_events:
        if _is_recall(event):
            _insert_injection(index, user, event)
        elif event.type == memory_events.USED and event.data.get("nonce"):
            _write_judgement(index, user, event.data)


def _is_recall(event: ReplayEvent) -> bool:
    return (
        event.type == memory_events.INJECTED
        and event.data.get("kind") not in (ACTION, FLOOR)
        and bool(event.data.get("nonce"))
    )


def _insert_injection(index: IndexConnection, user: int, event: ReplayEvent) -> None:
    cues = list(dict.fromkeys(event.data["turns"]))
    n_memories = sum(cue.startswith(_MEMORY_ID_PREFIX) for cue in cues)
    values = event.data["nonce"], to_ms(event.at), event.data.get("session", ""), len(cues) - n_memories, n_memories
    query = """INSERT OR IGNORE INTO injection(user, nonce, at_ms, session, n_turns, n_memories, body)
        VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id"""
    for (number,) in index.select(query, user, *values, msgspec.json.encode(event.data)):
        index.db.executemany("INSERT INTO told VALUES (?, ?, ?)", [(user, cue, number) for cue in cues])


def _write_judgement(index: IndexConnection, user: int, data: Mapping[str, Any]) -> None:
    used = list(dict.fromkeys(data.get("cues", ())))
    n_memories = sum(cue.startswith(_MEMORY_ID_PREFIX) for cue in used)
    query = """UPDATE injection SET used = ?, n_used_turns = ?, n_used_memories = ?
        WHERE user = ? AND nonce = ? AND used IS NULL"""
    encoded = msgspec.json.encode(used).decode()
    index.db.execute(query, (encoded, len(used) - n_memories, n_memories, user, data["nonce"]))


# reading ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InjectionLog:
    """The injections of one owner.

    folder: their journal; events at its end that the index has not read yet are added to each answer.
    """

    index: IndexConnection
    user: str
    folder: Path

    def list_newest(self, *, session: str = "", cue: str = "", before: str = "", limit: int = 20) -> list[Injection]:
        """Return the newest injections: of a session, with a cue, or older than the injection of a nonce.

        Raises RecallMissing for an unknown nonce.
        """
        with self.index.begin_read():
            unread_by_nonce, used_by_nonce = self._read_unread()
            if before and before in unread_by_nonce:
                nonces = list(unread_by_nonce)
                unread_by_nonce = {nonce: unread_by_nonce[nonce] for nonce in nonces[: nonces.index(before)]}
                before = ""
            elif before:
                unread_by_nonce = {}
            unread = [
                injection for injection in reversed(unread_by_nonce.values()) if _is_match(injection, session, cue)
            ]
            rows = self._select_newest(session, cue, before, limit)
            return [_add_judgement(injection, used_by_nonce) for injection in [*unread, *rows]][:limit]

    def list_between(self, session: str, *, since_at: datetime, until_at: datetime) -> list[Injection]:
        """Return the injections of a session between two moments, oldest first."""
        query = """SELECT body, at_ms, used FROM injection
            WHERE user = ? AND session = ? AND at_ms BETWEEN ? AND ? ORDER BY id"""
        with self.index.begin_read():
            unread_by_nonce, used_by_nonce = self._read_unread()
            rows = self.index.select(query, self._user_number, session, to_ms(since_at), to_ms(until_at))
        unread = [
            injection
            for injection in unread_by_nonce.values()
            if injection.session == session and since_at <= injection.at <= until_at
        ]
        return [_add_judgement(injection, used_by_nonce) for injection in [*(_from_row(*row) for row in rows), *unread]]

    def list_window(self, *, since_at: datetime, until_at: datetime, limit: int) -> list[Injection]:
        """Return the injections of all sessions between two moments, oldest first; of too many the newest."""
        query = """SELECT body, at_ms, used FROM injection WHERE user = ? AND at_ms BETWEEN ? AND ?
            ORDER BY at_ms DESC, id DESC LIMIT ?"""
        with self.index.begin_read():
            unread_by_nonce, used_by_nonce = self._read_unread()
            values = self._user_number, to_ms(since_at), to_ms(until_at), limit
            rows = [_from_row(*row) for row in self.index.select(query, *values)]
        unread = [injection for injection in unread_by_nonce.values() if since_at <= injection.at <= until_at]
        return [_add_judgement(injection, used_by_nonce) for injection in [*reversed(rows), *unread]][-limit:]

    def get(self, nonce: str) -> Injection:
        """Return the injection with this nonce. Raises RecallMissing."""
        query = "SELECT body, at_ms, used FROM injection WHERE user = ? AND nonce = ?"
        with self.index.begin_read():
            unread_by_nonce, used_by_nonce = self._read_unread()
            rows = [_from_row(*row) for row in self.index.select(query, self._user_number, nonce)]
        injections = [
            *rows,
            *(injection for unread_nonce, injection in unread_by_nonce.items() if unread_nonce == nonce),
        ]
        if not injections:
            raise RecallMissing(f"no recall {nonce}")
        return _add_judgement(injections[0], used_by_nonce)

    def count_by_week(self, *, since_at: datetime) -> list[UsageWeek]:
        """Count what was shown and used by week, oldest first; without events that the index has not read yet."""
        query = f"""SELECT {encoding.build_week_sql("at_ms")} AS week, count(*),
              sum(n_turns) FILTER (WHERE n_used_turns IS NOT NULL),
              sum(n_memories) FILTER (WHERE n_used_turns IS NOT NULL),
              sum(n_used_turns), sum(n_used_memories), count(*) FILTER (WHERE n_used_turns IS NULL)
            FROM injection WHERE user = ? AND at_ms >= ? GROUP BY week ORDER BY week"""
        rows = self.index.select(query, self._user_number, to_ms(since_at))
        return [UsageWeek(date.fromisoformat(week), *(n or 0 for n in counts)) for week, *counts in rows]

    @property
    def _user_number(self) -> int | None:
        return self.index.find_name("user", self.user)

    def _select_newest(self, session: str, cue: str, before: str, limit: int) -> Iterator[Injection]:
        source, tests = "injection", ["injection.user = ?"]
        values: list[int | str | None] = [self._user_number]
        if cue:
            source, tests = _TOLD_INJECTIONS, ["told.user = ?", "told.cue = ?"]
            values.append(cue)
        for test, value in (("session = ?", session), ("injection.id < ?", self._find_number(before))):
            if value:
                tests.append(test)
                values.append(value)
        order = "told.injection" if cue else "injection.id"
        query = f"SELECT body, at_ms, used FROM {source} WHERE {' AND '.join(tests)} ORDER BY {order} DESC LIMIT ?"
        return (_from_row(*row) for row in self.index.select(query, *values, limit))

    def _find_number(self, nonce: str) -> int:
        """Return the number of an injection; 0 when no nonce is given. Raises RecallMissing."""
        if not nonce:
            return 0
        rows = self.index.select("SELECT id FROM injection WHERE user = ? AND nonce = ?", self._user_number, nonce)
        if not rows:
            raise RecallMissing(f"no recall {nonce}")
        return int(rows[0][0])

    def _read_unread(self) -> tuple[dict[str, Injection], dict[str, frozenset[str]]]:
        """Return (injections that the index has not read yet by nonce, oldest first; cues used, by nonce).

        Both are empty for a journal that was replaced, or into which a merge brought older events: the index
        soon reads such a journal as a whole. The caller holds one snapshot, whose rows are exactly what was
        read.
        """
        old_positions, current_positions = get_journal_positions(self.index, self.user), measure_files(self.folder)
        if old_positions == current_positions or was_rewritten(old_positions, current_positions):
            return {}, {}
        replay_events = [
            memory_rows.to_replay_event(event)
            for event in read_new_events(self.folder, old_positions, current_positions, memory_rows.EVENT_TYPES)[0]
        ]
        if replay_events and replay_events[0].order <= get_last_journal_order(self.index, self.user):
            return {}, {}
        unread_by_nonce = {
            event.data["nonce"]: to_injection(event.data, event.at) for event in replay_events if _is_recall(event)
        }
        used_by_nonce: dict[str, frozenset[str]] = {}
        for event in replay_events:
            if event.type == memory_events.USED and event.data.get("nonce"):
                used_by_nonce.setdefault(event.data["nonce"], frozenset(event.data.get("cues", ())))
        return unread_by_nonce, used_by_nonce


def _is_match(injection: Injection, session: str, cue: str) -> bool:
    return (not session or injection.session == session) and (
        not cue or any(reason.cue == cue for reason in injection.reasons)
    )


def _add_judgement(injection: Injection, used_by_nonce: Mapping[str, frozenset[str]]) -> Injection:
    return replace(injection, used=used_by_nonce.get(injection.nonce)) if injection.used is None else injection


def _from_row(body: bytes, at_ms: int, used: str | None) -> Injection:
    instant = datetime.fromtimestamp(at_ms / 1000, UTC)
    used_cues = None if used is None else frozenset(msgspec.json.decode(used, type=list[str]))
    return replace(to_injection(msgspec.json.decode(body), instant), used=used_cues)


def to_injection(data: Mapping[str, Any], instant: datetime) -> Injection:
    """Build an injection from the data of an event; numbers that an older event lacks are 0."""
    cue_entries: Sequence[Mapping[str, Any]] = data.get("cues", ())
    entry_by_cue = {cue_entry["turn"]: cue_entry for cue_entry in cue_entries}
    reasons = tuple(
        CueReason(cue, entry.get("score", 0.0), entry.get("legs", {}), entry.get("n_tokens", 0))
        for cue in dict.fromkeys(data["turns"])
        for entry in [entry_by_cue.get(cue, {})]
    )
    return Injection(
        data["nonce"],
        instant,
        data.get("runtime", ""),
        data.get("session", ""),
        data.get("agent", ""),
        data.get("digest", ""),
        reasons,
        data.get("n_tokens", 0),
        data.get("n_chars", 0),
        data.get("took_ms", 0.0),
        data.get("timings_ms", {}),
        tuple(data.get("degraded", ())),
        data.get("intent", ""),
    )
