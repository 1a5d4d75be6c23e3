"""Maximal marginal relevance: the next best that does not repeat what is already chosen.

Carbonell and Goldstein, SIGIR 1998. Pure. A candidate is compared with the CHOSEN items only, never with all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perdure.recall.fuse import ranked

Alike = Callable[[str, str], float]  # two ids -> how alike they are, 0 to 1


def diversify(scores: Mapping[str, float], alike: Alike, *, relevance: float, k: int, same: float = 2.0) -> list[str]:
    """At most k ids: each time the one with the best relevance · score - (1 - relevance) · likeness to the chosen.

    relevance: λ in [0, 1]; at 1 it is the plain ranking. same: likeness from which two say the same, so that the
    second is never chosen, however relevant (2 switches it off). Ties break by id.

    >>> same = lambda a, b: 1.0 if a[0] == b[0] else 0.0
    >>> diversify({"a1": 1.0, "a2": 0.9, "b1": 0.5}, same, relevance=0.5, k=2)
    ['a1', 'b1']
    """
    left = ranked(scores)
    nearest = dict.fromkeys(left, 0.0)  # likeness to the most alike of the chosen
    chosen: list[str] = []
    while left and len(chosen) < k:
        best = max(left, key=lambda name: relevance * scores[name] - (1 - relevance) * nearest[name])
        chosen.append(best)
        left.remove(best)
        for name in left:
            nearest[name] = max(nearest[name], alike(best, name))
        left = [name for name in left if nearest[name] < same]
    return chosen
