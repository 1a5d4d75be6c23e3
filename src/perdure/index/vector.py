"""Vectors of an index: which slabs there are, which rows count, what is near to a query, vectors of known chunks.

The index file commits: a slab's length, the row of each chunk and the holes that deleted chunks left change in the
same transactions as the chunks themselves, so one snapshot of the index is one state of the vectors. Filters become
tests on the columns of the slab and narrow the scan itself. Only vectors of one model are ever compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perdure.errors import DimensionMismatch
from perdure.index import keyword, scan
from perdure.index.scan import Bools, Near
from perdure.index.slab import NO_TIME, Ints, Segment, Slab
from perdure.index.store import Connection
from perdure.index.values import ms
from perdure.index.visible import Visible
from perdure.index.wording import MEMORY
from perdure.models.vectors import Vectors, restore
from perdure.types import Filters, Live

FOLDER = "vectors"
_MARKS = 500  # values in one IN (…)
_FEW = 4  # numbers that are compared one by one: cheaper than looking each row up in a set


class Slot(NamedTuple):
    """A slab as the index knows it."""

    id: int
    user: int
    tag: str  # key of the model's tag
    dimension: int
    n_rows: int  # rows written, holes included
    listed: int  # every chunk up to this number was listed to be embedded
    n_left: int  # of those, how many are still to be embedded; 0 when all were
    made_by: str  # settings of the embedder, for whom the index is read by; "" when it was given by a caller

    @property
    def is_complete(self) -> bool:
        """Whether everything that was there when it was begun has its vector."""
        return self.listed > 0 and self.n_left == 0


_SLOT = "SELECT id, user, tag, dimension, n_rows, listed, n_left, made_by FROM slab"


def slots(index: Connection, user: int | None = None) -> list[Slot]:
    """All slabs (of an owner), oldest first."""
    return [Slot(*row) for row in index.rows(f"{_SLOT} WHERE ?1 IS NULL OR user = ?1 ORDER BY id", user)]


def slot(index: Connection, user: int, tag: str) -> Slot | None:
    """The slab of an owner and a model, or None."""
    return next((found for found in slots(index, user) if found.tag == tag), None)


def make_slot(index: Connection, user: int, tag: str, dimension: int, *, made_by: str = "") -> Slot:
    """The slab of an owner and a model, made if need be; inside a transaction. Raises DimensionMismatch."""
    found = slot(index, user, tag)
    if found is None:
        index.db.execute(
            "INSERT INTO slab(user, tag, dimension, made_by) VALUES (?, ?, ?, ?)", (user, tag, dimension, made_by)
        )
        found = slot(index, user, tag)
        assert found is not None
    if found.dimension != dimension:
        raise DimensionMismatch(f"{tag}: {dimension} numbers, its slab has {found.dimension}")
    return found


def drop_slot(index: Connection, shelf: Shelf, slot: Slot) -> None:
    """Take a slab out of the index, then its files."""
    with index.writing() as db:
        for table in ("vector", "hole"):
            db.execute(f"DELETE FROM {table} WHERE slab = ?", (slot.id,))
        db.execute("DELETE FROM slab WHERE id = ?", (slot.id,))
    shelf.slab(index, slot).remove()


class Shelf:
    """The open slabs of a home."""

    def __init__(self, home: Path) -> None:
        """Nothing is opened yet."""
        self._root = home / FOLDER
        self._open: dict[tuple[str, int], Slab] = {}

    def slab(self, index: Connection, slot: Slot) -> Slab:
        """The files of a slab."""
        key = (str(index.meta("generation")), slot.id)
        if key not in self._open:
            self._open[key] = Slab(self._root / key[0] / str(slot.id), slot.dimension)
        return self._open[key]

    def sweep(self, generations: Iterable[str | None]) -> None:
        """Delete the slabs of indexes that are no more."""
        keep = set(generations)
        for folder in self._root.glob("*"):
            if folder.name not in keep:
                shutil.rmtree(folder, ignore_errors=True)
        self._open = {key: slab for key, slab in self._open.items() if key[0] in keep}


def near(
    index: Connection,
    slab: Slab,
    slot: Slot,
    queries: Vectors,
    *,
    filters: Filters,
    k: int,
    seen: Visible | None = None,
) -> list[Near]:
    """Per query the chunks nearest to it that the filters leave; inside one snapshot. Raises VectorsMissing.

    seen: what a principal may read, who gets nothing else of another owner's slab; None for that of its owner.
    """
    if queries.shape[1:] != (slot.dimension,):
        raise DimensionMismatch(f"{queries.shape} against {slot.tag}")
    allowed = _allowed(index, slot, filters, _shared(index, slot, seen))
    if allowed is None:
        return [Near(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))] * len(queries)
    return scan.nearest(slab, slot.n_rows, queries, k=k, allowed=allowed)


def fetch(index: Connection, slab: Slab, slot: Slot, chunks: Sequence[int]) -> tuple[Ints, Vectors]:
    """(chunk numbers, their vectors) of those of these chunks that have one. Raises VectorsMissing."""
    pairs = [pair for part in parts(chunks) for pair in _rows_of(index, slot, part)]
    rows = np.array([row for _, row in pairs], np.int64)
    vectors, _, _ = slab.gather(rows)
    return np.array([chunk for chunk, _ in pairs], np.int64), restore(vectors)


class Space(NamedTuple):
    """Where vectors of one model may be compared: a slab and what the index knows of it, and those of other owners who
    share what they have.
    """

    slot: Slot
    slab: Slab
    beside: tuple[Space, ...] = ()

    @property
    def every(self) -> tuple[Space, ...]:
        """All slabs, one by one."""
        return (self, *self.beside)

    def nearest(
        self, index: Connection, queries: Vectors, *, filters: Filters, k: int, seen: Visible
    ) -> list[list[tuple[int, float]]]:
        """Per query the nearest chunks that may be read with their cosines, nearest first. Raises VectorsMissing."""
        each = [near(index, space.slab, space.slot, queries, filters=filters, k=k, seen=seen) for space in self.every]
        return [_merged(found, k) for found in zip(*each, strict=True)]

    def of_turns(self, index: Connection, turns: Sequence[int]) -> tuple[list[int], Vectors]:
        """(turn of each vector, the vectors) of all chunks of these turns that have one. Raises VectorsMissing."""
        each = [space._of_turns(index, turns) for space in self.every]
        return [turn for found, _ in each for turn in found], np.concatenate([vectors for _, vectors in each])

    def _of_turns(self, index: Connection, turns: Sequence[int]) -> tuple[list[int], Vectors]:
        rows = [row for part in parts(turns) for row in index.rows(_OF_TURNS.format(_marks(part)), self.slot.id, *part)]
        vectors, _, _ = self.slab.gather(np.array([row for _, row in rows], np.int64))
        return [turn for turn, _ in rows], restore(vectors)

    def vectors(self, index: Connection, chunks: Sequence[int]) -> tuple[list[int], Vectors]:
        """(chunks that have a vector, the vectors). Raises VectorsMissing."""
        each = [fetch(index, space.slab, space.slot, chunks) for space in self.every]
        return [chunk for found, _ in each for chunk in found.tolist()], np.concatenate([rows for _, rows in each])


def _merged(found: Sequence[Near], k: int) -> list[tuple[int, float]]:
    """(chunk, cosine) of the k nearest of several slabs, nearest first."""
    pairs = [pair for each in found for pair in zip(each.chunks.tolist(), each.scores.tolist(), strict=True)]
    return pairs if len(found) == 1 else sorted(pairs, key=lambda pair: -pair[1])[:k]


_OF_TURNS = """SELECT turn, row FROM chunk CROSS JOIN vector ON vector.chunk = chunk.id AND slab = ?
  WHERE turn IN ({}) AND row IS NOT NULL ORDER BY turn, n"""


def _marks(values: Sequence[int]) -> str:
    return ", ".join("?" * len(values))


def parts(values: Sequence[int]) -> list[Sequence[int]]:
    """Values in groups small enough for one IN (…)."""
    return [values[low : low + _MARKS] for low in range(0, len(values), _MARKS)]


def _rows_of(index: Connection, slot: Slot, chunks: Sequence[int]) -> list[tuple[Any, ...]]:
    marks = ", ".join("?" * len(chunks))
    query = f"SELECT chunk, row FROM vector WHERE slab = ? AND row IS NOT NULL AND chunk IN ({marks}) ORDER BY chunk"
    return index.rows(query, slot.id, *chunks)


# filters ------------------------------------------------------------------------------------------------------

Test = Callable[[Segment], Bools]


def _shared(index: Connection, slot: Slot, seen: Visible | None) -> Test | None:
    """The test of what may be read of another owner's slab; None for one's own."""
    if seen is None or slot.user == seen.own:
        return None
    if "rows" not in seen.kept:
        seen.kept["rows"] = _readable(index) if seen.owners else (np.zeros(2, np.bool_), np.zeros(0, np.int64))
    runs, chunks = seen.kept["rows"]

    def test(segment: Segment) -> Bools:
        found: Bools = np.take(runs, segment.columns["run"], mode="clip")
        if len(chunks):
            found |= (segment.columns["run"] == 0) & np.isin(segment.columns["chunk"], chunks)
        return found

    return test


def _readable(index: Connection) -> tuple[Bools, Ints]:
    """(for each number of a run whether it may be read, False first and last; chunks of memories that may be)."""
    runs = np.array([run for (run,) in index.rows("SELECT id FROM temp.readable WHERE id > 0")], np.int64)
    by_number = np.zeros(int(runs.max(initial=0)) + 2, np.bool_)
    by_number[runs] = True
    query = "SELECT chunk.id FROM temp.readable CROSS JOIN chunk ON chunk.turn = readable.id WHERE readable.id < 0"
    return by_number, np.array([chunk for (chunk,) in index.rows(query)], np.int64)


def _allowed(
    index: Connection, slot: Slot, filters: Filters, shared: Test | None
) -> Callable[[Segment], Bools | None] | None:
    """Which rows of a segment the filters leave; None when they can leave none at all. shared: a further test."""
    named = _named(index, filters)
    if any(not numbers for numbers in named.values()):
        return None
    tests: list[Test] = [] if shared is None else [shared]
    tests += [_one_of(column, numbers) for column, numbers in named.items()]
    tests += _times(filters)
    tests += [_not_held(live, number) for live, number in keyword.held(index, filters)]
    memory = None if filters.memories else index.known("role", MEMORY)
    if memory is not None:
        tests.append(lambda segment: segment.columns["role"] != memory)
    listed = keyword.facet_tests(filters)
    if listed:
        tests.append(_among(_rows_with(index, slot, listed)))
    holes = np.array([row for (row,) in index.rows("SELECT row FROM hole WHERE slab = ? ORDER BY row", slot.id)], int)
    if len(holes):
        tests.append(_not_among(holes))

    def allowed(segment: Segment) -> Bools | None:
        if not tests:
            return None
        found = tests[0](segment)
        for test in tests[1:]:
            found &= test(segment)
        return found

    return allowed


def _named(index: Connection, filters: Filters) -> Mapping[str, list[int]]:
    """Column of a slab -> the numbers that it may hold."""
    found = {
        kind: keyword.numbers(index, kind, getattr(filters, field))
        for field, kind in keyword.KIND_OF.items()
        if getattr(filters, field)
    }
    runs = _runs(index, filters)
    return found if runs is None else {**found, "run": sorted(runs)}


def _runs(index: Connection, filters: Filters) -> set[int] | None:
    """The runs that the filters name, that have every tag and began when it is asked for; None: they limit no run."""
    found = [set(keyword.runs_named(index, filters.runs))] if filters.runs else []
    query = "SELECT run FROM run_tag JOIN name ON name.id = tag WHERE kind = 'tag' AND value = ?"
    found += [{run for (run,) in index.rows(query, tag)} for tag in filters.tags]
    if begun := keyword.runs_begun(filters):
        found.append({run for (run,) in index.rows(begun[0], *begun[1])})
    return set.intersection(*found) if found else None


def _one_of(column: str, numbers: Sequence[int]) -> Test:
    if len(numbers) > _FEW:
        return lambda segment: np.isin(segment.columns[column], numbers)

    def test(segment: Segment) -> Bools:
        found: Bools = segment.columns[column] == numbers[0]
        for number in numbers[1:]:
            found |= segment.columns[column] == number
        return found

    return test


def _times(filters: Filters) -> list[Test]:
    """A chunk without a time passes no test of time, as in keyword search."""
    since, until = ms(filters.since_at), ms(filters.until_at)
    tests: list[Test] = []
    if since is not None:
        tests.append(lambda segment: segment.columns["stated_ms"] >= since)
    if until is not None:
        tests.append(lambda s: (s.columns["stated_ms"] < until) & (s.columns["stated_ms"] != NO_TIME))
    return tests


def _not_held(live: Live, conversation: int) -> Test:
    """What a session holds passes not, whether it has a time or none."""
    since = 0 if live.since_at is None else ms(live.since_at)

    def test(segment: Segment) -> Bools:
        at = segment.columns["stated_ms"]
        found: Bools = (segment.columns["conversation"] != conversation) | ((at < since) & (at != NO_TIME))
        return found

    return test


def _rows_with(index: Connection, slot: Slot, listed: Sequence[tuple[str, list[object]]]) -> Ints:
    """Rows whose turn has the facets that were asked for, in order."""
    where = " AND ".join(test for test, _ in listed)
    values = [value for _, values in listed for value in values]
    query = f"""SELECT vector.row FROM chunk JOIN vector ON vector.chunk = chunk.id AND slab = ?
        WHERE vector.row IS NOT NULL AND {where} ORDER BY vector.row"""
    return np.array([row for (row,) in index.rows(query, slot.id, *values)], np.int64)


def _inside(rows: Ints, segment: Segment) -> Ints:
    n = len(segment.values)
    low, high = np.searchsorted(rows, (segment.first, segment.first + n))
    return rows[low:high] - segment.first


def _among(rows: Ints) -> Test:
    def test(segment: Segment) -> Bools:
        found = np.zeros(len(segment.values), np.bool_)
        found[_inside(rows, segment)] = True
        return found

    return test


def _not_among(rows: Ints) -> Test:
    among = _among(rows)
    return lambda segment: ~among(segment)
