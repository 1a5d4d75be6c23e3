"""`/runs`: the captured runs as trees, newest first.

The consecutive runs of one session are one entry; sub-agents and forks hang below it. A run whose
parent is missing is shown as a root. A page contains whole trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from perdure import text
from perdure.access.redact import mask
from perdure.errors import IndexFault, UsageError
from perdure.home import Home
from perdure.surfaces.trees import describe_kinship, split_session
from perdure.surfaces.units import parse_moment
from perdure.surfaces.web import visits
from perdure.surfaces.web.render import clean, mask_name, to_key
from perdure.surfaces.web.visits import HtmlPage, View, Visit, parse_page_count
from perdure.types import Filters, Node, RunView

PAGE_RUNS = 60  # newest runs of which a page shows the trees
FLAT_PAGE_RUNS = 100  # runs on a page without trees
NO_PROJECT = "-"  # in an address: no project
_MAX_DEPTH = 12  # nested levels shown; deeper ones are one link away
_MAX_LISTED_RUNS = 6  # newest runs of a session that are listed
_MAX_CHILDREN = 100  # sub-agents shown for one session
_FIELDS = ("runtime", "machine", "project", "tag")
_NO_CHOICES = {name: [("", "any")] for name in _FIELDS}  # while the choices are not known
_SPANS = (("", "any time"), ("24h", "last day"), ("7d", "last week"), ("30d", "last month"))


@dataclass(frozen=True, slots=True)
class ForestQuery:
    """The runs that an address asks for."""

    chosen: Mapping[str, str] = field(default_factory=dict)  # runtime, machine, project, tag, since: those that are set
    root: str = ""
    is_flat: bool = False
    offset: int = 0  # trees, or runs of a flat list, on earlier pages
    after: str = ""  # the last day of the previous page
    n_pages: int = 1

    def key_of(self, name: str) -> str:
        """Return the value of a field as it appears in an address."""
        return to_key(self.chosen.get(name, ""))

    def href(self, **changes: Any) -> str:
        """Return the address of this query with some values changed. Unless they say so, of its first page."""
        chosen = {name: self.key_of(name) for name in self.chosen}
        params = {**chosen, "root": self.root, "flat": "1" if self.is_flat else "", **changes}
        pairs = {name: value for name, value in params.items() if value}
        return "/runs" + (f"?{urlencode(pairs)}" if pairs else "")


class FilterChip(NamedTuple):
    """One filter, and the address without it."""

    label: str
    href: str


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """The consecutive runs of one session, and what hangs below them."""

    run: RunView  # the newest of them
    first: RunView
    title: str
    intent: str  # its first words, unless they are the title
    kinship: str  # sub-agent, fork, sidechain, or ""
    project: str
    n_turns: int
    n_tokens: int
    n_abandoned: int  # turns on branches that the session left
    models: Sequence[str]
    tags: Sequence[str]
    listed: Sequence[RunView]  # the newest runs, newest first, if there are several
    n_runs: int
    below: Sequence[SessionEntry]
    n_left_out: int  # entries below that are not shown: too deep or too many
    owner: str  # "" if it is the reader

    @property
    def at(self) -> datetime:
        """The time of its last activity."""
        return self.run.ended_at or self.run.captured_at


class DayGroup(NamedTuple):
    """The sessions active on one day."""

    name: str
    is_continued: bool  # from the previous page
    entries: Sequence[SessionEntry]


# the query ---------------------------------------------------------------------------------------------------------


def parse_query(query: QueryParams, names: Callable[[str], Iterable[str]] = lambda _: ()) -> ForestQuery:
    """Parse the query of an address. names: returns the known values of a field.

    Raises UsageError for an invalid offset, and for more than an address may contain.
    """
    visits.check_query(query)
    chosen = {name: value for name in (*_FIELDS, "since") if (value := query.get(name, "").strip())}
    chosen |= {name: _resolve_name(chosen[name], name, names) for name in _FIELDS if name in chosen}
    offset = visits.parse_offset(query.get("cursor", ""))
    return ForestQuery(
        chosen,
        clean(query.get("root", "")).strip(),
        bool(query.get("flat", "")),
        offset,
        query.get("after", ""),
        parse_page_count(query),
    )


def _resolve_name(value: str, name: str, names: Callable[[str], Iterable[str]]) -> str:
    return visits.resolve_key(value, lambda: names(name))


def to_filters(forest_query: ForestQuery, now: datetime) -> Filters:
    """Return the filters of a query. Raises UsageError for an invalid time."""
    values = {name: (value,) for name, value in forest_query.chosen.items()}
    projects = tuple("" if value == NO_PROJECT else value for value in values.get("project", ()))
    return Filters(
        runtimes=values.get("runtime", ()),
        machines=values.get("machine", ()),
        projects=projects,
        tags=values.get("tag", ()),
        since_at=parse_moment(forest_query.chosen.get("since"), now=now),
    )


def list_chips(forest_query: ForestQuery) -> list[FilterChip]:
    """Return the limits of the list."""
    labels = {"runtime": "Client", "machine": "Machine", "project": "Project", "tag": "Tag", "since": "Since"}
    filter_chips = [
        FilterChip(f"{labels[name]}: {describe_filter(name, value)}", forest_query.href(**{name: ""}))
        for name, value in forest_query.chosen.items()
    ]
    return (
        [*filter_chips, FilterChip(f"Below {forest_query.root[:14]}", forest_query.href(root=""))]
        if forest_query.root
        else filter_chips
    )


def describe_filter(name: str, value: str) -> str:
    """Return the value of a filter as people read it."""
    if name == "project":
        return "no project" if value in ("", NO_PROJECT) else shorten_project(value)
    return dict(_SPANS).get(value, value) if name == "since" else mask_name(value)


def shorten_project(project: str | None) -> str:
    """Return the last folder of a project's path, masked; "" for none."""
    return text.shorten_project(mask(project or ""))


# the page -----------------------------------------------------------------------------------------------------------


def show_forest(visit: Visit) -> HtmlPage:
    """Show the newest trees, or the tree below one run."""
    forest_query = parse_query(visit.query, lambda name: visit.home.runs.names(cast(Any, name)))
    values = {
        "title": "Sessions",
        "asked": forest_query,
        "chips": list_chips(forest_query),
        "since_choices": list_since_choices(forest_query),
        "choices": _NO_CHOICES,
        "wrong": "",
        "days": (),
        "rows": (),
        "following": "",
        "is_live": False,
        "is_missing": False,
    }
    try:
        chosen = to_filters(forest_query, visit.now)
        return HtmlPage(
            "forest.html", {**values, "choices": list_choices(visit.home), **_list_trees(visit, forest_query, chosen)}
        )
    except UsageError as error:
        return HtmlPage("forest.html", {**values, "wrong": str(error)}, 400)
    except IndexFault:
        return HtmlPage("forest.html", {**values, "is_missing": True})


def _list_trees(visit: Visit, forest_query: ForestQuery, chosen: Filters) -> dict[str, Any]:
    root = visit.home.resolve(forest_query.root)[1] if forest_query.root else None
    is_whole = root is not None and forest_query.is_flat  # one tree as a list: its pages are cut here
    nodes = visit.home.runs.forest(
        chosen, root=root, limit=PAGE_RUNS * forest_query.n_pages, offset=0 if is_whole else forest_query.offset
    )
    if forest_query.is_flat:
        return _list_flat(nodes, forest_query, visit.home.user, is_whole=is_whole)
    entries = sorted((make_entry(node, visit.home.user) for node in nodes), key=lambda item: item.at, reverse=True)
    grouped = list(group_by_day(entries, visit.now, forest_query.after))
    last_day = entries[-1].at.astimezone().date().isoformat() if entries else ""
    n_trees = len({node.run.root_run_id for node in nodes})
    is_more = root is None and count_runs(nodes) >= PAGE_RUNS * forest_query.n_pages
    following = forest_query.href(cursor=forest_query.offset + n_trees, after=last_day) if is_more else ""
    return {"days": grouped, "following": following, "is_live": forest_query.offset == 0}


def _list_flat(nodes: Sequence[Node], forest_query: ForestQuery, reader: str, *, is_whole: bool) -> dict[str, Any]:
    runs = sorted(iterate_runs(nodes), key=lambda run: (run.ended_at or run.captured_at, run.run_id), reverse=True)
    end = forest_query.offset + (
        FLAT_PAGE_RUNS * forest_query.n_pages if is_whole else len({run.root_run_id for run in runs})
    )
    page_runs = runs[forest_query.offset : end] if is_whole else runs
    is_more = len(runs) > end if is_whole else len(runs) >= PAGE_RUNS * forest_query.n_pages
    rows = [make_entry(Node(run, ()), reader) for run in page_runs]
    return {
        "rows": rows,
        "following": forest_query.href(cursor=end) if is_more else "",
        "is_live": forest_query.offset == 0,
    }


def iterate_runs(nodes: Iterable[Node]) -> Iterator[RunView]:
    """Yield every run of these trees."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        yield node.run
        todo += node.children


def count_runs(nodes: Iterable[Node]) -> int:
    """Count the runs of these trees."""
    return sum(1 for _ in iterate_runs(nodes))


def list_since_choices(forest_query: ForestQuery) -> list[tuple[str, str]]:
    """List the time ranges that are asked for often, and the one in the address."""
    since = forest_query.chosen.get("since", "")
    return [*_SPANS, *([] if since in dict(_SPANS) else [(since, f"since {since}")])]


def list_choices(home: Home) -> dict[str, list[tuple[str, str]]]:
    """Return the choices of each filter: field -> pairs of (value, label)."""
    options = {}
    for name in _FIELDS:
        names = home.runs.names(cast(Any, name))
        labels = visits.make_distinct_labels(names, partial(describe_filter, name))
        options[name] = [("", "any"), *((to_key(value) or NO_PROJECT, labels[value]) for value in names)]
    return options


def list_newest_sessions(home: Home, n: int) -> list[SessionEntry]:
    """Return the n sessions that were active last; none without an index."""
    try:
        nodes = home.runs.forest(limit=n * 4)
    except IndexFault:
        return []
    return sorted((make_entry(node, home.user) for node in nodes), key=lambda item: item.at, reverse=True)[:n]


# entries -------------------------------------------------------------------------------------------------------------


def make_entry(node: Node, reader: str, depth: int = 0) -> SessionEntry:
    """Return the entry of a node with those below it."""
    chain, children = split_session(node)
    newest, first = chain[-1], chain[0]
    title = next((run.title for run in reversed(chain) if run.title), "")
    intent = next((run.intent for run in chain if run.intent), "")
    drawn_children = children[:_MAX_CHILDREN] if depth < _MAX_DEPTH else []
    return SessionEntry(
        newest,
        first,
        shorten_text(title or intent, 110) or "Untitled session",
        shorten_text(intent, 160) if title else "",
        describe_kinship(first),
        shorten_project(newest.project),
        sum(run.n_turns for run in chain),
        sum(run.n_tokens for run in chain),
        sum(run.n_abandoned for run in chain),
        sorted({model for run in chain for model in run.models}),
        sorted({mask(tag) for run in chain for tag in run.tags}),
        chain[::-1][:_MAX_LISTED_RUNS] if len(chain) > 1 else (),
        len(chain),
        [make_entry(child, reader, depth + 1) for child in drawn_children],
        len(children) - len(drawn_children),
        "" if newest.user == reader else newest.user,
    )


def shorten_text(words: str, n_chars: int) -> str:
    """Return the beginning of a text on one line, masked."""
    return text.one_line(mask(text.printable(words)), n_chars)


def group_by_day(entries: Sequence[SessionEntry], now: datetime, after: str) -> Iterator[DayGroup]:
    """Group entries by the day of their last activity. after: the last day of the previous page."""
    for day, group in groupby(entries, key=lambda item: item.at.astimezone().date()):
        yield DayGroup(name_day(day, now.astimezone().date()), day.isoformat() == after, list(group))


def name_day(day: date, today: date) -> str:
    """Return a day as people say it.

    >>> name_day(date(2026, 5, 1), date(2026, 5, 2)), name_day(date(2026, 4, 5), date(2026, 5, 2))
    ('Yesterday', 'Sunday 5 April 2026')
    """
    if day == today:
        return "Today"
    return "Yesterday" if day == today - timedelta(days=1) else f"{day:%A} {day.day} {day:%B %Y}"


VIEWS: tuple[View, ...] = (View("GET", "/runs", show_forest, nav="runs"),)
