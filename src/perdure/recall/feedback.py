"""Pseudo-relevance feedback: what the best hits say is taken as part of the question.

Pure. Words in the manner of RM3 (Abdul-Jaleel and others, TREC 2004), with the rarity of a word instead of a
background model; vectors in the manner of Rocchio.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from perdure import text

if TYPE_CHECKING:
    import numpy as np

Matrix: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"  # rows of float32; numpy itself is loaded with an embedder

N_TERMS = 8
N_TOP = 3  # hits that are believed
HEAD_CHARS = 1000  # of a hit: long tool output would drown the words of people
_MIN_CHARS = 3


def words(texts: Sequence[str], known: Sequence[str]) -> list[str]:
    """The words of these texts that could say something, without those already asked for, once each, in order."""
    asked = set(known)
    return [word for word in dict.fromkeys(w for each in texts for w in _words(each)) if word not in asked]


def terms(texts: Sequence[str], known: Sequence[str], rarity: Callable[[str], float], *, n: int = N_TERMS) -> list[str]:
    """The n words of the best hits that say most, without those already asked for.

    rarity: word -> how rare it is, 0 for one that is everywhere. A word counts by its share of each text's words, so
    that a long text has no more to say than a short one, times its rarity. Ties by the word.
    """
    weights: dict[str, float] = {}
    for held in map(_words, texts):
        for word in held:
            weights[word] = weights.get(word, 0.0) + 1 / len(held)
    scored = {word: weights[word] * rarity(word) for word in words(texts, known)}
    return [w for w in sorted(scored, key=lambda w: (-scored[w], w)) if scored[w] > 0][:n]


def _words(hit: str) -> list[str]:
    """The words of a hit, once each."""
    found = text.query_terms(text.clip(hit, HEAD_CHARS))
    return [w for w in found if w.isalpha() and (len(w) >= _MIN_CHARS or not w.isascii()) and w not in text.STOPWORDS]


def rarity(n_with: int, n_total: int) -> float:
    """ln(N / n), never below 0; a word that nothing holds counts as half a sighting, the rarest of all.

    >>> round(rarity(1, 100), 3), round(rarity(0, 100), 3)
    (4.605, 5.298)
    """
    return max(0.0, math.log(n_total / max(n_with, 0.5))) if n_total > 0 else 0.0


def moved(queries: Matrix, best: Sequence[Matrix], *, share: float) -> Matrix:
    """The query vectors, each moved by `share` of the mean of the best hits' vectors, at length 1 again."""
    if not best or share == 0:
        return queries
    mean = sum(best[1:], start=best[0]) / queries.dtype.type(len(best))
    found: Matrix = queries + mean * queries.dtype.type(share)
    lengths = (found * found).sum(axis=1, keepdims=True) ** 0.5
    scaled: Matrix = found / lengths.clip(min=1e-12)
    return scaled
