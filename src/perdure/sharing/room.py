"""Who may use a home and read what: its users, machines and grants."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from perdure.connections import Connections, utc_now
from perdure.errors import UsageError, UserMissing
from perdure.runs import Runs
from perdure.sharing.grants import GrantCache, GrantRecord, Grants, find_events_without_effect, mark_changed
from perdure.types import Grant, GrantScope, Principal

if TYPE_CHECKING:  # only a command that registers a machine needs them
    from perdure.sharing.machines import Machines

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
