"""The structured log of a home: `run/log.jsonl`, a line of JSON for each thing that happened, never with a text in it.

Derived and bounded: two files of at most `MAX_BYTES`. Writing it never fails what it reports on. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.capture.files import make_folder
from perdure.errors import PerdureError

MAX_BYTES = 2_000_000  # about 10,000 lines; the one before is kept beside it
_MAX_VALUE_CHARS = 200
_HEAD = b'{"at": "'  # how a line begins that `note` wrote


def path_of(home: Path) -> Path:
    """Where the log is."""
    return home / "run" / "log.jsonl"


def note(home: Path, what: str, **fields: Any) -> None:
    """Append one line. A log that cannot be written is left alone: what is reported on goes on."""
    line = {"at": _stamp(datetime.now(UTC)), "what": what, "pid": os.getpid(), **fields}
    raw = json.dumps(line, default=lambda value: str(value)[:_MAX_VALUE_CHARS]).encode() + b"\n"
    with contextlib.suppress(OSError, PerdureError):
        path = path_of(home)
        make_folder(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, raw)
            if os.fstat(descriptor).st_size > MAX_BYTES:
                _rotate(path, descriptor)
        finally:
            os.close(descriptor)


def _rotate(path: Path, descriptor: int) -> None:
    """Put the full log aside, unless another process does or did."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    if path.stat().st_ino == os.fstat(descriptor).st_ino:
        path.replace(path.with_name("log.1.jsonl"))


def read(home: Path, *, what: str | None = None, since_at: datetime | None = None) -> Iterator[dict[str, Any]]:
    """The lines (of one kind, since then), oldest first. What is no line of ours is passed over."""
    for raw in lines(home, what=what, since_at=since_at):
        line = _line(raw)
        if line is not None and what in (None, line["what"]) and _is_since(line["at"], since_at):
            yield line


def lines(home: Path, *, what: str | None = None, since_at: datetime | None = None) -> Iterator[bytes]:
    """The lines that may be of one kind and since then, undecoded: most of a long log is passed over at once."""
    path, needle = path_of(home), json.dumps(what).encode() if what else b""
    least = _HEAD + _stamp(since_at).encode() if since_at else b""
    for place in (path.with_name("log.1.jsonl"), path):
        try:
            raw = place.read_bytes()
        except OSError:
            continue
        for line in raw.splitlines():
            if needle in line and not (line.startswith(_HEAD) and line < least):
                yield line


def newest(home: Path, *, what: str, n_bytes: int) -> Iterator[dict[str, Any]]:
    """The lines of one kind among the last so many bytes, newest first."""
    for place in (path_of(home), path_of(home).with_name("log.1.jsonl")):
        try:
            with place.open("rb") as file:
                start = max(0, file.seek(0, os.SEEK_END) - n_bytes)
                file.seek(start)
                raw = file.read()
        except OSError:
            continue
        n_bytes -= len(raw)
        for part in reversed(raw.split(b"\n")[1 if start else 0 :]):
            line = _line(part)
            if line is not None and line["what"] == what:
                yield line


def _line(raw: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "what" in found and isinstance(found.get("at"), str) else None


def _is_since(at: str, since_at: datetime | None) -> bool:
    return since_at is None or at >= _stamp(since_at)


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds")
