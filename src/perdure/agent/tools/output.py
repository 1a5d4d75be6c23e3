"""Outputs cut to what a model can read at once: 2,000 lines or 50 KB, in whole lines; and the whole ones, in files."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

MAX_LINES = 2000  # as pi cuts; whichever comes first
MAX_BYTES = 50 * 1024
MAX_KEPT_BYTES = 500_000_000  # of whole outputs that one session keeps


class KeptOutputs:
    """The files with whole outputs of one session. Together they have a limit: then the oldest are deleted."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes, self._lock = max_bytes, threading.Lock()
        self._files: deque[tuple[Path, int]] = deque()  # with their sizes, the oldest first

    def add(self, path: Path) -> None:
        """Keep a file that is complete. It stays, however large it is."""
        with self._lock:
            self._files.append((path, path.stat().st_size))
            while len(self._files) > 1 and sum(size for _, size in self._files) > self._max_bytes:
                self._files.popleft()[0].unlink(missing_ok=True)


class CutLines(NamedTuple):
    """The lines that have room."""

    lines: list[str]
    is_cut: bool


def take_first(lines: Iterable[str], *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> CutLines:
    """Return the first lines that have room; a first line without room is cut itself."""
    taken: list[str] = []
    n_bytes = 0
    for line in lines:
        n_bytes += len(line.encode("utf-8", "surrogatepass")) + 1
        if len(taken) == max_lines or (n_bytes > max_bytes and taken):
            return CutLines(taken, True)
        if n_bytes > max_bytes:
            return CutLines([clip_bytes(line, max_bytes)], True)
        taken.append(line)
    return CutLines(taken, False)


def take_last(lines: list[str], *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> CutLines:
    """Return the last lines that have room; of a last line without room its end."""
    cut = take_first((line[::-1] for line in reversed(lines)), max_lines=max_lines, max_bytes=max_bytes)
    return CutLines([line[::-1] for line in reversed(cut.lines)], cut.is_cut)


def clip_bytes(text: str, max_bytes: int) -> str:
    """Return the beginning of a text that has at most so many bytes, in whole characters."""
    return text.encode("utf-8", "surrogatepass")[:max_bytes].decode("utf-8", "ignore")


def count_lines(text: str) -> int:
    """Return the number of lines; a last one without a line end counts.

    >>> count_lines("a\\nb"), count_lines("a\\n"), count_lines("")
    (2, 1, 0)
    """
    return text.count("\n") + bool(text and not text.endswith("\n"))
