"""When a job is due. Pure: the clock is handed in."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from cronsim import CronSim, CronSimError

from perdure.errors import ConfigFault

GRACE_S = 90  # later than this after its time, a run counts as missed

Missed = Literal["skip", "once"]  # what is made of missed runs: nothing, or one run for all of them


def check(expression: str, *, name: str) -> None:
    """Raise ConfigFault unless this is a cron expression of five fields; "" switches a job off."""
    if not expression:
        return
    try:
        if len(expression.split()) != 5:
            raise CronSimError("it needs five fields")
        CronSim(expression, datetime(2026, 1, 1))
    except CronSimError as error:
        raise ConfigFault(f"{name} = {expression!r} ({error}; like '*/5 * * * *', or empty for never)") from error


def next_at(expression: str, after: datetime) -> datetime | None:
    """The first time past `after`, in its time zone; None when there is none.

    >>> str(next_at("30 3 * * *", datetime(2026, 1, 1, 4)))
    '2026-01-02 03:30:00'
    """
    return next(CronSim(expression, after), None) if expression else None


def is_due(expression: str, *, since: datetime, now: datetime, missed: Missed) -> bool:
    """Whether a job is to run now. since: when it last began, or was first known.

    >>> is_due("0 * * * *", since=datetime(2026, 1, 1, 3, 10), now=datetime(2026, 1, 1, 6, 30), missed="once")
    True
    >>> is_due("0 * * * *", since=datetime(2026, 1, 1, 3, 10), now=datetime(2026, 1, 1, 6, 30), missed="skip")
    False
    """
    first = next_at(expression, since)
    if first is None or first > now:
        return False
    if missed == "once":
        return True
    latest = next(CronSim(expression, now, reverse=True), first)
    return (now - max(first, latest)).total_seconds() <= GRACE_S
