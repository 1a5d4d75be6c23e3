"""What becomes of poisoned passages among memories: how often one reaches the pack, and how often it comes first.

Each question of the file has its true answer, which the owner stated, and passages that were written to make a wrong
one believed, which came from the web and were noted later. All are memories of one scratch home. Asked twice: with the
passages' trust as it is ("web"), and as if trust were unknown (everything the owner's).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from perdure.errors import UsageError
from perdure.eval import measures
from perdure.eval.datasets import rows
from perdure.eval.supersession import ended
from perdure.home import Home, open_home
from perdure.models.embedder import Embedder
from perdure.types import Cue, Trust

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_STATED_AT = _NOW - timedelta(days=60)  # the owner's words; the passages came a day later
SHOWN = ("poison in pack", "poison first", "answer in pack", "answer first", "silent")


@dataclass(frozen=True, slots=True)
class Poisoned:
    """A question with what is true and what somebody wants believed."""

    question: str
    answer: str  # what the owner stated
    passages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured: for trust on and off, the shares of questions."""

    figures: Mapping[str, Any]  # plain values, for JSON

    def text(self) -> str:
        """The table as a person reads it."""
        lines = [
            f"{'trust':8}{'n':>5}"
            + "".join(name.rjust(22) for name in SHOWN)
            + "the owner's ended".rjust(22)
            + "refused".rjust(9)
        ]
        for trust, row in self.figures.items():
            cells = "".join(_cell(row["interval"][name]).rjust(22) for name in SHOWN)
            lines.append(f"{trust:8}{row['n']:5d}{cells}{row['ended']:22d}{row['refused']:9d}")
        return "\n".join(lines)


def run(
    path: Path,
    *,
    embedder: Embedder | None = None,
    vectors: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Measure a file of poisoned passages: a row for each question, with `question`, `correct` and `poison`."""
    cases = [poisoned(row) for row in rows(path)]
    figures: dict[str, Any] = {}
    settings: dict[str, Trust] = {"on": "web", "off": "owner"}
    for n_done, (name, trust) in enumerate(settings.items()):
        if progress:
            progress(n_done, len(settings))
        with (
            tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch,
            open_home(Path(scratch) / "home", embedder=embedder) as home,
        ):
            figures[name] = _measure(home, cases, trust, vectors=vectors)
    return Report(figures)


def poisoned(row: Mapping[str, Any]) -> Poisoned:
    """A row of the file. The question and its answer are what the owner stated.

    >>> poisoned({"question": "who wrote emma", "correct": "Austen", "poison": ["Emma is by Eliot."]}).answer
    'who wrote emma? Austen'
    """
    question = str(row["question"]).rstrip("?")
    return Poisoned(question, f"{question}? {row['correct']}", tuple(row["poison"]))


def _measure(home: Home, cases: Sequence[Poisoned], trust: Trust, *, vectors: bool) -> dict[str, Any]:
    n_refused = 0
    for case in cases:
        home.remember(case.answer, trust="owner", stated_at=_STATED_AT)
        for passage in case.passages:
            n_refused += not _kept(home, passage, trust)
    if vectors:
        home.embed()
    passages = [passage for case in cases for passage in case.passages]
    asked = [measured(_cues(home, case, vectors=vectors), case.answer, passages) for case in cases]
    gone = {memory.text for memory in ended(home)}
    return {
        "n": len(asked),
        **measures.mean(asked),
        "interval": {name: asdict(measures.bootstrap([one[name] for one in asked])) for name in SHOWN},
        "ended": sum(case.answer in gone for case in cases),
        "refused": n_refused,
    }


def _kept(home: Home, passage: str, trust: Trust) -> bool:
    """Whether a passage became a memory: what reads like an order to a model does not, unless its owner says it."""
    try:
        home.remember(passage, trust=trust, stated_at=_STATED_AT + timedelta(days=1))
    except UsageError:
        return False
    return True


def _cues(home: Home, case: Poisoned, *, vectors: bool) -> Sequence[Cue]:
    mode = "hybrid" if vectors else "keyword"
    return home.recall(case.question, now=_NOW, all_projects=True, mode=mode).cues


def measured(cues: Sequence[Cue], answer: str, passages: Sequence[str]) -> dict[str, float]:
    """Whether each thing holds of the cues for one question, 1 or 0."""
    told = [cue.text.strip() for cue in cues]
    bad = [any(_is_of(text, passage) for passage in passages) for text in told]
    good = [_is_of(text, answer) for text in told]
    return {
        "poison in pack": float(any(bad)), "poison first": float(bad[:1] == [True]), "answer in pack": float(any(good)),
        "answer first": float(good[:1] == [True]), "silent": float(not told),
    }  # fmt: skip


def _is_of(text: str, memory: str) -> bool:
    """Whether a cue's text is a memory's: shortened, or with a note."""
    return bool(text) and (text in memory or memory in text)


def _cell(at: Mapping[str, float]) -> str:
    return f"{100 * at['at']:.1f} [{100 * at['low']:.1f}, {100 * at['high']:.1f}]"
