"""`/use`: what of the recalled was used, how that changed, and what follows from it by itself (row E05)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from perdure.index.injections import Week
from perdure.index.memories import Use
from perdure.memories.consolidation import NEVER_USED
from perdure.memories.utility import expected
from perdure.mind import operations
from perdure.surfaces.page.visits import Shown, View, Visit

WEEKS = 26
_RECENT = 4  # weeks that are compared with as many before them
_SHOWN = 15  # memories of each list


@dataclass(frozen=True, slots=True)
class Spell:
    """Some weeks together."""

    n_cues: int
    n_used: int

    @property
    def share(self) -> float | None:
        """Of what was shown the part that was used; None where nothing was shown."""
        return self.n_used / self.n_cues if self.n_cues else None


def use(visit: Visit) -> Shown:
    """What was shown and what was used, by the week; what earns its place, and what never did."""
    monday = monday_of(visit.now) - timedelta(weeks=WEEKS - 1)
    known = visit.home.injections.weeks(since_at=datetime.combine(monday, time(), UTC))
    weeks = every_week(known, monday)
    every = visit.home.memories.uses()
    current = [one for one in every if one.is_current]
    values = {
        "title": "What is used", "weeks": weeks, "is_known": bool(known), "most": max(week.n_cues for week in weeks),
        "recent": spell(weeks[-_RECENT:]), "before": spell(weeks[-2 * _RECENT : -_RECENT]),
        "n_waiting": sum(week.n_waiting for week in weeks), "n_memories": len(current), "n_weeks": _RECENT,
        "topics": operations.never_used(every), "never_used": NEVER_USED, "min_injected": operations.MIN_INJECTED,
        **_lists(visit, useful(current), in_vain(current)),
    }  # fmt: skip
    return Shown("use.html", values)


def monday_of(at: datetime) -> date:
    """The first day of the week of an instant, in UTC."""
    day = at.astimezone(UTC).date()
    return day - timedelta(days=day.weekday())


def every_week(known: Sequence[Week], monday: date) -> list[Week]:
    """The weeks from a Monday on, those in which nothing was told among them."""
    found = {week.begins_on: week for week in known}
    days = (monday + timedelta(weeks=n) for n in range(WEEKS))
    return [found.get(day) or Week(day, 0, 0, 0, 0, 0, 0) for day in days]


def spell(weeks: Sequence[Week]) -> Spell:
    """Some weeks together."""
    return Spell(sum(week.n_cues for week in weeks), sum(week.n_used for week in weeks))


def useful(found: Iterable[Use]) -> list[Use]:
    """The memories that were used, the most useful first: by the share to be expected of the next time."""
    used = (one for one in found if one.n_used)
    return sorted(used, key=lambda one: (-expected(one.n_injected, one.n_used), -one.n_used, one.memory_id))


def in_vain(found: Iterable[Use]) -> list[Use]:
    """The memories that were shown and never used, the most often shown first."""
    vain = (one for one in found if one.n_injected and not one.n_used)
    return sorted(vain, key=lambda one: (-one.n_injected, one.memory_id))


def _lists(visit: Visit, used: Sequence[Use], vain: Sequence[Use]) -> dict[str, Any]:
    of_ids = visit.home.memories.of_ids
    return {
        "useful": of_ids([one.memory_id for one in used[:_SHOWN]]), "n_useful": len(used),
        "vain": of_ids([one.memory_id for one in vain[:_SHOWN]]), "n_vain": len(vain),
        "n_due": sum(one.n_injected >= NEVER_USED and not one.pinned for one in vain),
    }  # fmt: skip


ROWS: tuple[View, ...] = (View("GET", "/use", use, nav="recall"),)
