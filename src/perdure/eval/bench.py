"""Questions asked of memories: what recall ranks, what reaches the pack, when it is silent, how long it takes.

Each question is asked of its own group, and, for silence, of another group that cannot know the answer. `now` is the
day after the last turn of a group, so that nothing depends on the clock but the timings.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from perdure import text
from perdure.eval.datasets import Dataset, Doc, Question
from perdure.eval.memory import Embeds, Memory
from perdure.recall.feedback import Matrix
from perdure.recall.fuse import ranked
from perdure.recall.judge import asked_words
from perdure.recall.plan import plan, unplanned
from perdure.recall.rank import rank, to_embed
from perdure.recall.recall import assess, compose
from perdure.recall.tuning import DEFAULT, Tuning
from perdure.types import Plan

K = 20  # length of the rankings that are measured
_NO_DATE = datetime(2026, 1, 1, tzinfo=UTC)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Setup:
    """What is asked with."""

    embedder: Embeds | None = None
    profile: str = "keyword"  # family of the embedder, as judge.THRESHOLDS knows it
    tuning: Tuning = DEFAULT
    planning: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """One question and what came of it."""

    question: Question
    ranked: tuple[str, ...]  # search stage: before the judge, at most K
    packed: frozenset[str] = frozenset()
    n_tokens: int = 0
    is_silent: bool = False
    relevance: float = 0.0
    took_ms: float = 0.0


def now_of(docs: Iterable[Doc]) -> datetime:
    """The day after the last turn."""
    return max((doc.stated_at for doc in docs if doc.stated_at), default=_NO_DATE) + timedelta(days=1)


def planned(words: str, memory: Memory, setup: Setup) -> tuple[Plan, Matrix | None]:
    """The plan of a question to a memory, and its vectors."""
    make = plan if setup.planning else unplanned
    found = make(words, now=now_of(memory.docs))
    texts = to_embed(found)
    return found, setup.embedder.embed(texts, "query") if setup.embedder and texts else None


def search(memory: Memory, question: Question, setup: Setup) -> Asked:
    """The search stage alone."""
    started = time.perf_counter()
    found, vectors = planned(question.text, memory, setup)
    ranking = rank(memory, found, vectors, setup.tuning)
    took_ms = (time.perf_counter() - started) * 1000
    return Asked(question, tuple(ranked(ranking.scores)[:K]), took_ms=took_ms)


def ask(memory: Memory, question: Question, setup: Setup) -> Asked:
    """Recall as a whole, with the ranking of its search stage."""
    started = time.perf_counter()
    found, vectors = planned(question.text, memory, setup)
    judged = assess(memory, found, vectors=vectors, profile=setup.profile, tuning=setup.tuning)
    recalled = compose(memory, judged, tuning=setup.tuning)
    took_ms = (time.perf_counter() - started) * 1000
    verdict = judged.verdict
    return Asked(
        question,
        tuple(ranked(judged.ranking.scores)[:K]),
        frozenset(cue.turn_id for cue in recalled.cues),
        recalled.n_tokens,
        not recalled.cues,
        verdict.relevance - verdict.threshold,
        took_ms,
    )


def elsewhere(groups: Sequence[str], group: str) -> str:
    """The group after this one, which a question of this one has no answer in."""
    return groups[(groups.index(group) + 1) % len(groups)]


Row = Callable[[Memory, Question], Asked]


def grep(memory: Memory, question: Question) -> Asked:
    """What a person gets from grep: the turns with the most of the asked words, as they are written, newest first."""
    words = {word for term in asked_words(question.text) for word in _WORD.findall(term)}
    held = [(len(words & set(_WORD.findall(doc.text.lower()))), n) for n, doc in enumerate(memory.docs)]
    best = sorted((item for item in held if item[0]), reverse=True)[:K]
    return Asked(question, tuple(memory.docs[n].doc_id for _, n in best))


def keyword_only(memory: Memory, question: Question) -> Asked:
    """The product's keyword search, as `perdure search` gives it."""
    leg = memory.keyword([question.text], K)[0]
    return Asked(question, tuple(ranked(leg)[:K]))


def full_context(memory: Memory, question: Question) -> Asked:
    """Everything: what it costs in tokens to miss nothing."""
    everything = frozenset(doc.doc_id for doc in memory.docs)
    return Asked(question, (), everything, sum(text.tokens(doc.text) for doc in memory.docs))


def vectors_only(setup: Setup) -> Row:
    """The vector leg alone."""

    def row(memory: Memory, question: Question) -> Asked:
        assert setup.embedder
        leg = memory.nearest(setup.embedder.embed([question.text], "query"), K)[0]
        return Asked(question, tuple(ranked(leg)[:K]))

    return row


def all_of(data: Dataset, memories: Mapping[str, Memory], row: Row) -> list[Asked]:
    """Every question asked of its own group."""
    return [row(memories[question.group], question) for question in data.questions]


def all_elsewhere(data: Dataset, memories: Mapping[str, Memory], row: Row) -> list[Asked]:
    """Every question asked of a group that cannot know."""
    groups = list(memories)
    return [row(memories[elsewhere(groups, question.group)], question) for question in data.questions]
