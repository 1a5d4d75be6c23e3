"""The tokens and the money of a session, summed from its answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perdure.formats.perdure import AnyEntry, Message


@dataclass(frozen=True)
class SessionSpending:
    """The cost of the answers on a path."""

    n_answers: int = 0
    n_input: int = 0  # tokens that were neither read from the provider's cache nor written to it
    n_cached: int = 0  # tokens that were read from it
    n_cache_write: int = 0
    n_output: int = 0
    money: float | None = None  # None: no price is known
    n_unpriced: int = 0  # answers whose price is unknown
    n_estimated: int = 0  # answers whose tokens the provider did not report


def sum_spending(path: Iterable[AnyEntry]) -> SessionSpending:
    """Return the cost of the answers on a path."""
    usages = [entry.usage for entry in path if isinstance(entry, Message) and entry.usage]
    prices = [usage.money for usage in usages if usage.money is not None]
    return SessionSpending(
        len(usages),
        sum(usage.n_input for usage in usages),
        sum(usage.n_cache_read for usage in usages),
        sum(usage.n_cache_write for usage in usages),
        sum(usage.n_output for usage in usages),
        sum(prices) if prices else None,
        len(usages) - len(prices),
        sum(not usage.is_reported for usage in usages),
    )
