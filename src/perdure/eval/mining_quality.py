"""Measure what a miner keeps: precision and recall of the memories that a model makes, against labels by hand.

The messages are those that were written to be judged (`stated/written.jsonl`, see `statement_quality`), ten to a batch,
each batch with the prompt, the form of the answer and the checks of `mine`, and with no memory known before. A model's
answers are recorded in a file, a row for each batch, so that a score needs no model and a model that costs is asked
once. Nobody judges: a memory is right if it says what a label says, by its words (`says_label`).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from perdure.errors import ModelFault, UsageError
from perdure.eval.datasets import read_rows
from perdure.eval.statement_quality import (
    HALVES,
    LabelledMessage,
    LabelSpan,
    SentenceCounts,
    compute_intervals,
    digest_text,
    load_rules,
    load_written_messages,
)
from perdure.memories import cue_use, gate, mining_answer, mining_question
from perdure.memories.mining_answer import MiningInput
from perdure.memories.mining_question import BATCH_SIZE, MiningMessage
from perdure.models.chat import Chat, ChatMessage
from perdure.text import normalise
from perdure.types import Span

N_BATCHES = 8  # of each half: 160 messages in all
MAX_QUESTION_TOKENS = 8_000  # the default of `mining.question_tokens` or more: no message here is shortened
COVERED_SHARE = 0.5  # of the weight of a label's words that a memory must have
SUPPORTED_SHARE = 0.5  # of the weight of a memory's words that the label's message must have
RULES, EVERYTHING = "rules", "every message"
_STATED_AT = datetime(2026, 3, 2, 9, tzinfo=UTC)
_NONCE = "0" * 16  # fixed, so that a question is the same in every run


class MiningBatch(NamedTuple):
    """Ten messages with labels, all of one half."""

    key: str  # digest of the texts
    half: str
    messages: tuple[LabelledMessage, ...]


class RecordedAnswer(NamedTuple):
    """What a model answered to one batch."""

    key: str
    model: str
    prompt: str  # digest of the question: another one after a change of the prompt
    operations: tuple[Mapping[str, Any], ...]
    fault: str = ""  # code of the error, if there is no answer
    n_input: int = 0  # tokens
    n_output: int = 0
    took_s: float = 0.0


class MinedClaim(NamedTuple):
    """A memory that a miner made: its text, and the messages that it names, from 0."""

    text: str
    cited: tuple[int, ...] = ()


@dataclass(frozen=True)
class MiningReport:
    """The results: for each miner and half, precision and recall."""

    figures: Mapping[str, Any]  # plain values, for JSON
    wrong: Sequence[str] = ()  # of the half that may be looked at

    def text(self) -> str:
        """Format the results as a table for people."""
        lines = [f"{'miner':34}{'messages':>9}{'labels':>8}{'memories':>9}{'precision':>22}{'recall':>22}{'cited':>8}"]
        for miner, parts in self.figures["miners"].items():
            for part, row in parts["parts"].items():
                cells = "".join(_format_interval(row[name]).rjust(22) for name in ("precision", "recall"))
                cited = "–" if row["cited"] is None else f"{100 * row['cited']:.0f} %"
                lines.append(
                    f"{f'{miner}, {part}':34}{row['n']:9d}{row['labels']:8d}{row['found']:9d}{cells}{cited:>8}"
                )
            if parts["n_faults"] or parts["refused"]:
                lines.append(f"  {parts['n_faults']} batches without an answer; refused: {dict(parts['refused'])}")
        return "\n".join(lines)

    def errors(self) -> str:
        """List wrong memories, of the half that may be looked at."""
        return "\n".join(self.wrong) or "none"


def run(answers: Path | None = None, *, half: str | None = None, n_batches: int = N_BATCHES) -> MiningReport:
    """Score the recorded answers of a file beside the rules and the messages as they are.

    Of a file that lacks some batches the others are scored. Raises UsageError if the file is not there, or has none.
    """
    if half not in (None, *HALVES):
        raise UsageError(f"half {half!r} (known: {', '.join(HALVES)})")
    batches = [batch for batch in make_batches(n_batches) if half in (None, batch.half)]
    miners = {RULES: _score_miner(batches, find_by_rules), EVERYTHING: _score_miner(batches, list_messages)}
    wrong: list[str] = []
    if answers is not None:
        recorded = load_answers(answers)
        answered_batches = [batch for batch in batches if batch.key in recorded]
        if not answered_batches:
            raise UsageError(f"{answers} has no answer to any of these batches: ask with --ask")
        name = next(iter(recorded.values())).model
        miners[name], wrong = score_answers(answered_batches, recorded)
    return MiningReport({"n_messages": sum(len(batch.messages) for batch in batches), "miners": miners}, wrong)


# batches and their questions ------------------------------------------------------------------------------------


def make_batches(n_batches: int = N_BATCHES) -> list[MiningBatch]:
    """Return the batches of both halves in turn: the first messages of each in the order of their digests."""
    messages = sorted(load_written_messages(), key=lambda message: digest_text(message.text))
    batches_by_half = [
        [
            _make_batch(half, own_messages[start : start + BATCH_SIZE])
            for start in range(0, n_batches * BATCH_SIZE, BATCH_SIZE)
        ]
        for half in HALVES
        if (own_messages := [message for message in messages if message.half == half])
    ]
    return [batch for pair in zip(*batches_by_half, strict=True) for batch in pair]


def _make_batch(half: str, messages: Sequence[LabelledMessage]) -> MiningBatch:
    return MiningBatch(digest_text("\0".join(message.text for message in messages))[:16], half, tuple(messages))


def build_messages(batch: MiningBatch) -> list[ChatMessage]:
    """Return what the model is asked about a batch, as `mine` asks it."""
    question_text, _ = mining_question.build_question(
        to_mining_input(batch).messages, (), nonce=_NONCE, max_tokens=MAX_QUESTION_TOKENS
    )
    return [ChatMessage("system", mining_question.SYSTEM_PROMPT), ChatMessage("user", question_text)]


def to_mining_input(batch: MiningBatch) -> MiningInput:
    """Return the messages of a batch as a person typed them, a minute apart."""
    return MiningInput(
        [
            MiningMessage(
                n, "person", message.text, _STATED_AT + timedelta(minutes=n), Span(batch.key, n - 1, n), "owner"
            )
            for n, message in enumerate(batch.messages, start=1)
        ],
        (),
    )


def digest_question(batch: MiningBatch) -> str:
    """Return the digest of the whole question about a batch."""
    return hashlib.sha256("\0".join(message.text for message in build_messages(batch)).encode()).hexdigest()[:16]


# recorded answers -----------------------------------------------------------------------------------------------


def record_answers(
    batches: Sequence[MiningBatch], chat: Chat, path: Path, *, progress: Callable[[int, int], None] | None = None
) -> None:
    """Ask a model about each batch that the file has no answer to, and add the answers, one by one.

    A file with answers of another model is refused (UsageError). A fault that may pass is raised; a bad answer is kept
    as what it is.
    """
    recorded = load_answers(path) if path.exists() else {}
    if other := {answer.model for answer in recorded.values()} - {chat.name}:
        raise UsageError(f"{path} has answers of {', '.join(sorted(other))}: name another file")
    for n_done, batch in enumerate(batches):
        if progress:
            progress(n_done, len(batches))
        if batch.key not in recorded:
            answer = ask_batch(batch, chat)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(answer._asdict(), ensure_ascii=False) + "\n")


def ask_batch(batch: MiningBatch, chat: Chat) -> RecordedAnswer:
    """Ask a model about one batch."""
    began_s = time.perf_counter()
    answer = RecordedAnswer(batch.key, chat.name, digest_question(batch), ())
    schema = mining_question.build_schema(len(batch.messages))
    try:
        reply = chat.reply(build_messages(batch), schema=schema)
    except ModelFault as error:
        if error.code not in ("bad-answer", "model-refused"):
            raise
        return answer._replace(fault=error.code, took_s=round(time.perf_counter() - began_s, 1))
    assert reply.value is not None
    return answer._replace(
        operations=tuple(reply.value["operations"]),
        n_input=reply.usage.n_input + reply.usage.n_cache_read + reply.usage.n_cache_write,
        n_output=reply.usage.n_output,
        took_s=round(time.perf_counter() - began_s, 1),
    )


def load_answers(path: Path) -> dict[str, RecordedAnswer]:
    """Return the recorded answers by the key of their batch. Raises UsageError for a file that is not there, or has
    another form.
    """
    if not path.exists():
        raise UsageError(f"there is no file {path}: record answers with --ask")
    try:
        rows = [RecordedAnswer(**row) for row in read_rows(path)]
    except TypeError as error:
        raise UsageError(f"{path}: not a file of recorded answers") from error
    return {row.key: row for row in rows}


# scoring --------------------------------------------------------------------------------------------------------


def score_answers(
    batches: Sequence[MiningBatch], recorded: Mapping[str, RecordedAnswer]
) -> tuple[dict[str, Any], list[str]]:
    """Score what becomes of recorded answers, after the checks of `mine` and the write gate.

    Returns the figures, and the wrong memories of the half that may be looked at.
    """
    refused: dict[str, int] = {}
    n_operations = 0

    def find(batch: MiningBatch) -> Iterator[MinedClaim]:
        nonlocal n_operations
        operations = recorded[batch.key].operations
        n_operations += len(operations)
        decision = mining_answer.decide_operations(operations, to_mining_input(batch))
        for refusal in decision.refusals:
            refused[refusal.code] = refused.get(refusal.code, 0) + 1
        for draft in decision.drafts:
            if reason := gate.find_weakness(draft.text, tuple):
                refused[reason.value] = refused.get(reason.value, 0) + 1
            else:
                yield MinedClaim(draft.text, tuple(span.from_offset for span in draft.sources))

    wrong: list[str] = []
    figures = _score_miner(batches, find, wrong)
    answers = [recorded[batch.key] for batch in batches]
    n_messages = sum(len(batch.messages) for batch in batches)
    return figures | {
        "n_operations": n_operations,
        "refused": refused,
        "n_faults": sum(bool(answer.fault) for answer in answers),
        "n_other_prompt": sum(recorded[batch.key].prompt not in ("", digest_question(batch)) for batch in batches),
        "tokens_per_1000_messages": {
            "input": round(1000 * sum(answer.n_input for answer in answers) / n_messages),
            "output": round(1000 * sum(answer.n_output for answer in answers) / n_messages),
        },
        "took_s": round(sum(answer.took_s for answer in answers), 1),
    }, wrong


def find_by_rules(batch: MiningBatch) -> Iterator[MinedClaim]:
    """Yield the statements that the rules find, which need no model."""
    find = load_rules()
    for n, message in enumerate(batch.messages):
        yield from (MinedClaim(message.text[span.start : span.end], (n,)) for span in find(message.text))


def list_messages(batch: MiningBatch) -> Iterator[MinedClaim]:
    """Yield every message as a memory: the precision of keeping everything."""
    yield from (MinedClaim(message.text, (n,)) for n, message in enumerate(batch.messages))


def _score_miner(
    batches: Sequence[MiningBatch],
    find: Callable[[MiningBatch], Iterable[MinedClaim]],
    wrong: list[str] | None = None,
) -> dict[str, Any]:
    """Return the figures of one miner: of each half, and of both."""
    scored = [(batch.half, score_batch(batch, list(find(batch)))) for batch in batches]
    if wrong is not None:
        wrong += [f"wrong: {text}" for half, batch_score in scored if half == "dev" for text in batch_score.wrong]
    parts = {}
    for part in ("all", *dict.fromkeys(batch.half for batch in batches)):
        rows = [batch_score for half, batch_score in scored if part in ("all", half)]
        counts = [count for row in rows for count in row.counts]
        intervals = {name: asdict(interval) for name, interval in compute_intervals(counts).items()}
        n_right = sum(count[0] for count in counts)
        parts[part] = {
            "n": sum(len(row.counts) - 1 for row in rows),
            "labels": sum(count[3] for count in counts),
            "found": sum(count[1] for count in counts),
            "cited": sum(row.n_cited for row in rows) / n_right if n_right else None,
            **intervals,
        }
    return {"parts": parts, "n_faults": 0, "refused": {}}


class BatchScore(NamedTuple):
    """The counts of one batch."""

    counts: tuple[SentenceCounts, ...]  # of each message, and of what belongs to none: right, found, met, labels
    n_cited: int  # right memories that name the message which says it
    wrong: tuple[str, ...]  # texts of wrong memories


def score_batch(batch: MiningBatch, claims: Sequence[MinedClaim]) -> BatchScore:
    """Score the memories of a batch. A memory that says the same words as an earlier one counts once."""
    counts = [[0, 0, 0, len(message.spans)] for message in batch.messages] + [[0, 0, 0, 0]]
    met: set[tuple[int, LabelSpan]] = set()
    n_cited, wrong = 0, []
    for claim in {normalise(claim.text): claim for claim in reversed(claims)}.values():
        meant = [(n, label) for n, message in enumerate(batch.messages) for label in message.spans
                 if says_label(claim.text, message.text, label)]  # fmt: skip
        home = meant[0][0] if meant else (claim.cited or (len(batch.messages),))[0]
        counts[home][1] += 1
        counts[home][0] += bool(meant)
        n_cited += any(n in claim.cited for n, _ in meant)
        met.update(meant)
        if not meant:
            wrong.append(claim.text)
    for n, _ in met:
        counts[n][2] += 1
    return BatchScore(tuple((row[0], row[1], row[2], row[3]) for row in counts), n_cited, tuple(wrong))


def says_label(memory_text: str, message_text: str, label: LabelSpan) -> bool:
    """Return True if a memory says what a label marks: it has half of the label's words (by weight), half of its own
    words stand in the message, and so do all of its numbers and identifiers.

    >>> message = "Please remember: staging listens on port 8443. Can you check it?"
    >>> label = LabelSpan(17, 46, "fact")
    >>> [says_label(text, message, label) for text in
    ...  ("Staging uses port 8443", "Staging uses port 8080", "The person asked to check staging")]
    [True, False, False]
    """
    label_words = _weigh(message_text[label.start : label.end])
    memory_words, message_words = _weigh(memory_text), _weigh(message_text)
    return (
        bool(label_words)
        and _share(label_words, memory_words) >= COVERED_SHARE
        and _share(memory_words, message_words) >= SUPPORTED_SHARE
        and all(stem in message_words for stem, weight in memory_words.items() if weight >= cue_use.DISTINCT_WEIGHT)
    )


def _weigh(text: str) -> dict[str, float]:
    return {word.stem: word.weight for word in cue_use.iter_words(text) if word.weight}


def _share(words: Mapping[str, float], others: Mapping[str, float]) -> float:
    """Return the share of the weight of words that stand among others."""
    total = sum(words.values())
    return sum(weight for stem, weight in words.items() if stem in others) / total if total else 0.0


def _format_interval(interval: Mapping[str, float]) -> str:
    return f"{100 * interval['at']:.1f} [{100 * interval['low']:.1f}, {100 * interval['high']:.1f}]"
