"""Measure how well statements are found in typed messages: precision and recall by sentence, against labels
by hand.

`labels.jsonl` has a row for each message that was read: the digest of its text, its source, and the spans
worth keeping (docs/evaluation/stated.md has the rules of judgement). The texts are not shipped: messages
are read from their own files, and a message that nobody judged is left out. `written.jsonl` has messages that
were written to be judged, with their texts and languages; they are counted apart. Half of the messages,
by digest, may be looked at while rules are written ("dev"); of the other half only figures are given.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from perdure.errors import UsageError
from perdure.eval.datasets import load_dataset, read_rows
from perdure.eval.measures import N_BOOTSTRAP, ConfidenceInterval
from perdure.formats.run_turns import parse_run
from perdure.home import open_home
from perdure.memories.explicit import find_statements

SHIPPED = Path(__file__).parent / "stated"  # labels.jsonl and written.jsonl
HALVES = ("dev", "held_out")
MIN_OVERLAP = (
    0.2  # intersection over union from which two spans mean the same sentence: a clause of it does, its message not
)


class LabelSpan(NamedTuple):
    """A statement in a text: [start, end) in characters, and its kind."""

    start: int
    end: int
    kind: str = ""
    strength: str = ""  # of a label: "" is an explicit form; plain: right if found, not missed; borderline: left out

    @property
    def is_borderline(self) -> bool:
        """Return True if a finder of this label is neither right nor wrong."""
        return self.strength == "borderline"

    @property
    def is_explicit(self) -> bool:
        """Return True if rules have to find this label."""
        return not self.strength


class LabelledMessage(NamedTuple):
    """A message with labels."""

    text: str
    source: str  # transcripts, beam, or written
    half: str
    spans: tuple[LabelSpan, ...]  # what is worth keeping; often nothing
    language: str = ""  # of written messages


class ScoredMessage(NamedTuple):
    """The spans that were found in a message, beside its labels."""

    message: LabelledMessage
    found_spans: tuple[LabelSpan, ...]  # but for what is borderline
    right_spans: tuple[LabelSpan, ...]  # of those found
    met_labels: tuple[LabelSpan, ...]  # of the explicit labels

    @property
    def explicit_labels(self) -> tuple[LabelSpan, ...]:
        """The labels that rules have to find."""
        return tuple(span for span in self.message.spans if span.is_explicit)


FindFunction = Callable[[str], Sequence[LabelSpan]]


@dataclass(frozen=True, slots=True)
class StatementReport:
    """The results."""

    figures: Mapping[str, Any]  # plain values, for JSON
    scored: Sequence[ScoredMessage]

    def text(self) -> str:
        """Format the results as a table for people."""
        names = ("precision", "recall", "f1")
        lines = [f"{'messages':24}{'n':>5}{'labels':>8}{'found':>7}" + "".join(name.rjust(22) for name in names)]
        for part, row in self.figures["parts"].items():
            totals = {"precision": row["found"], "recall": row["labels"], "f1": row["found"] and row["labels"]}
            cells = "".join((_format_interval(row[name]) if totals[name] else "–").rjust(22) for name in names)
            lines.append(f"{part:24}{row['n']:5d}{row['labels']:8d}{row['found']:7d}{cells}")
        share = self.figures["kind"]
        lines.append(f"kind right where the sentence is: {'–' if share is None else f'{100 * share:.1f} %'}")
        return "\n".join(lines)

    def errors(self) -> str:
        """List missed and wrong statements, of the half that may be looked at."""
        lines = []
        for scored_message in self.scored:
            if scored_message.message.half == "dev":
                missed = [span for span in scored_message.explicit_labels if span not in scored_message.met_labels]
                wrong = [span for span in scored_message.found_spans if span not in scored_message.right_spans]
                lines += [f"missed ({span.kind}): {_quote_span(scored_message, span)}" for span in missed]
                lines += [f"wrong ({span.kind}): {_quote_span(scored_message, span)}" for span in wrong]
        return "\n".join(lines) or "none"


def run(
    paths: Sequence[Path] = (),
    *,
    half: str | None = None,
    find: FindFunction | None = None,
    folder: Path = SHIPPED,
) -> StatementReport:
    """Score the statements that `find` finds in the written messages, and in the labelled ones under these paths.

    find: instead of `perdure.memories.explicit.find_statements`. A path is a set in the normalised layout,
    whose user turns count, or transcripts, whose typed messages count. folder: of labels and written messages. Raises
    UsageError if there are paths and nothing there has labels.
    """
    if half not in (None, *HALVES):
        raise UsageError(f"half {half!r} (known: {', '.join(HALVES)})")
    read_messages = [message for message in load_labelled_messages(paths, folder) if half in (None, message.half)]
    if paths and not read_messages:
        raise UsageError("the transcripts contain none of the labelled messages")
    written_messages = [message for message in load_written_messages(folder) if half in (None, message.half)]
    rules = find or load_rules()
    scored = [score_message(message, rules(message.text)) for message in (*read_messages, *written_messages)]
    return StatementReport(_compute_figures(scored), scored)


def load_rules() -> FindFunction:
    """Return the rules of the product."""
    return lambda text: [
        LabelSpan(statement.start, statement.end, str(statement.kind)) for statement in find_statements(text)
    ]


def load_labelled_messages(paths: Sequence[Path], folder: Path = SHIPPED) -> list[LabelledMessage]:
    """Load the messages under these paths that have labels, each once, in the order of their digests."""
    rows_by_key = {row["key"]: row for row in read_rows(folder / "labels.jsonl")}
    texts_by_key = {digest_text(text): text for path in paths for text in _iterate_typed_texts(path)}
    return [
        _to_labelled_message(texts_by_key[key], rows_by_key[key])
        for key in sorted(rows_by_key.keys() & texts_by_key.keys())
    ]


def load_written_messages(folder: Path = SHIPPED) -> list[LabelledMessage]:
    """Load the messages that were written to be judged."""
    return [
        LabelledMessage(
            row["text"],
            "written",
            get_half(digest_text(row["text"])),
            tuple(LabelSpan(*span) for span in row["spans"]),
            row["language"],
        )
        for row in read_rows(folder / "written.jsonl")
    ]


def digest_text(text: str) -> str:
    """Return the key of a message."""
    return hashlib.sha256(text.encode()).hexdigest()


def get_half(key: str) -> str:
    """Return the half that a message belongs to."""
    return "dev" if key[0] < "8" else "held_out"


def _to_labelled_message(text: str, row: Mapping[str, Any]) -> LabelledMessage:
    return LabelledMessage(text, row["source"], get_half(row["key"]), tuple(LabelSpan(*span) for span in row["spans"]))


def _iterate_typed_texts(path: Path) -> Iterator[str]:
    """Yield the texts that a person typed under a path."""
    if (path / "docs.jsonl").is_file():
        yield from (doc.text.removeprefix("user: ") for doc in load_dataset(path).docs if doc.speaker == "user")
        return
    with tempfile.TemporaryDirectory(prefix="perdure-eval-") as scratch, open_home(Path(scratch) / "home") as home:
        home.import_files([path], index=False)
        for run_entry in home.archive.ledger.list_runs(home.user):
            turns = parse_run(*home.archive.read_checked_lines(run_entry)).turns
            yield from (turn.text("text") for turn in turns if (turn.role, turn.author) == ("user", "person"))


def score_message(message: LabelledMessage, spans: Iterable[LabelSpan]) -> ScoredMessage:
    """Score one message: the spans that are right, and the labels that they meet. They mean the same sentence.

    A span that meets a plain label is right, and a plain label is never missed. A span that meets only a
    borderline label is left out.

    >>> message = LabelledMessage("a" * 100, "beam", "dev", (LabelSpan(0, 50, "fact"), LabelSpan(50, 100, "fact")))
    >>> scored = score_message(message, [LabelSpan(0, 40, "fact"), LabelSpan(0, 5, "fact")])
    >>> len(scored.found_spans), len(scored.right_spans), len(scored.met_labels)
    (2, 1, 1)
    """
    true_labels = [label for label in message.spans if not label.is_borderline]
    borderline = [label for label in message.spans if label.is_borderline]
    found_spans = tuple(spans)
    right_spans = tuple(span for span in found_spans if any(is_same_sentence(span, label) for label in true_labels))
    judged_spans = tuple(
        span
        for span in found_spans
        if span in right_spans or not any(is_same_sentence(span, borderline_label) for borderline_label in borderline)
    )
    met_labels = tuple(
        label
        for label in message.spans
        if label.is_explicit and any(is_same_sentence(span, label) for span in found_spans)
    )
    return ScoredMessage(message, judged_spans, right_spans, met_labels)


def is_same_sentence(first: LabelSpan, second: LabelSpan) -> bool:
    """Return True if two spans mean the same sentence.

    >>> is_same_sentence(LabelSpan(0, 10), LabelSpan(0, 50)), is_same_sentence(LabelSpan(0, 10), LabelSpan(0, 51))
    (True, False)
    >>> is_same_sentence(LabelSpan(0, 0), LabelSpan(0, 0))
    False
    """
    n_shared = min(first.end, second.end) - max(first.start, second.start)
    return n_shared > 0 and n_shared >= MIN_OVERLAP * (max(first.end, second.end) - min(first.start, second.start))


def _compute_figures(scored: Sequence[ScoredMessage]) -> dict[str, Any]:
    parts: dict[str, list[ScoredMessage]] = {}
    for scored_message in scored:
        for part in _name_parts(scored_message.message):
            parts.setdefault(part, []).append(scored_message)
    pairs = [
        (span, label)
        for scored_message in scored
        for span in scored_message.right_spans
        for label in scored_message.met_labels
        if is_same_sentence(span, label)
    ]
    kind = sum(span.kind == label.kind for span, label in pairs) / len(pairs) if pairs else None
    return {"parts": {part: _measure_part(parts[part]) for part in sorted(parts)}, "kind": kind}


def _name_parts(message: LabelledMessage) -> list[str]:
    """Name the parts that a message counts in. What was written to be judged is apart from what people typed."""
    names = [message.source, f"{message.source} {message.half}"]
    if message.source == "written":
        return [*names, f"written {message.language}"]
    return ["all", f"half {message.half}", *names]


def _measure_part(scored: Sequence[ScoredMessage]) -> dict[str, Any]:
    counts = [
        (
            len(scored_message.right_spans),
            len(scored_message.found_spans),
            len(scored_message.met_labels),
            len(scored_message.explicit_labels),
        )
        for scored_message in scored
    ]
    measured = {name: asdict(interval) for name, interval in compute_intervals(counts).items()}
    return {"n": len(scored), "labels": sum(c[3] for c in counts), "found": sum(c[1] for c in counts), **measured}


SentenceCounts = tuple[int, int, int, int]  # of one message: right, found, labels met, labels


def compute_intervals(
    counts: Sequence[SentenceCounts], *, n: int = N_BOOTSTRAP, seed: int = 0
) -> dict[str, ConfidenceInterval]:
    """Compute precision, recall and F1 over all sentences, with 95 % intervals by resampling messages."""
    draw = random.Random(seed)
    estimates = compute_shares(counts)
    samples = [compute_shares(draw.choices(counts, k=len(counts))) for _ in range(n)]
    intervals = {}
    for number, name in enumerate(("precision", "recall", "f1")):
        ordered = sorted(sample[number] for sample in samples)
        intervals[name] = ConfidenceInterval(
            estimates[number], ordered[int(0.025 * n)], ordered[min(n - 1, int(0.975 * n))]
        )
    return intervals


def compute_shares(counts: Sequence[SentenceCounts]) -> tuple[float, float, float]:
    """Compute precision, recall and F1; a share of nothing is 0.

    >>> compute_shares([(1, 2, 1, 1), (0, 0, 0, 1)])
    (0.5, 0.5, 0.5)
    """
    n_right, n_found, n_met, n_labels = (sum(column) for column in zip(*counts, strict=True))
    precision, recall = n_right / n_found if n_found else 0.0, n_met / n_labels if n_labels else 0.0
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total else 0.0


def _quote_span(scored_message: ScoredMessage, span: LabelSpan) -> str:
    return json.dumps(scored_message.message.text[span.start : span.end], ensure_ascii=False)


def _format_interval(interval: Mapping[str, float]) -> str:
    return f"{100 * interval['at']:.1f} [{100 * interval['low']:.1f}, {100 * interval['high']:.1f}]"
