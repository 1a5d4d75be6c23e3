"""How far the index has read each user's journal. Asked at every search, so it imports almost nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from perdure.index.store import Connection


class Read(NamedTuple):
    """How far a file of a journal was read."""

    inode: int
    n_bytes: int


def behind(index: Connection, root: Path, user: str | None) -> list[Path]:
    """The journals (of one user, or of all) that have changed since they were followed. root: archive/journal."""
    folders = sorted(root.glob("*")) if user is None else [root / user]
    return [folder for folder in folders if folder.is_dir() and places(folder) != read_until(index, folder.name)]


def places(folder: Path) -> dict[str, Read]:
    """The files of one user's journal, each with what tells it from another and its length."""
    found = {}
    for path in sorted(folder.glob("*/*.jsonl")):
        place = path.stat()
        found[f"{path.parent.name}/{path.name}"] = Read(place.st_ino, place.st_size)
    return found


def read_until(index: Connection, user: str) -> dict[str, Read]:
    """How far each file was read."""
    raw = index.meta(f"journal:{user}")
    return msgspec.json.decode(raw, type=dict[str, Read]) if raw else {}


def was_rewritten(known: Mapping[str, Read], now: Mapping[str, Read]) -> bool:
    """Whether a file is no longer the one that was read, or longer."""
    return any(
        name not in now or now[name].inode != read.inode or now[name].n_bytes < read.n_bytes
        for name, read in known.items()
    )
