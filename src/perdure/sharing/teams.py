"""Teams: named lists of users with whom others share by one grant, and the notes that wait for a reviewer's word.

An admin keeps the lists; every change is an event in the journal of the home's own user, with the name of who asked for
it. A list gives nobody a right over data: its owner shares with the team by a grant of their own. A note is a grant of
one memory to a team. Its review is an event in the journal of its author, so that it stays when the reviewer leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perdure.errors import GrantMissing, TeamMissing, UsageError
from perdure.identity import check_user
from perdure.sharing.grants import (
    GRANT,
    TEAM,
    GrantCache,
    GrantRecord,
    Team,
    TeamMember,
    TeamOp,
    check_presence,
    index_departures,
    iterate_team_ops,
    list_all_grants,
    lock_changes,
    record_event,
    replay_teams,
)
from perdure.types import Grant, Memory


@dataclass(frozen=True, slots=True)
class TeamChange:
    """One line of the history of a team."""

    happened_at: datetime
    op: TeamOp


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """What setting the whole list of a team changed."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    absent: tuple[str, ...] = ()  # of the list, but they left this home: they are not added


@dataclass(frozen=True, slots=True)
class Note:
    """A memory that was proposed to a team."""

    record: GrantRecord  # who wrote it, when, for which team; its review
    memory: Memory | None  # masked; None if its author set it aside or forgot it

    @property
    def state(self) -> str:
        """Its state: proposed, accepted, rejected or retracted."""
        review = self.record.review
        if self.record.revoked_at is not None:
            return "retracted"
        return "proposed" if review is None else "accepted" if review.is_accepted else "rejected"


@dataclass(frozen=True, slots=True)
class Departure:
    """What ended, and what stays, when a person left."""

    machines: tuple[str, ...]  # revoked
    teams: tuple[str, ...]  # of which they are no member any more
    ended: tuple[Grant, ...]  # of what they shared and of what they read
    kept: tuple[Grant, ...]  # what they shared with teams that keep it


class Teams:
    """The teams of a home. The caller checks that whoever changes one is an admin."""

    def __init__(
        self,
        home: Path,
        user: str,
        cache: GrantCache,
        *,
        home_user: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """user: who asks. home_user: whose journal holds the teams."""
        self._home = home
        self._user = user
        self._cache = cache
        self._home_user = home_user
        self._now = now

    def list_teams(self) -> list[Team]:
        """Return all teams, by name."""
        return list(self._cache.get_events().derive(replay_teams).values())

    def list_own(self) -> list[Team]:
        """Return the teams of which the user is a member, by name."""
        return [team for team in self.list_teams() if team.find_member(self._user)]

    def get_team(self, name: str) -> Team:
        """Return a team, with or without the sign before its name. Raises TeamMissing."""
        team = self._cache.get_events().derive(replay_teams).get(name.removeprefix("@"))
        if team is None:
            raise TeamMissing(name)
        return team

    def list_changes(self, name: str) -> list[TeamChange]:
        """Return who changed a team, and how, oldest first. Raises TeamMissing."""
        team = self.get_team(name)
        ops = iterate_team_ops(self._cache.get_events())
        return [TeamChange(happened_at, op) for happened_at, op in ops if op.team == team.name]

    def set_rule(self, name: str, *, keeps: bool | None = None) -> Team:
        """Make a team, or change its rule. keeps: what a person shared with it stays when they leave the home; None: as
        it is, and of a new team True.
        """
        name = check_user(name.removeprefix("@"))
        with lock_changes(self._home):
            team = self._cache.get_events().derive(replay_teams).get(name)
            if team is None or keeps not in (None, team.keeps):
                self._record({"op": "rule", "team": name, "keeps": keeps is not False})
        return self.get_team(name)

    def add(self, name: str, user: str, *, is_reviewer: bool = False) -> Team:
        """Add a member, or change whether they review notes. Raises TeamMissing, UsageError also for one who left."""
        check_user(user)
        with lock_changes(self._home):
            team = self.get_team(name)
            check_presence(self._cache.get_events(), user)
            member = team.find_member(user)
            if member is None or member.is_reviewer != is_reviewer:
                self._record({"op": "join", "team": team.name, "user": user, "is_reviewer": is_reviewer})
        return self.get_team(name)

    def remove(self, name: str, user: str) -> Team:
        """End a membership, from the next question on. Raises TeamMissing, UsageError for somebody who is no member."""
        with lock_changes(self._home):
            team = self.get_team(name)
            if team.find_member(user) is None:
                raise UsageError(f"{user} is no member of {team.name}")
            self._record({"op": "part", "team": team.name, "user": user})
        return self.get_team(name)

    def set_members(self, name: str, users: Collection[str]) -> MembershipChange:
        """Make the members of a team these users, as a list from elsewhere names them; who reviews still reviews.

        Raises TeamMissing; UsageError for an empty list, which is rather a list that failed.
        """
        if not users:
            raise UsageError("the list of members is empty; `perdure team remove` removes one member")
        names = {check_user(user) for user in users}
        with lock_changes(self._home):
            team = self.get_team(name)
            absent = names & self._cache.get_events().derive(index_departures).keys()
            old_names = {member.user for member in team.members}
            added, removed = sorted(names - absent - old_names), sorted(old_names - names)
            for user in added:
                self._record({"op": "join", "team": team.name, "user": user, "is_reviewer": False})
            for user in removed:
                self._record({"op": "part", "team": team.name, "user": user})
        return MembershipChange(tuple(added), tuple(removed), tuple(sorted(absent)))

    def leave_all(self, user: str) -> list[str]:
        """End all memberships of a user; return the names of the teams."""
        with lock_changes(self._home):
            names = [team.name for team in self.list_teams() if team.find_member(user)]
            for name in names:
                self._record({"op": "part", "team": name, "user": user})
        return names

    def record_departure(self, user: str) -> None:
        """Record that a person left: nobody registers a machine of theirs or adds them to a team, until they return."""
        with lock_changes(self._home):
            if user not in self._cache.get_events().derive(index_departures):
                self._record({"op": "gone", "user": user})

    def record_return(self, user: str) -> None:
        """Record that a person who left is back. Raises UsageError for somebody who did not leave."""
        if user not in self._cache.get_events().derive(index_departures):
            raise UsageError(f"{user} did not leave this home")
        self._record({"op": "return", "user": user})

    def _record(self, data: dict[str, object]) -> None:
        record_event(self._home, self._home_user, TEAM, {**data, "by": self._user}, now=self._now())

    def list_grants(self, name: str) -> list[GrantRecord]:
        """Return everything that was ever shared with a team, oldest first. Raises TeamMissing."""
        team = self.get_team(name)
        records = [record for record in list_all_grants(self._cache.get_events()) if record.grant.team == team.name]
        return sorted(records, key=lambda record: record.given_at)

    # notes ----------------------------------------------------------------------------------------------------

    def list_notes(self, name: str) -> list[GrantRecord]:
        """Return the notes of a team that the user may know of, oldest first.

        A member knows the accepted ones and their own; a reviewer knows all that were not taken back.
        """
        member = self.get_team(name).find_member(self._user)
        return [
            record
            for record in self.list_grants(name)
            if record.grant.scope == "memory" and self._may_know(record, member)
        ]

    def _may_know(self, record: GrantRecord, member: TeamMember | None) -> bool:
        if record.grant.owner == self._user:
            return True
        return (
            member is not None and record.revoked_at is None and (member.is_reviewer or record.is_in_force(self._now()))
        )

    def review(self, note_id: str, *, is_accepted: bool) -> GrantRecord:
        """Accept or reject a note of somebody else. Raises GrantMissing, and UsageError without the right to review."""
        with lock_changes(self._home):
            record = self.get_note(note_id)
            member = self.get_team(record.grant.team).find_member(self._user)
            if member is None or not member.is_reviewer:
                raise UsageError(f"only a reviewer of {record.grant.team} can accept or reject its notes")
            if record.grant.owner == self._user:
                raise UsageError("another reviewer must read your own note")
            if record.review is None or record.review.is_accepted != is_accepted:
                data = {"op": "accept" if is_accepted else "reject", "grant_id": note_id, "by": self._user}
                record_event(self._home, record.grant.owner, GRANT, data, now=self._now())
        return self.get_note(note_id)

    def get_note(self, note_id: str) -> GrantRecord:
        """Return a note that the user may know of. Raises GrantMissing."""
        for team in self.list_teams():
            for record in self.list_notes(team.name):
                if record.grant.grant_id == note_id:
                    return record
        raise GrantMissing(note_id)
