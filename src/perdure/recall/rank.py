"""Candidates and fusion: a plan and its vectors in, every candidate's score out, with what each leg gave it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from perdure import text
from perdure.recall import feedback
from perdure.recall.candidates import Candidates, Fact
from perdure.recall.feedback import Matrix
from perdure.recall.fuse import Scores, clamp, min_max, ranked, reciprocal_rank, strongest, weighted
from perdure.recall.neighbours import spread
from perdure.recall.tuning import Tuning
from perdure.types import Plan, Window


@dataclass(frozen=True, slots=True)
class Ranking:
    """Every candidate with its score, and how it came about."""

    scores: Mapping[str, float]  # turn id -> score; higher is better
    legs: Mapping[str, Scores]  # keyword and vector, normalised; speaker, time, recent as they were added
    bm25: Mapping[str, float]  # raw
    cosine: Mapping[str, float]  # raw
    facts: Mapping[str, Fact]


LONG_CHARS = 400  # of a message: about 100 tokens, 20 ms of one core
Embedded: TypeAlias = "Matrix | Callable[[], Matrix | None] | None"  # vectors, or the wait for them, or none


def rank(candidates: Candidates, plan: Plan, embedded: Embedded, tuning: Tuning) -> Ranking:
    """All candidates for a plan. embedded: one row for each text of `to_embed(plan)`; words are searched meanwhile."""
    windows: tuple[Window | None, ...] = (None, *plan.windows) if plan.queries else plan.windows
    bm25 = _keyword(candidates, asked(plan), windows, tuning)
    vectors = embedded() if callable(embedded) else embedded
    nearest = _nearest(candidates, vectors, windows, tuning)
    cosine = _completed(candidates, vectors, bm25, nearest)
    fused = _fused(bm25, cosine, tuning)
    if tuning.feedback_words or tuning.feedback_vector:
        bm25, cosine = _believed(candidates, plan, vectors, (bm25, cosine, fused), tuning)
        fused = _fused(bm25, cosine, tuning)
    scores = _spread(candidates, vectors, (bm25, cosine, fused), tuning)
    facts = candidates.facts(sorted(scores))
    added = bonuses(plan, facts, tuning)
    for leg in added.values():
        for name, bonus in leg.items():
            scores[name] += bonus
    legs = {"keyword": min_max(bm25), **({"vector": clamp(cosine)} if cosine else {}), **added}
    return Ranking(scores, legs, bm25, cosine, facts)


def _spread(
    candidates: Candidates,
    vectors: Matrix | None,
    legs: tuple[dict[str, float], dict[str, float], dict[str, float]],
    tuning: Tuning,
) -> dict[str, float]:
    """The fused scores with shares of the best ones' beside them. Neighbours that no leg found get their cosine, into
    the leg.
    """
    bm25, cosine, fused = legs
    reach = len(tuning.neighbours)
    if not reach or not fused:
        return fused
    around = candidates.around(ranked(fused)[: tuning.lenders], reach)
    if vectors is not None:
        strangers = {other for others in around.values() for other, _ in others} - set(fused)
        cosine |= _cosines(candidates, vectors, strangers)
        fused = _fused(bm25, cosine, tuning)
    return spread(fused, around, tuning.neighbours)


def asked(plan: Plan) -> tuple[str, ...]:
    """The texts of the keyword leg: the short queries, or the message when there is but one.

    The empty text, which finds the newest, when the message names nothing but a time.
    """
    if not plan.queries:
        return ("",) if plan.windows else ()
    return plan.queries if len(plan.queries) > 1 else (plan.asked,)


def to_embed(plan: Plan) -> tuple[str, ...]:
    """The text whose vector `rank` wants: the message as it was said, or its queries where it is long; or none.

    One text: a vector for each query as well costs a scan and 5 ms each, and finds no more (docs/evaluation/recall.md).
    """
    if not plan.queries:
        return ()
    return (plan.asked if len(plan.asked) <= LONG_CHARS else ", ".join(plan.queries),)


def _keyword(
    candidates: Candidates, queries: Sequence[str], windows: Iterable[Window | None], tuning: Tuning
) -> dict[str, float]:
    found = [leg for window in windows for leg in candidates.keyword(queries, tuning.pool, window)]
    return strongest(found)


def _nearest(
    candidates: Candidates, vectors: Matrix | None, windows: Iterable[Window | None], tuning: Tuning
) -> dict[str, float]:
    if vectors is None or not len(vectors):
        return {}
    return strongest([leg for window in windows for leg in candidates.nearest(vectors, tuning.pool, window)])


def _completed(
    candidates: Candidates, vectors: Matrix | None, bm25: Scores, nearest: dict[str, float]
) -> dict[str, float]:
    """The vector leg with the cosines of what only the keyword leg found (row X10)."""
    if vectors is None or not len(vectors):
        return {}
    return nearest | _cosines(candidates, vectors, set(bm25) - set(nearest))


def _cosines(candidates: Candidates, vectors: Matrix, ids: Iterable[str]) -> dict[str, float]:
    """Of each turn that has a vector the best cosine between any of its pieces and any of the queries."""
    wanted = sorted(ids)
    if not wanted or not len(vectors):
        return {}
    return dict(candidates.cosines(wanted, vectors))


def _fused(bm25: Scores, cosine: Scores, tuning: Tuning) -> dict[str, float]:
    legs: dict[str, Scores] = {}
    if bm25:
        legs["keyword"] = min_max(bm25)
    if cosine:
        legs["vector"] = clamp(cosine)
    if tuning.by_rank:
        return reciprocal_rank([ranked(leg) for _, leg in sorted(legs.items())])
    return weighted(legs, {"keyword": 1 - tuning.vector, "vector": tuning.vector})


def _believed(
    candidates: Candidates,
    plan: Plan,
    vectors: Matrix | None,
    legs: tuple[dict[str, float], dict[str, float], dict[str, float]],
    tuning: Tuning,
) -> tuple[dict[str, float], dict[str, float]]:
    """Both legs once more, with what the best hits say as part of the question."""
    bm25, cosine, fused = legs
    top = ranked(fused)[: feedback.N_TOP]
    if tuning.feedback_words and top:
        bm25 = _with_words(candidates, plan, bm25, top, tuning)
    if tuning.feedback_vector and vectors is not None and top:
        held = candidates.vectors(top)
        rows = [held[name][0] for name in top if name in held]
        if rows:
            queries = feedback.moved(vectors, rows, share=tuning.feedback_vector)
            cosine = _completed(candidates, queries, bm25, _nearest(candidates, queries, (None,), tuning))
            cosine |= _cosines(candidates, queries, set(fused) - set(cosine))
    return bm25, cosine


def _with_words(
    candidates: Candidates, plan: Plan, bm25: Scores, top: Sequence[str], tuning: Tuning
) -> dict[str, float]:
    details = candidates.details(top)
    texts = [details[name].text for name in top if name in details]
    known = text.query_terms(plan.message)
    words = feedback.words(texts, known)
    rarity = {word: rare for word, (_, rare) in candidates.rarities(words).items()}
    terms = feedback.terms(texts, known, lambda word: rarity.get(word, 0.0))
    if not terms:
        return dict(bm25)
    more = strongest(candidates.keyword([" ".join(terms)], tuning.pool))
    legs = {"asked": _topped(bm25), "believed": _topped(more)}
    return weighted(legs, {"asked": 1 - tuning.feedback_words, "believed": tuning.feedback_words})


def _topped(leg: Scores) -> dict[str, float]:
    """A leg with its best at 1 and its zero where it was."""
    best = max(leg.values(), default=0.0)
    return {name: score / best for name, score in leg.items()} if best > 0 else dict(leg)


def bonuses(plan: Plan, facts: Mapping[str, Fact], tuning: Tuning) -> dict[str, dict[str, float]]:
    """What is added to candidates beyond their words: said by whom it was asked of, inside the window, recent."""
    added = {
        "speaker": dict.fromkeys(_by_the_one_asked(plan, facts), tuning.speaker),
        "time": dict.fromkeys(_in_windows(plan, facts), tuning.in_time),
        "done": dict.fromkeys((name for name, fact in facts.items() if not fact.is_said), -tuning.unsaid),
        "recent": _recency(facts, tuning.recent) if plan.intent == "latest" else {},
    }
    return {name: leg for name, leg in added.items() if leg and any(leg.values())}


def _by_the_one_asked(plan: Plan, facts: Mapping[str, Fact]) -> list[str]:
    """Candidates said by the one person whom the message names, else by the one that it asks about (I, you)."""
    people = {fact.speaker for fact in facts.values() if fact.speaker}
    named = [person for person in people if re.search(rf"(?<!\w){re.escape(person)}(?!\w)", plan.message)]
    if len(named) == 1:
        return [name for name, fact in facts.items() if fact.speaker == named[0]]
    if len(plan.speakers) == 1 and not named:
        return [name for name, fact in facts.items() if fact.role == plan.speakers[0]]
    return []


def _in_windows(plan: Plan, facts: Mapping[str, Fact]) -> list[str]:
    return [name for name, fact in facts.items() if any(_is_in(fact, window) for window in plan.windows)]


def _is_in(fact: Fact, window: Window) -> bool:
    return fact.stated_at is not None and window.since_at <= fact.stated_at < window.until_at


def _recency(facts: Mapping[str, Fact], most: float) -> dict[str, float]:
    """`most` for the newest, falling in even steps to nothing for the oldest; nothing for what has no time."""
    dated = sorted((fact.stated_at, name) for name, fact in facts.items() if fact.stated_at)
    return {name: most * at / max(1, len(dated) - 1) for at, (_, name) in enumerate(dated)}
