"""Fuse the legs of a search into one ranking.

Pure: no index, no model, no clock. Legs disagree about scale, so each is normalised on its own candidates before
weights apply: BM25 by its range, a cosine by cutting off what is negative. Ties break by id in `ranked`, so the same
input gives the same order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

Scores = Mapping[str, float]

LEVEL = 0.5  # what every candidate of a leg gets when all score the same: the range says nothing then


def reciprocal_rank(legs: Sequence[Sequence[str]], *, k: int = 60) -> dict[str, float]:
    """Score each id by its ranks alone: the sum over legs of 1 / (k + rank), rank from 1.

    Cormack, Clarke and Büttcher, SIGIR 2009; k = 60 is theirs.
    legs: ids, best first, no id twice in one leg. Returns id -> score in (0, n_legs / (k + 1)].

    >>> reciprocal_rank([["a", "b"], ["b"]], k=1)
    {'a': 0.5, 'b': 0.8333333333333333}
    """
    scores: dict[str, float] = defaultdict(float)
    for leg in legs:
        for rank, name in enumerate(leg, start=1):
            scores[name] += 1 / (k + rank)
    return dict(scores)


def min_max(leg: Scores) -> dict[str, float]:
    """The scores of a leg moved to [0, 1] by their own range; all the same become LEVEL.

    >>> min_max({"a": -2.0, "b": -6.0, "c": -4.0})
    {'a': 1.0, 'b': 0.0, 'c': 0.5}
    """
    if not leg:
        return {}
    low, high = min(leg.values()), max(leg.values())
    if high <= low:
        return dict.fromkeys(leg, LEVEL)
    return {name: (score - low) / (high - low) for name, score in leg.items()}


def clamp(leg: Scores) -> dict[str, float]:
    """Cosines cut to [0, 1]: what points away says nothing.

    >>> clamp({"a": -0.2, "b": 0.4})
    {'a': 0.0, 'b': 0.4}
    """
    return {name: min(1.0, max(0.0, score)) for name, score in leg.items()}


def weighted(legs: Mapping[str, Scores], weights: Mapping[str, float]) -> dict[str, float]:
    """The weighted sum of normalised legs; an id that a leg does not hold gets nothing from it.

    The weights of the legs that are there are scaled to a sum of 1, so that a leg that is missing as a whole takes
    nothing from the others: keyword search alone keeps its full scores.

    >>> weighted({"vector": {"a": 0.8}, "keyword": {"a": 0.5, "b": 1.0}}, {"vector": 0.7, "keyword": 0.3})
    {'a': 0.71, 'b': 0.3}
    """
    present = {name: weights[name] for name in sorted(legs) if weights.get(name, 0.0) > 0}
    total = sum(present.values())
    scores: dict[str, float] = defaultdict(float)
    for name, weight in present.items():
        for item, score in legs[name].items():
            scores[item] += weight / total * score
    return dict(scores)


def strongest(legs: Sequence[Scores]) -> dict[str, float]:
    """For each id the best score that any of the legs gives it.

    >>> strongest([{"a": 0.2, "b": 0.9}, {"a": 0.4}])
    {'a': 0.4, 'b': 0.9}
    """
    best: dict[str, float] = {}
    for leg in legs:
        for name, score in leg.items():
            best[name] = max(score, best.get(name, score))
    return best


def ranked(scores: Scores) -> list[str]:
    """The ids, best first; equal scores in the order of their ids."""
    return sorted(scores, key=lambda name: (-scores[name], name))
