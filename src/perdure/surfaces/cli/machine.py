"""Commands about machines: register, list, revoke."""

from __future__ import annotations

from typing import Any

import click

from perdure.authority.machines import Machine
from perdure.capture import credential
from perdure.capture.credential import Credential
from perdure.errors import PerdureError, UsageError
from perdure.home import Home
from perdure.resident import serve
from perdure.surfaces.checks import address
from perdure.surfaces.cli.common import Shell, command, day
from perdure.surfaces.cli.lazy import LazyGroup
from perdure.text import printable

_ANY = ("", "0.0.0.0", "[::]")

_MACHINES: dict[str, tuple[str, str]] = {
    "register": ("machine", "Let a machine speak for a user; prints its secret, once."),
    "list": ("machine", "The machines that may speak for a user."),
    "revoke": ("machine", "Let a machine speak no more, from its next request on."),
}


@click.group(
    "machine",
    cls=LazyGroup,
    table=_MACHINES,
    epilog="""\b
Examples:
  perdure machine register --name laptop --no-write-auth
  perdure machine register --name phone --user bob --no-write-auth --url https://home.example:8443
  perdure machine list
  perdure machine revoke laptop""",
)
def machine_command() -> None:
    """The machines that capture into this home and ask it. Each has a secret of its own, of which only the hash is kept
    here; none is built in.
    """


_user = click.option("--user", metavar="USER", help="Whose machine it is.")


@command(
    "register",
    epilog="""\
  perdure machine register --name laptop --no-write-auth
  perdure machine register --name phone --user bob --no-write-auth --url https://home.example:8443""",
)
@click.option("--name", required=True, help="What it is called; runs that it captures carry this name.")
@click.option("--user", metavar="USER", help="Whose machine it is (default: this home's own user).")
@click.option("--no-write-auth", "is_only_shown", is_flag=True, help="Print the secret and write no file.")
@click.option("--url", default="", metavar="URL", help="Where this home answers, for the line to run on the machine.")
@click.option("--replace", "anew", is_flag=True, help="Put it in the place of another home's credential.")
def register_command(shell: Shell, name: str, user: str | None, is_only_shown: bool, url: str, anew: bool) -> None:
    """Register a machine of a user, who need not be known before, and print its secret: this once, and never again.
    Unless told otherwise the secret is also kept in this home's auth.json, readable to you alone.
    """
    place = _url(url)
    with shell.open(create=True) as home:
        if not (is_only_shown or anew):
            credential.check_place(home.path, place)
        machine, secret = home.machines.register(user or home.user, name)
        written = None if is_only_shown else str(_kept(home, machine, secret, place))
        joined = f"perdure join {place or _answering(home) or 'URL'}"
    if shell.as_json:
        shell.answer({**_json(machine), "secret": secret, "join": joined, "written": written})
        return
    said = f"{machine.name} of {machine.user} is registered, as {machine.machine_id}."
    shell.out.print(printable(said), markup=False)
    shell.out.print("Its secret, which is shown this once:\n")
    shell.out.print(printable(f"  {secret}\n"), markup=False)
    if written:
        shell.out.print(printable(f"It is kept in {written}, readable to you alone."), markup=False)
    shell.out.print("On that machine run this, and give it the secret when it asks:\n")
    shell.out.print(printable(f"  {joined}"), markup=False)


def _url(url: str) -> str:
    if url and not url.startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is no address: write https://home.example:8443")
    return url.rstrip("/")


def _answering(home: Home) -> str:
    """Where another machine may find this home; empty where it does not answer, or under any name of this machine."""
    found = address(home.config.server, serve.state(home.path))
    host, _, port = found.partition("://")[2].rpartition(":")
    return "" if host in _ANY or port == "0" else found


def _kept(home: Home, machine: Machine, secret: str, url: str) -> object:
    """Where the credential lies now; a machine whose secret cannot be kept is revoked again."""
    try:
        said = Credential(machine.user, machine.machine_id, machine.name, secret, url)
        return credential.write(home.path, said, anew=True)  # that it may be was asked before
    except (PerdureError, OSError):
        home.machines.revoke(machine.machine_id)
        raise


@command("list", epilog="  perdure machine list\n  perdure machine list --user bob --all --json")
@_user
@click.option("--all", "every", is_flag=True, help="Also those that were revoked.")
def list_command(shell: Shell, user: str | None, every: bool) -> None:
    """The machines that may speak for a user, of all users unless one is named."""
    with shell.open() as home:
        found = home.machines.listed(user, every=every)
    if shell.as_json:
        shell.answer({"machines": [_json(machine) for machine in found]})
        return
    for machine in found:
        ended = f"  revoked {day(machine.revoked_at)}" if machine.revoked_at else ""
        line = f"{machine.name:<20}  {machine.user:<12}  {machine.machine_id}  since {day(machine.registered_at)}"
        asked = f"  registered by {machine.registered_by}" if machine.registered_by else ""
        shell.out.print(printable(line + asked + ended), markup=False)
    if not found:
        shell.out.print("No machine is registered.")
        shell.suggest([("perdure machine register --name NAME --no-write-auth", "let another machine in")])


@command("revoke", epilog="  perdure machine revoke laptop\n  perdure machine revoke m-2f9c51d08a7be643")
@click.argument("machine", metavar="NAME|ID")
@_user
def revoke_command(shell: Shell, machine: str, user: str | None) -> None:
    """Let a machine speak no more: its next request is refused. What it captured stays."""
    with shell.open() as home:
        done = home.machines.revoke(machine, user)
    if shell.as_json:
        shell.answer(_json(done))
        return
    said = f"{done.name} of {done.user} may speak no more, from its next request on."
    shell.out.print(printable(said), markup=False)


def _json(machine: Machine) -> dict[str, Any]:
    return {
        "machine_id": machine.machine_id, "name": machine.name, "user": machine.user,
        "registered_at": machine.registered_at, "revoked_at": machine.revoked_at,
        "registered_by": machine.registered_by or None,
    }  # fmt: skip
