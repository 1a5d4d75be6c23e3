"""Fuse the legs of a search into one ranking, and pass scores to neighbours.

Recall, search and the search of memories fuse by these functions. Pure: no index, no model, no clock.
Legs disagree about scale, so each is normalised on its own candidates before weights apply: BM25 by its
range, a cosine by cutting off negative values. Ties break by id in `rank_ids`, so the same input gives
the same order.

Neighbours: an answer beside its question is worth more, and so is a reaction beside the news. A turn
gets a share of its better neighbour's score. Only scores from before this step are passed on, so the
order of the turns does not matter and no score travels further than the reach.
"""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    import numpy as np

Scores = Mapping[str, float]
Id = TypeVar("Id", str, int)  # of what is ranked

EQUAL_SCORE = 0.5  # score of every candidate of a leg if all are equal: the range is 0 then


def reciprocal_rank(legs: Sequence[Sequence[str]], *, k: int = 60) -> dict[str, float]:
    """Score each id by its ranks alone: the sum over legs of 1 / (k + rank), rank from 1.

    Cormack, Clarke and Büttcher, SIGIR 2009; k = 60 is theirs.
    legs: ids, best first, no id twice in one leg. Returns id -> score in (0, n_legs / (k + 1)].

    >>> reciprocal_rank([["a", "b"], ["b"]], k=1)
    {'a': 0.5, 'b': 0.8333333333333333}
    """
    scores: dict[str, float] = defaultdict(float)
    for leg in legs:
        for rank, item_id in enumerate(leg, start=1):
            scores[item_id] += 1 / (k + rank)
    return dict(scores)


def min_max(leg: Mapping[Id, float]) -> dict[Id, float]:
    """Return the scores of a leg scaled to [0, 1] by their own range; equal scores become EQUAL_SCORE.

    >>> min_max({"a": -2.0, "b": -6.0, "c": -4.0})
    {'a': 1.0, 'b': 0.0, 'c': 0.5}
    """
    if not leg:
        return {}
    lowest, highest = min(leg.values()), max(leg.values())
    if highest <= lowest:
        return dict.fromkeys(leg, EQUAL_SCORE)
    return {item_id: (score - lowest) / (highest - lowest) for item_id, score in leg.items()}


def clamp_cosines(leg: Mapping[Id, float]) -> dict[Id, float]:
    """Return cosines cut to [0, 1]: a negative cosine says nothing.

    >>> clamp_cosines({"a": -0.2, "b": 0.4})
    {'a': 0.0, 'b': 0.4}
    """
    return {item_id: min(1.0, max(0.0, score)) for item_id, score in leg.items()}


def sum_weighted(legs: Mapping[str, Mapping[Id, float]], weights: Mapping[str, float]) -> dict[Id, float]:
    """Return the weighted sum of normalised legs; an id gets nothing from a leg that lacks it.

    The weights of the legs that exist are scaled to a sum of 1, so a leg that is missing as a whole takes
    nothing from the others: keyword search alone keeps its full scores.

    >>> sum_weighted({"vector": {"a": 0.8}, "keyword": {"a": 0.5, "b": 1.0}}, {"vector": 0.7, "keyword": 0.3})
    {'a': 0.71, 'b': 0.3}
    """
    present_weights = {leg_name: weights[leg_name] for leg_name in sorted(legs) if weights.get(leg_name, 0.0) > 0}
    total = sum(present_weights.values())
    scores: dict[Id, float] = defaultdict(float)
    for leg_name, weight in present_weights.items():
        for item_id, score in legs[leg_name].items():
            scores[item_id] += weight / total * score
    return dict(scores)


def fuse_legs(bm25: Mapping[Id, float], cosine: Mapping[Id, float], *, vector: float) -> dict[Id, float]:
    """Return the weighted sum of both legs, each normalised over its own candidates. vector: weight of the cosines.

    >>> fuse_legs({"a": 2.0, "b": 4.0}, {"a": 0.6, "c": -0.1}, vector=0.5)
    {'a': 0.3, 'b': 0.5, 'c': 0.0}
    """
    legs: dict[str, Mapping[Id, float]] = {}
    if bm25:
        legs["keyword"] = min_max(bm25)
    if cosine:
        legs["vector"] = clamp_cosines(cosine)
    return sum_weighted(legs, {"keyword": 1 - vector, "vector": vector})


def take_best(legs: Sequence[Scores]) -> dict[str, float]:
    """Return for each id the best score that any of the legs gives it.

    >>> take_best([{"a": 0.2, "b": 0.9}, {"a": 0.4}])
    {'a': 0.4, 'b': 0.9}
    """
    best_scores: dict[str, float] = {}
    for leg in legs:
        for item_id, score in leg.items():
            best_scores[item_id] = max(score, best_scores.get(item_id, score))
    return best_scores


def rank_ids(scores: Scores) -> list[str]:
    """Return the ids, best first; equal scores in the order of their ids."""
    return sorted(scores, key=lambda item_id: (-scores[item_id], item_id))


Neighbours = Mapping[str, Sequence[tuple[str, int]]]  # id -> (neighbour's id, how many turns away)


def spread(scores: Mapping[str, float], neighbours: Neighbours, shares: Sequence[float]) -> dict[str, float]:
    """Return each score plus, for every distance, that distance's share of the best score among the neighbours
    there.

    neighbours: of each turn that passes its score on. shares: by distance from 1. A neighbour that is no
    candidate itself becomes one.

    >>> spread({"b": 1.0}, {"b": [("a", 1), ("c", 1)]}, [0.4])
    {'a': 0.4, 'b': 1.0, 'c': 0.4}
    """
    lent_scores: dict[str, list[float]] = {}
    for lender, score in scores.items():
        for item_id, distance in neighbours.get(lender, ()):
            if 1 <= distance <= len(shares):
                best_by_distance = lent_scores.setdefault(item_id, [0.0] * len(shares))
                best_by_distance[distance - 1] = max(best_by_distance[distance - 1], score)
    no_scores = (0.0,) * len(shares)
    return {
        item_id: scores.get(item_id, 0.0) + sum(map(operator.mul, shares, lent_scores.get(item_id, no_scores)))
        for item_id in sorted({*scores, *lent_scores})
    }


Matrix: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"  # rows of float32; numpy itself is loaded with an embedder


def compute_rarity(n_with: int, n_total: int) -> float:
    """Return ln(N / n), never below 0; a word in no chunk counts as half a sighting, the rarest of all.

    >>> round(compute_rarity(1, 100), 3), round(compute_rarity(0, 100), 3)
    (4.605, 5.298)
    """
    return max(0.0, math.log(n_total / max(n_with, 0.5))) if n_total > 0 else 0.0
