"""Filling a slab: which chunks lack a vector, their words, and writing what an embedder made of them.

Behind the keyword index, in parts, each part one transaction: whatever ends it, the next call goes on. What came in
since goes before what is old. A text for which a model has no vector is noted, so that it is not asked for for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from perdure.errors import TextRefused
from perdure.index import vector
from perdure.index.slab import NO_TIME, NOTHING, NUMBERS, Fields, Slab
from perdure.index.store import Connection
from perdure.index.vector import Shelf, Slot
from perdure.index.wording import POLICIES, Policy, name_of, worded
from perdure.models.vectors import Vectors

PART = 64  # chunks embedded between two commits: a few seconds of the slowest local model

Lane = Literal["ingest", "bulk"]
Embed = Callable[[Sequence[str], Lane], Vectors]  # documents to vectors; a row of zeros says nothing of its text


class Waiting(NamedTuple):
    """A chunk that is to get a vector."""

    fields: Fields
    words: str


@dataclass
class Filled:
    """What a filling did."""

    n_done: int = 0
    n_refused: int = 0  # texts that the model has no vector for
    n_left: int = 0


def fill(
    index: Connection,
    shelf: Shelf,
    slot: Slot,
    embed: Embed,
    *,
    most: int | None = None,
    limit_s: float | None = None,
    fresh_only: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Filled:
    """Embed what a slab lacks, at most so many chunks or seconds. progress gets (done, all) after each part.

    fresh_only: what came in since the list was made; what is left of the list is not looked at, which takes long.
    Raises ModelFault when the embedder fails; what was done until then stays.
    """
    done, queue = Filled(), _Queue(index, slot, fresh_only=fresh_only)
    deadline = None if limit_s is None else time.monotonic() + limit_s
    while (most is None or done.n_done < most) and (deadline is None or time.monotonic() < deadline):
        part, lane = queue.next(PART if most is None else min(PART, most - done.n_done))
        if not part:
            break
        waiting = list(_waiting(index, part))
        vectors = _embedded(embed, [item.words for item in waiting], lane)
        if not write(index, shelf, queue.slot, waiting, vectors, listed=queue.listed, n_left=len(queue)):
            break
        done.n_done += len(waiting)
        done.n_refused += int((~vectors.any(axis=1)).sum())
        if progress:
            progress(done.n_done, done.n_done + len(queue))
    done.n_left = len(queue)
    return done


def _embedded(embed: Embed, texts: Sequence[str], lane: Lane) -> Vectors:
    """Their vectors; a text that the model refuses costs only itself."""
    try:
        return embed(texts, lane)
    except TextRefused:
        if len(texts) == 1:
            return np.zeros((1, 0), np.float32)
    half = len(texts) // 2
    parts = [_embedded(embed, texts[:half], lane), _embedded(embed, texts[half:], lane)]
    width = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])


class _Queue:
    """The chunks that lack a vector: what came in since it was begun first, then by policy, newest first."""

    def __init__(self, index: Connection, slot: Slot, *, fresh_only: bool) -> None:
        self.slot = slot
        self.listed = slot.listed if fresh_only or slot.n_left == 0 else 0
        self._n_apart = slot.n_left if fresh_only else 0  # left of the list, and not in this queue
        self._index = index
        self._old: list[int] = []
        self._begun = slot.is_complete or fresh_only

    def next(self, n: int) -> tuple[list[int], Lane]:
        """The next chunks, and the lane that they go by."""
        self._slot_now()
        fresh = self._fresh()
        self._old = fresh + self._old
        part, self._old = self._old[:n], self._old[n:]
        lane: Lane = "ingest" if self._begun and len(part) <= len(fresh) else "bulk"
        self._begun = True
        if not part and self.listed != self.slot.listed:
            _note(self._index, self.slot, self.listed, len(self))
        return part, lane

    def _slot_now(self) -> None:
        found = [slot for slot in vector.slots(self._index) if slot.id == self.slot.id]
        self.slot = found[0] if found else self.slot

    def _fresh(self) -> list[int]:
        with self._index.reading():
            fresh = missing(self._index, self.slot, after=self.listed)
            self.listed = max(self.listed, newest(self._index))
        return fresh

    def __len__(self) -> int:
        return len(self._old) + self._n_apart


def _note(index: Connection, slot: Slot, listed: int, n_left: int) -> None:
    with index.writing() as db:
        db.execute("UPDATE slab SET listed = ?, n_left = ? WHERE id = ?", (listed, n_left, slot.id))


# what is missing ----------------------------------------------------------------------------------------------


def newest(index: Connection) -> int:
    """The number of the newest chunk of all, 0 where there is none."""
    return int(index.rows("SELECT coalesce(max(id), 0) FROM chunk")[0][0])


def missing(index: Connection, slot: Slot, *, after: int = 0) -> list[int]:
    """Chunks with a higher number than `after` that are to have a vector and have none, in order of policy."""
    found: list[int] = []
    for policy in POLICIES:
        where, values = _lacking(index, slot, policy, after)
        query = f"SELECT chunk.id FROM {_FROM} WHERE {where} ORDER BY chunk.id DESC"
        found += [key for (key,) in index.rows(query, *values)]
    return found


def n_missing(index: Connection, slot: Slot) -> int:
    """How many chunks lack a vector: those left of the list, and what came in since."""
    found = slot.n_left
    for policy in POLICIES:
        where, values = _lacking(index, slot, policy, slot.listed)
        found += index.rows(f"SELECT count(*) FROM {_FROM} WHERE {where}", *values)[0][0]
    return found


def counts(index: Connection, slot: Slot) -> tuple[int, int, int]:
    """(chunks embedded, chunks missing, texts for which the model has no vector) of a slab."""
    query = "SELECT count(row), count(*) - count(row) FROM vector WHERE slab = ?"
    n_embedded, n_refused = index.rows(query, slot.id)[0]
    return n_embedded, n_missing(index, slot), n_refused


def oldest_waiting_s(index: Connection, slot: Slot | None) -> float | None:
    """Seconds since the oldest capture that came after a slab's list was made; None when nothing waits."""
    if slot is None:
        return None
    query = "SELECT min(captured_ms) FROM run WHERE id IN (SELECT DISTINCT run FROM chunk WHERE id > ?)"
    oldest = index.rows(query, slot.listed)[0][0]
    return None if oldest is None else max(0.0, time.time() - oldest / 1000)


def _lacking(index: Connection, slot: Slot, policy: Policy, after: int) -> tuple[str, list[object]]:
    """(tests of `chunk JOIN turn`, their values). Of what nobody typed, only the first chunk of a part is embedded."""
    tests = ["chunk.id > ?", "chunk.user = ?", "chunk.kind = ?", f"(author IS NULL OR author = 'person' OR {_FIRST})"]
    if policy.by_people is not None:
        tests.append("author = 'person'" if policy.by_people else "author <> 'person'")
    tests.append("NOT EXISTS (SELECT 1 FROM vector WHERE vector.chunk = chunk.id AND slab = ?)")
    return " AND ".join(tests), [after, slot.user, index.known("kind", policy.kind), slot.id]


_FIRST = """NOT EXISTS (SELECT 1 FROM chunk AS before
  WHERE before.turn = chunk.turn AND before.n = chunk.n - 1 AND before.kind = chunk.kind)"""
_FROM = "chunk LEFT JOIN turn ON turn.id = chunk.turn"  # a memory has no turn


def _waiting(index: Connection, chunks: Sequence[int]) -> Iterator[Waiting]:
    """What is to be embedded of these chunks; those that are gone by now are left out."""
    marks = ", ".join("?" * len(chunks))
    query = f"""SELECT chunk.id, tie, chunk.stated_ms, {", ".join(f"chunk.{name}" for name in NUMBERS)},
          turn.author, turn.role, text FROM {_FROM} JOIN chunk_text ON chunk_text.id = chunk.id
        WHERE chunk.id IN ({marks}) ORDER BY chunk.id"""
    n_fields = 3 + len(NUMBERS)
    for row in index.rows(query, *chunks):
        key, tie, stated_ms = row[:3]
        numbers = tuple(NOTHING if number is None else number for number in row[3:n_fields])
        fields = Fields(key, tie, NO_TIME if stated_ms is None else stated_ms, numbers)
        author, role, text = row[n_fields:]
        yield Waiting(fields, worded(author, role, stated_ms, text))


# writing ------------------------------------------------------------------------------------------------------


def write(
    index: Connection,
    shelf: Shelf,
    slot: Slot,
    waiting: Sequence[Waiting],
    vectors: Vectors,
    *,
    listed: int,
    n_left: int,
) -> bool:
    """Put vectors into a slab in one transaction; False when the slab is no more. Chunks that went away meanwhile,
    or got a vector, are passed over; a row of zeros notes that the model has none.
    """
    slab = shelf.slab(index, slot)
    with index.writing() as db:
        rows = index.rows("SELECT n_rows FROM slab WHERE id = ?", slot.id)
        if not rows:
            return False
        n_rows = int(rows[0][0])
        due = _still_due(index, slot, [item.fields.chunk for item in waiting])
        due_places = [n for n, item in enumerate(waiting) if item.fields.chunk in due]
        kept = [n for n in due_places if vectors[n].any()]
        nothing = [waiting[n].fields.chunk for n in due_places if not vectors[n].any()]
        if kept:
            slab.append(n_rows, [waiting[n].fields for n in kept], vectors[kept])
        placed = [(waiting[n].fields.chunk, slot.id, n_rows + at) for at, n in enumerate(kept)]
        db.executemany("INSERT INTO vector VALUES (?, ?, ?)", placed)
        db.executemany("INSERT INTO vector VALUES (?, ?, NULL)", [(chunk, slot.id) for chunk in nothing])
        update = "UPDATE slab SET n_rows = ?, listed = ?, n_left = ? WHERE id = ?"
        db.execute(update, (n_rows + len(kept), listed, n_left, slot.id))
    return True


def _still_due(index: Connection, slot: Slot, chunks: Sequence[int]) -> set[int]:
    found: set[int] = set()
    for part in vector.parts(chunks):
        marks = ", ".join("?" * len(part))
        query = f"""SELECT id FROM chunk WHERE id IN ({marks})
            AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.chunk = chunk.id AND slab = ?)"""
        found |= {key for (key,) in index.rows(query, *part, slot.id)}
    return found


def carry(
    index: Connection, shelf: Shelf, slot: Slot, known: Callable[[Sequence[bytes]], tuple[Sequence[int], Vectors]]
) -> int:
    """Fill a slab from vectors that are there already; returns how many chunks still lack one.

    known: hashes of words -> (which of them are known, their vectors).
    """
    todo = missing(index, slot)
    listed = index.rows("SELECT coalesce(max(id), 0) FROM chunk")[0][0]
    n_left = len(todo)
    for part in vector.parts(todo):
        waiting = list(_waiting(index, part))
        places, vectors = known([name_of(item.words) for item in waiting])
        n_left -= len(places)
        write(index, shelf, slot, [waiting[n] for n in places], vectors, listed=listed, n_left=n_left)
    return n_left


# forgetting ---------------------------------------------------------------------------------------------------


class Gone(NamedTuple):
    """Words that left the index with a chunk."""

    seen: tuple[tuple[bytes, int], ...]  # (their name, the last chunk number when they left), as noted
    names: tuple[bytes, ...]  # of those that stand in no chunk that came since: for the cache to delete


def gone(index: Connection) -> Gone:
    """What left the index since this was last settled."""
    with index.reading():
        seen = index.rows("SELECT name, after FROM gone ORDER BY name")
        names = {name for name, _ in seen}
        since = min((after for _, after in seen), default=0)
        fresh = [key for (key,) in index.rows("SELECT id FROM chunk WHERE id > ?", since)] if seen else []
        for part in vector.parts(fresh):
            names -= {name_of(item.words) for item in _waiting(index, part)}
    return Gone(tuple((name, after) for name, after in seen), tuple(sorted(names)))


def settle(index: Connection, gone: Gone) -> None:
    """The cache has deleted them; what left again meanwhile stays noted."""
    with index.writing() as db:
        db.executemany("DELETE FROM gone WHERE name = ? AND after = ?", gone.seen)


def is_unsettled(index: Connection) -> bool:
    """Whether vectors of deleted chunks are still on disk."""
    query = "SELECT EXISTS (SELECT 1 FROM gone) OR EXISTS (SELECT 1 FROM hole WHERE wiped = 0)"
    return bool(index.rows(query)[0][0])


def wipe(index: Connection, shelf: Shelf) -> int:
    """Put zeros over the vectors of deleted chunks; returns how many. Only after the deletion is safely on disk:
    a power failure that brought the chunks back would else find them without their vectors.
    """
    n = 0
    for slot in vector.slots(index):
        rows = [row for (row,) in index.rows("SELECT row FROM hole WHERE slab = ? AND wiped = 0", slot.id)]
        slab: Slab = shelf.slab(index, slot)
        if not rows or not slab.is_whole(slot.n_rows):
            continue
        slab.wipe(np.array(rows, np.int64))
        with index.writing() as db:
            db.executemany("UPDATE hole SET wiped = 1 WHERE slab = ? AND row = ?", [(slot.id, row) for row in rows])
        n += len(rows)
    return n
