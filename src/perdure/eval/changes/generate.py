"""Worlds in which facts change: what a person said, when, and what is true of it now and was before.

Pure but for reading the templates: the same half and seed give the same worlds, byte for byte. Frozen before the rules
that it measures were written (the digests stand in docs/evaluation/supersession.md): a mistake found here later is
noted there, not mended in silence. In one world every value occurs in one role alone, so that a cue can be judged by
the value that its text contains.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

HALVES = ("dev", "held_out")
N_WORLDS = {"en": 40, "de": 16, "fr": 16, "es": 16, "zh": 16}  # of each half; N_FACTS changes in each
N_FACTS = 4
STEP_DAYS = (75, 110)  # between two changes: a whole calendar month fits, and three steps fit into a year
WRAPPED, LOWERED = 0.35, 0.2  # shares of the statements in a longer message, and of English ones in lower case
N_CHAT = (6, 11)  # idle messages in a world
N_NOISE = 3  # messages for each fact that name it and change nothing, at most
_START = datetime(2025, 1, 6, 8, tzinfo=UTC)
_SHAPES = {"change": 45, "correction": 15, "parallel": 15, "back": 13, "twice": 12}  # out of 100
_PLACE = Path(__file__).parent
_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "zh": "1月 2月 3月 4月 5月 6月 7月 8月 9月 10月 11月 12月",
}
_DATES = {"date_en": "{day} {month}", "date_de": "{day}. {month}", "date_fr": "{day} {month}",
          "date_es": "{day} de {month}"}  # fmt: skip
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """What a person typed."""

    message_id: str
    stated_at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked the day after the last message."""

    qid: str
    asks: str  # now, before, then (in a named month), or control: a like thing of which nothing changed
    text: str
    kind: str
    shape: str
    language: str
    answer: str  # the string that a cue has to contain
    others: tuple[str, ...]  # the other values of the same fact: no cue with one of them may come first
    statements: tuple[str, ...]  # ids of the messages that state the fact, oldest first


@dataclass(frozen=True, slots=True)
class Control:
    """What must not change: a thing like one that does, or two things that are true together."""

    kind: str
    statements: tuple[str, ...]  # message ids; nothing ends any of them


@dataclass(frozen=True, slots=True)
class World:
    """One person's messages, and what is asked about them."""

    name: str
    language: str
    messages: tuple[Message, ...]  # oldest first
    questions: tuple[Question, ...]
    controls: tuple[Control, ...]
    current: tuple[str, ...]  # ids of the last statement of each fact: nothing ends them either


class _Step(NamedTuple):
    """One state of a fact."""

    value: str
    at: datetime
    key: str  # of what was said


@dataclass
class _Draft:
    """A world that is being made."""

    draw: random.Random
    language: str
    half: Json
    used: set[str] = field(default_factory=set)
    said: list[tuple[datetime, str, str]] = field(default_factory=list)  # (when, key, text)
    asked: list[tuple[Json, list[str]]] = field(default_factory=list)  # (fields of the question, keys)
    facts: list[Json] = field(default_factory=list)  # families, with name, shape and entity
    controls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)  # (kind, keys)
    current: list[str] = field(default_factory=list)

    def fresh(self, pool: str) -> str:
        """A value of a pool that the world does not use yet; taken with that."""
        rest = [value for value in _values(pool, self.language, self.draw) if value not in self.used]
        found = self.draw.choice(rest)
        self.used.add(found)
        return found

    def spare(self, pool: str) -> str:
        """A value of a pool that no fact has, which noise may name; "" when there is none."""
        rest = [value for value in _values(pool, self.language, self.draw) if value not in self.used]
        return self.draw.choice(rest) if rest else ""

    def say(self, at: datetime, text: str, *, wrapped: bool = False) -> str:
        """Keep what is said then; returns its key."""
        if wrapped and self.draw.random() < WRAPPED:
            text = self.draw.choice(self.half["wraps"]).replace("{s}", text)
        if self.language == "en" and self.draw.random() < LOWERED:
            text = text.lower()
        key = f"k{len(self.said)}"
        self.said.append((at, key, text))
        return key


@cache
def _read(name: str) -> Any:
    return json.loads((_PLACE / f"{name}.json").read_text(encoding="utf-8"))


def worlds(half: str, *, seed: int = 0) -> list[World]:
    """The worlds of a half ("dev" or "held_out"), the same for the same seed."""
    templates = _read(half)
    return [
        _world(f"{half}-{language}-{n}", language, templates[language], seed)
        for language, n_worlds in N_WORLDS.items()
        for n in range(n_worlds)
    ]


def _world(name: str, language: str, half: Json, seed: int) -> World:
    draft = _Draft(random.Random(f"{seed}/{name}"), language, half)
    for number, family in enumerate(draft.draw.sample(half["families"], N_FACTS)):
        _fact(draft, family, f"f{number}")
    _both_stand(draft)
    _noise(draft)
    return _finished(name, draft)


def _fact(draft: _Draft, family: Json, name: str) -> None:
    """A fact that is stated and then changes, with what is asked about it."""
    shape = _shape(draft, family)
    entity = draft.fresh(family["e"]) if "e" in family else ""
    family = family | {"name": name, "shape": shape, "entity": entity}
    draft.facts.append(family)
    steps: list[_Step] = []
    for value, template in _chain(draft, family, shape):
        old = steps[-1].value if steps else ""
        text = _filled(draft, template, {"{e}": entity, "{v}": value, "{old}": old})
        at = steps[-1].at + _days(draft, *STEP_DAYS) if steps else _START + _days(draft, 0, 30)
        steps.append(_Step(value, at, draft.say(at, text, wrapped=True)))
    draft.current.append(steps[-1].key)
    _ask(draft, family, steps)
    if shape == "parallel":
        _sibling(draft, family, steps[0].at)


def _shape(draft: _Draft, family: Json) -> str:
    if family["kind"] == "negation":
        return "negation"
    shapes = [shape for shape in _SHAPES if "e" in family or shape != "parallel"]
    return draft.draw.choices(shapes, [_SHAPES[shape] for shape in shapes])[0]


def _chain(draft: _Draft, family: Json, shape: str) -> list[tuple[str, str]]:
    """(value, how it is said), in order. What no longer holds has no value: the words that say so stand for it."""
    choose = draft.draw.choice
    first, change = choose(family["first"]), choose(family["change"])
    value = draft.fresh(family["v"])
    if shape == "negation":
        template, mark = change.split(" || ")
        return [(value, first), (mark.replace("{old}", value), template)]
    other = draft.fresh(family["v"])
    if shape == "correction":
        return [(value, first), (other, choose(family["correct"]))]
    if shape == "back":
        plain = choose([template for template in family["change"] if "{old}" not in template])
        return [(value, first), (other, plain), (value, choose(family["back"]))]
    if shape == "twice":
        again = choose([template for template in family["change"] if template != change])
        return [(value, first), (other, change), (draft.fresh(family["v"]), again)]
    return [(value, first), (other, change)]


def _sibling(draft: _Draft, family: Json, first_at: datetime) -> None:
    """The same said of another thing, which does not change when the first does."""
    fills = {"{e}": draft.fresh(family["e"]), "{v}": draft.fresh(family["v"])}
    at = first_at + _days(draft, 1, 40)
    key = draft.say(at, _filled(draft, draft.draw.choice(family["first"]), fills), wrapped=True)
    draft.controls.append((family["kind"], (key,)))
    text = _filled(draft, draft.draw.choice(family["now"]), fills)
    row = {"asks": "control", "text": text, "answer": fills["{v}"], "others": ()}
    draft.asked.append((row | _about(family, draft.language), [key]))


def _ask(draft: _Draft, family: Json, steps: Sequence[_Step]) -> None:
    """What is asked of a fact: what holds now; where it held, what did before, and in a month that is named."""
    fills = {"{e}": family["entity"], "{old}": steps[0].value}

    def add(asks: str, answer: str) -> None:
        text = _filled(draft, draft.draw.choice(family[asks]), fills)
        others = tuple(dict.fromkeys(step.value for step in steps if step.value != answer))
        row = {"asks": asks, "text": text, "answer": answer, "others": others}
        draft.asked.append((row | _about(family, draft.language), [step.key for step in steps]))

    add("now", steps[-1].value)
    if family["shape"] in ("correction", "negation"):  # what was corrected was never so
        return
    add("before", steps[-2].value)
    step = draft.draw.choice(steps[:-1])
    fills["{month}"] = _MONTHS[draft.language].split()[step.at.month % 12]  # the first that lies wholly after it
    add("then", step.value)


def _about(family: Json, language: str) -> Json:
    return {"kind": family["kind"], "shape": family["shape"], "language": language, "name": family["name"]}


def _both_stand(draft: _Draft) -> None:
    """Two things that are true together, said one after the other."""
    pair = draft.draw.choice(draft.half["multi"])
    fills = {"{v}": draft.fresh(pair["v"]), "{w}": draft.fresh(pair["v"])}
    one, two = pair["say"]
    if "{p}" in one:
        fills["{p}"] = draft.fresh(_people(draft.language))  # the same in both
    at = _START + _days(draft, 5, 60)
    keys = (
        draft.say(at, _filled(draft, one, fills)),
        draft.say(at + _days(draft, 5, 60), _filled(draft, two, fills)),
    )
    draft.controls.append((pair["kind"], keys))


def _noise(draft: _Draft) -> None:
    """What mentions the same words and changes nothing, and what has nothing to do with it."""
    texts = draft.draw.sample(draft.half["chat"], min(len(draft.half["chat"]), draft.draw.randint(*N_CHAT)))
    for family in draft.facts:
        for template in draft.draw.sample(family["noise"], min(N_NOISE, len(family["noise"]))):
            spare = draft.spare(family["v"])
            if spare or "{x}" not in template:
                texts.append(_filled(draft, template, {"{e}": family["entity"], "{x}": spare}))
    span_days = (max(at for at, _, _ in draft.said) - _START) / timedelta(days=1)
    for text in texts:
        draft.say(_START + _days(draft, 0, span_days * 1.05), text)


def _finished(name: str, draft: _Draft) -> World:
    """The draft in the order of time, its keys as message ids."""
    ordered = sorted(draft.said)
    ids = {key: f"{name}/m{n}" for n, (_, key, _) in enumerate(ordered)}
    messages = tuple(Message(ids[key], at.replace(microsecond=0), text) for at, key, text in ordered)
    questions = []
    for row, keys in draft.asked:
        qid = f"{name}/{row.pop('name')}-{row['asks']}"
        questions.append(Question(qid=qid, **row, statements=tuple(ids[key] for key in keys)))
    controls = tuple(Control(kind, tuple(ids[key] for key in keys)) for kind, keys in draft.controls)
    return World(name, draft.language, messages, tuple(questions), controls, tuple(ids[key] for key in draft.current))


def _people(language: str) -> str:
    return "person_zh" if language == "zh" else "person"


def _filled(draft: _Draft, template: str, fills: dict[str, str]) -> str:
    """The template with its slots filled; a person who is only mentioned is nobody's value."""
    if "{p}" in template and "{p}" not in fills:
        fills = {**fills, "{p}": draft.fresh(_people(draft.language))}
    for slot, value in fills.items():
        template = template.replace(slot, value)
    return template


def _days(draft: _Draft, least: float, most: float) -> timedelta:
    return timedelta(days=draft.draw.uniform(least, most))


def _values(pool: str, language: str, draw: random.Random) -> list[str]:
    """The values of a pool; some are made here, because there are many."""
    if pool == "port":
        return [str(draw.randrange(3000, 10_000)) for _ in range(20)]
    if pool == "version":
        return [f"{draw.randrange(2, 30)}.{draw.randrange(20)}" for _ in range(20)]
    if pool == "size":
        return [f"{n} MB" for n in (5, 8, 12, 20, 25, 40, 64, 75, 120, 150, 300, 500)]
    if pool == "seconds":
        return [f"{n}s" for n in (2, 5, 8, 15, 20, 35, 45, 60, 75, 90, 120, 240)]
    if pool == "price":
        return [f"${n}" for n in (9, 12, 15, 19, 24, 29, 39, 49, 59, 79, 99, 149)]
    if pool in _DATES:
        months = _MONTHS[language].split()
        return [_DATES[pool].format(day=draw.randrange(1, 29), month=draw.choice(months)) for _ in range(20)]
    found: list[str] = _read("pools")[pool]
    return found
