"""Blocks that were put into a session's context, read from the journal: turns by id and code, never their words.

The events hold the state of a session, so a killed process loses nothing. Reads search the bytes of the
journal for the session's name and decode only the lines that contain it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.archive import host_questions
from perdure.archive.journal import (
    FilePosition,
    Journal,
    JournalEvent,
    decode_event,
    find_lines,
    measure_files,
    read_new_events,
    was_rewritten,
)
from perdure.types import Run

EVENT_TYPE = "injected"
ACTION = "action"  # kind of an injection: a fact that was told at a tool call
FLOOR = "floor"  # kind of an injection: the floor that every session gets, not recalled for a message
SHADOW = "shadow"  # event type: a block of recall that was recorded and not given, because `live.shadow` is set
USED = "used"  # event type: the cues of an injection that the answer used
QUESTION = host_questions.EVENT_TYPE  # event type: a block that asked the host's model about candidates
ASKED = "asked"  # event type: a person sent a message; recorded where reminders are counted by messages
TOOL_RUNTIME = "mcp"  # runtime of what a model requested through a tool: its session is not known
# event type: a compaction or a clear; earlier injections are no longer in the session. With "since", the session still
# holds its turns from then on.
RESET = "context-reset"


class InjectedContext(msgspec.Struct, frozen=True):
    """The content that a session has received since its context was last emptied."""

    turns: frozenset[str] = frozenset()
    since_at: datetime | None = None  # when its context was last emptied
    n_injected: int = 0  # blocks of recall since then
    has_floor: bool = False  # it received its floor, or there was no floor


def read_injected_context(
    journal: Journal, runtime: str, session: str, agent: str = "", *, with_shadow: bool = False
) -> InjectedContext:
    """Return what this session (or a sub-agent in it) has received.

    with_shadow: count the blocks that were recorded and not given, too.
    """
    turns: set[str] = set()
    since_at, n_injected, has_floor = None, 0, False
    types = (EVENT_TYPE, RESET, SHADOW) if with_shadow else (EVENT_TYPE, RESET)
    for event in _read_session_events(journal, runtime, session, *types):
        if event.data.get("agent", "") != agent:
            continue
        if event.type == RESET:
            turns, n_injected, has_floor = set(), 0, False
            since_at = datetime.fromisoformat(event.data["since"]) if "since" in event.data else event.happened_at
        elif is_floor(event):
            has_floor = True
        elif event.data.get("kind") == ACTION:
            continue
        else:
            turns.update(event.data["turns"])
            n_injected += 1
    return InjectedContext(frozenset(turns), since_at, n_injected, has_floor)


def is_floor(event: JournalEvent) -> bool:
    """Return True if an injection is a floor, so that nothing was recalled for it."""
    return event.data.get("kind") == FLOOR


def read_block_digests(journal: Journal, run: Run) -> dict[str, str]:
    """Return code -> digest of every block injected into the session of a run, or into the session that spawned it."""
    source = run.source
    sessions = {source.session, source.session.partition("/")[0], run.conversation, run.parent_session or ""}
    events = [
        event
        for name in sorted(sessions - {""})
        for event in _read_session_events(journal, source.runtime, name, EVENT_TYPE, QUESTION)
    ]
    return _index_digests(events)


def _index_digests(events: Iterable[JournalEvent]) -> dict[str, str]:
    return {event.data["nonce"]: event.data["digest"] for event in events if event.data["nonce"]}


class ToolInjections:
    """The blocks given to models that asked through a tool and did not name their session.

    Read once, and then as the journal grows.
    """

    def __init__(self, journal: Journal) -> None:
        self._root = journal.root
        self._positions: dict[str, FilePosition] = {}
        self._digests: dict[str, str] = {}

    def read_digests(self) -> dict[str, str]:
        """Return code -> digest of each block."""
        positions = measure_files(self._root)
        if positions != self._positions:
            if was_rewritten(self._positions, positions):
                self._positions = {}
            new_events, self._positions = read_new_events(self._root, self._positions, positions, (EVENT_TYPE,))
            self._digests |= _index_digests(
                event for event in new_events if _is_about_session(event.data, TOOL_RUNTIME, "")
            )
        return self._digests


class ToldFacts:
    """The facts of action that sessions were told, and when their contexts were emptied.

    Read once, and then as the journal grows: a tool call must not wait for a long journal.
    """

    def __init__(self, journal: Journal) -> None:
        self._root = journal.root
        self._positions: dict[str, FilePosition] = {}
        self._names: dict[tuple[str, str], set[str]] = {}
        self._emptied_at: dict[tuple[str, str], datetime] = {}
        self._n_silent: dict[tuple[str, str], int] = {}  # calls since a session was told something; of this process
        self._lock = threading.Lock()

    def count_call(self, runtime: str, session: str, *, is_told: bool) -> None:
        """Count a call of a session that was asked about: one more silent one, or the first after a fact."""
        with self._lock:
            self._n_silent[runtime, session] = 0 if is_told else self._n_silent.get((runtime, session), 0) + 1

    def count_silent(self, runtime: str, session: str) -> int | None:
        """Return how many calls of a session were silent since it was told something; None if it was told nothing."""
        with self._lock:
            self._follow()
            return self._n_silent.get((runtime, session), 0) if (runtime, session) in self._names else None

    def read(self, runtime: str, session: str) -> tuple[frozenset[str], datetime | None]:
        """Return (names of the facts that a session was told, when its context was last emptied)."""
        with self._lock:
            self._follow()
            key = (runtime, session)
            return frozenset(self._names.get(key, ())), self._emptied_at.get(key)

    def _follow(self) -> None:
        positions = measure_files(self._root)
        if positions == self._positions:
            return
        if was_rewritten(self._positions, positions):
            self._positions = {}
        new_events, self._positions = read_new_events(self._root, self._positions, positions, (EVENT_TYPE, RESET))
        for event in new_events:
            key = (event.data.get("runtime", ""), event.data.get("session", ""))
            if event.type == RESET:
                self._emptied_at[key] = max(event.happened_at, self._emptied_at.get(key, event.happened_at))
            elif event.data.get("kind") == ACTION:
                self._names.setdefault(key, set()).add(event.data["fact"])


def count_messages(journal: Journal, runtime: str, session: str) -> int:
    """Count the messages of a person that were recorded in this session."""
    return len(_read_session_events(journal, runtime, session, ASKED))


def list_of_kind(journal: Journal, kind: str, *, since_at: datetime) -> list[JournalEvent]:
    """Return what sessions were told since then, of the kind ACTION or FLOOR, in order."""
    month = f"{since_at.astimezone(UTC):%Y-%m}"
    lines = (
        line
        for path in journal.list_files()
        if path.stem >= month
        for line in find_lines(path, f'"kind":"{kind}"'.encode())
    )
    events = (event for line in lines if isinstance(event := decode_event(line), JournalEvent))
    told = {event.id: event for event in events if event.type == EVENT_TYPE and event.data.get("kind") == kind}
    return sorted((event for event in told.values() if event.happened_at >= since_at), key=lambda event: event.order)


def list_unjudged(journal: Journal, *, since_at: datetime) -> list[JournalEvent]:
    """Return the injections since then for which no event says what was used, in order."""
    event_by_nonce: dict[str, JournalEvent] = {}
    judged_nonces = set()
    month = f"{since_at.astimezone(UTC):%Y-%m}"
    for path in (path for path in journal.list_files() if path.stem >= month):
        for line in (*find_lines(path, b'"type":"injected"'), *find_lines(path, b'"type":"used"')):
            event = decode_event(line)
            if not isinstance(event, JournalEvent):
                continue
            if event.type == USED:
                judged_nonces.add(event.data.get("nonce"))
            elif event.type == EVENT_TYPE and event.data["turns"] and event.happened_at >= since_at:
                event_by_nonce[event.data["nonce"]] = event
    return sorted(
        (event for nonce, event in event_by_nonce.items() if nonce not in judged_nonces), key=lambda event: event.order
    )


def _read_session_events(journal: Journal, runtime: str, session: str, *types: str) -> list[JournalEvent]:
    """Return the events of these types about a session, in order."""
    needle = msgspec.json.encode({"session": session})[1:-1]
    events_by_id = {}
    for path in journal.list_files():
        for line in find_lines(path, needle):
            event = decode_event(line)
            if (
                isinstance(event, JournalEvent)
                and event.type in types
                and _is_about_session(event.data, runtime, session)
            ):
                events_by_id[event.id] = event
    return sorted(events_by_id.values(), key=lambda event: event.order)


def _is_about_session(data: dict[str, Any], runtime: str, session: str) -> bool:
    return data.get("runtime") == runtime and data.get("session") == session
