"""Hybrid search: the words of a query and its meaning, each with candidates of its own, fused into one ranking.

Both legs look through the same filters in the same snapshot. A turn that only its words found gets its vectors'
score too (they are fetched), and no hit of the words is ever lost: without vectors the answer is that of keyword
search, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from perdure.errors import VectorsMissing
from perdure.index import keyword, vector, visible
from perdure.index.embed import n_missing
from perdure.index.keyword import Candidates, Scored
from perdure.index.slab import Slab
from perdure.index.store import Connection
from perdure.index.vector import Slot, Space
from perdure.models.vectors import Vectors
from perdure.types import Filters, Found, Hit, Principal

CANDIDATES = 24  # turns of each leg, at least (design, section 5)
CHUNKS_PER_TURN = 4  # chunks fetched for each of them: a turn may be near in several
WEIGHT = 0.5  # of the vector leg; the rest is the keyword leg's

DEGRADED = ("vector",)


class Asked(NamedTuple):
    """A query as a vector, and where it may be compared."""

    space: Space
    vector: Vectors  # (1, dimension)


class Score(NamedTuple):
    """What the legs say of one turn."""

    fused: float
    keyword: float | None  # BM25, None when the words did not find it
    vector: float | None  # cosine of its nearest chunk, None when it has no vector


def search(
    index: Connection,
    principal: Principal,
    query: str,
    asked: Asked,
    *,
    filters: Filters,
    limit: int,
    words: bool = True,
    weight: float = WEIGHT,
) -> Found:
    """The best turns by words and meaning, best first; by meaning alone with words=False."""
    started = time.perf_counter()
    try:
        with index.reading():
            found = _search(index, principal, query, asked, filters, limit, words, weight)
    except VectorsMissing:
        found = keyword.search(index, principal, query, filters=filters, limit=limit)
        return replace(found, degraded=DEGRADED)
    return replace(found, took_ms=(time.perf_counter() - started) * 1000)


class Ranked(NamedTuple):
    """What both legs found."""

    scores: Mapping[int, Score]  # by turn
    shown: Mapping[int, int]  # turn -> the chunk of it that is shown
    by_words: Candidates


def _search(
    index: Connection, principal: Principal, query: str, asked: Asked, filters: Filters, limit: int, words: bool,
    weight: float,
) -> Found:  # fmt: skip
    found = ranked(index, principal, query, asked, filters=filters, limit=limit, words=words, weight=weight)
    chosen = keyword.by_rank(index, principal, _hits(index, found.scores, found.shown, limit))
    is_own = asked.space.slot.user == index.known("user", principal.user)
    return Found(
        chosen, terms=found.by_words.terms, dropped=found.by_words.dropped,
        mode="hybrid" if words else "semantic", n_unembedded=n_missing(index, asked.space.slot) if is_own else 0,
    )  # fmt: skip


def ranked(
    index: Connection, principal: Principal, query: str, asked: Asked, *, filters: Filters, limit: int,
    words: bool = True, weight: float = WEIGHT,
) -> Ranked:  # fmt: skip
    """What both legs found, inside the caller's snapshot: of at least so many turns, if so many match."""
    wanted = max(limit, CANDIDATES)
    by_words = keyword.candidates(index, principal, query, filters=filters, limit=wanted)
    chunks = _best(by_words.scored, wanted) if words and by_words.terms else {}
    seen, k = visible.of(index, principal), wanted * CHUNKS_PER_TURN
    (near,) = asked.space.nearest(index, asked.vector, filters=filters, k=k, seen=seen)
    turns = _turns(index, [chunk for chunk, _ in near])
    nearest = _best([Scored(chunk, turns[chunk], score, 0) for chunk, score in near if chunk in turns], wanted)
    nearest |= _fetched(index, asked, [turn for turn in chunks if turn not in nearest])
    scores = fuse({t: s for t, (_, s) in chunks.items()}, {t: s for t, (_, s) in nearest.items()}, weight=weight)
    return Ranked(scores, {turn: (chunks.get(turn) or nearest[turn])[0] for turn in scores}, by_words)


Best = dict[int, tuple[int, float]]  # turn -> (its best chunk, that one's score)


def _best(scored: Sequence[Scored], n: int) -> Best:
    """The first n turns of chunks that come best first, each with its best chunk."""
    found: Best = {}
    for item in scored:
        found.setdefault(item.turn, (item.chunk, item.score))
    return dict(list(found.items())[:n])


def _turns(index: Connection, chunks: Sequence[int]) -> dict[int, int]:
    rows = [
        row
        for part in vector.parts(chunks)
        for row in index.rows(f"SELECT id, turn FROM chunk WHERE id IN ({', '.join('?' * len(part))})", *part)
    ]
    return dict(rows)


def _fetched(index: Connection, asked: Asked, turns: Sequence[int]) -> Best:
    """The nearest chunk of each of these turns, of those that have vectors."""
    owners = {
        key: turn
        for part in vector.parts(turns)
        for key, turn in index.rows(f"SELECT id, turn FROM chunk WHERE turn IN ({', '.join('?' * len(part))})", *part)
    }
    chunks, vectors = asked.space.vectors(index, list(owners))
    scores = np.round((vectors.astype(np.float64) * asked.vector[0].astype(np.float64)).sum(axis=1), 6)
    order = np.lexsort((np.array(chunks), -scores)).tolist()
    found = [(chunks[n], float(scores[n])) for n in order]
    return _best([Scored(chunk, owners[chunk], score, 0) for chunk, score in found], len(turns))


def fuse(words: Mapping[int, float], meaning: Mapping[int, float], *, weight: float) -> dict[int, Score]:
    """The weighted sum of both legs, each moved to [0, 1] by its own range over all candidates.

    What the words did not find has a BM25 of 0; if they found nothing, the cosine alone is the score. What has no
    vector is taken to be as near as the average of those that have one: it is not known to be far.

    >>> {turn: round(s.fused, 3) for turn, s in fuse({1: 4.0, 2: 2.0}, {1: 0.6, 3: 0.2}, weight=0.5).items()}
    {1: 1.0, 2: 0.5, 3: 0.0}
    """
    if not words:
        return {turn: Score(score, None, score) for turn, score in meaning.items()}
    turns = sorted({*words, *meaning})
    mean = sum(meaning.values()) / len(meaning) if meaning else 0.0
    low = _to_unit({turn: words.get(turn, 0.0) for turn in turns})
    high = _to_unit({turn: meaning.get(turn, mean) for turn in turns})
    return {
        turn: Score((1 - weight) * low[turn] + weight * high[turn], words.get(turn), meaning.get(turn))
        for turn in turns
    }


def _to_unit(scores: Mapping[int, float]) -> dict[int, float]:
    """Scores moved to [0, 1] by their range; all the same become 0."""
    low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    width = high - low or 1.0
    return {key: (score - low) / width for key, score in scores.items()}


def _hits(index: Connection, scores: Mapping[int, Score], shown: Mapping[int, int], limit: int) -> tuple[Hit, ...]:
    """The best turns as hits; equal scores by the tie number of the chunk that is shown."""
    chunks = list(shown.values())
    ties = {
        key: tie
        for part in vector.parts(chunks)
        for key, tie in index.rows(f"SELECT id, tie FROM chunk WHERE id IN ({', '.join('?' * len(part))})", *part)
    }
    best = sorted(scores, key=lambda turn: (-round(scores[turn].fused, 9), ties[shown[turn]]))[:limit]
    found = keyword.hits(index, [(shown[turn], scores[turn].fused) for turn in best])
    return tuple(
        replace(hit, keyword_score=scores[turn].keyword, vector_score=scores[turn].vector)
        for turn, hit in zip(best, found, strict=True)
    )


# proof --------------------------------------------------------------------------------------------------------

Side = tuple[Connection, Slab, Slot]


def differing(old: Side, fresh: Side, *, n_probes: int, k: int) -> list[str]:
    """Of chunks spread over an index, "turn/n" of those whose k nearest are not the same in both."""
    found = []
    for name, probe in _probes(old, n_probes):
        if _neighbours(old, probe, k) != _neighbours(fresh, probe, k):
            found.append(name)
    return found


def _probes(side: Side, n: int) -> list[tuple[str, Vectors]]:
    index, slab, slot = side
    chunks = [key for (key,) in index.rows("SELECT chunk FROM vector WHERE slab = ? AND row >= 0", slot.id)]
    chosen, vectors = vector.fetch(index, slab, slot, chunks[:: max(1, len(chunks) // n)][:n])
    return [(_name(index, int(c)), vectors[i : i + 1]) for i, c in enumerate(chosen)]


def _neighbours(side: Side, probe: Vectors, k: int) -> list[str]:
    index, slab, slot = side
    with index.reading():
        (near,) = vector.near(index, slab, slot, probe, filters=Filters(), k=k)
        return [_name(index, int(chunk)) for chunk in near.chunks]


def _name(index: Connection, chunk: int) -> str:
    """The turn or memory that a chunk is of, and which of its chunks it is."""
    query = """SELECT coalesce(turn_id, memory_id), n FROM chunk LEFT JOIN turn ON turn.id = chunk.turn
        LEFT JOIN memory ON memory.id = -chunk.turn WHERE chunk.id = ?"""
    owner, n = index.rows(query, chunk)[0]
    return f"{owner}/{n}"
