"""Lay the contradictions of contradictions.txt out in time and ask about them. `python tools/build_contradictions.py`.

Each line of that file is a case written by hand: what was said first, what is true since, something that sounds alike
and is neither, a question, and what it is about. Out come `docs.jsonl` and `queries.jsonl` in the layout of the
evaluation's sets: first statements in the first third of a place's time, later ones in its last, other talk between
and around, and three questions a case. All places are one memory, so that every question has all of it to go wrong
in. The order is drawn with a fixed seed: the same file gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(__file__).with_name("contradictions.txt")
OUT = ROOT / "src/perdure/eval/shipped_contradictions"
SEED = 22
GROUP = "one-memory"
BEGIN = datetime(2026, 1, 5, 9, tzinfo=UTC)
HOURS_BETWEEN = 19  # between turns of one place
PER_SESSION = 6

LANGUAGES = {"labor": "de", "familie": "de", "shiyan": "zh", "jia": "zh"}  # the other places are English
NOW = {
    "en": ("{} now?", "{} these days?", "{} at the moment?"),
    "de": ("{} jetzt?", "{} aktuell?", "{} inzwischen?"),
    "zh": ("现在{}？", "目前{}？"),
}
HISTORY = {
    "en": (
        "What did we say about {} before, and what came later?", "How did this change over time: {}?",
        "What is the history of {}?",
    ),
    "de": (
        "Was galt früher, und was kam danach: {}?", "Wie hat sich das mit der Zeit geändert: {}?", "Der Verlauf: {}?",
    ),
    "zh": ("{}以前是怎样的，后来有什么变化？", "{}的历史是什么？"),
}  # fmt: skip
TALK = {
    "en": (
        "Thanks, that looks good to me.", "Can you run the checks again and tell me what is red?",
        "a: Done. Nothing else stood out.", "I will be away from my desk until three.",
        "Remind me to write to Petra about the photographs.", "a: I have put the three open points into the list.",
        "That was quick, well done.", "The weather is dreadful, half of the street is under water.",
    ),
    "de": (
        "Danke, das passt so.", "Schau bitte, ob noch etwas offen ist.",
        "a: Erledigt, sonst ist mir nichts aufgefallen.", "Ich bin bis drei unterwegs.",
        "Erinnere mich an die Fotos für Petra.", "Das ging ja schnell.",
    ),
    "zh": (
        "谢谢，这样可以。", "再检查一遍，看看还有没有问题。", "a: 做完了，没有发现别的问题。", "我三点以前不在。",
        "提醒我给小陈发照片。", "今天下大雨，路上堵得厉害。",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One line of the file."""

    kind: str  # update, retract or conditional
    place: str
    statements: tuple[str, ...]  # oldest first; the last one is current
    near: str
    question: str
    about: str

    @property
    def language(self) -> str:
        """Of what is said there."""
        return LANGUAGES.get(self.place, "en")


def cases(lines: Iterable[str]) -> list[Case]:
    """The cases of the file."""
    found = []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            kind, place, first, since, near, question, about = (cell.strip() for cell in line.split(" | "))
            found.append(Case(kind, place, (first, *since.split(" >> ")), near, question, about))
    return found


def placed(members: Sequence[Case], draw: random.Random) -> list[tuple[int, int, str]]:
    """(number of the case, number of its statement or -1, what is said) of one place, in order of time."""
    turns = []
    for n, case in enumerate(members):
        last = len(case.statements) - 1
        for at, said in enumerate(case.statements):
            low, high = (0.0, 0.35) if at == 0 else (0.65, 0.95) if at == last else (0.4, 0.6)
            turns.append((draw.uniform(low, high), n, at, said))
        turns.append((draw.uniform(0.1, 1.0), n, -1, case.near))
    turns += [(draw.random(), -1, -1, said) for said in TALK[members[0].language]]
    return [(n, at, said) for _, n, at, said in sorted(turns)]


def built(source: Path = SOURCE) -> dict[str, str]:
    """File name -> its content."""
    draw = random.Random(SEED)
    talks: dict[str, list[Case]] = {}
    for case in cases(source.read_text(encoding="utf-8").splitlines()):
        talks.setdefault(case.place, []).append(case)
    docs: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    for place, members in talks.items():
        ids: dict[tuple[int, int], str] = {}
        for number, (n, at, said) in enumerate(placed(members, draw)):
            doc = _doc(place, number, said)
            docs.append(doc)
            ids[n, at] = doc["id"]
        queries += [row for n, case in enumerate(members) for row in _asked(case, n, ids)]
    return {"docs.jsonl": _lines(docs), "queries.jsonl": _lines(queries)}


def _doc(place: str, number: int, said: str) -> dict[str, Any]:
    speaker = "assistant" if said.startswith("a: ") else "user"
    at = BEGIN + timedelta(hours=HOURS_BETWEEN * number)
    return {
        "id": f"{place}/{number:03d}", "group": GROUP, "session": f"{place}-{number // PER_SESSION}",
        "ts": at.isoformat(), "speaker": speaker, "text": f"{speaker}: {said.removeprefix('a: ')}",
    }  # fmt: skip


def _asked(case: Case, n: int, ids: dict[tuple[int, int], str]) -> Iterator[dict[str, Any]]:
    """The three questions: what is true, what is true now, and how it came to that."""
    *old, current = (ids[n, at] for at in range(len(case.statements)))
    bare = case.question.rstrip("?？")
    now, history = NOW[case.language], HISTORY[case.language]
    for asks, query, gold in (
        ("plain", case.question, [current]),
        ("now", now[n % len(now)].format(bare), [current]),
        ("history", history[n % len(history)].format(case.about), [*old, current]),
    ):
        yield {
            "qid": f"{case.place}/q{n:02d}-{asks}", "group": GROUP, "query": query, "category": case.kind,
            "gold": gold, "answer": case.statements[-1].removeprefix("a: "), "asks": asks, "current": current,
            "superseded": old,
        }  # fmt: skip


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, content in built().items():
        (out / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
