"""When `perdure eval` measured here and what it found: the journals' events of it as rows, and what they say newer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from perdure.archive.journal import places, tails, was_rewritten
from perdure.index import memories
from perdure.index.journals import read_until
from perdure.index.store import Connection
from perdure.index.values import instant, ms
from perdure.memories.replay import Noted

TYPE = "measured"


def clear(index: Connection, user: int) -> None:
    """Take away all of an owner's."""
    index.db.execute("DELETE FROM measured WHERE user = ?", (user,))


def write(index: Connection, user: int, found: Iterable[Noted]) -> None:
    """Write what these events say."""
    rows = [(user, e.order, ms(e.at), msgspec.json.encode(e.data)) for e in found if e.type == TYPE]
    index.db.executemany("INSERT OR IGNORE INTO measured VALUES (?, ?, ?, ?)", rows)


def newest(index: Connection, user: str, folder: Path, *, limit: int) -> list[Noted]:
    """The newest times, oldest first. folder: the journal, from whose end what the index has not read yet is added."""
    query = "SELECT place, at_ms, body FROM measured WHERE user = ? ORDER BY place DESC LIMIT ?"
    with index.reading():
        rows = index.rows(query, index.known("user", user), limit)
        fresh = _unread(index, user, folder)
    found = [Noted(TYPE, msgspec.json.decode(body), at, place) for place, at_ms, body in rows if (at := instant(at_ms))]
    return sorted([*found, *fresh], key=lambda event: event.order)[-limit:]


def _unread(index: Connection, user: str, folder: Path) -> list[Noted]:
    known, now = read_until(index, user), places(folder)
    if known == now or was_rewritten(known, now):
        return []
    return [memories.noted(event) for event in tails(folder, known, now, (TYPE,))[0]]
