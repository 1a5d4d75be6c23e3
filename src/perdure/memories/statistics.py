"""Statistics of memories: their number and length by month, and how often showing them led to use. Pure.

The clock is a parameter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal, NamedTuple

from perdure.index import memory_replay
from perdure.text import tokens
from perdure.types import Memory


@dataclass(frozen=True)
class MemoryMonth:
    """The memories that were stated in one month, or in all months."""

    month: str  # yyyy-mm; "" for all
    n_memories: int
    n_tokens: int
    n_messages: int = 0  # messages of a person in it

    @property
    def per_100_messages(self) -> float | None:
        """The number of memories for 100 messages of a person; None without any message."""
        return 100 * self.n_memories / self.n_messages if self.n_messages else None

    @property
    def tokens_per_memory(self) -> float:
        """The mean number of tokens of a memory; 0.0 without any memory."""
        return self.n_tokens / self.n_memories if self.n_memories else 0.0


@dataclass(frozen=True)
class MemoryCounts:
    """The number of memories in each state."""

    n_current: int
    n_superseded: int
    n_retired: int
    n_pinned: int
    kept_at: datetime | None  # when the newest was recorded
    mined_at: datetime | None  # when the newest mined one was recorded


def count_memories(memories: Sequence[Memory]) -> MemoryCounts:
    """Count memories by state; each is current, superseded or retired."""
    n_retired = sum(memory.retired for memory in memories)
    n_current = sum(memory.is_current for memory in memories)
    return MemoryCounts(
        n_current,
        len(memories) - n_current - n_retired,
        n_retired,
        sum(memory.pinned for memory in memories),
        max((memory.recorded_at for memory in memories), default=None),
        max((memory.recorded_at for memory in memories if memory.how == "mined"), default=None),
    )


def count_by_month(
    memories: Iterable[Memory], zone: tzinfo = UTC, *, messages_by_month: Mapping[str, int] | None = None
) -> list[MemoryMonth]:  # fmt: skip
    """Return memories and their tokens for each month of a time zone with a stated memory or a message, oldest
    first.

    messages_by_month: month -> number of messages of a person.
    """
    messages_by_month = messages_by_month or {}
    tokens_by_month: dict[str, list[int]] = defaultdict(list, {month: [] for month in messages_by_month})
    for memory in memories:
        tokens_by_month[memory.stated_at.astimezone(zone).strftime("%Y-%m")].append(tokens(memory.text))
    return [
        MemoryMonth(month, len(token_counts), sum(token_counts), messages_by_month.get(month, 0))
        for month, token_counts in sorted(tokens_by_month.items())
    ]


def sum_months(months: Iterable[MemoryMonth]) -> MemoryMonth:
    """Return the sum of months."""
    all_months = list(months)
    n_memories, n_tokens = sum(month.n_memories for month in all_months), sum(month.n_tokens for month in all_months)
    return MemoryMonth("", n_memories, n_tokens, sum(month.n_messages for month in all_months))


UtilityLabel = Literal["earns its place", "not known yet", "never used"]


@dataclass(frozen=True, slots=True)
class MemoryUtility:
    """One memory with the results of showing it."""

    memory: Memory
    share: float | None  # share of the times it was shown that it was used; None if never shown
    decay: float  # now
    heat: float  # now

    @property
    def expected_share(self) -> float:
        """The share of use that is expected next time."""
        return compute_expected_share(self.memory.n_injected, self.memory.n_used)

    @property
    def label(self) -> UtilityLabel:
        """The utility in words."""
        if self.memory.n_used:
            return "earns its place"
        return "never used" if self.memory.n_injected else "not known yet"


def compute_expected_share(n_injected: int, n_used: int) -> float:
    """Return the expected share of use by Laplace's rule, so that a memory that was never shown is in the
    middle.

    Never shown: 1 / 2. Shown ten times and never used: 1 / 12. Shown ten times and used nine: 10 / 12.
    """
    return (n_used + 1) / (max(n_injected, n_used) + 2)


class UtilitySums(NamedTuple):
    """The sums over all memories."""

    n_memories: int
    n_injected: int
    n_used: int
    n_used_ever: int  # memories that were used at least once
    n_never_used: int  # memories that were shown and never used
    n_never_shown: int


def rank_by_utility(memories: Iterable[Memory], *, now: datetime) -> list[MemoryUtility]:
    """Rate memories: the most useful first, the ones shown most often without use last."""
    utilities = [
        MemoryUtility(
            memory,
            min(1.0, memory.n_used / memory.n_injected) if memory.n_injected else None,
            memory_replay.compute_decay(memory, now),
            memory_replay.compute_heat(memory, now),
        )
        for memory in memories
    ]
    return sorted(
        utilities,
        key=lambda utility: (-utility.expected_share, -utility.memory.n_used, -utility.heat, utility.memory.memory_id),
    )


def sum_utilities(utilities: Sequence[MemoryUtility]) -> UtilitySums:
    """Return the sums of utilities."""
    return UtilitySums(
        len(utilities),
        sum(utility.memory.n_injected for utility in utilities),
        sum(utility.memory.n_used for utility in utilities),
        sum(utility.memory.n_used > 0 for utility in utilities),
        sum(utility.label == "never used" for utility in utilities),
        sum(utility.label == "not known yet" for utility in utilities),
    )
