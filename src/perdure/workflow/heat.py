"""How much a topic matters now: heat, which grows with use and fades with time. Pure; the caller has the clock.

    heat = min(1, 0.7 importance + 0.3 density) × exp(-hours / (24 × strength))

Importance is that of the weightiest statement in the topic, density says how much of a story it has, hours are those
since its last turn or reading, and strength grows by half with each reading that counts. This is the forgetting curve
of Ebbinghaus with the numbers of seed 002 (decisions/057). Only what was read or told counts, and only after a pause:
ten readings in one afternoon are one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

IMPORTANCE_SHARE, DENSITY_SHARE = 0.7, 0.3
FADE_HOURS = 24.0  # after which a topic of strength 1 has 1/e of its heat
GROWTH = 1.5  # of the strength, with each reading that counts
COOLDOWN = timedelta(hours=12)  # between two readings that count
PROMOTED_FROM = 0.3
PROMOTION_EVERY = timedelta(minutes=30)
ARCHIVED_BELOW, ARCHIVED_AFTER = 0.1, timedelta(days=7)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def keep_counting(read_at: Iterable[datetime]) -> list[datetime]:
    """Return those readings that count: each at least COOLDOWN after the one before it that counts."""
    counting: list[datetime] = []
    for instant in sorted(read_at):
        if not counting or instant - counting[-1] >= COOLDOWN:
            counting.append(instant)
    return counting


def compute_base(importance: float, density: float) -> float:
    """Return the heat of a topic at its last use. Both are between 0 and 1.

    >>> round(compute_base(0.5, 1.0), 2)
    0.65
    """
    return min(1.0, IMPORTANCE_SHARE * importance + DENSITY_SHARE * density)


def compute_heat(base: float, ended_at: datetime, read_at: Sequence[datetime], now: datetime) -> float:
    """Return the heat of a topic at a moment. ended_at: of its last turn. read_at: readings, of which some count."""
    last_use_at, n_counting = _find_last_use(ended_at, read_at, now)
    hours = max(0.0, (now - last_use_at) / timedelta(hours=1))
    return base * math.exp(-hours / (FADE_HOURS * GROWTH**n_counting))


def is_archived(heat: float, ended_at: datetime, read_at: Sequence[datetime], now: datetime) -> bool:
    """Has a topic faded so much, and rested so long, that a context leaves it out? It stays in the home."""
    last_use_at, _ = _find_last_use(ended_at, read_at, now)
    return heat < ARCHIVED_BELOW and now - last_use_at >= ARCHIVED_AFTER


def _find_last_use(ended_at: datetime, read_at: Sequence[datetime], now: datetime) -> tuple[datetime, int]:
    """Return when a topic was last used, by a turn or a reading, and how many readings counted until now."""
    counting = keep_counting(instant for instant in read_at if instant <= now)
    return max([ended_at, *counting]), len(counting)


def is_promoted(base: float, ended_at: datetime, now: datetime) -> bool:
    """Was a topic warm enough at its last turn, and is the next beat of promotion over?

    Beats are at every full and half hour; until then a topic fades by at most 2 %. Its base only grows with its turns,
    so the answer is the same whenever it is asked, also after a rebuild.
    """
    beat_at = _EPOCH + math.ceil((ended_at - _EPOCH) / PROMOTION_EVERY) * PROMOTION_EVERY
    return beat_at <= now and base >= PROMOTED_FROM
