"""The files with the blocks that were put beside messages, by the proxy and in sessions of our own: where they are, and
how forgetting deletes them.

A block may hold the words of any memory, so forgetting one deletes all. A running proxy or session notices that its
file is gone; a proxy drops a block that it recalled before. So delete the files only when no recall can find the words
any more.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from perdure.identity import to_path_component


def get_path(home: Path) -> Path:
    """Return the path of the file."""
    return home / "cache" / "proxy.db"


def get_session_path(home: Path, session: str) -> Path:
    """Return the path of the file of one session of our own; an imported one may have any name."""
    return home / "cache" / "sessions" / f"{to_path_component(session)}.jsonl"


def get_overviews_path(home: Path, user: str) -> Path:
    """Return the path of what the list of a user's sessions shows: it has titles, which are words of theirs."""
    return home / "cache" / "sessions" / f"overviews-{user}.json"


def get_history_path(home: Path) -> Path:
    """Return the path of the lines that a person typed into chats."""
    return home / "cache" / "sessions" / "typed_lines"


def delete(home: Path) -> None:
    """Delete the files. They are caches: what goes on asks its provider to read some text again."""
    shutil.rmtree(home / "cache" / "sessions", ignore_errors=True)
    delete_proxy_file(home)


def delete_proxy_file(home: Path) -> None:
    """Delete the file of the proxy alone."""
    path = get_path(home)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
