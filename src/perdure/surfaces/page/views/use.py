"""`/use`: what of the recalled was used, how that changed, and what follows from it by itself (row E05)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from perdure.index import weeks
from perdure.index.injections import Week
from perdure.index.memories import Use
from perdure.memories.consolidation import NEVER_USED
from perdure.memories.utility import expected
from perdure.mind import operations
from perdure.surfaces.page.visits import Shown, View, Visit

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
    mondays = weeks.mondays(visit.now.date())
    known = visit.home.injections.weeks(since_at=weeks.begins_at(mondays[0]))
    every_week = filled(known, mondays)
    every = visit.home.memories.uses()
    current = [one for one in every if one.is_current]
    values = {
        "title": "What is used", "weeks": every_week, "is_known": bool(known),
        "most": max(week.n_cues for week in every_week),
        "recent": spell(every_week[-_RECENT:]), "before": spell(every_week[-2 * _RECENT : -_RECENT]),
        "n_waiting": sum(week.n_waiting for week in every_week), "n_memories": len(current), "n_weeks": _RECENT,
        "topics": operations.never_used(every), "never_used": NEVER_USED, "min_injected": operations.MIN_INJECTED,
        **_lists(visit, useful(current), in_vain(current)),
    }  # fmt: skip
    return Shown("use.html", values)


def filled(known: Sequence[Week], mondays: Sequence[date]) -> list[Week]:
    """The weeks of these Mondays, those in which nothing was told among them."""
    found = {week.begins_on: week for week in known}
    return [found.get(day) or Week(day, 0, 0, 0, 0, 0, 0) for day in mondays]


def spell(some: Sequence[Week]) -> Spell:
    """Some weeks together."""
    return Spell(sum(week.n_cues for week in some), sum(week.n_used for week in some))


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
