"""What went wrong in hooks: a bounded list in the home without anybody's words. Standard library only.

A client shows a failure once an incident. An incident is a mark in the home, set by the first failure of its kind
and taken away by the next success; `perdure doctor` reads both.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.capture.files import make_folder, replace

_MAX_BYTES = 65_536  # of the list; beyond that its older half goes


def note(home: Path, client: str, event: str, stage: str, error: str) -> bool:
    """Add a failure to the list; returns whether it is the first of its incident. Raises OSError, PerdureError."""
    folder = home / "run"
    make_folder(folder)
    line = {"at": datetime.now(UTC).isoformat(), "client": client, "event": event, "stage": stage, "error": error}
    _append(folder / "hook-failures.jsonl", json.dumps(line).encode() + b"\n")
    try:
        os.close(os.open(_mark(home, stage), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def over(home: Path, stage: str) -> None:
    """End the incident of this kind, if there is one."""
    with contextlib.suppress(OSError):  # none, or a disk that cannot be written: the next success tries again
        _mark(home, stage).unlink()


def over_remote(home: Path, *, recall: bool = True) -> None:
    """End the incidents of a remote home that took nothing. recall: that of one that did not answer, too, as it has."""
    over(home, "credential")
    over(home, "ship")
    if recall and is_remote(home, "recall"):
        over(home, "recall")


def is_remote(home: Path, stage: str) -> bool:
    """Whether what failed last in this stage was that the remote home did not answer."""
    last: dict[str, Any] = next((row for row in reversed(recorded(home)) if row.get("stage") == stage), {})
    return str(last.get("error")).startswith("remote-")


def recorded(home: Path) -> list[dict[str, Any]]:
    """The failures, oldest first; a line that was cut short is left out."""
    try:
        rows = (home / "run" / "hook-failures.jsonl").read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for row in rows:
        with contextlib.suppress(ValueError):
            found.append(json.loads(row))
    return [item for item in found if isinstance(item, dict)]


def lasting(home: Path) -> list[str]:
    """The kinds of failure that no success has ended yet."""
    return sorted(path.name.removeprefix("failing-") for path in (home / "run").glob("failing-*"))


def _mark(home: Path, stage: str) -> Path:
    return home / "run" / f"failing-{stage}"


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line)
        full = os.fstat(descriptor).st_size > _MAX_BYTES
    finally:
        os.close(descriptor)
    if full:
        rows = path.read_bytes().splitlines(keepends=True)
        replace(path, b"".join(rows[len(rows) // 2 :]), sync=False)
