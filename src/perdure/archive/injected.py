"""What was put into a session's context, read from the journal: turns by their ids and codes, never their words.

A session's state is what its events say, so a process that was killed forgets nothing. Reads go through the bytes of
the journal for the session's name and decode only the lines that hold it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.archive.journal import Event, Journal, Read, decode, lines_with, places, tails, was_rewritten
from perdure.types import Run

TYPE = "injected"
FLOOR = "floor"  # kind of an injection: what is at hand in every session, and not what a message recalled
USED = "used"  # what of an injection the answer rested on
ASKED = "asked"  # a person sent a message; noted where reminders are counted by it
TOOL = "mcp"  # the runtime of what a model asked for by a tool: its session is not known
RESET = "context-reset"  # a compaction or a clear: the session holds nothing of what was injected before


@dataclass(frozen=True, slots=True)
class Held:
    """What a session has been given since its context was last emptied."""

    turns: frozenset[str] = frozenset()
    since_at: datetime | None = None  # when its context was last emptied
    n_injected: int = 0  # blocks of recall since then
    floor: bool = False  # it was given its floor, or there was none to give


def held(journal: Journal, runtime: str, session: str, agent: str = "") -> Held:
    """What this session (or a sub-agent in it) holds."""
    turns: set[str] = set()
    since_at, n_injected, has_floor = None, 0, False
    for event in _events(journal, runtime, session, TYPE, RESET):
        if event.data.get("agent", "") != agent:
            continue
        if event.type == RESET:
            turns, n_injected, has_floor = set(), 0, False
            since_at = event.happened_at
        elif is_floor(event):
            has_floor = True
        else:
            turns.update(event.data["turns"])
            n_injected += 1
    return Held(frozenset(turns), since_at, n_injected, has_floor)


def is_floor(event: Event) -> bool:
    """Whether an injection is a floor, which recalled nothing."""
    return event.data.get("kind") == FLOOR


def blocks(journal: Journal, run: Run) -> dict[str, str]:
    """Code -> digest of every block that was injected into the session of a run, or the one that spawned it."""
    source = run.source
    sessions = {source.session, source.session.partition("/")[0], run.conversation, run.parent_session or ""}
    events = [e for name in sorted(sessions - {""}) for e in _events(journal, source.runtime, name, TYPE)]
    return _digests(events)


def _digests(events: Iterable[Event]) -> dict[str, str]:
    return {event.data["nonce"]: event.data["digest"] for event in events if event.data["nonce"]}


class ByTool:
    """The blocks that were given to models which asked by a tool, and did not say in which session; read once, and then
    as the journal grows.
    """

    def __init__(self, journal: Journal) -> None:
        """Nothing is read yet."""
        self._root = journal.root
        self._read: dict[str, Read] = {}
        self._found: dict[str, str] = {}

    def blocks(self) -> dict[str, str]:
        """Code -> digest of each."""
        now = places(self._root)
        if now != self._read:
            if was_rewritten(self._read, now):
                self._read = {}
            fresh, self._read = tails(self._root, self._read, now, (TYPE,))
            self._found |= _digests(event for event in fresh if _is_about(event.data, TOOL, ""))
        return self._found


def n_asked(journal: Journal, runtime: str, session: str) -> int:
    """How many messages of a person were noted in this session."""
    return len(_events(journal, runtime, session, ASKED))


def unjudged(journal: Journal, *, since_at: datetime) -> list[Event]:
    """The injections since then of which nobody has said yet what was used, in order."""
    given: dict[str, Event] = {}
    judged = set()
    month = f"{since_at.astimezone(UTC):%Y-%m}"
    for path in (path for path in journal.files() if path.stem >= month):
        for line in (*lines_with(path, b'"type":"injected"'), *lines_with(path, b'"type":"used"')):
            event = decode(line)
            if not isinstance(event, Event):
                continue
            if event.type == USED:
                judged.add(event.data.get("nonce"))
            elif event.type == TYPE and event.data["turns"] and event.happened_at >= since_at:
                given[event.data["nonce"]] = event
    return sorted((event for nonce, event in given.items() if nonce not in judged), key=lambda event: event.order)


def _events(journal: Journal, runtime: str, session: str, *types: str) -> list[Event]:
    """The events of these types about a session, in order."""
    needle = msgspec.json.encode({"session": session})[1:-1]
    found = {}
    for path in journal.files():
        for line in lines_with(path, needle):
            event = decode(line)
            if isinstance(event, Event) and event.type in types and _is_about(event.data, runtime, session):
                found[event.id] = event
    return sorted(found.values(), key=lambda event: event.order)


def _is_about(data: dict[str, Any], runtime: str, session: str) -> bool:
    return data.get("runtime") == runtime and data.get("session") == session
