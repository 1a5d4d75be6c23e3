"""The tokens and the money of a session, summed from its entries: its answers, and what its summaries cost."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING

import msgspec

from perdure.formats.perdure import AnyEntry, Message, ModelUse, UsageEntry
from perdure.models.chat import TokenUsage

if TYPE_CHECKING:
    from perdure.home import Home

ANSWERS = "answers"  # the job of the session's own answers


class SessionTotals(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tokens and the money of some calls of models."""

    n_input: int = 0  # neither read from a provider's cache nor written to it
    n_output: int = 0
    n_cache_read: int = 0
    n_cache_write: int = 0
    money: float = 0.0
    n_unpriced: int = 0  # calls whose price is unknown: `money` is without them
    n_estimated: int = 0  # calls whose provider reported no tokens
    n_model_calls: int = 0

    def add(self, other: SessionTotals) -> SessionTotals:
        """Return the sum of two totals."""
        return SessionTotals(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))

    @property
    def n_read(self) -> int:
        """All tokens that models read."""
        return self.n_input + self.n_cache_read + self.n_cache_write


def to_totals(usage: UsageEntry | None) -> SessionTotals:
    """Return the totals of one call."""
    if usage is None:
        return SessionTotals()
    return SessionTotals(
        usage.n_input,
        usage.n_output,
        usage.n_cache_read,
        usage.n_cache_write,
        usage.money or 0.0,
        int(usage.money is None),
        int(not usage.is_reported),
        1,
    )


def add_totals(totals: Iterable[SessionTotals]) -> SessionTotals:
    """Return the sum of totals."""
    return reduce(SessionTotals.add, totals, SessionTotals())


def sum_by_job(entries: Iterable[AnyEntry]) -> dict[str, SessionTotals]:
    """Return the totals of a session's entries by job: ANSWERS, and the jobs of its other calls."""
    totals: dict[str, SessionTotals] = {}
    for entry in entries:
        usage = entry.usage if isinstance(entry, Message | ModelUse) else None
        if usage is not None:
            job = entry.job if isinstance(entry, ModelUse) else ANSWERS
            totals[job] = totals.get(job, SessionTotals()).add(to_totals(usage))
    return totals


def make_usage_entry(home: Home, model: str, usage: TokenUsage, *, is_reported: bool) -> UsageEntry:
    """Return the tokens of a call with their price. model: "provider:model"."""
    return UsageEntry(
        n_input=usage.n_input,
        n_output=usage.n_output,
        n_cache_read=usage.n_cache_read,
        n_cache_write=usage.n_cache_write,
        money=home.connections.roles().compute_chat_cost(model, usage),
        is_reported=is_reported,
    )
