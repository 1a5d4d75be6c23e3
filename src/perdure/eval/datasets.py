"""Question sets in one layout: documents in groups, and questions to one group each. Reads files, writes none.

The normalised layout is a folder with `docs.jsonl` (`id, group, session, ts, speaker, text`) and `queries.jsonl`
(`qid, group, query, gold, category, answer`); LoCoMo's own JSON is read as it was published. A question without gold
has no answer in its group. Time stamps are read in the forms that the sets use; one that fits none is no time.
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
class Doc:
    """One turn of a set."""

    doc_id: str
    group: str
    session: str
    stated_at: datetime | None
    speaker: str  # user, assistant, or a person's name
    text: str  # with the speaker in front where the set has it so


@dataclass(frozen=True, slots=True)
class Question:
    """One question to one group."""

    qid: str
    group: str
    text: str
    gold: tuple[str, ...]  # ids of the documents that answer it; empty when nothing does
    category: str
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Documents and the questions asked about them. A question ranks only the documents of its own group."""

    name: str
    docs: tuple[Doc, ...]
    questions: tuple[Question, ...]

    def groups(self) -> dict[str, list[Doc]]:
        """Group -> its documents, in order."""
        found: dict[str, list[Doc]] = {}
        for doc in self.docs:
            found.setdefault(doc.group, []).append(doc)
        return found


def load(place: Path) -> Dataset:
    """A set from a folder in the normalised layout, or from LoCoMo's own file. Raises UsageError for neither."""
    if (place / "docs.jsonl").is_file() and (place / "queries.jsonl").is_file():
        docs = tuple(_doc(row) for row in rows(place / "docs.jsonl"))
        return Dataset(
            place.name, docs, tuple(_question(row) for row in rows(place / "queries.jsonl") if row["query"] != _BROKEN)
        )
    if place.is_file():
        return locomo(json.loads(place.read_text(encoding="utf-8")), name=place.stem)
    raise UsageError(f"{place} is neither a folder with docs.jsonl and queries.jsonl nor LoCoMo's JSON file")


def rows(path: Path) -> Iterator[Json]:
    """The objects of a file with one on each line."""
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def _doc(row: Json) -> Doc:
    stamp = instant(str(row.get("ts", "")))
    return Doc(row["id"], row["group"], row.get("session", ""), stamp, row.get("speaker", "user"), row["text"])


_BROKEN = "[ERRORQ]"  # MemDaily's generator left some questions out; nothing can answer them


def _question(row: Json) -> Question:
    gold = tuple(str(name) for name in row.get("gold") or ())
    return Question(
        str(row["qid"]), row["group"], row["query"], gold, row.get("category", ""), str(row.get("answer", ""))
    )


def instant(stamp: str) -> datetime | None:
    """A set's time stamp as an aware instant (the sets name no zone: UTC), or None.

    >>> instant("1:56 pm on 8 May, 2023").isoformat()
    '2023-05-08T13:56:00+00:00'
    """
    plain = _WEEKDAY.sub("", stamp.strip())
    for form in _STAMPS:
        with contextlib.suppress(ValueError):
            return datetime.strptime(plain, form).replace(tzinfo=UTC)
    with contextlib.suppress(ValueError):
        found = datetime.fromisoformat(plain)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None


def locomo(samples: Any, *, name: str = "locomo") -> Dataset:
    """LoCoMo as published: a list of samples, each with `conversation`, `qa` and `sample_id`."""
    docs: list[Doc] = []
    questions: list[Question] = []
    for sample in samples:
        found = list(_locomo_docs(sample))
        docs += found
        questions += _locomo_questions(sample, {doc.doc_id for doc in found})
    return Dataset(name, tuple(docs), tuple(questions))


def _locomo_docs(sample: Json) -> Iterator[Doc]:
    group, talk = sample["sample_id"], sample["conversation"]
    sessions = sorted(int(key.removeprefix("session_")) for key in talk if re.fullmatch(r"session_\d+", key))
    for number in sessions:
        at = instant(talk.get(f"session_{number}_date_time", ""))
        for turn in talk[f"session_{number}"]:
            caption = f" [image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            text = f"{turn['speaker']}: {turn['text']}{caption}"
            yield Doc(f"{group}/{turn['dia_id']}", group, f"{group}/S{number}", at, turn["speaker"], text)


def _locomo_questions(sample: Json, known: set[str]) -> Iterator[Question]:
    group = sample["sample_id"]
    for number, row in enumerate(sample["qa"]):
        cited = [f"{group}/{turn}" for entry in row.get("evidence") or () for turn in _EVIDENCE.findall(entry)]
        gold = tuple(dict.fromkeys(turn for turn in cited if turn in known))
        if gold:
            answer = str(row.get("answer", row.get("adversarial_answer", "")))
            category = _LOCOMO_CATEGORIES[row["category"]]
            yield Question(f"{group}/q{number}", group, row["question"], gold, category, answer)
