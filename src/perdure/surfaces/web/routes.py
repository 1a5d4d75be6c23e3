"""List every address of the page, which the application serves and tests visit, and the navigation."""

from __future__ import annotations

from typing import NamedTuple

from perdure.surfaces.web.views import (
    chat,
    diary,
    floor,
    forest,
    home,
    memories,
    memory,
    reader,
    recall,
    report,
    search,
    settings,
    sharing,
    statistics,
    status,
    teams,
)
from perdure.surfaces.web.visits import View

TABLE: tuple[View, ...] = (
    *home.VIEWS,
    *chat.VIEWS,
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
    *report.REPORT_VIEWS,
    *floor.FLOOR_VIEWS,
    *diary.VIEWS,
    *statistics.GROWTH_VIEWS,
    *statistics.QUALITY_VIEWS,
    *sharing.MACHINE_VIEWS,
    *sharing.SHARING_VIEWS,
    *teams.VIEWS,
    *status.STATUS_VIEWS,
    *settings.VIEWS,
)


class NavEntry(NamedTuple):
    """One entry of the navigation."""

    name: str  # as used by View.nav
    label: str
    href: str
    key: str  # pressed after "g"


NAVIGATION: tuple[NavEntry, ...] = (
    NavEntry("home", "Home", "/", "h"),
    NavEntry("chat", "Chat", "/chat", "c"),
    NavEntry("search", "Search", "/search", "s"),
    NavEntry("runs", "Sessions", "/runs", "e"),
    NavEntry("memories", "Memory", "/memories", "m"),
    NavEntry("recall", "Recall", "/recall", "r"),
    NavEntry("settings", "Settings", "/settings", "t"),
)
