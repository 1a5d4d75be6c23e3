"""What a process in the background would say to a terminal: `run/serve.log`, for its owner alone, and never large.

It lives as long as the process does, so that whatever writes to standard error writes to a place that is there.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path

from perdure.capture import files

MAX_BYTES = 1_000_000
_LOOK_S = 60.0


def path_of(home: Path) -> Path:
    """Where it is said."""
    return home / "run" / "serve.log"


def opened(home: Path) -> int:
    """An empty one, as a descriptor for the process that begins."""
    files.make_folder(home / "run")
    descriptor = os.open(path_of(home), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def is_ours(home: Path) -> bool:
    """Whether the standard error of this process goes there."""
    with contextlib.suppress(OSError, ValueError):
        return os.path.samestat(os.fstat(sys.stderr.fileno()), path_of(home).stat())
    return False


def bound(path: Path) -> None:
    """Empty it when it has become too large."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > MAX_BYTES:
            os.truncate(path, 0)


def watch(home: Path) -> None:
    """Keep it small for as long as this process lives, where that is a process in the background."""
    if is_ours(home):
        threading.Thread(target=_watch, args=(path_of(home),), name="perdure-aside", daemon=True).start()


def _watch(path: Path) -> None:
    pause = threading.Event()
    while not pause.wait(_LOOK_S):
        bound(path)
