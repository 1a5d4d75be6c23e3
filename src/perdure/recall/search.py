"""Search: the ranking of recall over all that the filters leave, best first, without judge and choice.

A query is taken as it is written; a message to recall is cut into queries. By meaning alone, the cosine is the score.
By words alone, a turn in which none of the words occurs is no hit.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from perdure.index.fuse import Matrix, rank_ids
from perdure.recall.assess import rank_candidates
from perdure.recall.candidates import CandidateSource
from perdure.recall.plan import plan
from perdure.recall.tuning import DEFAULT, Tuning
from perdure.types import Plan

WIDEN_FACTOR = 10  # for a list that the candidates of a recall do not fill


class SearchScore(NamedTuple):
    """The place of one turn in a search."""

    turn_id: str
    score: float  # higher is better
    bm25: float | None = None  # None if the words did not find it
    cosine: float | None = None  # of its nearest chunk; None if it has no vector
    legs: float | None = None  # the weighted sum of both legs, without what its neighbours, text and place add


def plan_search(query: str, *, now: datetime) -> Plan:
    """Return the plan of a search: its times, names and intent, and the query itself as the only query."""
    return replace(plan(query, now=now), message=query, queries=(query,), events=())


def search(
    candidates: CandidateSource, search_plan: Plan, vectors: Matrix | None, *, limit: int, tuning: Tuning = DEFAULT
) -> list[SearchScore]:
    """Return the best turns by words and meaning, best first, and memories among them if the filters let them in.

    A longer list begins with the shorter one: the legs give as many candidates as for a recall, and only if these are
    too few, more. What comes then has at most the score of the last one before.
    """
    scores: dict[str, SearchScore] = {}
    pool = tuning.pool
    while True:
        ranked = _rank_pool(candidates, search_plan, vectors, replace(tuning, pool=pool))
        ceiling = min((score.score for score in scores.values()), default=math.inf)
        new_scores = [score for score in ranked if score.turn_id not in scores]
        scores |= {score.turn_id: score._replace(score=min(score.score, ceiling)) for score in new_scores}
        if len(scores) >= limit or not new_scores or pool >= limit:
            return list(scores.values())
        pool *= WIDEN_FACTOR


def _rank_pool(
    candidates: CandidateSource, search_plan: Plan, vectors: Matrix | None, tuning: Tuning
) -> list[SearchScore]:
    ranking, _ = rank_candidates(candidates, search_plan, vectors, tuning)
    return [
        SearchScore(
            turn_id,
            ranking.scores[turn_id],
            ranking.bm25.get(turn_id),
            ranking.cosine.get(turn_id),
            ranking.fused.get(turn_id, 0.0),
        )
        for turn_id in rank_ids(ranking.scores)
        if ranking.cosine or turn_id in ranking.bm25
    ]


def search_by_meaning(candidates: CandidateSource, vectors: Matrix, *, limit: int) -> list[SearchScore]:
    """Return the turns nearest to the query, best first."""
    (cosines,) = candidates.search_vectors(vectors, limit)
    return [SearchScore(turn_id, cosines[turn_id], None, cosines[turn_id]) for turn_id in rank_ids(cosines)]
