"""Which chunks get a vector, in which order, and in which words. Pure; the one place to change either.

What is embedded is not quite what is shown: date and role stand in front, so that "what did I say in May" has
something to be near to. The hash of these words names their vector in the cache.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from perdure.models.extent import extent
from perdure.types import Author


@dataclass(frozen=True, slots=True)
class Policy:
    """One class of chunks that is embedded. How much of each says `models.extent`, by who said it."""

    kind: str  # text, thinking, call or result
    by_people: bool | None = None  # only what people said, or only what they did not; None for either


MEMORY = "memory"  # role and kind of a memory's piece: the index has it as the one piece of a turn that is none
POLICIES = (  # in the order in which they are embedded; a kind that is not here is found by its words alone
    Policy(MEMORY),
    Policy("text", by_people=True),
    Policy("text", by_people=False),
    Policy("thinking"),
    Policy("call"),
    Policy("result"),
)


def worded(author: Author | None, role: str | None, stated_ms: int | None, text: str) -> str:
    """The words that are embedded for a chunk; author and role are None for a memory.

    >>> worded("person", "user", 1778198400000, "We moor at the quay.")
    '[8 May 2026] user: We moor at the quay.'
    """
    return f"{_day(stated_ms)}{role or MEMORY}: {text[: extent(author or 'person', 0)]}"


def _day(stated_ms: int | None) -> str:
    if stated_ms is None:
        return ""
    at = datetime.fromtimestamp(stated_ms / 1000, UTC)
    return f"[{at.day} {_MONTHS[at.month - 1]} {at.year}] "


_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


def name_of(words: str) -> bytes:
    """The 32 bytes that name these words in the cache: SHA-256 of their UTF-8, as `models.vectors.text_hash`."""
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()
