"""Read from the words of a client that its subscription is at its limit, and when that ends. Pure.

Clients say it in many forms: after a bar as seconds since 1970, as a time to wait, as a time of day in a zone, as a
date. What cannot be read is an hour.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_LIMIT = re.compile(
    r"(?i)\b(?:usage|session|weekly|daily|monthly|rate|opus|sonnet|5-hour|request|spending|plan)[- ]limit"
    r"|\bhit your (?:\w+ )?limit|\blimit reached|\bquota\b|\brate_limit|\btoo many requests"
)
_EPOCH = re.compile(r"\|(\d{10})\b")
_SPAN = re.compile(
    r"(?i)\b(?:in|after)\b((?:\s*,?\s*(?:and\s+)?\d+\s*(?:days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|[dhms])\b)+)"
)
_PIECE = re.compile(r"(?i)(\d+)\s*([dhms])")
_CLOCK = re.compile(
    r"(?i)\b(?:resets?|again)(?: at| on)?\s+(?:(?P<month>[a-z]{3})[a-z]*\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?"
    r"(?:\s+(?P<year>\d{4}),?)?\s+(?:at\s+)?)?(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>am|pm)?"
    r"(?:\s*\((?P<zone>[\w/+-]+)\))?"
)
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_UNIT_S = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
DEFAULT_WAIT = timedelta(hours=1)  # after a limit that does not say when it ends
MIN_WAIT, MAX_WAIT = timedelta(minutes=1), timedelta(days=8)


def is_limit(message: str) -> bool:
    """Return True if a client says that its subscription, or the endpoint behind it, allows no more for now.

    >>> is_limit("You've hit your usage limit."), is_limit("The answer reached its maximum length")
    (True, False)
    """
    return bool(_LIMIT.search(message))


def find_free_time(message: str, now: datetime) -> datetime:
    """Return when a limit ends by the words of a client, at least a minute and at most eight days from now.

    >>> at = datetime(2026, 3, 1, 9, tzinfo=UTC)
    >>> find_free_time("You've hit your usage limit. Try again in 2 hours 5 minutes.", at).isoformat()
    '2026-03-01T11:05:00+00:00'
    >>> find_free_time("You've hit your session limit · resets 3pm (UTC)", at).isoformat()
    '2026-03-01T15:00:00+00:00'
    """
    free_at = _read_epoch(message) or _read_span(message, now) or _read_clock(message, now) or now + DEFAULT_WAIT
    return min(max(free_at, now + MIN_WAIT), now + MAX_WAIT)


def _read_epoch(message: str) -> datetime | None:
    match = _EPOCH.search(message)
    return datetime.fromtimestamp(int(match[1]), UTC) if match else None


def _read_span(message: str, now: datetime) -> datetime | None:
    match = _SPAN.search(message)
    if match is None:
        return None
    seconds = sum(min(int(n), 10_000) * _UNIT_S[unit.lower()] for n, unit in _PIECE.findall(match[1]))
    return now + timedelta(seconds=seconds)


def _read_clock(message: str, now: datetime) -> datetime | None:
    """Return the time of day, or the date, at which a message says that the limit ends; None if it says none."""
    match = _CLOCK.search(message)
    if match is None or not (match["half"] or match["minute"]):
        return None
    zone: Any = now.tzinfo
    with contextlib.suppress(ZoneInfoNotFoundError, ValueError, OSError):
        zone = ZoneInfo(match["zone"]) if match["zone"] else zone
    local_now = now.astimezone(zone)
    hour = (
        int(match["hour"]) % 12 + (12 if match["half"].lower() == "pm" else 0) if match["half"] else int(match["hour"])
    )
    try:
        free_at = local_now.replace(hour=hour, minute=int(match["minute"] or 0), second=0, microsecond=0)
        if match["month"]:
            month = _MONTHS.index(match["month"].lower()) + 1
            return free_at.replace(int(match["year"] or local_now.year), month, int(match["day"]))
    except ValueError:
        return None
    return free_at if free_at > local_now else free_at + timedelta(days=1)
