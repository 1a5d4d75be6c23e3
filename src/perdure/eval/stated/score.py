"""How well statements are found in what a person typed: precision and recall by sentence against labels by hand.

`labels.jsonl` has a row for each message that was read: the digest of its text, where it came from, and the spans of
what is worth keeping (docs/evaluation/stated.md has the rules of judgement). The texts are not shipped: messages are
read from where they lie, and what nobody judged is left out. Half of the messages, by digest, may be looked at while
rules are written ("dev"); of the other half only figures are given.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from perdure.errors import UsageError
from perdure.eval.datasets import load, rows
from perdure.eval.measures import N_BOOTSTRAP, Interval
from perdure.formats.of_run import parse_run
from perdure.home import open_home

LABELS = Path(__file__).parent / "labels.jsonl"
HALVES = ("dev", "held_out")
SAME = 0.2  # intersection over union from which two spans mean the same sentence: a clause of it does, its message not


class Span(NamedTuple):
    """A statement in a text: [start, end) in characters, and its kind."""

    start: int
    end: int
    kind: str = ""
    is_borderline: bool = False  # of a label: who finds it is neither right nor wrong


class Labelled(NamedTuple):
    """A message that was judged."""

    text: str
    source: str  # transcripts or beam
    half: str
    spans: tuple[Span, ...]  # what is worth keeping; often nothing


class Scored(NamedTuple):
    """What was found in a message, beside what is there."""

    message: Labelled
    found: tuple[Span, ...]  # but for what is borderline
    right: tuple[Span, ...]  # of those found
    met: tuple[Span, ...]  # of the labels that are wanted

    @property
    def wanted(self) -> tuple[Span, ...]:
        """The labels that count."""
        return tuple(span for span in self.message.spans if not span.is_borderline)


Find = Callable[[str], Sequence[Span]]


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured."""

    figures: Mapping[str, Any]  # plain values, for JSON
    scored: Sequence[Scored]

    def text(self) -> str:
        """The table as a person reads it."""
        names = ("precision", "recall", "f1")
        lines = [f"{'messages':24}{'n':>5}{'labels':>8}{'found':>7}" + "".join(name.rjust(22) for name in names)]
        for part, row in self.figures["parts"].items():
            cells = "".join(_cell(row[name]).rjust(22) for name in names)
            lines.append(f"{part:24}{row['n']:5d}{row['labels']:8d}{row['found']:7d}{cells}")
        lines.append(f"kind right where the sentence is: {_percent(self.figures['kind'])}")
        return "\n".join(lines)

    def errors(self) -> str:
        """What was missed and what was found wrongly, of the half that may be looked at."""
        lines = []
        for one in self.scored:
            if one.message.half == "dev":
                missed = [span for span in one.wanted if span not in one.met]
                wrong = [span for span in one.found if span not in one.right]
                lines += [f"missed ({span.kind}): {_words(one, span)}" for span in missed]
                lines += [f"wrong ({span.kind}): {_words(one, span)}" for span in wrong]
        return "\n".join(lines) or "none"


def run(paths: Sequence[Path], *, half: str | None = None, find: Find | None = None, labels: Path = LABELS) -> Report:
    """Score what `find` (else `perdure.memories.statements.stated`) finds in the labelled messages under these paths.

    A path is a set in the normalised layout, whose user turns count, or transcripts, of which what a person typed does.
    Raises UsageError when nothing there was judged, or there are no rules yet.
    """
    if half not in (None, *HALVES):
        raise UsageError(f"half {half!r} (known: {', '.join(HALVES)})")
    judged = [one for one in labelled(paths, labels) if half in (None, one.half)]
    if not judged:
        raise UsageError("none of the labelled messages is there")
    rules = find or stated()
    scored = [score(message, rules(message.text)) for message in judged]
    return Report(_figures(scored), scored)


def stated() -> Find:
    """The rules of the product. Raises UsageError while there are none."""
    try:
        rules = import_module("perdure.memories.statements").stated
    except ModuleNotFoundError as error:
        raise UsageError("this version finds no statements: perdure.memories.statements is missing") from error
    return lambda text: [Span(found.start, found.end, str(found.kind)) for found in rules(text)]


def labelled(paths: Sequence[Path], labels: Path = LABELS) -> list[Labelled]:
    """The messages under these paths that were judged, each once, in the order of their digests."""
    judged = {row["key"]: row for row in rows(labels)}
    texts = {digest(text): text for path in paths for text in _typed(path)}
    return [_labelled(texts[key], judged[key]) for key in sorted(judged.keys() & texts.keys())]


def digest(text: str) -> str:
    """The key of a message."""
    return hashlib.sha256(text.encode()).hexdigest()


def half_of(key: str) -> str:
    """The half that a message belongs to."""
    return "dev" if key[0] < "8" else "held_out"


def _labelled(text: str, row: Mapping[str, Any]) -> Labelled:
    return Labelled(text, row["source"], half_of(row["key"]), tuple(Span(*span) for span in row["spans"]))


def _typed(path: Path) -> Iterator[str]:
    """What a person typed under a path."""
    if (path / "docs.jsonl").is_file():
        yield from (doc.text.removeprefix("user: ") for doc in load(path).docs if doc.speaker == "user")
        return
    with tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch, open_home(Path(scratch) / "home") as home:
        home.import_files([path], index=False)
        for held in home.archive.ledger.all(home.user):
            turns = parse_run(*home.archive.load(held)).turns
            yield from (turn.text("text") for turn in turns if (turn.role, turn.author) == ("user", "person"))


def score(message: Labelled, found: Iterable[Span]) -> Scored:
    """Which of the found are right, and which labels they meet: those that mean the same sentence.

    What means a borderline label alone is left out.

    >>> message = Labelled("a" * 100, "beam", "dev", (Span(0, 50, "fact"), Span(50, 100, "fact")))
    >>> one = score(message, [Span(0, 40, "fact"), Span(0, 5, "fact")])
    >>> len(one.found), len(one.right), len(one.met)
    (2, 1, 1)
    """
    wanted = [label for label in message.spans if not label.is_borderline]
    borderline = [label for label in message.spans if label.is_borderline]
    all_found = tuple(found)
    right = tuple(span for span in all_found if any(is_same(span, label) for label in wanted))
    judged = tuple(span for span in all_found if span in right or not any(is_same(span, b) for b in borderline))
    met = tuple(label for label in wanted if any(is_same(span, label) for span in all_found))
    return Scored(message, judged, right, met)


def is_same(one: Span, two: Span) -> bool:
    """Whether two spans mean the same sentence.

    >>> is_same(Span(0, 10), Span(0, 50)), is_same(Span(0, 10), Span(0, 51)), is_same(Span(0, 0), Span(0, 0))
    (True, False, False)
    """
    shared = min(one.end, two.end) - max(one.start, two.start)
    return shared > 0 and shared >= SAME * (max(one.end, two.end) - min(one.start, two.start))


def _figures(scored: Sequence[Scored]) -> dict[str, Any]:
    parts: dict[str, list[Scored]] = {"all": list(scored)}
    for one in scored:
        parts.setdefault(one.message.source, []).append(one)
        parts.setdefault(f"half {one.message.half}", []).append(one)
    pairs = [(span, label) for one in scored for span in one.right for label in one.met if is_same(span, label)]
    kind = sum(span.kind == label.kind for span, label in pairs) / len(pairs) if pairs else None
    return {"parts": {part: _part(parts[part]) for part in sorted(parts)}, "kind": kind}


def _part(scored: Sequence[Scored]) -> dict[str, Any]:
    counts = [(len(one.right), len(one.found), len(one.met), len(one.wanted)) for one in scored]
    measured = {name: asdict(interval) for name, interval in intervals(counts).items()}
    return {"n": len(scored), "labels": sum(c[3] for c in counts), "found": sum(c[1] for c in counts), **measured}


Counts = tuple[int, int, int, int]  # of one message: right, found, labels met, labels


def intervals(counts: Sequence[Counts], *, n: int = N_BOOTSTRAP, seed: int = 0) -> dict[str, Interval]:
    """Precision, recall and F1 over all sentences, with 95 % intervals by resampling messages."""
    draw = random.Random(seed)
    at = shares(counts)
    drawn = [shares(draw.choices(counts, k=len(counts))) for _ in range(n)]
    found = {}
    for number, name in enumerate(("precision", "recall", "f1")):
        ordered = sorted(one[number] for one in drawn)
        found[name] = Interval(at[number], ordered[int(0.025 * n)], ordered[min(n - 1, int(0.975 * n))])
    return found


def shares(counts: Sequence[Counts]) -> tuple[float, float, float]:
    """Precision, recall and F1; a share of nothing is 0.

    >>> shares([(1, 2, 1, 1), (0, 0, 0, 1)])
    (0.5, 0.5, 0.5)
    """
    right, found, met, labels = (sum(column) for column in zip(*counts, strict=True))
    precision, recall = right / found if found else 0.0, met / labels if labels else 0.0
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


def _words(one: Scored, span: Span) -> str:
    return json.dumps(one.message.text[span.start : span.end], ensure_ascii=False)


def _cell(at: Mapping[str, float]) -> str:
    return f"{100 * at['at']:.1f} [{100 * at['low']:.1f}, {100 * at['high']:.1f}]"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"
