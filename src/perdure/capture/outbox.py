"""The outbox: captured, not yet in an archive. A file that is here after fsync is the acknowledgement to a hook.

Each file is one delta: a line of JSON that says what it is, then the bytes as they were read. Its name sorts by
time of capture. Whoever moves it into an archive deletes it after that archive acknowledged it, never before.
Standard library only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from perdure.capture.files import make_folder, replace

_SUFFIX, _ASIDE = ".delta", ".unreadable"
_HEAD_BYTES = 1 << 20  # the first line of a delta is not longer


class Waiting(NamedTuple):
    """One delta in the outbox."""

    path: Path
    head: dict[str, Any]  # what capture knew
    data: bytes


class Backlog(NamedTuple):
    """How much waits in the outbox, and for how long."""

    n_files: int
    n_bytes: int
    oldest_at: datetime | None


def put(outbox: Path, head: dict[str, Any], data: bytes, *, now: datetime) -> Path:
    """Write a delta; durable when this returns."""
    make_folder(outbox)
    name = f"{int(now.timestamp() * 1_000_000):020d}-{os.urandom(4).hex()}{_SUFFIX}"
    replace(outbox / name, json.dumps(head).encode() + b"\n" + data)
    return outbox / name


def waiting(outbox: Path) -> Iterator[Waiting]:
    """The deltas, oldest first. One that cannot be read is renamed to `*.unreadable`, never deleted."""
    for path in files(outbox):
        try:
            first, _, data = path.read_bytes().partition(b"\n")
            yield Waiting(path, dict(json.loads(first)), data)
        except FileNotFoundError:
            continue  # another process moved it meanwhile
        except (ValueError, TypeError):
            set_aside(path)


def set_aside(path: Path) -> None:
    """Rename a delta that means nothing, so that it holds up no other; it is never deleted."""
    path.rename(path.with_suffix(_ASIDE))


def aside(outbox: Path) -> list[Path]:
    """What was set aside."""
    return sorted(outbox.glob(f"*{_ASIDE}"))


def take_back(outbox: Path) -> None:
    """Let what was set aside wait again."""
    for path in aside(outbox):
        path.rename(path.with_suffix(_SUFFIX))


def backlog(outbox: Path) -> Backlog:
    """How full the outbox is."""
    sizes, times = [], []
    for path in files(outbox):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
        stamp = path.name.split("-")[0]
        times += [int(stamp)] if stamp.isdigit() else []
    oldest = datetime.fromtimestamp(min(times) / 1_000_000, UTC) if times else None
    return Backlog(len(sizes), sum(sizes), oldest)


def files(outbox: Path) -> list[Path]:
    """The deltas that wait, oldest first, unread."""
    return sorted(outbox.glob(f"*{_SUFFIX}"))


def others(outbox: Path, user: str) -> int:
    """How many of the deltas that wait were captured for somebody else at a remote home."""
    return sum(is_others(path, user) for path in files(outbox))


def is_others(path: Path, user: str) -> bool:
    """Whether a delta was captured for somebody else; one that does not say so was not."""
    try:
        with path.open("rb") as file:
            whose = dict(json.loads(file.readline(_HEAD_BYTES))).get("whose")
    except (OSError, ValueError, TypeError):
        return False
    return bool(whose) and whose != user


def alarm(outbox: Path, *, max_bytes: int, max_age_s: int, now: datetime) -> str | None:
    """What to say about an outbox that does not drain: once an incident, which ends when it has drained."""
    text, raised = problem(outbox, max_bytes=max_bytes, max_age_s=max_age_s, now=now), outbox / "alarm"
    if text is None:
        raised.unlink(missing_ok=True)
        return None
    if raised.exists():
        return None
    replace(raised, text.encode())
    return text


def problem(outbox: Path, *, max_bytes: int, max_age_s: int, now: datetime) -> str | None:
    """What is wrong with an outbox that does not drain, or None."""
    state = backlog(outbox)
    age_s = (now - state.oldest_at).total_seconds() if state.oldest_at else 0
    if state.n_bytes <= max_bytes and age_s <= max_age_s:
        return None
    minutes = int(age_s // 60)
    return f"{state.n_files} captures ({state.n_bytes} bytes) wait in {outbox}, the oldest for {minutes} minutes"
