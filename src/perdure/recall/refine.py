"""Refine the scores of the best candidates by what their texts hold and where they stand in their conversation. Pure,
but for reading the candidates' texts and places.

The legs score each turn by its own best chunk, and their sum cannot tell a turn that holds every word of the
question from one that repeats a rare word. The text says more: the words of the question that the turn and its
neighbours hold together, those that the turn holds itself, its cosine, whether it is long enough to say anything. So
does the place: an agent's last words for a message of a person conclude what it did, its words before those are on the
way, and a person's short question asks what is asked now. Each feature is added as a share of the best score
(docs/evaluation/recall.md, refined scores).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from perdure.index.fuse import Neighbours, rank_ids
from perdure.recall import judge
from perdure.recall.candidates import MAX_STEPS, CandidateDetail, CandidateSource
from perdure.recall.rank import Ranking
from perdure.recall.tuning import Tuning
from perdure.types import Plan

N_REFINED = 40  # best candidates whose texts are read
REACH = 2  # turns on each side that count as neighbours
FULL_CHARS = 100  # a text of this length or longer counts as long enough
QUESTION_CHARS = 120  # a longer text that ends in a question mark may also state something
QUESTION_MARKS = ("?", "？")


def refine(candidates: CandidateSource, plan: Plan, ranking: Ranking, tuning: Tuning) -> Ranking:
    """Return the ranking with higher scores for the candidates whose texts and places fit the question; without vectors
    it stays, because then the words have decided already.
    """
    best_ids = rank_ids(ranking.scores)[:N_REFINED]
    features = read_features(candidates, plan, ranking, best_ids)
    if not features:
        return ranking
    best_score = max(ranking.scores[best_ids[0]], 0.0)
    scores = dict(ranking.scores)
    for turn_id, values in features.items():
        scores[turn_id] += best_score * sum(getattr(tuning, name) * value for name, value in values.items())
    return replace(ranking, scores=scores)


def read_features(
    candidates: CandidateSource, plan: Plan, ranking: Ranking, turn_ids: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return for each of these candidates its features by the name of their weight in `Tuning`, from -1 to 1.

    Nothing without vectors or words. A negative value is taken from the score.
    """
    words = judge.extract_query_words(plan.question)
    if not turn_ids or not words or not ranking.cosine:
        return {}
    details = candidates.get_details(turn_ids)
    weights = judge.weigh_words(candidates.get_rarities(words))
    held_words = judge.find_held_words(weights, {turn_id: detail.text for turn_id, detail in details.items()})
    covered = cover_with_neighbours(weights, held_words, candidates.find_neighbours(turn_ids, REACH))
    places = _read_places(candidates, details, weights)
    return {
        turn_id: {
            "covered": covered[turn_id],
            "held": len(held_words[turn_id]) / len(weights),
            "cosine": ranking.cosine.get(turn_id, 0.0),
            **_read_form(detail),
            **places.get(turn_id, {}),
        }
        for turn_id, detail in details.items()
    }


def _read_form(detail: CandidateDetail) -> dict[str, float]:
    """Return the features of a text's form: its length, and whether it asks, announces or calls a tool."""
    words = detail.text.strip()
    is_question = detail.role == "user" and len(words) < QUESTION_CHARS and words.endswith(QUESTION_MARKS)
    return {
        "full": min(1.0, len(detail.text) / FULL_CHARS),
        "announced": -float(detail.role == "assistant" and words.endswith(":")),
        "questioned": -float(is_question and detail.memory is None),
        "called": -float(detail.is_call),
    }


def _read_places(
    candidates: CandidateSource, details: Mapping[str, CandidateDetail], weights: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return for each text of an agent the features of its place in the exchange."""
    spoken_ids = [
        turn_id
        for turn_id, detail in details.items()
        if detail.role == "assistant" and detail.memory is None and not detail.is_call
    ]
    exchanges = candidates.find_exchanges(spoken_ids)
    opener_ids = sorted({exchange.opener_id for exchange in exchanges.values()} - {""})
    opener_texts = {turn_id: detail.text for turn_id, detail in candidates.get_details(opener_ids).items()}
    opener_words = judge.find_held_words(weights, opener_texts)
    places: dict[str, dict[str, float]] = {}
    for turn_id, exchange in exchanges.items():
        if not exchange.is_last:
            places[turn_id] = {"on_the_way": -1.0}
        elif exchange.n_steps:
            asked_share = share_weight(weights, opener_words.get(exchange.opener_id, ()))
            places[turn_id] = {"concluded": exchange.n_steps / MAX_STEPS, "answered": asked_share}
    return places


def share_weight(weights: Mapping[str, float], words: Collection[str]) -> float:
    """Return the share of the weight of all words that these words have."""
    total = sum(weights.values())
    return sum(weights[word] for word in words) / total if total else 0.0


def cover_with_neighbours(
    weights: Mapping[str, float], held_words: Mapping[str, frozenset[str]], neighbours: Neighbours
) -> dict[str, float]:
    """Return for each turn the share of the words' weight that it and its neighbours among these turns hold.

    >>> held = {"a": frozenset({"port"}), "b": frozenset({"staging"}), "c": frozenset()}
    >>> cover_with_neighbours({"port": 3.0, "staging": 1.0}, held, {"a": [("b", 1)], "c": [("b", 1)]})
    {'a': 1.0, 'b': 0.25, 'c': 0.25}
    """
    shares: dict[str, float] = {}
    for turn_id, own_words in held_words.items():
        near_ids: Sequence[str] = [near_id for near_id, _ in neighbours.get(turn_id, ()) if near_id in held_words]
        all_words = own_words.union(*(held_words[near_id] for near_id in near_ids))
        shares[turn_id] = share_weight(weights, all_words)
    return shares
