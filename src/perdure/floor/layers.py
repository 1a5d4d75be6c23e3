"""The layers of C₀ in their order: each within its budget of tokens, or all within the room of one block. Pure.

The same pages, cards and insights give the same layers, byte for byte: a provider's cache relies on that,
and the layers stay the same when the model is changed. A text that was cut says so; a text that looks
like an injection is left out and reported. Time and location change with every message, so they are no
layer: `format_location_line` makes them for the end of the message. No page is read and no block is
recorded here.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Literal, NamedTuple

from perdure.access import fence
from perdure.access.redact import mask
from perdure.access.scan import Finding, digest_text, scan
from perdure.access.shown_alerts import DIGEST_CHARS
from perdure.config import FloorConfig
from perdure.floor import notes, pages
from perdure.floor.state import FloorCard
from perdure.regex import lazy_re
from perdure.text import ELLIPSIS, one_line, split, tokens

# layers -------------------------------------------------------------------------------------------------------

REBUILD_RATIO = 1.2  # times its target: a larger recent.md is rebuilt (row F12)
MAX_VALUE_CHARS = 200  # of a variable or a fact
MIN_PAGE_SHARE = 0.5  # of its budget: if whole paragraphs take less, a part of the next follows
DAY_STARTS_AT_H = 6  # a night's work belongs to the day before (row F04)
_VARIABLE = lazy_re(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_HTML_COMMENT = lazy_re(r"[ \t]*<!--.*?-->", 16)  # DOTALL; comments about lines must cost no tokens
_LATER_LINE_START = lazy_re(r"(?<=\n)(?=[^\n])")  # start of every line but the first
_LINE_BREAKS = "\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"  # characters that a reader may take for a line end
_OWNER_LAYERS = ("system", "profile")  # layers in the owner's words
InjectionFinder = Callable[[str], Sequence[Finding]]
KeptEnd = Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class FloorMaterial:
    """The input of the layers."""

    pages: Mapping[str, str]  # name -> text
    cards: Sequence[FloorCard]  # oldest first; those of this project and those without one
    insights: Sequence[str]  # surest first
    variables: Mapping[str, str]  # for the system prompt
    today: date  # by the diary's clock
    project: str | None = None  # of the session: notes of other projects are left out
    facts: Mapping[str, str] = field(default_factory=dict)  # of the location line; they are scanned too
    conversations: Sequence[str] = ()  # the latest of this project, a line each, newest first


@dataclass(frozen=True, slots=True)
class Suspect:
    """A text that is left out until its owner allows it."""

    location: str  # the page, the id of a card, or "insights"
    text: str  # in the form for injection
    finding: Finding

    @property
    def digest(self) -> str:
        """The name by which it is allowed."""
        return digest_text(self.text)

    @property
    def alert(self) -> str:
        """The message to the person."""
        short_digest, finding = self.digest[:DIGEST_CHARS], self.finding
        return f"{self.location} was left out ({short_digest}): {finding.rule}, {finding.excerpt!r}"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a context."""

    name: str
    role: str  # its purpose, in words
    source: str  # the page, "journal" or "archive"
    text: str  # "" if there is none
    n_rows: int = 0  # pages, cards, notes in it
    n_tokens: int = 0  # everything it adds to a context, its heading included
    n_left: int = 0  # rows that did not fit; they stay in their page
    suspects: tuple[Suspect, ...] = ()
    unknown_variables: tuple[str, ...] = ()  # variables without a value
    rows: tuple[str, ...] = ()  # the text in pieces that stay whole if a client has little room
    separator: str = "\n\n"  # between the rows

    @property
    def alerts(self) -> tuple[str, ...]:
        """Messages about suspected texts and about variables without a value."""
        return (*(suspect.alert for suspect in self.suspects), *self.missing_values.values())

    @property
    def missing_values(self) -> dict[str, str]:
        """Messages about variables without a value, by source and name."""
        return {
            f"{self.source}:{name}": f"{self.source}: there is no value for {{{{{name}}}}}"
            for name in self.unknown_variables
        }

    @property
    def headed_text(self) -> str:
        """The text under the layer's name, as a context holds it; "" if there is none."""
        return add_heading(self.name, self.text) if self.text else ""


@dataclass(frozen=True, slots=True)
class Layers:
    """C₀ for one session."""

    layers: tuple[Layer, ...]  # in order, also those without text
    suspect_facts: tuple[Suspect, ...] = ()  # facts left out of the location line

    @property
    def text(self) -> str:
        """All layers, each under its name."""
        return "\n\n".join(layer.headed_text for layer in self.layers if layer.text)

    @property
    def n_tokens(self) -> int:
        """The cost in every context: the sum over the layers."""
        return sum(layer.n_tokens for layer in self.layers)

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """All texts that were left out because they look like an injection."""
        return (*(suspect for layer in self.layers for suspect in layer.suspects), *self.suspect_facts)

    @property
    def missing_values(self) -> dict[str, str]:
        """Messages about variables without a value, by source and name."""
        return {name: explanation for layer in self.layers for name, explanation in layer.missing_values.items()}

    @property
    def alerts(self) -> tuple[str, ...]:
        """All messages that a person must see."""
        return (
            *(alert for layer in self.layers for alert in layer.alerts),
            *(suspect.alert for suspect in self.suspect_facts),
        )


class KeptLayer(NamedTuple):
    """Everything that a home keeps in one of its layers, in a session or not."""

    name: str
    source: str
    n_rows: int
    n_tokens: int
    role: str


_ROLES = {
    "system": "the role of the agent and its rules",
    "profile": "the owner, in their own words",
    "core": "facts for every session",
    "notes": "notes, newest last",
    "insights": "rules for next time that proved useful",
    "cards": "short texts for every session, oldest first",
    "recent": "the latest conversations of this project",
    "overall": "a summary of recent work in all projects",
    "diary": "summaries of the days before",
}

_BLANK = rf"[^\S{_LINE_BREAKS}]"
_LAYER_HEADING = lazy_re(
    rf"(?<![^{_LINE_BREAKS}])(?=(?:{_BLANK}|[>*+-])*#+{_BLANK}*({'|'.join(_ROLES)})\b)", re.IGNORECASE
)


def get_budget(name: str, budgets: FloorConfig) -> int:
    """Return the most tokens of a layer; for the diary, of each of its two pages.

    recent.md may grow beyond the size it is written for before it is rebuilt.
    """
    max_tokens: int = getattr(budgets, f"{name}_tokens")
    return math.ceil(max_tokens * REBUILD_RATIO) if name == "overall" else max_tokens


def add_heading(name: str, text: str) -> str:
    """Return a layer's text under its name."""
    return f"# {name}\n\n{text}"


def list_needed_pages(today: date, *, overall: bool) -> list[str]:
    """List the pages that the layers need on a day of the diary. overall: also recent.md, about all projects."""
    names = [pages.SYSTEM, pages.PROFILE, pages.CORE, pages.NOTES, *([pages.RECENT] if overall else [])]
    return names + [_to_diary_name(day) for day in _list_diary_days(today)]


def defuse_headings(text: str, name: str = "") -> str:
    r"""Mark every line that looks like the heading of another layer, so that it is none.

    >>> defuse_headings("tabs\n\n# Profile\n\nThe owner wants it")
    'tabs\n\n| # Profile\n\nThe owner wants it'
    """
    return _LAYER_HEADING.sub(lambda match: "" if match[1].lower() == name else "| ", text)


def _list_diary_days(today: date) -> tuple[date, date]:
    return today - timedelta(days=1), today


def _to_diary_name(day: date) -> str:
    return f"{pages.DIARY}/{day.isoformat()}.md"


def assemble(material: FloorMaterial, budgets: FloorConfig, find_injections: InjectionFinder) -> Layers:
    """Assemble the layers of a session. find_injections: the findings in a text that its owner has not allowed."""
    builder = _LayerBuilder(material, budgets, find_injections)
    layers = (
        builder.build_system(),
        builder.build_page("profile", pages.PROFILE),
        builder.build_page("core", pages.CORE),
        builder.build_notes(),
        builder.build_insights(),
        builder.build_cards(),
        builder.build_recent(),
        builder.build_page("overall", pages.RECENT),
        builder.build_diary(),
    )
    return Layers(layers, clean_values(material.facts, find_injections)[1])


@dataclass(frozen=True)
class _LayerBuilder:
    material: FloorMaterial
    budgets: FloorConfig
    find_injections: InjectionFinder

    def build_system(self) -> Layer:
        template = self._read_page(pages.SYSTEM)
        if suspects := self._find_suspects(template, pages.SYSTEM):
            return _make_layer("system", pages.SYSTEM, [], suspects=suspects)
        variables = self.material.variables
        used_values = {name: variables[name] for name in _VARIABLE.findall(template) if name in variables}
        clean_used, suspects = clean_values(used_values, self.find_injections)
        text, missing = fill_variables(template, clean_used)
        unknown = tuple(name for name in missing if name not in variables)
        layer = self._cut_to_budget("system", pages.SYSTEM, text, self._count_text_tokens("system"))
        return replace(layer, unknown_variables=unknown, suspects=suspects)

    def build_page(self, name: str, source: str) -> Layer:
        return self._build_from_page(name, source, self._count_text_tokens(name))

    def build_notes(self) -> Layer:
        text = clean_page_text(
            notes.select_for_project(self.material.pages.get(pages.NOTES, ""), self.material.project)
        )
        lines = [line for line in text.splitlines() if line.strip()]
        suspects = self._find_suspects(text, pages.NOTES)
        if suspects:
            lines, suspects = self._split_suspect_lines(lines) or ([], suspects)
        defused_lines = [defuse_headings(line, "notes") for line in lines]
        kept_lines, n_left = _select_rows(defused_lines, self._count_text_tokens("notes"), keep="last", separator="\n")
        return _make_layer("notes", pages.NOTES, kept_lines, separator="\n", n_left=n_left, suspects=suspects)

    def _split_suspect_lines(self, lines: Sequence[str]) -> tuple[list[str], tuple[Suspect, ...]] | None:
        """Return (fine lines, suspects) if the fine lines raise no suspicion without the others; else None."""
        suspects = {line: line_suspects for line in lines if (line_suspects := self._find_suspects(line, pages.NOTES))}
        fine_lines = [line for line in lines if line not in suspects]
        if self.find_injections(
            "\n".join(line for line in fine_lines if not scan(line))
        ):  # skip lines that the owner allowed
            return None
        return fine_lines, tuple(suspect for line_suspects in suspects.values() for suspect in line_suspects)

    def build_list(
        self, name: str, rows: Sequence[tuple[str, str]], *, keep: KeptEnd, source: str = "journal"
    ) -> Layer:
        """Build a layer from rows (location, text), each checked alone: a suspected row goes alone."""
        suspects: list[Suspect] = []

        def select_fine() -> Iterator[str]:
            for location, row in rows if keep == "first" else reversed(rows):
                row_suspects = self._find_suspects(row, location)
                suspects.extend(row_suspects)
                if not row_suspects:
                    yield f"- {_LATER_LINE_START.sub('  ', defuse_headings(_mask_cached(row)))}"

        kept_rows, _ = _fit_rows(select_fine(), self._count_text_tokens(name), "\n")
        ordered_rows = kept_rows if keep == "first" else kept_rows[::-1]
        n_left = len(rows) - len(suspects) - len(kept_rows)
        return _make_layer(name, source, ordered_rows, separator="\n", n_left=n_left, suspects=tuple(suspects))

    def build_insights(self) -> Layer:
        return self.build_list("insights", [("insights", text) for text in self.material.insights], keep="first")

    def build_recent(self) -> Layer:
        rows = [("recent", row) for row in self.material.conversations]
        return replace(self.build_list("recent", rows, keep="first", source="archive"), n_left=0)  # it is a selection

    def build_cards(self) -> Layer:
        return self.build_list("cards", [(card.id, card.text) for card in self.material.cards], keep="last")

    def build_diary(self) -> Layer:
        day_texts: list[str] = []
        suspects: list[Suspect] = []
        n_left = 0
        for day in _list_diary_days(self.material.today):
            name = _to_diary_name(day)
            heading = f"## {day.isoformat()}\n\n"
            layer = self._build_from_page("diary", name, self._count_text_tokens("diary") - tokens(heading))
            day_texts += [heading + layer.text] if layer.text else []
            suspects += layer.suspects
            n_left += layer.n_left
        return _make_layer("diary", f"{pages.DIARY}/", day_texts, n_left=n_left, suspects=tuple(suspects))

    def _count_text_tokens(self, name: str) -> int:
        """Return the tokens that a layer's text may have, besides its heading."""
        return get_budget(name, self.budgets) - tokens(add_heading(name, "\n\n"))

    def _read_page(self, name: str) -> str:
        return clean_page_text(self.material.pages.get(name, ""))

    def _find_suspects(self, text: str, location: str) -> tuple[Suspect, ...]:
        return tuple(Suspect(location, text, finding) for finding in self.find_injections(text)[:1]) if text else ()

    def _build_from_page(self, name: str, source: str, max_tokens: int) -> Layer:
        text = self._read_page(source)
        if suspects := self._find_suspects(text, source):
            return _make_layer(name, source, [], suspects=suspects)
        return self._cut_to_budget(name, source, text, max_tokens)

    def _cut_to_budget(self, name: str, source: str, text: str, max_tokens: int) -> Layer:
        page_text = text if name in _OWNER_LAYERS else defuse_headings(text, name)
        rows = page_text.split("\n\n") if page_text else []
        kept_rows, n_whole = _fit_rows(rows, max_tokens, "\n\n", min_share=MIN_PAGE_SHARE)
        return _make_layer(name, source, kept_rows, n_left=len(rows) - n_whole, is_single_row=True)


def _make_layer(
    name: str, source: str, rows: Sequence[str], *, separator: str = "\n\n", n_left: int = 0,
    suspects: tuple[Suspect, ...] = (), is_single_row: bool = False,
) -> Layer:  # fmt: skip
    text = separator.join(rows)
    n_rows = min(1, len(rows)) if is_single_row else len(rows)
    n_tokens = tokens(add_heading(name, text) + "\n\n") if text else 0
    return Layer(name, _ROLES[name], source, text, n_rows, n_tokens, n_left, suspects, (), tuple(rows), separator)


def _select_rows(
    rows: Sequence[str], max_tokens: int, *, keep: KeptEnd, separator: str = "\n\n"
) -> tuple[list[str], int]:
    r"""Return (the first or last rows that fit the budget, in their order; how many do not fit).

    A row stays whole, unless none fits: then the result is the beginning of one.

    "two" and "three" have 1 and 2 tokens, line ends included:

    >>> _select_rows(["one", "two", "three"], 3, keep="last", separator="\n")
    (['two', 'three'], 1)
    """
    selected, _ = _fit_rows(rows if keep == "first" else reversed(rows), max_tokens, separator)
    return (selected if keep == "first" else selected[::-1]), len(rows) - len(selected)


def _fit_rows(rows: Iterable[str], max_tokens: int, separator: str, *, min_share: float = 0.0) -> tuple[list[str], int]:
    """Return (the rows that fit a budget, how many of them are whole), up to the first row that does not fit.

    The beginning of that row is added if the others take at most the share `min_share` of the budget.
    """
    fitting: list[str] = []
    left_tokens = max_tokens
    for row in rows:
        cost = _count_tokens_cached(row + separator)
        if cost > left_tokens:
            row_start = (
                _cut_row(row, left_tokens - _count_tokens_cached(f" {ELLIPSIS}{separator}"))
                if max_tokens - left_tokens <= max_tokens * min_share
                else ""
            )
            return fitting + [f"{row_start} {ELLIPSIS}"] * bool(row_start), len(fitting)
        fitting.append(row)
        left_tokens -= cost
    return fitting, len(fitting)


def _cut_row(row: str, max_tokens: int) -> str:
    """Return as much of a row as fits a budget: up to the end of a line, else of a sentence, else of a word.

    >>> _cut_row("Ada wants short answers. The command comes first.", 8)
    'Ada wants short answers.'
    """
    n_chars = bisect_right(range(len(row) + 1), max_tokens, key=lambda n: tokens(row[:n])) - 1
    if n_chars < 1:
        return ""
    start, end = split(row[: n_chars + 1], max_chars=n_chars, overlap_chars=0)[0]
    return row[start:end].rstrip()


# texts and values ---------------------------------------------------------------------------------------------


def clean_page_text(text: str) -> str:
    r"""Return a page's text for a context: without secrets, and without comments about its own lines.

    >>> clean_page_text("- tabs <!-- said 2026-11-21 -->\n")
    '- tabs'
    """
    return _HTML_COMMENT.sub("", _mask_cached(text)).strip()


_mask_cached = lru_cache(maxsize=2048)(mask)  # cards and pages are read often and change seldom
_count_tokens_cached = lru_cache(maxsize=4096)(tokens)


def clean_values(
    values: Mapping[str, str], find_injections: InjectionFinder
) -> tuple[dict[str, str], tuple[Suspect, ...]]:
    r"""Return (values as one printable line each, the values that look like an injection and are left out).

    >>> clean_values({"project": "a\n\n# profile"}, lambda text: ())
    ({'project': 'a # profile'}, ())
    """
    lines = {name: defuse_headings(one_line(value, MAX_VALUE_CHARS)) for name, value in values.items()}
    findings_by_name = {name: find_injections(line)[:1] for name, line in lines.items() if line}
    suspects = tuple(
        Suspect(f"the name of the {name}", lines[name], finding)
        for name, findings in findings_by_name.items()
        for finding in findings
    )
    return {name: line for name, line in lines.items() if not findings_by_name.get(name)}, suspects


def fill_variables(template: str, variables: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return (a system prompt with its variables filled in, the names without a value; those stay as they are).

    >>> fill_variables("On {{platform}}, {{mood}}.", {"platform": "pi"})
    ('On pi, {{mood}}.', ['mood'])
    """
    unknown_names: dict[str, None] = {}

    def find_value(name: str, placeholder: str) -> str:
        if name not in variables:
            unknown_names[name] = None
        return variables.get(name, placeholder)

    return _VARIABLE.sub(lambda match: find_value(match[1], match[0]), template), list(unknown_names)


def to_diary_day(now: datetime) -> date:
    """Return the diary day to which a moment belongs, by the local clock.

    >>> to_diary_day(datetime(2026, 11, 22, 5, 59)).isoformat()
    '2026-11-21'
    """
    return (now - timedelta(hours=DAY_STARTS_AT_H)).date()


def format_location_line(now: datetime, facts: Mapping[str, str], *, label: str = "Now") -> str:
    """Return the line with the time and the location. label: the word before the time.

    >>> from datetime import timezone
    >>> now = datetime(2026, 11, 22, 9, 5, tzinfo=timezone.utc)
    >>> format_location_line(now, {"machine": "toad", "project": ""})
    'Now: Sunday, 2026-11-22 09:05 UTC+00:00. Machine: toad.'
    """
    utc_offset = now.strftime("%z")
    timestamp = f"{now:%A}, {now:%Y-%m-%d %H:%M} UTC{utc_offset[:3]}:{utc_offset[3:5]}"
    return " ".join(
        [f"{label}: {timestamp}.", *(f"{name.capitalize()}: {value}." for name, value in facts.items() if value)]
    )


# the block of a session ---------------------------------------------------------------------------------------

# The owner's words and lasting facts weigh most, then notes and recent events, then long texts that are seldom needed.
# An agent's system prompt has half the weight of the profile: a client that cuts has a system prompt of its own, and
# the description of the agent comes first in it.
WEIGHTS = {"profile": 4, "core": 4, "notes": 3, "recent": 3, "overall": 3, "system": 2, "insights": 2, "cards": 2,
           "diary": 1}  # fmt: skip
LEFT_OUT_NOTE_SIZE = 240  # room kept for the line about what was left out
MAX_PIECE_CHARS = 200  # pieces of a row that exceeds its layer's share of the room
_CUT_MARK = f" {ELLIPSIS}"  # ends a row that was cut
_NEWEST_LAST = ("notes", "cards", "diary")  # these keep their last rows, the others their first
_ROW_NOUNS = {"notes": "older notes", "insights": "insights", "cards": "older cards", "diary": "pages of the diary"}
SizeOf = Callable[[str], int]


def render_floor_block(
    layers: Sequence[Layer], location_line: str, nonce: str, room: int | None, *, size_of: SizeOf = len
) -> str:
    """Render the fenced block that a session begins with, within `room`; "" if there is nothing to say.

    location_line: time and location, which are no reason for a block alone.
    """
    location_size = size_of(fence.fence_items([location_line], nonce, warning=fence.FLOOR_WARNING))
    layer_texts = fit_layers(
        layers, None if room is None else room - location_size, lambda text: size_of(fence.defuse_item(f"\n{text}"))
    )
    return fence.fence_items([location_line, *layer_texts], nonce, warning=fence.FLOOR_WARNING) if layer_texts else ""


def fit_layers(layers: Sequence[Layer], room: int | None, size_of: SizeOf = len) -> list[str]:
    r"""Return the layers under their names, in their order, within `room`, and last what was left out.

    None: all of them.

    size_of: size of a text, in the unit of the room.

    >>> fit_layers([Layer("core", "", "core.md", "Tea, not coffee.")], 1000)
    ['# core\n\nTea, not coffee.']
    """
    layer_texts = [add_heading(layer.name, layer.text) for layer in layers if layer.text]
    n_left_by_name = {layer.name: layer.n_left for layer in layers}
    if room is not None and sum(size_of(f"{fill}\n\n") for fill in layer_texts) > room - LEFT_OUT_NOTE_SIZE:
        fills = _fill_layers(layers, room - LEFT_OUT_NOTE_SIZE, size_of)
        layer_texts = [fill.render() for fill in fills if fill.n_taken]
        n_left_by_name |= {fill.name: fill.n_waiting + fill.layer.n_left for fill in fills}
    return (
        [*layer_texts, *_describe_left_out(n_left_by_name)]
        if layer_texts or room is None or room >= LEFT_OUT_NOTE_SIZE
        else []
    )


@dataclass
class _LayerFill:
    """One layer while it is filled. share: the room it may take before one of its rows is cut into pieces."""

    layer: Layer
    share: float
    size_of: SizeOf
    used_size: int = 0
    n_taken: int = 0  # pieces

    @property
    def name(self) -> str:
        """The name of the layer."""
        return self.layer.name

    @cached_property
    def pieces(self) -> list[list[str]]:
        """The rows in the order in which they are taken, each split into pieces that stay whole."""
        rows = self.layer.rows if self.name in _ROW_NOUNS else self.layer.text.split("\n")
        return [
            _split_row(row, self.share, self.size_of) for row in (rows[::-1] if self.name in _NEWEST_LAST else rows)
        ]

    @cached_property
    def costs(self) -> list[int]:
        """The size of each piece, in the same order."""
        costs: list[int] = []
        for pieces in self.pieces:
            prefix = "\n\n" if costs else f"\n\n{add_heading(self.name, '')}"
            cut_mark = _CUT_MARK if len(pieces) > 1 else ""
            costs += [self.size_of(prefix + cut_mark + pieces[0]), *(self.size_of(f" {piece}") for piece in pieces[1:])]
        return costs

    @property
    def is_complete(self) -> bool:
        """True if every piece was taken."""
        return self.n_taken == len(self.costs)

    @property
    def fill_ratio(self) -> float:
        """Size taken, divided by the layer's weight."""
        return self.used_size / WEIGHTS[self.name]

    @property
    def n_waiting(self) -> int:
        """Number of rows that were not taken whole."""
        ends = accumulate(len(pieces) for pieces in self.pieces)
        return sum(end > self.n_taken for end in ends)

    def take_piece(self, cost: int) -> None:
        """Take the next piece."""
        self.used_size, self.n_taken = self.used_size + cost, self.n_taken + 1

    def render(self) -> str:
        """Return the pieces that were taken, under the layer's name."""
        rows, n_pieces_left = [], self.n_taken
        for pieces in self.pieces:
            if n_pieces_left > 0:
                rows.append(
                    "".join(pieces[:n_pieces_left]).rstrip() + (_CUT_MARK if n_pieces_left < len(pieces) else "")
                )
            n_pieces_left -= len(pieces)
        ordered_rows = rows[::-1] if self.name in _NEWEST_LAST else rows
        return add_heading(
            self.name, (self.layer.separator if self.name in _ROW_NOUNS else "\n").join(ordered_rows).rstrip()
        )


def _split_row(row: str, share: float, size_of: SizeOf) -> list[str]:
    """Split a row into pieces of a few sentences if it is larger than its layer's share of the room."""
    if len(row) <= MAX_PIECE_CHARS or size_of(row) <= share:
        return [row]
    return [row[start:end] for start, end in split(row, max_chars=MAX_PIECE_CHARS, overlap_chars=0)]


def _fill_layers(layers: Sequence[Layer], room: int, size_of: SizeOf) -> list[_LayerFill]:
    """Fill the layers that have a text, and return them in their order."""
    filled_layers = [layer for layer in layers if layer.text]
    total_weight = sum(WEIGHTS[layer.name] for layer in filled_layers)
    fills = [_LayerFill(layer, room * WEIGHTS[layer.name] / total_weight, size_of) for layer in filled_layers]
    growing = sorted(fills, key=lambda fill: -WEIGHTS[fill.name])
    while growing:
        least_filled = min(growing, key=lambda fill: fill.fill_ratio)
        cost = least_filled.costs[least_filled.n_taken]
        if cost <= room:
            least_filled.take_piece(cost)
            room -= cost
            if not least_filled.is_complete:
                continue
        growing.remove(least_filled)  # complete, or the next piece does not fit: a later piece would leave a gap
    return fills


def _describe_left_out(n_left_by_name: Mapping[str, int]) -> list[str]:
    """Return a line that says what was left out, if anything was."""
    counts = [
        f"{n} {_ROW_NOUNS[name]}" if name in _ROW_NOUNS else f"the rest of {name}"
        for name, n in n_left_by_name.items()
        if n
    ]
    return [f"Not here, for want of room: {', '.join(counts)}. `perdure floor show` has all of it."] if counts else []
