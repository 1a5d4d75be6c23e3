"""What the journals of all users say of machines and grants: read once, then as they grow, and kept in memory.

Who may speak and read here is said in this home alone: of the events that a merge brings, only those that end something
count.

It is asked at every request, so it looks at one file first, which every change made here makes longer; what comes in
another way (a merge by hand, a home put back) is seen within a second. One watch serves all threads of a process.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perdure.archive.journal import Event, Journal, Read, ends, own_writers, places, tails, was_rewritten
from perdure.capture.files import append_line, locked, make_folder, replace
from perdure.errors import PerdureError

MACHINE = "machine"  # types of events
GRANT = "grant"
_TYPES = (GRANT, MACHINE)
_MAKING = ("register", "give")  # what such an event does when it is not to end something
_T = TypeVar("_T")

_CHANGES = "run/authority.changes"  # in a home: a byte for each change
_FORMAT = 1  # of the kept file
_LOOK_EVERY_S = 1.0  # at the journals themselves
_KEPT_AFTER_BYTES = 1_000_000  # of journals that were read, the kept file spares the next process so much


class Known(msgspec.Struct):
    """What one user's journal says of machines and grants, and how far it was read."""

    read: dict[str, Read] = {}
    ends: dict[str, str] = {}  # of what was read
    events: list[Event] = []  # in their order


class _Kept(msgspec.Struct):
    format: int = _FORMAT
    users: dict[str, Known] = {}


class Seen:
    """The events of all users at one moment, and what was made of them: each thing once."""

    def __init__(self, events: Mapping[str, tuple[Event, ...]], own: frozenset[str] = frozenset()) -> None:
        """events: by user, in their order. own: the writers that this home has been."""
        self.events = events
        self.own = own
        self._made: dict[Callable[[Seen], Any], Any] = {}

    def of_type(self, type_: str) -> Iterator[tuple[str, Event]]:
        """(user, event) of one type; of each user in their order."""
        for user in sorted(self.events):
            yield from ((user, event) for event in self.events[user] if event.type == type_)

    def made_here(self, type_: str) -> Iterator[tuple[str, Event]]:
        """The same of those that were written in this home: nobody else says who may speak or read here."""
        return ((user, event) for user, event in self.of_type(type_) if event.writer in self.own)

    def made(self, make: Callable[[Seen], _T]) -> _T:
        """What a pure function makes of these events."""
        if make not in self._made:
            self._made[make] = make(self)
        found: _T = self._made[make]
        return found


class Watch:
    """The events of machines and grants in one home, as they are now."""

    def __init__(self, home: Path, *, is_kept: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is read yet. is_kept: whether what was read may be kept in a file for the next process."""
        self._home = home
        self._root = home / "archive" / "journal"
        self._is_kept = is_kept
        self._clock = clock
        self._lock = threading.Lock()
        self._users: dict[str, Known] | None = None
        self._seen = Seen({})
        self._at: tuple[int, int] | None = None  # of the noted changes
        self._look_at_s = 0.0
        self._kept: Mapping[str, Known] = {}  # what the kept file says

    def seen(self) -> Seen:
        """What the journals say now."""
        if self._is_fresh():
            return self._seen
        with self._lock:
            if not self._is_fresh():
                self._look()
            return self._seen

    def _is_fresh(self) -> bool:
        return self._users is not None and self._clock() < self._look_at_s and _noted(self._home) == self._at

    def _look(self) -> None:
        at, now_s = _noted(self._home), self._clock()  # before the journals: what comes meanwhile is seen next time
        if self._users is None:
            self._kept = self._loaded()
        known = self._kept if self._users is None else self._users
        users = {name: self._grown(name, known.get(name, Known())) for name in users_of(self._home)}
        own = own_writers(self._home)
        is_same = self._users is not None and users.keys() == known.keys() and own == self._seen.own
        if not is_same or any(users[name].events is not known[name].events for name in users):
            self._seen = Seen({name: tuple(each.events) for name, each in users.items()}, own)
        if self._is_kept and _is_worth_keeping(self._kept, users):
            self._keep(users)
        self._users, self._at, self._look_at_s = users, at, now_s + _LOOK_EVERY_S

    def _grown(self, user: str, known: Known) -> Known:
        """What is known of a user, brought up to their journal; the very same where nothing came."""
        folder = self._root / user
        now = places(folder)
        if now == known.read:
            return known
        if was_rewritten(known.read, now) or ends(folder, known.read) != known.ends:
            known = Known()
        fresh, read = tails(folder, known.read, now, _TYPES)
        events = sorted([*known.events, *fresh], key=lambda event: event.order) if fresh else known.events
        return Known(read, ends(folder, read), events)

    @property
    def _file(self) -> Path:
        return self._home / "run" / "authority.json"

    def _loaded(self) -> dict[str, Known]:
        try:
            kept = msgspec.json.decode(self._file.read_bytes(), type=_Kept)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}
        return kept.users if kept.format == _FORMAT else {}

    def _keep(self, users: dict[str, Known]) -> None:
        with contextlib.suppress(PerdureError, OSError):  # a home that cannot be written reads it again next time
            make_folder(self._file.parent)
            replace(self._file, msgspec.json.encode(_Kept(users=users)), sync=False)
            self._kept = users


def _is_worth_keeping(before: Mapping[str, Known], now: Mapping[str, Known]) -> bool:
    """Whether it would cost the next process much to read again what is not in the kept file yet."""
    if any(user not in now for user in before):
        return True
    grown = [(before.get(user, Known()), known) for user, known in now.items()]
    n_bytes = sum(_n_bytes(known) - _n_bytes(old) for old, known in grown)
    return n_bytes > _KEPT_AFTER_BYTES or any(old.events != known.events for old, known in grown)


def _n_bytes(known: Known) -> int:
    return sum(read.n_bytes for read in known.read.values())


def without_effect(seen: Seen) -> frozenset[str]:
    """The keys of the events by which a machine was registered or something shared in another home."""
    found = (event for type_ in _TYPES for _, event in seen.of_type(type_) if event.writer not in seen.own)
    return frozenset(event.key for event in found if event.data.get("op") in _MAKING)


def said(event: Event, shape: type[_T]) -> _T | None:
    """The data of an event in this shape; None where it has another, as one may that came from elsewhere."""
    try:
        return msgspec.convert(event.data, shape)
    except msgspec.ValidationError:
        return None


def users_of(home: Path) -> list[str]:
    """The users who have a journal here, by name."""
    return _folders(home / "archive" / "journal")


def owners_of(home: Path) -> list[str]:
    """The users who have runs here, by name."""
    return _folders(home / "archive" / "runs")


def _folders(place: Path) -> list[str]:
    try:
        with os.scandir(place) as found:
            return sorted(entry.name for entry in found if entry.is_dir())
    except FileNotFoundError:
        return []


def record(home: Path, user: str, type_: str, data: dict[str, Any], *, now: datetime) -> Event:
    """Write an event of a machine or a grant; durable and noted when this returns."""
    event = Journal(home / "archive" / "journal" / user, home=home).append(type_, data, now=now)
    note(home)
    return event


def note(home: Path) -> None:
    """Say to every process of this home that machines or grants changed: each looks at the journals when asked next."""
    make_folder(home / "run")
    append_line(home / _CHANGES, b"")


def changing(home: Path) -> contextlib.AbstractContextManager[int]:
    """Nobody else registers, shares or revokes in this home during the block."""
    make_folder(home)
    return locked(home / ".authority.lock")


def drop(home: Path) -> None:
    """Keep nothing of what was read: some of it was erased."""
    (home / "run" / "authority.json").unlink(missing_ok=True)
    note(home)


def _noted(home: Path) -> tuple[int, int]:
    try:
        found = (home / _CHANGES).stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_size
