"""`/growth` and `/quality`: charts of what the home holds and uses, and of how well Perdure remembers.

Growth is counted from the index and from the log, which is bounded, at most once a minute, and only
over the visitor's own data. Quality is what `perdure eval` measured with the questions that come with
Perdure; it is in the journal of the home's own user. It says nothing about anybody's own memory, so
every visitor may see it. A measurement runs in a process of its own, so that the server keeps answering
meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, TypeVar

from perdure import log
from perdure.errors import IndexMissing, ModelFault
from perdure.eval.recall_quality import (
    STORED_MEASURES,
    STORED_SYSTEMS,
    StoredMeasurement,
    compare_measurements,
    read_measurements,
)
from perdure.home import Home
from perdure.index import encoding
from perdure.index.injections import UsageWeek
from perdure.index.statistics import Growth, MonthGrowth, list_newest_measurements
from perdure.jobs import JobLog, JobResult
from perdure.report import answers
from perdure.report.answers import AnswerLogEntry
from perdure.surfaces.units import format_count, format_size, format_zoned_time
from perdure.surfaces.web import render
from perdure.surfaces.web.charts import Chart, ChartDrawing, ChartSeries, draw_chart
from perdure.surfaces.web.visits import HtmlPage, Redirect, View, Visit

T = TypeVar("T")
MAX_AGE_S = 60.0
_MAX_CACHE_ENTRIES = 32  # the oldest entry is dropped first


class TtlCache(Generic[T]):
    """A cache of computed values that expire. Safe for threads; two that ask at once may both compute."""

    def __init__(self, *, max_age_s: float = MAX_AGE_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._max_age_s = max_age_s
        self._now_s = now_s
        self._entries: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._lock = threading.Lock()

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key while it is fresh, or compute it.

        key: the visitor and the value; no value is shared between visitors.
        """
        with self._lock:
            entry = self._entries.get(key)
        if entry is not None and self._now_s() - entry[0] < self._max_age_s:
            return entry[1]
        value = make()
        with self._lock:
            self._entries.pop(key, None)
            self._entries[key] = self._now_s(), value
            while len(self._entries) > _MAX_CACHE_ENTRIES:
                self._entries.popitem(last=False)
        return value


MAX_MONTHS = 24  # shown at most
MIN_MONTHS = 6  # shown at least: a single month has nothing to compare with
SILENT_WEEKS = 13  # a quarter: the log seldom goes back further
LATENCY_DAYS = 30

_RECALL_OUTCOMES = ("injected", "shadow", "silent")  # outcomes of messages at which recall ran


@dataclass(frozen=True, slots=True)
class GrowthCounts:
    """The numbers that the page shows."""

    growth: Growth
    messages_by_month: Mapping[str, int]  # month -> messages typed by a person
    weeks: Sequence[UsageWeek]  # of injections
    answers: tuple[AnswerLogEntry, ...]  # from the log, to messages


_CACHE: TtlCache[GrowthCounts] = TtlCache()


def show_growth(visit: Visit) -> HtmlPage:
    """Show the page."""
    values: dict[str, Any] = {"title": "Growth", "charts_shown": [], "sentence": ""}
    try:
        counts = _CACHE.get_or_make((visit.home.path, visit.identity), lambda: _count_growth(visit))
    except IndexMissing:
        return HtmlPage("growth.html", values)
    today = visit.now.date()
    return HtmlPage(
        "growth.html", {**values, "charts_shown": make_panels(counts, today), "sentence": summarise_growth(counts)}
    )


def _count_growth(visit: Visit) -> GrowthCounts:
    home = visit.home
    first = encoding.get_day_start(encoding.list_mondays(visit.now.date())[0])
    return GrowthCounts(
        home.runs.growth(),
        home.runs.messages_by_month(),
        home.memories.injections.count_by_week(since_at=first),
        tuple(answers.read_answers(home.path, home.user, is_admin=visit.identity.is_admin)),
    )


def summarise_growth(counts: GrowthCounts) -> str:
    """Summarise the growth in one sentence."""
    n_runs, n_turns = (sum(getattr(month, name) for month in counts.growth.months) for name in ("n_runs", "n_turns"))
    if not n_runs:
        return ""
    since = counts.growth.months[0].month
    n_bytes = sum(month.n_bytes for month in counts.growth.months)
    summary = f"{format_count(n_turns, 'turn')} in {format_count(n_runs, 'run')} since {since}"
    return f"{summary}, {format_size(n_bytes)} captured."


# charts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChartPanel:
    """A chart with its notes; without points, only the hint that says how to fill it."""

    name: str  # in addresses
    chart: ChartDrawing | None
    title: str
    note: str
    hint: str


def make_panels(counts: GrowthCounts, today: date) -> list[ChartPanel]:
    """Return every chart of the page, in order."""
    months = fill_months(counts.growth.months)
    return [
        *_make_month_panels(months, counts.messages_by_month),
        _make_memory_panel(counts.growth.memories, today),
        _make_use_panel(counts.weeks, today),
        *_make_answer_panels(counts.answers, today),
    ]


def _make_panel(name: str, chart: Chart, *, note: str = "", hint: str) -> ChartPanel:
    has_any = any(value is not None for series in chart.series for value in series.values)
    return ChartPanel(name, draw_chart(chart) if chart.names and has_any else None, chart.title, note, hint)


def fill_months(months: Sequence[MonthGrowth]) -> list[MonthGrowth]:
    """Return the last months without a gap, empty before the first one."""
    if not months:
        return []
    month_by_name = {month.month: month for month in months}
    names = [months[-1].month]
    while len(names) < MIN_MONTHS or (names[0] > months[0].month and len(names) < MAX_MONTHS):
        first = date.fromisoformat(f"{names[0]}-01") - timedelta(days=1)
        names.insert(0, f"{first:%Y-%m}")
    return [month_by_name.get(name, MonthGrowth(name)) for name in names]


def _make_month_panels(months: Sequence[MonthGrowth], messages_by_month: Mapping[str, int]) -> list[ChartPanel]:
    names = tuple(month.month for month in months)
    hint = "`perdure import` captures the transcripts of your agents."
    turns = ChartSeries("turns", tuple(month.n_turns for month in months))
    own_messages = ChartSeries("yours", tuple(messages_by_month.get(month.month, 0) for month in months))
    runs = ChartSeries("runs", tuple(month.n_runs for month in months))
    archive_bytes = ChartSeries("captured", tuple(accumulate(month.n_bytes for month in months)))
    return [
        _make_panel("turns", Chart("Turns per month", names, (turns, own_messages), render.format_number), hint=hint),
        _make_panel(
            "runs",
            Chart("Runs per month", names, (runs,), render.format_number),
            hint=hint,
            note="A run is the part of a session that was captured at one time; a long session has several runs.",
        ),
        _make_panel(
            "archive",
            Chart("Archive, per month", names, (archive_bytes,), format_size),
            hint=hint,
            note="Captured bytes of transcripts; packed runs need much less space on disk.",
        ),
    ]


def _make_memory_panel(memories: Mapping[date, int], today: date) -> ChartPanel:
    mondays = encoding.list_mondays(today)
    memory_series = ChartSeries("memories", tuple(memories.get(day, 0) if memories else None for day in mondays))
    return _make_panel(
        "memories",
        Chart("Memories recorded per week", tuple(map(str, mondays)), (memory_series,), render.format_number),
        hint='`perdure remember "…"` stores one; your statements to agents become memories automatically.',
    )


def _make_use_panel(known_weeks: Sequence[UsageWeek], today: date) -> ChartPanel:
    mondays, by_monday = encoding.list_mondays(today), {week.begins_on: week for week in known_weeks}
    week_rows = [by_monday.get(monday) for monday in mondays]
    missing = 0 if known_weeks else None
    told_series = ChartSeries("told", tuple(week.n_cues if week else missing for week in week_rows))
    used_series = ChartSeries("used", tuple(week.n_used if week else missing for week in week_rows))
    n_told, n_used = (sum(value or 0 for value in series.values) for series in (told_series, used_series))
    share = f"{n_used / n_told:.0%} of {n_told:,} cues were used. " if n_told else ""
    return _make_panel(
        "use",
        Chart(
            "Cues recalled and used, per week",
            tuple(map(str, mondays)),
            (told_series, used_series),
            render.format_number,
        ),
        note=f"{share}A cue counts after the answer to its message is checked.",
        hint="`perdure install claude-code` adds recall to every message.",
    )


def _make_answer_panels(lines: Sequence[AnswerLogEntry], today: date) -> list[ChartPanel]:
    mondays, days = (
        encoding.list_mondays(today, SILENT_WEEKS),
        [today - timedelta(days=days_back) for days_back in range(LATENCY_DAYS - 1, -1, -1)],
    )
    answers_by_week = _group_answers(lines, lambda instant: encoding.get_monday(instant.date()))
    answers_by_day = _group_answers(lines, lambda instant: instant.date())
    shares = ChartSeries("silent", tuple(_compute_silent_share(answers_by_week.get(week, ())) for week in mondays))
    note = f"From the log, which goes back to {lines[0].at[:10]}." if lines else ""
    hint = "No requests yet: a client that is set up asks at every message."
    p50, p95 = (
        ChartSeries(label, tuple(_compute_percentile(answers_by_day.get(day, ()), share) for day in days))
        for label, share in (("median", 0.5), ("95th percentile", 0.95))
    )
    return [
        _make_panel(
            "silence",
            Chart(
                "Messages without a recall, per week",
                tuple(map(str, mondays)),
                (shares,),
                "{:.0%}".format,
                "lines",
                top=1.0,
            ),
            note=note,
            hint=hint,
        ),
        _make_panel(
            "latency",
            Chart("Time until an answer, per day", tuple(map(str, days)), (p50, p95), render.format_ms, "lines"),
            note=note,
            hint=hint,
        ),
    ]


def _group_answers(
    lines: Sequence[AnswerLogEntry], to_period: Callable[[datetime], date]
) -> dict[date, list[AnswerLogEntry]]:
    """Group the answers at which recall ran by week or day (UTC)."""
    answers_by_period: dict[date, list[AnswerLogEntry]] = defaultdict(list)
    for line in lines:
        if line.outcome in _RECALL_OUTCOMES:
            answers_by_period[to_period(line.answered_at)].append(line)
    return answers_by_period


def _compute_silent_share(lines: Sequence[AnswerLogEntry]) -> float | None:
    return sum(line.is_silent for line in lines) / len(lines) if lines else None


def _compute_percentile(lines: Sequence[AnswerLogEntry], share: float) -> float | None:
    return answers.find_quantile(sorted(line.took_ms for line in lines), share)


GROWTH_VIEWS: tuple[View, ...] = (View("GET", "/growth", show_growth, nav="growth"),)


EVAL_JOB = "eval"
_EVAL_LIMIT_S = 600.0  # a measurement takes about 10 s on an idle machine
_CATEGORY_MEASURES = ("R@5", "R@10", "MRR", "nDCG@10")  # columns of the table of categories
_CHART_MEASURES = ("R@10", "nDCG@10")
_MAX_SHOWN = 40
_MAX_READ = 200  # more than shown, so that most have an earlier one with the same questions


@dataclass(frozen=True, slots=True)
class MeasurementVerdict:
    """One measurement, compared with the one before it that used the same questions."""

    time: StoredMeasurement
    than: str  # better, worse, the same; "" if there is nothing to compare with


def show_quality(visit: Visit) -> HtmlPage:
    """Show the page."""
    verdicts = make_verdicts(_read_measurements(visit.home))
    last_run = JobLog(visit.home.path).settle_latest(EVAL_JOB)
    values: dict[str, Any] = {
        "title": "Quality",
        "now_measuring": last_run is not None and last_run.result == "running",
        "failed": last_run.why if last_run is not None and last_run.result in ("failed", "interrupted") else "",
        "times": verdicts[::-1][:_MAX_SHOWN],
        "latest": verdicts[-1].time if verdicts else None,
    }
    if verdicts:
        values |= {
            "sentence": summarise_quality(verdicts[-1]),
            "chart": make_recall_chart(verdicts),
            "systems": STORED_SYSTEMS,
            "measures": STORED_MEASURES,
            "compared": _CATEGORY_MEASURES,
        }
    return HtmlPage("quality.html", values)


def _read_measurements(home: Home) -> list[StoredMeasurement]:
    user = home.config.user
    return read_measurements(
        list_newest_measurements(home.index(create=True), user, home.journal(user).root, limit=_MAX_READ)
    )


def make_verdicts(measurements: Sequence[StoredMeasurement]) -> list[MeasurementVerdict]:
    """Compare each measurement with the latest one before it that used the same questions."""
    verdicts: list[MeasurementVerdict] = []
    latest_by_questions: dict[str, StoredMeasurement] = {}
    for measurement in measurements:
        previous = latest_by_questions.get(measurement.questions)
        verdicts.append(
            MeasurementVerdict(measurement, compare_measurements(previous, measurement) if previous else "")
        )
        latest_by_questions[measurement.questions] = measurement
    return verdicts


def summarise_quality(latest: MeasurementVerdict) -> str:
    """Say how well recall does, and whether that is a change."""
    interval = latest.time.figures["interval"]["R@10"]
    phrase = f"The first ten results of recall contain {interval['at']:.1%} of the evidence"
    endings = {
        "better": "; better than the last measurement.",
        "worse": "; worse than the last measurement.",
        "the same": "; the change since the last measurement is within chance.",
    }
    return phrase + endings.get(latest.than, ".")


def make_recall_chart(verdicts: Sequence[MeasurementVerdict]) -> ChartDrawing | None:
    """Chart the measures of recall over the measurements with the latest questions; None below two of them."""
    measurements = [item.time for item in verdicts if item.time.questions == verdicts[-1].time.questions][-_MAX_SHOWN:]
    if len(measurements) < 2:
        return None
    series = tuple(
        ChartSeries(name, tuple(measurement.figures["systems"]["recall"][name] for measurement in measurements))
        for name in _CHART_MEASURES
    )
    names = tuple(format_zoned_time(measurement.at) for measurement in measurements)
    return draw_chart(Chart("Recall over time", names, series, lambda share: f"{share:.1%}", "lines", top=1.0))


def start_measuring(visit: Visit) -> Redirect:
    """Start a measurement, which runs after this answer."""
    home = visit.server.home
    visit.server.start_job(EVAL_JOB, lambda: _run_measuring(home))
    return Redirect("/quality", "The measurement has started. This page shows the result.")


def _run_measuring(home: Path) -> None:
    envelope = JobLog(home).run(EVAL_JOB, lambda: _run_eval(home), trigger="person", now=lambda: datetime.now(UTC))
    log.append_entry(home, "job", job=EVAL_JOB, result=envelope.result, took_ms=envelope.took_ms)


def _run_eval(home: Path) -> JobResult:
    """Measure in a process of its own, which records the result. Raises ModelFault if it fails."""
    command = [sys.executable, "-m", "perdure.surfaces.cli", "eval", "--home", str(home), "--json"]
    try:
        process = subprocess.run(command, capture_output=True, timeout=_EVAL_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ModelFault(f"the measurement took longer than {_EVAL_LIMIT_S:.0f} s") from error
    if process.returncode:
        raise ModelFault(f"`perdure eval` ended with status {process.returncode}")
    return JobResult("measured on the questions of Perdure")


QUALITY_VIEWS: tuple[View, ...] = (
    View("GET", "/quality", show_quality, nav="quality"),
    View("POST", "/quality/measure", start_measuring, nav="quality", is_admin=True, pool="write"),
)
