"""`/use`: what of the recalled was used, how that changed, and what follows from it by itself (row E05)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from perdure.index.injections import Week
from perdure.memories import utility
from perdure.memories.consolidation import NEVER_USED
from perdure.memories.utility import Worth
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
    every = visit.home.memories.listed(every=True)
    found = utility.worth((memory for memory in every if memory.is_current), now=visit.now)
    values = {
        "title": "What is used", "weeks": weeks, "is_known": bool(known), "most": max(week.n_cues for week in weeks),
        "recent": spell(weeks[-_RECENT:]), "before": spell(weeks[-2 * _RECENT : -_RECENT]),
        "n_waiting": sum(week.n_waiting for week in weeks), "sums": utility.sums(found), **_lists(found),
        "topics": operations.never_used(every), "never_used": NEVER_USED, "min_injected": operations.MIN_INJECTED,
        "n_weeks": _RECENT,
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


def _lists(found: Sequence[Worth]) -> dict[str, Any]:
    """What is used most, and what was shown most often in vain."""
    never = [one for one in found if one.earns == "never used"]
    vain = sorted(never, key=lambda one: (-one.memory.n_injected, one.memory.memory_id))
    useful = [one for one in found if one.memory.n_used]
    return {
        "useful": useful[:_SHOWN], "vain": vain[:_SHOWN], "n_vain": len(vain), "n_renewed": len(useful),
        "n_due": sum(one.memory.n_injected >= NEVER_USED and not one.memory.pinned for one in vain),
    }  # fmt: skip


ROWS: tuple[View, ...] = (View("GET", "/use", use, nav="recall"),)
