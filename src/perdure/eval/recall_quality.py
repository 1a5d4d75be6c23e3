"""The evaluation of recall: a set in, tables and JSON out, each figure with its interval and rows to compare
with.

`run()` is what `perdure eval` calls. It writes into a scratch home and reads nothing of the user's own.
The result on the shipped set can be stored as an event of the home's journal. It cannot be measured again
once Perdure has changed, so it belongs to the archive. It says how well this Perdure remembers on this
machine, and nothing about the user's data; only measurements on the same set are compared.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import perdure
from perdure.archive.journal import Journal, JournalEvent
from perdure.errors import UsageError
from perdure.eval import bench, measures
from perdure.eval.bench import BenchSetup, GroupMemory, QuestionResult, open_group_memories
from perdure.eval.datasets import Dataset, EvalQuestion, load_dataset
from perdure.index.memory_replay import ReplayEvent
from perdure.index.statistics import MEASURED_TYPE
from perdure.models.embedder import Embedder
from perdure.recall.tuning import DEFAULT, Tuning

SHIPPED = Path(__file__).parent / "shipped"
SHOWN_MEASURES = ("R@5", "R@10", "Hit@10", "All@10", "MRR", "nDCG@10")
MAX_FALSE_SILENCE = 0.025  # of the answerable questions, for which thresholds are chosen
SILENT_CATEGORIES = (
    "5-adversarial",
    "unanswerable",
)  # categories without an answer: reported apart, as a test of silence
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecallReport:
    """The results on one set."""

    name: str
    figures: Figures  # plain values, for JSON
    rows: Mapping[str, Sequence[QuestionResult]]  # system -> answers, for comparisons by question

    def text(self) -> str:
        """Format the results as tables for people."""
        parts = [f"{self.name}: {self.figures['n_docs']} turns, {self.figures['n_questions']} answerable questions"]
        parts.append(_format_table("system", self.figures["systems"], (*SHOWN_MEASURES, "packed", "tokens")))
        parts.append(_format_table("category", self.figures["categories"], SHOWN_MEASURES))
        parts.append(_format_summary(self.figures))
        return "\n\n".join(parts)


def run(
    source: Path = SHIPPED,
    *,
    embedder: Embedder | None = None,
    vectors: bool = True,
    tuning: Tuning = DEFAULT,
    planning: bool = True,
    home: Path | None = None,
    stated: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> RecallReport:
    """Measure one set: ranking by system and category, silence, the pack, time.

    source: a folder in the normalised layout, or LoCoMo's own file. embedder: instead of the one that Perdure
    carries. vectors: False for keywords alone. home: a scratch home to keep and use again; without it the
    scratch home is deleted. stated: False for turns alone, without memories made from plain statements.
    progress gets (rows measured, all rows). Raises UsageError for another file, and one without questions.
    """
    data = load_dataset(source)
    if not data.questions:
        raise UsageError(f"{source} has no questions")
    setup = BenchSetup(tuning, planning)
    with (
        tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch,
        open_group_memories(data, home or Path(scratch), embedder, vectors=vectors, stated=stated) as group_memories,
    ):
        systems = _choose_systems(setup, vectors=vectors)
        results = {}
        for n_done, (name, system) in enumerate(systems.items()):
            if progress:
                progress(n_done, len(systems) + 1)
            results[name] = bench.ask_own_groups(data, group_memories, system)
        other_group_results = (
            bench.ask_other_groups(data, group_memories, partial(bench.recall_question, setup=setup))
            if len(group_memories) > 1
            else []
        )
        model_tag = _get_model_tag(group_memories) if vectors else ""
    return RecallReport(data.name, _compute_figures(data, results, other_group_results) | {"model": model_tag}, results)


def _get_model_tag(group_memories: Mapping[str, GroupMemory]) -> str:
    """Return the tag of the model whose vectors were compared; "" without vectors."""
    return next((str(memory.home.connections.vectors().tag or "") for memory in group_memories.values()), "")


def _choose_systems(
    setup: BenchSetup, *, vectors: bool
) -> dict[str, Callable[[GroupMemory, EvalQuestion], QuestionResult]]:
    """Return the rows of the table, recall last."""
    systems: dict[str, Callable[[GroupMemory, EvalQuestion], QuestionResult]] = {
        "no memory": lambda _memory, question: QuestionResult(question, ()),
        "grep": bench.search_like_grep,
        "full context": bench.take_full_context,
        "keyword only": bench.search_keywords,
    }
    if vectors:
        systems["vectors only"] = bench.search_vectors
    return {**systems, "recall": partial(bench.recall_question, setup=setup)}


def is_answerable(question: EvalQuestion) -> bool:
    """Return True if the group of a question holds its answer."""
    return bool(question.gold) and question.category not in SILENT_CATEGORIES


def _compute_figures(
    data: Dataset,
    results_by_system: Mapping[str, Sequence[QuestionResult]],
    other_group_results: Sequence[QuestionResult],
) -> Figures:
    own_results = results_by_system["recall"]
    answerable_results = {
        name: [result for result in results if is_answerable(result.question)]
        for name, results in results_by_system.items()
    }
    categories = sorted({result.question.category for result in answerable_results["recall"]})
    figures: Figures = {
        "n_docs": len(data.docs),
        "n_questions": len(answerable_results["recall"]),
        "systems": {name: average_results(results) for name, results in answerable_results.items()},
        "categories": {
            category: average_results(
                [result for result in answerable_results["recall"] if result.question.category == category]
            )
            for category in categories
        },
        "interval": {
            name: asdict(measures.bootstrap(values))
            for name, values in _list_values(answerable_results["recall"]).items()
        },
        "over_keyword": asdict(
            measures.bootstrap_differences(
                *(_list_values(answerable_results[name])["R@10"] for name in ("recall", "keyword only"))
            )
        ),
        "took_ms": _compute_quantiles([result.took_ms for result in own_results]),
    }
    return figures | {
        "silence": _measure_silence(
            answerable_results["recall"],
            [result for result in own_results if not is_answerable(result.question)],
            other_group_results,
        )
    }


def average_results(results: Sequence[QuestionResult]) -> Figures:
    """Average over questions: the measures of the ranking, the share of the gold in the pack, tokens."""
    if not results:
        return {}
    ranking = measures.mean([measures.measure_ranking(result.ranked, result.question.gold) for result in results])
    packed = sum(
        len(set(result.packed) & set(result.question.gold)) / len(set(result.question.gold)) for result in results
    ) / len(results)
    return {
        "n": len(results),
        **ranking,
        "packed": packed,
        "tokens": sum(result.n_tokens for result in results) / len(results),
    }


def _list_values(results: Sequence[QuestionResult]) -> dict[str, list[float]]:
    rows = [measures.measure_ranking(result.ranked, result.question.gold) for result in results]
    return {name: [row[name] for row in rows] for name in SHOWN_MEASURES}


def _measure_silence(
    answerable: Sequence[QuestionResult],
    unanswerable: Sequence[QuestionResult],
    other_group_results: Sequence[QuestionResult],
) -> Figures:
    """Measure how often recall is silent: on answerable questions, on unanswerable ones, and in another group's
    memory.
    """
    has_answer, has_none = (
        [result.relevance for result in answerable],
        [result.relevance for result in other_group_results],
    )
    curve = measures.compute_silence_curve(has_answer, has_none) if other_group_results else []
    return {
        "answerable": _compute_silent_share(answerable),
        "unanswerable": _compute_silent_share(unanswerable),
        "elsewhere": _compute_silent_share(other_group_results),
        "auroc": measures.auroc(has_answer, has_none),
        "room": measures.find_threshold(has_answer, MAX_FALSE_SILENCE),
        "curve": [list(point) for point in curve[:: max(1, len(curve) // 40)] if point[0] != float("inf")],
    }


def _compute_silent_share(results: Sequence[QuestionResult]) -> float | None:
    return sum(result.is_silent for result in results) / len(results) if results else None


def _compute_quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"p{q}": ordered[min(len(ordered) - 1, len(ordered) * q // 100)] for q in (50, 95)} if ordered else {}


def _format_table(first_column: str, rows: Mapping[str, Figures], names: Sequence[str]) -> str:
    """Format rows of shares in per cent; tokens as they are."""
    width = max(len(first_column), *(len(name) for name in rows)) + 2
    lines = [first_column.ljust(width) + "".join(name.rjust(9) for name in ("n", *names))]
    for label, row in rows.items():
        cells = [f"{row.get('n', 0):9d}"]
        cells += [f"{row[n]:9.0f}" if n == "tokens" else f"{100 * row[n]:9.1f}" for n in names if n in row]
        lines.append(label.ljust(width) + "".join(cells))
    return "\n".join(lines)


def _format_summary(figures: Figures) -> str:
    interval, gain, silence = figures["interval"]["R@10"], figures["over_keyword"], figures["silence"]
    silent_shares = {
        name: "–" if value is None else f"{100 * value:.1f} %"
        for name, value in silence.items()
        if name in ("answerable", "unanswerable", "elsewhere")
    }
    times = figures["took_ms"]
    return "\n".join(
        (
            f"R@10 {100 * interval['at']:.1f} [{100 * interval['low']:.1f}, "
            f"{100 * interval['high']:.1f}], over keyword only "
            f"{100 * gain['at']:+.1f} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}] (95 % of resamples)",
            f"silent: {silent_shares['answerable']} of the answerable, "
            f"{silent_shares['unanswerable']} of the unanswerable, "
            f"{silent_shares['elsewhere']} of questions from elsewhere; AUROC {silence['auroc']:.3f}",
            f"room: {silence['room']:+.3f} from the threshold to {MAX_FALSE_SILENCE:.1%} of the answerable silent",
            f"took: median {times['p50']:.1f} ms, 95th percentile {times['p95']:.1f} ms",
        )
    )


STORED_SYSTEMS = ("recall", "keyword only", "no memory")  # rows that are kept, the first of them ours
STORED_MEASURES = ("R@5", "R@10", "Hit@10", "MRR", "nDCG@10", "packed", "tokens", "n")
_STORED_SILENCE = ("answerable", "unanswerable", "elsewhere", "auroc")
_DIGITS = 4
_SET_CHARS = 16  # hex digits that tell one set of questions from another

QualityChange = Literal["better", "worse", "the same"]


@dataclass(frozen=True, slots=True)
class StoredMeasurement:
    """One stored measurement."""

    at: datetime
    version: str  # of Perdure
    model: str  # whose vectors were compared, "" for none
    machine: str
    questions: str  # a digest of the set
    figures: Figures  # n_docs, n_questions, systems, categories (of each system), interval, silence, took_ms


def store_measurement(journal: Journal, recall_report: RecallReport, *, machine: str, now: datetime) -> JournalEvent:
    """Store the results on the shipped set as an event of the journal."""
    return journal.append(
        MEASURED_TYPE, to_event_data(recall_report, machine=machine, questions=digest_questions(SHIPPED)), now=now
    )


def to_event_data(recall_report: RecallReport, *, machine: str, questions: str) -> dict[str, Any]:
    """Return the data of the event: the figures to compare, without the answers to single questions."""
    figures = recall_report.figures
    answerable_results = {
        name: [result for result in recall_report.rows[name] if is_answerable(result.question)]
        for name in STORED_SYSTEMS
    }
    categories = sorted({result.question.category for result in answerable_results[STORED_SYSTEMS[0]]})
    return {
        "version": perdure.__version__,
        "model": figures["model"],
        "machine": machine,
        "questions": questions,
        "figures": _round_numbers(
            {
                "n_docs": figures["n_docs"],
                "n_questions": figures["n_questions"],
                "systems": {name: _average_stored_measures(results) for name, results in answerable_results.items()},
                "categories": {
                    category: {
                        name: _average_stored_measures(
                            [result for result in results if result.question.category == category]
                        )
                        for name, results in answerable_results.items()
                    }
                    for category in categories
                },
                "interval": figures["interval"],
                "silence": {name: figures["silence"][name] for name in _STORED_SILENCE},
                "took_ms": figures["took_ms"],
            }
        ),
    }


def _average_stored_measures(results: Sequence[QuestionResult]) -> Figures:
    averages = average_results(results)
    return {name: averages[name] for name in STORED_MEASURES if name in averages}


def _round_numbers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _round_numbers(item) for name, item in value.items()}
    return round(value, _DIGITS) if isinstance(value, float) else value


def digest_questions(folder: Path) -> str:
    """Return a digest of a set's files, which tells one set from another."""
    raw = b"".join((folder / name).read_bytes() for name in ("docs.jsonl", "queries.jsonl"))
    return hashlib.sha256(raw).hexdigest()[:_SET_CHARS]


def read_measurements(events: Iterable[ReplayEvent]) -> list[StoredMeasurement]:
    """Read the measurements from their events."""
    return [
        StoredMeasurement(
            measured_at, fields["version"], fields["model"], fields["machine"], fields["questions"], fields["figures"]
        )
        for _, fields, measured_at, _ in events
    ]


def compare_measurements(before: StoredMeasurement, after: StoredMeasurement, measure: str = "R@10") -> QualityChange:
    """Compare two measurements: has the earlier score moved outside the current 95 % interval?"""
    old_mean = before.figures["interval"][measure]["at"]
    interval = after.figures["interval"][measure]
    if old_mean < interval["low"]:
        return "better"
    return "worse" if old_mean > interval["high"] else "the same"
