"""Worlds in which facts change: dated messages of a person, what is true of them now, and what was before.

Pure except for reading the templates: the same half and seed give the same worlds, byte for byte. Frozen
before the rules that it measures were written (docs/evaluation/supersession.md has the digests): a
mistake found here later is noted there, and not fixed in silence. In one world every value has only one
role, so that a cue can be judged by the value that its text contains.
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

HALVES = ("dev", "held_out", "third")
N_WORLDS = {"en": 40, "de": 16, "fr": 16, "es": 16, "zh": 16}  # of each half; N_FACTS changes in each
N_FACTS = 4
STEP_DAYS = (75, 110)  # between two changes: a whole calendar month fits, and three steps fit into a year
WRAPPED, LOWERED = 0.35, 0.2  # shares of the statements in a longer message, and of English ones in lower case
N_CHAT = (6, 11)  # idle messages in a world
N_NOISE = 3  # messages for each fact that name it and change nothing, at most
_START = datetime(2025, 1, 6, 8, tzinfo=UTC)
_SHAPES = {"change": 45, "correction": 15, "parallel": 15, "back": 13, "twice": 12}  # out of 100
_FOLDER = Path(__file__).parent / "changes"
_MONTHS = {
    "en": "January February March April May June July August September October November December",
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "zh": "1月 2月 3月 4月 5月 6月 7月 8月 9月 10月 11月 12月",
}
_DATES = {
    "date_en": "{day} {month}",
    "date_de": "{day}. {month}",
    "date_fr": "{day} {month}",
    "date_es": "{day} de {month}",
}
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChangeMessage:
    """A message that a person typed."""

    message_id: str
    stated_at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class ChangeQuestion:
    """A question that is asked the day after the last message."""

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
class ChangeControl:
    """A fact that must not change: one like a fact that does, or two facts that are true together."""

    kind: str
    statements: tuple[str, ...]  # message ids; nothing ends any of them


@dataclass(frozen=True, slots=True)
class ChangeWorld:
    """One person's messages, and the questions about them."""

    name: str
    language: str
    messages: tuple[ChangeMessage, ...]  # oldest first
    questions: tuple[ChangeQuestion, ...]
    controls: tuple[ChangeControl, ...]
    current: tuple[str, ...]  # ids of the last statement of each fact: nothing ends them either


class _FactStep(NamedTuple):
    """One state of a fact."""

    value: str
    stated_at: datetime
    key: str  # of what was said


@dataclass
class _WorldDraft:
    """A world that is being made."""

    rng: random.Random
    language: str
    templates: Json
    used_values: set[str] = field(default_factory=set)
    statements: list[tuple[datetime, str, str]] = field(default_factory=list)  # (when, key, text)
    questions: list[tuple[Json, list[str]]] = field(default_factory=list)  # (fields of the question, keys)
    facts: list[Json] = field(default_factory=list)  # families, with name, shape and entity
    controls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)  # (kind, keys)
    current: list[str] = field(default_factory=list)

    def take_value(self, pool: str) -> str:
        """Draw a value of a pool that the world does not use yet, and mark it as used."""
        unused_values = [
            value for value in _list_pool_values(pool, self.language, self.rng) if value not in self.used_values
        ]
        taken_value = self.rng.choice(unused_values)
        self.used_values.add(taken_value)
        return taken_value

    def draw_unused_value(self, pool: str) -> str:
        """Draw a value of a pool that no fact has, which noise may name; "" if there is none."""
        unused_values = [
            value for value in _list_pool_values(pool, self.language, self.rng) if value not in self.used_values
        ]
        return self.rng.choice(unused_values) if unused_values else ""

    def add_statement(self, stated_at: datetime, text: str, *, can_wrap: bool = False) -> str:
        """Add a statement with its time; return its key."""
        if can_wrap and self.rng.random() < WRAPPED:
            text = self.rng.choice(self.templates["wraps"]).replace("{s}", text)
        if self.language == "en" and self.rng.random() < LOWERED:
            text = text.lower()
        key = f"k{len(self.statements)}"
        self.statements.append((stated_at, key, text))
        return key


@cache
def _read_json(name: str) -> Any:
    return json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def make_worlds(half: str, *, seed: int = 0) -> list[ChangeWorld]:
    """Make the worlds of a half, one of HALVES, the same for the same seed."""
    templates = _read_json(half)
    return [
        _make_world(f"{half}-{language}-{n}", language, templates[language], seed)
        for language, n_worlds in N_WORLDS.items()
        for n in range(n_worlds)
    ]


def _make_world(name: str, language: str, templates: Json, seed: int) -> ChangeWorld:
    draft = _WorldDraft(random.Random(f"{seed}/{name}"), language, templates)
    for number, family in enumerate(draft.rng.sample(templates["families"], N_FACTS)):
        _add_fact(draft, family, f"f{number}")
    _add_true_pair(draft)
    _add_noise(draft)
    return _finish_world(name, draft)


def _add_fact(draft: _WorldDraft, family: Json, name: str) -> None:
    """Add a fact that is stated and then changes, with the questions about it."""
    shape = _choose_shape(draft, family)
    entity = draft.take_value(family["e"]) if "e" in family else ""
    family = family | {"name": name, "shape": shape, "entity": entity}
    draft.facts.append(family)
    steps: list[_FactStep] = []
    for value, template in _make_chain(draft, family, shape):
        old_value = steps[-1].value if steps else ""
        text = _fill_template(draft, template, {"{e}": entity, "{v}": value, "{old}": old_value})
        stated_at = steps[-1].stated_at + _draw_days(draft, *STEP_DAYS) if steps else _START + _draw_days(draft, 0, 30)
        steps.append(_FactStep(value, stated_at, draft.add_statement(stated_at, text, can_wrap=True)))
    draft.current.append(steps[-1].key)
    _add_questions(draft, family, steps)
    if shape == "parallel":
        _add_sibling(draft, family, steps[0].stated_at)


def _choose_shape(draft: _WorldDraft, family: Json) -> str:
    if family["kind"] == "negation":
        return "negation"
    shapes = [shape for shape in _SHAPES if "e" in family or shape != "parallel"]
    return draft.rng.choices(shapes, [_SHAPES[shape] for shape in shapes])[0]


def _make_chain(draft: _WorldDraft, family: Json, shape: str) -> list[tuple[str, str]]:
    """Return (value, template) in order. A state that only ends has no value: the words that say so take its
    place.
    """
    choose = draft.rng.choice
    first_template, change_template = choose(family["first"]), choose(family["change"])
    value = draft.take_value(family["v"])
    if shape == "negation":
        template, marker = change_template.split(" || ")
        return [(value, first_template), (marker.replace("{old}", value), template)]
    other_value = draft.take_value(family["v"])
    if shape == "correction":
        return [(value, first_template), (other_value, choose(family["correct"]))]
    if shape == "back":
        plain_template = choose([template for template in family["change"] if "{old}" not in template])
        return [(value, first_template), (other_value, plain_template), (value, choose(family["back"]))]
    if shape == "twice":
        second_change = choose([template for template in family["change"] if template != change_template])
        return [(value, first_template), (other_value, change_template), (draft.take_value(family["v"]), second_change)]
    return [(value, first_template), (other_value, change_template)]


def _add_sibling(draft: _WorldDraft, family: Json, first_at: datetime) -> None:
    """Add the same statement about another thing, which does not change when the first does."""
    fills = {"{e}": draft.take_value(family["e"]), "{v}": draft.take_value(family["v"])}
    stated_at = first_at + _draw_days(draft, 1, 40)
    key = draft.add_statement(stated_at, _fill_template(draft, draft.rng.choice(family["first"]), fills), can_wrap=True)
    draft.controls.append((family["kind"], (key,)))
    text = _fill_template(draft, draft.rng.choice(family["now"]), fills)
    row = {"asks": "control", "text": text, "answer": fills["{v}"], "others": ()}
    draft.questions.append((row | _to_question_fields(family, draft.language), [key]))


def _add_questions(draft: _WorldDraft, family: Json, steps: Sequence[_FactStep]) -> None:
    """Add the questions about a fact: the value now; if it really changed, the value before and in a named
    month.
    """
    fills = {"{e}": family["entity"], "{old}": steps[0].value}

    def add(asks: str, answer: str) -> None:
        text = _fill_template(draft, draft.rng.choice(family[asks]), fills)
        others = tuple(dict.fromkeys(step.value for step in steps if step.value != answer))
        row = {"asks": asks, "text": text, "answer": answer, "others": others}
        draft.questions.append((row | _to_question_fields(family, draft.language), [step.key for step in steps]))

    add("now", steps[-1].value)
    if family["shape"] in ("correction", "negation"):  # what was corrected was never so
        return
    add("before", steps[-2].value)
    step = draft.rng.choice(steps[:-1])
    fills["{month}"] = _MONTHS[draft.language].split()[step.stated_at.month % 12]  # the first that lies wholly after it
    add("then", step.value)


def _to_question_fields(family: Json, language: str) -> Json:
    return {"kind": family["kind"], "shape": family["shape"], "language": language, "name": family["name"]}


def _add_true_pair(draft: _WorldDraft) -> None:
    """Add two facts that are true together, stated one after the other."""
    pair = draft.rng.choice(draft.templates["multi"])
    fills = {"{v}": draft.take_value(pair["v"]), "{w}": draft.take_value(pair["v"])}
    first, second = pair["say"]
    if "{p}" in first:
        fills["{p}"] = draft.take_value(_choose_people_pool(draft.language))  # the same in both
    stated_at = _START + _draw_days(draft, 5, 60)
    keys = (
        draft.add_statement(stated_at, _fill_template(draft, first, fills)),
        draft.add_statement(stated_at + _draw_days(draft, 5, 60), _fill_template(draft, second, fills)),
    )
    draft.controls.append((pair["kind"], keys))


def _add_noise(draft: _WorldDraft) -> None:
    """Add messages that mention the same words and change nothing, and unrelated ones."""
    texts = draft.rng.sample(draft.templates["chat"], min(len(draft.templates["chat"]), draft.rng.randint(*N_CHAT)))
    for family in draft.facts:
        for template in draft.rng.sample(family["noise"], min(N_NOISE, len(family["noise"]))):
            unused_value = draft.draw_unused_value(family["v"])
            if unused_value or "{x}" not in template:
                texts.append(_fill_template(draft, template, {"{e}": family["entity"], "{x}": unused_value}))
    span_days = (max(stated_at for stated_at, _, _ in draft.statements) - _START) / timedelta(days=1)
    for text in texts:
        draft.add_statement(_START + _draw_days(draft, 0, span_days * 1.05), text)


def _finish_world(name: str, draft: _WorldDraft) -> ChangeWorld:
    """Order the draft by time; its keys become message ids."""
    ordered_statements = sorted(draft.statements)
    ids = {key: f"{name}/m{n}" for n, (_, key, _) in enumerate(ordered_statements)}
    messages = tuple(
        ChangeMessage(ids[key], stated_at.replace(microsecond=0), text) for stated_at, key, text in ordered_statements
    )
    questions = []
    for row, keys in draft.questions:
        qid = f"{name}/{row.pop('name')}-{row['asks']}"
        questions.append(ChangeQuestion(qid=qid, **row, statements=tuple(ids[key] for key in keys)))
    controls = tuple(ChangeControl(kind, tuple(ids[key] for key in keys)) for kind, keys in draft.controls)
    return ChangeWorld(
        name, draft.language, messages, tuple(questions), controls, tuple(ids[key] for key in draft.current)
    )


def _choose_people_pool(language: str) -> str:
    return "person_zh" if language == "zh" else "person"


def _fill_template(draft: _WorldDraft, template: str, values_by_slot: dict[str, str]) -> str:
    """Fill the slots of a template; a person who is only mentioned is nobody's value."""
    if "{p}" in template and "{p}" not in values_by_slot:
        values_by_slot = {**values_by_slot, "{p}": draft.take_value(_choose_people_pool(draft.language))}
    for slot, value in values_by_slot.items():
        template = template.replace(slot, value)
    return template


def _draw_days(draft: _WorldDraft, min_days: float, max_days: float) -> timedelta:
    return timedelta(days=draft.rng.uniform(min_days, max_days))


def _list_pool_values(pool: str, language: str, rng: random.Random) -> list[str]:
    """Return the values of a pool; some are computed here, because there are many."""
    if pool == "port":
        return [str(rng.randrange(3000, 10_000)) for _ in range(20)]
    if pool == "version":
        return [f"{rng.randrange(2, 30)}.{rng.randrange(20)}" for _ in range(20)]
    if pool == "size":
        return [f"{n} MB" for n in (5, 8, 12, 20, 25, 40, 64, 75, 120, 150, 300, 500)]
    if pool == "seconds":
        return [f"{n}s" for n in (2, 5, 8, 15, 20, 35, 45, 60, 75, 90, 120, 240)]
    if pool == "price":
        return [f"${n}" for n in (9, 12, 15, 19, 24, 29, 39, 49, 59, 79, 99, 149)]
    if pool in _DATES:
        months = _MONTHS[language].split()
        return [_DATES[pool].format(day=rng.randrange(1, 29), month=rng.choice(months)) for _ in range(20)]
    values: list[str] = _read_json("pools")[pool]
    return values
