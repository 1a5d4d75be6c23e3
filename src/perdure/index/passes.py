"""Which searches answer a query within a budget. Pure: how often each term occurs in, MATCH expressions out.

FTS5 spends about 1 µs on each chunk that it scores and 0.05 µs on each that it only passes over, so what a term
costs is what it makes a candidate. Rare terms make candidates alone. Common ones count wherever a rare one
stands, and make candidates only together: the scores are those of all terms, over fewer chunks (decisions/004).
A chunk found by several passes has the best of its scores, which is the one with every term that it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from perdure.text import fts_quote

COMMON_SHARE = 0.25  # a term in more of the chunks than this says next to nothing (BM25 weight below 1.1)


@dataclass(frozen=True)
class Plan:
    """The terms of a query by what they may cost, each part rarest first."""

    rare: tuple[str, ...]  # a chunk with any of them is a candidate
    common: tuple[str, ...] = ()  # these count, but alone they make no candidate
    dropped: tuple[str, ...] = ()  # these do not count


def plan(counts: Mapping[str, int], *, budget: float, n_chunks: int) -> Plan:
    """Sort the terms that occur at all: rare while their counts add up to at most the budget.

    >>> plan({"the": 60, "wal": 3, "mode": 20, "error": 10}, budget=15, n_chunks=100)
    Plan(rare=('wal', 'error'), common=('mode',), dropped=('the',))
    """
    known = sorted((term for term, n in counts.items() if n), key=lambda term: (counts[term], term))
    n_rare, spent = 0, 0
    for term in known:
        spent += counts[term]
        if spent > budget:
            break
        n_rare += 1
    rest = known[n_rare:]
    common = [term for term in rest if counts[term] <= COMMON_SHARE * n_chunks]
    if not n_rare and not common:
        common = rest[:1]
    return Plan(tuple(known[:n_rare]), tuple(common), tuple(term for term in rest if term not in common))


def passes(chosen: Plan) -> list[str]:
    """The expressions that are always asked; the first two share the candidates between them.

    >>> passes(Plan(("wal",), ("mode", "error")))
    ['("wal") NOT ("mode" OR "error")', '("wal") AND ("mode" OR "error")', '"mode" AND "error"']
    """
    rare, common = chosen.rare, chosen.common
    if not rare or not common:
        found = [_any(rare)] if rare else []
    else:
        found = [f"({_any(rare)}) {operator} ({_any(common)})" for operator in ("NOT", "AND")]
    return found + ([_all(common)] if len(common) > 1 else [])


def relaxed(chosen: Plan) -> Iterator[str]:
    """Further expressions, to be asked one after another while too little is found: fewer and fewer common terms."""
    for n in range(len(chosen.common) - 1, 1, -1):
        yield _all(chosen.common[:n])


def last(chosen: Plan) -> str | None:
    """The expression of last resort, when nothing was found at all: the rarest of the common terms alone."""
    return fts_quote(chosen.common[0]) if chosen.common else None


def _any(terms: Iterable[str]) -> str:
    return " OR ".join(map(fts_quote, terms))


def _all(terms: Iterable[str]) -> str:
    return " AND ".join(map(fts_quote, terms))
