"""What a memory answers where it was told two things, one after the other: which of them is among the cues, and first.

A set of contradictions is a folder in the normalised layout whose questions also say what they ask for (`asks`: what is
true, what is true now, or how it came to that), which turn is current, and which it superseded. Every cue carries its
date, so a reader who sees the current turn can tell which is the later; one who sees only what it superseded cannot
know better. That is the worst outcome, and has a column of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from perdure.errors import UsageError
from perdure.eval import bench, measures
from perdure.eval.bench import Result, Row, Setup
from perdure.eval.datasets import Question, load, rows
from perdure.eval.memory import Memory, memories
from perdure.models.embedder import Embedder
from perdure.recall.tuning import DEFAULT, Tuning

SHIPPED = Path(__file__).parent / "shipped_contradictions"
SHOWN = ("current", "both", "newest first", "misled")
_FIELDS = {"asks", "category", "current", "superseded"}  # of a question
HISTORY = "history"  # what a question asks for that wants the superseded statements as well


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What a question is about."""

    asks: str  # plain, now or history
    kind: str  # update, retract or conditional
    current: str  # the document that is true since
    superseded: tuple[str, ...]  # those that it contradicts, oldest first


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured: for each system, what is asked for or the kind, the shares of questions."""

    figures: Mapping[str, Mapping[str, Mapping[str, float]]]  # system -> "plain", … -> measure -> share
    n_docs: int
    n_questions: int

    def text(self) -> str:
        """A table as a person reads it."""
        lines = [f"contradictions: {self.n_docs} turns, {self.n_questions} questions (per cent of the questions)", ""]
        lines.append(f"{'system':14}{'asked / kind':14}{'n':>5}" + "".join(name.rjust(14) for name in SHOWN))
        for system, parts in self.figures.items():
            for part, row in parts.items():
                cells = "".join(f"{100 * row[name]:14.1f}" for name in SHOWN)
                lines.append(f"{system:14}{part:14}{row['n']:5.0f}{cells}")
        return "\n".join(lines)


def contradictions(place: Path) -> dict[str, Contradiction]:
    """Question id -> what it is about. Raises UsageError for a set whose questions do not say."""
    if not all(row.keys() >= _FIELDS for row in rows(place / "queries.jsonl")):
        raise UsageError(f"the questions of {place} do not say what is current: they need {', '.join(sorted(_FIELDS))}")
    return {
        str(row["qid"]): Contradiction(row["asks"], row["category"], row["current"], tuple(row["superseded"]))
        for row in rows(place / "queries.jsonl")
    }


def measured(cues: Sequence[str], about: Contradiction) -> dict[str, float]:
    """Whether each thing holds of the cues for one question, 1 or 0.

    current: the current turn is among them. both: so is everything that it superseded. newest first: it is, and
    before all that it superseded. misled: only what it superseded is among them.

    >>> found = measured(["old", "new"], Contradiction("now", "update", "new", ("old",)))
    >>> [name for name, holds in found.items() if holds]
    ['current', 'both']
    """
    old = [cues.index(name) for name in about.superseded if name in cues]
    is_there = about.current in cues
    return {
        "current": float(is_there),
        "both": float(is_there and len(old) == len(about.superseded)),
        "newest first": float(is_there and cues.index(about.current) < min(old, default=len(cues))),
        "misled": float(bool(old) and not is_there),
    }


def run(
    place: Path = SHIPPED,
    *,
    embedder: Embedder | None = None,
    vectors: bool = True,
    tuning: Tuning = DEFAULT,
    home: Path | None = None,
    stated: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Measure a set of contradictions: words alone, vectors alone, recall. The parameters are those of `report.run`."""
    data, about = load(place), contradictions(place)
    systems = _systems(tuning, vectors=vectors)
    figures: dict[str, Mapping[str, Mapping[str, float]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch,
        memories(data, home or Path(scratch), embedder, vectors=vectors, stated=stated) as held,
    ):
        for n_done, (name, row) in enumerate(systems.items()):
            if progress:
                progress(n_done, len(systems))
            answers = bench.all_of(data, held, row)
            figures[name] = dict(_parts([(about[a.question.qid], _cues(a, about, tuning)) for a in answers]))
    return Report(figures, len(data.docs), len(data.questions))


def _systems(tuning: Tuning, *, vectors: bool) -> dict[str, Row]:
    found: dict[str, Row] = {"keyword only": bench.keyword_only}
    if vectors:
        found["vectors only"] = bench.vectors_only
    return {**found, "recall": partial(_ask, Setup(tuning))}


def _ask(setup: Setup, memory: Memory, question: Question) -> Result:
    return bench.ask(memory, question, setup)


def _cues(answer: Result, about: Mapping[str, Contradiction], tuning: Tuning) -> tuple[str, ...]:
    """What a model would be shown: the pack, or of a bare ranking as many as recall shows at most."""
    if answer.packed or answer.is_silent:
        return answer.packed
    is_broad = about[answer.question.qid].asks == HISTORY
    return answer.ranked[: tuning.k_broad if is_broad else tuning.k]


def _parts(answers: Sequence[tuple[Contradiction, Sequence[str]]]) -> Iterator[tuple[str, Mapping[str, float]]]:
    """(what is asked for, or the kind among what is not asked as history; the shares of its questions)."""
    for asks in ("plain", "now", HISTORY):
        yield from _share(asks, [(about, cues) for about, cues in answers if about.asks == asks])
    for kind in ("update", "retract", "conditional"):
        yield from _share(kind, [(a, cues) for a, cues in answers if a.kind == kind and a.asks != HISTORY])


def _share(
    name: str, answers: Sequence[tuple[Contradiction, Sequence[str]]]
) -> Iterator[tuple[str, Mapping[str, float]]]:
    if answers:
        mean = measures.mean([measured(cues, about) for about, cues in answers])
        yield name, {"n": float(len(answers)), **mean}
