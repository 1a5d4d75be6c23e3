"""The scan: every row of a slab that a filter leaves is compared with every query; the best are kept. Exact.

Products are taken between int8 numbers, whole and without rounding, so every kernel gives the same scores. The best
of them are ordered again by the query as it is, in float; equal scores are ordered by their chunk's tie number.
No index, no SQL: arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perdure.index.slab import Ints, Segment, Slab
from perdure.models.vectors import Vectors, quantise

WIDEN = 2  # times as many rows as wanted are ordered again in float; docs/decisions/010-vector-scan.md
WIDE_MIN = 96
_GATHER_SHARE = 0.5  # fewer rows than this share of a segment are copied out and compared alone
_BLOCK_ROWS = 1024  # that numpy turns into float32 at a time: 1.6 MB at 384 numbers; 256 to 2048 differ by a fifth
_NOT = np.float32(-np.inf)  # the score of a row that may not be found

Bools = npt.NDArray[np.bool_]
Int8 = npt.NDArray[np.int8]
Kernel = Callable[[Int8, Int8], npt.NDArray[np.float32]]  # (rows, d), (queries, d) -> (queries, rows)


class Near(NamedTuple):
    """What is nearest to one query, nearest first."""

    rows: Ints  # in the slab
    chunks: Ints
    scores: npt.NDArray[np.float64]  # cosine, to six places, -1 to 1


def with_numpy(rows: Int8, queries: Int8) -> npt.NDArray[np.float32]:
    """Products by way of float32, in blocks: whole numbers below 2**24 are exact there.

    One query at a time: a product of two matrices would wake the threads of BLAS, which on a busy machine wait for
    each other forty times longer than they compute (docs/decisions/010-vector-scan.md).
    """
    wanted = queries.astype(np.float32)
    found = np.empty((len(queries), len(rows)), np.float32)
    block = np.empty((min(_BLOCK_ROWS, len(rows)), rows.shape[1]), np.float32)
    for low in range(0, len(rows), _BLOCK_ROWS):
        part = rows[low : low + _BLOCK_ROWS]
        np.copyto(block[: len(part)], part)
        for query, scores in zip(wanted, found, strict=True):
            np.matmul(block[: len(part)], query, out=scores[low : low + len(part)])
    return found


def fastest() -> Kernel:
    """numkong's product of int8 where it is installed (a third of the time), else numpy's."""
    try:
        import numkong  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return with_numpy
    return _with_numkong(numkong)


def _with_numkong(numkong: Any) -> Kernel:
    def product(rows: Int8, queries: Int8) -> npt.NDArray[np.float32]:
        if len(queries) == 1:
            return np.asarray(numkong.cdist(queries, rows, "dot"), np.float32)
        return np.asarray(numkong.dots_packed(rows, numkong.dots_pack(queries)), np.float32).T

    return product


def nearest(
    slab: Slab,
    n_rows: int,
    queries: Vectors,
    *,
    k: int,
    allowed: Callable[[Segment], Bools | None],
    kernel: Kernel | None = None,
) -> list[Near]:
    """For each query the `k` rows nearest to it, of those allowed.

    queries: (n, dimension), of length 1 each. allowed: which rows of a segment may be found, None for all.
    Raises VectorsMissing.
    """
    product, small = kernel or fastest(), quantise(queries)
    pools = [_Pool(max(k * WIDEN, WIDE_MIN)) for _ in queries]
    for segment in slab.segments(n_rows):
        rows, scores = _scored(segment, small.values, allowed(segment), product)
        for pool, scored in zip(pools, scores, strict=True):
            pool.add(rows, scored, segment)
    return [_ordered(slab, pool, query, k) for pool, query in zip(pools, queries, strict=True)]


def _scored(
    segment: Segment, queries: Int8, allowed: Bools | None, product: Kernel
) -> tuple[Ints | None, npt.NDArray[np.float32]]:
    """(places in the segment, None for all of them; per query the scores there); _NOT for what is not allowed."""
    scales = segment.columns["scale"]
    if allowed is None:
        return None, product(segment.values, queries) * scales
    places = np.flatnonzero(allowed)
    if not len(places):
        return places, np.zeros((len(queries), 0), np.float32)
    if len(places) < _GATHER_SHARE * len(scales):
        return places, product(segment.values[places], queries) * scales[places]
    return None, np.where(allowed, product(segment.values, queries) * scales, _NOT)


class _Pool:
    """The best rows so far for one query, ties at the cut included."""

    def __init__(self, k: int) -> None:
        self.k = k
        self._least = float(np.finfo(np.float32).min)
        self._rows: list[Ints] = []
        self._ties: list[Ints] = []
        self._scores: list[npt.NDArray[np.float32]] = []
        self._n = 0

    def add(self, places: Ints | None, scores: npt.NDArray[np.float32], segment: Segment) -> None:
        """Take what reaches the cut, and raise the cut when much has come together."""
        good = np.flatnonzero(scores >= self._least)
        if self._n + len(good) > 8 * self.k:
            good = good[scores[good] >= self._cut(scores[good])]
        at = good if places is None else places[good]
        self._rows.append(at + segment.first)
        self._ties.append(segment.columns["tie"][at])
        self._scores.append(scores[good])
        self._n += len(good)
        if self._n > 4 * self.k:
            self._shrink()

    def _cut(self, scores: npt.NDArray[np.float32]) -> float:
        """The k-th best of these scores, or the cut that holds already."""
        if len(scores) <= self.k:
            return self._least
        return max(self._least, float(np.partition(scores, -self.k)[-self.k]))

    def _shrink(self) -> None:
        rows, ties, scores = self._all()
        order = np.lexsort((ties, -scores))[: self.k]
        self._rows, self._ties, self._scores = [rows[order]], [ties[order]], [scores[order]]
        self._n = len(order)
        if self._n == self.k:
            self._least = float(self._scores[0][-1])

    def _all(self) -> tuple[Ints, Ints, npt.NDArray[np.float32]]:
        if not self._rows:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32)
        return np.concatenate(self._rows), np.concatenate(self._ties), np.concatenate(self._scores)

    def best(self) -> Ints:
        """Its rows, at most k, the best by (score, tie)."""
        self._shrink()
        return self._all()[0]


def _ordered(slab: Slab, pool: _Pool, query: npt.NDArray[np.float32], k: int) -> Near:
    """The rows of a pool, ordered by the query in float."""
    rows = pool.best()
    vectors, chunks, ties = slab.gather(rows)
    scores = cosines(vectors.values.astype(np.float64) * vectors.scales[:, None], query)
    order = np.lexsort((ties, -scores))[:k]
    return Near(rows[order], chunks[order], scores[order])


def cosines(vectors: npt.NDArray[np.float64], query: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The cosine of each row with a query of length 1, to six places: a row's own sum, whatever stands around it.

    >>> cosines(np.array([[3.0, 4.0]]), np.array([1, 0], np.float32)).tolist()
    [0.6]
    """
    lengths = np.sqrt((vectors * vectors).sum(axis=1))
    found: npt.NDArray[np.float64] = (vectors * query.astype(np.float64)).sum(axis=1)
    return np.round(found / np.where(lengths > 0, lengths, 1.0), 6)
