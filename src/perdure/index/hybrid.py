"""Hybrid search: the words of a query and its meaning, each with its own candidates, fused into one
ranking.

Both legs use the same filters in the same snapshot. A turn that only the words found gets a vector
score too (its vectors are fetched), and no hit of the words is ever lost: without vectors the answer is
that of keyword search, and says so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from perdure.errors import VectorsMissing
from perdure.index import keyword, vector_search, visibility
from perdure.index.embed import count_missing
from perdure.index.keyword import KeywordCandidates, ScoredChunk
from perdure.index.slab import Slab
from perdure.index.store import IndexConnection
from perdure.index.vector_search import SlabInfo, VectorSpace
from perdure.models.embedder import Vectors
from perdure.types import Filters, Hit, Principal, SearchResult

MIN_CANDIDATES = 24  # least number of turns from each leg (design, section 5)
CHUNKS_PER_TURN = 4  # chunks fetched for each of them: a turn may be near in several
VECTOR_WEIGHT = 0.5  # of the vector leg; the keyword leg has the rest

DEGRADED = ("vector",)


class QueryVector(NamedTuple):
    """A query as a vector, and the vectors with which it may be compared."""

    space: VectorSpace
    vector: Vectors  # (1, dimension)
    weight: float = VECTOR_WEIGHT  # of the vector leg


class LegScores(NamedTuple):
    """The scores of one turn."""

    fused: float
    keyword: float | None  # BM25; None when the keyword leg did not find the turn
    vector: float | None  # cosine of its nearest chunk; None when it has no vector


def search_hybrid(
    index: IndexConnection,
    principal: Principal,
    query: str,
    query_vector: QueryVector,
    *,
    filters: Filters,
    limit: int,
    use_words: bool = True,
) -> SearchResult:
    """Return the best turns by words and meaning, best first; by meaning alone with use_words=False."""
    started_s = time.perf_counter()
    try:
        with index.begin_read():
            result = _search_in_snapshot(index, principal, query, query_vector, filters, limit, use_words)
    except VectorsMissing:
        result = keyword.search(index, principal, query, filters=filters, limit=limit)
        return replace(result, degraded=DEGRADED)
    return replace(result, took_ms=(time.perf_counter() - started_s) * 1000)


class HybridRanking(NamedTuple):
    """The turns that both legs found."""

    scores: Mapping[int, LegScores]  # by turn
    shown_chunks: Mapping[int, int]  # turn -> its chunk that is shown
    keyword_candidates: KeywordCandidates


def _search_in_snapshot(
    index: IndexConnection,
    principal: Principal,
    query: str,
    query_vector: QueryVector,
    filters: Filters,
    limit: int,
    use_words: bool,
) -> SearchResult:
    ranking = rank_turns(index, principal, query, query_vector, filters=filters, limit=limit, use_words=use_words)
    hits = keyword.hide_shared_scores(index, principal, _build_hits(index, ranking.scores, ranking.shown_chunks, limit))
    is_own = query_vector.space.info.user == index.find_name("user", principal.user)
    return SearchResult(
        hits,
        terms=ranking.keyword_candidates.terms,
        dropped=ranking.keyword_candidates.dropped,
        mode="hybrid" if use_words else "semantic",
        n_unembedded=count_missing(index, query_vector.space.info) if is_own else 0,
    )


def rank_turns(
    index: IndexConnection,
    principal: Principal,
    query: str,
    query_vector: QueryVector,
    *,
    filters: Filters,
    limit: int,
    use_words: bool = True,
) -> HybridRanking:
    """Rank the turns that both legs find, inside the caller's snapshot: at least `limit` turns, if so many
    match.
    """
    n_turns = max(limit, MIN_CANDIDATES)
    keyword_candidates = keyword.find_candidates(index, principal, query, filters=filters, limit=n_turns)
    best_by_words = (
        _take_best_per_turn(keyword_candidates.scored, n_turns) if use_words and keyword_candidates.terms else {}
    )
    read_scope, k = visibility.get_read_scope(index, principal), n_turns * CHUNKS_PER_TURN
    (nearest_chunks,) = query_vector.space.find_nearest(
        index, query_vector.vector, filters=filters, k=k, read_scope=read_scope
    )
    turns = _find_turns(index, [chunk for chunk, _ in nearest_chunks])
    best_by_vector = _take_best_per_turn(
        [ScoredChunk(chunk, turns[chunk], score, 0) for chunk, score in nearest_chunks if chunk in turns], n_turns
    )
    best_by_vector |= _fetch_best(index, query_vector, [turn for turn in best_by_words if turn not in best_by_vector])
    scores = fuse_legs(
        {scored_turn: leg_score for scored_turn, (_, leg_score) in best_by_words.items()},
        {scored_turn: leg_score for scored_turn, (_, leg_score) in best_by_vector.items()},
        weight=query_vector.weight,
    )
    return HybridRanking(
        scores, {turn: (best_by_words.get(turn) or best_by_vector[turn])[0] for turn in scores}, keyword_candidates
    )


BestChunks = dict[int, tuple[int, float]]  # turn -> (its best chunk, the score of that chunk)


def _take_best_per_turn(scored: Sequence[ScoredChunk], n: int) -> BestChunks:
    """Return the first n turns, each with its best chunk. scored: chunks, best first."""
    best_chunks: BestChunks = {}
    for item in scored:
        best_chunks.setdefault(item.turn, (item.chunk, item.score))
    return dict(list(best_chunks.items())[:n])


def _find_turns(index: IndexConnection, chunks: Sequence[int]) -> dict[int, int]:
    rows = [
        row
        for chunk_group in vector_search.split_values(chunks)
        for row in index.select(
            f"SELECT id, turn FROM chunk WHERE id IN ({', '.join('?' * len(chunk_group))})", *chunk_group
        )
    ]
    return dict(rows)


def _fetch_best(index: IndexConnection, query_vector: QueryVector, turns: Sequence[int]) -> BestChunks:
    """Return the nearest chunk of each of those of these turns that have vectors."""
    turn_by_chunk = {
        owned_chunk: turn
        for turn_group in vector_search.split_values(turns)
        for owned_chunk, turn in index.select(
            f"SELECT id, turn FROM chunk WHERE turn IN ({', '.join('?' * len(turn_group))})", *turn_group
        )
    }
    chunks, vectors = query_vector.space.fetch_vectors(index, list(turn_by_chunk))
    scores = np.round((vectors.astype(np.float64) * query_vector.vector[0].astype(np.float64)).sum(axis=1), 6)
    order = np.lexsort((np.array(chunks), -scores)).tolist()
    scored_chunks = [(chunks[n], float(scores[n])) for n in order]
    return _take_best_per_turn(
        [ScoredChunk(chunk, turn_by_chunk[chunk], score, 0) for chunk, score in scored_chunks], len(turns)
    )


def fuse_legs(
    word_scores: Mapping[int, float], vector_scores: Mapping[int, float], *, weight: float
) -> dict[int, LegScores]:
    """Return the weighted sum of both legs, each moved to [0, 1] by its own range over all candidates.

    A turn that the words did not find has a BM25 of 0; if the words found nothing, the cosine alone is the
    score. A turn without a vector counts as near as the average of those with one: it is not known to be
    far.

    >>> {turn: round(s.fused, 3) for turn, s in fuse_legs({1: 4.0, 2: 2.0}, {1: 0.6, 3: 0.2}, weight=0.5).items()}
    {1: 1.0, 2: 0.5, 3: 0.0}
    """
    if not word_scores:
        return {turn: LegScores(score, None, score) for turn, score in vector_scores.items()}
    turns = sorted({*word_scores, *vector_scores})
    mean = sum(vector_scores.values()) / len(vector_scores) if vector_scores else 0.0
    unit_word_scores = _to_unit({turn: word_scores.get(turn, 0.0) for turn in turns})
    unit_vector_scores = _to_unit({turn: vector_scores.get(turn, mean) for turn in turns})
    return {
        turn: LegScores(
            (1 - weight) * unit_word_scores[turn] + weight * unit_vector_scores[turn],
            word_scores.get(turn),
            vector_scores.get(turn),
        )
        for turn in turns
    }


def _to_unit(scores: Mapping[int, float]) -> dict[int, float]:
    """Move scores to [0, 1] by their range; equal scores all become 0."""
    low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    width = high - low or 1.0
    return {key: (score - low) / width for key, score in scores.items()}


def _build_hits(
    index: IndexConnection, scores: Mapping[int, LegScores], shown_chunks: Mapping[int, int], limit: int
) -> tuple[Hit, ...]:
    """Return the best turns as hits; equal scores are ordered by the tie number of the chunk that is shown."""
    chunks = list(shown_chunks.values())
    ties = {
        chunk: tie
        for chunk_group in vector_search.split_values(chunks)
        for chunk, tie in index.select(
            f"SELECT id, tie FROM chunk WHERE id IN ({', '.join('?' * len(chunk_group))})", *chunk_group
        )
    }
    best_turns = sorted(scores, key=lambda turn: (-round(scores[turn].fused, 9), ties[shown_chunks[turn]]))[:limit]
    hits = keyword.read_hits(index, [(shown_chunks[turn], scores[turn].fused) for turn in best_turns])
    return tuple(
        replace(hit, keyword_score=scores[turn].keyword, vector_score=scores[turn].vector)
        for turn, hit in zip(best_turns, hits, strict=True)
    )


# proof --------------------------------------------------------------------------------------------------------

VectorSide = tuple[IndexConnection, Slab, SlabInfo]


def list_differing_chunks(old_side: VectorSide, new_side: VectorSide, *, n_probes: int, k: int) -> list[str]:
    """Return "turn/n" of those probes whose k nearest chunks differ between two indexes. Probes are spread
    over the old one.
    """
    differing_names = []
    for name, probe in _choose_probes(old_side, n_probes):
        if _find_neighbours(old_side, probe, k) != _find_neighbours(new_side, probe, k):
            differing_names.append(name)
    return differing_names


def _choose_probes(side: VectorSide, n: int) -> list[tuple[str, Vectors]]:
    index, slab, info = side
    chunks = [
        chunk_number
        for (chunk_number,) in index.select("SELECT chunk FROM vector WHERE slab = ? AND row >= 0", info.id)
    ]
    found_chunks, vectors = vector_search.fetch_vectors(index, slab, info, chunks[:: max(1, len(chunks) // n)][:n])
    return [(_describe_chunk(index, int(chunk)), vectors[i : i + 1]) for i, chunk in enumerate(found_chunks)]


def _find_neighbours(side: VectorSide, probe: Vectors, k: int) -> list[str]:
    index, slab, info = side
    with index.begin_read():
        (nearest_rows,) = vector_search.find_nearest(index, slab, info, probe, filters=Filters(), k=k)
        return [_describe_chunk(index, int(chunk)) for chunk in nearest_rows.chunks]


def _describe_chunk(index: IndexConnection, chunk: int) -> str:
    """Return the id of the turn or memory of a chunk, and the position of the chunk in it."""
    query = """SELECT coalesce(turn_id, memory_id), n FROM chunk LEFT JOIN turn ON turn.id = chunk.turn
        LEFT JOIN memory ON memory.id = -chunk.turn WHERE chunk.id = ?"""
    owner, n = index.select(query, chunk)[0]
    return f"{owner}/{n}"
