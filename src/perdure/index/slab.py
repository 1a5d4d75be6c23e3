"""Slabs: the vectors of one owner and one model in one index, and the exact scan over them. No index, no
SQL.

Derived. A slab lies in segment files that are mapped, never loaded. A segment has room for
ROWS_PER_SEGMENT rows and stores them column by column: for each row the number of its chunk, the values
that filters test (so that a filter narrows the scan itself), and the vector in int8 with its scale, as
the cache has it. The index file says how many rows count, in the transaction that names their chunks;
rows that a crash left after these are overwritten. A row is written once; forgetting it overwrites it
with zeros. The writer holds the write lock of the index.

The scan compares every row that the filters leave with every query and keeps the best. Products are
taken between int8 numbers, whole and without rounding, so every kernel gives the same scores. The best
rows are ordered again by the exact query, in float; equal scores are ordered by the tie number of their
chunk.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perdure.disk import make_folder, map_os_errors
from perdure.errors import DimensionMismatch, VectorRefused, VectorsMissing
from perdure.models.embedder import QuantisedVectors, Vectors, quantise

ROWS_PER_SEGMENT = 16384  # in a segment: 7 MB at 384 numbers a vector; empty rows take no room on disk
NUMBER_COLUMNS = ("run", "project", "conversation", "runtime", "machine", "agent", "role", "kind")
NO_NUMBER = -1  # stands for the number of a missing name
NO_TIME = np.iinfo(np.int64).min  # stands for an unknown time
_WIDE_COLUMNS = ("chunk", "tie", "stated_ms")

Ints = npt.NDArray[np.int64]


class ChunkFields(NamedTuple):
    """The values of a row besides its vector."""

    chunk: int
    tie: int
    stated_ms: int  # or NO_TIME
    numbers: tuple[int, ...]  # as NUMBERS; NOTHING where there is none


class SlabSegment(NamedTuple):
    """Some rows of a slab, mapped; each array has one entry per row."""

    first: int  # number of its first row in the slab
    columns: Mapping[str, npt.NDArray[Any]]  # chunk, tie, stated_ms: int64; scale: float32; NUMBERS: int32
    values: npt.NDArray[np.int8]  # (n, dimension): times scale, the vectors


class Slab:
    """The files of one slab. A read maps the segments that it needs and keeps them mapped; threads may share it."""

    def __init__(self, folder: Path, dimension: int) -> None:
        self.folder = folder
        self.dimension = dimension
        self._layout, self._segment_bytes = _compute_layout(dimension)
        self._mapped_columns: dict[int, Mapping[str, npt.NDArray[Any]]] = {}

    def iter_segments(self, n_rows: int) -> Iterator[SlabSegment]:
        """Yield the first `n_rows` rows, segment by segment. Raises VectorsMissing."""
        for first in range(0, n_rows, ROWS_PER_SEGMENT):
            n = min(ROWS_PER_SEGMENT, n_rows - first)
            yield self._get_segment(first // ROWS_PER_SEGMENT, n)

    def gather(self, rows: Ints) -> tuple[QuantisedVectors, Ints, Ints]:
        """Return (vectors, chunk numbers, ties) of some rows, in the order given. Raises VectorsMissing."""
        vectors = QuantisedVectors(np.zeros((len(rows), self.dimension), np.int8), np.zeros(len(rows), np.float32))
        chunks, ties = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for number in _list_segments(rows):
            positions = np.flatnonzero(rows // ROWS_PER_SEGMENT == number)
            rows_inside = rows[positions] % ROWS_PER_SEGMENT
            segment = self._get_segment(number, ROWS_PER_SEGMENT)
            vectors.values[positions], vectors.scales[positions] = (
                segment.values[rows_inside],
                segment.columns["scale"][rows_inside],
            )
            chunks[positions], ties[positions] = (
                segment.columns["chunk"][rows_inside],
                segment.columns["tie"][rows_inside],
            )
        return vectors, chunks, ties

    def _get_segment(self, number: int, n: int) -> SlabSegment:
        mapped_columns = self._mapped_columns.get(number)
        if mapped_columns is None:  # another thread may map it too: the same bytes
            mapped_columns = self._mapped_columns[number] = self._map_segment(number)
        columns = {name: column[:n] for name, column in mapped_columns.items() if name != "values"}
        return SlabSegment(number * ROWS_PER_SEGMENT, columns, mapped_columns["values"][:n])

    def _map_segment(self, number: int) -> Mapping[str, npt.NDArray[Any]]:
        path = self._to_path(number)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise VectorsMissing(str(path)) from error
        try:
            if os.fstat(descriptor).st_size != self._segment_bytes:
                raise VectorsMissing(f"{path} (cut short)")
            view = mmap.mmap(descriptor, self._segment_bytes, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        return {
            name: np.frombuffer(view, layout.type, ROWS_PER_SEGMENT * layout.width, layout.offset).reshape(layout.shape)
            for name, layout in self._layout.items()
        }

    def _to_path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.segment"

    def append(self, n_rows: int, fields: Sequence[ChunkFields], vectors: Vectors) -> None:
        """Write rows after the first `n_rows`, durably. They count once the index says so.

        vectors: (n, dimension). Raises VectorRefused for rows of zeros, NaN or infinity; DimensionMismatch.
        """
        if vectors.shape != (len(fields), self.dimension):
            raise DimensionMismatch(f"{vectors.shape} in a slab of {self.dimension}")
        if not np.isfinite(vectors).all() or not vectors.any(axis=1).all():
            raise VectorRefused(f"{len(vectors)} rows of {self.dimension}")
        quantised = quantise(vectors)
        columns = {**_build_columns(fields), "scale": quantised.scales, "values": quantised.values}
        n_written = 0
        while n_written < len(fields):
            number, first_row = divmod(n_rows + n_written, ROWS_PER_SEGMENT)
            n = min(ROWS_PER_SEGMENT - first_row, len(fields) - n_written)
            self._write_segment(
                number, [(first_row, {name: column[n_written : n_written + n] for name, column in columns.items()})]
            )
            n_written += n

    def wipe(self, rows: Ints) -> None:
        """Overwrite these rows with zeros, durably."""
        zeros = {
            column_name: np.zeros((1, *layout.shape[1:]), layout.type) for column_name, layout in self._layout.items()
        }
        for number in _list_segments(rows):
            self._write_segment(
                number, [(row % ROWS_PER_SEGMENT, zeros) for row in rows[rows // ROWS_PER_SEGMENT == number].tolist()]
            )

    def _write_segment(self, number: int, writes: Sequence[tuple[int, Mapping[str, npt.NDArray[Any]]]]) -> None:
        """Write columns into a segment, each from its given row on, and wait for the disk."""
        make_folder(self.folder)
        path = self._to_path(number)
        with map_os_errors(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                self._write_columns(descriptor, writes)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _write_columns(self, descriptor: int, writes: Sequence[tuple[int, Mapping[str, npt.NDArray[Any]]]]) -> None:
        if os.fstat(descriptor).st_size != self._segment_bytes:
            os.ftruncate(descriptor, self._segment_bytes)
        for row, columns in writes:
            for name, column in columns.items():
                layout = self._layout[name]
                encoded = np.ascontiguousarray(column, layout.type).tobytes()
                _write_all(descriptor, encoded, layout.offset + row * layout.row_bytes)

    def is_whole(self, n_rows: int) -> bool:
        """Return True if all files of the first `n_rows` rows are there, each with its full size."""
        numbers = range(-(-n_rows // ROWS_PER_SEGMENT))
        return all(path.exists() and path.stat().st_size == self._segment_bytes for path in map(self._to_path, numbers))

    def remove(self) -> None:
        """Delete the files; a process that has them mapped keeps them until it unmaps them."""
        self._mapped_columns.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


class _ColumnLayout(NamedTuple):
    """The position of a column in a segment."""

    offset: int
    type: type[np.generic]
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        return self.shape[1] if len(self.shape) > 1 else 1

    @property
    def row_bytes(self) -> int:
        return self.width * np.dtype(self.type).itemsize


def _compute_layout(dimension: int) -> tuple[Mapping[str, _ColumnLayout], int]:
    """Return (column -> its layout, bytes of a segment). Widest first, so that each begins on a multiple of
    its size.
    """
    shapes: list[tuple[str, type[np.generic], tuple[int, ...]]] = [
        *((name, np.int64, (ROWS_PER_SEGMENT,)) for name in _WIDE_COLUMNS),
        ("scale", np.float32, (ROWS_PER_SEGMENT,)),
        *((name, np.int32, (ROWS_PER_SEGMENT,)) for name in NUMBER_COLUMNS),
        ("values", np.int8, (ROWS_PER_SEGMENT, dimension)),
    ]
    layouts: dict[str, _ColumnLayout] = {}
    offset = 0
    for name, type_, shape in shapes:
        layouts[name] = _ColumnLayout(offset, type_, shape)
        offset += ROWS_PER_SEGMENT * layouts[name].row_bytes
    return layouts, offset


def _list_segments(rows: Ints) -> list[int]:
    """Return the numbers of the segments that hold these rows. np.unique imports masked arrays, 10 ms in a shell."""
    return sorted(set((rows // ROWS_PER_SEGMENT).tolist()))


def _build_columns(fields: Sequence[ChunkFields]) -> dict[str, npt.NDArray[Any]]:
    wide_values = np.array([chunk_fields[:3] for chunk_fields in fields], np.int64).reshape(len(fields), 3)
    numbers = np.array([chunk_fields.numbers for chunk_fields in fields], np.int32).reshape(
        len(fields), len(NUMBER_COLUMNS)
    )
    columns: dict[str, npt.NDArray[Any]] = {name: wide_values[:, i] for i, name in enumerate(_WIDE_COLUMNS)}
    return columns | {name: numbers[:, i] for i, name in enumerate(NUMBER_COLUMNS)}


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        n = os.pwrite(descriptor, view, offset)
        view, offset = view[n:], offset + n


WIDEN_FACTOR = 2  # k times this many rows are ordered again in float; docs/decisions/010-vector-scan.md
MIN_POOL_ROWS = 96
_GATHER_SHARE = 0.5  # fewer rows than this share of a segment are copied out and compared alone
_BLOCK_ROWS = 1024  # converted to float32 at a time: 1.6 MB at 384 numbers; times of 256 to 2048 differ by a fifth
_NOT_ALLOWED = np.float32(-np.inf)  # the score of a row that the filters exclude

Bools = npt.NDArray[np.bool_]
Int8 = npt.NDArray[np.int8]
Kernel = Callable[[Int8, Int8], npt.NDArray[np.float32]]  # (rows, d), (queries, d) -> (queries, rows)


class NearestRows(NamedTuple):
    """The rows nearest to one query, nearest first."""

    rows: Ints  # in the slab
    chunks: Ints
    scores: npt.NDArray[np.float64]  # cosine, to six places, -1 to 1


def multiply_with_numpy(rows: Int8, queries: Int8) -> npt.NDArray[np.float32]:
    """Multiply in float32, in blocks: whole numbers below 2**24 are exact there.

    One query at a time: a product of two matrices would wake the threads of BLAS, which on a busy machine
    wait for each other forty times longer than they compute (docs/decisions/010-vector-scan.md).
    """
    float_queries = queries.astype(np.float32)
    products = np.empty((len(queries), len(rows)), np.float32)
    block = np.empty((min(_BLOCK_ROWS, len(rows)), rows.shape[1]), np.float32)
    for start in range(0, len(rows), _BLOCK_ROWS):
        block_rows = rows[start : start + _BLOCK_ROWS]
        np.copyto(block[: len(block_rows)], block_rows)
        for query, scores in zip(float_queries, products, strict=True):
            np.matmul(block[: len(block_rows)], query, out=scores[start : start + len(block_rows)])
    return products


def choose_fastest_kernel() -> Kernel:
    """Return the product of simsimd, in a quarter of the time or less; that of numpy where its wheel is missing."""
    try:
        import simsimd
    except ImportError:
        return multiply_with_numpy
    return partial(_multiply_with_simsimd, simsimd)


def _multiply_with_simsimd(simsimd: Any, rows: Int8, queries: Int8) -> npt.NDArray[np.float32]:
    return np.asarray(simsimd.cdist(queries, rows, "dot", out_dtype="f32"), np.float32)


def scan_nearest(
    slab: Slab,
    n_rows: int,
    queries: Vectors,
    *,
    k: int,
    allowed: Callable[[SlabSegment], Bools | None],
    kernel: Kernel | None = None,
) -> list[NearestRows]:
    """Return, for each query, the `k` rows nearest to it among the allowed rows.

    queries: (n, dimension), of length 1 each. allowed: returns which rows of a segment may be found, None
    for all. Raises VectorsMissing.
    """
    product, quantised = kernel or choose_fastest_kernel(), quantise(queries)
    best_by_query = [_BestRows(max(k * WIDEN_FACTOR, MIN_POOL_ROWS)) for _ in queries]
    for segment in slab.iter_segments(n_rows):
        rows, scores = _score_segment(segment, quantised.values, allowed(segment), product)
        for best_rows, query_scores in zip(best_by_query, scores, strict=True):
            best_rows.add(rows, query_scores, segment)
    return [_order_rows(slab, best_rows, query, k) for best_rows, query in zip(best_by_query, queries, strict=True)]


def _score_segment(
    segment: SlabSegment, queries: Int8, allowed: Bools | None, product: Kernel
) -> tuple[Ints | None, npt.NDArray[np.float32]]:
    """Return (positions in the segment, None for all; for each query the scores there). Rows not allowed get
    _NOT_ALLOWED.
    """
    scales = segment.columns["scale"]
    if allowed is None:
        return None, product(segment.values, queries) * scales
    positions = np.flatnonzero(allowed)
    if not len(positions):
        return positions, np.zeros((len(queries), 0), np.float32)
    if len(positions) < _GATHER_SHARE * len(scales):
        return positions, product(segment.values[positions], queries) * scales[positions]
    return None, np.where(allowed, product(segment.values, queries) * scales, _NOT_ALLOWED)


class _BestRows:
    """The best rows so far for one query, with ties at the cut."""

    def __init__(self, k: int) -> None:
        self.k = k
        self._min_score = float(np.finfo(np.float32).min)
        self._rows: list[Ints] = []
        self._ties: list[Ints] = []
        self._scores: list[npt.NDArray[np.float32]] = []
        self._n = 0

    def add(self, positions: Ints | None, scores: npt.NDArray[np.float32], segment: SlabSegment) -> None:
        """Add the rows that reach the cut, and raise the cut when there are many."""
        good_scores = np.flatnonzero(scores >= self._min_score)
        if self._n + len(good_scores) > 8 * self.k:
            self._min_score = self._find_cut(scores[good_scores])
            good_scores = good_scores[scores[good_scores] >= self._min_score]
        rows_inside = good_scores if positions is None else positions[good_scores]
        self._rows.append(rows_inside + segment.first)
        self._ties.append(segment.columns["tie"][rows_inside])
        self._scores.append(scores[good_scores])
        self._n += len(good_scores)
        if self._n > 4 * self.k:
            self._shrink()

    def _find_cut(self, scores: npt.NDArray[np.float32]) -> float:
        """Return the k-th best of these scores, or the present cut."""
        if len(scores) <= self.k:
            return self._min_score
        return max(self._min_score, float(np.partition(scores, -self.k)[-self.k]))

    def _shrink(self) -> None:
        rows, ties, scores = self._join_all()
        order = np.lexsort((ties, -scores))[: self.k]
        self._rows, self._ties, self._scores = [rows[order]], [ties[order]], [scores[order]]
        self._n = len(order)
        if self._n == self.k:
            self._min_score = float(self._scores[0][-1])

    def _join_all(self) -> tuple[Ints, Ints, npt.NDArray[np.float32]]:
        if not self._rows:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
        return np.concatenate(self._rows), np.concatenate(self._ties), np.concatenate(self._scores)

    def get_best(self) -> Ints:
        """Return its rows, at most k, the best by (score, tie)."""
        self._shrink()
        return self._join_all()[0]


def _order_rows(slab: Slab, best_rows: _BestRows, query: npt.NDArray[np.float32], k: int) -> NearestRows:
    """Return the best rows of a query, ordered by the query in float."""
    rows = best_rows.get_best()
    vectors, chunks, ties = slab.gather(rows)
    scores = compute_cosines(vectors.values.astype(np.float64) * vectors.scales[:, None], query)
    order = np.lexsort((ties, -scores))[:k]
    return NearestRows(rows[order], chunks[order], scores[order])


def compute_cosines(vectors: npt.NDArray[np.float64], query: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the cosine of each row with a query of length 1, to six places.

    Each row is summed on its own, so its cosine does not depend on the other rows.

    >>> compute_cosines(np.array([[3.0, 4.0]]), np.array([1, 0], np.float32)).tolist()
    [0.6]
    """
    lengths = np.sqrt((vectors * vectors).sum(axis=1))
    products: npt.NDArray[np.float64] = (vectors * query.astype(np.float64)).sum(axis=1)
    return np.round(products / np.where(lengths > 0, lengths, 1.0), 6)
