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
PLATFORM = "platform"  # and the surface for which it was made


_MISSING = (0, 0, 0)  # the state of a file that is not there


class BlockFile:
    """The file of one session. path: None for a session that is not kept: then it lives in memory."""

    def __init__(self, home: Path, session: str, *, is_kept: bool) -> None:
        self._path = block_cache.get_session_path(home, session) if is_kept else None
        self._texts: dict[str, str] = {}  # of the file in this state; it is asked for several times at each answer
        self._state = _MISSING

    def read(self) -> dict[str, str]:
        """Return entry id -> the text beside that message; and FLOOR -> the floor. Do not change it."""
        if self._path is not None and (state := _read_state(self._path)) != self._state:
            self._state, self._texts = state, _read_texts(self._path)
        return self._texts

    def write(self, name: str, text: str) -> None:
        """Store the text of an entry, or the floor."""
        if self._path is None:
            self._texts[name] = text
            return
        self.read()
        line = json.dumps([name, text]).encode()
        disk.make_folder(self._path.parent)
        disk.append_line(self._path, line)
        state = _read_state(self._path)
        if state[:2] == (
            self._state[0],
            self._state[1] + len(line) + 1,
        ):  # nobody else has changed it
            self._state = state
            self._texts[name] = text


def _read_state(path: Path) -> tuple[int, int, int]:
    """Return inode, size and time of a file."""
    try:
        stat = path.stat()
    except FileNotFoundError:  # something was forgotten
        return _MISSING
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _read_texts(path: Path) -> dict[str, str]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    texts: dict[str, str] = {}
    for line in lines[:-1]:  # what follows the last newline is torn or empty
        try:
            name, text = json.loads(line)
        except ValueError:
            continue
        texts[str(name)] = str(text)
    return texts
