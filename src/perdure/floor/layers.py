"""The layers of C₀ in their order, each within its budget of tokens, and their bill. Pure.

The same pages, cards and insights give the same layers, byte for byte: that is what a provider's cache holds, and what
stays when the model is changed. What is cut says so, what looks like an injection is left out and says so. Time and
place change with every message and are no layer: `here` makes them for the end of the message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Literal

from perdure import text as words
from perdure.access.redact import mask
from perdure.access.scan import Finding, digest
from perdure.access.told import DIGEST_CHARS
from perdure.config import FloorConfig
from perdure.floor import notes, pages
from perdure.floor.state import Card
from perdure.patterns import late

REBUILT_AT = 1.2  # times its target, recent.md is made anew (row F12)
DAY_TURNS_AT_H = 6  # a night's work belongs to the day before (row F04)
_VARIABLE = late(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_ABOUT = late(r"[ \t]*<!--.*?-->", 16)  # DOTALL: what a page notes about its own lines costs a reader nothing
Suspicious = Callable[[str], Sequence[Finding]]
Kept = Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class Material:
    """What layers are made of, as it stands."""

    pages: Mapping[str, str]  # name -> text
    cards: Sequence[Card]  # oldest first, those of this project and of none
    insights: Sequence[str]  # surest first
    variables: Mapping[str, str]  # for the system prompt
    today: date  # by the clock of the diary
    project: str | None = None  # where the session runs: notes of another stay away


@dataclass(frozen=True, slots=True)
class Suspect:
    """A text that is left out until its owner allows it."""

    where: str  # the page, the id of a card, or "insights"
    text: str  # as it would be injected
    finding: Finding

    @property
    def digest(self) -> str:
        """Its name, by which it is allowed."""
        return digest(self.text)

    @property
    def alert(self) -> str:
        """It in words."""
        name, found = self.digest[:DIGEST_CHARS], self.finding
        return f"{self.where} was left out ({name}): {found.rule}, {found.excerpt!r}"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer as it goes into a context."""

    name: str
    role: str  # what it is for, in words
    source: str  # the page, or "journal"
    text: str  # "" where there is nothing
    n_rows: int = 0  # pages, cards, notes in it
    n_tokens: int = 0  # of all that it adds to a context, its name included
    n_left: int = 0  # rows for which there was no room: they stay where they are
    suspects: tuple[Suspect, ...] = ()
    unknown: tuple[str, ...] = ()  # variables for which there is nothing
    rows: tuple[str, ...] = ()  # the text in the pieces that stay whole where a client has little room
    joint: str = "\n\n"  # between them

    @property
    def alerts(self) -> tuple[str, ...]:
        """What was left out because it looks like an injection, and what cannot be filled in."""
        return (*(suspect.alert for suspect in self.suspects), *self.unfilled.values())

    @property
    def unfilled(self) -> dict[str, str]:
        """What cannot be filled in: by its name, in words."""
        return {f"{self.source}:{name}": f"{self.source}: nothing is known for {{{{{name}}}}}" for name in self.unknown}

    @property
    def said(self) -> str:
        """It under its name, as it stands in a context; "" where there is nothing."""
        return headed(self.name, self.text) if self.text else ""


@dataclass(frozen=True, slots=True)
class Layers:
    """C₀ for one session."""

    layers: tuple[Layer, ...]  # in their order, those without text too

    @property
    def text(self) -> str:
        """All of it, each layer under its name."""
        return "\n\n".join(layer.said for layer in self.layers if layer.text)

    @property
    def n_tokens(self) -> int:
        """What it costs in every context: the sum of its layers."""
        return sum(layer.n_tokens for layer in self.layers)

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """What was left out because it looks like an injection."""
        return tuple(suspect for layer in self.layers for suspect in layer.suspects)

    @property
    def unfilled(self) -> dict[str, str]:
        """What cannot be filled in: by its name, in words."""
        return {name: said for layer in self.layers for name, said in layer.unfilled.items()}

    @property
    def alerts(self) -> tuple[str, ...]:
        """What a person must know."""
        return tuple(alert for layer in self.layers for alert in layer.alerts)


_ROLES = {
    "system": "who the agent is and by which rules it works",
    "profile": "who its owner is, in the owner's words",
    "core": "what is always true",
    "notes": "what was worth noting, newest last",
    "insights": "rules for next time that have proved true",
    "cards": "what the agent wants to have before it, oldest first",
    "recent": "what has been going on",
    "diary": "letters from the days before",
}


def headed(name: str, said: str) -> str:
    """A layer's text under its name."""
    return f"# {name}\n\n{said}"


def needed(today: date) -> list[str]:
    """The pages of which layers are made on a day of the diary."""
    named = [pages.SYSTEM, pages.PROFILE, pages.CORE, pages.NOTES, pages.RECENT]
    return named + [_diary_page(day) for day in _diary_days(today)]


def _diary_days(today: date) -> tuple[date, date]:
    return today - timedelta(days=1), today


def _diary_page(day: date) -> str:
    return f"{pages.DIARY}/{day.isoformat()}.md"


def assembled(material: Material, budgets: FloorConfig, suspicious: Suspicious) -> Layers:
    """The layers of a session. suspicious: what the scanner finds in a text that its owner has not allowed."""
    make = _Maker(material, budgets, suspicious)
    found = (
        make.system(), make.page("profile", pages.PROFILE), make.page("core", pages.CORE), make.notes(),
        make.insights(), make.cards(), make.page("recent", pages.RECENT),
        make.diary(),
    )  # fmt: skip
    return Layers(found)


@dataclass(frozen=True)
class _Maker:
    material: Material
    budgets: FloorConfig
    suspicious: Suspicious

    def system(self) -> Layer:
        written = self._said(pages.SYSTEM)
        if suspects := self._suspects(written, pages.SYSTEM):
            return _made("system", pages.SYSTEM, [], suspects=suspects)
        said, unknown = rendered(written, self.material.variables)
        return replace(self._cut("system", pages.SYSTEM, said, self._most("system")), unknown=tuple(unknown))

    def page(self, name: str, source: str) -> Layer:
        return self._layer(name, source, self._most(name))

    def notes(self) -> Layer:
        said = injected(notes.shown(self.material.pages.get(pages.NOTES, ""), self.material.project))
        if suspects := self._suspects(said, pages.NOTES):
            return _made("notes", pages.NOTES, [], suspects=suspects)
        lines = [line for line in said.splitlines() if line.strip()]
        kept, n_left = _within(lines, self._most("notes"), keep="last", joint="\n")
        return _made("notes", pages.NOTES, kept, joint="\n", n_left=n_left)

    def listed(self, name: str, rows: Sequence[tuple[str, str]], *, keep: Kept) -> Layer:
        """Rows, (where it stands, text), each for itself: a suspected one goes alone."""
        suspects: list[Suspect] = []

        def fine() -> Iterator[str]:
            for where, row in rows if keep == "first" else reversed(rows):
                found = self._suspects(row, where)
                suspects.extend(found)
                if not found:
                    yield f"- {_masked(row)}"

        kept = _fitting(fine(), self._most(name), "\n")
        ordered = kept if keep == "first" else kept[::-1]
        n_left = len(rows) - len(suspects) - len(kept)
        return _made(name, "journal", ordered, joint="\n", n_left=n_left, suspects=tuple(suspects))

    def insights(self) -> Layer:
        return self.listed("insights", [("insights", said) for said in self.material.insights], keep="first")

    def cards(self) -> Layer:
        return self.listed("cards", [(card.id, card.text) for card in self.material.cards], keep="last")

    def diary(self) -> Layer:
        found: list[str] = []
        suspects: list[Suspect] = []
        n_left = 0
        for day in _diary_days(self.material.today):
            name = _diary_page(day)
            head = f"## {day.isoformat()}\n\n"
            layer = self._layer("diary", name, self._most("diary") - words.tokens(head))
            found += [head + layer.text] if layer.text else []
            suspects += layer.suspects
            n_left += layer.n_left
        return _made("diary", f"{pages.DIARY}/", found, n_left=n_left, suspects=tuple(suspects))

    def _most(self, name: str) -> int:
        """The tokens that the text of a layer may have, beside its name.

        recent.md may outgrow what it is written for before it is rebuilt.
        """
        most: int = getattr(self.budgets, f"{name}_tokens")
        return (math.ceil(most * REBUILT_AT) if name == "recent" else most) - words.tokens(headed(name, "\n\n"))

    def _said(self, name: str) -> str:
        return injected(self.material.pages.get(name, ""))

    def _suspects(self, said: str, where: str) -> tuple[Suspect, ...]:
        return tuple(Suspect(where, said, found) for found in self.suspicious(said)[:1]) if said else ()

    def _layer(self, name: str, source: str, most: int) -> Layer:
        said = self._said(source)
        if suspects := self._suspects(said, source):
            return _made(name, source, [], suspects=suspects)
        return self._cut(name, source, said, most)

    def _cut(self, name: str, source: str, said: str, most: int) -> Layer:
        kept, n_left = _within(said.split("\n\n") if said else [], most, keep="first")
        return _made(name, source, kept, n_left=n_left, is_one=True)


def _made(
    name: str, source: str, rows: Sequence[str], *, joint: str = "\n\n", n_left: int = 0,
    suspects: tuple[Suspect, ...] = (), is_one: bool = False,
) -> Layer:  # fmt: skip
    said = joint.join(rows)
    n_rows = min(1, len(rows)) if is_one else len(rows)
    n_tokens = words.tokens(headed(name, said) + "\n\n") if said else 0
    return Layer(name, _ROLES[name], source, said, n_rows, n_tokens, n_left, suspects, (), tuple(rows), joint)


def _within(rows: Sequence[str], most: int, *, keep: Kept, joint: str = "\n\n") -> tuple[list[str], int]:
    """(the first or the last rows that the budget holds, in their order; how many it does not). A row stays whole.

    >>> _within(["one", "two", "three"], 3, keep="last", joint="\\n")  # 1 and 2 tokens, line ends included
    (['two', 'three'], 1)
    """
    found = _fitting(rows if keep == "first" else reversed(rows), most, joint)
    return (found if keep == "first" else found[::-1]), len(rows) - len(found)


def _fitting(rows: Iterable[str], most: int, joint: str) -> list[str]:
    """The rows that a budget holds, up to the first that it does not; those behind that are not looked at."""
    found: list[str] = []
    for row in rows:
        most -= _tokens(row + joint)
        if most < 0:
            break
        found.append(row)
    return found


def injected(said: str) -> str:
    """What of a page's text goes into a context: without secrets, and without what it notes about its own lines.

    >>> injected("- tabs <!-- said 2026-11-21 -->\\n")
    '- tabs'
    """
    return _ABOUT.sub("", _masked(said)).strip()


_masked = lru_cache(maxsize=2048)(mask)  # a card or a page is asked for again and again, and changes seldom
_tokens = lru_cache(maxsize=4096)(words.tokens)


def rendered(said: str, variables: Mapping[str, str]) -> tuple[str, list[str]]:
    """(a system prompt with its variables filled in, the names for which there is nothing: they stay as they are).

    >>> rendered("On {{platform}}, {{mood}}.", {"platform": "pi"})
    ('On pi, {{mood}}.', ['mood'])
    """
    unknown: dict[str, None] = {}

    def filled(name: str, whole: str) -> str:
        if name not in variables:
            unknown[name] = None
        return variables.get(name, whole)

    return _VARIABLE.sub(lambda match: filled(match[1], match[0]), said), list(unknown)


def diary_day(now: datetime) -> date:
    """The day of the diary to which a moment belongs, by the clock on the wall.

    >>> diary_day(datetime(2026, 11, 22, 5, 59)).isoformat()
    '2026-11-21'
    """
    return (now - timedelta(hours=DAY_TURNS_AT_H)).date()


def here(now: datetime, facts: Mapping[str, str], *, lead: str = "Now") -> str:
    """The line that says what time it is and where one is. lead: what the time is that of.

    >>> from datetime import timezone
    >>> here(datetime(2026, 11, 22, 9, 5, tzinfo=timezone.utc), {"machine": "toad", "project": ""})
    'Now: Sunday, 2026-11-22 09:05 UTC+00:00. Machine: toad.'
    """
    shift = now.strftime("%z")
    at = f"{now:%A}, {now:%Y-%m-%d %H:%M} UTC{shift[:3]}:{shift[3:5]}"
    return " ".join([f"{lead}: {at}.", *(f"{name.capitalize()}: {value}." for name, value in facts.items() if value)])
