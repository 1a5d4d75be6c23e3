"""Measures of a ranking and of silence, with intervals. Pure; every formula has a test worked out by hand.

Averages are over questions (macro). Shares are between 0 and 1. Randomness is seeded, so that a run can
be repeated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

CUTS = (1, 5, 10, 20)
N_BOOTSTRAP = 2000


def recall_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Return the share of the gold among the first k.

    >>> recall_at(["a", "x", "b"], {"a", "b"}, 2)
    0.5
    """
    return len(set(gold).intersection(ranked[:k])) / len(set(gold))


def reciprocal_rank(ranked: Sequence[str], gold: Collection[str]) -> float:
    """Return 1 / the rank of the first gold, 0 without one.

    >>> reciprocal_rank(["x", "a"], {"a"})
    0.5
    """
    return next((1 / rank for rank, name in enumerate(ranked, start=1) if name in gold), 0.0)


def ndcg_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """Return the discounted gain of the first k over the best possible, each gold worth 1.

    >>> round(ndcg_at(["x", "a"], {"a"}, 10), 4)
    0.6309
    """
    gain = sum(1 / math.log2(rank + 1) for rank, name in enumerate(ranked[:k], start=1) if name in gold)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(set(gold))) + 1))
    return gain / best


def measure_ranking(ranked: Sequence[str], gold: Collection[str]) -> dict[str, float]:
    """Compute all measures of one ranking; a repeated id counts at its first position."""
    unique_ids = list(dict.fromkeys(ranked))
    values: dict[str, float] = {}
    for k in CUTS:
        share = recall_at(unique_ids, gold, k)
        values |= {f"R@{k}": share, f"Hit@{k}": float(share > 0), f"All@{k}": float(share == 1)}
    return values | {"MRR": reciprocal_rank(unique_ids, gold), "nDCG@10": ndcg_at(unique_ids, gold, 10)}


def mean(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Average each measure over questions."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} if rows else {}


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """An estimate and the interval that holds 95 % of the resamples."""

    at: float
    low: float
    high: float


def bootstrap(values: Sequence[float], *, n: int = N_BOOTSTRAP, seed: int = 0) -> ConfidenceInterval:
    """Return the mean and its 95 % interval by resampling questions; of differences, the paired interval."""
    if not values:
        return ConfidenceInterval(0.0, 0.0, 0.0)
    draw = random.Random(seed)
    size = len(values)
    means = sorted(sum(draw.choices(values, k=size)) / size for _ in range(n))
    return ConfidenceInterval(sum(values) / size, means[int(0.025 * n)], means[min(n - 1, int(0.975 * n))])


def bootstrap_differences(
    ours: Sequence[float], theirs: Sequence[float], *, n: int = N_BOOTSTRAP, seed: int = 0
) -> ConfidenceInterval:
    """Estimate how much better our values are on the same questions, with the interval.

    >>> bootstrap_differences([1.0, 1.0], [0.0, 0.0])
    ConfidenceInterval(at=1.0, low=1.0, high=1.0)
    """
    return bootstrap([a - b for a, b in zip(ours, theirs, strict=True)], n=n, seed=seed)


def auroc(answerable: Sequence[float], unanswerable: Sequence[float]) -> float:
    """Return the chance that an answerable question scores above an unanswerable one; a tie counts half.

    >>> auroc([0.9, 0.5], [0.5, 0.1])
    0.875
    """
    if not answerable or not unanswerable:
        return 0.5
    ranks = _rank_values([*answerable, *unanswerable])
    n = len(answerable)
    return (sum(ranks[:n]) - n * (n + 1) / 2) / (n * len(unanswerable))


def _rank_values(values: Sequence[float]) -> list[float]:
    """Return the rank of each value from 1; equal values get the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for index in order[start : end + 1]:
            ranks[index] = (start + end) / 2 + 1
        start = end + 1
    return ranks


def compute_wilson(n_hits: int, n: int, *, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson, JASA 1927): of 9 in 10, from 0.596 to 0.982.

    >>> [round(bound, 3) for bound in compute_wilson(9, 10)]
    [0.596, 0.982]
    """
    if not n:
        return 0.0, 1.0
    share, spread = n_hits / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return centre - half, centre + half


def compute_silence_curve(
    answerable: Sequence[float], unanswerable: Sequence[float]
) -> list[tuple[float, float, float]]:
    """Return (threshold, share of answerable questions below it, share of unanswerable ones); recall is silent
    below it.
    """
    thresholds = sorted({*answerable, *unanswerable, math.inf})
    curve = [
        (threshold, _share_below(answerable, threshold), _share_below(unanswerable, threshold))
        for threshold in thresholds
    ]
    return curve


def _share_below(values: Sequence[float], limit: float) -> float:
    return sum(value < limit for value in values) / len(values) if values else 0.0


def find_threshold(answerable: Sequence[float], max_silent_share: float) -> float:
    """Return the highest threshold with at most this share of the answerable values below it.

    >>> find_threshold([0.1, 0.2, 0.3, 0.4], 0.25)
    0.2
    """
    ordered = sorted(answerable)
    return ordered[min(len(ordered) - 1, math.floor(max_silent_share * len(ordered)))] if ordered else 0.0
