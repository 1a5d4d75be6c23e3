"""The command `report`: what one's own memory told, what came of it, what it missed and cost, and what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from perdure import text
from perdure.errors import UsageError
from perdure.report import own_report, probe_runs
from perdure.report.cue_outcomes import OUTCOMES, CueOutcome
from perdure.report.own_report import OwnReport
from perdure.surfaces.cli.common import Shell, command, format_count, format_time, parse_moment
from perdure.surfaces.own_report_text import describe_cost, describe_growth, describe_probes, describe_verdict

_ROW_CHARS = 84  # of the words of a row
_PROBE_LIMIT_S = 600.0  # of --ask


@command(
    "report",
    epilog="""\
  perdure report                   the last seven days
  perdure report --since 30d --rows 10
  perdure report --ask             ask the questions of your history first, now
  perdure report --json""",
)
@click.option("--since", metavar="WHEN", help="Since this time: 7d (the default), 4w, 2026-05-01.")
@click.option("--rows", default=3, show_default=True, type=click.IntRange(0, 1000), help="Rows of each part.")
@click.option("--ask", is_flag=True, help="Ask the questions that are made of your history now, and keep the result.")
def report_command(shell: Shell, since: str | None, rows: int, ask: bool) -> None:
    """Show what your memory was worth: the texts that recall told and what came of each (used, ignored, corrected
    since, wrong), errors that were repeated, silence that should have spoken, tokens and time, growth, what to retire,
    and how many questions of your own history recall still answers. Each row begins with an id that `perdure show`
    takes. Exit status 1: recall answers fewer of these questions than a week before, by more than chance.
    """
    now = datetime.now(UTC)
    since_at = parse_moment(since, now=now)
    if since_at is not None and since_at > now:
        raise UsageError(f"--since {since}: this time is still to come")
    with shell.open_home() as home:
        home.upkeep.catch_up()
        if ask:
            probe_runs.run_probes(home, now=now, limit_s=_PROBE_LIMIT_S)
        report = own_report.make_report(home, now=datetime.now(UTC), since_at=since_at)
    if shell.as_json:
        shell.print_json(_to_json(report))
    else:
        _print_report(shell, report, rows)
    if report.warning:
        sys.exit(1)


def _to_json(report: OwnReport) -> dict[str, Any]:
    drift = report.drift
    return {
        **own_report.to_counts(report),
        "warning": report.warning,
        "drift": None
        if drift is None
        else {
            "before": drift.before.at,
            "after": drift.after.at,
            "change": drift.change.change,
            **asdict(drift.change),
            "causes": drift.causes,
            "lost": drift.lost,
        },
        "rows": {
            "texts": [asdict(cue_outcome) for cue_outcome in report.outcomes],
            "errors": [asdict(error) for error in report.errors.repeated],
            "missed": [asdict(missed) for missed in report.missed],
            "advice": [asdict(advice) for advice in report.advice],
        },
        "weeks": list(report.earlier),
    }


def _print_report(shell: Shell, report: OwnReport, n_rows: int) -> None:
    period = f"{format_time(report.since_at)} to {format_time(report.until_at)}"
    shell.out.print(f"Your memory, {period}: {report.verdict.verdict}", style="bold", markup=False)
    shell.out.print(describe_verdict(report.verdict), markup=False)
    if report.warning:
        shell.out.print(f"! {report.warning}", style="yellow", markup=False)
    for title, summary, rows in _list_parts(report):
        shell.out.print(f"{title:>10}  {summary}", markup=False, highlight=False)
        for name, words in rows[:n_rows]:
            line = f"            {_shorten_id(name)}  {text.one_line(words, _ROW_CHARS)}"
            shell.out.print(line, style="dim", markup=False, highlight=False)
        if len(rows) > n_rows > 0:
            shell.out.print(f"            … and {len(rows) - n_rows:,} more (--rows)", style="dim", markup=False)


Rows = Sequence[tuple[str, str]]  # (id of a turn or a memory, words)


def _list_parts(report: OwnReport) -> Iterator[tuple[str, str, Rows]]:
    """Yield (title, summary, rows) of each part."""
    n_asked, n_texts = report.costs.n_answers, len(report.outcomes)
    told = f"{report.n_recalls:,} of {format_count(n_asked, 'message')} got something"
    yield "recalled", f"{told}: {format_count(n_texts, 'text')}", ()
    for outcome in OUTCOMES:
        rows = [_to_row(cue) for cue in reversed(report.outcomes) if cue.outcome == outcome]
        if rows or outcome in ("used", "ignored"):
            yield outcome, f"{len(rows):,}", rows
    yield "at tools", f"{format_count(report.n_facts, 'fact')} told at tool calls", ()
    yield (
        "errors",
        _describe_errors(report),
        [
            (error.turn_id, f"{error.command} → {error.answer or 'nothing known'} [{_shorten_id(error.earlier_turn)}]")
            for error in report.errors.repeated
        ],
    )
    yield (
        "silence",
        f"{format_count(len(report.missed), 'message')} got nothing, and the session found it later",
        [
            (missed.turn_id, f"{missed.text} ({missed.found_by} [{_shorten_id(missed.found_turn)}])")
            for missed in report.missed
        ],
    )
    yield "cost", describe_cost(report), ()
    yield "growth", describe_growth(report), ()
    yield (
        "retire",
        f"{format_count(len(report.advice), 'memory')} (`perdure memories retire ID`)",
        [(advice.memory_id, f"{advice.text} ({advice.why})") for advice in report.advice],
    )
    yield "questions", describe_probes(report), _list_lost(report)


def _to_row(cue_outcome: CueOutcome) -> tuple[str, str]:
    cue, why = cue_outcome.cue, f" ({cue_outcome.why})" if cue_outcome.why else ""
    return cue_outcome.message_turn or cue, f"[{_shorten_id(cue)}] {cue_outcome.text}{why}"


def _describe_errors(report: OwnReport) -> str:
    errors = report.errors
    summary = f"{format_count(errors.n_failed, 'command')} failed, {len(errors.repeated):,} as in an earlier session"
    if not errors.repeated:
        return summary
    return f"{summary}; of these the home knew for {errors.n_known:,} what helps, and had told {errors.n_told:,}"


def _list_lost(report: OwnReport) -> Rows:
    """Return the questions that lost their answer, if that is more than chance."""
    if report.drift is None or not report.warning:
        return ()
    return [(name.partition("/")[0], "was answered before, and is not now") for name in report.drift.lost]


def _shorten_id(name: str) -> str:
    """Shorten the id of a turn to what finds it; the id of a memory stays whole."""
    return name if name.startswith("mem-") else name[:8]
