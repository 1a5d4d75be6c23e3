"""How many attacks the injection scanner finds, and how often it takes something harmless for one.

A set is a file, or a folder of files, of JSON lines with `text`, `label` (1 an attack, 0 harmless), `kind` and `lang`.
Beside the scanner stand none at all, and one that knows three phrases: what each finds is counted on the same texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from perdure.access import scan
from perdure.errors import UsageError
from perdure.eval.measures import bootstrap

SHIPPED = Path(__file__).parent / "shipped_scanner"
PHRASES = ("ignore previous instructions", "you are now a", "send the following information to")


class Labelled(msgspec.Struct, frozen=True):
    """A text and whether it is an attack."""

    text: str
    label: int  # 1 an attack, 0 harmless
    kind: str = ""
    lang: str = ""


Scanner = Callable[[str], bool]
SCANNERS: Mapping[str, Scanner] = {
    "none": lambda _: False,
    "three phrases": lambda text: any(phrase in text.lower() for phrase in PHRASES),
    "perdure": lambda text: bool(scan.scan(text)),
}


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured: of each scanner all attacks and all harmless texts, of ours each kind and language."""

    figures: Mapping[str, Any]  # plain values, for JSON

    def text(self) -> str:
        """The tables as a person reads them."""
        lines = [f"{'scanner':32}{'attacks':>8}{'found':>26}{'harmless':>10}{'false alarms':>24}"]
        for name, parts in self.figures["scanners"].items():
            attacks, harmless = parts["attacks"], parts["harmless"]
            lines.append(f"{name:32}{attacks['n']:8d}{_cell(attacks):>26}{harmless['n']:10d}{_cell(harmless):>24}")
        for title in ("attacks", "harmless"):
            for by in ("kinds", "languages"):
                lines += ["", f"{f'{title}: {by}':32}{'n':>8}{'found':>26}"]
                rows = self.figures[title][by].items()
                lines += [f"{name[:31]:32}{row['n']:8d}{_cell(row):>24}" for name, row in rows]
        return "\n".join(lines)


def run(source: Path = SHIPPED, *, progress: Callable[[int, int], None] | None = None) -> Report:
    """Scan every text of a set. Raises UsageError for what is none."""
    found = texts(source)
    said = {name: [(text, scanner(text.text)) for text in found] for name, scanner in SCANNERS.items()}
    if progress:
        progress(len(found), len(found))
    ours = said["perdure"]
    scanners = {
        name: {part: _row(_of(judged, part)) for part in ("attacks", "harmless")} for name, judged in said.items()
    }
    return Report({"scanners": scanners} | {part: _parts(_of(ours, part)) for part in ("attacks", "harmless")})


def texts(source: Path) -> list[Labelled]:
    """The texts of a file, or of those files of a folder that hold labelled texts. Raises UsageError where none are."""
    files = sorted(source.glob("*.jsonl")) if source.is_dir() else [source]
    found: list[Labelled] = []
    for file in files:
        try:
            found += [
                msgspec.json.decode(line, type=Labelled) for line in file.read_bytes().splitlines() if line.strip()
            ]
        except (OSError, msgspec.MsgspecError) as error:
            if file == source:
                raise UsageError(f"{file}: {error}") from error
    if not found:
        raise UsageError(f"{source}: no texts with a label")
    return found


Judged = Sequence[tuple[Labelled, bool]]


def _of(judged: Judged, part: str) -> Judged:
    return [(text, said) for text, said in judged if (text.label == 1) == (part == "attacks")]


def _parts(judged: Judged) -> dict[str, dict[str, Any]]:
    """The rows of each kind and of each language."""
    return {
        "kinds": _grouped(judged, lambda text: text.kind),
        "languages": _grouped(judged, lambda text: text.lang),
    }


def _grouped(judged: Judged, key: Callable[[Labelled], str]) -> dict[str, Any]:
    ordered = sorted(judged, key=lambda item: key(item[0]))
    return {name or "–": _row(part) for name, part in groupby(ordered, key=lambda item: key(item[0]))}


def _row(judged: Iterable[tuple[Labelled, bool]]) -> dict[str, Any]:
    """How many were found, as a share with its 95 % interval; -1 where there is nothing to divide by."""
    said = [float(one) for _, one in judged]
    if not said:
        return {"n": 0, "found": 0, "share": -1.0}
    return {
        "n": len(said),
        "found": int(sum(said)),
        "share": sum(said) / len(said),
        "interval": asdict(bootstrap(said)),
    }


def _cell(row: Mapping[str, Any]) -> str:
    if not row["n"]:
        return "–"
    low, high = row["interval"]["low"], row["interval"]["high"]
    return f"{row['found']}  {100 * row['share']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
