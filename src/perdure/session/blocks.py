"""The texts that this home put into a session: its floor, and what stands beside each message. A cache.

A provider's cache needs them again byte for byte. Losing the file costs one cache miss, and the floor is made anew.
Forgetting anything deletes all of them, because any may hold the words of any memory.
"""

from __future__ import annotations

import json
from pathlib import Path

from perdure import disk
from perdure.access import block_cache

FLOOR = "floor"  # the name under which the floor stands


class BlockFile:
    """The file of one session. path: None for a session that is not kept: then it lives in memory."""

    def __init__(self, home: Path, session: str, *, is_kept: bool) -> None:
        self._path = block_cache.get_session_path(home, session) if is_kept else None
        self._texts: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """Return entry id -> the text beside that message; and FLOOR -> the floor."""
        if self._path is None:
            return self._texts
        texts: dict[str, str] = {}
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return texts
        for line in lines[:-1]:  # what follows the last newline is torn or empty
            try:
                name, text = json.loads(line)
            except ValueError:
                continue
            texts[str(name)] = str(text)
        return texts

    def write(self, name: str, text: str) -> None:
        """Store the text of an entry, or the floor."""
        if self._path is None:
            self._texts[name] = text
            return
        disk.make_folder(self._path.parent)
        disk.append_line(self._path, json.dumps([name, text]).encode())
