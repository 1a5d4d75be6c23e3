"""The file with the blocks that the proxy put beside messages: where it is, and how forgetting deletes it.

A block may hold the words of any memory, so forgetting one deletes all. A running proxy notices that its file is gone.
"""

from __future__ import annotations

from pathlib import Path


def get_path(home: Path) -> Path:
    """Return the path of the file."""
    return home / "cache" / "proxy.db"


def delete(home: Path) -> None:
    """Delete the file. It is a cache: what goes on asks its provider to read some text again."""
    path = get_path(home)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
