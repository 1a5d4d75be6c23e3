"""App passwords: a machine that joined by the DID of its person, and the password at their server that stands for it.

The home keeps the password to do two things: to revoke it when the machine is revoked here, and to see that the person
revoked it there. It is no credential of this home: a machine shows its own secret, and its rights are looked up here.
A revocation counts here at once; at the server it is tried again until it is done. `app-passwords.json` is readable to
the owner of the home alone, and an entry is deleted when its password is revoked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from perdure.disk import lock_file, replace_file
from perdure.errors import HomeFault, IdentityFault, IdentityRefused, PerdureError
from perdure.identity_servers.atproto import AtprotoNetwork, is_did
from perdure.sharing.grants import APP_PASSWORDS_FILE
from perdure.sharing.machines import Machine, Machines
from perdure.sharing.persons import ATPROTO, LinkedPerson, Persons

Outcome = Literal["revoked", "waiting", "none"]  # of the password at the server


class AppPassword(msgspec.Struct, frozen=True):
    """The password of one machine at the server of its person."""

    machine_id: str
    user: str
    did: str
    name: str  # of the password, as the person reads it in the list of their server
    password: str


class AppPasswordFile:
    """The kept passwords of a home."""

    def __init__(self, home: Path) -> None:
        self._path = home / APP_PASSWORDS_FILE
        self._lock_path = home / ".app-passwords.lock"

    def read(self) -> dict[str, AppPassword]:
        """Return the passwords by the id of their machine. Raises HomeFault."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, AppPassword])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise HomeFault(f"{self._path}: {type(error).__name__}") from error

    def change(self, edit: Callable[[dict[str, AppPassword]], object]) -> None:
        """Apply an edit to the passwords; they are durable when this returns."""
        with lock_file(self._lock_path):
            passwords = self.read()
            before = dict(passwords)
            edit(passwords)
            if passwords != before:
                replace_file(self._path, msgspec.json.encode(passwords))


class CheckResult(NamedTuple):
    """What a check of all persons and app passwords found."""

    renamed: list[tuple[LinkedPerson, str]]  # with the earlier name
    revoked_there: list[Machine]  # the person revoked them at their server; now they are revoked here too
    revoked: list[AppPassword]  # at their server, of machines that were revoked here
    waiting: list[AppPassword]  # still valid at their server, of machines that are revoked here
    faults: list[str]


class AppPasswords:
    """The machines of a home that joined by the DID of their person."""

    def __init__(self, home: Path, machines: Machines, persons: Persons, network: AtprotoNetwork | None) -> None:
        """network: None if the settings name no directory; then nobody joins by a DID."""
        self._file = AppPasswordFile(home)
        self._machines = machines
        self._persons = persons
        self._network = network

    def join(self, did: str, password_name: str, password: str, machine_name: str) -> tuple[Machine, str]:
        """Register a machine of a linked person who proves their DID; return it with its secret.

        Nobody is asked anything before the table of this home knows the DID. Raises IdentityRefused, IdentityFault,
        IdentityServerAway, UsageError.
        """
        network = self.require_network()
        person = self._persons.find_person(ATPROTO, did) if is_did(did) else None
        if person is None:
            shown = did if is_did(did) else "this, which is no DID"
            command = "`perdure user link USER --did DID`"
            raise IdentityRefused(f"no user of this home is linked to {shown}: its owner links one with {command}")
        with network.open_session(network.find_person(did), password):
            pass
        machine, secret = self._machines.register(person.user, machine_name, registered_by=person.person_id)
        entry = AppPassword(machine.machine_id, machine.user, did, password_name, password)
        try:
            self._file.change(lambda passwords: passwords.update({machine.machine_id: entry}))
        except BaseException:
            self._machines.revoke(machine.machine_id, machine.user)
            raise
        return machine, secret

    def require_network(self) -> AtprotoNetwork:
        """Return the network of the AT Protocol. Raises IdentityFault if the settings name no directory."""
        if self._network is None:
            raise IdentityFault("this home knows nobody by a DID: set identity.atproto.directory (docs/identity.md)")
        return self._network

    def revoke(self, machine: Machine) -> tuple[Outcome, str]:
        """Revoke the password of a revoked machine at its server; return the outcome, and why it waits."""
        entry = self._file.read().get(machine.machine_id)
        if entry is None:
            return "none", ""
        try:
            self._revoke_there(entry)
        except PerdureError as error:
            return "waiting", error.detail
        return "revoked", ""

    def _revoke_there(self, entry: AppPassword) -> None:
        network = self.require_network()
        try:
            with network.open_session(network.find_person(entry.did), entry.password) as session:
                network.revoke_app_password(session, entry.name)
        except IdentityRefused:  # it opens nothing any more
            pass
        self._drop(entry)

    def list_waiting(self) -> list[AppPassword]:
        """Return the passwords of machines that are revoked or gone here, and may still be valid at their server."""
        live_ids = {machine.machine_id for machine in self._machines.list_machines()}
        return [entry for entry in self._file.read().values() if entry.machine_id not in live_ids]

    def check(self) -> CheckResult:
        """Look at every person and password: revoke what waits, end what was revoked there, keep new handles."""
        result = CheckResult([], [], [], [], [])
        if self._network is None:
            return result
        waiting = self.list_waiting()
        for entry in waiting:
            try:
                self._revoke_there(entry)
                result.revoked.append(entry)
            except PerdureError as error:
                result.waiting.append(entry)
                result.faults.append(error.detail)
        for person in self._persons.list_persons():
            if person.server == ATPROTO:
                self._check_person(self._network, person, result)
        return result

    def _check_person(self, network: AtprotoNetwork, person: LinkedPerson, result: CheckResult) -> None:
        try:
            found = network.find_person(person.subject)
            if found.handle != person.name:
                self._persons.rename(person, found.handle)
                result.renamed.append((person, found.handle))
            machines = {machine.machine_id: machine for machine in self._machines.list_machines(person.user)}
            for entry in self._file.read().values():
                if entry.did == person.subject and entry.machine_id in machines:
                    try:
                        with network.open_session(found, entry.password):
                            pass
                    except IdentityRefused:
                        self._machines.revoke(entry.machine_id, entry.user)
                        self._drop(entry)
                        result.revoked_there.append(machines[entry.machine_id])
        except PerdureError as error:
            result.faults.append(error.detail)

    def forget_user(self, user: str) -> None:
        """Delete what is kept of a user; their passwords are revoked at their server first, where that is possible."""
        for entry in [entry for entry in self._file.read().values() if entry.user == user]:
            try:
                self._revoke_there(entry)
            except PerdureError:
                self._drop(entry)

    def _drop(self, entry: AppPassword) -> None:
        self._file.change(lambda passwords: passwords.pop(entry.machine_id, None))
