"""`/sharing/access`, `/sharing/grants`, `/sharing/teams`, `/sharing/notes`: who may see what, the rules behind it, and
the notes that wait for a review.

An admin sees the rights of all people; anybody else what concerns them and their teams. No turn is shown here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from perdure.errors import NotFound, UsageError
from perdure.sharing.access_picture import AccessColumn, AccessPicture, AccessRight
from perdure.sharing.grants import BEGINNING, Team
from perdure.surfaces.web import visits
from perdure.surfaces.web.views.sharing import describe_grant, is_known_user
from perdure.surfaces.web.visits import HtmlPage, Redirect, View, ViewResult, Visit

_PAGE_ROWS = 40  # people in one answer
_MAX_COLUMNS = 12  # shared things in one answer; the search narrows them
_MAX_NAMES = 3  # of people in one place of the table
_SCOPES = {"project": "project", "tag": "tag", "run": "session", "agent": "agent", "memory": "notes of"}


@dataclass(frozen=True, slots=True)
class AccessMark:
    """One mark in the table: what a person shares, or reads by one rule or through one team."""

    kind: str
    team: str
    names: tuple[str, ...]  # whose it is, or with whom it is shared
    n_more: int
    href: str  # of the rule, or of the team where several share
    since_at: datetime | None  # of a single right
    until_at: datetime | None


def show_access(visit: Visit) -> HtmlPage:
    """Show people in rows and what is shared in columns, each right with the way to its rule."""
    visits.check_query(visit.query)
    picture = visit.home.sharing.draw_access(is_admin=visit.identity.is_admin)
    words = visit.query.get("q", "").strip()
    shown = _narrow(picture, words)
    offset = visits.parse_offset(visit.query.get("offset", ""))
    rows = shown.rows[offset : offset + _PAGE_ROWS]
    next_offset = offset + _PAGE_ROWS
    values = {
        "title": "Who may see what",
        "columns": shown.columns[:_MAX_COLUMNS],
        "n_hidden_columns": max(0, len(shown.columns) - _MAX_COLUMNS),
        "rows": [(row, {key: make_marks(rights) for key, rights in row.rights.items()}) for row in rows],
        "n_people": len(shown.rows),
        "words": words,
        "next_offset": next_offset if next_offset < len(shown.rows) else None,
        "scopes": _SCOPES,
        "beginning": BEGINNING,
    }
    return HtmlPage("access.html", values)


def make_marks(rights: Sequence[AccessRight]) -> list[AccessMark]:
    """Return the marks of one place: all that is read through one team is one mark, every other right is its own."""
    groups: dict[tuple[str, str], list[AccessRight]] = {}
    for right in rights:
        rule = right.team if right.team and right.kind == "reads" else right.grant_id
        groups.setdefault((right.kind, rule), []).append(right)
    return [_make_mark(group) for group in groups.values()]


def _make_mark(group: Sequence[AccessRight]) -> AccessMark:
    first, names = group[0], tuple(dict.fromkeys(right.other for right in group))
    is_single = len(group) == 1
    href = f"/sharing/grants/{quote(first.grant_id)}" if is_single else f"/sharing/teams/{quote(first.team)}"
    since_at, until_at = (first.since_at, first.until_at) if is_single else (None, None)
    shown = names[:_MAX_NAMES]
    return AccessMark(first.kind, first.team, shown, len(names) - len(shown), href, since_at, until_at)


def _narrow(picture: AccessPicture, words: str) -> AccessPicture:
    """Return the part of a picture whose people or shared things have these words in their names; the other side stays
    whole.
    """
    folded = words.casefold()
    rows = tuple(row for row in picture.rows if folded in row.user.casefold())
    columns = tuple(column for column in picture.columns if folded in column.title.casefold())
    is_any = bool(rows or columns)
    return AccessPicture(
        columns if columns or not is_any else picture.columns, rows if rows or not is_any else picture.rows
    )


def show_grant(visit: Visit) -> HtmlPage:
    """Show one rule: who shares what with whom, since when, until when, and how it ends."""
    grant_id = visit.path_params["grant_id"]
    picture = visit.home.sharing.draw_access(is_admin=visit.identity.is_admin)
    found = [
        (row.user, column, right)
        for row in picture.rows
        for column in picture.columns
        for right in row.rights.get(column.key, ())
        if right.grant_id == grant_id
    ]
    owners = [(user, column, right) for user, column, right in found if right.kind == "shares"]
    if not owners:
        raise NotFound(grant_id)
    owner, column, right = owners[0]
    values = {
        "title": f"{owner} shares {_name_column(column, right)}",
        "owner": owner,
        "column": column,
        "right": right,
        "readers": [user for user, _, item in found if item.kind == "reads"],
        "team": visit.home.sharing.teams.get_team(right.team) if right.team else None,
        "beginning": BEGINNING,
    }
    return HtmlPage("grant.html", values)


def _name_column(column: AccessColumn, right: AccessRight) -> str:
    return f"a note with {right.team}" if column.scope == "memory" else f"{_SCOPES[column.scope]} {column.title}"


# teams ----------------------------------------------------------------------------------------------------------


def show_team(visit: Visit) -> HtmlPage:
    """Show a team: its members, who added them, its rule, and what is shared with it."""
    return _make_team_page(visit, _get_team(visit))


def _get_team(visit: Visit) -> Team:
    """Return the team of the address, for its members and for admins. Raises NotFound."""
    team = visit.home.sharing.teams.get_team(visit.path_params["team"])
    if not visit.identity.is_admin and team.find_member(visit.home.user) is None:
        raise NotFound(team.name)
    return team


def _make_team_page(visit: Visit, team: Team, error: str = "", user: str = "", *, is_unknown: bool = False) -> HtmlPage:
    records = [record for record in visit.home.sharing.teams.list_grants(team.name) if record.is_in_force(visit.now)]
    values = {"title": f"Team {team.name}", "team": team, "records": records, "error": error, "user": user}
    values |= {"describe": describe_grant, "is_unknown": is_unknown, "is_reviewer": visit.form.get("reviewer") == "1"}
    return HtmlPage("team.html", values, 400 if error else 200)


def add_member(visit: Visit) -> ViewResult:
    """Add a member, or change whether they review."""
    team, user = _get_team(visit), visit.form.get("user", "").strip()
    if user and not is_known_user(visit, user) and visit.form.get("sure") != user:
        return _make_team_page(visit, team, user=user, is_unknown=True)
    try:
        visit.home.sharing.teams.add(team.name, user, is_reviewer=visit.form.get("reviewer") == "1")
    except UsageError as error:
        return _make_team_page(visit, team, error.detail or str(error), user)
    return Redirect(f"/sharing/teams/{team.name}", f"{user} is a member of {team.name}.")


def remove_member(visit: Visit) -> Redirect:
    """End a membership."""
    team, member = _get_team(visit), visit.path_params["member"]
    visit.home.sharing.teams.remove(team.name, member)
    return Redirect(f"/sharing/teams/{team.name}", f"{member} is no member of {team.name} any more.")


# notes ----------------------------------------------------------------------------------------------------------


def show_notes(visit: Visit) -> HtmlPage:
    """Show the notes of the visitor's teams: those that wait for them first, then newest first."""
    sharing = visit.home.sharing
    teams = sharing.teams.list_own()
    reviewed = {team.name for team in teams if (member := team.find_member(visit.home.user)) and member.is_reviewer}
    notes = [note for team in teams for note in sharing.list_notes(team.name)]
    notes.sort(key=lambda note: (note.state != "proposed", -note.record.given_at.timestamp()))
    values = {"title": "Notes of your teams", "notes": notes, "teams": teams, "reviewed": reviewed}
    return HtmlPage("team_notes.html", values)


def review_note(visit: Visit) -> Redirect:
    """Accept or reject a note."""
    is_accepted = visit.form.get("decide") == "accept"
    record = visit.home.sharing.review_note(visit.path_params["note_id"], is_accepted=is_accepted)
    consequence = "its team reads it from now on" if is_accepted else "the team does not read it"
    return Redirect("/sharing/notes", f"The note of {record.grant.owner} is decided: {consequence}.")


VIEWS: tuple[View, ...] = (
    View("GET", "/sharing/access", show_access, nav="sharing"),
    View("GET", "/sharing/grants/{grant_id}", show_grant, nav="sharing"),
    View("GET", "/sharing/teams/{team}", show_team, nav="sharing"),
    View("POST", "/sharing/teams/{team}/members", add_member, nav="sharing", pool="write", is_admin=True),
    View(
        "POST",
        "/sharing/teams/{team}/members/{member}/remove",
        remove_member,
        nav="sharing",
        pool="write",
        is_admin=True,
    ),
    View("GET", "/sharing/notes", show_notes, nav="sharing"),
    View("POST", "/sharing/notes/{note_id}/review", review_note, nav="sharing", pool="write"),
)
