"""A floor in a folder, with a journal, a clock that a test moves, and no home."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from perdure.archive.journal import Journal
from perdure.floor.floor import Floor
from perdure.floor.state import FloorCache
from rig.index_rows import START


class Clock:
    """A time that moves only when a test moves it."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now

    def move(self, **span: float) -> None:
        """Move the time forward."""
        self.now += timedelta(**span)


def make_floor(
    folder: Path, *, user: str = "ada", agent: str = "default", clock: Clock | None = None, writable: bool = True
) -> Floor:
    """Return the floor of an agent; the journal lies in `folder/journal/USER`."""
    journal = Journal(folder / "journal" / user, home=folder)
    cache = FloorCache(journal, folder / f"{user}.json")
    return Floor(agent, folder / "agents" / agent, journal, cache, writable, clock or Clock())
