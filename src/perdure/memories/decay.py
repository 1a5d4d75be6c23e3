"""How loud a memory is: it fades with disuse and never vanishes. Pure; every clock is an argument.

Only use renews (or saying it again): what was merely shown does not count. A pinned memory does not fade.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from perdure.types import Memory

HALF_LIFE = timedelta(days=30)
FLOOR = 0.04  # as term-llm has it: a very old memory keeps so much
COOLDOWN = timedelta(hours=12)  # two uses nearer than this are one
GROWTH = 1.5  # of stability with each use
PER_STABILITY_H = 24.0  # hours in which the heat of a memory that was used once falls by 1/e
INTRINSIC, DENSITY = 0.7, 0.3  # shares of confidence and of being said often in the heat


def decay(memory: Memory, now: datetime, *, half_life: timedelta = HALF_LIFE) -> float:
    """1 for what was just said or used or is pinned, half after each half-life, never below FLOOR."""
    if memory.pinned:
        return 1.0
    age = max(timedelta(), now - max(memory.renewed_at or memory.stated_at, memory.stated_at))
    return max(FLOOR, float(0.5 ** (age / half_life)))


def heat(memory: Memory, now: datetime) -> float:
    """How alive a memory is, 0 to 1: what it weighs, cooling the more slowly the more often it was used (row D09)."""
    density = 1 - 1 / (memory.n_stated + memory.n_used)
    hours = max(0.0, (now - (memory.renewed_at or memory.stated_at)).total_seconds() / 3600)
    weight = min(1.0, INTRINSIC * memory.confidence + DENSITY * density)
    return weight * math.exp(-hours / (PER_STABILITY_H * memory.stability))


def stabler(memory: Memory, used_at: datetime) -> float:
    """Its stability after a use: grown, unless another use lies less than the cooldown away."""
    if memory.used_at is not None and abs(used_at - memory.used_at) < COOLDOWN:
        return memory.stability
    return memory.stability * GROWTH
