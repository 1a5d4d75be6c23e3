"""The serve lock: one process at a time serves a home, by a lock that dies with the process."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from perdure.capture.events import to_holder_path, to_lock_path
from perdure.disk import hold_alone, lock_file, write_file
from perdure.errors import AlreadyServing, Busy, ReadOnlyHome


class ResidentProcess(NamedTuple):
    """The process that serves a home."""

    pid: int
    since_at: datetime | None


@contextlib.contextmanager
def hold_lock(home: Path, *, now: datetime) -> Iterator[None]:
    """Hold the serve lock of a home for the block. Raises AlreadyServing, which names the holder."""

    def refuse() -> AlreadyServing:
        holder = find_resident(home)
        return AlreadyServing(_describe_process(holder) if holder else "another process")

    with hold_alone(to_lock_path(home), refuse):
        holder = json.dumps({"pid": os.getpid(), "since_at": now.isoformat()}).encode()
        write_file(to_holder_path(home), holder, sync=False)
        yield
        to_holder_path(home).unlink(missing_ok=True)


def _describe_process(holder: ResidentProcess) -> str:
    since = f" since {holder.since_at.astimezone():%Y-%m-%d %H:%M:%S}" if holder.since_at else ""
    return f"process {holder.pid}{since}"


def find_resident(home: Path) -> ResidentProcess | None:
    """Return the process that serves this home now, or None."""
    if not to_lock_path(home).exists():
        return None
    try:
        with lock_file(to_lock_path(home), wait_s=0):
            return None
    except ReadOnlyHome:  # nobody can serve it here
        return None
    except Busy:
        pass
    try:
        body = json.loads(to_holder_path(home).read_bytes())
        return ResidentProcess(int(body["pid"]), datetime.fromisoformat(body["since_at"]))
    except (OSError, ValueError, KeyError, TypeError):  # it has just started
        return ResidentProcess(0, None)
