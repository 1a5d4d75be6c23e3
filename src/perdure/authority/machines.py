"""Machines: who may speak for which user, proven by a secret that is shown once and kept nowhere.

The journal of its user holds the machine's name and the sha256 of its secret; 256 random bits need no salt and no slow
hash. There is no secret that is built in, and none that a setting could switch on. It needs no index and no model.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perdure.authority.watch import MACHINE, Seen, Watch, changing, record, said
from perdure.errors import MachineMissing, UsageError
from perdure.identity import check_machine, check_user
from perdure.types import Identity

PREFIX = "pdr-"  # of every secret: by it one is known for what it is where it should not be
_SECRET_BYTES = 32
_MOST_CHARS = 256  # of what may be a secret; longer ones are not looked at


@dataclass(frozen=True, slots=True)
class Machine:
    """A device that may speak for a user, or might."""

    machine_id: str
    user: str
    name: str
    registered_at: datetime
    revoked_at: datetime | None = None
    registered_by: str = ""  # the machine (its id) by which that was asked for; "" at the home itself


@dataclass(frozen=True, slots=True)
class _Registered:
    """A machine and what proves that one is it."""

    machine: Machine
    sha256: str


def sha256(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class _Register(msgspec.Struct, tag_field="op", tag="register"):
    machine_id: str
    name: str
    sha256: str  # of the secret
    registered_by: str = ""


class _Revoke(msgspec.Struct, tag_field="op", tag="revoke"):
    machine_id: str


def _replayed(seen: Seen) -> dict[tuple[str, str], _Registered]:
    """Every machine by its user and id. A registration counts once and where it was made, a revocation everywhere."""
    revoked: dict[tuple[str, str], datetime] = {}
    for user, event in seen.of_type(MACHINE):
        if revoke := said(event, _Revoke):
            revoked.setdefault((user, revoke.machine_id), event.happened_at)
    found: dict[tuple[str, str], _Registered] = {}
    for user, event in seen.made_here(MACHINE):
        if new := said(event, _Register):
            key = user, new.machine_id
            machine = Machine(new.machine_id, user, new.name, event.happened_at, revoked.get(key), new.registered_by)
            found.setdefault(key, _Registered(machine, new.sha256))
    return found


def _by_hash(seen: Seen) -> dict[str, _Registered]:
    return {each.sha256: each for each in seen.made(_replayed).values() if each.machine.revoked_at is None}


class Machines:
    """The machines of a home: register, list, revoke."""

    def __init__(self, home: Path, watch: Watch, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """`watch` is that of the home; it may be shared."""
        self._home = home
        self._watch = watch
        self._now = now

    def listed(self, user: str | None = None, *, every: bool = False) -> list[Machine]:
        """The machines of a user (of all without one), by user and name. every: revoked ones, too."""
        found = [each.machine for each in self._watch.seen().made(_replayed).values()]
        wanted = [one for one in found if user in (None, one.user) and (every or one.revoked_at is None)]
        return sorted(wanted, key=lambda one: (one.user, one.name, one.registered_at, one.machine_id))

    def check(self, user: str, name: str) -> None:
        """Raise UsageError where no machine of this name can be registered for a user."""
        check_user(user)
        check_machine(name)
        if any(one.name == name for one in self.listed(user)):
            raise UsageError(f"{user} has a machine {name!r} already: choose another name, or revoke that one first")

    def register(self, user: str, name: str, *, by: str = "") -> tuple[Machine, str]:
        """A new machine of a user, and its secret, which nothing keeps. by: the id of the machine that asks for it."""
        with changing(self._home):
            self.check(user, name)
            secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
            machine_id = f"m-{secrets.token_hex(8)}"
            data = {"op": "register", "machine_id": machine_id, "name": name, "sha256": sha256(secret)}
            data |= {"registered_by": by} if by else {}
            event = record(self._home, user, MACHINE, data, now=self._now())
        return Machine(machine_id, user, name, event.happened_at, registered_by=by), secret

    def named(self, name: str, user: str | None = None) -> Machine:
        """The machine of this id, or the one of this name that may speak. Raises MachineMissing."""
        every = self.listed(user, every=True)
        by_id = [one for one in every if one.machine_id == name]
        found = by_id or [one for one in every if one.name == name and one.revoked_at is None]
        if not found:
            raise MachineMissing(name)
        if len(found) > 1:
            ids = ", ".join(f"{one.machine_id} of {one.user}" for one in found)
            raise UsageError(f"there are several machines {name!r}: name one by its id ({ids})")
        return found[0]

    def revoke(self, name: str, user: str | None = None) -> Machine:
        """Let a machine, by id or name, speak no more from its next request on. user: only a machine of theirs."""
        with changing(self._home):
            machine = self.named(name, user)
            if machine.revoked_at is None:
                data = {"op": "revoke", "machine_id": machine.machine_id}
                record(self._home, machine.user, MACHINE, data, now=self._now())
        return self.named(machine.machine_id, machine.user)


class LocalAuthority:
    """The built-in authority: the machines of this home. One object serves all threads."""

    def __init__(self, home: Path, admins: Iterable[str], *, watch: Watch | None = None) -> None:
        """admins: users whose machines may see to the whole home."""
        self._watch = watch or Watch(home)
        self._admins = frozenset(admins)

    def identify(self, secret: str) -> Identity | None:
        """Who a secret stands for now; None for one that is unknown or was revoked."""
        if not secret.startswith(PREFIX) or len(secret) > _MOST_CHARS:
            return None
        digest = sha256(secret)
        found = self._watch.seen().made(_by_hash).get(digest)
        if found is None or not hmac.compare_digest(found.sha256, digest):
            return None
        return self._identity(found.machine)

    def standing(self, user: str, machine_id: str) -> Identity | None:
        """Who a machine stands for now, that was identified before; None for one that was revoked since."""
        found = self._watch.seen().made(_replayed).get((user, machine_id))
        return self._identity(found.machine) if found and found.machine.revoked_at is None else None

    def _identity(self, machine: Machine) -> Identity:
        return Identity(machine.user, machine.name, machine.machine_id, machine.user in self._admins)
