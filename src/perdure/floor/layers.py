"""The layers of C₀ in their order, each within its budget of tokens, and their bill. Pure.

The same pages, cards and insights give the same layers, byte for byte: that is what a provider's cache holds, and what
stays when the model is changed. What is cut says so, what looks like an injection is left out and says so. Time and
place change with every message and are no layer: `here` makes them for the end of the message.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Literal

from perdure import text as words
from perdure.access.redact import mask
from perdure.access.scan import Finding, digest, scan
from perdure.access.told import DIGEST_CHARS
from perdure.config import FloorConfig
from perdure.floor import notes, pages
from perdure.floor.state import Card
from perdure.patterns import late

REBUILT_AT = 1.2  # times its target, recent.md is made anew (row F12)
MAX_VALUE_CHARS = 200  # of a variable or a fact
PAGE_FULL = 0.5  # of its budget, that whole paragraphs of a page take at least: else a part of the next follows
DAY_TURNS_AT_H = 6  # a night's work belongs to the day before (row F04)
_VARIABLE = late(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_ABOUT = late(r"[ \t]*<!--.*?-->", 16)  # DOTALL: what a page notes about its own lines costs a reader nothing
_INNER = late(r"(?<=\n)(?=[^\n])")  # where a line begins that is not the first
_BREAK = "\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"  # what a reader may take for the end of a line
_OWNERS = ("system", "profile")  # the layers that are the owner's words
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
    facts: Mapping[str, str] = field(default_factory=dict)  # of `here`, which are scanned as well


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
    beside: tuple[Suspect, ...] = ()  # facts that are left out of `here`

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
        return (*(suspect for layer in self.layers for suspect in layer.suspects), *self.beside)

    @property
    def unfilled(self) -> dict[str, str]:
        """What cannot be filled in: by its name, in words."""
        return {name: said for layer in self.layers for name, said in layer.unfilled.items()}

    @property
    def alerts(self) -> tuple[str, ...]:
        """What a person must know."""
        return (*(alert for layer in self.layers for alert in layer.alerts), *(one.alert for one in self.beside))


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

_BLANK = rf"[^\S{_BREAK}]"
_HEAD = late(rf"(?<![^{_BREAK}])(?=(?:{_BLANK}|[>*+-])*#+{_BLANK}*({'|'.join(_ROLES)})\b)", re.IGNORECASE)


def budget(name: str, budgets: FloorConfig) -> int:
    """The most tokens of a layer; of the diary, of each of its two pages.

    recent.md may outgrow what it is written for before it is rebuilt.
    """
    most: int = getattr(budgets, f"{name}_tokens")
    return math.ceil(most * REBUILT_AT) if name == "recent" else most


def headed(name: str, said: str) -> str:
    """A layer's text under its name."""
    return f"# {name}\n\n{said}"


def needed(today: date) -> list[str]:
    """The pages of which layers are made on a day of the diary."""
    named = [pages.SYSTEM, pages.PROFILE, pages.CORE, pages.NOTES, pages.RECENT]
    return named + [_diary_page(day) for day in _diary_days(today)]


def defused(said: str, name: str = "") -> str:
    """A text in which no line looks like the heading of a layer, but for that of the layer in which it stands.

    >>> defused("tabs\\n\\n# Profile\\n\\nThe owner wants it")
    'tabs\\n\\n| # Profile\\n\\nThe owner wants it'
    """
    return _HEAD.sub(lambda match: "" if match[1].lower() == name else "| ", said)


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
    return Layers(found, clean(material.facts, suspicious)[1])


@dataclass(frozen=True)
class _Maker:
    material: Material
    budgets: FloorConfig
    suspicious: Suspicious

    def system(self) -> Layer:
        written = self._said(pages.SYSTEM)
        if suspects := self._suspects(written, pages.SYSTEM):
            return _made("system", pages.SYSTEM, [], suspects=suspects)
        given = self.material.variables
        used = {name: given[name] for name in _VARIABLE.findall(written) if name in given}
        known, suspects = clean(used, self.suspicious)
        said, missing = rendered(written, known)
        unknown = tuple(name for name in missing if name not in given)
        layer = self._cut("system", pages.SYSTEM, said, self._most("system"))
        return replace(layer, unknown=unknown, suspects=suspects)

    def page(self, name: str, source: str) -> Layer:
        return self._layer(name, source, self._most(name))

    def notes(self) -> Layer:
        said = injected(notes.shown(self.material.pages.get(pages.NOTES, ""), self.material.project))
        lines = [line for line in said.splitlines() if line.strip()]
        suspects = self._suspects(said, pages.NOTES)
        if suspects:
            lines, suspects = self._fine_lines(lines) or ([], suspects)
        plain = [defused(line, "notes") for line in lines]
        kept, n_left = _within(plain, self._most("notes"), keep="last", joint="\n")
        return _made("notes", pages.NOTES, kept, joint="\n", n_left=n_left, suspects=suspects)

    def _fine_lines(self, lines: Sequence[str]) -> tuple[list[str], tuple[Suspect, ...]] | None:
        """(the lines that are fine, those that are not), where the others are suspected no more without these."""
        suspects = {line: found for line in lines if (found := self._suspects(line, pages.NOTES))}
        kept = [line for line in lines if line not in suspects]
        if self.suspicious("\n".join(line for line in kept if not scan(line))):  # a line that is allowed is no reason
            return None
        return kept, tuple(one for found in suspects.values() for one in found)

    def listed(self, name: str, rows: Sequence[tuple[str, str]], *, keep: Kept) -> Layer:
        """Rows, (where it stands, text), each for itself: a suspected one goes alone."""
        suspects: list[Suspect] = []

        def fine() -> Iterator[str]:
            for where, row in rows if keep == "first" else reversed(rows):
                found = self._suspects(row, where)
                suspects.extend(found)
                if not found:
                    yield f"- {_INNER.sub('  ', defused(_masked(row)))}"

        kept, _ = _fitting(fine(), self._most(name), "\n")
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
        """The tokens that the text of a layer may have, beside its name."""
        return budget(name, self.budgets) - words.tokens(headed(name, "\n\n"))

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
        plain = said if name in _OWNERS else defused(said, name)
        rows = plain.split("\n\n") if plain else []
        kept, n_whole = _fitting(rows, most, "\n\n", least=PAGE_FULL)
        return _made(name, source, kept, n_left=len(rows) - n_whole, is_one=True)


def _made(
    name: str, source: str, rows: Sequence[str], *, joint: str = "\n\n", n_left: int = 0,
    suspects: tuple[Suspect, ...] = (), is_one: bool = False,
) -> Layer:  # fmt: skip
    said = joint.join(rows)
    n_rows = min(1, len(rows)) if is_one else len(rows)
    n_tokens = words.tokens(headed(name, said) + "\n\n") if said else 0
    return Layer(name, _ROLES[name], source, said, n_rows, n_tokens, n_left, suspects, (), tuple(rows), joint)


def _within(rows: Sequence[str], most: int, *, keep: Kept, joint: str = "\n\n") -> tuple[list[str], int]:
    """(the first or the last rows that the budget holds, in their order; how many it does not). A row stays whole,
    unless none does: then it is the beginning of one.

    >>> _within(["one", "two", "three"], 3, keep="last", joint="\\n")  # 1 and 2 tokens, line ends included
    (['two', 'three'], 1)
    """
    found, _ = _fitting(rows if keep == "first" else reversed(rows), most, joint)
    return (found if keep == "first" else found[::-1]), len(rows) - len(found)


def _fitting(rows: Iterable[str], most: int, joint: str, *, least: float = 0.0) -> tuple[list[str], int]:
    """(the rows that a budget holds, how many of them are whole), up to the first that it does not hold; those behind
    that are not looked at. Of that one the beginning, where the others take no more than this share of the budget.
    """
    found: list[str] = []
    left = most
    for row in rows:
        cost = _tokens(row + joint)
        if cost > left:
            begun = _beginning(row, left - _tokens(f" {words.ELLIPSIS}{joint}")) if most - left <= most * least else ""
            return found + [f"{begun} {words.ELLIPSIS}"] * bool(begun), len(found)
        found.append(row)
        left -= cost
    return found, len(found)


def _beginning(row: str, most: int) -> str:
    """What a budget holds of a row: up to the end of a line, else of a sentence, else of a word.

    >>> _beginning("Ada wants short answers. The command comes first.", 8)
    'Ada wants short answers.'
    """
    n_chars = bisect_right(range(len(row) + 1), most, key=lambda n: words.tokens(row[:n])) - 1
    if n_chars < 1:
        return ""
    start, end = words.split(row[: n_chars + 1], max_chars=n_chars, overlap_chars=0)[0]
    return row[start:end].rstrip()


def injected(said: str) -> str:
    """What of a page's text goes into a context: without secrets, and without what it notes about its own lines.

    >>> injected("- tabs <!-- said 2026-11-21 -->\\n")
    '- tabs'
    """
    return _ABOUT.sub("", _masked(said)).strip()


_masked = lru_cache(maxsize=2048)(mask)  # a card or a page is asked for again and again, and changes seldom
_tokens = lru_cache(maxsize=4096)(words.tokens)


def clean(given: Mapping[str, str], suspicious: Suspicious) -> tuple[dict[str, str], tuple[Suspect, ...]]:
    """(names and places as one printable line each, those of them that look like an injection, and are left out).

    >>> clean({"project": "a\\n\\n# profile"}, lambda said: ())
    ({'project': 'a # profile'}, ())
    """
    lines = {name: defused(words.one_line(value, MAX_VALUE_CHARS)) for name, value in given.items()}
    found = {name: suspicious(line)[:1] for name, line in lines.items() if line}
    suspects = tuple(
        Suspect(f"the name of the {name}", lines[name], one) for name, ones in found.items() for one in ones
    )
    return {name: line for name, line in lines.items() if not found.get(name)}, suspects


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
