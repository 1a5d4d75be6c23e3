"""Facts with questions about them, planted into a long conversation: what a compaction should not lose.

The same templates, half and seed give the same conversation, byte for byte. The second half of the templates was
written after the rules of compaction were frozen, and the third and the fourth after they were changed for what the one
before had shown (docs/evaluation/compaction.md).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from perdure.eval.datasets import read_rows

HALVES = ("dev", "held_out", "third", "fourth")
REVERSED = "reversed"  # kind of a fact that is taken back later
_FOLDER = Path(__file__).parent / "planted"
_SLOT = re.compile(r"\{(\w+?)(_new)?\}")
_FIRST, _LAST = 0.03, 0.97  # of the messages among which facts are planted
_OWN_SHARE = 0.5  # of the facts that are a message of their own; the others end a message that is there


class TalkLine(NamedTuple):
    """One message of a conversation."""

    role: str  # user, assistant or tool
    text: str


@dataclass(frozen=True)
class PlantedFact:
    """A fact of a conversation, and how it is asked for."""

    kind: str  # decision, constraint, number, name, path or reversed
    say: str
    ask: str
    answer: str  # the string that what a model reads has to hold
    later: str = ""  # of a fact that is taken back: what holds since
    old: str = ""  # and its earlier value


@cache
def load_templates(half: str) -> tuple[Mapping[str, str], ...]:
    """Return the templates of a half."""
    return tuple(read_rows(_FOLDER / f"{half}.jsonl"))


@cache
def _load_pools() -> Mapping[str, Sequence[str]]:
    pools: dict[str, list[str]] = json.loads((_FOLDER / "pools.json").read_text(encoding="utf-8"))
    return pools


def make_facts(half: str, seed: int, *, without: str = "") -> list[PlantedFact]:
    """Return one fact of each template; no value occurs twice, or in the text `without`."""
    pick = random.Random(f"{half}-{seed}")
    used: set[str] = set()

    def draw(pool: str) -> str:
        while True:
            value = str(pick.randint(1000, 98_000)) if pool == "number" else pick.choice(_load_pools()[pool])
            if value not in used and not (pool not in ("thing", "unit", "area", "date") and holds(without, value)):
                used.add(value)
                return value

    facts: list[PlantedFact] = []
    for template in load_templates(half):
        values: dict[str, str] = {}
        for field in ("say", "later"):
            for match in _SLOT.finditer(template.get(field, "")):
                values[match[0]] = values.get(match[0]) or draw(match[1])
        filled = {name: _fill(text, values) for name, text in template.items()}
        facts.append(PlantedFact(**filled))
        used -= {value for slot, value in values.items() if slot in ("{unit}",)}
    return facts


def _fill(template: str, values: Mapping[str, str]) -> str:
    return _SLOT.sub(lambda match: values[match[0]], template)


def holds(text: str, value: str) -> bool:
    """Return True if a text has a value as a whole.

    >>> holds("port 8443.", "8443"), holds("port 18443", "8443")
    (True, False)
    """
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None


def plant(talk: Sequence[TalkLine], facts: Sequence[PlantedFact], seed: int) -> list[TalkLine]:
    """Return the conversation with the facts in it, in random places; what takes one back comes later."""
    pick = random.Random(f"plant-{seed}")
    people = [n for n, line in enumerate(talk) if line.role == "user"]
    people = people[max(1, int(len(people) * _FIRST)) : max(2, int(len(people) * _LAST))]
    additions: dict[int, list[tuple[str, bool]]] = {}
    for fact in facts:
        places = sorted(pick.sample(people, k=2)) if fact.later else [pick.choice(people)]
        for place, text in zip(places, (fact.say, fact.later), strict=False):
            additions.setdefault(place, []).append((text, pick.random() < _OWN_SHARE))
    planted: list[TalkLine] = []
    for n, line in enumerate(talk):
        texts = additions.get(n, ())
        own = [text for text, is_own in texts if is_own]
        ended = [text for text, is_own in texts if not is_own]
        # in the order in which they were drawn, so that what takes a fact back never stands before it
        for text in own:
            planted += [TalkLine("user", text), TalkLine("assistant", "Noted.")]
        planted.append(TalkLine(line.role, "\n".join([line.text, *ended])))
    return planted


# a conversation of our own --------------------------------------------------------------------------------------

_SUBJECTS = "queue cache parser index scheduler gateway router compiler buffer planner renderer tokenizer".split()
_TRAITS = "latency throughput consistency memory ordering durability fairness locality".split()
_ASKS = (
    "How does a {a} affect {t} in general?",
    "Can you compare a {a} with a {b} for me?",
    "Why would anybody put a {a} before a {b}?",
    "Explain the {t} of a {a} as you would to a student.",
    "What usually goes wrong with a {a} under load?",
)
_TELLS = (
    "A {a} trades {t} for simplicity, and most systems accept that.",
    "When the {a} falls behind, the {b} absorbs the difference until it is full.",
    "Engineers often measure {t} first, because it shows early where a {a} struggles.",
    "In many designs the {b} hides behind the {a}, so its {t} is rarely seen.",
    "There are several schools of thought about {t}, and none of them is wrong.",
    "It helps to draw the path of one request through the {a} and the {b}.",
)


def make_talk(seed: int, *, n_rounds: int = 250, n_paragraphs: int = 3) -> list[TalkLine]:
    """Return a conversation in which nothing is decided: about 60,000 tokens with 250 rounds of 3 paragraphs."""
    pick = random.Random(f"talk-{seed}")

    def tell(forms: Sequence[str]) -> str:
        a, b = pick.sample(_SUBJECTS, 2)
        return pick.choice(forms).format(a=a, b=b, t=pick.choice(_TRAITS))

    lines: list[TalkLine] = []
    for _ in range(n_rounds):
        lines.append(TalkLine("user", tell(_ASKS)))
        lines.append(
            TalkLine("assistant", "\n\n".join(" ".join(tell(_TELLS) for _ in range(4)) for _ in range(n_paragraphs)))
        )
    return lines
