"""The weeks by which things are counted: each begins on its Monday, in UTC. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

HALF_YEAR = 26  # weeks that are looked back at


def sql(column: str) -> str:
    """The Monday (yyyy-mm-dd) of a column of instants in milliseconds, for a query."""
    return f"date({column} / 1000, 'unixepoch', '-6 days', 'weekday 1')"


def monday(day: date) -> date:
    """The first day of a day's week.

    >>> monday(date(2026, 3, 18)), monday(date(2026, 3, 16))
    (datetime.date(2026, 3, 16), datetime.date(2026, 3, 16))
    """
    return day - timedelta(days=day.weekday())


def mondays(today: date, n: int = HALF_YEAR) -> list[date]:
    """The Mondays of the last n weeks, this one's last."""
    return [monday(today) - timedelta(weeks=back) for back in range(n - 1, -1, -1)]


def begins_at(day: date) -> datetime:
    """The first instant of a day."""
    return datetime.combine(day, time(), UTC)
