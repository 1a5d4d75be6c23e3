"""The claim, and the values of clauses: what is said, what it replaces, which attribute a value itself tells. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from perdure.memories.grammar import words
from perdure.memories.grammar.clauses import Phrase, Word
from perdure.memories.grammar.division import Divided
from perdure.memories.grammar.grammar import WE, I
from perdure.regex import lazy_re


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that is said of one other."""

    entity: str  # "staging-server"; "user" is who speaks, "project" what they work on
    attribute: str  # canonical English where it is known: "port", "employer", "preferences/editor"
    value: str  # as said
    negated: bool = False
    old_value: str = ""  # that the statement itself says it replaces
    single: bool = True  # it has one value at a time; otherwise the value is part of the path
    changed: bool = False  # the statement says that it was otherwise before

    @property
    def path(self) -> str:
        """The subject and the attribute as a path; memories of one path are one chain."""
        parts = [self.entity, self.attribute]
        if not self.single:
            parts.append(words.slug(words.canonical(self.value.split())))
        return "/".join(p for p in parts if p)


class Value(NamedTuple):
    """What stands behind a verb."""

    words: list[Word]
    old: list[Word]
    object: list[Word]  # what was changed, where the verb has an object


def value_of(found: Divided) -> Value:
    """Return the value behind a verb, what it replaces and what it is for."""
    g = found.g
    rest = found.rest
    for i, word in enumerate(rest):
        if i and word.low in g.stops and rest[i - 1].low not in g.to:
            rest = rest[:i]
            break
    low = tuple(w.low for w in rest)
    old: list[Word] = []
    for i in range(1, len(rest)):
        lead = next((p for p in g.instead if low[i : i + len(p)] == p), ())
        if lead and (lead != ("over",) or found.relation == "prefers"):
            rest, old = rest[:i], rest[i + len(lead) :]
            break
    said = _without_when([w for w in rest if w.low not in g.now and w.low not in g.no])
    return Value(said, old, [])


_WHEN = frozenset(
    "last yesterday next earlier gestern letzte letzten nächste hier dernier ayer pasado ieri ontem".split()
)


def _without_when(value: list[Word]) -> list[Word]:
    """Return a value without the time at its end that says since when: "Munich" of "Munich in May"."""
    for i in range(1, len(value)):
        tail = [w.raw for w in value[i:]]
        is_time = value[i].low in _WHEN or (
            value[i].low in ("in", "on", "im", "am", "en", "el", "le", "since") and words.typed(tail[:3]) == "time"
        )
        if is_time and not words.typed([w.raw for w in value[:i]]):
            return value[:i]
    return value


def from_to(found: Divided) -> Value:
    """Return the parts of a change: what was changed, from what, to what."""
    g, value = found.g, value_of(found)
    kept: dict[str, list[Word]] = {"object": [], "from": list(value.old), "to": []}
    mode = "to" if len(found.verb) > 1 and found.verb[-1] in (*g.to, "on", "until", "auf", "bei") else "object"
    to = g.to | {"until", "bis", "by"} | (_AT if found.relation == "place" else frozenset())
    for word in value.words:
        if mode == "to" and kept["to"] and word.low in ("de", "di", "do"):  # "9 de abril"
            kept["to"].append(word)
        elif word.low in g.origin and not (
            mode == "object"
            and kept["object"]
            and word.low in ("de", "du", "d'", "del", "di")
            and not any(w.low in g.to for w in value.words[value.words.index(word) :])
        ):
            mode = "from"
        elif word.low in to and not (mode == "to" and kept["to"]):
            mode = "to"
        else:
            kept[mode].append(word)
    while kept["object"] and kept["object"][-1].low in _PARTICLES:
        kept["object"].pop()
    return Value(kept["to"], kept["from"], kept["object"])


_PARTICLES = frozenset("up over back down out zurück hoch".split())


_AT = frozenset("on at in with using".split())


def said_by(phrase: Sequence[Word]) -> str:
    """Return words as a value: without articles at its head and small words at its end."""
    kept = list(phrase)
    while kept and (kept[0].low in words.ARTICLES or kept[0].low in _SMALL):
        kept = kept[1:]
    while kept and kept[-1].low in _SMALL:
        kept = kept[:-1]
    return " ".join(w.raw for w in kept)


_SMALL = frozenset(
    "instead now already again please too only also port puerto porta to at for von à more much bitte".split()
)


def purpose_of(phrase: list[Word]) -> tuple[list[Word], list[Word]]:
    """Return a value and what it is for: ("Postgres", "orders") of "Postgres for orders"."""
    for i, word in enumerate(phrase):
        if i and word.low in (
            "for",
            "für",
            "pour",
            "para",
            "per",
            "when",
            "in",
            "im",
            "as",
            "als",
            "on",
            "with",
            "mit",
            "avec",
            "con",
            "en",
            "here",
            "hier",
            "ici",
            "aquí",
            "to",
            "um",
            "em",
        ):
            return phrase[:i], phrase[i + 1 :]
    return phrase, []


def attribute_by(value: Sequence[Word], default: str = "") -> tuple[str, bool]:
    """Return the attribute that a value itself tells, and whether it has one value at a time."""
    raw = [w.raw for w in value if w.low not in words.ARTICLES]
    kind = words.typed(raw)
    if (
        len(raw) > 1
        and _RELEASE.fullmatch(raw[1])
        and (words.category(raw) or len(raw) == 2)
        and _is_product(raw[0], kind)
    ):
        return "version", True
    by_type = {"version": "version", "url": "url", "time": "time", "money": "price", "switch": "state"}
    if len(raw) > 1 and words.attribute_of(raw[:1]) == "port":
        return "port", True
    if kind in by_type:
        return by_type[kind], True
    found = words.category(raw)
    if found:
        return found, True
    return default, kind in ("quantity", "number")


_RELEASE = lazy_re(r"v?\d{1,3}(?:\.\d+)*")


def _is_product(name: str, kind: str) -> bool:
    """Return whether a word before a number may be the name of what is released: "Java" of "Java 21"."""
    return name.isalpha() and kind in ("", "version") and (name[:1].isupper() or bool(words.category([name])))


def made(found: Divided, phrase: Phrase, attribute: str, value: Sequence[Word], **more: object) -> Claim:
    """Return a claim about the subject of a clause; its own attribute, if it has one, is part of the entity."""
    entity = phrase.entity
    is_thing = phrase.attribute and found.relation not in ("is", "change") and phrase.entity not in ((I,), (WE,))
    if phrase.attribute and (phrase.attribute != attribute or is_thing):
        entity = tuple(dict.fromkeys((*(e for e in entity if e not in (I, WE)), *phrase.attribute.split("-"))))
    made = Claim("-".join(entity), attribute, said_by(value), found.negated, changed=found.changed)
    return replace(made, **more)  # type: ignore[arg-type]


def choice_of(entity: str, attribute: str) -> str:
    """Return where a person's own choice of a kind of thing is kept."""
    return f"preferences/{attribute}" if entity == I and words.is_category(attribute) else attribute
