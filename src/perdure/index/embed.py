"""Fill a slab: find the chunks without a vector, build their texts, and write the vectors that an embedder
makes.

It runs after the keyword index, in parts, each part one transaction: however it ends, the next call
continues. New chunks go before old ones. A text for which a model has no vector is recorded, so that it
is not tried for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from perdure.errors import TextRefused
from perdure.index import vector_search
from perdure.index.embedded_texts import read_embedded_texts
from perdure.index.encoding import EMBEDDING_POLICIES, EmbeddingPolicy, hash_embedded_text
from perdure.index.slab import NO_NUMBER, NO_TIME, NUMBER_COLUMNS, ChunkFields
from perdure.index.store import IndexConnection
from perdure.index.vector_search import SlabFiles, SlabInfo
from perdure.models.embedder import Vectors

_READ_AT_ONCE = 500  # chunks whose texts are in memory together
PART_CHUNKS = 64  # chunks embedded between two commits: a few seconds of the slowest local model

Lane = Literal["ingest", "bulk"]
EmbedFunction = Callable[[Sequence[str], Lane], Vectors]  # documents -> vectors; zeros: no vector for this text


class PendingChunk(NamedTuple):
    """A chunk that is to get a vector."""

    fields: ChunkFields
    text: str


class FillResult(Struct):
    """The result of filling a slab."""

    n_done: int = 0
    n_refused: int = 0  # texts that the model has no vector for
    n_left: int = 0


def fill_slab(
    index: IndexConnection,
    slab_files: SlabFiles,
    info: SlabInfo,
    embed: EmbedFunction,
    *,
    max_chunks: int | None = None,
    limit_s: float | None = None,
    fresh_only: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> FillResult:
    """Embed the chunks that a slab lacks, at most `max_chunks` chunks or `limit_s` seconds.

    progress: called with (done, all) after each part. fresh_only: only chunks that came in since the list
    was made; the rest of the list, which takes long, is left alone. Raises ModelFault when the embedder
    fails; the work done until then is kept.
    """
    result, queue = FillResult(), _EmbedQueue(index, info, fresh_only=fresh_only)
    deadline = None if limit_s is None else time.monotonic() + limit_s
    while (max_chunks is None or result.n_done < max_chunks) and (deadline is None or time.monotonic() < deadline):
        chunks, lane = queue.take_next(
            PART_CHUNKS if max_chunks is None else min(PART_CHUNKS, max_chunks - result.n_done)
        )
        if not chunks:
            break
        pending = list(_read_pending(index, chunks))
        vectors = _embed_texts(embed, [pending_chunk.text for pending_chunk in pending], lane)
        if not write_vectors(
            index, slab_files, queue.info, pending, vectors, last_listed=queue.last_listed, n_left=len(queue)
        ):
            break
        result.n_done += len(pending)
        result.n_refused += int((~vectors.any(axis=1)).sum())
        if progress:
            progress(result.n_done, result.n_done + len(queue))
    result.n_left = len(queue)
    return result


def _embed_texts(embed: EmbedFunction, texts: Sequence[str], lane: Lane) -> Vectors:
    """Return the vectors of these texts; a text that the model refuses costs only itself."""
    try:
        return embed(texts, lane)
    except TextRefused:
        if len(texts) == 1:
            return np.zeros((1, 0), np.float32)
    half = len(texts) // 2
    parts = [_embed_texts(embed, texts[:half], lane), _embed_texts(embed, texts[half:], lane)]
    width = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])


class _EmbedQueue:
    """The chunks that lack a vector: first those that came in since it was begun, then by policy, newest
    first.
    """

    def __init__(self, index: IndexConnection, info: SlabInfo, *, fresh_only: bool) -> None:
        self.info = info
        self.last_listed = info.last_listed if fresh_only or info.n_left == 0 else 0
        self._n_not_queued = info.n_left if fresh_only else 0  # still on the list, but not in this queue
        self._index = index
        self._queued_chunks: list[int] = []
        self._is_begun = info.is_complete or fresh_only

    def take_next(self, n: int) -> tuple[list[int], Lane]:
        """Return the next chunks, and the lane for them."""
        self._refresh_info()
        new_chunks = self._list_new()
        self._queued_chunks = new_chunks + self._queued_chunks
        chunks, self._queued_chunks = self._queued_chunks[:n], self._queued_chunks[n:]
        lane: Lane = "ingest" if self._is_begun and len(chunks) <= len(new_chunks) else "bulk"
        self._is_begun = True
        if not chunks and self.last_listed != self.info.last_listed:
            with self._index.begin_write() as db:
                progress = (self.last_listed, len(self), self.info.id)
                db.execute("UPDATE slab SET listed = ?, n_left = ? WHERE id = ?", progress)
        return chunks, lane

    def _refresh_info(self) -> None:
        matching = [info for info in vector_search.list_slabs(self._index) if info.id == self.info.id]
        self.info = matching[0] if matching else self.info

    def _list_new(self) -> list[int]:
        with self._index.begin_read():
            new_chunks = list_missing(self._index, self.info, after_chunk=self.last_listed)
            self.last_listed = max(self.last_listed, find_newest_chunk(self._index))
        return new_chunks

    def __len__(self) -> int:
        return len(self._queued_chunks) + self._n_not_queued


# what is missing ----------------------------------------------------------------------------------------------


def find_newest_chunk(index: IndexConnection) -> int:
    """Return the number of the newest chunk, 0 when there is none."""
    return int(index.select("SELECT coalesce(max(id), 0) FROM chunk")[0][0])


def list_missing(index: IndexConnection, info: SlabInfo, *, after_chunk: int = 0) -> list[int]:
    """Return chunks after number `after_chunk` that should have a vector and have none: by policy, then by the time
    when they were written, newest first.
    """
    chunks: list[int] = []
    for policy in EMBEDDING_POLICIES:
        condition, values = _build_missing_test(index, info, policy, after_chunk)
        order = "coalesce(chunk.stated_ms, 0) DESC, chunk.id DESC"
        query = f"SELECT chunk.id FROM {_CHUNK_WITH_TURN} WHERE {condition} ORDER BY {order}"
        chunks += [chunk for (chunk,) in index.select(query, *values)]
    return chunks


def count_missing(index: IndexConnection, info: SlabInfo) -> int:
    """Count the chunks that lack a vector: those left of the list, and those that came in since."""
    n_chunks = info.n_left
    for policy in EMBEDDING_POLICIES:
        condition, values = _build_missing_test(index, info, policy, info.last_listed)
        n_chunks += index.select(f"SELECT count(*) FROM {_CHUNK_WITH_TURN} WHERE {condition}", *values)[0][0]
    return n_chunks


def count_chunks(index: IndexConnection, info: SlabInfo) -> tuple[int, int, int]:
    """Return (chunks embedded, chunks missing, texts for which the model has no vector) of a slab."""
    query = "SELECT count(row), count(*) - count(row) FROM vector WHERE slab = ?"
    n_embedded, n_refused = index.select(query, info.id)[0]
    return n_embedded, count_missing(index, info), n_refused


def measure_oldest_waiting_s(index: IndexConnection, info: SlabInfo | None) -> float | None:
    """Return the seconds since the oldest capture that came after a slab's list was made; None when nothing
    waits.
    """
    if info is None:
        return None
    query = "SELECT min(captured_ms) FROM run WHERE id IN (SELECT DISTINCT run FROM chunk WHERE id > ?)"
    oldest_ms = index.select(query, info.last_listed)[0][0]
    return None if oldest_ms is None else max(0.0, time.time() - oldest_ms / 1000)


def _build_missing_test(
    index: IndexConnection, info: SlabInfo, policy: EmbeddingPolicy, after_chunk: int
) -> tuple[str, list[object]]:
    """Return (tests of `chunk JOIN turn`, their values). Of what no person typed, only the first chunk of a
    part is embedded.
    """
    tests = [
        "chunk.id > ?",
        "chunk.user = ?",
        "chunk.kind = ?",
        f"(author IS NULL OR author = 'person' OR {_IS_FIRST_OF_PART})",
    ]
    if policy.by_people is not None:
        tests.append("author = 'person'" if policy.by_people else "author <> 'person'")
    tests.append("NOT EXISTS (SELECT 1 FROM vector WHERE vector.chunk = chunk.id AND slab = ?)")
    return " AND ".join(tests), [after_chunk, info.user, index.find_name("kind", policy.kind), info.id]


_IS_FIRST_OF_PART = """NOT EXISTS (SELECT 1 FROM chunk AS before
  WHERE before.turn = chunk.turn AND before.n = chunk.n - 1 AND before.kind = chunk.kind)"""
_CHUNK_WITH_TURN = "chunk LEFT JOIN turn ON turn.id = chunk.turn"  # a memory has no turn


def split_chunks(chunks: Sequence[int]) -> list[Sequence[int]]:
    """Split chunks into groups whose texts are read at once."""
    return [chunks[start : start + _READ_AT_ONCE] for start in range(0, len(chunks), _READ_AT_ONCE)]


def _read_pending(index: IndexConnection, chunks: Sequence[int]) -> Iterator[PendingChunk]:
    """Yield the texts to embed for these chunks; chunks that are gone by now are left out."""
    query = f"SELECT id, tie, stated_ms, {', '.join(NUMBER_COLUMNS)} FROM chunk WHERE id IN ({{}}) ORDER BY id"
    texts = read_embedded_texts(index, chunks)
    for chunk, tie, stated_ms, *row_numbers in index.select_in(query, chunks):
        if chunk not in texts:
            continue
        numbers = tuple(NO_NUMBER if number is None else number for number in row_numbers)
        fields = ChunkFields(chunk, tie, NO_TIME if stated_ms is None else stated_ms, numbers)
        yield PendingChunk(fields, texts[chunk].text)


# writing ------------------------------------------------------------------------------------------------------


def write_vectors(
    index: IndexConnection,
    slab_files: SlabFiles,
    info: SlabInfo,
    pending: Sequence[PendingChunk],
    vectors: Vectors,
    *,
    last_listed: int,
    n_left: int,
) -> bool:
    """Write vectors into a slab in one transaction; return False when the slab no longer exists.

    Chunks that were deleted meanwhile, or got a vector, are skipped; a row of zeros records that the model
    has none.
    """
    slab = slab_files.open_slab(index, info)
    with index.begin_write() as db:
        rows = index.select("SELECT n_rows FROM slab WHERE id = ?", info.id)
        if not rows:
            return False
        n_rows = int(rows[0][0])
        missing_chunks = _find_still_missing(index, info, [pending_chunk.fields.chunk for pending_chunk in pending])
        missing_positions = [
            position for position, pending_chunk in enumerate(pending) if pending_chunk.fields.chunk in missing_chunks
        ]
        positions_with_vector = [position for position in missing_positions if vectors[position].any()]
        refused_chunks = [
            pending[position].fields.chunk for position in missing_positions if not vectors[position].any()
        ]
        if positions_with_vector:
            slab.append(
                n_rows, [pending[position].fields for position in positions_with_vector], vectors[positions_with_vector]
            )
        vector_rows = [
            (pending[position].fields.chunk, info.id, n_rows + row)
            for row, position in enumerate(positions_with_vector)
        ]
        db.executemany("INSERT INTO vector VALUES (?, ?, ?)", vector_rows)
        db.executemany("INSERT INTO vector VALUES (?, ?, NULL)", [(chunk, info.id) for chunk in refused_chunks])
        update = "UPDATE slab SET n_rows = ?, listed = ?, n_left = ? WHERE id = ?"
        db.execute(update, (n_rows + len(positions_with_vector), last_listed, n_left, info.id))
    return True


def _find_still_missing(index: IndexConnection, info: SlabInfo, chunks: Sequence[int]) -> set[int]:
    query = """SELECT id FROM chunk WHERE id IN ({})
        AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.chunk = chunk.id AND slab = ?)"""
    return {chunk for (chunk,) in index.select_in(query, chunks, info.id)}


def fill_from_known(
    index: IndexConnection,
    slab_files: SlabFiles,
    info: SlabInfo,
    read_known: Callable[[Sequence[bytes]], tuple[Sequence[int], Vectors]],
) -> int:
    """Fill a slab with vectors that exist already; return how many chunks still lack one.

    read_known: hashes of texts -> (which of them are known, their vectors).
    """
    missing_chunks = list_missing(index, info)
    last_listed = index.select("SELECT coalesce(max(id), 0) FROM chunk")[0][0]
    n_left = len(missing_chunks)
    for chunks in split_chunks(missing_chunks):
        pending = list(_read_pending(index, chunks))
        positions, vectors = read_known([hash_embedded_text(pending_chunk.text) for pending_chunk in pending])
        n_left -= len(positions)
        write_vectors(
            index,
            slab_files,
            info,
            [pending[position] for position in positions],
            vectors,
            last_listed=last_listed,
            n_left=n_left,
        )
    return n_left


# forgetting ---------------------------------------------------------------------------------------------------


def list_embedded_hashes(index: IndexConnection) -> Iterator[bytes]:
    """Yield the hashes of all texts that have a vector."""
    chunks = [chunk for (chunk,) in index.select("SELECT DISTINCT chunk FROM vector")]
    for chunk_group in split_chunks(chunks):
        yield from (hash_embedded_text(pending_chunk.text) for pending_chunk in _read_pending(index, chunk_group))


class RemovedTexts(NamedTuple):
    """Texts that left the index with a chunk."""

    entries: tuple[tuple[bytes, int], ...]  # (hash of the text, last chunk number at the time of deletion), as stored
    hashes: tuple[bytes, ...]  # of texts that no later chunk has: the cache deletes these


def read_removed(index: IndexConnection) -> RemovedTexts:
    """Return the texts that left the index since `clear_removed` was last called."""
    with index.begin_read():
        entries = index.select("SELECT name, after FROM gone ORDER BY name")
        hashes = {text_hash for text_hash, _ in entries}
        first_chunk = min((last_chunk for _, last_chunk in entries), default=0)
        new_chunks = (
            [chunk for (chunk,) in index.select("SELECT id FROM chunk WHERE id > ?", first_chunk)] if entries else []
        )
        for chunk_group in split_chunks(new_chunks):
            hashes -= {hash_embedded_text(pending_chunk.text) for pending_chunk in _read_pending(index, chunk_group)}
    return RemovedTexts(tuple((text_hash, last_chunk) for text_hash, last_chunk in entries), tuple(sorted(hashes)))


def clear_removed(index: IndexConnection, removed: RemovedTexts) -> None:
    """Clear the records of texts that the cache has deleted; texts that were removed again meanwhile stay
    recorded.
    """
    with index.begin_write() as db:
        db.executemany("DELETE FROM gone WHERE name = ? AND after = ?", removed.entries)


def has_removed_vectors(index: IndexConnection) -> bool:
    """Return True if vectors of deleted chunks are still on disk."""
    query = "SELECT EXISTS (SELECT 1 FROM gone) OR EXISTS (SELECT 1 FROM hole WHERE wiped = 0)"
    return bool(index.select(query)[0][0])


def wipe_removed(index: IndexConnection, slab_files: SlabFiles) -> int:
    """Overwrite the vectors of deleted chunks with zeros; return how many.

    Call it only after the deletion is safely on disk: otherwise a power failure that restored the chunks
    would leave them without their vectors.
    """
    n_wiped = 0
    for info in vector_search.list_slabs(index):
        rows = [row for (row,) in index.select("SELECT row FROM hole WHERE slab = ? AND wiped = 0", info.id)]
        slab = slab_files.open_slab(index, info)
        if not rows or not slab.is_whole(info.n_rows):
            continue
        slab.wipe(np.array(rows, np.int64))
        with index.begin_write() as db:
            db.executemany("UPDATE hole SET wiped = 1 WHERE slab = ? AND row = ?", [(info.id, row) for row in rows])
        n_wiped += len(rows)
    return n_wiped
