"""What the evaluation that comes with Perdure measured, kept: an event of the home's journal for each time.

It cannot be measured again once Perdure has changed, so it belongs to the archive. It says how well this Perdure
remembers on this machine, and nothing of anybody's own; only times of one set of questions are compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import perdure
from perdure.archive.journal import Event, Journal
from perdure.eval import report
from perdure.eval.bench import Result
from perdure.eval.report import Figures, Report
from perdure.index.measured import TYPE
from perdure.memories.replay import Noted

SYSTEMS = ("recall", "keyword only", "no memory")  # rows that are kept, the first of them ours
MEASURES = ("R@5", "R@10", "Hit@10", "MRR", "nDCG@10", "packed", "tokens", "n")
_SILENCE = ("answerable", "unanswerable", "elsewhere", "auroc")
_DIGITS = 4
_SET_CHARS = 16  # hex digits that tell one set of questions from another

Verdict = Literal["better", "worse", "the same"]


@dataclass(frozen=True, slots=True)
class Measured:
    """One time."""

    at: datetime
    version: str  # of Perdure
    model: str  # whose vectors were compared, "" for none
    machine: str
    questions: str  # a digest of the set
    figures: Figures  # n_docs, n_questions, systems, categories (of each system), interval, silence, took_ms


def keep(journal: Journal, found: Report, *, machine: str, now: datetime) -> Event:
    """Note what was measured on the set that comes with Perdure."""
    return journal.append(TYPE, noted(found, machine=machine, questions=digest(report.SHIPPED)), now=now)


def noted(found: Report, *, machine: str, questions: str) -> dict[str, Any]:
    """The data of the event: what a person compares, without the answers to single questions."""
    figures = found.figures
    answered = {name: [a for a in found.rows[name] if report.is_answerable(a.question)] for name in SYSTEMS}
    kinds = sorted({a.question.category for a in answered[SYSTEMS[0]]})
    return {
        "version": perdure.__version__, "model": figures["model"], "machine": machine, "questions": questions,
        "figures": _rounded({
            "n_docs": figures["n_docs"], "n_questions": figures["n_questions"],
            "systems": {name: _shown(asked) for name, asked in answered.items()},
            "categories": {kind: {name: _shown(_of(rows, kind)) for name, rows in answered.items()} for kind in kinds},
            "interval": figures["interval"],
            "silence": {name: figures["silence"][name] for name in _SILENCE},
            "took_ms": figures["took_ms"],
        }),
    }  # fmt: skip


def _of(asked: Sequence[Result], category: str) -> list[Result]:
    return [answer for answer in asked if answer.question.category == category]


def _shown(asked: Sequence[Result]) -> Figures:
    found = report.measured(asked)
    return {name: found[name] for name in MEASURES if name in found}


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return round(value, _DIGITS) if isinstance(value, float) else value


def digest(place: Path) -> str:
    """What tells a set of questions from another, by its bytes."""
    raw = b"".join((place / name).read_bytes() for name in ("docs.jsonl", "queries.jsonl"))
    return hashlib.sha256(raw).hexdigest()[:_SET_CHARS]


def measured(found: Iterable[Noted]) -> list[Measured]:
    """What events say of the times that they note."""
    return [
        Measured(at, said["version"], said["model"], said["machine"], said["questions"], said["figures"])
        for _, said, at, _ in found
    ]


def verdict(before: Measured, after: Measured, measure: str = "R@10") -> Verdict:
    """Whether recall got better: whether what it was before lies outside of what chance explains of what it is now."""
    was = before.figures["interval"][measure]["at"]
    now = after.figures["interval"][measure]
    if was < now["low"]:
        return "better"
    return "worse" if was > now["high"] else "the same"
