"""Vector search in an index: which slabs there are, which rows count, what is near to a query, vectors of
known chunks.

The index file commits: the length of a slab, the row of each chunk and the holes of deleted chunks
change in the same transactions as the chunks themselves, so one snapshot of the index is one state of
the vectors. Filters become tests on the columns of the slab and narrow the scan itself. Only vectors of
one model are ever compared.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from perdure.errors import DimensionMismatch
from perdure.index import keyword
from perdure.index.encoding import MEMORY_KIND, to_ms
from perdure.index.slab import NO_TIME, Bools, Ints, NearestRows, Slab, SlabSegment, scan_nearest
from perdure.index.store import IndexConnection
from perdure.index.visibility import ReadScope
from perdure.models.embedder import Vectors, restore
from perdure.types import Filters, Live

if TYPE_CHECKING:
    from perdure.index.postgres_vectors import PostgresSlab

VECTORS_FOLDER = "vectors"
_MAX_COMPARED_NUMBERS = 4  # up to this many numbers are compared one by one: cheaper than a set lookup for each row


class SlabInfo(NamedTuple):
    """The row of a slab in the index."""

    id: int
    user: int
    tag: str  # key of the model's tag
    dimension: int
    n_rows: int  # rows written, holes included
    last_listed: int  # every chunk up to this number is on the list to be embedded
    n_left: int  # of those, how many are still to be embedded; 0 when all were
    made_by: str  # settings of the embedder, to open its model again; "" when a caller passed the embedder

    @property
    def is_complete(self) -> bool:
        """True if every chunk that was there when the list was made has its vector."""
        return self.last_listed > 0 and self.n_left == 0


_SELECT_SLAB = "SELECT id, user, tag, dimension, n_rows, listed, n_left, made_by FROM slab"


def list_slabs(index: IndexConnection, user: int | None = None) -> list[SlabInfo]:
    """Return all slabs (of an owner), oldest first."""
    return [SlabInfo(*row) for row in index.select(f"{_SELECT_SLAB} WHERE user = ?1 OR ?1 IS NULL ORDER BY id", user)]


def find_slab(index: IndexConnection, user: int, tag: str) -> SlabInfo | None:
    """Return the slab of an owner and a model, or None."""
    return next((info for info in list_slabs(index, user) if info.tag == tag), None)


def find_or_add_slab(index: IndexConnection, user: int, tag: str, dimension: int, *, made_by: str = "") -> SlabInfo:
    """Return the slab of an owner and a model; add it if it is new. Call it inside a transaction. Raises
    DimensionMismatch.
    """
    info = find_slab(index, user, tag)
    if info is None:
        index.db.execute(
            "INSERT INTO slab(user, tag, dimension, made_by) VALUES (?, ?, ?, ?)", (user, tag, dimension, made_by)
        )
        info = find_slab(index, user, tag)
        assert info is not None
    if info.dimension != dimension:
        raise DimensionMismatch(f"{tag}: {dimension} numbers, its slab has {info.dimension}")
    return info


def drop_slab(index: IndexConnection, slab_files: SlabFiles, info: SlabInfo) -> None:
    """Delete a slab from the index, then its files."""
    with index.begin_write() as db:
        for table in ("vector", "hole"):
            db.execute(f"DELETE FROM {table} WHERE slab = ?", (info.id,))
        db.execute("DELETE FROM slab WHERE id = ?", (info.id,))
    slab_files.open_slab(index, info).remove()


SlabRows: TypeAlias = "Slab | PostgresSlab"  # in files, or in the database that holds the index


class SlabFiles:
    """The open slabs of a home."""

    def __init__(self, home: Path) -> None:
        self._root = home / VECTORS_FOLDER
        self._slabs: dict[tuple[str, int], Slab] = {}

    def open_slab(self, index: IndexConnection, info: SlabInfo) -> SlabRows:
        """Return the rows of a slab: files, unless the index is in a database and has them."""
        rows: SlabRows | None = index.open_slab(info.id, info.user, info.dimension)
        if rows is not None:
            return rows
        key = (str(index.get_meta("generation")), info.id)
        if key not in self._slabs:
            self._slabs[key] = Slab(self._root / key[0] / str(info.id), info.dimension)
        return self._slabs[key]

    def delete_unused(self, generations: Iterable[str | None]) -> None:
        """Delete the slabs of indexes that no longer exist."""
        kept_generations = set(generations)
        for folder in self._root.glob("*"):
            if folder.name not in kept_generations:
                shutil.rmtree(folder, ignore_errors=True)
        self._slabs = {key: slab for key, slab in self._slabs.items() if key[0] in kept_generations}


def find_nearest(
    index: IndexConnection,
    slab: SlabRows,
    info: SlabInfo,
    queries: Vectors,
    *,
    filters: Filters,
    k: int,
    read_scope: ReadScope | None = None,
) -> list[NearestRows]:
    """Return, for each query, the nearest chunks that pass the filters; inside one snapshot. Raises
    VectorsMissing.

    read_scope: what a principal may read of a slab of another owner; None to search as the owner of the
    slab.
    """
    return prepare_search(index, slab, info, filters=filters, k=k, read_scope=read_scope)(queries)


def prepare_search(
    index: IndexConnection,
    slab: SlabRows,
    info: SlabInfo,
    *,
    filters: Filters,
    k: int,
    read_scope: ReadScope | None,
) -> Callable[[Vectors], list[NearestRows]]:
    """Return `find_nearest` as a function of the queries. For vectors in files, it no longer reads the index."""
    filter_rows = None
    if isinstance(slab, Slab):
        filter_rows = _build_row_filter(index, info, filters, _build_shared_test(index, info, read_scope))

    def find(queries: Vectors) -> list[NearestRows]:
        if queries.shape[1:] != (info.dimension,):
            raise DimensionMismatch(f"{queries.shape} against {info.tag}")
        if not isinstance(slab, Slab):
            return slab.find_nearest(queries, filters=filters, k=k, read_scope=read_scope or ReadScope(info.user))
        if filter_rows is None:
            return [NearestRows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))] * len(queries)
        return scan_nearest(slab, info.n_rows, queries, k=k, allowed=filter_rows)

    return find


def fetch_vectors(
    index: IndexConnection, slab: SlabRows, info: SlabInfo, chunks: Sequence[int]
) -> tuple[Ints, Vectors]:
    """Return (chunk numbers, their vectors) of those of these chunks that have one. Raises VectorsMissing."""
    pairs = sorted(index.select_in(_ROWS_OF_CHUNKS, chunks, info.id))
    rows = np.array([row for _, row in pairs], np.int64)
    vectors, _, _ = slab.gather(rows)
    return np.array([chunk for chunk, _ in pairs], np.int64), restore(vectors)


class VectorSpace(NamedTuple):
    """The vectors of one model that may be compared: a slab, its row in the index, and the slabs of owners who
    share theirs.
    """

    info: SlabInfo
    slab: SlabRows
    others: tuple[VectorSpace, ...] = ()

    @property
    def all_spaces(self) -> tuple[VectorSpace, ...]:
        """All slabs, one by one."""
        return (self, *self.others)

    def find_nearest(
        self, index: IndexConnection, queries: Vectors, *, filters: Filters, k: int, read_scope: ReadScope
    ) -> list[list[tuple[int, float]]]:
        """Return, for each query, the nearest readable chunks with their cosines, nearest first. Raises
        VectorsMissing.
        """
        return self.prepare_search(index, filters=filters, k=k, read_scope=read_scope)(queries)

    def prepare_search(
        self, index: IndexConnection, *, filters: Filters, k: int, read_scope: ReadScope
    ) -> Callable[[Vectors], list[list[tuple[int, float]]]]:
        """Return `find_nearest` as a function of the queries; it no longer reads the index if `is_in_files`."""
        searches = [
            prepare_search(index, space.slab, space.info, filters=filters, k=k, read_scope=read_scope)
            for space in self.all_spaces
        ]

        def find(queries: Vectors) -> list[list[tuple[int, float]]]:
            results_by_space = [search(queries) for search in searches]
            return [_merge_nearest(query_results, k) for query_results in zip(*results_by_space, strict=True)]

        return find

    @property
    def is_in_files(self) -> bool:
        """True if the vectors lie in files beside the index."""
        return isinstance(self.slab, Slab)

    def fetch_of_turns(self, index: IndexConnection, turns: Sequence[int]) -> tuple[list[int], Vectors]:
        """Return (turn of each vector, the vectors) of all chunks of these turns that have one. Raises
        VectorsMissing.
        """
        results = [space._fetch_own_of_turns(index, turns) for space in self.all_spaces]
        return [turn for space_turns, _ in results for turn in space_turns], np.concatenate(
            [vectors for _, vectors in results]
        )

    def _fetch_own_of_turns(self, index: IndexConnection, turns: Sequence[int]) -> tuple[list[int], Vectors]:
        rows = index.select_in(_ROWS_OF_TURNS, turns, self.info.id)
        vectors, _, _ = self.slab.gather(np.array([row for _, row in rows], np.int64))
        return [turn for turn, _ in rows], restore(vectors)

    def fetch_vectors(self, index: IndexConnection, chunks: Sequence[int]) -> tuple[list[int], Vectors]:
        """Return (chunks that have a vector, the vectors). Raises VectorsMissing."""
        results = [fetch_vectors(index, space.slab, space.info, chunks) for space in self.all_spaces]
        return [chunk for space_chunks, _ in results for chunk in space_chunks.tolist()], np.concatenate(
            [rows for _, rows in results]
        )


class QueryVector(NamedTuple):
    """A query as a vector, and the vectors with which it may be compared."""

    space: VectorSpace
    vector: Vectors  # (1, dimension)
    weight: float  # of the vector leg

    def score_turns(
        self, index: IndexConnection, read_scope: ReadScope, *, filters: Filters, k: int, others: Sequence[int]
    ) -> dict[int, float]:
        """Return the best cosine of each of the nearest turns, k or more, and of the others that have vectors. Raises
        VectorsMissing.
        """
        (nearest_chunks,) = self.space.find_nearest(index, self.vector, filters=filters, k=k, read_scope=read_scope)
        chunks = [chunk for chunk, _ in nearest_chunks]
        turns = {turn for (turn,) in index.select_in("SELECT turn FROM chunk WHERE id IN ({})", chunks)}
        owners, vectors = self.space.fetch_of_turns(index, sorted(turns.union(others)))
        best_cosines: dict[int, float] = {}
        for turn, cosine in zip(owners, (vectors @ self.vector[0]).tolist(), strict=True):
            best_cosines[turn] = max(cosine, best_cosines.get(turn, cosine))
        return best_cosines


def _merge_nearest(results: Sequence[NearestRows], k: int) -> list[tuple[int, float]]:
    """Return (chunk, cosine) of the k nearest of several slabs, nearest first."""
    pairs = [
        pair
        for nearest_rows in results
        for pair in zip(nearest_rows.chunks.tolist(), nearest_rows.scores.tolist(), strict=True)
    ]
    return pairs if len(results) == 1 else sorted(pairs, key=lambda pair: -pair[1])[:k]


_ROWS_OF_TURNS = """SELECT turn, row FROM chunk CROSS JOIN vector ON vector.chunk = chunk.id
  WHERE turn IN ({}) AND slab = ? AND row IS NOT NULL ORDER BY turn, n"""
_ROWS_OF_CHUNKS = "SELECT chunk, row FROM vector WHERE chunk IN ({}) AND slab = ? AND row IS NOT NULL"


# filters ------------------------------------------------------------------------------------------------------

RowTest = Callable[[SlabSegment], Bools]


def _build_shared_test(index: IndexConnection, info: SlabInfo, read_scope: ReadScope | None) -> RowTest | None:
    """Return the test of what may be read of another owner's slab; None for one's own."""
    if read_scope is None or info.user == read_scope.own_user:
        return None
    if "rows" not in read_scope.leg_cache:
        read_scope.leg_cache["rows"] = (
            _read_readable(index) if read_scope.other_owners else (np.zeros(2, np.bool_), np.zeros(0, np.int64))
        )
    runs, chunks = read_scope.leg_cache["rows"]

    def test(segment: SlabSegment) -> Bools:
        passes: Bools = np.take(runs, segment.columns["run"], mode="clip")
        if len(chunks):
            passes |= (segment.columns["run"] == 0) & np.isin(segment.columns["chunk"], chunks)
        return passes

    return test


def _read_readable(index: IndexConnection) -> tuple[Bools, Ints]:
    """Return (for each run number True if it may be read, False first and last; chunks of memories that may be
    read).
    """
    runs = np.array([run for (run,) in index.select("SELECT id FROM temp.readable WHERE id > 0")], np.int64)
    by_number = np.zeros(int(runs.max(initial=0)) + 2, np.bool_)
    by_number[runs] = True
    query = "SELECT chunk.id FROM temp.readable CROSS JOIN chunk ON chunk.turn = readable.id WHERE readable.id < 0"
    return by_number, np.array([chunk for (chunk,) in index.select(query)], np.int64)


def _build_row_filter(
    index: IndexConnection, info: SlabInfo, filters: Filters, shared_test: RowTest | None
) -> Callable[[SlabSegment], Bools | None] | None:
    """Return the function that says which rows of a segment pass the filters; None when no row can pass.

    shared_test: a further test.
    """
    numbers_by_column = _find_allowed_numbers(index, filters)
    if any(not numbers for numbers in numbers_by_column.values()):
        return None
    tests: list[RowTest] = [] if shared_test is None else [shared_test]
    tests += [_build_number_test(column, numbers) for column, numbers in numbers_by_column.items()]
    tests += _build_time_tests(filters)
    tests += [
        _build_session_test(session, number) for session, number in keyword.list_excluded_sessions(index, filters)
    ]
    memory_role = None if filters.memories else index.find_name("role", MEMORY_KIND)
    if memory_role is not None:
        tests.append(lambda segment: segment.columns["role"] != memory_role)
    facet_tests = keyword.build_facet_tests(filters)
    if facet_tests:
        tests.append(_build_row_test(_list_rows_with_facets(index, info, facet_tests)))
    holes = np.array([row for (row,) in index.select("SELECT row FROM hole WHERE slab = ? ORDER BY row", info.id)], int)
    if len(holes):
        tests.append(_build_hole_test(holes))

    def row_filter(segment: SlabSegment) -> Bools | None:
        if not tests:
            return None
        passes = tests[0](segment)
        for test in tests[1:]:
            passes &= test(segment)
        return passes

    return row_filter


def _find_allowed_numbers(index: IndexConnection, filters: Filters) -> Mapping[str, list[int]]:
    """Return column of a slab -> the numbers that it may hold."""
    numbers_by_column = {
        kind: keyword.find_name_numbers(index, kind, getattr(filters, field))
        for field, kind in keyword.KIND_BY_FILTER.items()
        if getattr(filters, field)
    }
    run_numbers = _find_allowed_runs(index, filters)
    return numbers_by_column if run_numbers is None else {**numbers_by_column, "run": sorted(run_numbers)}


def _find_allowed_runs(index: IndexConnection, filters: Filters) -> set[int] | None:
    """Return the runs that the filters name, that have every tag and began in the given range; None: no run is
    excluded.
    """
    run_sets = [set(keyword.find_run_numbers(index, filters.runs))] if filters.runs else []
    query = "SELECT run FROM run_tag JOIN name ON name.id = tag WHERE kind = 'tag' AND value = ?"
    run_sets += [{run for (run,) in index.select(query, tag)} for tag in filters.tags]
    if begun_query := keyword.build_begun_query(filters):
        run_sets.append({run for (run,) in index.select(begun_query[0], *begun_query[1])})
    return set.intersection(*run_sets) if run_sets else None


def _build_number_test(column: str, numbers: Sequence[int]) -> RowTest:
    if len(numbers) > _MAX_COMPARED_NUMBERS:
        return lambda segment: np.isin(segment.columns[column], numbers)

    def test(segment: SlabSegment) -> Bools:
        passes: Bools = segment.columns[column] == numbers[0]
        for number in numbers[1:]:
            passes |= segment.columns[column] == number
        return passes

    return test


def _build_time_tests(filters: Filters) -> list[RowTest]:
    """Return the tests of time. A chunk without a time passes none of them, as in keyword search."""
    since_ms, until_ms = to_ms(filters.since_at), to_ms(filters.until_at)
    tests: list[RowTest] = []
    if since_ms is not None:
        tests.append(lambda segment: segment.columns["stated_ms"] >= since_ms)
    if until_ms is not None:
        tests.append(
            lambda time_segment: (
                (time_segment.columns["stated_ms"] < until_ms) & (time_segment.columns["stated_ms"] != NO_TIME)
            )
        )
    return tests


def _build_session_test(session: Live, conversation: int) -> RowTest:
    """Return the test that excludes what stands in the context of a session, with or without a time."""
    since_ms = 0 if session.since_at is None else to_ms(session.since_at)

    def test(segment: SlabSegment) -> Bools:
        stated_ms = segment.columns["stated_ms"]
        passes: Bools = (segment.columns["conversation"] != conversation) | (
            (stated_ms < since_ms) & (stated_ms != NO_TIME)
        )
        return passes

    return test


def _list_rows_with_facets(
    index: IndexConnection, info: SlabInfo, facet_tests: Sequence[tuple[str, list[object]]]
) -> Ints:
    """Return the rows whose turn has the wanted facets, in order."""
    condition = " AND ".join(test for test, _ in facet_tests)
    values = [value for _, values in facet_tests for value in values]
    query = f"""SELECT vector.row FROM chunk JOIN vector ON vector.chunk = chunk.id AND slab = ?
        WHERE vector.row IS NOT NULL AND {condition} ORDER BY vector.row"""
    return np.array([row for (row,) in index.select(query, info.id, *values)], np.int64)


def _select_inside(rows: Ints, segment: SlabSegment) -> Ints:
    n_rows = len(segment.values)
    start, end = np.searchsorted(rows, (segment.first, segment.first + n_rows))
    return rows[start:end] - segment.first


def _build_row_test(rows: Ints) -> RowTest:
    def test(segment: SlabSegment) -> Bools:
        passes = np.zeros(len(segment.values), np.bool_)
        passes[_select_inside(rows, segment)] = True
        return passes

    return test


def _build_hole_test(rows: Ints) -> RowTest:
    row_test = _build_row_test(rows)
    return lambda segment: ~row_test(segment)
