"""The vectors of one owner and one model in Postgres: exact, the same numbers and the same order as in a slab of files.

A row holds the int8 numbers and the scale of a slab's row, the numbers as pgvector's `halfvec`, which holds each of
them exactly. Products of whole numbers below 2**24 have no rounding, so Postgres chooses the same best rows as the scan
of a slab; they are ordered again by the exact query in the same way. There is no approximate index: it would answer
otherwise than the file (docs/decisions/059-a-second-engine.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perdure.errors import DimensionMismatch, VectorRefused
from perdure.index import keyword
from perdure.index.dialect import WordExpression
from perdure.index.slab import MIN_POOL_ROWS, WIDEN_FACTOR, ChunkFields, Ints, NearestRows, compute_cosines
from perdure.index.store import IndexConnection
from perdure.index.visibility import ReadScope
from perdure.models.embedder import QuantisedVectors, Vectors, quantise
from perdure.types import Filters

_NEAREST = """SELECT slab_row.row, (-(numbers <#> ?::halfvec))::real * scale AS score FROM slab_row
  {joins} WHERE slab_row.slab = ?
    AND slab_row.row NOT IN (SELECT hole.row FROM hole WHERE hole.slab = ?)
    {tests} ORDER BY score DESC, slab_row.tie LIMIT ?"""
_CHUNK_JOIN = "JOIN chunk ON chunk.id = slab_row.chunk AND chunk.user = {owner}"  # by owner: not everybody's rows
_TEXT_JOIN = "JOIN chunk_text ON chunk_text.id = slab_row.chunk AND chunk_text.owner = {owner}"


class PostgresSlab:
    """The rows of one slab, read and written by one connection."""

    def __init__(self, index: IndexConnection, number: int, owner: int, dimension: int) -> None:
        """number: of the slab. owner: whose chunks it has."""
        self._index = index
        self._number = number
        self._owner = owner
        self.dimension = dimension

    def append(self, n_rows: int, fields: Sequence[ChunkFields], vectors: Vectors) -> None:
        """Write rows after the first `n_rows`. Raises VectorRefused, DimensionMismatch."""
        if vectors.shape != (len(fields), self.dimension):
            raise DimensionMismatch(f"{vectors.shape} in a slab of {self.dimension}")
        if not np.isfinite(vectors).all() or not vectors.any(axis=1).all():
            raise VectorRefused(f"{len(vectors)} rows of {self.dimension}")
        quantised = quantise(vectors)
        rows = [
            (
                self._number,
                n_rows + i,
                chunk.chunk,
                chunk.tie,
                float(quantised.scales[i]),
                _to_text(quantised.values[i]),
            )
            for i, chunk in enumerate(fields)
        ]
        self._index.db.executemany("INSERT INTO slab_row VALUES (?, ?, ?, ?, ?::real, ?::halfvec)", rows)

    def gather(self, rows: Ints) -> tuple[QuantisedVectors, Ints, Ints]:
        """Return (vectors, chunk numbers, ties) of some rows, in the order given; zeros for rows that are gone."""
        vectors = QuantisedVectors(np.zeros((len(rows), self.dimension), np.int8), np.zeros(len(rows), np.float32))
        chunks, ties = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        query = """SELECT slab_row.row, chunk, tie, scale, numbers::text FROM slab_row
          WHERE slab = ? AND slab_row.row = ANY(?::bigint[])"""
        stored = {row: values for row, *values in self._index.select(query, self._number, rows.tolist())}
        for i, row in enumerate(rows.tolist()):
            if row in stored:
                chunks[i], ties[i], vectors.scales[i], text = stored[row]
                vectors.values[i] = np.fromstring(text[1:-1], dtype=np.float32, sep=",")
        return vectors, chunks, ties

    def wipe(self, rows: Ints) -> None:
        """Delete these rows."""
        with self._index.begin_write() as db:
            db.execute("DELETE FROM slab_row WHERE slab = ? AND slab_row.row = ANY(?)", (self._number, rows.tolist()))

    def is_whole(self, n_rows: int) -> bool:  # noqa: ARG002 - files may be cut short
        """Return True: the rows and the number of them are written in one transaction."""
        return True

    def remove(self) -> None:
        """Delete every row."""
        with self._index.begin_write() as db:
            db.execute("DELETE FROM slab_row WHERE slab = ?", (self._number,))

    def find_nearest(self, queries: Vectors, *, filters: Filters, k: int, read_scope: ReadScope) -> list[NearestRows]:
        """Return, for each query, the `k` rows nearest to it that pass the filters and may be read."""
        chunk_filter = keyword.build_chunk_filter(self._index, read_scope, filters, self._owner)
        if chunk_filter is None:
            return [NearestRows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))] * len(queries)
        scope_match, tests, values = chunk_filter
        joins = [_CHUNK_JOIN] * bool(tests) + [_TEXT_JOIN] * bool(scope_match)
        tests = [*tests, WordExpression(scope_match).test] if scope_match else tests
        statement = _NEAREST.format(
            joins=" ".join(joins).format(owner=int(self._owner)), tests="".join(f" AND {test}" for test in tests)
        )
        quantised, n_pool = quantise(queries), max(k * WIDEN_FACTOR, MIN_POOL_ROWS)
        results = []
        for i, query in enumerate(queries):
            found = self._index.select_once(
                statement, _to_text(quantised.values[i]), self._number, self._number, *values, n_pool
            )
            results.append(self._order(np.array([row for row, _ in found], np.int64), query, k))
        return results

    def _order(self, rows: Ints, query: npt.NDArray[np.float32], k: int) -> NearestRows:
        vectors, chunks, ties = self.gather(rows)
        scores = compute_cosines(vectors.values.astype(np.float64) * vectors.scales[:, None], query)
        order = np.lexsort((ties, -scores))[:k]
        return NearestRows(rows[order], chunks[order], scores[order])


def _to_text(numbers: npt.NDArray[np.int8]) -> str:
    return f"[{','.join(map(str, numbers.tolist()))}]"
