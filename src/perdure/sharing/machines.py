"""Machines: which device may speak for which user, proven by a secret that is shown once and stored nowhere.

The journal of the user holds the machine's name and the sha256 of its secret; 256 random bits need no salt
and no slow hash. No secret is built in, and no setting can switch one on. Nothing here needs an index or a
model.

`Authority` is the socket of identity: it turns a credential into an identity. `LocalAuthority` is the
built-in one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from perdure.errors import MachineMissing, UsageError
from perdure.identity import check_machine, check_user
from perdure.sharing.grants import (
    MACHINE,
    GrantCache,
    SharingEvents,
    index_departures,
    lock_changes,
    read_event_data,
    record_event,
)
from perdure.sharing.persons import ATPROTO, PERSON_PREFIX, LinkedPerson, index_subjects, replay_persons
from perdure.types import Identity

SECRET_PREFIX = "pdr-"  # of every secret, so that a leaked one can be recognised
BROWSER = "browser"  # the machine of what a person does on the page without one
_SECRET_BYTES = 32
_MAX_SECRET_CHARS = 256  # longer texts are not checked


@dataclass(frozen=True, slots=True)
class Machine:
    """A device that may speak for a user, or that could before it was revoked."""

    machine_id: str
    user: str
    name: str
    registered_at: datetime
    revoked_at: datetime | None = None
    registered_by: str = ""  # id of the machine that requested this; "" if it was done at the home itself


@dataclass(frozen=True, slots=True)
class _RegisteredMachine:
    """A machine and the hash of the secret that proves its identity."""

    machine: Machine
    sha256: str


def hash_secret(secret: str) -> str:
    """Return the hash of a secret, the only thing that is stored of it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class _RegisterMachineOp(msgspec.Struct, tag_field="op", tag="register"):
    machine_id: str
    name: str
    sha256: str  # of the secret
    registered_by: str = ""


class _RevokeMachineOp(msgspec.Struct, tag_field="op", tag="revoke"):
    machine_id: str


def _replay_machines(events: SharingEvents) -> dict[tuple[str, str], _RegisteredMachine]:
    """Return every machine by its user and id.

    A registration counts once and only in the home that made it; a revocation counts everywhere.
    """
    revoked_at_by_key: dict[tuple[str, str], datetime] = {}
    for user, event in events.list_by_type(MACHINE):
        if revocation := read_event_data(event, _RevokeMachineOp):
            revoked_at_by_key.setdefault((user, revocation.machine_id), event.happened_at)
    machines_by_key: dict[tuple[str, str], _RegisteredMachine] = {}
    for user, event in events.list_local(MACHINE):
        if registration := read_event_data(event, _RegisterMachineOp):
            key = user, registration.machine_id
            machine = Machine(
                registration.machine_id,
                user,
                registration.name,
                event.happened_at,
                revoked_at_by_key.get(key),
                registration.registered_by,
            )
            machines_by_key.setdefault(key, _RegisteredMachine(machine, registration.sha256))
    return machines_by_key


def _index_by_hash(events: SharingEvents) -> dict[str, _RegisteredMachine]:
    return {
        registered.sha256: registered
        for registered in events.derive(_replay_machines).values()
        if registered.machine.revoked_at is None
    }


class Machines:
    """The machines of a home: register, list, revoke."""

    def __init__(
        self, home: Path, cache: GrantCache, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Use the home's cache of grants and machines; it may be shared."""
        self._home = home
        self._cache = cache
        self._now = now

    def list_machines(self, user: str | None = None, *, include_revoked: bool = False) -> list[Machine]:
        """Return the machines of a user (of all users if none is named), sorted by user and name.

        include_revoked: also machines that were revoked.
        """
        machines = [registered.machine for registered in self._cache.get_events().derive(_replay_machines).values()]
        selected = [
            machine
            for machine in machines
            if user in (None, machine.user) and (include_revoked or machine.revoked_at is None)
        ]
        return sorted(
            selected, key=lambda machine: (machine.user, machine.name, machine.registered_at, machine.machine_id)
        )

    def check_name(self, user: str, name: str) -> None:
        """Raise UsageError if no machine of this name can be registered for a user."""
        check_user(user)
        check_machine(name)
        if (left_at := self._cache.get_events().derive(index_departures).get(user)) is not None:
            raise UsageError(
                f"{user} left this home on {left_at:%Y-%m-%d}, and what they shared is still theirs: "
                f"choose another name, or run `perdure team return {user}` if it is the same person"
            )
        if any(machine.name == name for machine in self.list_machines(user)):
            raise UsageError(
                f"{user} already has a machine {name!r}: choose another name, or revoke that machine first"
            )

    def register(self, user: str, name: str, *, registered_by: str = "") -> tuple[Machine, str]:
        """Register a machine of a user; return it with its secret, which is stored nowhere.

        registered_by: the id of the machine that asks for it.
        """
        with lock_changes(self._home):
            self.check_name(user, name)
            secret = SECRET_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
            machine_id = f"m-{secrets.token_hex(8)}"
            data = {"op": "register", "machine_id": machine_id, "name": name, "sha256": hash_secret(secret)}
            data |= {"registered_by": registered_by} if registered_by else {}
            event = record_event(self._home, user, MACHINE, data, now=self._now())
        return Machine(machine_id, user, name, event.happened_at, registered_by=registered_by), secret

    def get_machine(self, name: str, user: str | None = None) -> Machine:
        """Return the machine with this id, or the one with this name that is not revoked.

        Raises MachineMissing, and UsageError if several machines have the name.
        """
        machines = self.list_machines(user, include_revoked=True)
        by_id = [machine for machine in machines if machine.machine_id == name]
        matches = by_id or [machine for machine in machines if machine.name == name and machine.revoked_at is None]
        if not matches:
            raise MachineMissing(name)
        if len(matches) > 1:
            ids = ", ".join(f"{machine.machine_id} of {machine.user}" for machine in matches)
            raise UsageError(f"several machines are named {name!r}: give the id of one ({ids})")
        return matches[0]

    def revoke(self, name: str, user: str | None = None) -> Machine:
        """Revoke a machine, by id or name, from its next request on. user: only a machine of this user."""
        with lock_changes(self._home):
            machine = self.get_machine(name, user)
            if machine.revoked_at is None:
                data = {"op": "revoke", "machine_id": machine.machine_id}
                record_event(self._home, machine.user, MACHINE, data, now=self._now())
        return self.get_machine(machine.machine_id, machine.user)


class LocalAuthority:
    """The built-in authority: the machines of this home. One object serves all threads."""

    def __init__(self, home: Path, admins: Iterable[str], *, cache: GrantCache | None = None) -> None:
        """Use the cache, or a new one of this home. admins: users whose machines may administer the whole home."""
        self._cache = cache or GrantCache(home)
        self._admins = frozenset(admins)

    def identify(self, secret: str) -> Identity | None:
        """Return the identity that a secret proves now; None for an unknown or revoked secret."""
        if not secret.startswith(SECRET_PREFIX) or len(secret) > _MAX_SECRET_CHARS:
            return None
        digest = hash_secret(secret)
        registered = self._cache.get_events().derive(_index_by_hash).get(digest)
        if registered is None or not hmac.compare_digest(registered.sha256, digest):
            return None
        return self._to_identity(registered.machine)

    def identify_machine(self, user: str, machine_id: str) -> Identity | None:
        """Return the current identity of a machine, or of a person in a browser, that was identified before; None if it
        was revoked since.
        """
        if machine_id.startswith(PERSON_PREFIX):
            person = self._cache.get_events().derive(replay_persons).get((user, machine_id))
            return self.identify_person(person) if person and person.unlinked_at is None else None
        registered = self._cache.get_events().derive(_replay_machines).get((user, machine_id))
        return self._to_identity(registered.machine) if registered and registered.machine.revoked_at is None else None

    def identify_person(self, person: LinkedPerson) -> Identity:
        """Return the identity of a linked person in a browser, who has no machine."""
        return Identity(person.user, BROWSER, person.person_id, self._is_admin(person.user))

    def _to_identity(self, machine: Machine) -> Identity:
        return Identity(machine.user, machine.name, machine.machine_id, self._is_admin(machine.user))

    def _is_admin(self, user: str) -> bool:
        """Return True if the settings name the user, or the DID of the person who is linked to them."""
        persons = self._cache.get_events().derive(index_subjects)
        return user in self._admins or any(
            (person := persons.get((ATPROTO, name))) is not None and person.user == user for name in self._admins
        )


class Authority(Protocol):
    """Turns credentials into identities. It is asked at every request, so it answers from memory, without index
    or network.
    """

    def identify(self, secret: str) -> Identity | None:
        """Return the identity that a secret proves now; None for an unknown or revoked secret."""

    def identify_machine(self, user: str, machine_id: str) -> Identity | None:
        """Return the current identity of a machine that was identified before; None if it was revoked since."""

    def identify_person(self, person: LinkedPerson) -> Identity:
        """Return the identity of a linked person in a browser, who has no machine."""
