"""Question sets in one layout: documents in groups, questions to one group each. Only reads files.

The normalised layout is a folder with `docs.jsonl` (`id, group, session, ts, speaker, text`) and
`queries.jsonl` (`qid, group, query, gold, category, answer`); LoCoMo's own JSON is read as published. A
question without gold has no answer in its group. Time stamps are read in the forms that the sets use; any
other form counts as no time.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.errors import UsageError
from perdure.types import Json

_STAMPS = ("%I:%M %p on %d %B, %Y", "%B-%d-%Y", "%Y年%m月%d日 %H:%M")
_WEEKDAY = re.compile(r" 周\S+")
_LOCOMO_CATEGORIES = {1: "1-multi-hop", 2: "2-temporal", 3: "3-open-domain", 4: "4-single-hop", 5: "5-adversarial"}
_EVIDENCE = re.compile(r"D\d+:\d+")


@dataclass(frozen=True, slots=True)
class EvalDoc:
    """One turn of a set."""

    doc_id: str
    group: str
    session: str
    stated_at: datetime | None
    speaker: str  # user, assistant, or a person's name
    text: str  # with the speaker in front where the set has it so


@dataclass(frozen=True, slots=True)
class EvalQuestion:
    """One question to one group."""

    qid: str
    group: str
    text: str
    gold: tuple[str, ...]  # ids of the documents that answer it; empty when nothing does
    category: str
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Documents and the questions about them. A question ranks only the documents of its own group."""

    name: str
    docs: tuple[EvalDoc, ...]
    questions: tuple[EvalQuestion, ...]

    def group_docs(self) -> dict[str, list[EvalDoc]]:
        """Return group -> its documents, in order."""
        docs_by_group: dict[str, list[EvalDoc]] = {}
        for doc in self.docs:
            docs_by_group.setdefault(doc.group, []).append(doc)
        return docs_by_group


def load_dataset(source: Path) -> Dataset:
    """Load a folder in the normalised layout, or LoCoMo's own file. Raises UsageError for anything else."""
    try:
        if (source / "docs.jsonl").is_file() and (source / "queries.jsonl").is_file():
            rows = [row for row in read_rows(source / "queries.jsonl") if row["query"] != _BROKEN_QUERY]
            docs = tuple(map(_to_doc, read_rows(source / "docs.jsonl")))
            return Dataset(source.name, docs, tuple(map(_to_question, rows)))
        if source.is_file():
            return read_locomo(json.loads(source.read_text(encoding="utf-8")), name=source.stem)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(f"{source} cannot be read as a set of questions ({type(error).__name__}: {error})") from error
    raise UsageError(f"{source} is neither a folder with docs.jsonl and queries.jsonl nor LoCoMo's JSON file")


def read_rows(path: Path) -> Iterator[Json]:
    """Yield the objects of a JSON lines file. Raises UsageError."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                if line.strip():
                    yield json.loads(line)
            except ValueError as error:
                raise UsageError(f"{path}, line {number}: {error}") from error


def _to_doc(row: Json) -> EvalDoc:
    stamp = parse_stamp(str(row.get("ts", "")))
    return EvalDoc(row["id"], row["group"], row.get("session", ""), stamp, row.get("speaker", "user"), row["text"])


_BROKEN_QUERY = "[ERRORQ]"  # MemDaily's generator left some questions out; nothing can answer them


def _to_question(row: Json) -> EvalQuestion:
    gold = tuple(str(name) for name in row.get("gold") or ())
    return EvalQuestion(
        str(row["qid"]), row["group"], row["query"], gold, row.get("category", ""), str(row.get("answer", ""))
    )


def parse_stamp(stamp: str) -> datetime | None:
    """Parse a set's time stamp as an aware time (the sets name no zone: UTC); None if it has no known form.

    >>> parse_stamp("1:56 pm on 8 May, 2023").isoformat()
    '2023-05-08T13:56:00+00:00'
    """
    plain_stamp = _WEEKDAY.sub("", stamp.strip())
    for stamp_format in _STAMPS:
        with contextlib.suppress(ValueError):
            return datetime.strptime(plain_stamp, stamp_format).replace(tzinfo=UTC)
    with contextlib.suppress(ValueError):
        instant = datetime.fromisoformat(plain_stamp)
        return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return None


def read_locomo(samples: Any, *, name: str = "locomo") -> Dataset:
    """Read LoCoMo as published: a list of samples, each with `conversation`, `qa` and `sample_id`."""
    docs: list[EvalDoc] = []
    questions: list[EvalQuestion] = []
    for sample in samples:
        sample_docs = list(_iterate_locomo_docs(sample))
        docs += sample_docs
        questions += _iterate_locomo_questions(sample, {doc.doc_id for doc in sample_docs})
    return Dataset(name, tuple(docs), tuple(questions))


def _iterate_locomo_docs(sample: Json) -> Iterator[EvalDoc]:
    group, conversation = sample["sample_id"], sample["conversation"]
    sessions = sorted(int(key.removeprefix("session_")) for key in conversation if re.fullmatch(r"session_\d+", key))
    for number in sessions:
        stated_at = parse_stamp(conversation.get(f"session_{number}_date_time", ""))
        for turn in conversation[f"session_{number}"]:
            caption = f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            text = f"{turn['speaker']}: {turn['text']}{caption}"
            yield EvalDoc(f"{group}/{turn['dia_id']}", group, f"{group}/S{number}", stated_at, turn["speaker"], text)


def _iterate_locomo_questions(sample: Json, doc_ids: set[str]) -> Iterator[EvalQuestion]:
    group = sample["sample_id"]
    for number, row in enumerate(sample["qa"]):
        cited = [f"{group}/{turn}" for entry in row.get("evidence") or () for turn in _EVIDENCE.findall(entry)]
        gold = tuple(dict.fromkeys(turn for turn in cited if turn in doc_ids))
        if gold:
            answer = str(row.get("answer", row.get("adversarial_answer", "")))
            category = _LOCOMO_CATEGORIES[row["category"]]
            yield EvalQuestion(f"{group}/q{number}", group, row["question"], gold, category, answer)
