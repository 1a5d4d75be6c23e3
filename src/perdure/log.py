"""The structured log of a home: `run/log.jsonl`, one line of JSON for each event, never with a person's text.

Derived and bounded: two files of at most `MAX_BYTES`. A failure to write it never fails its caller.
Standard library only.
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

from perdure.disk import make_folder
from perdure.errors import PerdureError

MAX_BYTES = 2_000_000  # about 10,000 lines; the previous file is kept beside it
_MAX_VALUE_CHARS = 200
_LINE_START = b'{"at": "'  # the start of every line that we wrote


def to_log_path(home: Path) -> Path:
    """Return the path of the log."""
    return home / "run" / "log.jsonl"


def append_entry(home: Path, entry_type: str, **fields: Any) -> None:
    """Append one line. If the log cannot be written, do nothing: the caller goes on."""
    entry = {"at": _format_time(datetime.now(UTC)), "what": entry_type, "pid": os.getpid(), **fields}
    data = json.dumps(entry, default=lambda value: str(value)[:_MAX_VALUE_CHARS]).encode() + b"\n"
    with contextlib.suppress(OSError, PerdureError):
        path = to_log_path(home)
        make_folder(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, data)
            if os.fstat(descriptor).st_size > MAX_BYTES:
                _rotate(path, descriptor)
        finally:
            os.close(descriptor)


def _rotate(path: Path, descriptor: int) -> None:
    """Rename the full log, unless another process does or did."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    if path.stat().st_ino == os.fstat(descriptor).st_ino:
        path.replace(path.with_name("log.1.jsonl"))


def read_entries(
    home: Path, *, entry_type: str | None = None, since_at: datetime | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the entries (of one type, since a time), oldest first. Lines that are not ours are skipped."""
    earliest_at = _format_time(since_at) if since_at else ""
    for raw_line in read_raw_lines(home, entry_type=entry_type, since_at=since_at):
        entry = _parse_entry(raw_line)
        if entry is not None and entry_type in (None, entry["what"]) and entry["at"] >= earliest_at:
            yield entry


def read_raw_lines(home: Path, *, entry_type: str | None = None, since_at: datetime | None = None) -> Iterator[bytes]:
    """Yield the undecoded lines that may be of one type and since a time: most of a long log is skipped at once."""
    path, needle = to_log_path(home), json.dumps(entry_type).encode() if entry_type else b""
    earliest_start = _LINE_START + _format_time(since_at).encode() if since_at else b""
    for log_path in (path.with_name("log.1.jsonl"), path):
        try:
            data = log_path.read_bytes()
        except OSError:
            continue
        for line in data.splitlines():
            if needle in line and not (line.startswith(_LINE_START) and line < earliest_start):
                yield line


def read_newest_entries(home: Path, *, entry_type: str, n_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield the entries of one type among the last `n_bytes` of the log, newest first."""
    for log_path in (to_log_path(home), to_log_path(home).with_name("log.1.jsonl")):
        try:
            with log_path.open("rb") as file:
                start = max(0, file.seek(0, os.SEEK_END) - n_bytes)
                file.seek(start)
                data = file.read()
        except OSError:
            continue
        n_bytes -= len(data)
        for raw_line in reversed(data.split(b"\n")[1 if start else 0 :]):
            entry = _parse_entry(raw_line)
            if entry is not None and entry["what"] == entry_type:
                yield entry


def _parse_entry(raw_line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(raw_line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "what" in entry and isinstance(entry.get("at"), str) else None


def _format_time(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds")
