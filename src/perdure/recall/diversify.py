"""Maximal marginal relevance: choose the next best item that does not repeat a chosen one.

Carbonell and Goldstein, SIGIR 1998. Pure. A candidate is compared with the chosen items only, never
with all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from perdure.index.fuse import rank_ids

Likeness = Callable[[str, str], float]  # two ids -> likeness, 0 to 1


def diversify(
    scores: Mapping[str, float], likeness: Likeness, *, relevance: float, k: int, same_likeness: float = 2.0
) -> list[str]:
    """Return at most k ids, chosen one by one by the best relevance · score - (1 - relevance) · likeness to
    the chosen.

    relevance: λ in [0, 1]; at 1 the result is the plain ranking. same_likeness: from this likeness on two
    say the same, so the second is never chosen, however relevant (2 switches it off). Ties break by id.

    >>> same = lambda a, b: 1.0 if a[0] == b[0] else 0.0
    >>> diversify({"a1": 1.0, "a2": 0.9, "b1": 0.5}, same, relevance=0.5, k=2)
    ['a1', 'b1']
    """
    remaining = rank_ids(scores)
    highest_likeness = dict.fromkeys(remaining, 0.0)  # highest likeness to a chosen item
    chosen_ids: list[str] = []
    while remaining and len(chosen_ids) < k:
        best_id = max(
            remaining, key=lambda item_id: relevance * scores[item_id] - (1 - relevance) * highest_likeness[item_id]
        )
        chosen_ids.append(best_id)
        remaining.remove(best_id)
        for item_id in remaining:
            highest_likeness[item_id] = max(highest_likeness[item_id], likeness(best_id, item_id))
        remaining = [item_id for item_id in remaining if highest_likeness[item_id] < same_likeness]
    return chosen_ids


def split_repeats(
    ids: Sequence[str], read_stems: Callable[[str], Set[str]], *, least_shared: float
) -> tuple[list[str], list[str]]:
    """Return (the ids whose text repeats no earlier one, the others), each in their order.

    Two texts say the same if they share `least_shared` of their stems, and all numbers. No stems: repeats nothing.

    >>> stems = {"a1": {"port", "80"}, "a2": {"port", "80"}, "b1": {"port", "81"}}
    >>> split_repeats(["a1", "a2", "b1"], stems.__getitem__, least_shared=0.3)
    (['a1', 'b1'], ['a2'])
    """
    distinct_ids, repeated_ids, distinct_stems = [], [], list[Set[str]]()
    for item_id in ids:
        stems = read_stems(item_id)
        if any(
            # most pairs differ in length, which costs nothing to see
            min(len(stems), len(other)) >= least_shared * max(len(stems), len(other))
            and len(stems & other) >= least_shared * len(stems | other)
            and not any(stem.isdecimal() for stem in stems ^ other)
            for other in distinct_stems
        ):
            repeated_ids.append(item_id)
        else:
            distinct_ids.append(item_id)
            distinct_stems += [stems] if stems else []
    return distinct_ids, repeated_ids
