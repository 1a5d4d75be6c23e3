"""How well the rules say whether an answer rests on a cue, on pairs whose answer is known.

A set is a file of JSON lines with prompt, cue, answer and `used`. Those with an odd number in their id were looked at
while the rules were made; the others are the proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from perdure.errors import UsageError
from perdure.memories import use

SHIPPED = Path(__file__).parent / "shipped_use" / "pairs.jsonl"


class Pair(msgspec.Struct, frozen=True):
    """A prompt, a cue that was put beside it, the answer, and whether that rests on the cue."""

    id: str
    language: str
    kind: str  # quoted, paraphrased, unrelated, same topic
    used: bool
    prompt: str
    cue: str
    answer: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured: for each part of the set, its counts and shares."""

    figures: Mapping[str, Mapping[str, float]]

    def text(self) -> str:
        """A table as a person reads it."""
        lines = [f"{'part':14}{'n':>5}{'used':>6}{'right':>7}{'precision':>11}{'recall':>8}"]
        for part, row in self.figures.items():
            shares = "".join(_percent(row[name]).rjust(width) for name, width in (("precision", 11), ("recall", 8)))
            lines.append(f"{part:14}{row['n']:5.0f}{row['used']:6.0f}{row['right']:7.0f}{shares}")
        return "\n".join(lines)


def run(source: Path = SHIPPED, *, progress: Callable[[int, int], None] | None = None) -> Report:
    """Judge every pair of a set. Needs neither vectors nor a home."""
    found = pairs(source)
    said = [use.is_used(pair.prompt, pair.cue, pair.answer) for pair in found]
    if progress:
        progress(len(found), len(found))
    return Report(figures(list(zip(found, said, strict=True))) | {"crossed": _row(_crossed(found))})


def pairs(source: Path) -> list[Pair]:
    """The pairs of a file. Raises UsageError for what is none."""
    try:
        return [msgspec.json.decode(line, type=Pair) for line in source.read_bytes().splitlines() if line.strip()]
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{source}: {error}") from error


def _crossed(found: Sequence[Pair]) -> list[tuple[Pair, bool]]:
    """Every cue judged by the answers to every other one: none of them rests on it."""
    return [
        (msgspec.structs.replace(cue, used=False), use.is_used(other.prompt, cue.cue, other.answer))
        for cue in found
        for other in found
        if cue.cue != other.cue
    ]


def figures(judged: Sequence[tuple[Pair, bool]]) -> dict[str, dict[str, float]]:
    """The counts of all, of both halves, of each language and of each kind."""
    found = {"all": _row(judged)}
    for key in (_half, lambda pair: pair.language, lambda pair: pair.kind):
        ordered = sorted(judged, key=lambda item: key(item[0]))
        found |= {name: _row(list(part)) for name, part in groupby(ordered, key=lambda item: key(item[0]))}
    return found


def _half(pair: Pair) -> str:
    return "looked at" if int(pair.id[1:]) % 2 else "held out"


def _row(judged: Iterable[tuple[Pair, bool]]) -> dict[str, Any]:
    """Counts; precision and recall are -1 where there is nothing to divide by."""
    every = list(judged)
    hits = sum(said and pair.used for pair, said in every)
    n_said, n_used = sum(said for _, said in every), sum(pair.used for pair, _ in every)
    return {
        "n": len(every), "used": n_used, "right": sum(said == pair.used for pair, said in every),
        "precision": hits / n_said if n_said else -1.0, "recall": hits / n_used if n_used else -1.0,
    }  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.1f}" if share >= 0 else "–"
