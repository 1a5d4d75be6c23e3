"""Insights: short rules for next time, of which the surest are always at hand. Pure.

Two insights whose words are alike enough are one, said again. They are not searched for: keyword ranking finds the one
that repeats the question and not the one that applies.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.text import tokens
from perdure.types import Memory

KIND = "insight"
MAX_WORDS = 15
SAME = 0.40  # Jaccard of the words of two insights, from which on they are one (row M14)
SURE = 0.4  # confidence from which on an insight is at hand
MAX_TOKENS = 600


def alike(a: str, b: str) -> float:
    """How many of their words two texts share, of all that either has (Jaccard), 0 to 1.

    >>> alike("When deploying: run the smoke tests", "when deploying, run smoke tests first")
    0.7142857142857143
    """
    ours, theirs = _words(a), _words(b)
    return len(ours & theirs) / len(ours | theirs) if ours | theirs else 0.0


def _words(said: str) -> set[str]:
    return {word for raw in said.casefold().split() if (word := raw.strip(".,:;!?\"'()[]`"))}


def same_as(said: str, known: Iterable[Memory]) -> Memory | None:
    """The insight that says the same, the likest first; None when none does."""
    found = [(alike(said, memory.text), memory) for memory in known if memory.kind == KIND and memory.is_current]
    best = max(found, key=lambda item: (item[0], item[1].memory_id), default=None)
    return best[1] if best is not None and best[0] >= SAME else None


def at_hand(memories: Iterable[Memory], *, max_tokens: int = MAX_TOKENS) -> list[Memory]:
    """The insights that are sure enough, surest first, as many as there is room for."""
    sure = [m for m in memories if m.kind == KIND and m.is_current and m.confidence >= SURE]
    found, left = [], max_tokens
    for memory in sorted(sure, key=lambda m: (-m.confidence, -m.n_used, -m.stated_at.timestamp(), m.memory_id)):
        cost = tokens(memory.text)
        if cost <= left:
            found.append(memory)
            left -= cost
    return found
