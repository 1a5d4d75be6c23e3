"""Instants and names as clients write them, made safe to use. Pure.

Everything here takes any JSON value, because transcripts come from strangers: a value of the wrong type
or size gives None or "", never an exception.
"""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Any

from perdure.capture.transcripts import MAX_ID_CHARS, clean_id, hash_to_id

__all__ = ["MAX_ID_CHARS", "clean_id", "hash_to_id", "instant", "total", "utc", "words"]

MAX_TOKENS = 10**9  # no client reports more for one response
_MIN_EPOCH_MS = 100_000_000_000  # 1973 in milliseconds; smaller numbers are taken for seconds (until the year 5138)


def instant(value: Any) -> datetime | None:
    """Return the aware UTC instant of an ISO 8601 string or of epoch seconds or milliseconds; None if it is neither.

    A string without an offset is taken for UTC.

    >>> instant(1763681581544)
    datetime.datetime(2025, 11, 20, 23, 33, 1, 544000, tzinfo=datetime.timezone.utc)
    """
    try:
        if isinstance(value, str):
            return utc(datetime.fromisoformat(value))
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return utc(datetime.fromtimestamp(value / 1000 if value >= _MIN_EPOCH_MS else value, UTC))
    except (ValueError, OverflowError, OSError):
        return None
    return None


def utc(at: datetime | None) -> datetime | None:
    """Return an instant as UTC, one without an offset taken for UTC; None where a time zone would leave the calendar.

    That is so in its first and its last year: such a clock lies, and no zone of a reader can show it.
    """
    if at is None or not MINYEAR < at.year < MAXYEAR:
        return None
    if at.tzinfo is UTC:
        return at
    at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    return at if MINYEAR < at.year < MAXYEAR else None


def words(value: Any) -> str:
    """Return the value when it is a string, else ""."""
    return value if isinstance(value, str) else ""


def total(*values: Any) -> int:
    """Return the sum of token counts; what is no whole number from 0 to a billion counts as 0."""
    n_tokens = 0
    for value in values:
        if type(value) is int and 0 <= value <= MAX_TOKENS:
            n_tokens += value
    return n_tokens
