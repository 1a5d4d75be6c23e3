"""Memories as the index has them, found again. Reads only; `follow` writes them.

A memory that is not retired has one piece in `chunk`, under its own number below zero in the place of a turn's, so
that words, vectors and filters find it as they find turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from perdure.access.redact import mask
from perdure.archive.journal import Event
from perdure.index import visible
from perdure.index.store import Connection
from perdure.index.visible import Visible
from perdure.memories import events
from perdure.memories.replay import Chain, Noted, settled
from perdure.types import Memory, Span

TYPES = (events.TYPE, events.USED, events.INJECTED)  # of events that say something of memories
_MARKS = 500  # values in one IN (…)


def noted(event: Event) -> Noted:
    """An event as the replay reads it."""
    at = datetime.fromisoformat(event.at.partition("#")[0])
    return Noted(event.type, event.data, at, f"{event.at}|{event.writer}|{event.seq:010d}")


def every(index: Connection, user: str, where: str = "1", *values: Any) -> list[Memory]:
    """An owner's memories that pass a test of the table's columns, newest first."""
    number = index.known("user", user)
    if number is None:
        return []
    query = f"SELECT body FROM memory WHERE user = ? AND {where} ORDER BY stated_ms DESC, memory_id"
    return [decoded(body) for (body,) in index.rows(query, number, *values)]


def of_ids(index: Connection, user: str, ids: Sequence[str]) -> list[Memory]:
    """An owner's memories by their ids; those that there are."""
    number = index.known("user", user)
    return list(numbered(index, list(numbers(index, number, ids).values())).values()) if number else []


class Use(msgspec.Struct, frozen=True):
    """What came of showing a memory: the few fields of it that are read where there are many."""

    memory_id: str
    path: str
    kind: str
    how: str
    pinned: bool
    retired: bool
    superseded_by: str | None
    n_injected: int
    n_used: int

    @property
    def is_current(self) -> bool:
        """Whether it is what its chain says now."""
        return self.superseded_by is None and not self.retired


_use_decoder = msgspec.json.Decoder(Use)


def uses(index: Connection, user: str) -> list[Use]:
    """What came of showing each of an owner's memories."""
    rows = index.rows("SELECT body FROM memory WHERE user = ?", index.known("user", user))
    return [_use_decoder.decode(body) for (body,) in rows]


def of_chain(index: Connection, user: str, chain: Chain) -> list[Memory]:
    """The memories of a chain, oldest first."""
    found = every(index, user, "agent = ? AND project = ? AND place = ?", *chain)
    return sorted(found, key=lambda memory: (memory.stated_at, memory.order))


def numbered(index: Connection, keys: Sequence[int]) -> dict[int, Memory]:
    """Memories by their numbers, whosever they are."""
    return {key: memory for key, (_, memory) in _rows(index, keys).items()}


def _rows(index: Connection, keys: Sequence[int]) -> dict[int, tuple[int, Memory]]:
    """(owner, memory) by number."""
    found: dict[int, tuple[int, Memory]] = {}
    for low in range(0, len(keys), _MARKS):
        part = keys[low : low + _MARKS]
        query = f"SELECT id, user, body FROM memory WHERE id IN ({', '.join('?' * len(part))})"
        found |= {key: (user, decoded(body)) for key, user, body in index.rows(query, *part)}
    return found


# what others share ----------------------------------------------------------------------------------------------


def readable(index: Connection, seen: Visible, keys: Sequence[int]) -> dict[int, Memory]:
    """Those of these memories, by their numbers, that may be read, as they may be read."""
    rows = _rows(index, keys)
    found = {key: memory for key, (user, memory) in rows.items() if user == seen.own}
    others = visible.is_readable(index, seen, (-key for key in rows if key not in found))
    for key in sorted(-number for number in others):
        found[key] = next(memory for other, memory in shared_chain(index, seen, key) if other == key)
    return found


def shared_chain(
    index: Connection, seen: Visible, key: int, *, as_of: datetime | None = None
) -> list[tuple[int, Memory]]:
    """(number, memory) of what may be read of the chain of another's memory, oldest first: what is current is settled
    among these alone, by what had been stated until `as_of`.
    """
    if not seen.owners:
        return []
    query = f"""SELECT memory.id, owner.value, memory.body FROM memory AS one
        JOIN memory ON memory.user = one.user AND memory.agent = one.agent AND memory.project = one.project
          AND memory.place = one.place JOIN name AS owner ON owner.id = memory.user
        WHERE one.id = ? AND {visible.IS_MEMORY}"""
    rows = {key: (owner, decoded(body)) for key, owner, body in index.rows(query, key)}
    known = {memory.memory_id: number for number, (_, memory) in rows.items()}
    alive = [memory for _, memory in rows.values() if as_of is None or memory.stated_at <= as_of]
    return [(known[m.memory_id], _shown(m, rows[known[m.memory_id]][0])) for m in settled(alive)]


def shared(index: Connection, seen: Visible, where: str = "1", *values: Any) -> list[Memory]:
    """The memories of others that may be read and pass a test of the table's columns, newest first."""
    if not seen.owners:
        return []
    keys = [key for (key,) in index.rows(f"SELECT id FROM memory WHERE {visible.IS_MEMORY} AND {where}", *values)]
    return sorted(readable(index, seen, keys).values(), key=lambda m: (-m.stated_at.timestamp(), m.memory_id))


def _shown(memory: Memory, owner: str) -> Memory:
    """A memory as its owner shares it: not as the reader's own words, and without what its owner did with it, or with
    what it was made from."""
    return replace(
        memory, shared_by=owner, trust="agent" if memory.trust == "owner" else memory.trust, text=mask(memory.text),
        path=mask(memory.path), project=mask(memory.project) if memory.project else None,
        conversation=mask(memory.conversation), entities=tuple(map(mask, memory.entities)),
        n_stated=max(1, len(memory.sources)), n_injected=0, n_used=0, renewed_at=None, used_at=None, stability=1.0,
        pinned=False, confidence=1.0, order="", made_from=(),
    )  # fmt: skip


def numbers(index: Connection, user: int, ids: Sequence[str]) -> dict[str, int]:
    """The numbers of an owner's memories by their ids."""
    found: dict[str, int] = {}
    for low in range(0, len(ids), _MARKS):
        part = ids[low : low + _MARKS]
        query = f"SELECT memory_id, id FROM memory WHERE user = ? AND memory_id IN ({', '.join('?' * len(part))})"
        found |= dict(index.rows(query, user, *part))
    return found


def from_turns(index: Connection, turns: Sequence[int]) -> dict[int, list[int]]:
    """Turn number -> numbers of the memories that were made of it."""
    found: dict[int, list[int]] = {}
    for low in range(0, len(turns), _MARKS):
        part = turns[low : low + _MARKS]
        query = f"""SELECT turn.id, memory FROM turn JOIN run ON run.id = turn.content_run
            JOIN memory_source AS source ON source.run_id = run.captured_in
              AND content_offset >= source.from_offset AND content_offset < source.to_offset
            WHERE turn.id IN ({", ".join("?" * len(part))}) ORDER BY turn.id, memory"""
        for turn, memory in index.rows(query, *part):
            found.setdefault(turn, []).append(memory)
    return found


def turns_of(index: Connection, memory: Memory) -> list[tuple[Span, str | None]]:
    """Each source of a memory, with the id of the first turn that stands there; None when there is none any more."""
    return [(span, turn_in(index, span)) for span in memory.sources]


def turn_in(index: Connection, span: Span) -> str | None:
    """The id of the first turn that stands there; None when there is none any more."""
    query = """SELECT turn_id FROM turn JOIN run ON run.id = turn.content_run WHERE run.captured_in = ?
        AND content_offset >= ? AND content_offset < ? ORDER BY content_offset LIMIT 1"""
    return next((str(row[0]) for row in index.rows(query, *span)), None)


def mined(index: Connection, user: str) -> dict[str, list[tuple[int, int]]]:
    """Source -> the stretches of it that were mined, in order."""
    number = index.known("user", user)
    query = "SELECT source, from_offset, to_offset FROM mined WHERE user = ? ORDER BY source, from_offset"
    found: dict[str, list[tuple[int, int]]] = {}
    for source, low, high in index.rows(query, number) if number is not None else ():
        found.setdefault(source, []).append((low, high))
    return found


def decoded(body: bytes) -> Memory:
    """The memory of a row."""
    return msgspec.json.decode(body, type=Memory)
