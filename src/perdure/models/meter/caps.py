"""Caps: what a call may cost before it is asked, and which cap that would break. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from perdure.config import CapsConfig, PriceConfig
from perdure.models.chat import Usage

MILLION = 1_000_000  # tokens, which prices are for


@dataclass(frozen=True)
class Spent:
    """What some calls came to."""

    n_calls: int = 0
    n_tokens: int = 0
    money: float = 0.0  # of the calls whose price is known
    n_unpriced: int = 0  # calls whose price is not


class Periods(NamedTuple):
    """The day and the month that an instant lies in, in its own zone."""

    day_at: datetime
    month_at: datetime
    next_day_at: datetime
    next_month_at: datetime


def periods(now: datetime) -> Periods:
    """Return where the day and the month of an instant begin and end.

    >>> periods(datetime(2026, 12, 31, 15)).next_month_at
    datetime.datetime(2027, 1, 1, 0, 0)
    """
    day_at = now.replace(hour=0, minute=0, second=0, microsecond=0)
    month_at = day_at.replace(day=1)
    next_month_at = (month_at + timedelta(days=32)).replace(day=1)
    return Periods(day_at, month_at, day_at + timedelta(days=1), next_month_at)


def money(usage: Usage, price: PriceConfig | None) -> float | None:
    """Return what a call costs, or None where its model has no price.

    >>> money(Usage(n_input=1_000, n_output=200, n_cache_read=4_000), PriceConfig(3.0, 15.0, cache_read=0.3))
    0.0072
    """
    if price is None:
        return None
    in_tokens = (
        usage.n_input * price.input
        + usage.n_cache_read * (price.cache_read or price.input)
        + usage.n_cache_write * (price.cache_write or price.input)
    )
    return round((in_tokens + usage.n_output * price.output) / MILLION, 9)


def broken(caps: CapsConfig, spent: Mapping[str, Spent], wanted: Usage, cost: float | None, now: datetime) -> str:
    """Return which cap a call would break, with how much is spent and when it is free again; "" for none.

    spent: what this "job" and all together in this "day" and "month" came to, calls that are going on included at the
    most that they may take. wanted, cost: the most that this call may take.
    """
    at = periods(now)
    for period, free_at in (("job", at.next_day_at), ("day", at.next_day_at), ("month", at.next_month_at)):
        had = spent[period]
        limit: int = getattr(caps, f"{period}_tokens")
        if limit and had.n_tokens + wanted.n_tokens > limit:
            return _said(f"{period}_tokens", f"{had.n_tokens:,} of {limit:,}", f"{wanted.n_tokens:,}", free_at)
        most: float = getattr(caps, f"{period}_money")
        if most and had.money + (cost or 0) > most:
            return _said(f"{period}_money", f"{had.money:.4f} of {most:g}", f"{cost or 0:.4f}", free_at)
    return ""


def _said(cap: str, had: str, wanted: str, free_at: datetime) -> str:
    return f"models.caps.{cap}: {had} spent, and this call may take {wanted}; free again {free_at:%Y-%m-%d %H:%M}"


def in_money(caps: CapsConfig) -> str:
    """Return the first cap in money that is set, or ""."""
    return next((name for name in ("job_money", "day_money", "month_money") if getattr(caps, name)), "")
