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
from perdure.access import scan
from perdure.eval.datasets import Dataset, Doc, Question
from perdure.eval.memory import Memory
from perdure.recall.fuse import ranked
from perdure.recall.judge import asked_words
from perdure.recall.plan import plan, unplanned
from perdure.recall.rank import rank, to_embed
from perdure.recall.recall import assess, compose
from perdure.recall.tuning import DEFAULT, Tuning
from perdure.types import Plan
from perdure.vectors import Asked

K = 20  # length of the rankings that are measured
_NO_DATE = datetime(2026, 1, 1, tzinfo=UTC)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Setup:
    """What is asked with."""

    tuning: Tuning = DEFAULT
    planning: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """One question and what came of it."""

    question: Question
    ranked: tuple[str, ...]  # search stage: before the judge, at most K
    packed: tuple[str, ...] = ()  # the cues, as they stand in the pack
    n_tokens: int = 0
    is_silent: bool = False
    relevance: float = 0.0
    took_ms: float = 0.0


def now_of(docs: Iterable[Doc]) -> datetime:
    """The day after the last turn."""
    return max((doc.stated_at for doc in docs if doc.stated_at), default=_NO_DATE) + timedelta(days=1)


def planned(words: str, memory: Memory, setup: Setup) -> tuple[Plan, Asked | None]:
    """The plan of a question to a memory, and its vectors."""
    make = plan if setup.planning else unplanned
    found = make(words, now=now_of(memory.docs))
    return found, memory.asked(to_embed(found))


def search(memory: Memory, question: Question, setup: Setup) -> Result:
    """The search stage alone."""
    started = time.perf_counter()
    found, asked = planned(question.text, memory, setup)
    with memory.home.index().reading():
        ranking = rank(memory.candidates(asked), found, asked.answer().vectors if asked else None, setup.tuning)
    took_ms = (time.perf_counter() - started) * 1000
    return Result(question, memory.docs_of(ranked(ranking.scores), K), took_ms=took_ms)


def ask(memory: Memory, question: Question, setup: Setup) -> Result:
    """Recall as a whole, with the ranking of its search stage."""
    started = time.perf_counter()
    found, asked = planned(question.text, memory, setup)
    vectors, model = (asked.answer().vectors, asked.tag.name) if asked else (None, "")
    with memory.home.index().reading():
        candidates = memory.candidates(asked)
        judged = assess(candidates, found, vectors=vectors, model=model, tuning=setup.tuning)
        recalled = compose(candidates, judged, suspicious=scan.scan, tuning=setup.tuning)
    took_ms = (time.perf_counter() - started) * 1000
    verdict = judged.verdict
    return Result(
        question,
        memory.docs_of(ranked(judged.ranking.scores), K),
        memory.docs_of([cue.turn_id for cue in recalled.cues]),
        recalled.n_tokens,
        not recalled.cues,
        verdict.relevance - verdict.threshold,
        took_ms,
    )


def elsewhere(groups: Sequence[str], group: str) -> str:
    """The group after this one, which a question of this one has no answer in."""
    return groups[(groups.index(group) + 1) % len(groups)]


Row = Callable[[Memory, Question], Result]


def grep(memory: Memory, question: Question) -> Result:
    """What a person gets from grep: the turns with the most of the asked words, as they are written, newest first."""
    words = {word for term in asked_words(question.text) for word in _WORD.findall(term)}
    held = [(len(words & set(_WORD.findall(doc.text.lower()))), n) for n, doc in enumerate(memory.docs)]
    best = sorted((item for item in held if item[0]), reverse=True)[:K]
    return Result(question, tuple(memory.docs[n].doc_id for _, n in best))


def keyword_only(memory: Memory, question: Question) -> Result:
    """The product's keyword search, as `perdure search` gives it."""
    hits = memory.home.search(question.text, limit=K, mode="keyword").hits
    return Result(question, memory.docs_of([hit.turn_id for hit in hits if hit.score > 0]))


def full_context(memory: Memory, question: Question) -> Result:
    """Everything: what it costs in tokens to miss nothing."""
    everything = tuple(doc.doc_id for doc in memory.docs)
    return Result(question, (), everything, sum(text.tokens(doc.text) for doc in memory.docs))


def vectors_only(memory: Memory, question: Question) -> Result:
    """The product's semantic search, as `perdure search --mode semantic` gives it."""
    hits = memory.home.search(question.text, limit=K, mode="semantic").hits
    return Result(question, memory.docs_of([hit.turn_id for hit in hits]))


def all_of(data: Dataset, memories: Mapping[str, Memory], row: Row) -> list[Result]:
    """Every question asked of its own group."""
    return [row(memories[question.group], question) for question in data.questions]


def all_elsewhere(data: Dataset, memories: Mapping[str, Memory], row: Row) -> list[Result]:
    """Every question asked of a group that cannot know."""
    groups = list(memories)
    return [row(memories[elsewhere(groups, question.group)], question) for question in data.questions]
