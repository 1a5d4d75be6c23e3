"""List every address of the page, which the application serves and tests visit, and the navigation."""

from __future__ import annotations

from typing import NamedTuple

from perdure.surfaces.web.views import (
    diary,
    floor,
    forest,
    memories,
    memory,
    reader,
    recall,
    search,
    sharing,
    statistics,
    status,
)
from perdure.surfaces.web.visits import View

TABLE: tuple[View, ...] = (
    *status.OVERVIEW_VIEWS,
    *search.VIEWS,
    *forest.VIEWS,
    *reader.READER_VIEWS,
    *reader.FORGET_VIEWS,
    *memories.MEMORY_LIST_VIEWS,
    *memory.VIEWS,
    *memories.PROPOSAL_VIEWS,
    *recall.TRY_VIEWS,
    *recall.RECALL_VIEWS,
    *recall.USE_VIEWS,
    *floor.FLOOR_VIEWS,
    *diary.VIEWS,
    *statistics.GROWTH_VIEWS,
    *statistics.QUALITY_VIEWS,
    *sharing.MACHINE_VIEWS,
    *sharing.SHARING_VIEWS,
    *status.STATUS_VIEWS,
)


class NavEntry(NamedTuple):
    """One entry of the navigation."""

    name: str  # as used by View.nav
    label: str
    href: str
    key: str  # pressed after "g"
    is_admin: bool = False
    group: str = ""  # entries of one group stand together


NAVIGATION: tuple[NavEntry, ...] = (
    NavEntry("overview", "Overview", "/", "o"),
    NavEntry("search", "Search", "/search", "s"),
    NavEntry("runs", "Sessions", "/runs", "r"),
    NavEntry("memories", "Memories", "/memories", "m"),
    NavEntry("proposals", "Proposals", "/proposals", "p"),
    NavEntry("recall", "Recall", "/recall", "i"),
    NavEntry("floor", "Floor", "/floor", "f"),
    NavEntry("diary", "Diary", "/diary", "d"),
    NavEntry("growth", "Growth", "/growth", "w", group="care"),
    NavEntry("quality", "Quality", "/quality", "q", group="care"),
    NavEntry("machines", "Machines", "/machines", "c", group="care"),
    NavEntry("sharing", "Sharing", "/sharing", "a", group="care"),
    NavEntry("jobs", "Jobs", "/jobs", "j", is_admin=True, group="care"),
    NavEntry("health", "Health", "/health", "h", group="care"),
)
