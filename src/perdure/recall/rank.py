"""Find and fuse candidates: a plan and its vectors in; the score of every candidate out, with each leg's
share of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from perdure.index.fuse import (
    Matrix,
    Neighbours,
    Scores,
    clamp_cosines,
    fuse_legs,
    min_max,
    rank_ids,
    reciprocal_rank,
    spread,
    take_best,
)
from perdure.recall.candidates import CandidateSource, TurnFact
from perdure.recall.tuning import Tuning
from perdure.types import Plan, Window


class Ranking(Struct, frozen=True):
    """The score of every candidate, with how it came about."""

    scores: Mapping[str, float]  # turn id -> score; higher is better
    legs: Mapping[str, Scores]  # keyword and vector, normalised; speaker, time, done, recent as added
    bm25: Mapping[str, float]  # raw
    cosine: Mapping[str, float]  # raw
    fused: Mapping[str, float]  # the weighted sum of both legs, before anything is added
    facts: Mapping[str, TurnFact]


LONG_MESSAGE_CHARS = 400  # of a message; of a longer one the queries are embedded
PlanVectors: TypeAlias = "Matrix | Callable[[], Matrix | None] | None"  # a function waits for them


def rank(candidates: CandidateSource, plan: Plan, plan_vectors: PlanVectors, tuning: Tuning) -> Ranking:
    """Return all candidates for a plan.

    plan_vectors: one row for each text of `list_texts_to_embed(plan)`; words are searched while they are
    computed and compared.
    """
    windows: tuple[Window | None, ...] = (None, *plan.windows) if plan.queries else plan.windows
    if callable(plan_vectors):
        candidates.begin_vector_search(plan_vectors, tuning.pool, windows)
    bm25 = _search_keyword(candidates, list_keyword_texts(plan), windows, tuning)
    vectors = plan_vectors() if callable(plan_vectors) else plan_vectors
    vector_hits = _search_vectors(candidates, vectors, windows, tuning)
    cosine = _add_missing_cosines(candidates, vectors, bm25, vector_hits)
    fused = _fuse_legs(bm25, cosine, tuning)
    neighbours = _find_neighbours(candidates, fused, tuning)
    near_ids = {near_id for turn_neighbours in neighbours.values() for near_id, _ in turn_neighbours}
    if vectors is not None and near_ids - set(fused):
        cosine |= _compute_cosines(candidates, vectors, near_ids - set(fused))
        fused = _fuse_legs(bm25, cosine, tuning)
    scores = spread(fused, neighbours, tuning.neighbours)
    facts = candidates.get_facts(sorted(scores))
    bonuses_by_leg = compute_bonuses(plan, facts, tuning)
    for leg in bonuses_by_leg.values():
        for turn_id, bonus in leg.items():
            scores[turn_id] += bonus
    legs = {"keyword": min_max(bm25), **({"vector": clamp_cosines(cosine)} if cosine else {}), **bonuses_by_leg}
    return Ranking(scores, legs, bm25, cosine, fused, facts)


def _find_neighbours(candidates: CandidateSource, fused: Scores, tuning: Tuning) -> Neighbours:
    """Return the neighbours of the best candidates, to which they give a share of their scores."""
    reach = len(tuning.neighbours)
    return candidates.find_neighbours(rank_ids(fused)[: tuning.lenders], reach) if reach and fused else {}


def list_keyword_texts(plan: Plan) -> tuple[str, ...]:
    """Return the texts of the keyword leg: the short queries, or the message if there is only one query.

    The empty text, which finds the newest turns, if the message names nothing but a time.
    """
    if not plan.queries:
        return ("",) if plan.windows else ()
    return plan.queries if len(plan.queries) > 1 else (plan.question,)


def list_texts_to_embed(plan: Plan) -> tuple[str, ...]:
    """Return the texts whose vectors `rank` needs: the message as it was said, its queries if it is long, or
    none.

    One text: a vector for each query as well costs a scan and 5 ms each, and finds no more
    (docs/evaluation/recall.md).
    """
    if not plan.queries:
        return ()
    return (plan.question if len(plan.question) <= LONG_MESSAGE_CHARS else ", ".join(plan.queries),)


def _search_keyword(
    candidates: CandidateSource, queries: Sequence[str], windows: Iterable[Window | None], tuning: Tuning
) -> dict[str, float]:
    legs = [leg for window in windows for leg in candidates.search_keyword(queries, tuning.pool, window)]
    return take_best(legs)


def _search_vectors(
    candidates: CandidateSource, vectors: Matrix | None, windows: Iterable[Window | None], tuning: Tuning
) -> dict[str, float]:
    if vectors is None or not len(vectors):
        return {}
    return take_best([leg for window in windows for leg in candidates.search_vectors(vectors, tuning.pool, window)])


def _add_missing_cosines(
    candidates: CandidateSource, vectors: Matrix | None, bm25: Scores, vector_hits: dict[str, float]
) -> dict[str, float]:
    """Return the vector leg with the cosines of turns that only the keyword leg found (row X10)."""
    if vectors is None or not len(vectors):
        return {}
    return vector_hits | _compute_cosines(candidates, vectors, set(bm25) - set(vector_hits))


def _compute_cosines(candidates: CandidateSource, vectors: Matrix, turn_ids: Iterable[str]) -> dict[str, float]:
    """Return for each turn with a vector the best cosine between any of its chunks and any of the queries."""
    sorted_ids = sorted(turn_ids)
    if not sorted_ids or not len(vectors):
        return {}
    return dict(candidates.compute_cosines(sorted_ids, vectors))


def _fuse_legs(bm25: Scores, cosine: Scores, tuning: Tuning) -> dict[str, float]:
    if tuning.by_rank:
        return reciprocal_rank([rank_ids(leg) for leg in (bm25, clamp_cosines(cosine)) if leg])
    return fuse_legs(bm25, cosine, vector=tuning.vector)


def compute_bonuses(plan: Plan, facts: Mapping[str, TurnFact], tuning: Tuning) -> dict[str, dict[str, float]]:
    """Return the bonuses of candidates beyond their words: for the speaker, the time window and recency."""
    bonuses_by_leg = {
        "speaker": dict.fromkeys(_find_by_speaker(plan, facts), tuning.speaker),
        "time": dict.fromkeys(_find_in_windows(plan, facts), tuning.in_time),
        "done": dict.fromkeys((turn_id for turn_id, fact in facts.items() if not fact.is_said), -tuning.unsaid),
        "program": dict.fromkeys(
            (turn_id for turn_id, fact in facts.items() if fact.is_said and fact.is_from_program), -tuning.programmed
        ),
        "recent": _score_recency(facts, tuning.recent) if plan.intent == "latest" else {},
    }
    return {turn_id: leg for turn_id, leg in bonuses_by_leg.items() if leg and any(leg.values())}


def _find_by_speaker(plan: Plan, facts: Mapping[str, TurnFact]) -> list[str]:
    """Return the candidates said by the one person that the message names, otherwise by the one it asks about
    (I, you).
    """
    people = {fact.speaker for fact in facts.values() if fact.speaker}
    named_people = [person for person in people if re.search(rf"(?<!\w){re.escape(person)}(?!\w)", plan.message)]
    if len(named_people) == 1:
        return [turn_id for turn_id, fact in facts.items() if fact.speaker == named_people[0]]
    if len(plan.speakers) == 1 and not named_people:
        return [turn_id for turn_id, fact in facts.items() if fact.role == plan.speakers[0]]
    return []


def _find_in_windows(plan: Plan, facts: Mapping[str, TurnFact]) -> list[str]:
    return [
        turn_id
        for turn_id, fact in facts.items()
        if fact.stated_at is not None
        and any(window.since_at <= fact.stated_at < window.until_at for window in plan.windows)
    ]


def _score_recency(facts: Mapping[str, TurnFact], max_bonus: float) -> dict[str, float]:
    """Return `max_bonus` for the newest, falling in even steps to 0 for the oldest; undated turns are left
    out.
    """
    dated_turns = sorted((fact.stated_at, turn_id) for turn_id, fact in facts.items() if fact.stated_at)
    return {
        turn_id: max_bonus * number / max(1, len(dated_turns) - 1) for number, (_, turn_id) in enumerate(dated_turns)
    }
