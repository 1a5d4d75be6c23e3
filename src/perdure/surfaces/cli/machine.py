"""Commands about machines: register, list, revoke."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perdure.capture import credential
from perdure.capture.credential import Credential
from perdure.errors import PerdureError, UsageError
from perdure.home import Home
from perdure.service.client import ask_health
from perdure.sharing.machines import Machine
from perdure.surfaces.cli.common import Shell, command, format_time
from perdure.surfaces.cli.lazy import LazyGroup
from perdure.surfaces.join_line import compose_join_line
from perdure.text import printable

if TYPE_CHECKING:
    from perdure.sharing.app_passwords import Outcome

_MACHINE_COMMANDS: dict[str, tuple[str, str]] = {
    "register": ("machine", "Register a machine of a user, and print its secret once."),
    "list": ("machine", "List the registered machines."),
    "revoke": ("machine", "Revoke a machine; the home refuses its next request."),
}


@click.group(
    "machine",
    cls=LazyGroup,
    table=_MACHINE_COMMANDS,
    epilog="""\b
Examples:
  perdure machine register --name laptop --no-write-auth
  perdure machine register --name phone --user bob --no-write-auth --url https://home.example:8443
  perdure machine list
  perdure machine revoke laptop""",
)
def machine_command() -> None:
    """Manage the machines that send captures to this home and ask it for recall. Each machine has its own secret; this
    home stores only a hash of it.
    """


_user_option = click.option("--user", metavar="USER", help="The user who owns the machine.")


@command(
    "register",
    epilog="""\
  perdure machine register --name laptop --no-write-auth
  perdure machine register --name phone --user bob --no-write-auth --url https://home.example:8443""",
)
@click.option("--name", required=True, help="The name of the machine; its runs carry this name.")
@click.option("--user", metavar="USER", help="The user who owns the machine (default: the user of this home).")
@click.option("--no-write-auth", "is_only_shown", is_flag=True, help="Only print the secret; do not write auth.json.")
@click.option(
    "--url", default="", metavar="URL", help="The address of this home, for the `perdure join` line that is printed."
)
@click.option(
    "--replace", "replace_credential", is_flag=True, help="Replace the credential of another home in auth.json."
)
def register_command(
    shell: Shell, name: str, user: str | None, is_only_shown: bool, url: str, replace_credential: bool
) -> None:
    """Register a machine of a user (a new name creates the user), and print its secret. The secret is shown only this
    once. Without --no-write-auth, the secret is also written to auth.json of this home, which only you can read.
    """
    home_url = _check_url(url)
    with shell.open_home(create=True) as home:
        if not (is_only_shown or replace_credential):
            credential.check_same_home(home.path, home_url)
        machine, secret = home.sharing.machines.register(user or home.user, name)
        credential_path = None if is_only_shown else str(_store_credential(home, machine, secret, home_url))
        join_line = compose_join_line(home.config.server, ask_health(home.path), home_url)
    if shell.as_json:
        shell.print_json(
            {**_machine_to_json(machine), "secret": secret, "join": join_line.command, "written": credential_path}
        )
        return
    message = f"{machine.name} of {machine.user} is registered, as {machine.machine_id}."
    shell.out.print(printable(message), markup=False)
    shell.out.print("Its secret, which is shown only now:\n")
    shell.out.print(printable(f"  {secret}\n"), markup=False)
    if credential_path:
        shell.out.print(printable(f"It is kept in {credential_path}, readable to you alone."), markup=False)
    shell.out.print("On that machine run this, and give it the secret when it asks:\n")
    shell.out.print(printable(f"  {join_line.command}"), markup=False)
    for note in join_line.notes:
        shell.note(note)


def _check_url(url: str) -> str:
    if url and not url.startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is not an address: write https://home.example:8443")
    return url.rstrip("/")


def _store_credential(home: Home, machine: Machine, secret: str, url: str) -> object:
    """Write the credential and return where it is; revoke the machine again if its secret cannot be kept."""
    try:
        new_credential = Credential(machine.user, machine.machine_id, machine.name, secret, url)
        return credential.write_credential(
            home.path, new_credential, overwrite=True
        )  # the caller has checked that it may
    except (PerdureError, OSError):
        home.sharing.machines.revoke(machine.machine_id)
        raise


@command("list", epilog="  perdure machine list\n  perdure machine list --user bob --all --json")
@_user_option
@click.option("--all", "include_all", is_flag=True, help="Also list revoked machines.")
def list_command(shell: Shell, user: str | None, include_all: bool) -> None:
    """List the registered machines of one user, or of all users."""
    with shell.open_home() as home:
        machines = home.sharing.machines.list_machines(user, include_revoked=include_all)
    if shell.as_json:
        shell.print_json({"machines": [_machine_to_json(machine) for machine in machines]})
        return
    for machine in machines:
        revoked_text = f"  revoked {format_time(machine.revoked_at)}" if machine.revoked_at else ""
        row = (
            f"{machine.name:<20}  {machine.user:<12}  {machine.machine_id}  since {format_time(machine.registered_at)}"
        )
        registered_text = f"  registered by {machine.registered_by}" if machine.registered_by else ""
        shell.out.print(printable(row + registered_text + revoked_text), markup=False)
    if not machines:
        shell.out.print("No machine is registered.")
        shell.suggest([("perdure machine register --name NAME --no-write-auth", "register another machine")])


@command("revoke", epilog="  perdure machine revoke laptop\n  perdure machine revoke m-2f9c51d08a7be643")
@click.argument("machine", metavar="NAME|ID")
@_user_option
def revoke_command(shell: Shell, machine: str, user: str | None) -> None:
    """Revoke a machine: its next request is refused. Its captures stay. If it joined by a DID, its app password is then
    revoked at the server of its person; that is tried again until it is done.
    """
    with shell.open_home() as home:
        revoked, outcome, reason = home.sharing.revoke_machine(machine, user)
    if shell.as_json:
        shell.print_json({**_machine_to_json(revoked), "app_password": outcome, "reason": reason or None})
        return
    message = f"{revoked.name} of {revoked.user} is revoked: the home refuses its next request."
    shell.out.print(printable(message), markup=False)
    if text := describe_outcome(outcome, reason):
        shell.out.print(printable(text), markup=False)


def describe_outcome(outcome: Outcome, reason: str) -> str:
    """Say what came of the app password of a revoked machine; "" if it had none."""
    if outcome == "waiting":
        return (
            f"Its app password is still valid at the server of its person ({reason}). `perdure serve` tries again "
            "every hour, and `perdure user check` at once."
        )
    return "Its app password is revoked at the server of its person." if outcome == "revoked" else ""


def _machine_to_json(machine: Machine) -> dict[str, Any]:
    return {
        "machine_id": machine.machine_id,
        "name": machine.name,
        "user": machine.user,
        "registered_at": machine.registered_at,
        "revoked_at": machine.revoked_at,
        "registered_by": machine.registered_by or None,
    }
