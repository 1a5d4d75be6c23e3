"""Refine the scores of the best candidates by what their texts hold. Pure, but for reading the candidates' texts.

The legs score each turn by its own best chunk, and their sum cannot tell a turn that holds every word of the
question from one that repeats a rare word. Five features of the text say more, each added as a share of the best
score: the words of the question that the turn and its neighbours hold together, those that the turn holds itself,
its cosine, whether it is long enough to say anything, and whether an agent only announces in it what it does next
(docs/evaluation/recall.md, refined scores).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.recall import judge
from perdure.recall.candidates import CandidateSource
from perdure.recall.fuse import Neighbours, rank_ids
from perdure.recall.rank import Ranking
from perdure.recall.tuning import Tuning
from perdure.types import Plan

N_REFINED = 40  # best candidates whose texts are read
REACH = 2  # turns on each side that count as neighbours
FULL_CHARS = 100  # a text of this length or longer counts as long enough


def refine(candidates: CandidateSource, plan: Plan, ranking: Ranking, tuning: Tuning) -> Ranking:
    """Return the ranking with higher scores for the candidates whose texts fit the question; without vectors it
    stays, because then the words have decided already.
    """
    best_ids = rank_ids(ranking.scores)[:N_REFINED]
    words = judge.extract_query_words(plan.question)
    if not best_ids or not words or not ranking.cosine:
        return ranking
    details = candidates.get_details(best_ids)
    texts = {turn_id: detail.text for turn_id, detail in details.items()}
    weights = judge.weigh_words(candidates.get_rarities(words))
    held_words = judge.find_held_words(weights, texts)
    covered = cover_with_neighbours(weights, held_words, candidates.find_neighbours(best_ids, REACH))
    best_score = max(ranking.scores[best_ids[0]], 0.0)
    scores = dict(ranking.scores)
    for turn_id, words_held in held_words.items():
        scores[turn_id] += best_score * (
            tuning.covered * covered[turn_id]
            + tuning.held * len(words_held) / len(weights)
            + tuning.cosine * ranking.cosine.get(turn_id, 0.0)
            + tuning.full * min(1.0, len(texts[turn_id]) / FULL_CHARS)
            - tuning.announced * (details[turn_id].role == "assistant" and texts[turn_id].rstrip().endswith(":"))
        )
    return replace(ranking, scores=scores)


def cover_with_neighbours(
    weights: Mapping[str, float], held_words: Mapping[str, frozenset[str]], neighbours: Neighbours
) -> dict[str, float]:
    """Return for each turn the share of the words' weight that it and its neighbours among these turns hold.

    >>> held = {"a": frozenset({"port"}), "b": frozenset({"staging"}), "c": frozenset()}
    >>> cover_with_neighbours({"port": 3.0, "staging": 1.0}, held, {"a": [("b", 1)], "c": [("b", 1)]})
    {'a': 1.0, 'b': 0.25, 'c': 0.25}
    """
    total = sum(weights.values())
    shares: dict[str, float] = {}
    for turn_id, own_words in held_words.items():
        near_ids: Sequence[str] = [near_id for near_id, _ in neighbours.get(turn_id, ()) if near_id in held_words]
        all_words = own_words.union(*(held_words[near_id] for near_id in near_ids))
        shares[turn_id] = sum(weights[word] for word in all_words) / total if total else 0.0
    return shares
