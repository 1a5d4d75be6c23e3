"""Who may read what, and by which right: people in rows, what is shared in columns. Pure.

It is drawn from the same grants that every search applies. All that no column names is read by its owner alone. An
admin keeps machines and teams, and reads nothing of others by that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from perdure.sharing.grants import GrantRecord, SharingEvents, Team, is_declined, list_all_grants, replay_teams

_N_ID_CHARS = 10  # of a run that names a column


@dataclass(frozen=True, slots=True)
class AccessRight:
    """One reason for which a person reads something, or shares it."""

    kind: Literal["shares", "reads"]
    other: str  # whose it is, or with whom it is shared ("@NAME" for a team)
    grant_id: str
    team: str  # the team through which it is read; "" for a grant to one person
    value: str  # of the grant: the folder, the tag, the run, the agent or the memory
    since_at: datetime | None
    until_at: datetime | None


@dataclass(frozen=True, slots=True)
class AccessColumn:
    """Something that is shared: a project by the name of its folder, a tag, a run, an agent, the notes of a team."""

    key: str
    scope: str
    title: str


@dataclass(frozen=True, slots=True)
class AccessRow:
    """A person, with their rights by the key of the column."""

    user: str
    is_admin: bool
    teams: tuple[str, ...]
    rights: dict[str, tuple[AccessRight, ...]]


@dataclass(frozen=True, slots=True)
class AccessPicture:
    """People and what is shared."""

    columns: tuple[AccessColumn, ...]  # projects first, then by name
    rows: tuple[AccessRow, ...]  # by name


def draw_access(
    events: SharingEvents,
    user: str,
    users: Iterable[str],
    admins: Collection[str],
    *,
    is_admin: bool,
    now: datetime,
) -> AccessPicture:
    """Return the picture for a user: everything for an admin, else what concerns the user and their teams."""
    teams = events.derive(replay_teams)
    records = [record for record in list_all_grants(events) if record.is_in_force(now)]
    if not is_admin:
        teams = {name: team for name, team in teams.items() if team.find_member(user)}
        records = [record for record in records if _concerns(record, user, teams)]
    columns: dict[str, AccessColumn] = {}
    rights: dict[str, dict[str, list[AccessRight]]] = {}
    for record in records:
        column = _make_column(record)
        columns[column.key] = column
        for person, right in _list_rights(events, record, teams):
            rights.setdefault(person, {}).setdefault(column.key, []).append(right)
    members = {member.user for team in teams.values() for member in team.members}
    names = {user, *rights, *members, *(users if is_admin else ())}
    order = sorted(columns.values(), key=lambda column: (column.scope != "project", column.scope, column.title))
    rows = [
        AccessRow(
            name,
            name in admins,
            tuple(team.name for team in teams.values() if team.find_member(name)),
            {key: tuple(items) for key, items in rights.get(name, {}).items()},
        )
        for name in sorted(names)
    ]
    return AccessPicture(tuple(order), tuple(rows))


def _concerns(record: GrantRecord, user: str, teams: Collection[str]) -> bool:
    grant = record.grant
    return user in (grant.owner, grant.grantee) or grant.team in teams


def _make_column(record: GrantRecord) -> AccessColumn:
    """Return the column of a grant. Folders of one name are one project, as recall has it.

    >>> from perdure.types import Grant
    >>> at = datetime(2026, 3, 1)
    >>> _make_column(GrantRecord(Grant("g", "ada", "bob", "project", "/home/ada/orchard"), at)).key
    'project orchard'
    """
    grant = record.grant
    title = {
        "project": grant.value.replace("\\", "/").rstrip("/").rpartition("/")[2] or grant.value,
        "run": grant.value[:_N_ID_CHARS],
        "memory": grant.team,
    }.get(grant.scope, grant.value)
    return AccessColumn(f"{grant.scope} {title}", grant.scope, title)


def _list_rights(
    events: SharingEvents, record: GrantRecord, teams: dict[str, Team]
) -> Iterator[tuple[str, AccessRight]]:
    """Yield (person, right) of everybody to whom a grant gives one, its owner first."""
    grant = record.grant
    fields = (grant.grant_id, grant.team, grant.value, grant.since_at, grant.until_at)
    yield grant.owner, AccessRight("shares", grant.grantee, *fields)
    team = teams.get(grant.team)
    readers = [member.user for member in team.members] if team else [] if grant.team else [grant.grantee]
    for reader in readers:
        if reader != grant.owner and not is_declined(events, record, reader):
            yield reader, AccessRight("reads", grant.owner, *fields)
