"""The report of one's own memory in sentences, the same for the terminal and the page."""

from __future__ import annotations

from perdure.report.own_report import MIN_JUDGED, OwnReport, VerdictCounts
from perdure.surfaces.units import format_count, format_size


def describe_verdict(verdict: VerdictCounts) -> str:
    """Say in a sentence or two what the verdict rests on.

    >>> describe_verdict(VerdictCounts("not known yet", 3, 2, 200, 12, 0.1, 0.0, 1.0))
    '3 recalls were checked: at 10 there is a verdict.'
    """
    if verdict.n_judged < MIN_JUDGED:
        was = "was" if verdict.n_judged == 1 else "were"
        return f"{format_count(verdict.n_judged, 'recall')} {was} checked: at {MIN_JUDGED} there is a verdict."
    share, chance = verdict.n_used / verdict.n_judged, verdict.n_chance_used / verdict.n_chance
    p = "p < 0.001" if verdict.p < 0.001 else f"p = {verdict.p:.3f}"
    return (
        f"Answers used {share:.0%} of the recalls ({verdict.n_used:,} of {verdict.n_judged:,}; {verdict.low:.0%} to "
        f'{verdict.high:.0%}). Of texts of the same project, chosen by lot, they "use" {chance:.0%} ({p}).'
    )


def describe_cost(report: OwnReport) -> str:
    """Say how many tokens and milliseconds the memory took."""
    costs = report.costs
    parts = [
        f"{costs.n_recall_tokens:,} tokens beside messages ({costs.n_used_tokens:,} in texts that were used)",
        f"{costs.n_fact_tokens:,} at tool calls",
        f"floors of {format_size(costs.n_floor_chars)}",
    ]
    parts += [f"{costs.n_model_tokens:,} of models that Perdure asked"] if costs.n_model_tokens else []
    if costs.p50_ms is not None and costs.p95_ms is not None:
        parts.append(f"a message waited {costs.p50_ms:.0f} ms, 95 % at most {costs.p95_ms:.0f} ms")
    return "; ".join(parts)


def describe_growth(report: OwnReport) -> str:
    """Say how the home grew, and what it holds."""
    growth = report.growth
    changes = f"{growth.n_new:,} new, {growth.n_superseded:,} superseded, {growth.n_retired:,} retired"
    held = f"{format_count(growth.n_memories, 'memory')} of {growth.n_stored_tokens:,} tokens"
    return f"{changes}; {held}, {growth.n_turns:,} turns"


def describe_probes(report: OwnReport) -> str:
    """Say how many questions of the home's own history are answered, and whether that changed."""
    if not report.probe_runs:
        return "none asked yet: the job `probes` asks them at night, `perdure report --ask` now"
    run = report.probe_runs[-1]
    answered = f"{run.n_answered:,} of {len(run.answers):,} of your history answered"
    density = report.hits_per_1000_tokens
    answered += f", {density:.1f} for a thousand tokens of memories" if density is not None else ""
    if report.drift is None:
        return answered
    change, before = report.drift.change, report.drift.before
    verdict = "more than chance" if change.is_fall else "within chance"
    return (
        f"{answered}; since {before.at:%Y-%m-%d} {100 * change.change:+.1f} points of {change.n:,} "
        f"({100 * change.low + 0.0:+.1f} to {100 * change.high:+.1f}): {verdict}"
    )
