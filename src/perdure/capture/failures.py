"""Failures of hooks: a bounded list in the home without any person's words. Standard library only.

A client shows a failure once an incident. An incident is a mark in the home: the first failure of its
kind sets it, the next success removes it. `perdure doctor` reads both.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.disk import make_folder, replace_file

_MAX_BYTES = 65_536  # of the list; when it is larger, the older half is deleted


def record_failure(home: Path, client: str, event: str, stage: str, error: str) -> bool:
    """Add a failure to the list; return True if it is the first of its incident. Raises OSError, PerdureError."""
    folder = home / "run"
    make_folder(folder)
    entry = {"at": datetime.now(UTC).isoformat(), "client": client, "event": event, "stage": stage, "error": error}
    _append_bounded(folder / "hook-failures.jsonl", json.dumps(entry).encode() + b"\n")
    try:
        os.close(os.open(_to_mark_path(home, stage), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def end_incident(home: Path, stage: str) -> None:
    """End the incident of this kind, if there is one."""
    with contextlib.suppress(OSError):  # no mark, or a read-only disk: the next success tries again
        _to_mark_path(home, stage).unlink()


def end_remote_incidents(home: Path, *, recall: bool = True) -> None:
    """End the incidents of a remote home that took nothing.

    recall: also end the recall incident, if the cause was that the remote home did not answer.
    """
    end_incident(home, "credential")
    end_incident(home, "ship")
    if recall and is_remote_failure(home, "recall"):
        end_incident(home, "recall")


def is_remote_failure(home: Path, stage: str) -> bool:
    """Return True if the last failure in this stage was that the remote home did not answer."""
    last_failure: dict[str, Any] = next((row for row in reversed(read_failures(home)) if row.get("stage") == stage), {})
    return str(last_failure.get("error")).startswith("remote-")


def read_failures(home: Path) -> list[dict[str, Any]]:
    """Return the failures, oldest first; a line that was cut short is left out."""
    try:
        rows = (home / "run" / "hook-failures.jsonl").read_bytes().splitlines()
    except OSError:
        return []
    entries = []
    for row in rows:
        with contextlib.suppress(ValueError):
            entries.append(json.loads(row))
    return [entry for entry in entries if isinstance(entry, dict)]


def list_open_incidents(home: Path) -> list[str]:
    """Return the kinds of failure that no success has ended yet."""
    return sorted(path.name.removeprefix("failing-") for path in (home / "run").glob("failing-*"))


def _to_mark_path(home: Path, stage: str) -> Path:
    return home / "run" / f"failing-{stage}"


def _append_bounded(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line)
        is_full = os.fstat(descriptor).st_size > _MAX_BYTES
    finally:
        os.close(descriptor)
    if is_full:
        rows = path.read_bytes().splitlines(keepends=True)
        replace_file(path, b"".join(rows[len(rows) // 2 :]), sync=False)
