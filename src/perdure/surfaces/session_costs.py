"""What a session cost, in words and for programs: the same in every command that tells it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.session.spending import ANSWERS, SessionTotals, add_totals
from perdure.surfaces.units import format_count


def format_totals(totals: SessionTotals) -> str:
    """Format tokens and money for people.

    >>> format_totals(SessionTotals(n_input=1200, n_cache_read=8000, n_output=300, money=0.0123))
    '9,200 tokens in (8,000 cached), 300 out, 0.0123 in money'
    """
    cached = f" ({totals.n_cache_read:,} cached)" if totals.n_cache_read else ""
    money = f", {totals.money:.4f} in money" if totals.money else ""
    unpriced = f", {format_count(totals.n_unpriced, 'call')} without a price" if totals.n_unpriced else ""
    return f"{totals.n_read:,} tokens in{cached}, {totals.n_output:,} out{money}{unpriced}"


def list_costs(totals_by_job: Mapping[str, SessionTotals]) -> Iterator[str]:
    """Yield what a session cost in all, and then of it each job beside its answers."""
    total = add_totals(totals_by_job.values())
    yield f"cost in total: {format_totals(total)}, in {format_count(total.n_model_calls, 'call')}"
    for job, totals in sorted(totals_by_job.items()):
        if job != ANSWERS:
            yield f"  of it for {job}: {format_totals(totals)}, in {format_count(totals.n_model_calls, 'call')}"


def totals_to_json(totals: SessionTotals) -> dict[str, Any]:
    """Return totals for programs."""
    return {name: getattr(totals, name) for name in totals.__struct_fields__}
