"""A cache of the events about machines and grants in all journals: read once, then as they grow, and kept in memory.

Only this home decides who may speak and read here: of the events that a merge brings, only those that end
something count.

It is asked at every request, so it first looks at one file that every change made here makes longer; a
change that comes in another way (a merge by hand, a restored home) is seen within a second. One cache
serves all threads of a process.
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

from perdure.archive.journal import (
    FilePosition,
    Journal,
    JournalEvent,
    list_own_writers,
    measure_files,
    read_file_ends,
    read_new_events,
    was_rewritten,
)
from perdure.disk import append_line, lock_file, make_folder, replace_file
from perdure.errors import PerdureError

MACHINE = "machine"  # types of events
GRANT = "grant"
_TYPES = (GRANT, MACHINE)
_GRANTING_OPS = ("register", "give")  # operations that give rights; all others end them
_T = TypeVar("_T")

_CHANGES_FILE = "run/authority.changes"  # in a home: a byte for each change
_FORMAT = 1  # of the saved file
_REFRESH_EVERY_S = 1.0  # how often the journals themselves are checked
_SAVE_AFTER_BYTES = 1_000_000  # save the file when it spares the next process reading this much of the journals


class UserEvents(msgspec.Struct):
    """The events of one user about machines and grants, and how far their journal was read."""

    read: dict[str, FilePosition] = {}
    ends: dict[str, str] = {}  # the last bytes that were read of each file, as hex
    events: list[JournalEvent] = []  # sorted


class _CacheFile(msgspec.Struct):
    format: int = _FORMAT
    users: dict[str, UserEvents] = {}


class SharingEvents:
    """The events of all users at one moment, and the results derived from them: each is computed once."""

    def __init__(
        self, events: Mapping[str, tuple[JournalEvent, ...]], own_writers: frozenset[str] = frozenset()
    ) -> None:
        """Hold the events by user, in their order. own_writers: the writers that this home has had."""
        self.events = events
        self.own_writers = own_writers
        self._derived: dict[Callable[[SharingEvents], Any], Any] = {}

    def list_by_type(self, type_: str) -> Iterator[tuple[str, JournalEvent]]:
        """Yield (user, event) of one type; the events of each user in their order."""
        for user in sorted(self.events):
            yield from ((user, event) for event in self.events[user] if event.type == type_)

    def list_local(self, type_: str) -> Iterator[tuple[str, JournalEvent]]:
        """Yield (user, event) of one type that this home wrote: no other home decides who may speak or read here."""
        return ((user, event) for user, event in self.list_by_type(type_) if event.writer in self.own_writers)

    def derive(self, function: Callable[[SharingEvents], _T]) -> _T:
        """Return the result of a pure function of these events."""
        if function not in self._derived:
            self._derived[function] = function(self)
        result: _T = self._derived[function]
        return result


class GrantCache:
    """The current events about machines and grants in one home."""

    def __init__(self, home: Path, *, can_save: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        """Read nothing yet. can_save: whether the events may be saved in a file for the next process."""
        self._home = home
        self._root = home / "archive" / "journal"
        self._can_save = can_save
        self._clock = clock
        self._lock = threading.Lock()
        self._users: dict[str, UserEvents] | None = None
        self._events = SharingEvents({})
        self._change_mark: tuple[int, int] | None = None  # state of the file of changes at the last refresh
        self._next_refresh_s = 0.0
        self._saved_users: Mapping[str, UserEvents] = {}  # content of the saved file

    def get_events(self) -> SharingEvents:
        """Return the events that the journals hold now."""
        if self._is_fresh():
            return self._events
        with self._lock:
            if not self._is_fresh():
                self._refresh()
            return self._events

    def _is_fresh(self) -> bool:
        return (
            self._users is not None
            and self._clock() < self._next_refresh_s
            and _read_change_mark(self._home) == self._change_mark
        )

    def _refresh(self) -> None:
        change_mark, now_s = (
            _read_change_mark(self._home),
            self._clock(),
        )  # before the journals: what is added meanwhile is seen next time
        if self._users is None:
            self._saved_users = self._load_file()
        old_users = self._saved_users if self._users is None else self._users
        users = {
            name: self._read_user(name, old_users.get(name, UserEvents())) for name in list_journal_users(self._home)
        }
        writers = list_own_writers(self._home)
        is_same = self._users is not None and users.keys() == old_users.keys() and writers == self._events.own_writers
        if not is_same or any(users[name].events is not old_users[name].events for name in users):
            self._events = SharingEvents(
                {name: tuple(user_events.events) for name, user_events in users.items()}, writers
            )
        if self._can_save and _is_worth_saving(self._saved_users, users):
            self._save_file(users)
        self._users, self._change_mark, self._next_refresh_s = users, change_mark, now_s + _REFRESH_EVERY_S

    def _read_user(self, user: str, user_events: UserEvents) -> UserEvents:
        """Return the events of a user, up to date with their journal; the same object if there is nothing new."""
        folder = self._root / user
        positions = measure_files(folder)
        if positions == user_events.read:
            return user_events
        if was_rewritten(user_events.read, positions) or read_file_ends(folder, user_events.read) != user_events.ends:
            user_events = UserEvents()
        new_events, new_positions = read_new_events(folder, user_events.read, positions, _TYPES)
        events = (
            sorted([*user_events.events, *new_events], key=lambda event: event.order)
            if new_events
            else user_events.events
        )
        return UserEvents(new_positions, read_file_ends(folder, new_positions), events)

    @property
    def _path(self) -> Path:
        return self._home / "run" / "authority.json"

    def _load_file(self) -> dict[str, UserEvents]:
        try:
            cache_file = msgspec.json.decode(self._path.read_bytes(), type=_CacheFile)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}
        return cache_file.users if cache_file.format == _FORMAT else {}

    def _save_file(self, users: dict[str, UserEvents]) -> None:
        with contextlib.suppress(PerdureError, OSError):  # a home that is read-only reads them again next time
            make_folder(self._path.parent)
            replace_file(self._path, msgspec.json.encode(_CacheFile(users=users)), sync=False)
            self._saved_users = users


def _is_worth_saving(saved_users: Mapping[str, UserEvents], users: Mapping[str, UserEvents]) -> bool:
    """Return True if the next process would need much time to read again what the saved file lacks."""
    if any(user not in users for user in saved_users):
        return True
    pairs = [(saved_users.get(user, UserEvents()), new_state) for user, new_state in users.items()]
    n_bytes = sum(_count_bytes(new_state) - _count_bytes(old_state) for old_state, new_state in pairs)
    return n_bytes > _SAVE_AFTER_BYTES or any(old_state.events != new_state.events for old_state, new_state in pairs)


def _count_bytes(user_events: UserEvents) -> int:
    return sum(position.n_bytes for position in user_events.read.values())


def find_events_without_effect(events: SharingEvents) -> frozenset[str]:
    """Return the keys of the events by which another home registered a machine or shared something."""
    foreign_events = (
        event for type_ in _TYPES for _, event in events.list_by_type(type_) if event.writer not in events.own_writers
    )
    return frozenset(event.key for event in foreign_events if event.data.get("op") in _GRANTING_OPS)


def read_event_data(event: JournalEvent, data_type: type[_T]) -> _T | None:
    """Convert the data of an event to this type; None if it has another shape, as one from elsewhere may have."""
    try:
        return msgspec.convert(event.data, data_type)
    except msgspec.ValidationError:
        return None


def list_journal_users(home: Path) -> list[str]:
    """Return the users who have a journal here, by name."""
    return _list_folders(home / "archive" / "journal")


def list_run_owners(home: Path) -> list[str]:
    """Return the users who have runs here, by name."""
    return _list_folders(home / "archive" / "runs")


def _list_folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(dir_entry.name for dir_entry in entries if dir_entry.is_dir())
    except FileNotFoundError:
        return []


def record_event(home: Path, user: str, type_: str, data: dict[str, Any], *, now: datetime) -> JournalEvent:
    """Write an event of a machine or a grant; it is durable, and announced to all processes, when this returns."""
    event = Journal(home / "archive" / "journal" / user, home=home).append(type_, data, now=now)
    mark_changed(home)
    return event


def mark_changed(home: Path) -> None:
    """Tell every process of this home that machines or grants changed: each reads the journals at its next request."""
    make_folder(home / "run")
    append_line(home / _CHANGES_FILE, b"")


def lock_changes(home: Path) -> contextlib.AbstractContextManager[int]:
    """Let nobody else register, share or revoke in this home during the block."""
    make_folder(home)
    return lock_file(home / ".authority.lock")


def delete_cache(home: Path) -> None:
    """Delete the saved events: some of them were erased."""
    (home / "run" / "authority.json").unlink(missing_ok=True)
    mark_changed(home)


def _read_change_mark(home: Path) -> tuple[int, int]:
    try:
        status = (home / _CHANGES_FILE).stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_ino, status.st_size
