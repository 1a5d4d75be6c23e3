"""What memories are worth: how often what was put beside a message was then used. Pure; the clock is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from perdure.memories import decay as fading
from perdure.types import Memory

Earns = Literal["earns its place", "not known yet", "never used"]


@dataclass(frozen=True, slots=True)
class Worth:
    """One memory with what came of showing it."""

    memory: Memory
    share: float | None  # of the times it was shown that it was used; None when it never was
    decay: float  # now
    heat: float  # now

    @property
    def expected(self) -> float:
        """The share to be expected of the next time."""
        return expected(self.memory.n_injected, self.memory.n_used)

    @property
    def earns(self) -> Earns:
        """In words."""
        if self.memory.n_used:
            return "earns its place"
        return "never used" if self.memory.n_injected else "not known yet"


def expected(n_injected: int, n_used: int) -> float:
    """The share to be expected of the next time: Laplace's rule, so what was never shown is in the middle.

    Never shown: 1 / 2. Shown ten times in vain: 1 / 12. Shown ten times and used nine: 10 / 12.
    """
    return (n_used + 1) / (max(n_injected, n_used) + 2)


class Sums(NamedTuple):
    """Of all memories."""

    n_memories: int
    n_injected: int
    n_used: int
    n_used_ever: int  # memories that were used at least once
    n_never_used: int  # memories that were shown and never used
    n_never_shown: int


def worth(memories: Iterable[Memory], *, now: datetime) -> list[Worth]:
    """What each is worth, the most useful first, what was shown in vain most often last."""
    found = [
        Worth(m, min(1.0, m.n_used / m.n_injected) if m.n_injected else None, fading.decay(m, now), fading.heat(m, now))
        for m in memories
    ]
    return sorted(found, key=lambda one: (-one.expected, -one.memory.n_used, -one.heat, one.memory.memory_id))


def sums(found: Sequence[Worth]) -> Sums:
    """Their sums."""
    return Sums(
        len(found),
        sum(one.memory.n_injected for one in found),
        sum(one.memory.n_used for one in found),
        sum(one.memory.n_used > 0 for one in found),
        sum(one.earns == "never used" for one in found),
        sum(one.earns == "not known yet" for one in found),
    )
