"""The layers of C₀ in their order, each within its budget of tokens, and their bill. Pure.

The same pages, cards and insights give the same layers, byte for byte: that is what a provider's cache holds, and what
stays when the model is changed. What is cut says so, what looks like an injection is left out and says so. Time and
place change with every message and are no layer: `here` makes them for the end of the message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal

from perdure import text as words
from perdure.access.redact import mask
from perdure.access.scan import Finding
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
class Layer:
    """One layer as it goes into a context."""

    name: str
    role: str  # what it is for, in words
    source: str  # the page, or "journal"
    text: str  # "" where there is nothing
    n_rows: int = 0  # pages, cards, notes in it
    n_tokens: int = 0
    n_left: int = 0  # rows for which there was no room: they stay where they are
    alerts: tuple[str, ...] = ()  # what was left out because it looks like an injection, and what cannot be filled in


@dataclass(frozen=True, slots=True)
class Layers:
    """C₀ for one session."""

    layers: tuple[Layer, ...]  # in their order, those without text too

    @property
    def text(self) -> str:
        """All of it, each layer under its name."""
        return "\n\n".join(f"# {layer.name}\n\n{layer.text}" for layer in self.layers if layer.text)

    @property
    def n_tokens(self) -> int:
        """What it costs in every context."""
        return words.tokens(self.text)

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


def assembled(material: Material, budgets: FloorConfig, suspicious: Suspicious) -> Layers:
    """The layers of a session. suspicious: what the scanner finds in a text that its owner has not allowed."""
    make = _Maker(material, budgets, suspicious)
    found = (
        make.system(), make.page("profile", pages.PROFILE), make.page("core", pages.CORE), make.notes(),
        make.listed("insights", list(material.insights), keep="first"), make.cards(), make.page("recent", pages.RECENT),
        make.diary(),
    )  # fmt: skip
    return Layers(found)


@dataclass(frozen=True)
class _Maker:
    material: Material
    budgets: FloorConfig
    suspicious: Suspicious

    def system(self) -> Layer:
        said, unknown = rendered(self._said(pages.SYSTEM), self.material.variables)
        alerts = tuple(f"{pages.SYSTEM}: nothing is known for {{{{{name}}}}}" for name in unknown)
        return self._layer("system", pages.SYSTEM, [said], keep="first", more=alerts)

    def page(self, name: str, source: str) -> Layer:
        return self._layer(name, source, [self._said(source)], keep="first")

    def notes(self) -> Layer:
        said = self._clean(notes.shown(self.material.pages.get(pages.NOTES, ""), self.material.project))
        if said and (alerts := self._alerts(said, pages.NOTES)):
            return _made("notes", pages.NOTES, [], alerts=alerts)
        lines = [line for line in said.splitlines() if line.strip()]
        kept, n_left = _within(lines, self._most("notes"), keep="last")
        return _made("notes", pages.NOTES, kept, joint="\n", n_left=n_left)

    def listed(self, name: str, rows: Sequence[str], *, keep: Kept) -> Layer:
        """Rows that stand each for itself: a suspected one goes alone."""
        fine: list[str] = []
        alerts: list[str] = []
        for row in rows:
            found = self._alerts(row, name)
            alerts += found
            fine += [] if found else [mask(row)]
        kept, n_left = _within([f"- {row}" for row in fine], self._most(name), keep=keep)
        return _made(name, "journal", kept, joint="\n", n_left=n_left, alerts=tuple(alerts))

    def cards(self) -> Layer:
        return self.listed("cards", [card.text for card in self.material.cards], keep="last")

    def diary(self) -> Layer:
        found: list[str] = []
        alerts: list[str] = []
        n_left = 0
        for day in (self.material.today - timedelta(days=1), self.material.today):
            name = f"{pages.DIARY}/{day.isoformat()}.md"
            layer = self._layer("diary", name, [self._said(name)], keep="first")
            found += [f"## {day.isoformat()}\n\n{layer.text}"] if layer.text else []
            alerts += layer.alerts
            n_left += layer.n_left
        return _made("diary", f"{pages.DIARY}/", found, n_left=n_left, alerts=tuple(alerts))

    def _most(self, name: str) -> int:
        """The tokens that a layer may have: recent.md may outgrow what it is written for before it is rebuilt."""
        most: int = getattr(self.budgets, f"{name}_tokens")
        return math.ceil(most * REBUILT_AT) if name == "recent" else most

    def _said(self, name: str) -> str:
        return self._clean(self.material.pages.get(name, ""))

    def _clean(self, said: str) -> str:
        return _ABOUT.sub("", mask(said)).strip()

    def _alerts(self, said: str, where: str) -> tuple[str, ...]:
        return tuple(f"{where} was left out: {found.rule}, {found.excerpt!r}" for found in self.suspicious(said)[:1])

    def _layer(self, name: str, source: str, rows: list[str], *, keep: Kept, more: tuple[str, ...] = ()) -> Layer:
        said = "\n".join(rows)
        if said and (alerts := self._alerts(said, source)):
            return _made(name, source, [], alerts=alerts)
        paragraphs = said.split("\n\n") if said else []
        kept, n_left = _within(paragraphs, self._most(name), keep=keep, joint="\n\n")
        return _made(name, source, kept, n_left=n_left, alerts=more, is_one=True)


def _made(
    name: str, source: str, rows: Sequence[str], *, joint: str = "\n\n", n_left: int = 0, alerts: tuple[str, ...] = (),
    is_one: bool = False,
) -> Layer:  # fmt: skip
    said = joint.join(rows)
    n_rows = min(1, len(rows)) if is_one else len(rows)
    return Layer(name, _ROLES[name], source, said, n_rows, words.tokens(said) if said else 0, n_left, alerts)


def _within(rows: Sequence[str], most: int, *, keep: Kept, joint: str = "\n") -> tuple[list[str], int]:
    """(the first or the last rows that the budget holds, in their order; how many it does not). A row stays whole, and
    what stands between rows costs too.

    >>> _within(["one", "two", "three"], 4, keep="last")
    (['two', 'three'], 1)
    """
    found: list[str] = []
    left = most
    for row in rows if keep == "first" else reversed(rows):
        left -= words.tokens(row)
        if left < 0:
            break
        found.append(row)
    while found and words.tokens(joint.join(found)) > most:
        found.pop()
    return (found if keep == "first" else found[::-1]), len(rows) - len(found)


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


def here(now: datetime, facts: Mapping[str, str]) -> str:
    """The line that says what time it is and where one is.

    >>> from datetime import timezone
    >>> here(datetime(2026, 11, 22, 9, 5, tzinfo=timezone.utc), {"machine": "toad", "project": ""})
    'Now: Sunday, 2026-11-22 09:05 UTC+00:00. Machine: toad.'
    """
    shift = now.strftime("%z")
    at = f"{now:%A}, {now:%Y-%m-%d %H:%M} UTC{shift[:3]}:{shift[3:5]}"
    return " ".join([f"Now: {at}.", *(f"{name.capitalize()}: {value}." for name, value in facts.items() if value)])
