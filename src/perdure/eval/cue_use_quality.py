"""Measure the rules that say whether an answer used a cue, on pairs with a known answer.

A set is a file of JSON lines with prompt, cue, answer and `used`. Pairs with an odd number in their id
were looked at while the rules were made; the others are the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from perdure.errors import UsageError
from perdure.memories import cue_use

SHIPPED = Path(__file__).parent / "shipped_use" / "pairs.jsonl"


class CueUsePair(msgspec.Struct, frozen=True):
    """A prompt, a cue that was put beside it, the answer, and whether the answer used the cue."""

    id: str
    language: str
    kind: str  # quoted, paraphrased, unrelated, same topic
    used: bool
    prompt: str
    cue: str
    answer: str


@dataclass(frozen=True, slots=True)
class CueUseReport:
    """The results: for each part of the set, its counts and shares."""

    figures: Mapping[str, Mapping[str, float]]

    def text(self) -> str:
        """Format the results as a table for people."""
        lines = [f"{'part':14}{'n':>5}{'used':>6}{'right':>7}{'precision':>11}{'recall':>8}"]
        for part, row in self.figures.items():
            shares = "".join(
                _format_percent(row[name]).rjust(width) for name, width in (("precision", 11), ("recall", 8))
            )
            lines.append(f"{part:14}{row['n']:5.0f}{row['used']:6.0f}{row['right']:7.0f}{shares}")
        return "\n".join(lines)


def run(source: Path = SHIPPED, *, progress: Callable[[int, int], None] | None = None) -> CueUseReport:
    """Judge every pair of a set. Needs neither vectors nor a home."""
    all_pairs = load_pairs(source)
    judgements = [cue_use.is_used(pair.prompt, pair.cue, pair.answer) for pair in all_pairs]
    if progress:
        progress(len(all_pairs), len(all_pairs))
    return CueUseReport(
        compute_figures(list(zip(all_pairs, judgements, strict=True)))
        | {"crossed": _measure_row(_judge_crossed_pairs(all_pairs))}
    )


def load_pairs(source: Path) -> list[CueUsePair]:
    """Load the pairs of a file. Raises UsageError if it is not a set of pairs."""
    try:
        return [msgspec.json.decode(line, type=CueUsePair) for line in source.read_bytes().splitlines() if line.strip()]
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{source}: {error}") from error


def _judge_crossed_pairs(all_pairs: Sequence[CueUsePair]) -> list[tuple[CueUsePair, bool]]:
    """Judge every cue by the answers to every other cue: none of them used it."""
    return [
        (
            msgspec.structs.replace(cue_pair, used=False),
            cue_use.is_used(answered_pair.prompt, cue_pair.cue, answered_pair.answer),
        )
        for cue_pair in all_pairs
        for answered_pair in all_pairs
        if cue_pair.cue != answered_pair.cue
    ]


def compute_figures(judged_pairs: Sequence[tuple[CueUsePair, bool]]) -> dict[str, dict[str, float]]:
    """Compute the counts of all pairs, of both halves, of each language and of each kind."""
    rows = {"all": _measure_row(judged_pairs)}
    for key in (_name_half, lambda pair: pair.language, lambda pair: pair.kind):
        ordered = sorted(judged_pairs, key=lambda item: key(item[0]))
        rows |= {name: _measure_row(list(group)) for name, group in groupby(ordered, key=lambda item: key(item[0]))}
    return rows


def _name_half(pair: CueUsePair) -> str:
    return "looked at" if int(pair.id[1:]) % 2 else "held out"


def _measure_row(judged_pairs: Iterable[tuple[CueUsePair, bool]]) -> dict[str, Any]:
    """Compute counts and shares; precision and recall are -1 if there is nothing to divide by."""
    all_pairs = list(judged_pairs)
    hits = sum(is_judged_used and pair.used for pair, is_judged_used in all_pairs)
    n_judged_used, n_used = (
        sum(is_judged_used for _, is_judged_used in all_pairs),
        sum(pair.used for pair, _ in all_pairs),
    )
    return {
        "n": len(all_pairs),
        "used": n_used,
        "right": sum(is_judged_used == pair.used for pair, is_judged_used in all_pairs),
        "precision": hits / n_judged_used if n_judged_used else -1.0,
        "recall": hits / n_used if n_used else -1.0,
    }


def _format_percent(share: float) -> str:
    return f"{100 * share:.1f}" if share >= 0 else "–"
