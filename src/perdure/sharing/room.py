"""Who may use a home and read what: its users, machines and grants."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.connections import Connections, utc_now
from perdure.errors import MemoryMissing, UsageError, UserMissing
from perdure.runs import Runs
from perdure.sharing.grants import (
    APP_PASSWORDS_FILE,
    TEAM_SIGN,
    GrantCache,
    GrantRecord,
    Grants,
    Team,
    find_events_without_effect,
    mark_changed,
)
from perdure.types import Grant, GrantScope, Principal

if TYPE_CHECKING:  # only a command that registers a machine, or is about a team, needs them
    from perdure.sharing.access_picture import AccessPicture
    from perdure.sharing.app_passwords import AppPasswords, Outcome
    from perdure.sharing.machines import Authority, Machine, Machines
    from perdure.sharing.persons import LinkedPerson, Persons
    from perdure.sharing.teams import Departure, Note, Teams

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

    @property
    def teams(self) -> Teams:
        """The teams of this home, and the notes that wait for a review."""
        return self._make_teams(self._connections.user)

    def _make_teams(self, user: str) -> Teams:
        from perdure.sharing.teams import Teams

        connections = self._connections
        home_user = connections.config.user
        return Teams(connections.path, user, self.grant_cache(), home_user=home_user, now=utc_now)

    def share(
        self,
        grantee: str,
        scope: GrantScope,
        value: str,
        *,
        until_at: datetime | None = None,
        since_at: datetime | None = None,
    ) -> GrantRecord:
        """Let another user, or a team ("@NAME"), read a run with all below it, or everything of a tag, a project or an
        agent; or propose a memory to a team.

        It covers later runs too, masked, until a date or until it is revoked. value: of a project its path, as runs
        carry it. since_at: what began earlier is left out; a team, whose members change, reads from now on unless it is
        given. Raises NotFound for a run or a memory that is not the principal's.
        """
        if scope == "run":
            value = self._own_run(value)
        elif scope == "project":
            value = value.rstrip("/") or value
        elif scope == "memory":
            self._check_own_memory(value)
        if since_at is None and grantee.startswith(TEAM_SIGN) and scope in ("tag", "project", "agent"):
            since_at = utc_now()
        return self.grants.give(grantee, scope, value, until_at=until_at, since_at=since_at)

    def _check_own_memory(self, memory_id: str) -> None:
        from perdure.index import memory_rows

        index = self._connections.index_with_memories()
        if not memory_rows.get_memories(index, self._connections.user, [memory_id]):
            raise MemoryMissing(memory_id)

    def list_teams(self) -> list[Team]:
        """Return all teams, by name; on a thin machine those of which the principal is a member."""
        return self.teams.list_teams()

    def review_note(self, note_id: str, *, is_accepted: bool) -> GrantRecord:
        """Accept or reject a note of somebody else. Raises GrantMissing, and UsageError without the right to review."""
        return self.teams.review(note_id, is_accepted=is_accepted)

    def list_notes(self, team: str) -> list[Note]:
        """Return the notes of a team that the principal may know of, oldest first. Raises TeamMissing."""
        from perdure.index import memory_rows, visibility
        from perdure.sharing.teams import Note

        records = self.teams.list_notes(team)
        if not records:
            return []
        user, index = self._connections.user, self._connections.index_with_memories()
        own_ids = [record.grant.value for record in records if record.grant.owner == user]
        memories = {(user, memory.memory_id): memory for memory in memory_rows.get_memories(index, user, own_ids)}
        grants = tuple(replace(record.grant, grantee=user) for record in records if record.grant.owner != user)
        with index.begin_read():
            read_scope = visibility.get_read_scope(index, Principal(user, grants))
            shared = memory_rows.list_shared(index, read_scope)
        memories |= {(memory.shared_by, memory.memory_id): memory for memory in shared}
        return [Note(record, memories.get((record.grant.owner, record.grant.value))) for record in records]

    def leave(self) -> Departure:
        """Let the principal leave the home: nothing of theirs connects or reads any more.

        What they shared with a team stays readable where the rule of the team is to keep it; all other grants of
        theirs, and to them, end. Their data stays, readable by nobody else. Doing it twice changes nothing. Raises
        UsageError for the home's own user.
        """
        from perdure.sharing.teams import Departure

        user, home_user = self._connections.user, self._connections.config.user
        if user == home_user:
            raise UsageError(f"{user} is this home's own user; `perdure forget --everything` deletes their data")
        teams, grants = self._make_teams(home_user), self.grants
        teams.record_departure(user)  # first: from now on nothing of theirs can begin again beside this
        machines = self.machines.list_machines(user)
        with contextlib.suppress(UserMissing):  # no identity server knows them
            self.unlink_person(user)
        for machine in self.machines.list_machines(user):
            self.revoke_machine(machine.machine_id, user)
        left_teams = teams.leave_all(user)
        keeping = {team.name for team in teams.list_teams() if team.keeps}
        given = [record for record in grants.list_given(include_ended=True) if record.revoked_at is None]
        kept = [record for record in given if record.grant.team in keeping and record.is_in_force(utc_now())]
        ended = [grants.revoke(record.grant.grant_id) for record in given if record not in kept]
        ended += [grants.decline(record.grant.grant_id) for record in grants.list_received()]
        return Departure(
            tuple(machine.name for machine in machines),
            tuple(left_teams),
            tuple(record.grant for record in ended),
            tuple(record.grant for record in kept),
        )

    def draw_access(self, *, is_admin: bool) -> AccessPicture:
        """Return who may read what, and by which right, as far as the principal may know it.

        is_admin: everything; otherwise what concerns the principal and their teams.
        """
        from perdure.sharing.access_picture import draw_access

        others = (machine.user for machine in self.machines.list_machines())
        users = sorted({*self.users(), *others})
        events = self.grant_cache().get_events()
        admins = self._connections.config.admins
        return draw_access(events, self._connections.user, users, admins, is_admin=is_admin, now=utc_now())

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
