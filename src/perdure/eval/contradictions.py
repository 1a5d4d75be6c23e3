"""Measure recall on contradictions: two statements, one after the other; which of them is among the cues,
and first.

A set of contradictions is a folder in the normalised layout whose questions also have `asks` (the truth,
the truth now, or the history), the current turn, and the turns that it superseded. Every cue carries its
date, so a reader who sees the current turn can tell that it is the later one; a reader who sees only a
superseded turn cannot know better. That is the worst outcome, and has a column of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from perdure.errors import UsageError
from perdure.eval import bench, measures
from perdure.eval.bench import BenchSetup, BenchSystem, QuestionResult, open_group_memories
from perdure.eval.datasets import load_dataset, read_rows
from perdure.models.embedder import Embedder
from perdure.recall.tuning import DEFAULT, Tuning

SHIPPED = Path(__file__).parent / "shipped_contradictions"
SHOWN_MEASURES = ("current", "both", "newest first", "misled")
_QUESTION_FIELDS = {"asks", "category", "current", "superseded"}  # of a question
HISTORY = "history"  # what a question asks for that wants the superseded statements as well


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The contradiction that a question is about."""

    asks: str  # plain, now or history
    kind: str  # update, retract or conditional
    current: str  # the document that is true since
    superseded: tuple[str, ...]  # those that it contradicts, oldest first


@dataclass(frozen=True, slots=True)
class ContradictionReport:
    """The results: for each system, and each kind of question, the shares of questions."""

    figures: Mapping[str, Mapping[str, Mapping[str, float]]]  # system -> "plain", … -> measure -> share
    n_docs: int
    n_questions: int

    def text(self) -> str:
        """Format the results as a table for people."""
        lines = [f"contradictions: {self.n_docs} turns, {self.n_questions} questions (per cent of the questions)", ""]
        lines.append(f"{'system':14}{'asked / kind':14}{'n':>5}" + "".join(name.rjust(14) for name in SHOWN_MEASURES))
        for system, parts in self.figures.items():
            for part, row in parts.items():
                cells = "".join(f"{100 * row[name]:14.1f}" for name in SHOWN_MEASURES)
                lines.append(f"{system:14}{part:14}{row['n']:5.0f}{cells}")
        return "\n".join(lines)


def load_contradictions(folder: Path) -> dict[str, Contradiction]:
    """Load question id -> its contradiction. Raises UsageError if the questions lack its fields."""
    if not all(row.keys() >= _QUESTION_FIELDS for row in read_rows(folder / "queries.jsonl")):
        raise UsageError(
            f"the questions of {folder} do not name the current statement: they need "
            f"{', '.join(sorted(_QUESTION_FIELDS))}"
        )
    return {
        str(row["qid"]): Contradiction(row["asks"], row["category"], row["current"], tuple(row["superseded"]))
        for row in read_rows(folder / "queries.jsonl")
    }


def measure_cues(cues: Sequence[str], contradiction: Contradiction) -> dict[str, float]:
    """Measure the cues of one question; each measure is 1 or 0.

    current: the current turn is among them. both: so is everything that it superseded. newest first: it is
    among them, before all that it superseded. misled: only turns that it superseded are among them.

    >>> measures_by_name = measure_cues(["old", "new"], Contradiction("now", "update", "new", ("old",)))
    >>> [name for name, holds in measures_by_name.items() if holds]
    ['current', 'both']
    """
    superseded_ranks = [cues.index(name) for name in contradiction.superseded if name in cues]
    has_current = contradiction.current in cues
    return {
        "current": float(has_current),
        "both": float(has_current and len(superseded_ranks) == len(contradiction.superseded)),
        "newest first": float(
            has_current and cues.index(contradiction.current) < min(superseded_ranks, default=len(cues))
        ),
        "misled": float(bool(superseded_ranks) and not has_current),
    }


def run(
    folder: Path = SHIPPED,
    *,
    embedder: Embedder | None = None,
    vectors: bool = True,
    tuning: Tuning = DEFAULT,
    home: Path | None = None,
    stated: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> ContradictionReport:
    """Measure a set with keywords, vectors and recall. The parameters are those of `recall_quality.run`."""
    data, contradictions_by_id = load_dataset(folder), load_contradictions(folder)
    systems = _choose_systems(tuning, vectors=vectors)
    figures: dict[str, Mapping[str, Mapping[str, float]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch,
        open_group_memories(data, home or Path(scratch), embedder, vectors=vectors, stated=stated) as group_memories,
    ):
        for n_done, (name, system) in enumerate(systems.items()):
            if progress:
                progress(n_done, len(systems))
            results = bench.ask_own_groups(data, group_memories, system)
            figures[name] = dict(
                _measure_parts(
                    [
                        (
                            contradictions_by_id[result.question.qid],
                            _list_shown_cues(result, contradictions_by_id, tuning),
                        )
                        for result in results
                    ]
                )
            )
    return ContradictionReport(figures, len(data.docs), len(data.questions))


def _choose_systems(tuning: Tuning, *, vectors: bool) -> dict[str, BenchSystem]:
    systems: dict[str, BenchSystem] = {"keyword only": bench.search_keywords}
    if vectors:
        systems["vectors only"] = bench.search_vectors
    return {**systems, "recall": partial(bench.recall_question, setup=BenchSetup(tuning))}


def _list_shown_cues(
    result: QuestionResult, contradictions_by_id: Mapping[str, Contradiction], tuning: Tuning
) -> tuple[str, ...]:
    """Return the cues that a model would see: the pack; for a bare ranking, as many as recall shows at most."""
    if result.packed or result.is_silent:
        return result.packed
    is_broad = contradictions_by_id[result.question.qid].asks == HISTORY
    return result.ranked[: tuning.k_broad if is_broad else tuning.k]


def _measure_parts(answers: Sequence[tuple[Contradiction, Sequence[str]]]) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield (form or kind of question, the shares of its questions); the kinds leave out questions for history."""
    for asks in ("plain", "now", HISTORY):
        yield from _measure_part(
            asks, [(contradiction, cues) for contradiction, cues in answers if contradiction.asks == asks]
        )
    for kind in ("update", "retract", "conditional"):
        yield from _measure_part(
            kind,
            [
                (contradiction, cues)
                for contradiction, cues in answers
                if contradiction.kind == kind and contradiction.asks != HISTORY
            ],
        )


def _measure_part(
    name: str, answers: Sequence[tuple[Contradiction, Sequence[str]]]
) -> Iterator[tuple[str, Mapping[str, float]]]:
    if answers:
        mean = measures.mean([measure_cues(cues, about) for about, cues in answers])
        yield name, {"n": float(len(answers)), **mean}
