"""The evaluation as a whole: a set in, tables and JSON out, each figure with its interval and the rows to compare with.

`run()` is what `perdure eval` calls. It writes into a scratch home and reads nothing of the user's own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perdure.eval import bench, measures
from perdure.eval.bench import Result, Setup
from perdure.eval.datasets import Dataset, Question, load
from perdure.eval.memory import Memory, memories
from perdure.models.embedder import Embedder
from perdure.recall.tuning import DEFAULT, Tuning

SHIPPED = Path(__file__).parent / "shipped"
SHOWN = ("R@5", "R@10", "Hit@10", "All@10", "MRR", "nDCG@10")
FALSE_SILENCE = 0.025  # of the answerable questions, for which thresholds are chosen
SILENT = ("5-adversarial", "unanswerable")  # categories without an answer: reported apart, as a test of silence
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured on one set."""

    name: str
    figures: Figures  # plain values, for JSON
    rows: Mapping[str, Sequence[Result]]  # system -> answers, for comparisons by question

    def text(self) -> str:
        """The tables as a person reads them."""
        parts = [f"{self.name}: {self.figures['n_docs']} turns, {self.figures['n_questions']} answerable questions"]
        parts.append(_table("system", self.figures["systems"], (*SHOWN, "packed", "tokens")))
        parts.append(_table("category", self.figures["categories"], SHOWN))
        parts.append(_lines(self.figures))
        return "\n\n".join(parts)


def run(
    place: Path = SHIPPED,
    *,
    embedder: Embedder | None = None,
    vectors: bool = True,
    tuning: Tuning = DEFAULT,
    planning: bool = True,
    home: Path | None = None,
    stated: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Measure one set: ranking by system and category, silence, what reaches the pack, time.

    place: a folder in the normalised layout, or LoCoMo's own file. embedder: instead of the one that Perdure carries.
    vectors: False for keywords alone. home: where the scratch home stays, to be used again; else it goes. stated:
    False for turns alone, without the memories that are made of what people state. progress gets (rows measured, all).
    """
    data = load(place)
    setup = Setup(tuning, planning)
    with (
        tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch,
        memories(data, home or Path(scratch), embedder, vectors=vectors, stated=stated) as held,
    ):
        systems = _systems(setup, vectors=vectors)
        rows = {}
        for n_done, (name, row) in enumerate(systems.items()):
            if progress:
                progress(n_done, len(systems) + 1)
            rows[name] = bench.all_of(data, held, row)
        strangers = bench.all_elsewhere(data, held, partial(_ask, setup)) if len(held) > 1 else []
        model = _model(held) if vectors else ""
    return Report(data.name, _figures(data, rows, strangers) | {"model": model}, rows)


def _model(held: Mapping[str, Memory]) -> str:
    """Whose vectors were compared; "" without any."""
    return next((str(memory.home.vectors().tag or "") for memory in held.values()), "")


def _ask(setup: Setup, memory: Memory, question: Question) -> Result:
    return bench.ask(memory, question, setup)


def _nothing(memory: Memory, question: Question) -> Result:  # noqa: ARG001 - a row like the others
    return Result(question, ())


def _systems(setup: Setup, *, vectors: bool) -> dict[str, Callable[[Memory, Question], Result]]:
    """The rows of the table, recall last."""
    found: dict[str, Callable[[Memory, Question], Result]] = {
        "no memory": _nothing, "grep": bench.grep, "full context": bench.full_context,
        "keyword only": bench.keyword_only,
    }  # fmt: skip
    if vectors:
        found["vectors only"] = bench.vectors_only
    return {**found, "recall": partial(_ask, setup)}


def is_answerable(question: Question) -> bool:
    """Whether its group holds the answer."""
    return bool(question.gold) and question.category not in SILENT


def _figures(data: Dataset, rows: Mapping[str, Sequence[Result]], strangers: Sequence[Result]) -> Figures:
    ours = rows["recall"]
    answered = {name: [a for a in asked if is_answerable(a.question)] for name, asked in rows.items()}
    categories = sorted({a.question.category for a in answered["recall"]})
    found: Figures = {
        "n_docs": len(data.docs),
        "n_questions": len(answered["recall"]),
        "systems": {name: measured(asked) for name, asked in answered.items()},
        "categories": {c: measured([a for a in answered["recall"] if a.question.category == c]) for c in categories},
        "interval": {name: asdict(measures.bootstrap(values)) for name, values in _values(answered["recall"]).items()},
        "over_keyword": asdict(_difference(answered["recall"], answered["keyword only"])),
        "took_ms": _quantiles([a.took_ms for a in ours]),
    }
    return found | {
        "silence": _silence(answered["recall"], [a for a in ours if not is_answerable(a.question)], strangers)
    }


def measured(asked: Sequence[Result]) -> Figures:
    """Averages over questions: the ranking's measures, the share of the gold in the pack, tokens."""
    if not asked:
        return {}
    ranking = measures.mean([measures.of_ranking(a.ranked, a.question.gold) for a in asked])
    packed = sum(len(set(a.packed) & set(a.question.gold)) / len(set(a.question.gold)) for a in asked) / len(asked)
    return {"n": len(asked), **ranking, "packed": packed, "tokens": sum(a.n_tokens for a in asked) / len(asked)}


def _values(asked: Sequence[Result]) -> dict[str, list[float]]:
    rows = [measures.of_ranking(a.ranked, a.question.gold) for a in asked]
    return {name: [row[name] for row in rows] for name in SHOWN}


def _difference(ours: Sequence[Result], theirs: Sequence[Result]) -> measures.Interval:
    """How much more of the gold is in our first ten, question by question."""
    return measures.paired(_values(ours)["R@10"], _values(theirs)["R@10"])


def _silence(own: Sequence[Result], unanswerable: Sequence[Result], strangers: Sequence[Result]) -> Figures:
    """How often recall is silent where it should speak, where its own memory has no answer, and in a stranger's."""
    has_answer, has_none = [a.relevance for a in own], [a.relevance for a in strangers]
    curve = measures.silence_curve(has_answer, has_none) if strangers else []
    return {
        "answerable": _share_silent(own),
        "unanswerable": _share_silent(unanswerable),
        "elsewhere": _share_silent(strangers),
        "auroc": measures.auroc(has_answer, has_none),
        "room": measures.threshold(has_answer, FALSE_SILENCE),
        "curve": [list(point) for point in curve[:: max(1, len(curve) // 40)] if point[0] != float("inf")],
    }


def _share_silent(asked: Sequence[Result]) -> float | None:
    return sum(a.is_silent for a in asked) / len(asked) if asked else None


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"p{q}": ordered[min(len(ordered) - 1, len(ordered) * q // 100)] for q in (50, 95)} if ordered else {}


def _table(head: str, rows: Mapping[str, Figures], names: Sequence[str]) -> str:
    """Rows of shares in per cent; tokens as they are."""
    width = max(len(head), *(len(name) for name in rows)) + 2
    lines = [head.ljust(width) + "".join(name.rjust(9) for name in ("n", *names))]
    for label, row in rows.items():
        cells = [f"{row.get('n', 0):9d}"]
        cells += [f"{row[n]:9.0f}" if n == "tokens" else f"{100 * row[n]:9.1f}" for n in names if n in row]
        lines.append(label.ljust(width) + "".join(cells))
    return "\n".join(lines)


def _lines(figures: Figures) -> str:
    at, over, silence = figures["interval"]["R@10"], figures["over_keyword"], figures["silence"]
    said = {
        name: "–" if value is None else f"{100 * value:.1f} %"
        for name, value in silence.items()
        if name in ("answerable", "unanswerable", "elsewhere")
    }
    took = figures["took_ms"]
    return "\n".join(
        (
            f"R@10 {100 * at['at']:.1f} [{100 * at['low']:.1f}, {100 * at['high']:.1f}], over keyword only "
            f"{100 * over['at']:+.1f} [{100 * over['low']:+.1f}, {100 * over['high']:+.1f}] (95 % of resamples)",
            f"silent: {said['answerable']} of the answerable, {said['unanswerable']} of the unanswerable, "
            f"{said['elsewhere']} of questions from elsewhere; AUROC {silence['auroc']:.3f}",
            f"room: {silence['room']:+.3f} from the threshold to {FALSE_SILENCE:.1%} of the answerable silent",
            f"took: median {took['p50']:.1f} ms, 95th percentile {took['p95']:.1f} ms",
        )
    )
