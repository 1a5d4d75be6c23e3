"""Memories alone, found by words, by path and, where there are vectors, by meaning: for a person who looks for one.

Retired memories have no words in the index and are never found; superseded ones only when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from perdure import text
from perdure.errors import VectorsMissing
from perdure.index import keyword, memories, visible
from perdure.index.store import Connection
from perdure.index.visible import Visible
from perdure.index.wording import MEMORY
from perdure.memories.paths import folded
from perdure.patterns import late
from perdure.types import Filters, Memory, Principal

if TYPE_CHECKING:  # 0.2 s that a search by words does without
    from perdure.index.hybrid import Asked

_ALONE = Filters(roles=(MEMORY,), kinds=(MEMORY,), memories=True)
_WORD = late(r"\w+")
_WIDER = 4  # times as many are looked at when too few of those found are wanted


def search(
    index: Connection, principal: Principal, query: str, asked: Asked | None, *, limit: int,
    fits: Callable[[Memory], bool],
) -> list[tuple[Memory, float]]:  # fmt: skip
    """The best memories that fit, with their scores, best first; where others share theirs, the scores are by rank."""
    n = limit
    with index.reading():
        seen = visible.of(index, principal)
        named = _by_path(index, seen, query)
        while True:
            by_words = _scores(index, principal, query, asked, n)
            scores = dict.fromkeys(named, 0.0) | dict(by_words)
            found = memories.readable(index, seen, [-turn for turn in scores])
            wanted = [(found[-turn], score) for turn, score in scores.items() if -turn in found and fits(found[-turn])]
            if len(wanted) >= limit or len(by_words) < n:
                best = sorted(wanted, key=_best_first)[:limit]
                return [(m, 1 / place) for place, (m, _) in enumerate(best, start=1)] if seen.owners else best
            n *= _WIDER


def _by_path(index: Connection, seen: Visible, query: str) -> list[int]:
    """The memories that have a word of the query in their path, as numbers in a turn's place."""
    terms = [folded(term) for term in text.without_stopwords(text.query_terms(query))]
    if not terms:
        return []
    test = " OR ".join(["instr(place, ?)"] * len(terms))
    whose = "user = ?" + (f" OR {visible.IS_MEMORY}" if seen.owners else "")
    query = f"SELECT id, place FROM memory WHERE ({whose}) AND NOT retired AND ({test})"
    rows = index.rows(query, seen.own, *terms)
    return [-key for key, place in rows if not set(terms).isdisjoint(_WORD.findall(place))]


def _best_first(item: tuple[Memory, float]) -> tuple[float, float, str]:
    memory, score = item
    return -round(score, 9), -memory.stated_at.timestamp(), memory.memory_id


def _scores(index: Connection, principal: Principal, query: str, asked: Asked | None, n: int) -> Mapping[int, float]:
    """The scores of at least so many memories, if so many match, by the numbers that stand in a turn's place."""
    if asked is not None:
        from perdure.index import hybrid

        try:
            both = hybrid.ranked(index, principal, query, asked, filters=_ALONE, limit=n)
            return {turn: score.fused for turn, score in both.scores.items()}
        except VectorsMissing:
            pass  # the words find what they find; `status` says that vectors are missing
    by_words = keyword.candidates(index, principal, query, filters=_ALONE, limit=n)
    best: dict[int, float] = {}
    for item in by_words.scored:
        best.setdefault(item.turn, item.score)
    return best
