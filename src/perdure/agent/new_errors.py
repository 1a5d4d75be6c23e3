"""Errors that a home sees for the first time: of its own log, and of commands in captured sessions.

An error is known by a hash of its words without what differs from one time to the next. Only hashes are kept, so that
nothing here needs to be forgotten.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from perdure import log
from perdure.agent_queue import AgentQueue
from perdure.disk import make_folder, replace_file
from perdure.errors import Busy, IndexFault
from perdure.index.facts import list_failures
from perdure.regex import lazy_re
from perdure.types import Principal

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.home import Home

WINDOW = timedelta(days=1)  # errors of so long ago are looked at, and known ones left out
MAX_NEW = 5  # of one look, the newest; the others come at the next one
MAX_KNOWN = 5000
_FAILED_RESULTS = {"failed", "crashed", "lost", "dead"}
_VARYING = (
    (lazy_re(r"0x[0-9a-f]+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{7,}\b"), "#"),
    (lazy_re(r"\d{4}-\d\d-\d\d[t ]\d\d:\d\d:\d\d\S*"), "#"),
    (lazy_re(r"(?:/[^\s/:'\"]+)+/"), ""),  # of a path, its last part stays
    (lazy_re(r"\d+"), "#"),
    (lazy_re(r"\s+"), " "),
)


@dataclass(frozen=True)
class SeenError:
    """An error that a home saw."""

    text: str  # masked
    project: str  # "" without one
    at: datetime

    @property
    def key(self) -> str:
        """The hash under which it is known."""
        return hash_error(self.text)


def hash_error(text: str) -> str:
    """Return 16 hex digits that are the same for errors that differ only in numbers, times, ids and folders.

    >>> hash_error("line 3: /home/ada/cart.py failed") == hash_error("line 17: /tmp/x/cart.py  failed")
    True
    >>> hash_error("cart.py failed") == hash_error("shop.py failed")
    False
    """
    words = text.lower()
    for pattern, replacement in _VARYING:
        words = pattern.sub(replacement, words)
    return hashlib.sha256(words.strip().encode("utf-8", "surrogatepass")).hexdigest()[:16]


def find_new_errors(home: Home, job: str, now: datetime) -> list[SeenError]:
    """Return the errors of the last day that a job has not seen, each once, newest first, at most MAX_NEW."""
    known = set(_read_known(home.path, job))
    by_key: dict[str, SeenError] = {}
    for error in sorted(_list_errors(home, now - WINDOW), key=lambda error: error.at, reverse=True):
        if error.key not in known:
            by_key.setdefault(error.key, error)
    return list(by_key.values())[:MAX_NEW]


def mark_known(home: Home, job: str, errors: list[SeenError]) -> None:
    """Record that a job has seen these errors. Raises DiskFull."""
    known = dict.fromkeys([*_read_known(home.path, job), *(error.key for error in errors)])
    path = _to_path(home.path, job)
    make_folder(path.parent)
    replace_file(path, json.dumps(list(known)[-MAX_KNOWN:]).encode())


def _list_errors(home: Home, since_at: datetime) -> Iterator[SeenError]:
    for entry in log.read_entries(home.path, since_at=since_at):
        at = datetime.fromisoformat(entry["at"])
        if entry["what"] == "failed" and entry.get("client") != "jobs":
            words = [str(entry.get(key, "")) for key in ("client", "kind", "code", "at_line")]
            yield SeenError(f"Perdure failed: {' '.join(filter(None, words))}", "", at)
        elif entry["what"] == "job" and entry.get("result") in _FAILED_RESULTS:
            words = [str(entry.get(key, "")) for key in ("job", "result", "code")]
            yield SeenError(f"Perdure's job: {' '.join(filter(None, words))}", "", at)
    queue = AgentQueue(home.path)
    own_sessions = {run.session for run in (*queue.list_active(), *queue.list_ended()) if run.cause}
    with contextlib.suppress(IndexFault, Busy):
        home.upkeep.catch_up()
        for failure in list_failures(home.index(), Principal(home.user), since_at):
            if failure.session not in own_sessions:  # else the search for a cause would start the next search
                yield SeenError(f"{failure.command}\n{failure.line}".strip(), failure.project, failure.at)


def _to_path(home: Path, job: str) -> Path:
    return home / "run" / "jobs" / f"{job}.known-errors"


def _read_known(home: Path, job: str) -> list[str]:
    try:
        known = json.loads(_to_path(home, job).read_bytes())
    except (OSError, ValueError):
        return []
    return [str(key) for key in known] if isinstance(known, list) else []
