"""Insights: short rules for next time. The surest of them are part of every session. Pure.

Two insights with similar words are one that was said again. Insights are not searched: keyword ranking
finds the one that repeats the question and not the one that applies.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.text import tokens
from perdure.types import Memory

INSIGHT_KIND = "insight"
MAX_WORDS = 15
SAME_JACCARD = 0.40  # two insights with at least this Jaccard of their words are one (row M14)
SURE_CONFIDENCE = 0.4  # lowest confidence of an insight that every session gets
MAX_TOKENS = 600


def compute_jaccard(a: str, b: str) -> float:
    """Return the share of common words among all words of two texts (Jaccard), 0 to 1.

    >>> compute_jaccard("When deploying: run the smoke tests", "when deploying, run smoke tests first")
    0.7142857142857143
    """
    words_a, words_b = _split_words(a), _split_words(b)
    return len(words_a & words_b) / len(words_a | words_b) if words_a | words_b else 0.0


def _split_words(text: str) -> set[str]:
    return {word for token in text.casefold().split() if (word := token.strip(".,:;!?\"'()[]`"))}


def find_same_insight(text: str, known_memories: Iterable[Memory]) -> Memory | None:
    """Return the most similar insight that says the same; None if none does."""
    scored_insights = [
        (compute_jaccard(text, memory.text), memory)
        for memory in known_memories
        if memory.kind == INSIGHT_KIND and memory.is_current
    ]
    best = max(scored_insights, key=lambda scored: (scored[0], scored[1].memory_id), default=None)
    return best[1] if best is not None and best[0] >= SAME_JACCARD else None


def choose_surest(memories: Iterable[Memory], *, max_tokens: int = MAX_TOKENS) -> list[Memory]:
    """Return the insights that are sure enough, surest first, as many as fit into max_tokens."""
    candidates = [m for m in memories if m.kind == INSIGHT_KIND and m.is_current and m.confidence >= SURE_CONFIDENCE]
    chosen, tokens_left = [], max_tokens
    for memory in sorted(candidates, key=lambda m: (-m.confidence, -m.n_used, -m.stated_at.timestamp(), m.memory_id)):
        n_tokens = tokens(memory.text)
        if n_tokens <= tokens_left:
            chosen.append(memory)
            tokens_left -= n_tokens
    return chosen
