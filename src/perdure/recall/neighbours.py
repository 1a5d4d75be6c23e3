"""What stands beside a good turn is worth more: an answer beside its question, a reaction beside the news.

Pure. A turn gets a share of its better neighbour's score, from the scores before anything was spread, so that the
order of the turns does not matter and nothing travels further than the reach.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

Around = Mapping[str, Sequence[tuple[str, int]]]  # id -> (neighbour's id, how many turns away)


def spread(scores: Mapping[str, float], around: Around, shares: Sequence[float]) -> dict[str, float]:
    """Each score plus, for every distance, that distance's share of the best of those in `around` that lie so near.

    around: those who lend, each with its neighbours. shares: by distance from 1. A neighbour that is no candidate
    itself becomes one.

    >>> spread({"b": 1.0}, {"b": [("a", 1), ("c", 1)]}, [0.4])
    {'a': 0.4, 'b': 1.0, 'c': 0.4}
    """
    lent: dict[str, list[float]] = {}
    for lender, score in scores.items():
        for name, away in around.get(lender, ()):
            if 1 <= away <= len(shares):
                best = lent.setdefault(name, [0.0] * len(shares))
                best[away - 1] = max(best[away - 1], score)
    nothing = (0.0,) * len(shares)
    return {
        name: scores.get(name, 0.0) + sum(map(operator.mul, shares, lent.get(name, nothing)))
        for name in sorted({*scores, *lent})
    }
