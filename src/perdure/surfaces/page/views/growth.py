"""`/growth`: how what is kept grew, whether what is recalled is used, how often memory is silent, and how quick it is.

Counted from the index and from the log, which is bounded; once a minute at most. It is the visitor's own that counts,
whoever else uses the home.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import accumulate
from typing import Any

from perdure.errors import IndexMissing
from perdure.index import weeks
from perdure.index.growth import Growth, Month
from perdure.index.injections import Week
from perdure.resident import health
from perdure.resident.health import Answered
from perdure.surfaces.amounts import plural, size
from perdure.surfaces.page import render
from perdure.surfaces.page.charts import Chart, Drawn, Series, drawn
from perdure.surfaces.page.fresh import Fresh
from perdure.surfaces.page.visits import Shown, View, Visit

MONTHS = 24  # that are shown at most
LEAST_MONTHS = 6  # and at least: of a single one nobody sees whether it is much
SILENT_WEEKS = 13  # a quarter: the log seldom goes back further
DAYS = 30

_SPOKE = ("injected", "silent")  # outcomes of a message at which recall had its say


@dataclass(frozen=True, slots=True)
class Counted:
    """What the page is made of."""

    growth: Growth
    said: Mapping[str, int]  # month -> messages of a person
    weeks: Sequence[Week]  # of what was put beside messages
    answers: tuple[Answered, ...]  # of the log, to messages


_FRESH: Fresh[Counted] = Fresh()


def growth(visit: Visit) -> Shown:
    """The page."""
    values: dict[str, Any] = {"title": "Growth", "charts_shown": [], "sentence": ""}
    try:
        counted = _FRESH.told((visit.home.path, visit.identity), lambda: _counted(visit))
    except IndexMissing:
        return Shown("growth.html", values)
    today = visit.now.date()
    return Shown("growth.html", {**values, "charts_shown": charts(counted, today), "sentence": sentence(counted)})


def _counted(visit: Visit) -> Counted:
    home = visit.home
    first = weeks.begins_at(weeks.mondays(visit.now.date())[0])
    return Counted(
        home.growth(), home.said_by_month(), home.injections.weeks(since_at=first),
        tuple(health.answers(home.path, home.user, is_admin=visit.identity.is_admin)),
    )  # fmt: skip


def sentence(counted: Counted) -> str:
    """All of it in one."""
    n_runs, n_turns = (sum(getattr(month, name) for month in counted.growth.months) for name in ("n_runs", "n_turns"))
    if not n_runs:
        return ""
    since = counted.growth.months[0].month
    n_bytes = sum(month.n_bytes for month in counted.growth.months)
    said = f"{plural(n_turns, 'turn')} in {plural(n_runs, 'run')} since {since}"
    return f"{said}, {size(n_bytes)} as they were captured."


# what is drawn ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """A chart with what is to be known of it; without points, only what would fill it."""

    name: str  # in addresses
    chart: Drawn | None
    title: str
    note: str
    hint: str


def charts(counted: Counted, today: date) -> list[Told]:
    """Every chart of the page, in its order."""
    months = filled(counted.growth.months)
    return [
        *_of_months(months, counted.said),
        _of_memories(counted.growth.memories, today),
        _of_use(counted.weeks, today),
        *_of_answers(counted.answers, today),
    ]


def _told(name: str, chart: Chart, *, note: str = "", hint: str) -> Told:
    has_any = any(value is not None for series in chart.series for value in series.values)
    return Told(name, drawn(chart) if chart.names and has_any else None, chart.title, note, hint)


def filled(months: Sequence[Month]) -> list[Month]:
    """The last months without a gap; before the first there was nothing."""
    if not months:
        return []
    known = {month.month: month for month in months}
    names = [months[-1].month]
    while len(names) < LEAST_MONTHS or (names[0] > months[0].month and len(names) < MONTHS):
        first = date.fromisoformat(f"{names[0]}-01") - timedelta(days=1)
        names.insert(0, f"{first:%Y-%m}")
    return [known.get(name, Month(name)) for name in names]


def _of_months(months: Sequence[Month], said: Mapping[str, int]) -> list[Told]:
    names = tuple(month.month for month in months)
    hint = "`perdure import` captures what your agents have written already."
    turns = Series("turns", tuple(month.n_turns for month in months))
    own = Series("yours", tuple(said.get(month.month, 0) for month in months))
    runs = Series("runs", tuple(month.n_runs for month in months))
    kept = Series("captured", tuple(accumulate(month.n_bytes for month in months)))
    return [
        _told("turns", Chart("Turns by month", names, (turns, own), render.number), hint=hint),
        _told("runs", Chart("Runs by month", names, (runs,), render.number), hint=hint,
              note="A run is what was captured of a session at one time; a long session has several."),
        _told("archive", Chart("Archive, month by month", names, (kept,), size), hint=hint,
              note="Bytes of transcripts as they were captured; packed ones take a fraction on disk."),
    ]  # fmt: skip


def _of_memories(memories: Mapping[date, int], today: date) -> Told:
    mondays = weeks.mondays(today)
    noted = Series("memories", tuple(memories.get(day, 0) if memories else None for day in mondays))
    return _told(
        "memories", Chart("Memories noted by week", tuple(map(str, mondays)), (noted,), render.number),
        hint='`perdure remember "…"` keeps one; what you state to an agent becomes one by itself.',
    )  # fmt: skip


def _of_use(known: Sequence[Week], today: date) -> Told:
    mondays, by_monday = weeks.mondays(today), {week.begins_on: week for week in known}
    found = [by_monday.get(monday) for monday in mondays]
    none = 0 if known else None
    told = Series("told", tuple(week.n_cues if week else none for week in found))
    used = Series("used", tuple(week.n_used if week else none for week in found))
    n_told, n_used = (sum(value or 0 for value in series.values) for series in (told, used))
    share = f"{n_used / n_told:.0%} of {n_told:,} were used. " if n_told else ""
    return _told(
        "use", Chart("Told beside messages, and used, by week", tuple(map(str, mondays)), (told, used), render.number),
        note=f"{share}What was told counts once the answer to its message was looked at.",
        hint="`perdure install claude-code` lets a client be told what matters, beside every message.",
    )  # fmt: skip


def _of_answers(lines: Sequence[Answered], today: date) -> list[Told]:
    mondays, days = (
        weeks.mondays(today, SILENT_WEEKS),
        [today - timedelta(days=back) for back in range(DAYS - 1, -1, -1)],
    )
    silent = _by(lines, lambda at: weeks.monday(at.date()))
    took = _by(lines, lambda at: at.date())
    shares = Series("silent", tuple(_share_silent(silent.get(week, ())) for week in mondays))
    note = f"By the log, which goes back to {lines[0].at[:10]}." if lines else ""
    hint = "Nothing was asked yet: a client that is set up asks at every message."
    p50, p95 = (
        Series(label, tuple(_rank(took.get(day, ()), share) for day in days))
        for label, share in (("median", 0.5), ("95th percentile", 0.95))
    )
    return [
        _told("silence", Chart("Messages at which memory was silent, by week", tuple(map(str, mondays)), (shares,),
                               _percent, "lines", top=1.0), note=note, hint=hint),
        _told("latency", Chart("Time until an answer, by day", tuple(map(str, days)), (p50, p95),
                               render.milliseconds, "lines"), note=note, hint=hint),
    ]  # fmt: skip


def _by(lines: Sequence[Answered], of: Callable[[datetime], date]) -> dict[date, list[Answered]]:
    """The answers at which recall had its say, by the week or day (UTC) in which they were given."""
    found: dict[date, list[Answered]] = defaultdict(list)
    for line in lines:
        if line.outcome in _SPOKE:
            found[of(line.answered_at)].append(line)
    return found


def _share_silent(lines: Sequence[Answered]) -> float | None:
    return sum(line.is_silent for line in lines) / len(lines) if lines else None


def _rank(lines: Sequence[Answered], share: float) -> float | None:
    return health.rank(sorted(line.took_ms for line in lines), share)


def _percent(share: float) -> str:
    return f"{share:.0%}"


ROWS: tuple[View, ...] = (View("GET", "/growth", growth, nav="growth"),)
