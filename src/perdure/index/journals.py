"""How far the index has read each user's journal. Asked at every search, so it imports almost nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec

from perdure.archive.journal import Read, places
from perdure.index.store import Connection


def behind(index: Connection, root: Path, user: str | None) -> list[Path]:
    """The journals (of one user, or of all) that have changed since they were followed. root: archive/journal."""
    folders = sorted(root.glob("*")) if user is None else [root / user]
    return [folder for folder in folders if folder.is_dir() and places(folder) != read_until(index, folder.name)]


def read_until(index: Connection, user: str) -> dict[str, Read]:
    """How far each file was read."""
    raw = index.meta(f"journal:{user}")
    return msgspec.json.decode(raw, type=dict[str, Read]) if raw else {}


def last_read(index: Connection, user: str) -> str:
    """The order of the newest event that was read, "" before any was."""
    return index.meta(f"journal-last:{user}") or ""
