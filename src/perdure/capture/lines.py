"""Lines, offsets and time stamps of raw transcript bytes, and which emitted lines were posted.

Standard library only. Offsets are bytes, never characters: a character cut in two at the end of a file
belongs to the next delta.

An adapter emits lines for a source that is rewritten in place. The last state of the source counts: a
line that was gone from it and returned is posted again. Posted lines are known by digests, kept beside
the cursors. The digests are only a convenience: without them all lines are posted again, and the archive
takes what it lacks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from perdure.disk import make_folder, replace_file

_STAMP = re.compile(
    rb'"(?:timestamp|ts|created_at|createdAt|startTime|start_time|time|created|date)"\s*:\s*(?:"([^"\\]{8,40})"|(\d{10,13})(?=[\s,}.]))'
)
_TAIL_BYTES = 1 << 18  # the last stamp is searched in the last 256 KiB first
_new_line = tuple.__new__  # makes a Line at half the price of calling it; a transcript has very many
_PLAUSIBLE_YEARS = (1990, 2200)  # a stamp outside is from a wrong clock and not used


class Line(NamedTuple):
    """One line of a source, without its newline. A tuple, because a transcript has very many."""

    offset: int  # bytes from the start of the source to the line's first byte
    raw: bytes

    @property
    def end(self) -> int:
        """The offset just after the newline."""
        return self.offset + len(self.raw) + 1

    @property
    def span(self) -> tuple[int, int]:
        """The byte range in the source, newline included."""
        return self.offset, self.offset + len(self.raw) + 1


def split_lines(data: bytes, *, from_offset: int = 0) -> Iterator[Line]:
    """Yield the lines of `data`, each with its offset in the source. The last may lack its newline."""
    start, size, find = 0, len(data), data.find
    while start < size:
        end = find(b"\n", start)
        if end < 0:
            end = size
        yield _new_line(Line, (from_offset + start, data[start:end]))
        start = end + 1


def find_first_stamp(data: bytes) -> datetime | None:
    """Return the first plausible time stamp in the bytes, by the names that transcripts use for it."""
    return next((stamp for match in _STAMP.finditer(data) if (stamp := _parse_instant(match))), None)


def find_last_stamp(data: bytes) -> datetime | None:
    """Return the last plausible time stamp in the bytes."""
    for window in (data[-_TAIL_BYTES:], data):
        stamps = [stamp for match in _STAMP.finditer(window) if (stamp := _parse_instant(match))]
        if stamps:
            return stamps[-1]
    return None


def _parse_instant(match: re.Match[bytes]) -> datetime | None:
    text, number = match.groups()
    try:
        if number:
            value = int(number)
            instant = datetime.fromtimestamp(value / 1000 if value > 10**11 else value, UTC)
        else:
            instant = datetime.fromisoformat(text.decode("ascii"))
        instant = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError, OSError):  # the last two: outside the calendar, here or in UTC
        return None
    return instant if _PLAUSIBLE_YEARS[0] <= instant.year < _PLAUSIBLE_YEARS[1] else None


_DIGEST_BYTES = 16


def forget_removed_lines(folder: Path, source: str, lines: Sequence[bytes]) -> None:
    """Forget the posted lines that the source no longer has. Call it before new lines are posted."""
    posted_digests, digests = _read_posted_digests(folder, source), set(map(_hash_line, lines))
    remaining = [digest for digest in posted_digests if digest in digests]
    if len(remaining) < len(posted_digests):
        replace_file(_to_posted_path(folder, source), b"".join(remaining), sync=False)


def select_unposted_lines(folder: Path, source: str, lines: Sequence[bytes]) -> list[bytes]:
    """Return the lines of a source that were not posted yet, in order, each once."""
    posted_digests = set(_read_posted_digests(folder, source))
    return [line for line in dict.fromkeys(lines) if _hash_line(line) not in posted_digests]


def mark_lines_posted(folder: Path, source: str, lines: Sequence[bytes]) -> None:
    """Note that these lines were posted. Call it after they are durable; not synced itself."""
    make_folder(folder)
    with _to_posted_path(folder, source).open("ab") as file:
        n_torn_bytes = file.tell() % _DIGEST_BYTES
        file.truncate(file.tell() - n_torn_bytes)
        file.write(b"".join(map(_hash_line, lines)))


def _read_posted_digests(folder: Path, source: str) -> list[bytes]:
    try:
        data = _to_posted_path(folder, source).read_bytes()
    except OSError:
        return []
    return [data[i : i + _DIGEST_BYTES] for i in range(0, len(data), _DIGEST_BYTES)]


def _hash_line(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=_DIGEST_BYTES).digest()


def _to_posted_path(folder: Path, source: str) -> Path:
    return folder / (hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:32] + ".lines")
