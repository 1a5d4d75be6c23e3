"""`/report`: whether the memory earns its place, on one page; each row leads to its turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from perdure.errors import IndexMissing
from perdure.report import own_report
from perdure.report.cue_outcomes import CueOutcome, Outcome
from perdure.report.own_report import OwnReport
from perdure.surfaces import own_report_text
from perdure.surfaces.web.charts import Chart, ChartDrawing, ChartSeries, draw_chart
from perdure.surfaces.web.render import format_number
from perdure.surfaces.web.visits import HtmlPage, View, Visit

PERIODS = (7, 30, 90)  # days
_MAX_ROWS = 8  # of each part
_VERDICT_STYLES = {"earns its place": "good", "does harm": "bad", "does not show its worth": "warn"}
_MEANINGS: Mapping[Outcome, str] = {  # in the order of the bar
    "used": "the answer rests on them, by its words, by more than chance",
    "ignored": "the answer does not show that it used them",
    "waiting": "the answer is not complete, or not captured yet",
    "corrected": "memories that were superseded or retired after they were told",
    "wrong": "you marked them, or your next message states otherwise",
}


class OutcomePart(NamedTuple):
    """The texts with one outcome, as a piece of the bar and as a list."""

    name: Outcome
    meaning: str
    n: int
    x: float  # of the piece, in per cent of the bar
    width: float
    rows: Sequence[CueOutcome]  # the newest


@dataclass(frozen=True, slots=True)
class ReportCharts:
    """The drawings of the page; None without points."""

    days: ChartDrawing | None
    probes: ChartDrawing | None


def show_report(visit: Visit) -> HtmlPage:
    """Show the report of the last days."""
    days = next((days for days in PERIODS if visit.query.get("days") == str(days)), PERIODS[0])
    values: dict[str, Any] = {"title": "Report", "days": days, "periods": PERIODS, "report": None}
    try:
        report = own_report.make_report(visit.home, now=visit.now, since_at=visit.now - timedelta(days=days))
    except IndexMissing:
        return HtmlPage("report.html", values)
    return HtmlPage("report.html", {**values, **collect_values(report)})


def collect_values(report: OwnReport) -> dict[str, Any]:
    """Return what the template shows of a report."""
    verdict = report.verdict.verdict
    is_known = verdict != "not known yet"
    return {
        "report": report,
        "style": _VERDICT_STYLES.get(verdict, ""),
        "headline": f"The memory {verdict}." if is_known else "It is not known yet whether the memory earns its place.",
        "reason": own_report_text.describe_verdict(report.verdict),
        "parts_of_bar": list(make_parts(report.outcomes)),
        "charts_shown": ReportCharts(draw_days(report), draw_probes(report)),
        "cost": own_report_text.describe_cost(report),
        "growth": own_report_text.describe_growth(report),
        "probes": own_report_text.describe_probes(report),
        "weeks": [_to_week(week) for week in report.earlier[-_MAX_ROWS:]][::-1],
        "max_rows": _MAX_ROWS,
    }


def make_parts(outcomes: Sequence[CueOutcome]) -> Iterator[OutcomePart]:
    """Yield the texts by outcome, in the order of the bar; none of an outcome without any."""
    x = 0.0
    for name, meaning in _MEANINGS.items():
        if rows := [cue_outcome for cue_outcome in outcomes if cue_outcome.outcome == name]:
            width = 100 * len(rows) / len(outcomes)
            yield OutcomePart(name, meaning, len(rows), x, width, rows[::-1][:_MAX_ROWS])
            x += width


def draw_days(report: OwnReport) -> ChartDrawing | None:
    """Draw how many texts were told each day, and how many of them were used."""
    if not report.outcomes:
        return None
    names = tuple(f"{day:%m-%d}" for day in report.by_day)
    told = ChartSeries("told", tuple(float(counts.total()) for counts in report.by_day.values()))
    used = ChartSeries("used", tuple(float(counts["used"]) for counts in report.by_day.values()))
    return draw_chart(Chart("Texts told and used, per day", names, (told, used), format_number))


def draw_probes(report: OwnReport) -> ChartDrawing | None:
    """Draw the share of the questions of the home's own history that were answered, night by night."""
    if len(report.probe_runs) < 2:
        return None
    names = tuple(f"{run.at:%Y-%m-%d}" for run in report.probe_runs)
    shares = ChartSeries("answered", tuple(run.share for run in report.probe_runs))
    return draw_chart(Chart("Questions of your history answered", names, (shares,), "{:.0%}".format, "lines", top=1.0))


def _to_week(week: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a kept report: its day, the verdict, and the counts."""
    texts = week["texts"]
    return {
        "until": week["until"][:10],
        "verdict": week["verdict"]["verdict"],
        "told": sum(texts.values()),
        **texts,
        "tokens": week["costs"]["n_recall_tokens"],
        "missed": week["missed"],
    }


REPORT_VIEWS: tuple[View, ...] = (View("GET", "/report", show_report, nav="recall", pool="slow"),)
