"""Measures of a ranking and of silence, with intervals. Pure; every formula has a test worked out by hand.

Averages are over questions (macro). Shares lie in [0, 1]. Randomness is seeded, so that a run can be repeated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

CUTS = (1, 5, 10, 20)
N_BOOTSTRAP = 2000


def recall_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """The share of the gold that stands in the first k.

    >>> recall_at(["a", "x", "b"], {"a", "b"}, 2)
    0.5
    """
    return len(set(gold).intersection(ranked[:k])) / len(set(gold))


def reciprocal(ranked: Sequence[str], gold: Collection[str]) -> float:
    """1 / the rank of the first gold, 0 without one.

    >>> reciprocal(["x", "a"], {"a"})
    0.5
    """
    return next((1 / rank for rank, name in enumerate(ranked, start=1) if name in gold), 0.0)


def ndcg_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Discounted gain of the first k over the best possible, each gold worth 1.

    >>> round(ndcg_at(["x", "a"], {"a"}, 10), 4)
    0.6309
    """
    gain = sum(1 / math.log2(rank + 1) for rank, name in enumerate(ranked[:k], start=1) if name in gold)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(set(gold))) + 1))
    return gain / best


def of_ranking(ranked: Sequence[str], gold: Collection[str]) -> dict[str, float]:
    """All measures of one ranking; a repeated id counts where it first stands."""
    once = list(dict.fromkeys(ranked))
    found: dict[str, float] = {}
    for k in CUTS:
        share = recall_at(once, gold, k)
        found |= {f"R@{k}": share, f"Hit@{k}": float(share > 0), f"All@{k}": float(share == 1)}
    return found | {"MRR": reciprocal(once, gold), "nDCG@10": ndcg_at(once, gold, 10)}


def mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The average of each measure over questions."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} if rows else {}


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and where 95 % of the resamples lie."""

    at: float
    low: float
    high: float


def bootstrap(values: Sequence[float], *, n: int = N_BOOTSTRAP, seed: int = 0) -> Interval:
    """The mean and its 95 % interval by resampling questions. Of differences of two systems it is the paired one."""
    if not values:
        return Interval(0.0, 0.0, 0.0)
    draw = random.Random(seed)
    size = len(values)
    means = sorted(sum(draw.choices(values, k=size)) / size for _ in range(n))
    return Interval(sum(values) / size, means[int(0.025 * n)], means[min(n - 1, int(0.975 * n))])


def paired(ours: Sequence[float], theirs: Sequence[float], *, n: int = N_BOOTSTRAP, seed: int = 0) -> Interval:
    """How much better ours is on the same questions, with its interval.

    >>> paired([1.0, 1.0], [0.0, 0.0])
    Interval(at=1.0, low=1.0, high=1.0)
    """
    return bootstrap([a - b for a, b in zip(ours, theirs, strict=True)], n=n, seed=seed)


def auroc(answerable: Sequence[float], unanswerable: Sequence[float]) -> float:
    """The chance that an answerable question scores above an unanswerable one; a tie counts half.

    >>> auroc([0.9, 0.5], [0.5, 0.1])
    0.875
    """
    if not answerable or not unanswerable:
        return 0.5
    ranks = _ranks([*answerable, *unanswerable])
    n = len(answerable)
    return (sum(ranks[:n]) - n * (n + 1) / 2) / (n * len(unanswerable))


def _ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 1, the mean of their ranks for equal ones."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in order[start : end + 1]:
            ranks[place] = (start + end) / 2 + 1
        start = end + 1
    return ranks


def silence_curve(answerable: Sequence[float], unanswerable: Sequence[float]) -> list[tuple[float, float, float]]:
    """(threshold, share of answerable that fall silent, share of unanswerable that do): silent is below it."""
    marks = sorted({*answerable, *unanswerable, math.inf})
    below = [(m, _share_below(answerable, m), _share_below(unanswerable, m)) for m in marks]
    return below


def _share_below(values: Sequence[float], mark: float) -> float:
    return sum(value < mark for value in values) / len(values) if values else 0.0


def threshold(answerable: Sequence[float], most_silent: float) -> float:
    """The highest threshold below which at most this share of the answerable lies.

    >>> threshold([0.1, 0.2, 0.3, 0.4], 0.25)
    0.2
    """
    ordered = sorted(answerable)
    return ordered[min(len(ordered) - 1, math.floor(most_silent * len(ordered)))] if ordered else 0.0
