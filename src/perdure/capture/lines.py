"""Lines, offsets and time stamps of raw transcript bytes. Pure, standard library only.

Offsets are bytes, never characters: a character cut in two at the end of a file belongs to the next delta.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from perdure.types import Line

_STAMP = re.compile(
    rb'"(?:timestamp|ts|created_at|createdAt|startTime|start_time|time|created|date)"\s*:\s*(?:"([^"\\]{8,40})"|(\d{10,13})(?=[\s,}.]))'
)
_TAIL_BYTES = 1 << 18  # the last stamp is looked for in the last 256 KiB first
_line = tuple.__new__  # makes a Line at half the price of calling it; a transcript has very many
_YEARS = (1990, 2200)  # a stamp outside of these is a clock that lies; it is not used


def split(data: bytes, *, from_offset: int = 0) -> Iterator[Line]:
    """The lines of `data`, each with its offset in the source. The last may lack its newline."""
    start, size, find = 0, len(data), data.find
    while start < size:
        end = find(b"\n", start)
        if end < 0:
            end = size
        yield _line(Line, (from_offset + start, data[start:end]))
        start = end + 1


def first_stamp(data: bytes) -> datetime | None:
    """The first believable time stamp in the bytes, by the names that transcripts use for it."""
    return next((at for match in _STAMP.finditer(data) if (at := _instant(match))), None)


def last_stamp(data: bytes) -> datetime | None:
    """The last believable time stamp in the bytes."""
    for window in (data[-_TAIL_BYTES:], data):
        stamps = [at for match in _STAMP.finditer(window) if (at := _instant(match))]
        if stamps:
            return stamps[-1]
    return None


def _instant(match: re.Match[bytes]) -> datetime | None:
    text, number = match.groups()
    try:
        if number:
            value = int(number)
            at = datetime.fromtimestamp(value / 1000 if value > 10**11 else value, UTC)
        else:
            at = datetime.fromisoformat(text.decode("ascii"))
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError, OSError):  # the last two: it leaves the calendar, here or in UTC
        return None
    return at if _YEARS[0] <= at.year < _YEARS[1] else None
