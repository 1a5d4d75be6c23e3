"""`/search`: search by words, meaning and filters; and the memories that match.

An address contains the whole question, so it can be shared. The page says what could not be done and
what is not indexed yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from msgspec.structs import replace
from starlette.datastructures import QueryParams

from perdure import text
from perdure.access.redact import mask
from perdure.errors import IndexFault, UsageError
from perdure.recall import judge
from perdure.surfaces.units import format_count, parse_moment
from perdure.surfaces.web import memory_display, visits
from perdure.surfaces.web.render import clean, mask_name, to_key
from perdure.surfaces.web.views.forest import list_newest_sessions, shorten_project, shorten_text
from perdure.surfaces.web.visits import HtmlPage, View, Visit, parse_page_count
from perdure.text import PICTURE_LABEL
from perdure.types import Facets, Filters, Hit, Memory, RunView, SearchResult

PAGE_HITS = 20  # hits
MAX_HITS = 1000  # hits of one question that can be reached page by page
_NAME_FACETS = ("runtime", "machine", "project", "tag", "agent")  # facets whose values are names that users chose
FACETS = (*_NAME_FACETS, "role", "kind")
NO_PROJECT = "-"  # in an address: no project
_SNIPPET_CHARS = 320
_MAX_MEMORIES = 5
_MAX_MEMORIES_READ = 200  # memories found by words, before they are filtered
_MAX_SUGGESTED = 6  # sessions
_MAX_VALUES = 8  # values of one facet shown at once
_LABELS = {
    "runtime": "Client",
    "machine": "Machine",
    "project": "Project",
    "tag": "Tag",
    "agent": "Agent",
    "role": "Said by",
    "kind": "Kind of text",
}
_NAMES = {
    ("role", "assistant"): "agent",
    ("role", "user"): "person",
    ("kind", "call"): "tool call",
    ("kind", "result"): "tool result",
    ("kind", "picture"): PICTURE_LABEL,
    ("role", "machine"): "a program",
    ("role", "notice"): "a notice",
    ("role", "record"): "a record",
}
_SAID_KINDS = ("text",)  # what people and agents said
_SAID_ROLES = ("user", "assistant")
_SIMILAR_SHARE = 0.6  # of the words of two outputs that are equal (Jaccard): from here on they count as one
_COMPARED_CHARS = 4_000  # of an output, when it is compared with another
_MODES = (("", "words and meaning"), ("keyword", "only words"), ("semantic", "only meaning"))
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """The question in an address."""

    words: str = ""
    chosen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # facet -> values; only facets with values
    since: str = ""
    until: str = ""
    mode: str = ""
    with_tools: bool = False  # tool calls, their output, thinking and what programs wrote too
    offset: int = 0
    n_pages: int = 1  # from there

    @property
    def is_empty(self) -> bool:
        """True if nothing is asked."""
        return not (self.words or self.chosen or self.since or self.until)

    def href(self, **changes: Any) -> str:
        """Return the address of this question with some values changed. Unless they say so, of its first page."""
        params = {"q": self.words, **self.keys, "since": self.since, "until": self.until, "mode": self.mode,
                  "tools": "1" if self.with_tools else "", **changes}  # fmt: skip
        pairs = {name: value for name, value in params.items() if value}
        return "/search" + (f"?{urlencode(pairs, doseq=True)}" if pairs else "")

    @property
    def is_said_only(self) -> bool:
        """True if only what people and agents said is searched: unless a filter or the switch asks for more."""
        return not (self.with_tools or "kind" in self.chosen or "tool" in self.chosen.get("role", ()))

    @property
    def keys(self) -> dict[str, list[str]]:
        """Facet -> its values as they appear in an address."""
        return {facet: list(map(to_key, values)) for facet, values in self.chosen.items()}

    def toggle_href(self, facet: str, value: str) -> str:
        """Return the address of this question with one filter added, or removed if it is set."""
        values = self.chosen.get(facet, ())
        other_values = tuple(item for item in values if item != value)
        new_values = other_values if value in values else (*values, value)
        return self.href(**{facet: list(map(to_key, new_values))})


class FilterLink(NamedTuple):
    """One value of a facet, or a chip."""

    label: str
    href: str  # the address with it, or without it if it is chosen
    n: int = 0  # turns
    is_chosen: bool = False
    whole: str = ""  # the whole value, if the label is only its end


class FacetGroup(NamedTuple):
    """One facet."""

    label: str
    first: Sequence[FilterLink]
    rest: Sequence[FilterLink]


def parse_question(query: QueryParams, names: Callable[[str], Iterable[str]] = lambda _: ()) -> SearchQuestion:
    """Parse the question in an address, within its limits. names: returns the known values of a facet.

    Raises UsageError for an invalid offset.
    """
    chosen = {facet: _parse_values(query, facet, names) for facet in FACETS}
    offset = visits.parse_offset(query.get("cursor", ""), MAX_HITS)
    mode = query.get("mode", "")
    words, since, until = (
        clean(query.get(name, "")[: visits.MAX_VALUE_CHARS]).strip() for name in ("q", "since", "until")
    )
    valid_mode = mode if mode in dict(_MODES) else ""
    non_empty = {name: values for name, values in chosen.items() if values}
    with_tools = query.get("tools", "") == "1"
    return SearchQuestion(words, non_empty, since, until, valid_mode, with_tools, offset, parse_page_count(query))


def _parse_values(query: QueryParams, facet: str, names: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
    """Return the chosen values of a facet, each once, as far as an address may contain them."""
    values = [value for value in query.getlist(facet)[: visits.MAX_VALUES] if 0 < len(value) <= visits.MAX_VALUE_CHARS]
    return tuple(dict.fromkeys(visits.resolve_key(value, lambda: names(facet)) for value in values))


def describe_excess(query: QueryParams) -> list[str]:
    """Say in words which limits an address exceeds."""
    labels = {**_LABELS, "q": "Words", "": "Words and filters"}
    return [f"{labels[name]}: {reason}." for name, reason in visits.find_query_faults(query).items() if name in labels]


def to_filters(question: SearchQuestion, now: datetime) -> tuple[Filters, dict[str, str]]:
    """Return (the filters, field -> error message)."""
    errors: dict[str, str] = {}
    chosen = question.chosen
    filters = Filters(
        runtimes=chosen.get("runtime", ()),
        machines=chosen.get("machine", ()),
        tags=chosen.get("tag", ()),
        projects=tuple("" if value == NO_PROJECT else value for value in chosen.get("project", ())),
        agents=chosen.get("agent", ()),
        roles=chosen.get("role", _SAID_ROLES if question.is_said_only else ()),
        kinds=_SAID_KINDS if question.is_said_only else chosen.get("kind", ()),
        since_at=_parse_instant(question.since, "since", now, errors),
        until_at=_parse_end(question.until, now, errors),
    )
    return filters, errors


def _parse_instant(value: str, name: str, now: datetime, errors: dict[str, str]) -> datetime | None:
    try:
        return parse_moment(value or None, now=now)
    except UsageError as error:
        errors[name] = str(error)
        return None


def _parse_end(value: str, now: datetime, errors: dict[str, str]) -> datetime | None:
    """Return the first instant after the range: for a day, the beginning of the next day."""
    instant = _parse_instant(value, "until", now, errors)
    is_day = instant is not None and len(value) == len("2026-05-01")
    return (
        instant + _DAY
        if instant is not None and is_day and instant < datetime.max.replace(tzinfo=UTC) - _DAY
        else instant
    )


# the page ---------------------------------------------------------------------------------------------------------


def show_search(visit: Visit) -> HtmlPage:
    """Show the page of a question."""
    question = parse_question(visit.query, lambda facet: _list_names(visit, facet))
    filters, errors = to_filters(question, visit.now)
    excess = describe_excess(visit.query)
    values = {
        "title": _make_title(question),
        "question": question,
        "modes": _MODES,
        "spans": list_spans(question, visit.now),
        "chips": list_chips(question),
        "wrong": errors,
        "much": excess,
        "found": None,
        "groups": (),
        "memories": (),
        "sessions": (),
        "newest": (),
        "n_tools": 0,
        "belief": memory_display,
    }
    if errors or excess:
        return HtmlPage("search.html", values, 400)
    if question.is_empty:
        return HtmlPage("search.html", {**values, "newest": list_newest_sessions(visit.home, _MAX_SUGGESTED)})
    return HtmlPage("search.html", {**values, **_run_search(visit, question, filters)})


def _list_names(visit: Visit, facet: str) -> list[str]:
    return visit.home.runs.names(cast(Any, facet)) if facet in _NAME_FACETS else []


def _make_title(question: SearchQuestion) -> str:
    return f"Search: {text.one_line(question.words, 60)}" if question.words else "Search"


def _run_search(visit: Visit, question: SearchQuestion, filters: Filters) -> dict[str, Any]:
    started_s = time.perf_counter()
    is_warm = visit.server.is_warm()
    is_waiting = not is_warm and not question.mode and bool(question.words)
    by_words = None if is_warm else "keyword"  # until the model is loaded, so that nobody waits for it
    mode = question.mode or by_words if question.words else "keyword"  # no words, no meaning: the filters choose
    end = min(question.offset + PAGE_HITS * question.n_pages, MAX_HITS)
    result = visit.home.search(question.words, filters=filters, limit=end + 1, mode=mode)
    similar = fold_similar(result.hits[question.offset : end])
    hit_groups = group_by_session(list(similar), is_ranked=bool(question.words))
    openings = _find_openings(visit, hit_groups)
    is_first = question.offset == 0
    facets = _count_facets(visit, question, filters) if is_first else Facets({})
    every_filter = replace(filters, kinds=(), roles=question.chosen.get("role", ()))
    is_partial = is_first and question.is_said_only
    n_all = _count_turns(_count_facets(visit, question, every_filter)) if is_partial else 0
    return {
        "found": result,
        "sessions": [
            _to_session_row(
                {hit: similar[hit] for hit in group}, result, openings.get(group[0].run_id), visit.home.user
            )
            for group in hit_groups
        ],
        "n_tools": max(0, n_all - _count_turns(facets)),
        "following": question.href(cursor=end) if len(result.hits) > end and end < MAX_HITS else "",
        "groups": list(list_groups(question, facets)),
        "count": describe_count(result, facets),
        "notices": list_notices(result, is_waiting=is_waiting),
        "memories": _find_memories(visit, question, filters) if is_first else (),
        "took_ms": (time.perf_counter() - started_s) * 1000,
    }


def _count_facets(visit: Visit, question: SearchQuestion, filters: Filters) -> Facets:
    try:
        return visit.home.runs.facets(question.words, filters=filters)
    except IndexFault:  # the search fell back to a scan, which counts nothing
        return Facets({})


def _count_turns(facets: Facets) -> int:
    return sum(facets.counts.get("role", {}).values())


def _find_openings(visit: Visit, hit_groups: Sequence[Sequence[Hit]]) -> Mapping[str, RunView]:
    try:
        return visit.home.runs.first_runs(hits[0].run_id for hits in hit_groups)
    except IndexFault:
        return {}


def _find_memories(visit: Visit, question: SearchQuestion, filters: Filters) -> list[Memory]:
    """Return the memories beside the hits, found by words.

    Not by meaning: there is always a nearest memory, however far away it is.
    """
    words = judge.extract_query_words(question.words)
    if text.STOPWORDS.issuperset(words) or not question.chosen.keys() <= {"project"}:  # no memory has a client or role
        return []
    try:
        hits = visit.home.memories.search(question.words, limit=_MAX_MEMORIES_READ, mode="keyword")
    except IndexFault:
        return []
    return list(islice((hit.memory for hit in hits if is_related_memory(hit.memory, words, filters)), _MAX_MEMORIES))


# results ----------------------------------------------------------------------------------------------------------


def is_related_memory(memory: Memory, words: Sequence[str], filters: Filters) -> bool:
    """Return True if a memory belongs beside the hits: it contains one of the words, and it passes the filters."""
    if filters.projects and (memory.project or "") not in filters.projects:
        return False
    if filters.since_at and memory.stated_at < filters.since_at:
        return False
    if filters.until_at and memory.stated_at >= filters.until_at:
        return False
    stems = judge.extract_stems(mask(f"{memory.path} {memory.text}"))
    return any(judge.extract_stems(word) <= stems for word in words)


def group_by_session(hits: Sequence[Hit], *, is_ranked: bool) -> list[list[Hit]]:
    """Group hits by session, the best hit's first; without a ranking, group only consecutive hits."""
    grouped: dict[tuple[object, ...], list[Hit]] = {}
    n_breaks, last_conversation = 0, ""
    for hit in hits:
        n_breaks += 0 if is_ranked or hit.conversation == last_conversation else 1
        last_conversation = hit.conversation
        grouped.setdefault((n_breaks, hit.conversation, hit.user), []).append(hit)
    return list(grouped.values())


def fold_similar(hits: Sequence[Hit]) -> dict[Hit, list[Hit]]:
    """Fold tool calls and outputs that say nearly the same: return each hit that leads, in order -> those below it.

    What people and agents said is never folded.
    """
    folded: dict[Hit, list[Hit]] = {}
    tool_words: dict[Hit, frozenset[str]] = {}
    for hit in hits:
        words = frozenset() if hit.kind in _SAID_KINDS else frozenset(hit.text[:_COMPARED_CHARS].lower().split())
        twin = next((item for item, other_words in tool_words.items() if _is_similar(words, other_words)), None)
        folded.setdefault(twin or hit, []).extend([hit] if twin else [])
        if words and twin is None:
            tool_words[hit] = words
    return folded


def _is_similar(words: frozenset[str], other_words: frozenset[str]) -> bool:
    return bool(words) and len(words & other_words) >= _SIMILAR_SHARE * len(words | other_words)


def _to_session_row(
    hits: Mapping[Hit, Sequence[Hit]], result: SearchResult, opening: RunView | None, reader: str
) -> dict[str, Any]:
    """Return the values of a session's hits, as of fold_similar(). opening: its first run."""
    first = next(iter(hits))
    title = (opening.title or opening.intent if opening else "") or first.title
    return {
        "run_id": opening.run_id if opening else first.run_id,
        "title": shorten_text(title, 90) or "Untitled session",
        "runtime": first.runtime,
        "machine": first.machine,
        "project": shorten_project(first.project),
        "owner": "" if first.user in ("", reader) else first.user,
        "hits": [
            {
                **_to_hit_row(hit, result, reader),
                "similar": [_to_hit_row(twin, result, reader) for twin in similar],
            }
            for hit, similar in hits.items()
        ],
    }


def _to_hit_row(hit: Hit, result: SearchResult, reader: str) -> dict[str, Any]:
    words, _ = text.snippet(text.printable(hit.text), result.terms, _SNIPPET_CHARS)
    return {
        "turn_id": hit.turn_id,
        "role": hit.role,
        "who": name_speaker(hit, reader),
        "words": words,
        "at": hit.stated_at,
        "kind": "" if hit.kind == "text" else describe_value("kind", hit.kind),
        "is_abandoned": hit.abandoned,
        "is_summary": hit.is_summary,
    }


def name_speaker(hit: Hit, reader: str) -> str:
    """Name the speaker of a hit in a word or two.

    >>> from msgspec.structs import replace
    >>> hit = Hit("t", "r", "c", "", "pi", "box", "a", None, "user", "person", "text", None, "", 0.0, user="ada")
    >>> name_speaker(hit, "ada"), name_speaker(hit, "bob"), name_speaker(replace(hit, author="machine"), "ada")
    ('You', 'ada', 'A program')
    """
    if hit.role == "user":
        return "A program" if hit.author == "machine" else "You" if hit.user in ("", reader) else hit.user
    return {"assistant": "Agent", "tool": "Tool", "system": "System"}[hit.role]


def describe_count(result: SearchResult, facets: Facets) -> str:
    """Say in words how many turns match; "" if nobody counted."""
    n = _count_turns(facets)
    if not n or not result.hits:
        return ""
    return f"{'more than ' if facets.is_partial else ''}{format_count(n, 'turn')}"


def list_notices(result: SearchResult, *, is_waiting: bool) -> list[str]:
    """Say in words what could not be done, and what to do about it. is_waiting: the model is not loaded yet."""
    messages = []
    if "vector" in result.degraded:
        messages.append("Only words were searched: vectors are not available. `perdure doctor` shows the reason.")
    elif is_waiting:
        messages.append("Only words were searched: the model is still loading. Search again in a moment.")
    if result.n_unembedded:
        messages.append(f"Search by meaning does not cover {format_count(result.n_unembedded, 'piece')} of text yet.")
    if "index" in result.degraded:
        messages.append(
            "The index cannot be used, so the archive itself was searched, which is slow. Run `perdure rebuild`."
        )
    if result.n_behind:
        messages.append(
            f"Captured, but not indexed yet: {format_count(result.n_behind, 'run')}. Search again in a moment."
        )
    if result.dropped:
        messages.append(f"Too frequent for ranking: {', '.join(result.dropped)}.")
    return messages


def describe_value(facet: str, value: str) -> str:
    """Return a value of a facet as people read it."""
    if facet == "project":
        return "no project" if value in ("", NO_PROJECT) else shorten_project(value) or value
    return _NAMES.get((facet, value)) or mask_name(value)


def list_chips(question: SearchQuestion) -> list[FilterLink]:
    """Return the limits of the question, each with the address without it."""
    filter_links = [
        FilterLink(
            f"{_LABELS[facet]}: {describe_value(facet, value)}", question.toggle_href(facet, value), is_chosen=True
        )
        for facet, values in question.chosen.items()
        for value in values
    ]
    bounds = (("since", question.since, "Since"), ("until", question.until, "Until"))
    switch_links = [FilterLink("Tools and programs too", question.href(tools=""))] if question.with_tools else []
    return [
        *filter_links,
        *switch_links,
        *(
            FilterLink(f"{bound_label}: {bound}", question.href(**{name: ""}))
            for name, bound, bound_label in bounds
            if bound
        ),
    ]


def list_spans(question: SearchQuestion, now: datetime) -> list[FilterLink]:
    """Return the time ranges that are asked for often."""
    today = now.astimezone().date().isoformat()
    often = (("today", today), ("last week", "7d"), ("last month", "30d"), ("any time", ""))
    return [
        FilterLink(name, question.href(since=since, until=""), is_chosen=question.since == since and not question.until)
        for name, since in often
    ]


def list_groups(question: SearchQuestion, facets: Facets) -> Iterator[FacetGroup]:
    """Yield the facets with more than one value, each with its most frequent values first."""
    for facet in FACETS:
        counts = facets.counts.get(facet, {})
        if len(counts) < 2 and facet not in question.chosen:
            continue
        values = list(_list_values(question, facet, counts))
        yield FacetGroup(_LABELS[facet], values[:_MAX_VALUES], values[_MAX_VALUES:])


def _list_values(question: SearchQuestion, facet: str, counts: Mapping[str, int]) -> Iterator[FilterLink]:
    chosen = question.chosen.get(facet, ())
    labels = visits.make_distinct_labels(counts, lambda value: describe_value(facet, value))
    for value, n in counts.items():
        address_value = value or NO_PROJECT
        yield FilterLink(
            labels[value],
            question.toggle_href(facet, address_value),
            n,
            address_value in chosen,
            mask(value),
        )


VIEWS: tuple[View, ...] = (View("GET", "/search", show_search, nav="search"),)
