"""BM25 from posting lists in arrays: the scores of FTS5, in half of its time.

FTS5 looks up the length of every chunk that it scores with a statement of its own, which is most of what a query
costs; to say where a word stands takes little. So a process that asks often keeps the lengths of all chunks, two
bytes each, and adds up the scores itself: the same formula in the same order, and so the same numbers. A chunk's words
never change under its number, and numbers are never used twice, so lengths are only ever added (decisions/070).

The plan decides which terms make candidates (`match_plan`); filters are not here.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from perdure.errors import IndexDamaged
from perdure.index.match_plan import MatchPlan
from perdure.index.store import IndexConnection
from perdure.sqlite import apsw
from perdure.text import fts_quote

K1, B = 1.2, 0.75  # of FTS5's bm25()
_LEAST_IDF = 1e-6  # FTS5's weight of a term in half of the chunks or more
_MOST_TOKENS = 65535  # of a chunk: as many as two bytes count
_READ_AT_ONCE = 2000  # lengths that a query waits for: 1 ms; more are read beside it
_PAUSE_S = 0.005  # between two parts that are read beside the searches: they need the interpreter, too
_GROWTH = 1.2  # of the array when it is full

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Lengths = npt.NDArray[np.uint16]  # of chunks, in tokens, by their numbers
_ADD_PLACES = """CREATE VIRTUAL TABLE IF NOT EXISTS temp."places_{n}" USING fts5vocab(main, "words_{n}", instance)"""


class ScoredChunks(NamedTuple):
    """Chunks, each with its score or its share of one; higher is better."""

    chunks: Ints
    scores: Floats

    def list_best(self, n: int) -> list[tuple[int, float]]:
        """Return (chunk, score) of the best n, best first, and of all that tie with the last of them."""
        chunks, scores = self
        if len(scores) > n:
            kept = scores >= np.partition(scores, -n)[-n]
            chunks, scores = chunks[kept], scores[kept]
        order = np.argsort(-scores, kind="stable")
        return list(zip(chunks[order].tolist(), scores[order].tolist(), strict=True))


class ChunkLengths:
    """How many tokens each chunk of one index file has, for all connections of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._n_tokens = np.zeros(1024, np.uint16)  # by chunk number, whosever it is
        self._last_chunks: dict[int, int] = {}  # by owner: the last chunk that was read
        self._lock = threading.Lock()  # of the two above
        self._is_reading = False

    def read_new(self, index: IndexConnection, owner: int) -> Lengths | None:
        """Return the lengths by chunk number, with all of an owner's chunks in this snapshot; None if there are so many
        new ones that they are read beside the caller, for later calls.
        """
        n_new = self._read_part(index.db, owner)
        if n_new == _READ_AT_ONCE and not self._is_reading:
            self._is_reading = True
            threading.Thread(target=self._read_rest, args=(owner,), name="perdure-lengths", daemon=True).start()
        return None if n_new == _READ_AT_ONCE else self._n_tokens

    def _read_rest(self, owner: int) -> None:
        try:
            with contextlib.suppress(apsw.Error):  # the file is gone: so is the need
                connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)
                with contextlib.closing(connection):
                    while self._read_part(connection, owner):
                        time.sleep(_PAUSE_S)
        finally:
            self._is_reading = False

    def _read_part(self, connection: apsw.Connection, owner: int) -> int:
        """Read some lengths that are new; return how many."""
        query = f'SELECT id, sz FROM "words_{owner}_docsize" WHERE id > ? ORDER BY id LIMIT {_READ_AT_ONCE}'
        with self._lock:
            rows: list[tuple[Any, ...]] = connection.execute(query, (self._last_chunks.get(owner, 0),)).fetchall()
            if rows:
                last_chunk = rows[-1][0]
                if last_chunk >= len(self._n_tokens):
                    grown = np.zeros(int(_GROWTH * last_chunk) + 1024, np.uint16)
                    grown[: len(self._n_tokens)] = self._n_tokens
                    self._n_tokens = grown
                n_tokens = [min(_sum_varints(sizes), _MOST_TOKENS) for _, sizes in rows]
                self._n_tokens[[chunk for chunk, _ in rows]] = n_tokens
                self._last_chunks[owner] = last_chunk
            return len(rows)


_lengths_by_file = WeakValueDictionary[tuple[object, ...], ChunkLengths]()  # connections hold them


def open_scorer(index: IndexConnection, owner: int, match_plan: MatchPlan) -> PlanScorer | None:
    """Return what scores an owner's chunks for a plan; None while their lengths are being read."""
    if index.chunk_lengths is None:
        status = index.path.stat()
        file = (status.st_dev, status.st_ino, index.get_meta("generation"))  # a deleted file's number is used again
        index.chunk_lengths = _lengths_by_file.setdefault(file, ChunkLengths(index.path))
    lengths = index.chunk_lengths.read_new(index, owner)
    return None if lengths is None else PlanScorer(index, owner, lengths, match_plan)


class PlanScorer:
    """The scores of an owner's chunks for the terms of a plan, inside one snapshot."""

    def __init__(self, index: IndexConnection, owner: int, lengths: Lengths, match_plan: MatchPlan) -> None:
        self._index, self._owner, self._lengths = index, owner, lengths
        index.db.execute(_ADD_PLACES.format(n=owner))
        totals = index.select(f'SELECT block FROM "words_{owner}_data" WHERE id = 1')  # as FTS5 keeps them
        self._n_chunks, *n_tokens = _list_varints(totals[0][0]) if totals and totals[0][0] else [0]
        self._mean_tokens = sum(n_tokens) / self._n_chunks if self._n_chunks else 1.0
        terms = self._read_terms([*match_plan.rare, *match_plan.common])
        self._rare, self._common = terms[: len(match_plan.rare)], terms[len(match_plan.rare) :]

    def score_first(self) -> ScoredChunks:
        """Return the chunks with a rare term, and those with every common one; with the scores of all their terms."""
        found = _add_up(self._rare)
        for postings in self._common:
            np.add(found.scores, _pick(postings, found.chunks), out=found.scores)
        if len(self._common) < 2:
            return found
        others = self._score_common(len(self._common))
        is_new = ~_find(found.chunks, others.chunks)[1]
        chunks = np.concatenate([found.chunks, others.chunks[is_new]])
        return ScoredChunks(chunks, np.concatenate([found.scores, others.scores[is_new]]))

    def score_relaxed(self) -> Iterator[ScoredChunks]:
        """Yield the chunks with all but the last common term, and so on; with the scores of these terms alone."""
        for n in range(len(self._common) - 1, 1, -1):
            yield self._score_common(n)

    def score_last(self) -> ScoredChunks | None:
        """Return the chunks with the rarest common term."""
        return self._common[0] if self._common else None

    def _score_common(self, n: int) -> ScoredChunks:
        chunks = self._common[0].chunks
        for postings in self._common[1:n]:
            chunks = chunks[_find(postings.chunks, chunks)[1]]
        scores = np.zeros(len(chunks))
        for postings in self._common[:n]:
            scores += _pick(postings, chunks)
        return ScoredChunks(chunks, scores)

    def _read_terms(self, terms: Sequence[str]) -> list[ScoredChunks]:
        """Return for each term its share in the scores of the chunks that hold it. Of phrases FTS5 computes them."""
        tokens = [self._index.tokenize(fts_quote(term)) for term in terms]
        is_phrase = [len(words) != 1 for words in tokens]
        of_words = iter(self._read_words([words[0] for words in tokens if len(words) == 1]))
        return [
            self._read_phrase(term) if of_several else next(of_words)
            for term, of_several in zip(terms, is_phrase, strict=True)
        ]

    def _read_phrase(self, term: str) -> ScoredChunks:
        words = self._index.match_words(self._owner, f"text : ({fts_quote(term)})")
        query = f"SELECT {words.chunk}, {words.score} FROM {words.source} WHERE {words.test} ORDER BY {words.chunk}"
        rows = self._index.select(query, *words.values)
        return ScoredChunks(
            np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.float64)
        )

    def _read_words(self, tokens: Sequence[str]) -> Iterator[ScoredChunks]:
        query = f"""SELECT group_concat(doc) FROM temp."places_{self._owner}" WHERE term = ? AND col = 'text'"""
        lists = [self._index.select(query, token)[0][0] or "" for token in tokens]
        n_places = [chunks.count(",") + 1 if chunks else 0 for chunks in lists]
        bounds = np.cumsum([0, *n_places])  # of each word's places
        places = np.fromstring(",".join(filter(None, lists)), np.int64, sep=",")
        if places.max(initial=0) >= len(self._lengths):
            raise IndexDamaged(f"{self._index.path} (words of a chunk without a length)")
        is_first = _mark_first(places)
        is_first[bounds[bounds < len(places)]] = True
        starts = np.flatnonzero(is_first)
        chunks, counts = places[starts], np.diff(starts, append=len(places)).astype(np.float64)
        ends = np.searchsorted(starts, bounds).tolist()
        n_with = [high - low for low, high in pairwise(ends)]
        weights = np.repeat([self._weigh(n) for n in n_with], n_with)
        saturation = K1 * (1 - B + B * self._lengths[chunks] / self._mean_tokens)
        shares = weights * (counts * (K1 + 1.0) / (counts + saturation))
        for low, high in pairwise(ends):
            yield ScoredChunks(chunks[low:high], shares[low:high])

    def _weigh(self, n_with: int) -> float:
        """Return the weight of a term in so many chunks."""
        idf = math.log((self._n_chunks - n_with + 0.5) / (n_with + 0.5))
        return idf if idf > 0 else _LEAST_IDF


def _add_up(parts: Sequence[ScoredChunks]) -> ScoredChunks:
    """Return the chunks of all parts, each with the sum of its shares."""
    chunks = np.concatenate([np.zeros(0, np.int64), *(part.chunks for part in parts)])
    shares = np.concatenate([np.zeros(0), *(part.scores for part in parts)])
    order = np.argsort(chunks, kind="stable")
    ordered = chunks[order]
    is_first = _mark_first(ordered)
    sums = np.bincount(np.cumsum(is_first) - 1, shares[order])  # one share after the other, as FTS5 adds them
    return ScoredChunks(ordered[is_first], sums.astype(np.float64))


def _mark_first(ordered: Ints) -> npt.NDArray[np.bool_]:
    """Return for each of some ascending numbers whether it is the first one of its value."""
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first


def _find(chunks: Ints, wanted: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return (for each wanted chunk its position among chunks, whether it is there)."""
    positions = np.minimum(np.searchsorted(chunks, wanted), max(len(chunks) - 1, 0))
    return positions, chunks[positions] == wanted if len(chunks) else np.zeros(len(wanted), np.bool_)


def _pick(postings: ScoredChunks, chunks: Ints) -> Floats:
    """Return the shares of these chunks; 0 for a chunk without the term."""
    positions, is_there = _find(postings.chunks, chunks)
    return np.where(is_there, postings.scores[positions], 0.0) if len(postings.chunks) else np.zeros(len(chunks))


def _list_varints(encoded: bytes) -> list[int]:
    """Return the numbers that SQLite packed, seven bits in a byte, the highest first.

    >>> _list_varints(bytes([0x31, 0x81, 0x00]))
    [49, 128]
    """
    numbers, number = [], 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    return numbers


def _sum_varints(encoded: bytes) -> int:
    return sum(encoded) if max(encoded) < 0x80 else sum(_list_varints(encoded))
