"""Commands about teams: members, notes with review, a person who leaves, and who may read what."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.errors import UsageError
from perdure.home import Home
from perdure.sharing.access_picture import AccessPicture, AccessRight
from perdure.sharing.grants import BEGINNING, Team
from perdure.sharing.teams import Departure, Note, TeamChange
from perdure.surfaces.cli.common import Shell, command, confirm, format_count, format_time
from perdure.surfaces.cli.lazy import LazyGroup
from perdure.surfaces.cli.memory_common import complete_memory_ids, find_memory
from perdure.text import one_line, printable

_TEAM_COMMANDS: dict[str, tuple[str, str]] = {
    "create": ("team", "Make a team, or change what stays when a person leaves."),
    "list": ("team", "List the teams with their members."),
    "add": ("team", "Add a member, or make one a reviewer."),
    "remove": ("team", "End a membership, from the next request on."),
    "members": ("team", "Set all members from a list, such as that of a repository."),
    "log": ("team", "Show who changed a team, and when."),
    "propose": ("team", "Propose memories to a team; a reviewer must accept them."),
    "notes": ("team", "List the notes of your teams, with who wrote and who reviewed them."),
    "accept": ("team", "Accept a note: the team reads it from now on."),
    "reject": ("team", "Reject a note, or take back that you accepted it."),
    "leave": ("team", "Let a person leave this home, and say what stays."),
    "return": ("team", "Let a person who left come back."),
}
_TEXT_CHARS = 100


@click.group(
    "team",
    cls=LazyGroup,
    table=_TEAM_COMMANDS,
    epilog="""\b
Examples:
  perdure team create orchard
  perdure team add orchard bob --reviewer
  perdure share project ~/src/orchard --with @orchard
  perdure team propose orchard staging-server/port
  perdure team notes
  perdure team leave bob

A team gives nobody a right by itself: each owner shares with it.""",
)
def team_command() -> None:
    """Keep the teams of this home: who is a member, which notes wait for a review, what stays when a person leaves."""


# members ------------------------------------------------------------------------------------------------------


@command("create", epilog="  perdure team create orchard\n  perdure team create orchard --when-leaving end")
@click.argument("team", metavar="TEAM")
@click.option(
    "--when-leaving",
    type=click.Choice(["keep", "end"]),
    help="What a person shared with the team: the team keeps it, or it ends when the person leaves (default: keep; "
    "of a team that exists, as it is).",
)
def create_command(shell: Shell, team: str, when_leaving: str | None) -> None:
    """Make a team, or change its rule for a person who leaves."""
    with shell.open_home(create=True) as home:
        _print_team(
            shell, home.sharing.teams.set_rule(team, keeps=None if when_leaving is None else when_leaving == "keep")
        )


@command("add", epilog="  perdure team add orchard bob\n  perdure team add orchard carol --reviewer")
@click.argument("team", metavar="TEAM")
@click.argument("user", metavar="USER")
@click.option(
    "--reviewer", is_flag=True, help="They accept and reject the notes of others; without it, they no longer do."
)
def add_command(shell: Shell, team: str, user: str, reviewer: bool) -> None:
    """Add a member, or make one a reviewer. They read what was shared with the team, and what will be."""
    with shell.open_home() as home:
        _print_team(shell, home.sharing.teams.add(team, user, is_reviewer=reviewer))
        _note_unknown(shell, home, [user])


def _note_unknown(shell: Shell, home: Home, added: Sequence[str]) -> None:
    """Say which new members this home does not know, and whom it knows by nearly that name."""
    known = {*home.sharing.users(), *(machine.user for machine in home.sharing.machines.list_machines())}
    for user in added:
        if user not in known:
            alike = sorted(name for name in known if name.casefold() == user.casefold())
            hint = f" It has {', '.join(alike)}: upper and lower case matter." if alike else ""
            words = f"This home has no user {user} yet. They can read it after they have registered a machine here."
            shell.note(words + hint)


@command("remove", epilog="  perdure team remove orchard bob")
@click.argument("team", metavar="TEAM")
@click.argument("user", metavar="USER")
def remove_command(shell: Shell, team: str, user: str) -> None:
    """End a membership, from the next request on. What they shared themselves stays shared."""
    with shell.open_home() as home:
        _print_team(shell, home.sharing.teams.remove(team, user))


@command(
    "members",
    epilog="  perdure team members orchard --set members.txt\n  gh api … | perdure team members orchard --set -",
)
@click.argument("team", metavar="TEAM")
@click.option(
    "--set", "source", required=True, metavar="FILE|-", help="A name of a user in each line; # begins a comment."
)
def members_command(shell: Shell, team: str, source: str) -> None:
    """Set all members of a team from a list: who is not in it is removed. Reviewers stay reviewers. An empty list
    changes nothing, and nobody is added who left this home.
    """
    try:
        raw = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{source} cannot be read: {error}") from error
    lines = (line.partition("#")[0].strip() for line in raw.splitlines())
    with shell.open_home() as home:
        change = home.sharing.teams.set_members(team, [line for line in lines if line])
        _note_unknown(shell, home, change.added)
    if change.absent:
        names = ", ".join(change.absent)
        shell.note(f"Not added, because they left this home: {names}. `perdure team return NAME` lets one come back.")
    if shell.as_json:
        shell.print_json(msgspec.to_builtins(change))
        return
    added, removed = (", ".join(names) or "nobody" for names in (change.added, change.removed))
    shell.out.print(f"Added: {added}. Removed: {removed}.", markup=False)


@command("list", epilog="  perdure team list\n  perdure team list --json")
def list_command(shell: Shell) -> None:
    """List the teams with their members. On a joined machine: the teams in which you are."""
    with shell.use_home() as home:
        teams = home.sharing.list_teams()
    if shell.as_json:
        shell.print_json({"teams": msgspec.to_builtins(teams)})
        return
    for team in teams:
        _print_team(shell, team)
    if not teams:
        shell.out.print("There is no team.")
        shell.suggest([("perdure team create NAME", "make one")])


def _print_team(shell: Shell, team: Team) -> None:
    if shell.as_json:
        shell.print_json(msgspec.to_builtins(team))
        return
    rule = "keeps what was shared with it" if team.keeps else "keeps nothing of a person who leaves"
    names = ", ".join(f"{member.user}{' (reviewer)' if member.is_reviewer else ''}" for member in team.members)
    shell.out.print(printable(f"@{team.name}, which {rule}: {names or 'no members'}"), markup=False)


@command("log", epilog="  perdure team log orchard")
@click.argument("team", metavar="TEAM")
def log_command(shell: Shell, team: str) -> None:
    """Show who changed a team and how, and who shared what with it, oldest first."""
    with shell.open_home() as home:
        changes = home.sharing.teams.list_changes(team)
        grants = home.sharing.teams.list_grants(team)
    rows = [(change.happened_at, _describe_change(change)) for change in changes]
    for record in grants:
        what = f"{record.grant.scope} {record.grant.value}"
        rows.append((record.given_at, f"{record.grant.owner} shared {what} ({record.grant.grant_id})"))
        if record.review is not None:
            verb = "accepted" if record.review.is_accepted else "rejected"
            who = record.review.reviewer or "a person whose data was erased"
            rows.append((record.review.reviewed_at, f"{who} {verb} {record.grant.grant_id}"))
        if record.revoked_at is not None:
            rows.append((record.revoked_at, f"{record.grant.owner} revoked {record.grant.grant_id}"))
    rows.sort(key=lambda row: row[0])
    if shell.as_json:
        shell.print_json({"log": [{"at": at, "what": what} for at, what in rows]})
        return
    for at, what in rows:
        shell.out.print(printable(f"{format_time(at)}  {what}"), markup=False)


def _describe_change(change: TeamChange) -> str:
    fields = msgspec.to_builtins(change.op)
    who = fields["by"] or "a person whose data was erased"
    if fields["op"] == "rule":
        return f"{who} set the rule: {'keep' if fields['keeps'] else 'end'} what a person shared when they leave"
    if fields["op"] == "join":
        return f"{who} added {fields['user']}{' as a reviewer' if fields['is_reviewer'] else ''}"
    return f"{who} removed {fields['user']}"


# notes --------------------------------------------------------------------------------------------------------


@command("propose", epilog="  perdure team propose orchard staging-server/port")
@click.argument("team", metavar="TEAM")
@click.argument("identifiers", metavar="ID|PATH...", nargs=-1, required=True, shell_complete=complete_memory_ids)
def propose_command(shell: Shell, team: str, identifiers: tuple[str, ...]) -> None:
    """Propose memories to a team, as notes. Its members read one after a reviewer accepted it; secrets are masked. Take
    one back with `perdure share revoke`.
    """
    with shell.use_home() as home:
        memories = [find_memory(home, identifier) for identifier in identifiers]
        records = [home.sharing.share(f"@{team.removeprefix('@')}", "memory", memory.memory_id) for memory in memories]
    if shell.as_json:
        shell.print_json({"notes": [record.grant.grant_id for record in records]})
        return
    for memory, record in zip(memories, records, strict=True):
        words = one_line(memory.text, _TEXT_CHARS)
        shell.out.print(printable(f"{record.grant.grant_id} waits for a reviewer: {words}"), markup=False)


@command("notes", epilog="  perdure team notes\n  perdure team notes orchard --json")
@click.argument("team", metavar="[TEAM]", required=False)
def notes_command(shell: Shell, team: str | None) -> None:
    """List the notes of a team, or of all your teams: the accepted ones, your own, and, for a reviewer, all."""
    with shell.use_home() as home:
        names = [team] if team else [known_team.name for known_team in home.sharing.list_teams()]
        notes = [note for name in names for note in home.sharing.list_notes(name)]
    if shell.as_json:
        shell.print_json({"notes": list(map(note_to_json, notes))})
        return
    for note in notes:
        words = one_line(note.memory.text, _TEXT_CHARS) if note.memory else "its author set it aside"
        shell.out.print(printable(f"{note.record.grant.grant_id}  {note.state:9}  {words}"), markup=False)
        shell.out.print(printable(f"    {describe_note(note)}"), style="dim", markup=False)
    if not notes:
        shell.out.print("There are no notes.")


def describe_note(note: Note) -> str:
    """Say who wrote a note, for which team, and who reviewed it."""
    record = note.record
    text = f"@{record.grant.team}, by {record.grant.owner} on {format_time(record.given_at)}"
    if record.review is not None:
        verb = "accepted" if record.review.is_accepted else "rejected"
        reviewer = record.review.reviewer or "a person whose data was erased"
        text += f", {verb} by {reviewer} on {format_time(record.review.reviewed_at)}"
    return text + (f", retracted on {format_time(record.revoked_at)}" if record.revoked_at else "")


def note_to_json(note: Note) -> dict[str, Any]:
    """Return a note as plain values."""
    review = note.record.review
    return {
        "note_id": note.record.grant.grant_id,
        "team": note.record.grant.team,
        "state": note.state,
        "text": note.memory.text if note.memory else None,
        "path": note.memory.path if note.memory else None,
        "author": note.record.grant.owner,
        "proposed_at": note.record.given_at,
        "reviewer": review.reviewer if review else None,
        "reviewed_at": review.reviewed_at if review else None,
        "retracted_at": note.record.revoked_at,
    }


@command("accept", epilog="  perdure team accept g-5b1e83f0a92d47c6")
@click.argument("notes", metavar="NOTE...", nargs=-1, required=True)
def accept_command(shell: Shell, notes: tuple[str, ...]) -> None:
    """Accept notes of others: every member of the team reads them from now on. Only a reviewer of the team can."""
    _review(shell, notes, is_accepted=True)


@command("reject", epilog="  perdure team reject g-5b1e83f0a92d47c6")
@click.argument("notes", metavar="NOTE...", nargs=-1, required=True)
def reject_command(shell: Shell, notes: tuple[str, ...]) -> None:
    """Reject notes of others, accepted ones too: nobody but their author and the reviewers reads them."""
    _review(shell, notes, is_accepted=False)


def _review(shell: Shell, notes: Sequence[str], *, is_accepted: bool) -> None:
    with shell.use_home() as home:
        records = [home.sharing.review_note(note_id, is_accepted=is_accepted) for note_id in notes]
    verb = "accepted" if is_accepted else "rejected"
    if shell.as_json:
        shell.print_json({verb: [record.grant.grant_id for record in records]})
        return
    for record in records:
        shell.out.print(f"{record.grant.grant_id} of {record.grant.owner} is {verb}.", markup=False)


# who may read what ----------------------------------------------------------------------------------------------


@command("who", epilog="  perdure share who\n  perdure share who --json")
def who_command(shell: Shell) -> None:
    """Show who may read what, and by which right: a grant, or a team. At the home: of all people; on a joined machine:
    what concerns you and your teams. All that is not listed is read by its owner alone.
    """
    with shell.use_home() as home:
        picture = home.sharing.draw_access(is_admin=True)
    if shell.as_json:
        shell.print_json(msgspec.to_builtins(picture))
        return
    _print_picture(shell, picture)


def _print_picture(shell: Shell, picture: AccessPicture) -> None:
    titles = {column.key: f"{column.scope} {column.title}" for column in picture.columns}
    for row in picture.rows:
        notes = [*(["admin"] if row.is_admin else []), *(f"@{team}" for team in row.teams)]
        suffix = f" ({', '.join(notes)})" if notes else ""
        shell.out.print(printable(row.user + suffix), style="bold", markup=False)
        for key, rights in row.rights.items():
            for right in rights:
                shell.out.print(printable(f"  {titles[key]}: {_describe_right(right)}"), markup=False)
        if not row.rights:
            shell.out.print("  shares nothing, and reads nothing of others", style="dim")
    shell.out.print("All that is not listed is read by its owner alone.", style="dim")


def _describe_right(right: AccessRight) -> str:
    since = f" since {format_time(right.since_at)}" if right.since_at and right.since_at > BEGINNING else ""
    until = f" until {format_time(right.until_at)}" if right.until_at else ""
    way = f"through @{right.team}, " if right.team and right.kind == "reads" else ""
    verb = "shares it with" if right.kind == "shares" else "reads it of"
    return f"{verb} {right.other}{since}{until} ({way}{right.grant_id})"


# leaving --------------------------------------------------------------------------------------------------------


@command(
    "leave",
    epilog="""\
  perdure team leave bob
  perdure team leave bob --export /media/bob --erase-private --yes""",
)
@click.argument("user", metavar="USER")
@click.option("--export", "target", metavar="DIR", type=click.Path(path_type=Path), help="First copy all their data.")
@click.option("--erase-private", is_flag=True, help="Delete all that no team keeps. You cannot undo this.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def leave_command(shell: Shell, user: str, target: Path | None, erase_private: bool, yes: bool) -> None:
    """Let a person leave this home: their machines are revoked, their memberships and grants end, and nobody can
    register under their name. What they shared with a team stays as the rule of the team says. Their private data
    stays, readable by nobody, or is deleted with --erase-private.
    """
    with shell.open_home(user=user) as home:
        home.sharing.require_user()
        question = f"Delete everything of {user} that no team keeps, permanently?"
        if erase_private and not confirm(shell, question, yes=yes):
            raise UsageError("nothing was changed")
        exported = home.forgetting.export_user(target) if target else None
        departure = home.sharing.leave()
        n_turns, n_memories = home.forgetting.erase_private(departure.kept) if erase_private else (0, 0)
    if shell.as_json:
        result = {**msgspec.to_builtins(departure), "erased_turns": n_turns, "erased_memories": n_memories}
        shell.print_json({"user": user, **result, "exported": str(target) if exported else None})
        return
    _print_departure(shell, user, departure)
    if exported:
        shell.out.print(f"All their data was copied to {target} first.", markup=False)
    if erase_private:
        amount = f"{format_count(n_turns, 'private turn')} and {format_count(n_memories, 'memory')}"
        shell.out.print(f"Deleted: {amount}, and their floor.")
    else:
        shell.out.print("Their private data stays, and nobody can read it.")
        shell.suggest([(f"perdure forget --everything --user {user}", "delete all their data, shared or not")])


def _print_departure(shell: Shell, user: str, departure: Departure) -> None:
    machines, teams = (", ".join(names) or "none" for names in (departure.machines, departure.teams))
    shell.out.print(printable(f"{user} left. Machines revoked: {machines}. Memberships ended: {teams}."), markup=False)
    for grant in departure.kept:
        shell.out.print(
            printable(f"  @{grant.team} keeps {grant.scope} {grant.value} ({grant.grant_id})"), markup=False
        )
    for grant in departure.ended:
        shell.out.print(printable(f"  ended: {grant.scope} {grant.value} ({grant.grant_id})"), markup=False)


@command("return", epilog="  perdure team return bob")
@click.argument("user", metavar="USER")
def return_command(shell: Shell, user: str) -> None:
    """Let a person who left come back: a machine can be registered under their name again."""
    with shell.open_home() as home:
        home.sharing.teams.record_return(user)
    if shell.as_json:
        shell.print_json({"user": user})
        return
    shell.out.print(f"{user} can use this home again, once a machine of theirs is registered.", markup=False)
