"""`/settings`: the pages that a visitor needs less often than the five of the navigation."""

from __future__ import annotations

from typing import NamedTuple

from perdure.surfaces.web.visits import HtmlPage, View, Visit


class SettingsEntry(NamedTuple):
    """One page below the settings."""

    name: str  # as used by View.nav
    label: str
    href: str
    about: str  # in one line
    is_admin: bool = False


GROUPS: tuple[tuple[str, tuple[SettingsEntry, ...]], ...] = (
    (
        "What agents read",
        (
            SettingsEntry("floor", "Floor", "/floor", "The text at the start of every session: profile, notes, cards."),
            SettingsEntry("diary", "Diary", "/diary", "A summary of each day and week, and the sessions behind it."),
        ),
    ),
    (
        "Access",
        (
            SettingsEntry("machines", "Machines", "/machines", "The machines that send captures, and your browsers."),
            SettingsEntry("sharing", "Sharing", "/sharing", "What other users may read of you, and you of them."),
        ),
    ),
    (
        "This home",
        (
            SettingsEntry("health", "Health", "/health", "Whether everything works, and what to do if not."),
            SettingsEntry("jobs", "Jobs", "/jobs", "What runs on a schedule, and how it went.", is_admin=True),
            SettingsEntry("growth", "Growth", "/growth", "Turns, memories and recalls over time."),
            SettingsEntry("quality", "Quality", "/quality", "How good recall is, measured on this machine."),
        ),
    ),
)
BY_NAME = {entry.name: entry for _, entries in GROUPS for entry in entries}


def show_settings(visit: Visit) -> HtmlPage:
    """List the pages that this visitor may see."""
    groups = [
        (title, [entry for entry in entries if visit.identity.is_admin or not entry.is_admin])
        for title, entries in GROUPS
    ]
    return HtmlPage("settings.html", {"title": "Settings", "groups": groups})


VIEWS: tuple[View, ...] = (View("GET", "/settings", show_settings, nav="settings"),)
