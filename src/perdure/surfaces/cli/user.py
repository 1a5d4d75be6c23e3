"""Commands about users: list them, link them to the persons whom identity servers know, check these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perdure.errors import IdentityFault, UsageError
from perdure.home import Home
from perdure.sharing.persons import ATPROTO, LinkedPerson
from perdure.surfaces.cli.common import Shell, command, format_count
from perdure.surfaces.cli.lazy import LazyGroup
from perdure.surfaces.cli.machine import describe_outcome
from perdure.text import printable

if TYPE_CHECKING:
    from perdure.sharing.app_passwords import AppPassword, CheckResult

_USER_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("user", "List the users, their machines and the persons linked to them."),
    "link": ("user", "Link a user to a DID, or to a subject of the OpenID provider."),
    "unlink": ("user", "End the links of a user, and revoke the machines that joined by them."),
    "check": ("user", "Look up handles, and revoke app passwords that are still valid."),
}


@click.group(
    "user",
    cls=LazyGroup,
    table=_USER_COMMANDS,
    epilog="""\b
Examples:
  perdure user list
  perdure user link anna --did anna.family.example
  perdure user link bob --subject 248289761001
  perdure user unlink anna
  perdure user check""",
)
def user_command() -> None:
    """Show the users of this home, and link them to the persons whom an identity server knows. Such a server proves who
    somebody is; what they may do stands in this home alone (docs/identity.md).
    """


@command("list", epilog="  perdure user list\n  perdure user list --json")
def list_command(shell: Shell) -> None:
    """List the users of this home with their machines and linked persons."""
    with shell.open_home() as home:
        rows = [_describe_user(home, name) for name in home.sharing.users()]
    if shell.as_json:
        shell.print_json({"users": rows})
        return
    for row in rows:
        names = ", ".join(person["name"] or person["subject"] for person in row["persons"])
        admin_text = "  admin" if row["is_admin"] else ""
        line = f"{row['user']:<20}  {format_count(row['machines'], 'machine')}{admin_text}"
        shell.out.print(printable(f"{line}  is {names}" if names else line), markup=False)
    if not rows:
        shell.out.print("This home has no user yet.")


def _describe_user(home: Home, name: str) -> dict[str, Any]:
    persons = home.sharing.persons.list_persons(name)
    names = {name, *(person.subject for person in persons if person.server == ATPROTO)}
    return {
        "user": name,
        "is_admin": bool(names & home.config.admins),
        "machines": len(home.sharing.machines.list_machines(name)),
        "persons": [_person_to_json(person) for person in persons],
    }


def _person_to_json(person: LinkedPerson) -> dict[str, Any]:
    return {
        "person_id": person.person_id,
        "user": person.user,
        "server": person.server,
        "subject": person.subject,
        "name": person.name,
        "linked_at": person.linked_at,
    }


@command(
    "link",
    epilog="""\
  perdure user link anna --did anna.family.example
  perdure user link anna --did did:plc:ewvi7nxzyoun6zhxrhs64oiz
  perdure user link bob --subject 248289761001""",
)
@click.argument("user")
@click.option("--did", metavar="DID|HANDLE", help="A person of the AT Protocol; a handle is looked up now.")
@click.option("--subject", metavar="SUBJECT", help="A person of the OpenID provider of the settings: the `sub` there.")
def link_command(shell: Shell, user: str, did: str | None, subject: str | None) -> None:
    """Link a user (a new name creates the user) to a person whom an identity server knows. From then on this person can
    join machines with `perdure join --handle`, or sign in on the page with the OpenID provider.
    """
    if (did is None) == (subject is None):
        raise UsageError("give either --did or --subject")
    with shell.open_home(create=True) as home:
        if did is not None:
            found = home.sharing.app_passwords.require_network().find_person(did)
            person = home.sharing.persons.link(user, ATPROTO, found.did, found.handle)
        else:
            issuer = home.config.identity.openid.issuer
            if not issuer:
                raise IdentityFault("this home has no OpenID provider: set identity.openid.issuer (docs/identity.md)")
            person = home.sharing.persons.link(user, issuer, subject or "")
    if shell.as_json:
        shell.print_json(_person_to_json(person))
        return
    named = f"{person.name} ({person.subject})" if person.name else person.subject
    shell.out.print(printable(f"{user} is {named}."), markup=False)
    next_step = (
        f"perdure join URL --handle {person.name or person.subject}" if did is not None else "Sign in on the page"
    )
    shell.out.print(printable(f"On their machine they run:  {next_step}" if did else f"{next_step}."), markup=False)


@command("unlink", epilog="  perdure user unlink anna\n  perdure user unlink anna --json")
@click.argument("user")
def unlink_command(shell: Shell, user: str) -> None:
    """End the links of a user, from the next request on, and revoke the machines that joined by them. Other machines of
    the user and everything captured stay.
    """
    with shell.open_home() as home:
        persons, revoked = home.sharing.unlink_person(user)
    if shell.as_json:
        machines = [
            {"machine_id": machine.machine_id, "name": machine.name, "app_password": outcome}
            for machine, outcome, _ in revoked
        ]
        shell.print_json({"persons": [_person_to_json(person) for person in persons], "revoked": machines})
        return
    for person in persons:
        shell.out.print(printable(f"{user} is not {person.name or person.subject} any more."), markup=False)
    for machine, outcome, reason in revoked:
        message = f"{machine.name} of {machine.user} is revoked. {describe_outcome(outcome, reason)}"
        shell.out.print(printable(message), markup=False)


@command("check", epilog="  perdure user check\n  perdure user check --json")
def check_command(shell: Shell) -> None:
    """Look up the handles of linked persons, revoke app passwords of revoked machines at their servers, and revoke
    machines whose app password was revoked there. `perdure serve` does the same every hour. Exit status 1: something
    could not be done.
    """
    with shell.open_home() as home:
        result = home.sharing.app_passwords.check()
    if shell.as_json:
        shell.print_json(_check_to_json(result))
    else:
        for line in _describe_check(result) or ["Everything is as it was."]:
            shell.out.print(printable(line), markup=False)
    if result.faults:
        raise SystemExit(1)


def _check_to_json(result: CheckResult) -> dict[str, Any]:
    return {
        "renamed": [{"user": person.user, "from": person.name, "to": name} for person, name in result.renamed],
        "revoked_there": [machine.machine_id for machine in result.revoked_there],
        "revoked": [entry.machine_id for entry in result.revoked],
        "waiting": [entry.machine_id for entry in result.waiting],
        "faults": result.faults,
    }


def _describe_check(result: CheckResult) -> list[str]:
    """Return what a check changed and what it could not do, a line each."""

    def describe(entry: AppPassword) -> str:
        return f"The app password {entry.name!r} of {entry.user}"

    return [
        *(f"{person.user}: {person.name or person.subject} is now {name or 'without a handle'}."
          for person, name in result.renamed),
        *(f"{machine.name} of {machine.user} is revoked: the person revoked its app password at their server."
          for machine in result.revoked_there),
        *(f"{describe(entry)} is revoked at their server." for entry in result.revoked),
        *(f"{describe(entry)} is still valid at their server." for entry in result.waiting),
        *(f"Not possible: {fault}." for fault in result.faults),
    ]  # fmt: skip
