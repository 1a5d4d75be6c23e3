"""`/runs`: what was captured, as the trees that its runs form, newest first.

The runs of one session in a row stand as one entry; sub-agents and forks hang below it. A run whose parent is not there
stands as a root. A page holds whole trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from perdure import text
from perdure.access.redact import mask
from perdure.errors import IndexFault, UsageError
from perdure.home import Home
from perdure.surfaces.moments import moment
from perdure.surfaces.page import addresses
from perdure.surfaces.page.render import clean, key, shown
from perdure.surfaces.page.visits import Shown, View, Visit, n_pages
from perdure.surfaces.trees import deltas, kinship
from perdure.types import Filters, Node, RunView

PAGE = 60  # newest runs whose trees a page shows
FLAT_PAGE = 100  # runs of a page without trees
NONE = "-"  # in an address: what has no project
_DEEPEST = 12  # levels drawn below each other; what is deeper is one link away
_LISTED = 6  # runs of a session that are named, the newest
_MOST_BELOW = 100  # sub-agents of one session that are drawn
_FIELDS = ("runtime", "machine", "project", "tag")
_ANY = {name: [("", "any")] for name in _FIELDS}  # where it is not known what there is
_SPANS = (("", "any time"), ("24h", "last day"), ("7d", "last week"), ("30d", "last month"))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an address asks to see."""

    chosen: Mapping[str, str] = field(default_factory=dict)  # of runtime, machine, project, tag and since, those given
    root: str = ""
    is_flat: bool = False
    offset: int = 0  # trees, or runs of a flat list, that other pages hold
    after: str = ""  # the day with which the page before ended
    n_pages: int = 1

    def key_of(self, name: str) -> str:
        """The value that is given of a name, as it stands in an address."""
        return key(self.chosen.get(name, ""))

    def href(self, **other: Any) -> str:
        """The address of this, or of something a little other; without a word of it, of its first page."""
        chosen = {name: self.key_of(name) for name in self.chosen}
        said = {**chosen, "root": self.root, "flat": "1" if self.is_flat else "", **other}
        pairs = {name: value for name, value in said.items() if value}
        return "/runs" + (f"?{urlencode(pairs)}" if pairs else "")


class Chip(NamedTuple):
    """One filter, and the address without it."""

    label: str
    href: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The runs of one session in a row, and what hangs below them."""

    run: RunView  # the newest of them
    first: RunView
    title: str
    intent: str  # how it began, where that is not its title
    kinship: str  # sub-agent, fork, sidechain, or nothing
    project: str
    n_turns: int
    n_tokens: int
    n_abandoned: int  # turns on branches that the session left
    models: Sequence[str]
    tags: Sequence[str]
    listed: Sequence[RunView]  # the newest runs, newest first, where there are several
    n_runs: int
    below: Sequence[Entry]
    n_left_out: int  # of those below, too deep or too many to be drawn
    owner: str  # where it is not who reads

    @property
    def at(self) -> datetime:
        """When it was last active."""
        return self.run.ended_at or self.run.captured_at


class Day(NamedTuple):
    """What was active on one day."""

    name: str
    is_continued: bool  # from the page before
    entries: Sequence[Entry]


# what is asked ------------------------------------------------------------------------------------------------------


def wanted(query: QueryParams, names: Callable[[str], Iterable[str]] = lambda _: ()) -> Wanted:
    """What an address asks. names: those of a field that are known.

    Raises UsageError for a place in the list that is none, and for more than an address may say.
    """
    addresses.check(query)
    chosen = {name: said for name in (*_FIELDS, "since") if (said := query.get(name, "").strip())}
    chosen |= {name: _named(chosen[name], name, names) for name in _FIELDS if name in chosen}
    place = addresses.place(query.get("cursor", ""))
    return Wanted(
        chosen, clean(query.get("root", "")).strip(), bool(query.get("flat", "")), place, query.get("after", ""),
        n_pages(query),
    )  # fmt: skip


def _named(said: str, name: str, names: Callable[[str], Iterable[str]]) -> str:
    return addresses.named(said, lambda: names(name))


def filters(asked: Wanted, now: datetime) -> Filters:
    """The filters of what is asked. Raises UsageError for a time that is none."""
    given = {name: (value,) for name, value in asked.chosen.items()}
    projects = tuple("" if value == NONE else value for value in given.get("project", ()))
    return Filters(
        runtimes=given.get("runtime", ()), machines=given.get("machine", ()), projects=projects,
        tags=given.get("tag", ()), since_at=moment(asked.chosen.get("since"), now=now),
    )  # fmt: skip


def chips(asked: Wanted) -> list[Chip]:
    """What the list is limited to."""
    labels = {"runtime": "Client", "machine": "Machine", "project": "Project", "tag": "Tag", "since": "Since"}
    found = [
        Chip(f"{labels[name]}: {named(name, value)}", asked.href(**{name: ""})) for name, value in asked.chosen.items()
    ]
    return [*found, Chip(f"Below {asked.root[:14]}", asked.href(root=""))] if asked.root else found


def named(name: str, value: str) -> str:
    """The value of a filter as people read it."""
    if name == "project":
        return "no project" if value in ("", NONE) else short(value)
    return dict(_SPANS).get(value, value) if name == "since" else shown(value)


def short(project: str | None) -> str:
    """The end of a project's path, masked.

    >>> short("/home/ada/work/tide-server"), short(None)
    ('tide-server', '')
    """
    return (mask(project).rstrip("/").rpartition("/")[2] or mask(project)) if project else ""


# the page -----------------------------------------------------------------------------------------------------------


def forest(visit: Visit) -> Shown:
    """The newest trees, or the tree below one run."""
    asked = wanted(visit.query, lambda name: visit.home.names(cast(Any, name)))
    values = {
        "title": "Sessions", "asked": asked, "chips": chips(asked), "since_choices": since_choices(asked),
        "choices": _ANY, "wrong": "", "days": (), "rows": (), "following": "", "is_live": False, "is_missing": False,
    }  # fmt: skip
    try:
        chosen = filters(asked, visit.now)
        return Shown("forest.html", {**values, "choices": choices(visit.home), **_listed(visit, asked, chosen)})
    except UsageError as error:
        return Shown("forest.html", {**values, "wrong": str(error)}, 400)
    except IndexFault:
        return Shown("forest.html", {**values, "is_missing": True})


def _listed(visit: Visit, asked: Wanted, chosen: Filters) -> dict[str, Any]:
    root = visit.home.resolve(asked.root)[1] if asked.root else None
    is_whole = root is not None and asked.is_flat  # a tree as a list is cut here: a page of it is a part of one tree
    nodes = visit.home.forest(chosen, root=root, limit=PAGE * asked.n_pages, offset=0 if is_whole else asked.offset)
    if asked.is_flat:
        return _flat(nodes, asked, visit.home.user, is_whole=is_whole)
    entries = sorted((entry(node, visit.home.user) for node in nodes), key=lambda one: one.at, reverse=True)
    grouped = list(days(entries, visit.now, asked.after))
    last = entries[-1].at.astimezone().date().isoformat() if entries else ""
    n_trees = len({node.run.root_run_id for node in nodes})
    is_more = root is None and n_runs(nodes) >= PAGE * asked.n_pages
    following = asked.href(cursor=asked.offset + n_trees, after=last) if is_more else ""
    return {"days": grouped, "following": following, "is_live": asked.offset == 0}


def _flat(nodes: Sequence[Node], asked: Wanted, reader: str, *, is_whole: bool) -> dict[str, Any]:
    runs = sorted(each_run(nodes), key=_active_at, reverse=True)
    end = asked.offset + (FLAT_PAGE * asked.n_pages if is_whole else len({run.root_run_id for run in runs}))
    shown = runs[asked.offset : end] if is_whole else runs
    is_more = len(runs) > end if is_whole else len(runs) >= PAGE * asked.n_pages
    rows = [entry(Node(run, ()), reader) for run in shown]
    return {"rows": rows, "following": asked.href(cursor=end) if is_more else "", "is_live": asked.offset == 0}


def _active_at(run: RunView) -> tuple[datetime, str]:
    return run.ended_at or run.captured_at, run.run_id


def each_run(nodes: Iterable[Node]) -> Iterator[RunView]:
    """Every run of some trees."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        yield node.run
        todo += node.children


def n_runs(nodes: Iterable[Node]) -> int:
    """How many runs there are in some trees."""
    return sum(1 for _ in each_run(nodes))


def since_choices(asked: Wanted) -> list[tuple[str, str]]:
    """Since when runs were active: what is asked for often, and what is asked for."""
    since = asked.chosen.get("since", "")
    return [*_SPANS, *([] if since in dict(_SPANS) else [(since, f"since {since}")])]


def choices(home: Home) -> dict[str, list[tuple[str, str]]]:
    """What can be chosen from: field -> pairs of (value, label)."""
    found = {}
    for name in _FIELDS:
        known = home.names(cast(Any, name))
        found[name] = [("", "any"), *((key(value) or NONE, named(name, value)) for value in known)]
    return found


def newest_sessions(home: Home, n: int) -> list[Entry]:
    """So many of the sessions that were active last; none without an index."""
    try:
        nodes = home.forest(limit=n * 4)
    except IndexFault:
        return []
    return sorted((entry(node, home.user) for node in nodes), key=lambda one: one.at, reverse=True)[:n]


# what is shown of it --------------------------------------------------------------------------------------------------


def entry(node: Node, reader: str, depth: int = 0) -> Entry:
    """The entry of a node and those below it."""
    chain, below = deltas(node)
    newest, first = chain[-1], chain[0]
    title = next((run.title for run in reversed(chain) if run.title), "")
    intent = next((run.intent for run in chain if run.intent), "")
    drawn = below[:_MOST_BELOW] if depth < _DEEPEST else []
    return Entry(
        newest, first, said(title or intent, 110) or "Untitled session", said(intent, 160) if title else "",
        kinship(first), short(newest.project), sum(run.n_turns for run in chain), sum(run.n_tokens for run in chain),
        sum(run.n_abandoned for run in chain),
        sorted({model for run in chain for model in run.models}),
        sorted({mask(tag) for run in chain for tag in run.tags}),
        chain[::-1][:_LISTED] if len(chain) > 1 else (), len(chain),
        [entry(child, reader, depth + 1) for child in drawn], len(below) - len(drawn),
        "" if newest.user == reader else newest.user,
    )  # fmt: skip


def said(words: str, n_chars: int) -> str:
    """The beginning of a text on one line, masked."""
    return text.one_line(mask(text.printable(words)), n_chars)


def days(entries: Sequence[Entry], now: datetime, after: str) -> Iterator[Day]:
    """Entries by the day on which they were last active. after: the day with which the page before ended."""
    for day, group in groupby(entries, key=lambda one: one.at.astimezone().date()):
        yield Day(day_name(day, now.astimezone().date()), day.isoformat() == after, list(group))


def day_name(day: date, today: date) -> str:
    """A day as people say it.

    >>> day_name(date(2026, 5, 1), date(2026, 5, 2)), day_name(date(2026, 4, 5), date(2026, 5, 2))
    ('Yesterday', 'Sunday 5 April 2026')
    """
    if day == today:
        return "Today"
    return "Yesterday" if day == today - timedelta(days=1) else f"{day:%A} {day.day} {day:%B %Y}"


ROWS: tuple[View, ...] = (View("GET", "/runs", forest, nav="runs"),)
