"""How many memories there are, and how long they are: in all and by the month in which they were stated. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from perdure.text import tokens
from perdure.types import Memory


@dataclass(frozen=True)
class Month:
    """The memories that were stated in one month, or in all of them."""

    month: str  # yyyy-mm; "" for all
    n_memories: int
    n_tokens: int
    n_said: int = 0  # messages of a person that were said in it

    @property
    def per_100_said(self) -> float | None:
        """How many memories there are for 100 messages of a person; None without any."""
        return 100 * self.n_memories / self.n_said if self.n_said else None

    @property
    def tokens_each(self) -> float:
        """How many tokens a memory has on average; 0.0 without any."""
        return self.n_tokens / self.n_memories if self.n_memories else 0.0


@dataclass(frozen=True)
class Tally:
    """How many memories are what."""

    n_current: int
    n_superseded: int
    n_retired: int
    n_pinned: int
    kept_at: datetime | None  # when the newest was noted
    mined_at: datetime | None  # when the newest that was mined was noted


def tally(memories: Sequence[Memory]) -> Tally:
    """How many of these memories are what; each is current, superseded or retired."""
    retired = sum(memory.retired for memory in memories)
    current = sum(memory.is_current for memory in memories)
    return Tally(
        current, len(memories) - current - retired, retired, sum(memory.pinned for memory in memories),
        max((memory.recorded_at for memory in memories), default=None),
        max((memory.recorded_at for memory in memories if memory.how == "mined"), default=None),
    )  # fmt: skip


def by_month(
    memories: Iterable[Memory], zone: tzinfo = UTC, *, said: Mapping[str, int] | None = None
) -> list[Month]:  # fmt: skip
    """Memories and their tokens for each month of a time zone in which one was stated, or a message said; oldest first.

    said: month -> messages of a person.
    """
    said = said or {}
    found: dict[str, list[int]] = defaultdict(list, {month: [] for month in said})
    for memory in memories:
        found[memory.stated_at.astimezone(zone).strftime("%Y-%m")].append(tokens(memory.text))
    return [Month(month, len(counts), sum(counts), said.get(month, 0)) for month, counts in sorted(found.items())]


def total(months: Iterable[Month]) -> Month:
    """The sum of months."""
    each = list(months)
    n_memories, n_tokens = sum(month.n_memories for month in each), sum(month.n_tokens for month in each)
    return Month("", n_memories, n_tokens, sum(month.n_said for month in each))
