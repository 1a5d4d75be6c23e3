"""How instants and names stand in the columns and words of the index. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def ms(at: datetime | None) -> int | None:
    """An instant as whole milliseconds since 1970."""
    return None if at is None else int(at.timestamp() * 1000)


def instant(stated_ms: int | None) -> datetime | None:
    """Milliseconds since 1970 as an aware instant."""
    return None if stated_ms is None else datetime.fromtimestamp(stated_ms / 1000, UTC)


def scope_token(number: int) -> str:
    """The word that stands for a name inside MATCH; no tokenizer splits or stems it.

    >>> scope_token(7)
    'z7z'
    """
    return f"z{number}z"
