"""Instants and names as clients write them, made safe to use. Pure.

Everything here takes any JSON value, because transcripts come from strangers: a value of the wrong type
or size gives None or "", never an exception.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from perdure.patterns import late

MAX_TOKENS = 10**9  # no client reports more for one response
MAX_ID_CHARS = 200  # native ids are at most about 60 characters; a longer one is hashed
_MIN_EPOCH_MS = 100_000_000_000  # 1973 in milliseconds; smaller numbers are taken for seconds (until the year 5138)
_SAFE = late(rf"[A-Za-z0-9_.:@-]{{0,{MAX_ID_CHARS}}}")  # what nearly all ids are made of
_UNSAFE = late(r"[\x00-\x1f\x7f/\\]")


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
            return datetime.fromtimestamp(value / 1000 if value >= _MIN_EPOCH_MS else value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None


def utc(at: datetime | None) -> datetime | None:
    """Return an instant as UTC, one without an offset taken for UTC; None where that leaves the calendar."""
    if at is None or at.tzinfo is UTC:
        return at
    try:
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except OverflowError:
        return None


def ident(value: Any) -> str:
    """Return a native id as one clean segment: no control characters, no slashes, at most MAX_ID_CHARS; else ""."""
    if not isinstance(value, str):
        return ""
    if _SAFE.fullmatch(value):
        return value
    clean = _UNSAFE.sub("_", value.replace("\0", "")).strip()
    return clean if len(clean) <= MAX_ID_CHARS else digest(clean.encode())


def digest(data: bytes) -> str:
    """Return the id of something without one: "sha256-" and the first 16 hexadecimal digits."""
    return "sha256-" + hashlib.sha256(data).hexdigest()[:16]


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
