"""Amounts and times, as people read and write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from perdure.errors import UsageError
from perdure.regex import lazy_re
from perdure.text import format_age

if TYPE_CHECKING:
    from perdure.clients.retention import Retention

_AGE_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
N_SHADOW_MESSAGES = 20  # recorded blocks after which a review is worth the time
_AGE_PATTERN = lazy_re(r"(\d{1,6})([mhdw])\Z")


def parse_moment(text: str | None, *, now: datetime | None = None) -> datetime | None:
    """Parse a time that a person typed: `30m`, `12h`, `7d`, `4w` ago, or a date, or an ISO time (local).

    Raises UsageError.
    """
    if text is None:
        return None
    match = _AGE_PATTERN.match(text)
    try:
        if match:
            return (now or datetime.now(UTC)) - timedelta(**{_AGE_UNITS[match[2]]: int(match[1])})
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is not a time: write 30m, 12h, 7d, 4w, 2026-05-01 or 2026-05-01T14:00") from None


def parse_future_moment(text: str | None, *, now: datetime | None = None) -> datetime | None:
    """Parse a future time that a person typed: `12h`, `30d`, `4w` from now, or a date, or an ISO time (local).

    Raises UsageError.
    """
    match = _AGE_PATTERN.match(text or "")
    if not match:
        return parse_moment(text)
    try:
        return (now or datetime.now(UTC)) + timedelta(**{_AGE_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        raise UsageError(f"{text!r} is out of the range of dates") from None


def format_time(instant: datetime | None) -> str:
    """Format a date and time for people, in their own time zone."""
    return instant.astimezone().strftime("%Y-%m-%d %H:%M") if instant else "no date"


def format_zoned_time(instant: datetime | None) -> str:
    """Format a date and time as `format_time` does, with the name of the zone: a page may be read elsewhere."""
    return instant.astimezone().strftime("%Y-%m-%d %H:%M %Z") if instant else "no date"


def format_time_and_age(instant: datetime | None, now: datetime) -> str:
    """Format a date and time for people, and how long ago it was."""
    age = format_age(instant, now)
    return f"{format_time(instant)} ({age})" if age else format_time(instant)


def from_hybrid_time(hybrid_time: str) -> datetime:
    """Return the instant of a hybrid time of the journal.

    >>> from_hybrid_time("2026-03-01T09:30:00.000Z#0000").isoformat()
    '2026-03-01T09:30:00+00:00'
    """
    return datetime.fromisoformat(hybrid_time.partition("#")[0])


_VOWELS = "aeiou"


def format_size(n_bytes: float) -> str:
    """Format a number of bytes for people, in about three digits.

    >>> format_size(512), format_size(2_500_000), format_size(640_000)
    ('512 B', '2.5 MB', '640 kB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} {unit}" if unit == "B" or n_bytes >= 100 else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} TB"


def format_count(n: int, noun: str) -> str:
    """Format a count with its noun.

    >>> format_count(1, "run"), format_count(1200, "run"), format_count(2, "memory"), format_count(2, "day")
    ('1 run', '1,200 runs', '2 memories', '2 days')
    """
    if n == 1:
        return f"{n} {noun}"
    is_ies = noun.endswith("y") and noun[-2] not in _VOWELS
    return f"{n:,} {noun[:-1]}ies" if is_ies else f"{n:,} {noun}s"


def format_forgotten(n: int, noun: str, n_memories: int) -> str:
    """Format how much of a transcript is forgotten, with the memories that go with it.

    >>> format_forgotten(2, "item", 1), format_forgotten(0, "item", 3), format_forgotten(0, "turn", 0)
    ('2 items and 1 memory', '3 memories', '0 turns')
    """
    counts = [format_count(n, noun)] if n or not n_memories else []
    return " and ".join([*counts, *([format_count(n_memories, "memory")] if n_memories else [])])


def describe_retention(item: Retention) -> str:
    """Say how long a client keeps its transcripts.

    >>> from perdure.clients.retention import Retention
    >>> describe_retention(Retention("claude-code", 30.0)), describe_retention(Retention("codex", None))
    ('deletes a session 30 days after its last use', 'keeps its sessions until you delete them')
    """
    if item.days is None:
        return "keeps its sessions until you delete them"
    age = format_count(round(item.days), "day") if item.days >= 1 else format_count(round(item.days * 24), "hour")
    limit = f", and all but the newest {item.max_sessions:,}" if item.max_sessions else ""
    return f"deletes a session {age} after its last use{limit}"


def describe_saved(n_sessions: int) -> str:
    """Say how many sessions are in the archive alone; "" for none.

    >>> describe_saved(2), describe_saved(0)
    ('2 sessions that their clients have deleted since', '')
    """
    return f"{format_count(n_sessions, 'session')} that their clients have deleted since" if n_sessions else ""


def describe_recording(n_blocks: int) -> str:
    """Return one line on how far the recording is.

    >>> describe_recording(12)
    '12 of 20 messages recorded; then: perdure review'
    """
    if n_blocks < N_SHADOW_MESSAGES:
        return f"{n_blocks} of {N_SHADOW_MESSAGES} messages recorded; then: perdure review"
    return f"{n_blocks} messages recorded; next: perdure review"


def format_paragraphs(counts: dict[str, int] | None) -> str:
    """Say how many paragraphs of host files are believed; "" if there are none.

    >>> format_paragraphs({"n_believed": 12, "n_passing": 1})
    '12 paragraphs believed, 1 only found'
    """
    if not counts or not any(counts.values()):
        return ""
    return f"{format_count(counts['n_believed'], 'paragraph')} believed, {counts['n_passing']:,} only found"
