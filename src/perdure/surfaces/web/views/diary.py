"""The diary: a calendar of its days, each day's page with the turns behind it, and the recent activity.

A page is written after the answer, by the home's own rules: a page that somebody wrote or removed is
left alone.
"""

from __future__ import annotations

import contextlib
import re
from calendar import Calendar
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from perdure.access.redact import mask
from perdure.errors import IndexFault, NotFound, UsageError
from perdure.floor import layers, pages
from perdure.floor.summaries import DIARY_JOB, RECENT_JOB
from perdure.floor.summary_input import SummarySession
from perdure.home import Home
from perdure.jobs import JobLog, JobResult, JobRun
from perdure.service import builtin_jobs, clock
from perdure.surfaces.web.views import floor_pages
from perdure.surfaces.web.visits import HtmlPage, Redirect, View, ViewResult, Visit
from perdure.text import ELLIPSIS, printable
from perdure.types import RunView, Span

DIARY_URL = "/diary"
_MAX_SOURCES = 20  # runs behind a page shown at first: each one is a lookup
_MONDAY = 0
_SESSION_NAME = re.compile(r"\(([\w-]+ [^()\[\]\s]+)\)")  # a session, as recent.md writes it
_MAX_LINKS = 40  # sessions: each one is a lookup


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """A day of the calendar."""

    day: date
    is_written: bool
    is_shown: bool
    is_today: bool
    is_other_month: bool
    is_to_come: bool


def show_diary(visit: Visit) -> ViewResult:
    """Show the page of a day, the newest by default, beside the calendar of its month."""
    home, today = visit.home, layers.to_diary_day(datetime.now().astimezone())
    written_days = list_days(home.floor.list_pages())
    day_text = visit.query.get("day", "")
    day = _parse_day(day_text) if day_text else max(written_days, default=today)
    month = _parse_month(visit.query.get("month", "")) or day.replace(day=1)
    values: dict[str, Any] = {
        "title": "Diary",
        "day": day,
        "today": today,
        "weeks": build_weeks(month, written_days, shown=day, today=today),
        "month": month,
        "before": month - timedelta(days=1),
        "after": month + timedelta(days=31),
        "n_days": len(written_days),
        "newest": sorted(written_days, reverse=True)[:7],
        "model": _describe_model(home),
        "last": _read_last_result(visit, DIARY_JOB),
        "recent_last": _read_last_result(visit, RECENT_JOB),
        **_collect_page(home, day, max_sources=None if visit.query.get("all") == "1" else _MAX_SOURCES),
        **_collect_recent(home),
    }
    return HtmlPage("diary.html", values)


def list_days(names: Iterable[str]) -> set[date]:
    """Return the days that have a page."""
    page_names = (name for name in names if name.startswith(f"{pages.DIARY}/"))
    return {date.fromisoformat(name[len(pages.DIARY) + 1 : -len(".md")]) for name in page_names}


def build_weeks(month: date, written: Collection[date], *, shown: date, today: date) -> list[list[CalendarDay]]:
    """Return the weeks of a month, each of seven days from Monday."""
    month_weeks = Calendar(_MONDAY).monthdatescalendar(month.year, month.month)
    return [
        [
            CalendarDay(
                calendar_date,
                calendar_date in written,
                calendar_date == shown,
                calendar_date == today,
                calendar_date.month != month.month,
                calendar_date > today,
            )
            for calendar_date in week
        ]
        for week in month_weeks
    ]


def _parse_day(value: str) -> date:
    """Parse the day in an address or a form. Raises UsageError."""
    with contextlib.suppress(ValueError):
        day = date.fromisoformat(value)
        if date.min.year < day.year < date.max.year:  # the calendar links to the months before and after
            return day
    raise UsageError(f"{printable(value[:40])!r} is not a day: write it as 2026-11-21")


def _parse_month(value: str) -> date | None:
    """Return the first day of the month in an address; None if it is none."""
    with contextlib.suppress(UsageError):
        return _parse_day(f"{value}-01")
    return None


def _to_page_name(day: date) -> str:
    return f"{pages.DIARY}/{day.isoformat()}.md"


def _collect_page(home: Home, day: date, *, max_sources: int | None) -> dict[str, Any]:
    """Return the values of the page of a day. max_sources: runs behind it to list."""
    text = home.floor.read(_to_page_name(day))
    page_state = home.floor.load_state().pages.get(_to_page_name(day))
    source_spans = page_state.sources if page_state and text else []
    views = list_sources(home, [Span(*span) for span in source_spans[:max_sources]])
    return {
        "text": printable(mask(text)),
        "name": _to_page_name(day),
        "edit": floor_pages.to_url(_to_page_name(day), "edit"),
        "history": floor_pages.to_url(_to_page_name(day), "history") if page_state else "",
        "sources": views,
        "n_more": len(source_spans[max_sources:]) if max_sources else 0,
        "version": floor_pages.to_state_values(page_state.current) if page_state else None,
        "suspects": floor_pages.find_suspects(home.floor, text),
        "is_removed": bool(page_state and page_state.is_removed),
    }


def list_sources(home: Home, spans: Iterable[Span]) -> list[dict[str, Any]]:
    """Return the runs behind a page that the index has, each as a link to its first turn."""
    sources = []
    for span in spans:
        with contextlib.suppress(NotFound, IndexFault):
            sources.append(_to_source_values(*home.runs.source_of(span)))
    return sorted(sources, key=lambda source: (str(source["at"]), source["run_id"]))


def _to_source_values(view: RunView, turn: str | None) -> dict[str, Any]:
    return {
        "run_id": view.run_id,
        "title": printable(mask(view.title or view.intent)),
        "runtime": view.runtime,
        "project": printable(view.project or ""),
        "at": view.started_at,
        "n_turns": view.n_turns,
        "turn_id": turn,
    }


def _collect_recent(home: Home) -> dict[str, Any]:
    """Return the values of `recent.md`."""
    page_state = home.floor.load_state().pages.get(pages.RECENT)
    text = printable(mask(home.floor.read(pages.RECENT)))
    names = list(dict.fromkeys(_SESSION_NAME.findall(text)))[:_MAX_LINKS]
    return {
        "recent": link_sessions(text, {name: run_id for name in names if (run_id := _find_first_run(home, name))}),
        "recent_version": floor_pages.to_state_values(page_state.current) if page_state else None,
    }


def link_sessions(text: str, runs: Mapping[str, str]) -> str:
    """Return a page with its line breaks kept and its sessions linked.

    runs: name -> the first run of that session.

    >>> link_sessions("(pi s1)" + chr(10) + "Here.", {"pi s1": "r1"}).splitlines()
    ['([pi s1](/runs/r1))  ', 'Here.']
    """

    def to_link(match: re.Match[str]) -> str:
        return f"([{match[1]}](/runs/{runs[match[1]]}))" if match[1] in runs else match[0]

    return _SESSION_NAME.sub(to_link, text).replace("\n", "  \n")


def _find_first_run(home: Home, name: str) -> str:
    """Return the first run of the session with this client and id; "" if the name is ambiguous or unknown."""
    runtime, _, session_mark = name.partition(" ")
    with contextlib.suppress(NotFound, UsageError, IndexFault):
        _, session_id = home.resolve(session_mark.partition(ELLIPSIS)[0])
        runs = home.runs.conversation(session_id)
        if runs and runs[0].runtime == runtime and SummarySession(runtime, session_id).short_id == session_mark:
            return runs[0].run_id
    return ""


def _describe_model(home: Home) -> dict[str, str]:
    """Return the model that writes, and what it lacks; an empty name if rules write."""
    role_state = home.connections.roles().get_state("summariser")
    return {"name": role_state.model or role_state.provider, "missing": role_state.missing}


def _read_last_result(visit: Visit, job: str) -> JobRun | None:
    """Return the result of a job's last run, as far as the visitor may know it."""
    envelope = JobLog(visit.home.path).settle_latest(job)
    return envelope.to_user_view(visit.identity.user) if envelope else None


# writing --------------------------------------------------------------------------------------------------------


def write_day(visit: Visit) -> ViewResult:
    """Write the page of a day, after this answer."""
    day = _parse_day(visit.form.get("day", ""))
    _start_work(visit, DIARY_JOB, lambda home: builtin_jobs.write_diary(home, _never_stop, day=day))
    return Redirect(
        f"{DIARY_URL}?day={day.isoformat()}", "Writing has started. This page shows the text when it is ready."
    )


def update_recent(visit: Visit) -> ViewResult:
    """Update recent.md after this answer; with `rebuild`, write it again."""
    rebuild = visit.form.get("rebuild") == "yes"
    _start_work(visit, RECENT_JOB, lambda home: builtin_jobs.update_recent(home, _never_stop, rebuild=rebuild))
    return Redirect(f"{DIARY_URL}#recent", "The update has started. This page shows the text when it is ready.")


def _never_stop() -> bool:
    """Return False: never stop, because somebody waits for the result."""
    return False


def _start_work(visit: Visit, job: str, work: Callable[[Home], JobResult]) -> None:
    """Run work on the visitor's home after the answer, and record it as a run of their own job."""
    server, identity = visit.server, visit.identity

    def run_work() -> None:
        with server.lend_home() as serving_home, serving_home.clone_for_thread(identity=identity) as home:
            clock.run_own_job(home, job, lambda: work(home))

    server.start_job(job, run_work)


VIEWS: tuple[View, ...] = (
    View("GET", DIARY_URL, show_diary, "diary"),
    View("POST", f"{DIARY_URL}/write", write_day, "diary"),
    View("POST", f"{DIARY_URL}/recent", update_recent, "diary"),
)
