"""Who holds the post of the resident home: one process at a time, by a lock that dies with it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from perdure.capture.files import locked, make_folder, write
from perdure.errors import AlreadyServing, Busy


@dataclass(frozen=True)
class Resident:
    """The process that serves a home."""

    pid: int
    since_at: datetime | None


@contextlib.contextmanager
def held(home: Path, *, now: datetime) -> Iterator[None]:
    """Be the resident home for the block. Raises AlreadyServing, naming who is."""
    make_folder(home / "run")
    try:
        with locked(_lock(home), wait_s=0.3):  # somebody may only be looking who holds it
            write(_card(home), json.dumps({"pid": os.getpid(), "since_at": now.isoformat()}).encode(), sync=False)
            yield
            _card(home).unlink(missing_ok=True)
    except Busy as error:
        if error.detail != str(_lock(home)):
            raise
        found = resident(home)
        raise AlreadyServing(_named(found) if found else "another process") from error


def _named(found: Resident) -> str:
    since = f" since {found.since_at.astimezone():%Y-%m-%d %H:%M:%S}" if found.since_at else ""
    return f"process {found.pid}{since}"


def resident(home: Path) -> Resident | None:
    """Who serves this home now, or None."""
    if not _lock(home).exists():
        return None
    try:
        with locked(_lock(home), wait_s=0):
            return None
    except Busy:
        pass
    try:
        body = json.loads(_card(home).read_bytes())
        return Resident(int(body["pid"]), datetime.fromisoformat(body["since_at"]))
    except (OSError, ValueError, KeyError, TypeError):  # it has only just begun
        return Resident(0, None)


def _lock(home: Path) -> Path:
    return home / "run" / "serve.lock"


def _card(home: Path) -> Path:
    return home / "run" / "serve.json"
