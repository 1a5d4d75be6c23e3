"""`/search`: what was said, by words, meaning and filters; and the memories that match beside it.

An address says the whole question, so it can be shared. What could not be done, or what is not indexed yet, is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from perdure import text
from perdure.access.redact import mask
from perdure.errors import IndexFault, UsageError
from perdure.recall import judge
from perdure.surfaces.amounts import plural
from perdure.surfaces.moments import moment
from perdure.surfaces.page import addresses, belief
from perdure.surfaces.page.render import clean, key, shown
from perdure.surfaces.page.views.forest import newest_sessions, said, short
from perdure.surfaces.page.visits import Shown, View, Visit, n_pages
from perdure.types import Facets, Filters, Found, Hit, Memory, RunView

PAGE = 20  # hits
DEEPEST = 1000  # hits of one question that can be paged through
_NAMED = ("runtime", "machine", "project", "tag", "agent")  # facets whose values somebody chose
FACETS = (*_NAMED, "role", "kind")
NONE = "-"  # in an address: what has no project
_SNIPPET_CHARS = 320
_MEMORIES = 5
_MEMORIES_SEEN = 200  # found by their words that are looked through for those that fit
_SUGGESTED = 6  # sessions
_VALUES = 8  # of one facet that are shown at once
_LABELS = {"runtime": "Client", "machine": "Machine", "project": "Project", "tag": "Tag", "agent": "Agent",
           "role": "Said by", "kind": "Kind of text"}  # fmt: skip
_NAMES = {("role", "assistant"): "agent", ("kind", "call"): "tool call", ("kind", "result"): "tool result",
          ("role", "machine"): "a program"}  # fmt: skip
_MODES = (("", "words and meaning"), ("keyword", "words alone"), ("semantic", "meaning alone"))
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Question:
    """What an address asks."""

    words: str = ""
    chosen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # facet -> values, those with any
    since: str = ""
    until: str = ""
    mode: str = ""
    offset: int = 0
    n_pages: int = 1  # from there

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked."""
        return not (self.words or self.chosen or self.since or self.until)

    def href(self, **other: Any) -> str:
        """The address of this question, or of one that is a little other. Without a word of it, of its first page."""
        said = {"q": self.words, **self.keys, "since": self.since, "until": self.until, "mode": self.mode, **other}
        pairs = {name: value for name, value in said.items() if value}
        return "/search" + (f"?{urlencode(pairs, doseq=True)}" if pairs else "")

    @property
    def keys(self) -> dict[str, list[str]]:
        """Facet -> its values as they stand in an address."""
        return {facet: list(map(key, values)) for facet, values in self.chosen.items()}

    def toggled(self, facet: str, value: str) -> str:
        """The address of this question with a filter more, or without it."""
        values = self.chosen.get(facet, ())
        fewer = tuple(each for each in values if each != value)
        wanted = fewer if value in values else (*values, value)
        return self.href(**{facet: list(map(key, wanted))})


class Filter(NamedTuple):
    """One value of a facet, or a chip."""

    label: str
    href: str  # with it, or without it where it is chosen
    n: int = 0  # turns
    is_chosen: bool = False
    whole: str = ""  # the value, where the label is its end


class Group(NamedTuple):
    """One facet."""

    label: str
    first: Sequence[Filter]
    rest: Sequence[Filter]


def asked(query: QueryParams, names: Callable[[str], Iterable[str]] = lambda _: ()) -> Question:
    """What an address asks, as far as it may. names: those of a facet that are known.

    Raises UsageError for a place in the list that is none.
    """
    chosen = {facet: _values_of(query, facet, names) for facet in FACETS}
    place = addresses.place(query.get("cursor", ""), DEEPEST)
    mode = query.get("mode", "")
    q, since, until = (clean(query.get(name, "")[: addresses.MOST_CHARS]).strip() for name in ("q", "since", "until"))
    known = mode if mode in dict(_MODES) else ""
    taken = {name: values for name, values in chosen.items() if values}
    return Question(q, taken, since, until, known, place, n_pages(query))


def _values_of(query: QueryParams, facet: str, names: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
    """The values that are chosen of a facet, each once; those alone that an address may hold."""
    said = [one for one in query.getlist(facet)[: addresses.MOST_VALUES] if 0 < len(one) <= addresses.MOST_CHARS]
    return tuple(dict.fromkeys(addresses.named(one, lambda: names(facet)) for one in said))


def too_much(query: QueryParams) -> list[str]:
    """What an address says more of than it may, in words."""
    labels = {**_LABELS, "q": "Words", "": "Words and filters"}
    return [f"{labels[name]}: {why}." for name, why in addresses.faults(query).items() if name in labels]


def narrowed(question: Question, now: datetime) -> tuple[Filters, dict[str, str]]:
    """(the filters, field -> what is wrong with it)."""
    wrong: dict[str, str] = {}
    chosen = question.chosen
    filters = Filters(
        runtimes=chosen.get("runtime", ()), machines=chosen.get("machine", ()), tags=chosen.get("tag", ()),
        projects=tuple("" if value == NONE else value for value in chosen.get("project", ())),
        agents=chosen.get("agent", ()), roles=chosen.get("role", ()), kinds=chosen.get("kind", ()),
        since_at=_instant(question.since, "since", now, wrong), until_at=_end(question.until, now, wrong),
    )  # fmt: skip
    return filters, wrong


def _instant(said: str, name: str, now: datetime, wrong: dict[str, str]) -> datetime | None:
    try:
        return moment(said or None, now=now)
    except UsageError as error:
        wrong[name] = str(error)
        return None


def _end(said: str, now: datetime, wrong: dict[str, str]) -> datetime | None:
    """The first instant behind a stretch: of a day that is named, the next day."""
    at = _instant(said, "until", now, wrong)
    is_day = at is not None and len(said) == len("2026-05-01")
    return at + _DAY if at is not None and is_day and at < datetime.max.replace(tzinfo=UTC) - _DAY else at


# the page ---------------------------------------------------------------------------------------------------------


def search(visit: Visit) -> Shown:
    """The page of a question."""
    question = asked(visit.query, lambda facet: _known(visit, facet))
    filters, wrong = narrowed(question, visit.now)
    much = too_much(visit.query)
    values = {
        "title": _title(question), "question": question, "modes": _MODES, "spans": spans(question, visit.now),
        "chips": chips(question), "wrong": wrong, "much": much, "found": None, "groups": (), "memories": (),
        "sessions": (), "newest": (), "belief": belief,
    }  # fmt: skip
    if wrong or much:
        return Shown("search.html", values, 400)
    if question.is_empty:
        return Shown("search.html", {**values, "newest": newest_sessions(visit.home, _SUGGESTED)})
    return Shown("search.html", {**values, **_answer(visit, question, filters)})


def _known(visit: Visit, facet: str) -> list[str]:
    return visit.home.names(cast(Any, facet)) if facet in _NAMED else []


def _title(question: Question) -> str:
    return f"Search: {text.one_line(question.words, 60)}" if question.words else "Search"


def _answer(visit: Visit, question: Question, filters: Filters) -> dict[str, Any]:
    started_s = time.perf_counter()
    is_warm = visit.server.is_warm()
    is_waiting = not is_warm and not question.mode and bool(question.words)
    by_words = None if is_warm else "keyword"  # until the model is loaded, so that nobody waits for it
    mode = question.mode or by_words if question.words else "keyword"  # no words mean nothing: the filters choose
    end = min(question.offset + PAGE * question.n_pages, DEEPEST)
    found = visit.home.search(question.words, filters=filters, limit=end + 1, mode=mode)
    together = by_session(found.hits[question.offset : end], is_ranked=bool(question.words))
    is_first = question.offset == 0
    facets = _facets(visit, question, filters) if is_first else Facets({})
    return {
        "found": found, "sessions": sessions(together, found, _openings(visit, together), visit.home.user),
        "following": question.href(cursor=end) if len(found.hits) > end and end < DEEPEST else "",
        "groups": list(groups(question, facets)), "count": count(found, facets),
        "notices": notices(found, is_waiting=is_waiting),
        "memories": _memories(visit, question, filters) if is_first else (),
        "took_ms": (time.perf_counter() - started_s) * 1000,
    }  # fmt: skip


def _facets(visit: Visit, question: Question, filters: Filters) -> Facets:
    try:
        return visit.home.facets(question.words, filters=filters)
    except IndexFault:  # the scan that answered instead counts nothing
        return Facets({})


def _openings(visit: Visit, together: Sequence[Sequence[Hit]]) -> Mapping[str, RunView]:
    try:
        return visit.home.openings(hits[0].run_id for hits in together)
    except IndexFault:
        return {}


def _memories(visit: Visit, question: Question, filters: Filters) -> list[Memory]:
    """The memories beside the hits: found by words, as by meaning there is always a nearest one, however far it is."""
    words = judge.asked_words(question.words)
    if text.STOPWORDS.issuperset(words) or not question.chosen.keys() <= {"project"}:  # no memory has a client or role
        return []
    try:
        found = visit.home.search_memories(question.words, limit=_MEMORIES_SEEN, mode="keyword")
    except IndexFault:
        return []
    return list(islice((memory for memory, _ in found if is_beside(memory, words, filters)), _MEMORIES))


# what is shown of it ------------------------------------------------------------------------------------------------


def is_beside(memory: Memory, words: Sequence[str], filters: Filters) -> bool:
    """Whether a memory belongs beside what was found: one of the words stands in it, and the filters fit."""
    if filters.projects and (memory.project or "") not in filters.projects:
        return False
    if filters.since_at and memory.stated_at < filters.since_at:
        return False
    if filters.until_at and memory.stated_at >= filters.until_at:
        return False
    held = judge.stems(mask(f"{memory.path} {memory.text}"))
    return any(judge.stems(word) <= held for word in words)


def by_session(hits: Sequence[Hit], *, is_ranked: bool) -> list[list[Hit]]:
    """Hits by their sessions, that with the best hit first; without a ranking those that follow each other."""
    grouped: dict[tuple[object, ...], list[Hit]] = {}
    n_breaks, last = 0, ""
    for hit in hits:
        n_breaks += 0 if is_ranked or hit.conversation == last else 1
        last = hit.conversation
        grouped.setdefault((n_breaks, hit.conversation, hit.user), []).append(hit)
    return list(grouped.values())


def sessions(
    together: Sequence[Sequence[Hit]], found: Found, openings: Mapping[str, RunView], reader: str
) -> list[dict[str, Any]]:
    """What the page shows of the hits of each session. openings: hits' runs -> the run that begins their session."""
    return [_session(hits, found, openings.get(hits[0].run_id), reader) for hits in together]


def _session(hits: Sequence[Hit], found: Found, opening: RunView | None, reader: str) -> dict[str, Any]:
    first = hits[0]
    title = (opening.title or opening.intent if opening else "") or first.title
    return {
        "run_id": opening.run_id if opening else first.run_id, "title": said(title, 90) or "Untitled session",
        "runtime": first.runtime, "machine": first.machine, "project": short(first.project),
        "owner": "" if first.user in ("", reader) else first.user,
        "hits": [_shown(hit, found, reader) for hit in hits],
    }  # fmt: skip


def _shown(hit: Hit, found: Found, reader: str) -> dict[str, Any]:
    words, _ = text.snippet(text.printable(hit.text), found.terms, _SNIPPET_CHARS)
    return {
        "turn_id": hit.turn_id, "role": hit.role, "who": who(hit, reader), "words": words, "at": hit.stated_at,
        "kind": "" if hit.kind == "text" else label("kind", hit.kind), "is_abandoned": hit.abandoned,
        "is_summary": hit.is_summary,
    }  # fmt: skip


def who(hit: Hit, reader: str) -> str:
    """Who said it, in a word or two.

    >>> from dataclasses import replace
    >>> hit = Hit("t", "r", "c", "", "pi", "box", "a", None, "user", "person", "text", None, "", 0.0, user="ada")
    >>> who(hit, "ada"), who(hit, "bob"), who(replace(hit, author="machine"), "ada")
    ('You', 'ada', 'A program')
    """
    if hit.role == "user":
        return "A program" if hit.author == "machine" else "You" if hit.user in ("", reader) else hit.user
    return {"assistant": "Agent", "tool": "Tool", "system": "System"}[hit.role]


def count(found: Found, facets: Facets) -> str:
    """How many turns match, in words; "" where nobody counted."""
    n = sum(facets.counts.get("role", {}).values())
    if not n or not found.hits:
        return ""
    return f"{'more than ' if facets.is_partial else ''}{plural(n, 'turn')}"


def notices(found: Found, *, is_waiting: bool) -> list[str]:
    """What could not be done, in words, and what to do about it. is_waiting: the model is not loaded yet."""
    said = []
    if "vector" in found.degraded:
        said.append("Found by words alone: there are no vectors to search by meaning with. `perdure doctor` says why.")
    elif is_waiting:
        said.append("Found by words alone: the model is still being loaded. Search again in a moment.")
    if found.n_unembedded:
        said.append(f"Not to be found by meaning yet: {plural(found.n_unembedded, 'piece')} of text.")
    if "index" in found.degraded:
        said.append("There is no usable index: the archive itself was read, which is slow. Run `perdure rebuild`.")
    if found.n_behind:
        said.append(f"Captured and not indexed yet: {plural(found.n_behind, 'run')}. Search again in a moment.")
    if found.dropped:
        said.append(f"Too frequent to rank by: {', '.join(found.dropped)}.")
    return said


def label(facet: str, value: str) -> str:
    """A value of a facet as people read it."""
    if facet == "project":
        return "no project" if value in ("", NONE) else short(value) or value
    return _NAMES.get((facet, value)) or shown(value)


def chips(question: Question) -> list[Filter]:
    """What the question is limited to, each with the address without it."""
    found = [
        Filter(f"{_LABELS[facet]}: {label(facet, value)}", question.toggled(facet, value), is_chosen=True)
        for facet, values in question.chosen.items()
        for value in values
    ]
    stretch = (("since", question.since, "Since"), ("until", question.until, "Until"))
    return [*found, *(Filter(f"{named}: {said}", question.href(**{name: ""})) for name, said, named in stretch if said)]


def spans(question: Question, now: datetime) -> list[Filter]:
    """Stretches of time that are asked for often."""
    today = now.astimezone().date().isoformat()
    often = (("today", today), ("last week", "7d"), ("last month", "30d"), ("any time", ""))
    return [
        Filter(name, question.href(since=since, until=""), is_chosen=question.since == since and not question.until)
        for name, since in often
    ]


def groups(question: Question, facets: Facets) -> Iterator[Group]:
    """The facets that tell anything apart, each with its most frequent values first."""
    for facet in FACETS:
        counts = facets.counts.get(facet, {})
        if len(counts) < 2 and facet not in question.chosen:
            continue
        values = list(_values(question, facet, counts))
        yield Group(_LABELS[facet], values[:_VALUES], values[_VALUES:])


def _values(question: Question, facet: str, counts: Mapping[str, int]) -> Iterator[Filter]:
    taken = question.chosen.get(facet, ())
    for value, n in counts.items():
        said = value or NONE
        yield Filter(label(facet, value), question.toggled(facet, said), n, said in taken, mask(value))


ROWS: tuple[View, ...] = (View("GET", "/search", search, nav="search"),)
