"""Who may use a home and read what: its users, machines and grants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from perdure.connections import Connections, utc_now
from perdure.errors import UsageError, UserMissing
from perdure.runs import Runs
from perdure.sharing.grants import (
    APP_PASSWORDS_FILE,
    GrantCache,
    GrantRecord,
    Grants,
    find_events_without_effect,
    mark_changed,
)
from perdure.types import Grant, GrantScope, Principal

if TYPE_CHECKING:  # only a command that registers a machine needs them
    from perdure.sharing.app_passwords import AppPasswords, Outcome
    from perdure.sharing.machines import Authority, Machine, Machines
    from perdure.sharing.persons import LinkedPerson, Persons

UNFINISHED_ERASURE = "unfinished-erasure"  # in the ledger, while a user is being erased; it names nobody


class Sharing:
    """The users, machines and grants of one home.

    index_all: archives and indexes everything that was captured. cache: shared with other threads, where it is given.
    """

    def __init__(
        self,
        connections: Connections,
        runs: Runs,
        *,
        index_all: Callable[[], None],
        cache: GrantCache | None = None,
    ) -> None:
        self._connections = connections
        self._runs = runs
        self._index_all = index_all
        self._cache = cache

    def grant_cache(self) -> GrantCache:
        """Return what this home knows of machines and grants; threads may share it."""
        if self._cache is None:
            self._cache = GrantCache(self._connections.path, can_save=self._connections.writable)
        return self._cache

    @property
    def machines(self) -> Machines:
        """The machines that may speak for the users of this home."""
        from perdure.sharing.machines import Machines

        return Machines(self._connections.path, self.grant_cache(), now=utc_now)

    def open_authority(self) -> Authority:
        """Return the authority that turns credentials into identities: the table of this home, and nothing else."""
        from perdure.sharing.machines import LocalAuthority

        return LocalAuthority(self._connections.path, self._connections.config.admins, cache=self.grant_cache())

    @property
    def persons(self) -> Persons:
        """The persons whom identity servers know, and who are users of this home."""
        from perdure.sharing.persons import Persons

        return Persons(self._connections.path, self.grant_cache(), now=utc_now)

    @property
    def app_passwords(self) -> AppPasswords:
        """The machines that joined by the DID of their person."""
        from perdure.identity_servers.atproto import AtprotoNetwork
        from perdure.identity_servers.guarded_request import make_rules
        from perdure.sharing.app_passwords import AppPasswords

        settings = self._connections.config.identity
        is_set = settings.atproto.directory
        network = AtprotoNetwork(is_set, settings.atproto.server, make_rules(settings)) if is_set else None
        return AppPasswords(self._connections.path, self.machines, self.persons, network)

    def revoke_machine(self, name: str, user: str | None = None) -> tuple[Machine, Outcome, str]:
        """Revoke a machine here, from its next request on, and then its app password at the server of its person.

        Returns the machine, the outcome at the server, and why it waits there. user: only a machine of this user.
        """
        machine = self.machines.revoke(name, user)
        return machine, *(self.app_passwords.revoke(machine) if self.has_app_passwords() else ("none", ""))

    def unlink_person(self, user: str) -> tuple[list[LinkedPerson], list[tuple[Machine, Outcome, str]]]:
        """End the links of a user, and revoke every machine that joined by them; return both."""
        persons = self.persons.unlink(user)
        ids = {person.person_id for person in persons}
        joined = [machine for machine in self.machines.list_machines(user) if machine.registered_by in ids]
        return persons, [self.revoke_machine(machine.machine_id, user) for machine in joined]

    def has_app_passwords(self) -> bool:
        """Return True if this home ever kept an app password of a machine."""
        return (self._connections.path / APP_PASSWORDS_FILE).exists()

    def forget_passwords(self) -> None:
        """Delete the app passwords of the principal's machines; revoke them at the server first, if it answers."""
        if self.has_app_passwords():
            self.app_passwords.forget_user(self._connections.user)

    @property
    def grants(self) -> Grants:
        """What the principal gave to others, and others to them."""
        return Grants(self._connections.path, self._connections.user, self.grant_cache(), now=utc_now)

    def share(self, grantee: str, scope: GrantScope, value: str, *, until_at: datetime | None = None) -> GrantRecord:
        """Let another user read a run with all below it, or everything of a tag, a project or an agent.

        It covers later runs too, masked, until a date or until it is revoked. value: of a project its path, as runs
        carry it. Raises NotFound for a run that is not the principal's.
        """
        if scope == "run":
            value = self._own_run(value)
        elif scope == "project":
            value = value.rstrip("/") or value
        return self.grants.give(grantee, scope, value, until_at=until_at)

    def _own_run(self, prefix: str) -> str:
        self._index_all()
        kind, run_id = ("memory", prefix) if prefix.startswith("mem-") else self._runs.resolve(prefix)
        if kind != "run":
            raise UsageError(f"{prefix} is a {kind}; you can share only runs (`perdure tree` shows their ids)")
        if (parent_id := self._runs.find_captured_run(run_id)) != run_id:
            raise UsageError(f"{run_id} is part of run {parent_id}: share that run")
        self._runs.own(run_id)
        return run_id

    def count_granted_runs(self, grant: Grant) -> int:
        """Return how many runs of the principal's a grant of theirs covers now."""
        from perdure.index.statistics import count_granted_runs

        self._index_all()
        return count_granted_runs(self._connections.index(create=True), Principal(self._connections.user), grant)

    def n_ignored_events(self) -> int:
        """Return how many events of machines and grants count for nothing here: another home made them."""
        mark_changed(self._connections.path)  # what came in is read at once
        return len(self.grant_cache().get_events().derive(find_events_without_effect))

    def users(self) -> list[str]:
        """Return everybody of whom this home holds anything: runs, or a journal. By name."""
        return sorted({*self._connections.archive.ledger.list_users(), *self._connections.users_with_journal()})

    def is_known(self, user: str) -> bool:
        """Return True if this home holds anything of a user."""
        return user in self.users()

    def require_user(self) -> None:
        """Raise UserMissing if this home holds nothing of the principal's, and nobody is half erased."""
        user = self._connections.user
        if user not in self.users() and not self._connections.archive.ledger.get_meta(UNFINISHED_ERASURE):
            raise UserMissing(user)
