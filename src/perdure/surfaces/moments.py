"""Times as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from perdure.errors import UsageError

_AGES = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"(\d{1,6})([mhdw])\Z")


def moment(text: str | None, *, now: datetime | None = None) -> datetime | None:
    """An instant from what a person types: `30m`, `12h`, `7d`, `4w` ago, or a date, or an ISO time (local)."""
    if text is None:
        return None
    match = _AGE.match(text)
    try:
        if match:
            return (now or datetime.now(UTC)) - timedelta(**{_AGES[match[2]]: int(match[1])})
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is no time: write 30m, 12h, 7d, 4w, 2026-05-01 or 2026-05-01T14:00") from None


def ahead(text: str | None, *, now: datetime | None = None) -> datetime | None:
    """An instant to come from what a person types: `12h`, `30d`, `4w` from now, or a date, or an ISO time (local)."""
    match = _AGE.match(text or "")
    if not match:
        return moment(text)
    try:
        return (now or datetime.now(UTC)) + timedelta(**{_AGES[match[2]]: int(match[1])})
    except OverflowError:
        raise UsageError(f"{text!r} is further than any date goes") from None


def ago(at: datetime | None, now: datetime) -> str:
    """How long ago, as short as a badge."""
    if at is None:
        return "?"
    seconds = max(0, int((now - at).total_seconds()))
    for size, unit in ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return "0m ago"


def day(at: datetime | None) -> str:
    """A date and time for people, in their own zone."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M") if at else "no date"


def written_at(hybrid_time: str) -> datetime:
    """The instant of a hybrid time, as the journal has it.

    >>> written_at("2026-03-01T09:30:00.000Z#0000").isoformat()
    '2026-03-01T09:30:00+00:00'
    """
    return datetime.fromisoformat(hybrid_time.partition("#")[0])
