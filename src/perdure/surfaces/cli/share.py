"""Commands about grants: share, list, revoke, decline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.memories.team_notes import DEFAULT_NAME, FOLDER, write_notes
from perdure.sharing.grants import BEGINNING, TEAM_SIGN, GrantRecord
from perdure.surfaces.cli.common import Shell, command, format_count, format_time, parse_future_moment, parse_moment
from perdure.surfaces.cli.lazy import LazyGroup
from perdure.surfaces.cli.memory_common import complete_memory_ids, find_memory, resolve_project
from perdure.surfaces.health_checks import count_covered_runs
from perdure.text import printable
from perdure.types import GrantScope

_SHARE_COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("share", "Share a run with everything below it."),
    "tag": ("share", "Share every run that has a tag."),
    "project": ("share", "Share every run of a project."),
    "agent": ("share", "Share every run of an agent."),
    "memory": ("share", "Write memories into the notes of this repository, for your team."),
    "who": ("team", "Show who may read what, and by which right."),
    "list": ("share", "List your grants and the grants of others to you."),
    "revoke": ("share", "Revoke one of your grants, from the next request on."),
    "decline": ("share", "Decline a grant that another user gave you."),
}


@click.group(
    "share",
    cls=LazyGroup,
    table=_SHARE_COMMANDS,
    epilog="""\b
Examples:
  perdure share run 01m4x8… --with bob
  perdure share project ~/src/orchard --with bob --until 30d
  perdure share project ~/src/orchard --with @orchard --since 2026-01-01
  perdure share list
  perdure share who
  perdure share revoke g-5b1e…
  perdure share memory staging-server/port --to repo

Only the owner can read data that is not shared.""",
)
def share_command() -> None:
    """Let another user of this home, or a team, read some of your runs, until a date or until you revoke the grant.
    Secrets are masked. Runs that are added to the shared tag, project or agent later are shared too.
    """


def _make_share_command(scope: GrantScope, argument: str, epilog: str, summary: str) -> click.Command:
    @command(scope, epilog=epilog)
    @click.argument("value", metavar=argument)
    @click.option(
        "--with", "grantee", required=True, metavar="USER|@TEAM", help="The user or the team who may read it."
    )
    @click.option(
        "--until",
        metavar="DATE",
        help="The end of the grant: a date, or 12h, 30d, 4w from now (default: until you revoke it).",
    )
    @click.option(
        "--since",
        metavar="DATE",
        help="Only what began then or later: a date, 30d before now, or all (default: all; for a team: now).",
    )
    def share(shell: Shell, value: str, grantee: str, until: str | None, since: str | None) -> None:
        since_at = BEGINNING if since == "all" else parse_moment(since)
        with shell.use_home() as home:
            project = resolve_project(home, value) if scope == "project" else value
            grant = home.sharing.share(
                grantee, scope, project or value, until_at=parse_future_moment(until), since_at=since_at
            )
            n_runs = count_covered_runs(home, grant)
            if not grantee.startswith(TEAM_SIGN) and not home.sharing.is_known(grant.grant.grantee):
                shell.note(
                    f"This home has no user {grantee} yet. They can read it after they have registered a machine here."
                )
        _print_grant(shell, grant, n_runs)

    share.help = f"{summary} Runs that are added later are shared too. Secrets are masked."
    return share


def _print_grant(shell: Shell, grant_state: GrantRecord, n_runs: int | None) -> None:
    grant = grant_state.grant
    if shell.as_json:
        shell.print_json({**_grant_to_json(grant_state), "runs_now": n_runs})
        return
    reader = f"Every member of {grant.grantee}" if grant.team else grant.grantee
    message = f"{reader} may read {_format_scope(grant_state)}, {_format_end(grant_state)}: {grant.grant_id}."
    shell.out.print(printable(message), markup=False)
    amount = "this" if n_runs is None else format_count(n_runs, "run")
    shell.out.print(f"The grant covers {amount} now, and runs that are added later. Secrets are masked.")
    shell.suggest([(f"perdure share revoke {grant.grant_id}", "stop sharing it")])


def _format_scope(grant_state: GrantRecord) -> str:
    grant = grant_state.grant
    scope = f"run {grant.value} and the runs below it" if grant.scope == "run" else f"{grant.scope} {grant.value}"
    return f"{scope} since {format_time(grant.since_at)}" if grant.since_at and grant.since_at > BEGINNING else scope


def _format_end(grant_state: GrantRecord) -> str:
    if grant_state.revoked_at is not None:
        return f"revoked {format_time(grant_state.revoked_at)}"
    if grant_state.declined_at is not None:
        return f"declined {format_time(grant_state.declined_at)}"
    return f"until {format_time(grant_state.grant.until_at)}" if grant_state.grant.until_at else "until it is revoked"


run_command = _make_share_command(
    "run",
    "RUN",
    "  perdure share run 01m4x8… --with bob",
    "Share a run and the runs below it, by the beginning of its id.",
)
tag_command = _make_share_command(
    "tag", "TAG", "  perdure share tag orchard --with bob --until 2027-01-31", "Share all runs with a tag."
)
project_command = _make_share_command(
    "project",
    "PATH",
    "  perdure share project ~/src/orchard --with bob",
    "Share all runs of a project: a folder or its name.",
)
agent_command = _make_share_command(
    "agent", "AGENT", "  perdure share agent gardener --with bob", "Share all runs of an agent."
)


@command(
    "memory",
    epilog="""\
  perdure share memory staging-server/port --to repo
  perdure share memory mem-20260301-093000-0102 --to repo --file deployment.md --dry-run""",
)
@click.argument("identifiers", metavar="ID|PATH...", nargs=-1, required=True, shell_complete=complete_memory_ids)
@click.option("--to", "target", required=True, type=click.Choice(["repo"]), help="The repository that you are in.")
@click.option("--file", "name", default=DEFAULT_NAME, show_default=True, metavar="NAME", help="The file of notes.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
def memory_command(shell: Shell, identifiers: tuple[str, ...], target: str, name: str, *, dry_run: bool) -> None:
    """Write memories into .perdure/notes/ of this repository, one line each. Secrets are masked. Whoever checks the
    repository out and uses Perdure is told them, in every client. Nothing is committed.
    """
    with shell.use_home() as home:
        memories = [find_memory(home, identifier) for identifier in identifiers]
    path, lines = write_notes(Path.cwd(), memories, name, dry_run=dry_run)
    if shell.as_json:
        shell.print_json({"to": target, "file": str(path), "lines": lines, "written": not dry_run})
        return
    for line in lines:
        shell.out.print(line, markup=False)
    n_known = len(memories) - len(lines)
    known_text = f" {format_count(n_known, 'memory')} stood there already." if n_known else ""
    verb = "would be added" if dry_run else "added"
    shell.out.print(f"{format_count(len(lines), 'line')} {verb} to {path}.{known_text}", markup=False)
    if lines and not dry_run:
        shell.suggest([(f"git add {FOLDER}", "then commit it, so that your team can review it")])


@command("list", epilog="  perdure share list\n  perdure share list --all --json")
@click.option("--all", "include_all", is_flag=True, help="Also list ended grants.")
def list_command(shell: Shell, include_all: bool) -> None:
    """List what you share with others, and what others share with you."""
    shared, received, counts = _list_grants(shell, include_all=include_all)
    if shell.as_json:
        shared_rows = [
            {**_grant_to_json(grant), "runs_now": n_runs} for grant, n_runs in zip(shared, counts, strict=True)
        ]
        shell.print_json({"given": shared_rows, "to_me": [_grant_to_json(grant) for grant in received]})
        return
    for grant, n_runs in zip(shared, counts, strict=True):
        count_text = "" if n_runs is None else f" ({format_count(n_runs, 'run')} now)"
        scope = f"{_format_scope(grant)}{count_text}, {_format_end(grant)}"
        row = f"{grant.grant.grant_id}  to {grant.grant.grantee}: {scope}"
        shell.out.print(printable(row), markup=False)
    for grant in received:
        way = f" through @{grant.grant.team}" if grant.grant.team else ""
        row = f"{grant.grant.grant_id}  from {grant.grant.owner}{way}: {_format_scope(grant)}, {_format_end(grant)}"
        shell.out.print(printable(row), markup=False)
    if not shared and not received:
        shell.out.print("Nothing is shared.")


def _list_grants(shell: Shell, *, include_all: bool) -> tuple[list[GrantRecord], list[GrantRecord], list[int | None]]:
    """Return (your grants, the grants of others to you, how many runs each of yours covers now)."""
    with shell.use_home() as home:
        shared = home.sharing.grants.list_given(include_ended=include_all)
        return (
            shared,
            home.sharing.grants.list_received(include_ended=include_all),
            [count_covered_runs(home, grant) for grant in shared],
        )


@command("revoke", epilog="  perdure share revoke g-5b1e83f0a92d47c6")
@click.argument("grant", metavar="ID")
def revoke_command(shell: Shell, grant: str) -> None:
    """Stop sharing, from the next request on."""
    with shell.use_home() as home:
        revoked = home.sharing.grants.revoke(grant)
    if shell.as_json:
        shell.print_json(_grant_to_json(revoked))
        return
    shell.out.print(printable(f"{revoked.grant.grantee} may no longer read {_format_scope(revoked)}."), markup=False)


@command("decline", epilog="  perdure share decline g-5b1e83f0a92d47c6")
@click.argument("grant", metavar="ID")
def decline_command(shell: Shell, grant: str) -> None:
    """Decline a grant: you no longer read the shared runs, from the next request on."""
    with shell.use_home() as home:
        declined = home.sharing.grants.decline(grant)
    if shell.as_json:
        shell.print_json(_grant_to_json(declined))
        return
    shell.out.print(f"You no longer read {_format_scope(declined)} of {declined.grant.owner}.", markup=False)


def _grant_to_json(grant_state: GrantRecord) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(grant_state.grant)
    return {
        **fields,
        "given_at": grant_state.given_at,
        "revoked_at": grant_state.revoked_at,
        "declined_at": grant_state.declined_at,
    }
