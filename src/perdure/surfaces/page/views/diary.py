"""The diary: its days as a calendar, a page as it was written, the turns behind it, and what has been going on.

A page is written behind the answer, by the home's own rules for it: a page that somebody wrote or took away stays.
"""

from __future__ import annotations

import contextlib
import re
from calendar import Calendar
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from perdure import schedule
from perdure.access.redact import mask
from perdure.errors import IndexFault, NotFound, UsageError
from perdure.floor import layers, pages
from perdure.floor.diary import JOB as DIARY
from perdure.floor.recent import JOB as RECENT
from perdure.floor.shaped import Talk
from perdure.home import Home
from perdure.jobs.book import Book, Done, Envelope
from perdure.resident import clock
from perdure.surfaces.page.views import floor_pages
from perdure.surfaces.page.visits import Answer, Moved, Shown, View, Visit
from perdure.text import ELLIPSIS, printable
from perdure.types import RunView, Span

HERE = "/diary"
_MOST_SOURCES = 20  # runs behind a page that are shown at first: each is looked up
_MONDAY = 0
_NAMED = re.compile(r"\(([\w-]+ [^()\[\]\s]+)\)")  # a session, as a paragraph of recent.md names it
_MOST_LINKED = 40  # sessions: each is looked up


@dataclass(frozen=True, slots=True)
class Day:
    """A day of the calendar."""

    day: date
    is_written: bool
    is_shown: bool
    is_today: bool
    is_other_month: bool
    is_to_come: bool


def diary(visit: Visit) -> Answer:
    """The page of a day, the newest unless named, beside the calendar of its month."""
    home, today = visit.home, layers.diary_day(datetime.now().astimezone())
    written = days(home.floor.names())
    asked = visit.query.get("day", "")
    day = _day(asked) if asked else max(written, default=today)
    month = _month(visit.query.get("month", "")) or day.replace(day=1)
    values: dict[str, Any] = {
        "title": "Diary", "day": day, "today": today, "weeks": weeks(month, written, shown=day, today=today),
        "month": month, "before": month - timedelta(days=1), "after": month + timedelta(days=31),
        "n_days": len(written), "newest": sorted(written, reverse=True)[:7], "model": _model(home),
        "last": _ended(visit, DIARY), "recent_last": _ended(visit, RECENT),
        **_page(home, day, most=None if visit.query.get("all") == "1" else _MOST_SOURCES), **_recent(home),
    }  # fmt: skip
    return Shown("diary.html", values)


def days(names: Iterable[str]) -> set[date]:
    """The days of which the diary has a page."""
    found = (name for name in names if name.startswith(f"{pages.DIARY}/"))
    return {date.fromisoformat(name[len(pages.DIARY) + 1 : -len(".md")]) for name in found}


def weeks(month: date, written: Collection[date], *, shown: date, today: date) -> list[list[Day]]:
    """The weeks of a month, each of seven days from Monday."""
    found = Calendar(_MONDAY).monthdatescalendar(month.year, month.month)
    return [
        [Day(one, one in written, one == shown, one == today, one.month != month.month, one > today) for one in week]
        for week in found
    ]


def _day(said: str) -> date:
    """A day that an address or a form names. Raises UsageError."""
    with contextlib.suppress(ValueError):
        found = date.fromisoformat(said)
        if date.min.year < found.year < date.max.year:  # the calendar shows the months beside it, too
            return found
    raise UsageError(f"{printable(said[:40])!r} is no day: write 2026-11-21")


def _month(said: str) -> date | None:
    """The first day of a month that an address names; None for what is none."""
    with contextlib.suppress(UsageError):
        return _day(f"{said}-01")
    return None


def _name(day: date) -> str:
    return f"{pages.DIARY}/{day.isoformat()}.md"


def _page(home: Home, day: date, *, most: int | None) -> dict[str, Any]:
    """What is shown of the page of a day. most: runs behind it."""
    said = home.floor.read(_name(day))
    known = home.floor.known().pages.get(_name(day))
    found = known.sources if known and said else []
    views = seen(home, [Span(*span) for span in found[:most]])
    return {
        "text": printable(mask(said)), "name": _name(day), "edit": floor_pages.address(_name(day), "edit"),
        "history": floor_pages.address(_name(day), "history") if known else "", "sources": views,
        "n_more": len(found[most:]) if most else 0,
        "version": floor_pages.state(known.now) if known else None,
        "suspects": floor_pages.suspects(home.floor, said), "is_removed": bool(known and known.is_removed),
    }  # fmt: skip


def seen(home: Home, spans: Iterable[Span]) -> list[dict[str, Any]]:
    """The runs behind a page, as links to the turn at which each begins; those that the index has."""
    found = []
    for span in spans:
        with contextlib.suppress(NotFound, IndexFault):
            found.append(_source(*home.behind(span)))
    return sorted(found, key=lambda one: (str(one["at"]), one["run_id"]))


def _source(view: RunView, turn: str | None) -> dict[str, Any]:
    return {
        "run_id": view.run_id, "title": printable(mask(view.title or view.intent)), "runtime": view.runtime,
        "project": printable(view.project or ""), "at": view.started_at, "n_turns": view.n_turns,
        "turn_id": turn,
    }  # fmt: skip


def _recent(home: Home) -> dict[str, Any]:
    """What has been going on, as it stands."""
    known = home.floor.known().pages.get(pages.RECENT)
    said = printable(mask(home.floor.read(pages.RECENT)))
    names = list(dict.fromkeys(_NAMED.findall(said)))[:_MOST_LINKED]
    return {
        "recent": linked(said, {name: run_id for name in names if (run_id := _begins(home, name))}),
        "recent_version": floor_pages.state(known.now) if known else None,
    }  # fmt: skip


def linked(said: str, runs: Mapping[str, str]) -> str:
    """A page with its line breaks kept, and each session that it names a link. runs: name -> where it begins.

    >>> linked("(pi s1)\\nHere.", {"pi s1": "r1"})
    '([pi s1](/runs/r1))  \\nHere.'
    """

    def link(found: re.Match[str]) -> str:
        return f"([{found[1]}](/runs/{runs[found[1]]}))" if found[1] in runs else found[0]

    return _NAMED.sub(link, said).replace("\n", "  \n")


def _begins(home: Home, name: str) -> str:
    """The run with which a session begins that is named by its client and id; "" where that leads to no single one."""
    runtime, _, said = name.partition(" ")
    with contextlib.suppress(NotFound, UsageError, IndexFault):
        _, whole = home.resolve(said.partition(ELLIPSIS)[0])
        runs = home.conversation(whole)
        if runs and runs[0].runtime == runtime and Talk(runtime, whole).mark == said:
            return runs[0].run_id
    return ""


def _model(home: Home) -> dict[str, str]:
    """The model that writes, and what it lacks; no name where rules write."""
    found = home.roles().state("summariser")
    return {"name": found.model or found.provider, "missing": found.missing}


def _ended(visit: Visit, job: str) -> Envelope | None:
    """What became of the last time that a page was to be written, as the visitor may know it."""
    found = Book(visit.home.path).settle(job)
    return found.seen_by(visit.identity.user) if found else None


# writing --------------------------------------------------------------------------------------------------------


def write(visit: Visit) -> Answer:
    """Write the page of a day, behind this answer."""
    day = _day(visit.form.get("day", ""))
    _begin(visit, DIARY, lambda home: schedule.diary(home, _on, day=day))
    return Moved(f"{HERE}?day={day.isoformat()}", "It is being written. This page shows it when it is done.")


def bring_up(visit: Visit) -> Answer:
    """Bring recent.md up to what was said, behind this answer; with `rebuild`, make it anew."""
    rebuild = visit.form.get("rebuild") == "yes"
    _begin(visit, RECENT, lambda home: schedule.recent(home, _on, rebuild=rebuild))
    return Moved(f"{HERE}#recent", "It is being brought up to date. This page shows it when it is done.")


def _on() -> bool:
    """Whether to stop: who asked waits for it."""
    return False


def _begin(visit: Visit, job: str, work: Callable[[Home], Done]) -> None:
    """Do something to the visitor's home behind the answer, and record it as a run of a job that is theirs."""
    server, identity = visit.server, visit.identity

    def begun() -> None:
        with server.lent() as own, own.beside(identity=identity) as home:
            clock.run_own(home, job, lambda: work(home))

    server.begin(job, begun)


ROWS: tuple[View, ...] = (
    View("GET", HERE, diary, "diary"),
    View("POST", f"{HERE}/write", write, "diary"),
    View("POST", f"{HERE}/recent", bring_up, "diary"),
)
