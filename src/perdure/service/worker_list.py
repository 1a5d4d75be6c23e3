"""Which worker processes of a home live, and what each does now: a file for each in `run/workers/`.

A worker holds the lock of its file for as long as it lives, and the kernel frees it with the process. So a file whose
lock is free is of a worker that ended or was killed, and whoever reads the list deletes it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import perdure
from perdure.disk import lock_file, make_folder, replace_file
from perdure.errors import Busy


class WorkerState(msgspec.Struct):
    """The state of one worker process, as it wrote it itself."""

    name: str
    pid: int
    since_at: datetime
    version: str
    doing: dict[str, str] = {}  # slot -> the item that runs there
    n_done: int = 0  # items
    n_failed: int = 0  # of them
    problem: str = ""  # why it does nothing now; "" if it can work


class WorkerFile:
    """The file of this process. Any thread may write."""

    def __init__(self, home: Path) -> None:
        name = f"{os.uname().nodename}-{os.getpid()}"
        self._path = home / "run" / "workers" / f"{name}.json"
        self._lock = threading.Lock()
        self.state = WorkerState(name, os.getpid(), datetime.now(UTC), perdure.__version__)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Be on the list for the block."""
        make_folder(self._path.parent)
        with lock_file(self._path.with_suffix(".lock"), wait_s=5):
            self._write()
            yield
            self._path.unlink(missing_ok=True)
            self._path.with_suffix(".lock").unlink(missing_ok=True)

    def note_begin(self, slot: str, words: str) -> None:
        """Note what a slot begins to do."""
        with self._lock:
            self.state.doing[slot] = words
            self._write()

    def note_end(self, slot: str, *, has_failed: bool) -> None:
        """Note that a slot has ended its item."""
        with self._lock:
            self.state.doing.pop(slot, None)
            self.state.n_done += 1
            self.state.n_failed += has_failed
            self._write()

    def note_problem(self, words: str) -> None:
        """Note why the worker can do nothing now; "" if it can."""
        with self._lock:
            self.state.problem = words
            self._write()

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # a full disk ends no work
            replace_file(self._path, msgspec.json.encode(self.state), sync=False)


def list_workers(home: Path) -> list[WorkerState]:
    """Return the workers that live, by name; delete the files of the others."""
    states = []
    for path in sorted((home / "run" / "workers").glob("*.json")):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if _is_held(path.with_suffix(".lock")):
                states.append(msgspec.json.decode(path.read_bytes(), type=WorkerState))
            else:
                path.unlink(missing_ok=True)
                path.with_suffix(".lock").unlink(missing_ok=True)
    return states


def _is_held(path: Path) -> bool:
    try:
        with lock_file(path, wait_s=0):
            return False
    except Busy:
        return True
