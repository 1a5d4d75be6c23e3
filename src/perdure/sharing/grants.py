"""Grants: what another user may read of an owner's data, and until when. Everything else stays the owner's alone.

A grant is an event of its owner's journal, and nobody else's journal can make or end one. It counts in the
home where it was given, from that moment until its date or its revocation, or until its grantee declines
it, in whatever order homes were merged.
"""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from perdure.archive.journal import Journal, JournalEvent
from perdure.errors import GrantMissing, UsageError
from perdure.identity import check_user
from perdure.sharing.grant_cache import (
    GRANT,
    GrantCache,
    SharingEvents,
    list_journal_users,
    list_run_owners,
    lock_changes,
    mark_changed,
    read_event_data,
    record_event,
)
from perdure.types import GRANT_SCOPES, Grant, GrantScope

_MAX_VALUE_CHARS = 4096  # of a scope's value: the longest path on Linux
_INVISIBLE_CATEGORIES = (
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
)  # control, format, half of a surrogate pair, line or paragraph separator


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """A grant with its state: when it was given, revoked and declined."""

    grant: Grant
    given_at: datetime
    revoked_at: datetime | None = None
    declined_at: datetime | None = None  # by the grantee

    def is_in_force(self, now: datetime) -> bool:
        """Return True if it lets somebody read something at this moment."""
        until_at = self.grant.until_at
        return self.revoked_at is None and self.declined_at is None and (until_at is None or now < until_at)


class _GiveGrantOp(msgspec.Struct, tag_field="op", tag="give"):
    grant_id: str
    grantee: str
    scope: GrantScope
    value: str
    until_at: datetime | None = None


class _RevokeGrantOp(msgspec.Struct, tag_field="op", tag="revoke"):
    grant_id: str


class _DeclineGrantOp(msgspec.Struct, tag_field="op", tag="decline"):
    """A refusal of a grant; it is an event in the journal of the grantee."""

    grant_id: str
    owner: str


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
    declined_at_by_key = events.derive(_index_declines)
    grant_records: dict[tuple[str, str], GrantRecord] = {}
    for owner, event in events.list_local(GRANT):
        give_op = read_event_data(event, _GiveGrantOp)
        if (
            give_op is None
            or give_op.grantee == owner
            or (give_op.until_at is not None and give_op.until_at.tzinfo is None)
        ):
            continue
        grant = Grant(give_op.grant_id, owner, give_op.grantee, give_op.scope, give_op.value, give_op.until_at)
        key = owner, give_op.grant_id
        declined_at = declined_at_by_key.get((give_op.grantee, *key))
        grant_records.setdefault(key, GrantRecord(grant, event.happened_at, revoked_at_by_key.get(key), declined_at))
    return list(grant_records.values())


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
    grant_records = get_cache().get_events().derive(_group_by_grantee).get(user, ())
    return tuple(grant_record.grant for grant_record in grant_records if grant_record.is_in_force(now))


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
        return self._select(lambda grant: grant.owner == self._user, include_ended)

    def list_received(self, *, include_ended: bool = False) -> list[GrantRecord]:
        """Return the grants that others gave to the owner and that are in force, oldest first."""
        return self._select(lambda grant: grant.grantee == self._user, include_ended)

    def _select(self, is_match: Callable[[Grant], bool], include_ended: bool) -> list[GrantRecord]:
        now = self._now()
        grant_records = [
            grant_record
            for grant_record in self._cache.get_events().derive(_replay_grants)
            if is_match(grant_record.grant)
        ]
        selected = [grant_record for grant_record in grant_records if include_ended or grant_record.is_in_force(now)]
        return sorted(
            selected, key=lambda grant_record: grant_record.given_at
        )  # of one moment: in the order of their journals

    def give(self, grantee: str, scope: GrantScope, value: str, *, until_at: datetime | None = None) -> GrantRecord:
        """Let another user read what is in a scope, now and later, masked. Giving the same grant twice makes one.

        value: the whole id of a run, the path of a project. The caller must check that a run belongs to the owner.
        Raises UsageError for a grant that makes no sense.
        """
        self._check_grant(grantee, scope, value, until_at)
        with lock_changes(self._home):
            for grant_record in self.list_given():
                grant = grant_record.grant
                if (grant.grantee, grant.scope, grant.value, grant.until_at) == (grantee, scope, value, until_at):
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
            event = record_event(self._home, self._user, GRANT, data, now=self._now())
        return GrantRecord(Grant(grant_id, self._user, grantee, scope, value, until_at), event.happened_at)

    def _check_grant(self, grantee: str, scope: str, value: str, until_at: datetime | None) -> None:
        check_user(grantee)
        if grantee == self._user:
            raise UsageError("you can read your own data already: name another user")
        known_users = {self._user, *list_journal_users(self._home), *list_run_owners(self._home)}
        similar_names = [name for name in known_users if name.casefold() == grantee.casefold()]
        if similar_names and grantee not in similar_names:
            raise UsageError(f"{grantee!r} is nobody here, but {min(similar_names)!r} is: write the name as it is")
        if scope not in GRANT_SCOPES:
            raise UsageError(f"{scope!r} cannot be shared (known: {', '.join(GRANT_SCOPES)})")
        if not value or len(value) > _MAX_VALUE_CHARS or not all(map(_is_visible, value)):
            raise UsageError(f"{value!r} is not a valid {scope}")
        if until_at is not None and until_at.tzinfo is None:
            raise UsageError(f"{until_at.isoformat()} has no time zone")
        if until_at is not None and until_at <= self._now():
            raise UsageError(f"{until_at.isoformat()} has passed: name a later date")

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


def _is_visible(char: str) -> bool:
    """Return True if a character is visible.

    False for characters that control or reorder and for half of a surrogate pair; joiners belong to words.
    """
    return unicodedata.category(char) not in _INVISIBLE_CATEGORIES or char in "\u200c\u200d"


def delete_grants_to(home: Path, user: str) -> int:
    """Remove every grant to a user from the journals of the others; return how many."""

    def delete_grant(event: JournalEvent) -> dict[str, Any] | None:
        return {} if user in (event.data.get("grantee"), event.data.get("owner")) else None

    others = [name for name in list_journal_users(home) if name != user]
    n_deleted = sum(
        Journal(home / "archive" / "journal" / name, home=home).rewrite(GRANT, delete_grant) for name in others
    )
    mark_changed(home)
    return n_deleted
