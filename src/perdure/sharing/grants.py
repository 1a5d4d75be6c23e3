"""Grants: what another user, or a team, may read of an owner's data, and until when. All else stays the owner's alone.

A grant is an event of its owner's journal, and nobody else's journal can make or end one. It counts in the
home where it was given, from that moment until its date or its revocation, or until its grantee declines
it, in whatever order homes were merged. A grant to a team is read by whoever is a member at that moment; a
memory that is granted to a team, a note, also needs the word of a reviewer. `GrantCache` holds the current
events of all users; every change is announced to all processes of the home, and the saved file can be
deleted at any time. Searches apply the grants, not this module: each filters by its `Principal`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.structs import replace

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
from perdure.errors import GrantMissing, PerdureError, TeamMissing, UsageError
from perdure.identity import check_user
from perdure.types import GRANT_SCOPES, Grant, GrantScope

# events and their cache ---------------------------------------------------------------------------------------

MACHINE = "machine"  # types of events
GRANT = "grant"
TEAM = "team"
PERSON = "person"
_TYPES = (GRANT, MACHINE, TEAM, PERSON)
_GRANTING_OPS = ("register", "give", "accept", "rule", "join", "return", "link")  # give rights; all others end them
_T = TypeVar("_T")

APP_PASSWORDS_FILE = "app-passwords.json"  # in a home: what `sharing/app_passwords.py` keeps
_CHANGES_FILE = "run/authority.changes"  # in a home: a byte for each change
_FORMAT = 2  # of the saved file
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


# grants -------------------------------------------------------------------------------------------------------

TEAM_SIGN = "@"  # before the name of a team, where a user could stand; no user's name begins with it
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)  # since when a grant covers everything that has a time
_MAX_VALUE_CHARS = 4096  # of a scope's value: the longest path on Linux
_INVISIBLE_CATEGORIES = (
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
)  # control, format, half of a surrogate pair, line or paragraph separator


class Review(msgspec.Struct, frozen=True):
    """The word of a reviewer about a note."""

    is_accepted: bool
    reviewer: str  # "" once their data was erased
    reviewed_at: datetime


class GrantRecord(msgspec.Struct, frozen=True):
    """A grant with its state: when it was given, reviewed, revoked and declined."""

    grant: Grant
    given_at: datetime
    revoked_at: datetime | None = None
    declined_at: datetime | None = None  # by the grantee
    review: Review | None = None  # the last one, of a note

    def is_in_force(self, now: datetime) -> bool:
        """Return True if it lets somebody read something at this moment."""
        until_at = self.grant.until_at
        is_reviewed = self.grant.scope != "memory" or (self.review is not None and self.review.is_accepted)
        is_ended = self.revoked_at is not None or self.declined_at is not None
        return is_reviewed and not is_ended and (until_at is None or now < until_at)


class TeamMember(msgspec.Struct, frozen=True):
    """A user who reads what is shared with a team."""

    user: str
    is_reviewer: bool  # decides about notes
    joined_at: datetime
    added_by: str


class Team(msgspec.Struct, frozen=True):
    """A named list of users with whom others share by one grant."""

    name: str
    keeps: bool  # what a person shared with it stays when they leave the home
    members: tuple[TeamMember, ...] = ()  # by name

    def find_member(self, user: str) -> TeamMember | None:
        """Return the member of this name, if there is one."""
        return next((member for member in self.members if member.user == user), None)


class _GiveGrantOp(msgspec.Struct, tag_field="op", tag="give"):
    grant_id: str
    grantee: str
    scope: GrantScope
    value: str
    until_at: datetime | None = None
    since_at: datetime | None = None


class _RevokeGrantOp(msgspec.Struct, tag_field="op", tag="revoke"):
    grant_id: str


class _DeclineGrantOp(msgspec.Struct, tag_field="op", tag="decline"):
    """A refusal of a grant; it is an event in the journal of the grantee."""

    grant_id: str
    owner: str


class _AcceptNoteOp(msgspec.Struct, tag_field="op", tag="accept"):
    grant_id: str
    by: str


class _RejectNoteOp(msgspec.Struct, tag_field="op", tag="reject"):
    grant_id: str
    by: str


class _TeamRuleOp(msgspec.Struct, tag_field="op", tag="rule"):
    """It makes a team, or changes its rule."""

    team: str
    keeps: bool
    by: str


class _JoinTeamOp(msgspec.Struct, tag_field="op", tag="join"):
    team: str
    user: str
    by: str
    is_reviewer: bool = False


class _LeaveTeamOp(msgspec.Struct, tag_field="op", tag="part"):
    team: str
    user: str
    by: str


class _GoneOp(msgspec.Struct, tag_field="op", tag="gone"):
    """A person left the home: nobody connects under their name."""

    user: str
    by: str


class _ReturnOp(msgspec.Struct, tag_field="op", tag="return"):
    user: str
    by: str


TeamOp = _TeamRuleOp | _JoinTeamOp | _LeaveTeamOp


def iterate_team_ops(events: SharingEvents) -> Iterator[tuple[datetime, TeamOp]]:
    """Yield (time, operation) of the teams of this home, in their order. Another home's can only end a membership."""
    for _, event in sorted(events.list_by_type(TEAM), key=lambda pair: pair[1].order):
        op = next(filter(None, (read_event_data(event, type_) for type_ in get_args(TeamOp))), None)
        if op is not None and (event.writer in events.own_writers or isinstance(op, _LeaveTeamOp)):
            yield event.happened_at, op


def index_departures(events: SharingEvents) -> dict[str, datetime]:
    """Return who left this home, and when."""
    gone_at: dict[str, datetime] = {}
    for _, event in sorted(events.list_local(TEAM), key=lambda pair: pair[1].order):
        if gone := read_event_data(event, _GoneOp):
            gone_at.setdefault(gone.user, event.happened_at)
        elif back := read_event_data(event, _ReturnOp):
            gone_at.pop(back.user, None)
    return gone_at


def check_presence(events: SharingEvents, user: str) -> None:
    """Raise UsageError if a person left this home: what they would read again would be no choice of anybody's."""
    if (left_at := events.derive(index_departures).get(user)) is not None:
        raise UsageError(f"{user} left this home on {left_at:%Y-%m-%d}: run `perdure team return {user}` first")


def replay_teams(events: SharingEvents) -> dict[str, Team]:
    """Return the teams of this home by name."""
    rules: dict[str, bool] = {}
    members: dict[str, dict[str, TeamMember]] = {}
    for happened_at, op in iterate_team_ops(events):
        team_members = members.setdefault(op.team, {})
        if isinstance(op, _TeamRuleOp):
            rules[op.team] = op.keeps
        elif isinstance(op, _JoinTeamOp):
            old = team_members.get(op.user)
            joined_at, added_by = (old.joined_at, old.added_by) if old else (happened_at, op.by)
            team_members[op.user] = TeamMember(op.user, op.is_reviewer, joined_at, added_by)
        else:
            team_members.pop(op.user, None)
    return {
        name: Team(name, keeps, tuple(members[name][user] for user in sorted(members[name])))
        for name, keeps in sorted(rules.items())
    }


def _index_reviews(events: SharingEvents) -> dict[tuple[str, str], Review]:
    """Return the last review of each note, by owner and id. A rejection counts in every home."""
    reviews: dict[tuple[str, str], Review] = {}
    for owner, event in events.list_by_type(GRANT):
        op = read_event_data(event, _AcceptNoteOp) or read_event_data(event, _RejectNoteOp)
        is_accepted = isinstance(op, _AcceptNoteOp)
        if op is not None and (event.writer in events.own_writers or not is_accepted):
            reviews[owner, op.grant_id] = Review(is_accepted, op.by, event.happened_at)
    return reviews


def _index_declines(events: SharingEvents) -> dict[tuple[str, str, str], datetime]:
    """Return when grants were declined, by grantee, owner and id."""
    declined_at_by_key: dict[tuple[str, str, str], datetime] = {}
    for user, event in events.list_by_type(GRANT):
        if decline := read_event_data(event, _DeclineGrantOp):
            declined_at_by_key.setdefault((user, decline.owner, decline.grant_id), event.happened_at)
    return declined_at_by_key


def _replay_grants(events: SharingEvents) -> list[GrantRecord]:
    """Return every grant of this home, by owner and in the order in which they were given.

    A revocation counts in every home. A date without its zone is ambiguous, so a grant with such a date gives
    nothing.
    """
    revoked_at_by_key: dict[tuple[str, str], datetime] = {}
    for owner, event in events.list_by_type(GRANT):
        if revoke_op := read_event_data(event, _RevokeGrantOp):
            revoked_at_by_key.setdefault((owner, revoke_op.grant_id), event.happened_at)
    declined_at_by_key, reviews = events.derive(_index_declines), events.derive(_index_reviews)
    grant_records: dict[tuple[str, str], GrantRecord] = {}
    for owner, event in events.list_local(GRANT):
        give_op = read_event_data(event, _GiveGrantOp)
        if (
            give_op is None
            or give_op.grantee == owner
            or any(at is not None and at.tzinfo is None for at in (give_op.until_at, give_op.since_at))
        ):
            continue
        grant = Grant(
            give_op.grant_id, owner, give_op.grantee, give_op.scope, give_op.value, give_op.until_at, give_op.since_at,
            team=give_op.grantee.removeprefix(TEAM_SIGN) if give_op.grantee.startswith(TEAM_SIGN) else "",
        )  # fmt: skip
        key = owner, give_op.grant_id
        declined_at = declined_at_by_key.get((give_op.grantee, *key))
        grant_record = GrantRecord(grant, event.happened_at, revoked_at_by_key.get(key), declined_at, reviews.get(key))
        grant_records.setdefault(key, grant_record)
    return list(grant_records.values())


def list_all_grants(events: SharingEvents) -> list[GrantRecord]:
    """Return every grant of this home, with those that ended."""
    return events.derive(_replay_grants)


def _group_by_grantee(events: SharingEvents) -> dict[str, list[GrantRecord]]:
    """Return the grants that were neither revoked nor declined, by grantee."""
    records_by_grantee: dict[str, list[GrantRecord]] = {}
    for grant_record in events.derive(_replay_grants):
        if grant_record.revoked_at is None and grant_record.declined_at is None:
            records_by_grantee.setdefault(grant_record.grant.grantee, []).append(grant_record)
    return records_by_grantee


def list_grants_to(home: Path, get_cache: Callable[[], GrantCache], user: str, now: datetime) -> tuple[Grant, ...]:
    """Return the grants by which a user may read data of others at this moment.

    Reads nothing in a home in which nobody else has a journal.
    """
    if not any(name != user for name in list_journal_users(home)):
        return ()
    grant_records = _list_records_to(get_cache().get_events(), user)
    return tuple(replace(record.grant, grantee=user) for record in grant_records if record.is_in_force(now))


def _list_records_to(events: SharingEvents, user: str) -> list[GrantRecord]:
    """Return the grants to a user, and those of others to their teams as this user has them; none that was revoked."""
    by_grantee = events.derive(_group_by_grantee)
    records = list(by_grantee.get(user, ()))
    for team in events.derive(replay_teams).values():
        if team.find_member(user) is None:
            continue
        for record in by_grantee.get(f"{TEAM_SIGN}{team.name}", ()):
            if record.grant.owner != user:
                records.append(replace(record, declined_at=_find_declined_at(events, record, user)))
    return records


def is_declined(events: SharingEvents, grant_record: GrantRecord, user: str) -> bool:
    """Return True if a user declined a grant to them, or to a team of theirs."""
    return _find_declined_at(events, grant_record, user) is not None


def _find_declined_at(events: SharingEvents, grant_record: GrantRecord, user: str) -> datetime | None:
    key = user, grant_record.grant.owner, grant_record.grant.grant_id
    return events.derive(_index_declines).get(key)


class Grants:
    """The grants that one owner gave to others, and those that others gave to them."""

    def __init__(
        self, home: Path, user: str, cache: GrantCache, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Use the home's cache of grants and machines; it may be shared."""
        self._home = home
        self._user = user
        self._cache = cache
        self._now = now

    def list_given(self, *, include_ended: bool = False) -> list[GrantRecord]:
        """Return the grants that the owner gave and that are in force, oldest first. include_ended: also those that
        ended.
        """
        grant_records = self._cache.get_events().derive(_replay_grants)
        return self._select([record for record in grant_records if record.grant.owner == self._user], include_ended)

    def list_received(self, *, include_ended: bool = False) -> list[GrantRecord]:
        """Return the grants in force that others gave to the owner, or to a team of theirs, oldest first."""
        events = self._cache.get_events()
        to_user = [record for record in events.derive(_replay_grants) if record.grant.grantee == self._user]
        to_teams = [record for record in _list_records_to(events, self._user) if record.grant.team]
        return self._select([*to_user, *to_teams], include_ended)

    def _select(self, grant_records: Sequence[GrantRecord], include_ended: bool) -> list[GrantRecord]:
        now = self._now()
        selected = [grant_record for grant_record in grant_records if include_ended or grant_record.is_in_force(now)]
        return sorted(
            selected, key=lambda grant_record: grant_record.given_at
        )  # of one moment: in the order of their journals

    def give(
        self,
        grantee: str,
        scope: GrantScope,
        value: str,
        *,
        until_at: datetime | None = None,
        since_at: datetime | None = None,
    ) -> GrantRecord:
        """Let another user, or a team ("@NAME"), read what is in a scope, now and later, masked. Giving the same grant
        twice makes one.

        value: the whole id of a run or a memory, the path of a project. The caller must check that a run or a memory
        belongs to the owner. Raises UsageError for a grant that makes no sense.
        """
        self._check_grant(grantee, scope, value, until_at)
        with lock_changes(self._home):
            for grant_record in self.list_given(include_ended=scope == "memory"):
                grant = grant_record.grant
                is_same = (grant.grantee, grant.scope, grant.value, grant.until_at) == (grantee, scope, value, until_at)
                if is_same and _covers_since(grant.since_at, since_at) and grant_record.revoked_at is None:
                    return grant_record
            grant_id = f"g-{secrets.token_hex(8)}"
            data = {
                "op": "give",
                "grant_id": grant_id,
                "grantee": grantee,
                "scope": scope,
                "value": value,
                "until_at": until_at.astimezone(UTC).isoformat() if until_at else None,
            }
            data |= {"since_at": since_at.astimezone(UTC).isoformat()} if since_at else {}
            record_event(self._home, self._user, GRANT, data, now=self._now())
        return self._get_grant(grant_id)

    def _check_grant(self, grantee: str, scope: str, value: str, until_at: datetime | None) -> None:
        self._check_grantee(grantee, scope)
        if scope not in GRANT_SCOPES:
            raise UsageError(f"{scope!r} cannot be shared (known: {', '.join(GRANT_SCOPES)})")
        if not value or len(value) > _MAX_VALUE_CHARS or not all(map(_is_visible, value)):
            raise UsageError(f"{value!r} is not a valid {scope}")
        if until_at is not None and until_at.tzinfo is None:
            raise UsageError(f"{until_at.isoformat()} has no time zone")
        if until_at is not None and until_at <= self._now():
            raise UsageError(f"{until_at.isoformat()} is in the past: give a later date")

    def _check_grantee(self, grantee: str, scope: str) -> None:
        if grantee.startswith(TEAM_SIGN):
            if grantee.removeprefix(TEAM_SIGN) not in self._cache.get_events().derive(replay_teams):
                raise TeamMissing(grantee)
            return
        check_user(grantee)
        if scope == "memory":
            raise UsageError("a memory alone is shared with a team, as a note: give @TEAM")
        if grantee == self._user:
            raise UsageError("you can already read your own data: give another user")
        check_presence(self._cache.get_events(), grantee)
        known_users = {self._user, *list_journal_users(self._home), *list_run_owners(self._home)}
        similar_names = [name for name in known_users if name.casefold() == grantee.casefold()]
        if similar_names and grantee not in similar_names:
            raise UsageError(f"this home has no user {grantee!r}, but {min(similar_names)!r}: check the spelling")

    def revoke(self, grant_id: str) -> GrantRecord:
        """End a grant of the owner, from the next question on; one that has ended stays ended. Raises GrantMissing."""
        with lock_changes(self._home):
            grant_record = self._get_grant(grant_id)
            if grant_record.revoked_at is None:
                data = {"op": "revoke", "grant_id": grant_record.grant.grant_id}
                record_event(self._home, self._user, GRANT, data, now=self._now())
        return self._get_grant(grant_id)

    def decline(self, grant_id: str) -> GrantRecord:
        """Stop reading what another user shares by a grant, from the next question on. Raises NotFound."""
        with lock_changes(self._home):
            grant_record = self._get_grant(grant_id, is_received=True)
            if grant_record.declined_at is None:
                data = {"op": "decline", "grant_id": grant_record.grant.grant_id, "owner": grant_record.grant.owner}
                record_event(self._home, self._user, GRANT, data, now=self._now())
        return self._get_grant(grant_id, is_received=True)

    def _get_grant(self, grant_id: str, *, is_received: bool = False) -> GrantRecord:
        for grant_record in (
            self.list_received(include_ended=True) if is_received else self.list_given(include_ended=True)
        ):
            if grant_record.grant.grant_id == grant_id:
                return grant_record
        raise GrantMissing(grant_id)


def _covers_since(old_at: datetime | None, new_at: datetime | None) -> bool:
    """Return True if what a grant covers from one time on holds all that it would from another on."""
    return old_at is None or (new_at is not None and old_at <= new_at)


def _is_visible(char: str) -> bool:
    """Return True if a character is visible.

    False for characters that control or reorder and for half of a surrogate pair; joiners belong to words.
    """
    return unicodedata.category(char) not in _INVISIBLE_CATEGORIES or char in "\u200c\u200d"


def move_notes(home: Path, user: str, memory_ids: Mapping[str, str]) -> None:
    """Let notes of a user show other memories, with the same review. memory_ids: of the new memories, by note."""

    def move_note(event: JournalEvent) -> dict[str, Any] | None:
        memory_id = memory_ids.get(event.data.get("grant_id", ""))
        return {**event.data, "value": memory_id} if memory_id and event.data.get("op") == "give" else None

    Journal(home / "archive" / "journal" / user, home=home).rewrite(GRANT, move_note)
    mark_changed(home)


def delete_grants_to(home: Path, user: str) -> int:
    """Remove every grant to a user, and their name in the teams, from the journals of the others; return how many."""

    def delete_name(event: JournalEvent) -> dict[str, Any] | None:
        if user in (event.data.get("grantee"), event.data.get("owner"), event.data.get("user")):
            return {}
        return {**event.data, "by": ""} if event.data.get("by") == user else None

    journals = [
        Journal(home / "archive" / "journal" / name, home=home) for name in list_journal_users(home) if name != user
    ]
    n_deleted = sum(journal.rewrite(type_, delete_name) for journal in journals for type_ in (GRANT, TEAM))
    mark_changed(home)
    return n_deleted
