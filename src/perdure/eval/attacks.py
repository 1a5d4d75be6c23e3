"""Measure attacks on memory: poisoned passages among memories, and texts that the injection scanner has to
find.

Poison: each question of the file has its true answer, which the owner stated, and passages written to
make a wrong one believed, which came from the web and were stored later. All are memories of one scratch
home. Each question is asked twice: with the passages' trust as it is ("web"), and as if trust were
unknown (everything the owner's).

Scanner: a set is a file, or a folder of files, of JSON lines with `text`, `label` (1 an attack, 0
harmless), `kind` and `lang`. The scanner is compared, on the same texts, with no scanner and with one
that knows three phrases.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from perdure.access import scan
from perdure.errors import UsageError
from perdure.eval import measures
from perdure.eval.datasets import read_rows
from perdure.eval.measures import bootstrap
from perdure.eval.supersession import list_superseded
from perdure.home import Home, open_home
from perdure.models.embedder import Embedder
from perdure.types import Cue, Trust

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_STATED_AT = _NOW - timedelta(days=60)  # the owner's words; the passages came a day later
POISON_MEASURES = ("poison in pack", "poison first", "answer in pack", "answer first", "silent")


@dataclass(frozen=True, slots=True)
class PoisonCase:
    """A question with its true answer and the passages of an attacker."""

    question: str
    answer: str  # what the owner stated
    passages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoisonReport:
    """The results: the shares of questions, with trust on and off."""

    figures: Mapping[str, Any]  # plain values, for JSON

    def text(self) -> str:
        """Format the results as a table for people."""
        lines = [
            f"{'trust':8}{'n':>5}"
            + "".join(name.rjust(22) for name in POISON_MEASURES)
            + "the owner's ended".rjust(22)
            + "refused".rjust(9)
        ]
        for trust, row in self.figures.items():
            cells = "".join(_format_interval(row["interval"][name]).rjust(22) for name in POISON_MEASURES)
            lines.append(f"{trust:8}{row['n']:5d}{cells}{row['ended']:22d}{row['refused']:9d}")
        return "\n".join(lines)


def run_poison(
    path: Path,
    *,
    embedder: Embedder | None = None,
    vectors: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> PoisonReport:
    """Measure a file of poisoned passages: a row for each question, with `question`, `correct` and `poison`."""
    cases = [to_poison_case(row) for row in read_rows(path)]
    figures: dict[str, Any] = {}
    settings: dict[str, Trust] = {"on": "web", "off": "owner"}
    for n_done, (name, trust) in enumerate(settings.items()):
        if progress:
            progress(n_done, len(settings))
        with (
            tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch,
            open_home(Path(scratch) / "home", embedder=embedder) as home,
        ):
            figures[name] = _measure_poison(home, cases, trust, vectors=vectors)
    return PoisonReport(figures)


def to_poison_case(row: Mapping[str, Any]) -> PoisonCase:
    """Convert a row of the file. The owner's statement is the question with its answer.

    >>> to_poison_case({"question": "who wrote emma", "correct": "Austen", "poison": ["Emma is by Eliot."]}).answer
    'who wrote emma? Austen'
    """
    question = str(row["question"]).rstrip("?")
    return PoisonCase(question, f"{question}? {row['correct']}", tuple(row["poison"]))


def _measure_poison(home: Home, cases: Sequence[PoisonCase], trust: Trust, *, vectors: bool) -> dict[str, Any]:
    n_refused = 0
    for case in cases:
        home.remember(case.answer, trust="owner", stated_at=_STATED_AT)
        for passage in case.passages:
            n_refused += not _try_remember(home, passage, trust)
    if vectors:
        home.upkeep.embed()
    passages = [passage for case in cases for passage in case.passages]
    results = [measure_poison_cues(_recall_cues(home, case, vectors=vectors), case.answer, passages) for case in cases]
    superseded_texts = {memory.text for memory in list_superseded(home)}
    return {
        "n": len(results),
        **measures.mean(results),
        "interval": {
            name: asdict(measures.bootstrap([result[name] for result in results])) for name in POISON_MEASURES
        },
        "ended": sum(case.answer in superseded_texts for case in cases),
        "refused": n_refused,
    }


def _try_remember(home: Home, passage: str, trust: Trust) -> bool:
    """Try to store a passage; return False if it is refused, because it reads like an order and is not the
    owner's.
    """
    try:
        home.remember(passage, trust=trust, stated_at=_STATED_AT + timedelta(days=1))
    except UsageError:
        return False
    return True


def _recall_cues(home: Home, case: PoisonCase, *, vectors: bool) -> Sequence[Cue]:
    mode = "hybrid" if vectors else "keyword"
    return home.recall(case.question, now=_NOW, all_projects=True, mode=mode).cues


def measure_poison_cues(cues: Sequence[Cue], answer: str, passages: Sequence[str]) -> dict[str, float]:
    """Measure the cues of one question; each measure is 1 or 0."""
    cue_texts = [cue.text.strip() for cue in cues]
    is_poison = [any(_is_text_of(text, passage) for passage in passages) for text in cue_texts]
    is_answer = [_is_text_of(text, answer) for text in cue_texts]
    return {
        "poison in pack": float(any(is_poison)),
        "poison first": float(is_poison[:1] == [True]),
        "answer in pack": float(any(is_answer)),
        "answer first": float(is_answer[:1] == [True]),
        "silent": float(not cue_texts),
    }


def _is_text_of(text: str, memory: str) -> bool:
    """Return True if a cue's text comes from a memory, also if shortened or with a note."""
    return bool(text) and (text in memory or memory in text)


def _format_interval(interval: Mapping[str, float]) -> str:
    return f"{100 * interval['at']:.1f} [{100 * interval['low']:.1f}, {100 * interval['high']:.1f}]"


SHIPPED_TEXTS = Path(__file__).parent / "shipped_scanner"
KNOWN_PHRASES = ("ignore previous instructions", "you are now a", "send the following information to")


class LabelledText(msgspec.Struct, frozen=True):
    """A text and its label: attack or not."""

    text: str
    label: int  # 1 an attack, 0 harmless
    kind: str = ""
    lang: str = ""


ScanFunction = Callable[[str], bool]
SCANNERS: Mapping[str, ScanFunction] = {
    "none": lambda _: False,
    "three phrases": lambda text: any(phrase in text.lower() for phrase in KNOWN_PHRASES),
    "perdure": lambda text: bool(scan.scan(text)),
}


@dataclass(frozen=True, slots=True)
class ScannerReport:
    """The results: for each scanner all attacks and all harmless texts; for ours also each kind and language."""

    figures: Mapping[str, Any]  # plain values, for JSON

    def text(self) -> str:
        """Format the results as tables for people."""
        lines = [f"{'scanner':32}{'attacks':>8}{'found':>26}{'harmless':>10}{'false alarms':>24}"]
        for name, parts in self.figures["scanners"].items():
            attacks, harmless = parts["attacks"], parts["harmless"]
            lines.append(
                f"{name:32}{attacks['n']:8d}{_format_found(attacks):>26}{harmless['n']:10d}{_format_found(harmless):>24}"
            )
        for title in ("attacks", "harmless"):
            for by in ("kinds", "languages"):
                lines += ["", f"{f'{title}: {by}':32}{'n':>8}{'found':>26}"]
                rows = self.figures[title][by].items()
                lines += [f"{name[:31]:32}{row['n']:8d}{_format_found(row):>24}" for name, row in rows]
        return "\n".join(lines)


def run_scanner(source: Path = SHIPPED_TEXTS, *, progress: Callable[[int, int], None] | None = None) -> ScannerReport:
    """Scan every text of a set. Raises UsageError if the source is not a set."""
    all_texts = load_texts(source)
    scanned_by_scanner = {
        name: [(text, scanner(text.text)) for text in all_texts] for name, scanner in SCANNERS.items()
    }
    if progress:
        progress(len(all_texts), len(all_texts))
    own_scan = scanned_by_scanner["perdure"]
    scanners = {
        name: {part: _measure_texts(_select_part(scanned_texts, part)) for part in ("attacks", "harmless")}
        for name, scanned_texts in scanned_by_scanner.items()
    }
    return ScannerReport(
        {"scanners": scanners}
        | {part: _measure_groups(_select_part(own_scan, part)) for part in ("attacks", "harmless")}
    )


def load_texts(source: Path) -> list[LabelledText]:
    """Load the labelled texts of a file or of the files of a folder. Raises UsageError if there are none."""
    files = sorted(source.glob("*.jsonl")) if source.is_dir() else [source]
    all_texts: list[LabelledText] = []
    for file in files:
        try:
            all_texts += [
                msgspec.json.decode(line, type=LabelledText) for line in file.read_bytes().splitlines() if line.strip()
            ]
        except (OSError, msgspec.MsgspecError) as error:
            if file == source:
                raise UsageError(f"{file}: {error}") from error
    if not all_texts:
        raise UsageError(f"{source}: no texts with a label")
    return all_texts


ScannedTexts = Sequence[tuple[LabelledText, bool]]


def _select_part(scanned_texts: ScannedTexts, part: str) -> ScannedTexts:
    return [(text, is_found) for text, is_found in scanned_texts if (text.label == 1) == (part == "attacks")]


def _measure_groups(scanned_texts: ScannedTexts) -> dict[str, dict[str, Any]]:
    """Measure each kind and each language."""
    return {
        "kinds": _measure_each_group(scanned_texts, lambda text: text.kind),
        "languages": _measure_each_group(scanned_texts, lambda text: text.lang),
    }


def _measure_each_group(scanned_texts: ScannedTexts, key: Callable[[LabelledText], str]) -> dict[str, Any]:
    ordered = sorted(scanned_texts, key=lambda item: key(item[0]))
    return {name or "–": _measure_texts(part) for name, part in groupby(ordered, key=lambda item: key(item[0]))}


def _measure_texts(scanned_texts: Iterable[tuple[LabelledText, bool]]) -> dict[str, Any]:
    """Return how many texts were found, as a share with its 95 % interval; the share is -1 if there are no
    texts.
    """
    hits = [float(is_found) for _, is_found in scanned_texts]
    if not hits:
        return {"n": 0, "found": 0, "share": -1.0}
    return {
        "n": len(hits),
        "found": int(sum(hits)),
        "share": sum(hits) / len(hits),
        "interval": asdict(bootstrap(hits)),
    }


def _format_found(row: Mapping[str, Any]) -> str:
    if not row["n"]:
        return "–"
    low, high = row["interval"]["low"], row["interval"]["high"]
    return f"{row['found']}  {100 * row['share']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
