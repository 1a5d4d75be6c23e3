"""When a job is due. Pure: the time is a parameter."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from cronsim import CronSim, CronSimError

from perdure.errors import ConfigFault

GRACE_S = 90  # later than this after its time, a run counts as missed

MissedRuns = Literal["skip", "once"]  # for missed runs: no run, or one run for all of them


def check_expression(expression: str, *, name: str) -> None:
    """Raise ConfigFault unless this is a cron expression of five fields; "" switches a job off."""
    if not expression:
        return
    try:
        if len(expression.split()) != 5:
            raise CronSimError("it needs five fields")
        CronSim(expression, datetime(2026, 1, 1))
    except CronSimError as error:
        raise ConfigFault(f"{name} = {expression!r} ({error}; like '*/5 * * * *', or empty for never)") from error


def find_next_time(expression: str, after_at: datetime) -> datetime | None:
    """Return the first time after `after_at`, in its time zone; None if there is none.

    >>> str(find_next_time("30 3 * * *", datetime(2026, 1, 1, 4)))
    '2026-01-02 03:30:00'
    """
    return next(CronSim(expression, after_at), None) if expression else None


def is_due(expression: str, *, since: datetime, now: datetime, missed: MissedRuns) -> bool:
    """Return True if a job must run now. since: when it last began, or was first known.

    >>> is_due("0 * * * *", since=datetime(2026, 1, 1, 3, 10), now=datetime(2026, 1, 1, 6, 30), missed="once")
    True
    >>> is_due("0 * * * *", since=datetime(2026, 1, 1, 3, 10), now=datetime(2026, 1, 1, 6, 30), missed="skip")
    False
    """
    first_at = find_next_time(expression, since)
    if first_at is None or first_at > now:
        return False
    if missed == "once":
        return True
    latest_at = next(CronSim(expression, now, reverse=True), first_at)
    return (now - max(first_at, latest_at)).total_seconds() <= GRACE_S
