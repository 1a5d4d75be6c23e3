"""Teams, notes with review, and who may read what, over HTTP."""

from __future__ import annotations

import dataclasses

from perdure.errors import NotFound
from perdure.sharing.grants import Team
from perdure.sharing.teams import Note
from perdure.surfaces.http.calls import HttpCall
from perdure.surfaces.http.responses import API_PATH, HttpResponse, Json, build_action, build_item, build_list

TEAMS_PATH = f"{API_PATH}/teams"
NOTES_PATH = f"{API_PATH}/notes"
ACCESS_PATH = f"{API_PATH}/access"


def list_teams(call: HttpCall) -> HttpResponse:
    """List the teams of which the caller is a member; all teams for an admin."""
    teams = _list_visible(call)
    shown, next_cursor = call.read_list_page("teams").cut_items(teams)
    return HttpResponse(build_list(list(map(_build_team, shown)), next_cursor, {"self": TEAMS_PATH}))


def _list_visible(call: HttpCall) -> list[Team]:
    teams = call.home.sharing.teams
    return teams.list_teams() if call.identity.is_admin else teams.list_own()


def _build_team(team: Team) -> Json:
    return build_item(team, {"teams": TEAMS_PATH, "notes": f"{NOTES_PATH}?team={team.name}"})


def set_rule(call: HttpCall) -> HttpResponse:
    """Make a team, or change its rule."""
    return HttpResponse(_build_team(call.home.sharing.teams.set_rule(call.body.name, keeps=call.body.keeps)))


def add_member(call: HttpCall) -> HttpResponse:
    """Add a member to a team, or change whether they review notes."""
    body, teams = call.body, call.home.sharing.teams
    return HttpResponse(_build_team(teams.add(call.path_params["team"], body.user, is_reviewer=body.is_reviewer)))


def remove_member(call: HttpCall) -> HttpResponse:
    """End a membership, from the next question on."""
    teams = call.home.sharing.teams
    return HttpResponse(_build_team(teams.remove(call.path_params["team"], call.path_params["member"])))


def list_notes(call: HttpCall) -> HttpResponse:
    """List the notes that the caller may know of: accepted ones, their own, and for a reviewer all."""
    team = call.query.team
    names = [known.name for known in _list_visible(call) if team in (None, known.name)]
    if team is not None and not names:
        raise NotFound
    notes = [note for name in names for note in call.home.sharing.list_notes(name)]
    shown, next_cursor = call.read_list_page("notes", team).cut_items(notes)
    return HttpResponse(build_list(list(map(_build_note, shown)), next_cursor, {"self": NOTES_PATH}))


def _build_note(note: Note) -> Json:
    """Build the body of a note, with the actions on it."""
    note_id, state = note.record.grant.grant_id, note.state
    review_path = f"{NOTES_PATH}/{note_id}/review"
    actions = [build_action("accept or reject it, as a reviewer", "POST", review_path)] if state == "proposed" else []
    return build_item(dataclasses.asdict(note), {"notes": NOTES_PATH}, actions=actions, note_id=note_id, state=state)


def review_note(call: HttpCall) -> HttpResponse:
    """Accept or reject a note of somebody else, as a reviewer of its team."""
    sharing = call.home.sharing
    record = sharing.review_note(call.path_params["note_id"], is_accepted=call.body.is_accepted)
    notes = sharing.list_notes(record.grant.team)
    return HttpResponse(
        _build_note(next(note for note in notes if note.record.grant.grant_id == record.grant.grant_id))
    )


def read_access(call: HttpCall) -> HttpResponse:
    """Show who may read what, and by which right: for an admin of all people, else what concerns the caller."""
    picture = call.home.sharing.draw_access(is_admin=call.identity.is_admin)
    return HttpResponse(build_item(picture, {"self": ACCESS_PATH, "teams": TEAMS_PATH}))
