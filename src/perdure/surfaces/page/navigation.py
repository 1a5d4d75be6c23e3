"""What can be gone to from every page, in its order."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One place in the navigation."""

    name: str  # as views name it
    label: str
    href: str
    key: str  # pressed behind "g"
    is_admin: bool = False
    group: str = ""  # what stands together


NAVIGATION: tuple[Entry, ...] = (
    Entry("overview", "Overview", "/", "o"),
    Entry("search", "Search", "/search", "s"),
    Entry("runs", "Sessions", "/runs", "r"),
    Entry("memories", "Memories", "/memories", "m"),
    Entry("proposals", "Proposals", "/proposals", "p"),
    Entry("recall", "Recall", "/recall", "i"),
    Entry("floor", "Floor", "/floor", "f"),
    Entry("diary", "Diary", "/diary", "d"),
    Entry("growth", "Growth", "/growth", "w", group="care"),
    Entry("quality", "Quality", "/quality", "q", group="care"),
    Entry("machines", "Machines", "/machines", "c", group="care"),
    Entry("sharing", "Sharing", "/sharing", "a", group="care"),
    Entry("jobs", "Jobs", "/jobs", "j", is_admin=True, group="care"),
    Entry("health", "Health", "/health", "h", group="care"),
)
