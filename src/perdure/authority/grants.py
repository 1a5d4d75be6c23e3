"""Grants: what of an owner's another user may read, until when. Everything else stays its owner's alone.

A grant is an event of its owner's journal, and nobody else's journal can make or end one. It counts in the home where
it was given, from that moment until its date or its revocation, or until its grantee declines it; whatever the order in
which homes were merged.
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

from perdure.archive.journal import Event, Journal
from perdure.authority.watch import GRANT, Seen, Watch, changing, note, owners_of, record, said, users_of
from perdure.errors import GrantMissing, UsageError
from perdure.identity import check_user
from perdure.types import GRANT_SCOPES, Grant, GrantScope

_MOST_CHARS = 4096  # of a scope's value: the longest path that Linux has
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format, half of a pair, end of a line or a paragraph


@dataclass(frozen=True, slots=True)
class Given:
    """A grant, and how it stands."""

    grant: Grant
    given_at: datetime
    revoked_at: datetime | None = None
    declined_at: datetime | None = None  # by the grantee

    def is_in_force(self, now: datetime) -> bool:
        """Whether it lets anybody read anything at this moment."""
        until_at = self.grant.until_at
        return self.revoked_at is None and self.declined_at is None and (until_at is None or now < until_at)


class _Give(msgspec.Struct, tag_field="op", tag="give"):
    grant_id: str
    grantee: str
    scope: GrantScope
    value: str
    until_at: datetime | None = None


class _Revoke(msgspec.Struct, tag_field="op", tag="revoke"):
    grant_id: str


class _Decline(msgspec.Struct, tag_field="op", tag="decline"):
    """Stands in the journal of the grantee."""

    grant_id: str
    owner: str


def _declined(seen: Seen) -> dict[tuple[str, str, str], datetime]:
    """When grants were declined, by grantee, owner and id."""
    found: dict[tuple[str, str, str], datetime] = {}
    for user, event in seen.of_type(GRANT):
        if decline := said(event, _Decline):
            found.setdefault((user, decline.owner, decline.grant_id), event.happened_at)
    return found


def _replayed(seen: Seen) -> list[Given]:
    """Every grant of this home, by owner and in the order in which they were given. A revocation counts wherever it is.

    A date without its zone says nothing certain, and a grant with one gives nothing.
    """
    revoked: dict[tuple[str, str], datetime] = {}
    for owner, event in seen.of_type(GRANT):
        if revoke := said(event, _Revoke):
            revoked.setdefault((owner, revoke.grant_id), event.happened_at)
    declined = seen.made(_declined)
    found: dict[tuple[str, str], Given] = {}
    for owner, event in seen.made_here(GRANT):
        give = said(event, _Give)
        if give is None or give.grantee == owner or (give.until_at is not None and give.until_at.tzinfo is None):
            continue
        grant = Grant(give.grant_id, owner, give.grantee, give.scope, give.value, give.until_at)
        key = owner, give.grant_id
        declined_at = declined.get((give.grantee, *key))
        found.setdefault(key, Given(grant, event.happened_at, revoked.get(key), declined_at))
    return list(found.values())


def _by_grantee(seen: Seen) -> dict[str, list[Given]]:
    """The grants that were neither revoked nor declined, by who was given them."""
    found: dict[str, list[Given]] = {}
    for given in seen.made(_replayed):
        if given.revoked_at is None and given.declined_at is None:
            found.setdefault(given.grant.grantee, []).append(given)
    return found


def granted(home: Path, watch: Callable[[], Watch], user: str, now: datetime) -> tuple[Grant, ...]:
    """What others let a user read at this moment. A home in which nobody else has a journal is not looked through."""
    if not any(name != user for name in users_of(home)):
        return ()
    found = watch().seen().made(_by_grantee).get(user, ())
    return tuple(given.grant for given in found if given.is_in_force(now))


class Grants:
    """What one owner gave to others, and what others gave to them."""

    def __init__(
        self, home: Path, user: str, watch: Watch, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """`watch` is that of the home; it may be shared."""
        self._home = home
        self._user = user
        self._watch = watch
        self._now = now

    def given(self, *, every: bool = False) -> list[Given]:
        """What the owner gave and is in force, oldest first. every: also what is over."""
        return self._those(lambda grant: grant.owner == self._user, every)

    def received(self, *, every: bool = False) -> list[Given]:
        """What others gave to the owner and is in force, oldest first."""
        return self._those(lambda grant: grant.grantee == self._user, every)

    def _those(self, fits: Callable[[Grant], bool], every: bool) -> list[Given]:
        now = self._now()
        found = [one for one in self._watch.seen().made(_replayed) if fits(one.grant)]
        wanted = [one for one in found if every or one.is_in_force(now)]
        return sorted(wanted, key=lambda one: one.given_at)  # of one moment: as they stand in their journals

    def give(self, grantee: str, scope: GrantScope, value: str, *, until_at: datetime | None = None) -> Given:
        """Let another user read what is in a scope, now and later, masked. The same grant given twice is one.

        value: of a run its whole id, of a project its path. Whether a run is the owner's is for the caller to know.
        Raises UsageError for what cannot be meant.
        """
        self._check(grantee, scope, value, until_at)
        with changing(self._home):
            for one in self.given():
                grant = one.grant
                if (grant.grantee, grant.scope, grant.value, grant.until_at) == (grantee, scope, value, until_at):
                    return one
            name = f"g-{secrets.token_hex(8)}"
            data = {
                "op": "give", "grant_id": name, "grantee": grantee, "scope": scope, "value": value,
                "until_at": until_at.astimezone(UTC).isoformat() if until_at else None,
            }  # fmt: skip
            event = record(self._home, self._user, GRANT, data, now=self._now())
        return Given(Grant(name, self._user, grantee, scope, value, until_at), event.happened_at)

    def _check(self, grantee: str, scope: str, value: str, until_at: datetime | None) -> None:
        check_user(grantee)
        if grantee == self._user:
            raise UsageError("what is yours you can read already: name another user")
        known = {self._user, *users_of(self._home), *owners_of(self._home)}
        alike = [name for name in known if name.casefold() == grantee.casefold()]
        if alike and grantee not in alike:
            raise UsageError(f"{grantee!r} is nobody here, but {min(alike)!r} is: write the name as it is")
        if scope not in GRANT_SCOPES:
            raise UsageError(f"{scope!r} cannot be shared (known: {', '.join(GRANT_SCOPES)})")
        if not value or len(value) > _MOST_CHARS or not all(map(_is_plain, value)):
            raise UsageError(f"{value!r} is no {scope}")
        if until_at is not None and until_at.tzinfo is None:
            raise UsageError(f"{until_at.isoformat()} has no time zone")
        if until_at is not None and until_at <= self._now():
            raise UsageError(f"{until_at.isoformat()} has passed: name a date to come")

    def revoke(self, grant_id: str) -> Given:
        """End a grant of the owner's, from the next question on; one that is over stays over. Raises GrantMissing."""
        with changing(self._home):
            found = self._named(grant_id)
            if found.revoked_at is None:
                data = {"op": "revoke", "grant_id": found.grant.grant_id}
                record(self._home, self._user, GRANT, data, now=self._now())
        return self._named(grant_id)

    def decline(self, grant_id: str) -> Given:
        """Read no more of what another lets the user read by a grant, from the next question on. Raises NotFound."""
        with changing(self._home):
            found = self._named(grant_id, is_received=True)
            if found.declined_at is None:
                data = {"op": "decline", "grant_id": found.grant.grant_id, "owner": found.grant.owner}
                record(self._home, self._user, GRANT, data, now=self._now())
        return self._named(grant_id, is_received=True)

    def _named(self, grant_id: str, *, is_received: bool = False) -> Given:
        for one in self.received(every=True) if is_received else self.given(every=True):
            if one.grant.grant_id == grant_id:
                return one
        raise GrantMissing(grant_id)


def _is_plain(char: str) -> bool:
    """Whether a character shows itself: none that controls or reorders, no half of a pair; joiners belong to words."""
    return unicodedata.category(char) not in _UNSEEN or char in "\u200c\u200d"


def forget_grantee(home: Path, user: str) -> int:
    """Take every grant to a user out of the journals of the others; returns how many."""

    def without(event: Event) -> dict[str, Any] | None:
        return {} if user in (event.data.get("grantee"), event.data.get("owner")) else None

    others = [name for name in users_of(home) if name != user]
    n = sum(Journal(home / "archive" / "journal" / name, home=home).rewrite(GRANT, without) for name in others)
    note(home)
    return n
