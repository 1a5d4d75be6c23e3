"""Commands about grants: share, list, revoke, decline."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import msgspec

from perdure.authority.grants import Given
from perdure.capture.rules import Rules
from perdure.surfaces import afar
from perdure.surfaces.afar_memories import Believed
from perdure.surfaces.cli.common import Shell, ahead, command, day, plural
from perdure.surfaces.cli.lazy import LazyGroup
from perdure.surfaces.cli.memory import project_named
from perdure.surfaces.covering import n_covered
from perdure.text import printable
from perdure.types import GrantScope

_SHARES: dict[str, tuple[str, str]] = {
    "run": ("share", "Share a run with everything below it."),
    "tag": ("share", "Share every run that has a tag."),
    "project": ("share", "Share every run of a project."),
    "agent": ("share", "Share every run of an agent."),
    "list": ("share", "What you share, and what others share with you."),
    "revoke": ("share", "Share it no more, from the next question on."),
    "decline": ("share", "Read no more of what another shares with you."),
}


@click.group(
    "share",
    cls=LazyGroup,
    table=_SHARES,
    epilog="""\b
Examples:
  perdure share run 01m4x8… --with bob
  perdure share project ~/src/orchard --with bob --until 30d
  perdure share list
  perdure share revoke g-5b1e…

Everything that is not shared is its owner's alone.""",
)
def share_command() -> None:
    """Let another user of this home read some of what is yours, secrets masked, until a date or until you revoke it.
    What comes into the shared run, tag, project or agent later is shared as well.
    """


def _shared(scope: GrantScope, argument: str, epilog: str, what: str) -> click.Command:
    @command(scope, epilog=epilog)
    @click.argument("value", metavar=argument)
    @click.option("--with", "grantee", required=True, metavar="USER", help="Who may read it.")
    @click.option("--until", metavar="DATE", help="Until then: a date, or 12h, 30d, 4w from now (until revoked).")
    def share(shell: Shell, value: str, grantee: str, until: str | None) -> None:
        if (thin := shell.thin()) is not None:
            _tell(shell, _shared_afar(thin, grantee, scope, value, ahead(until)), None)
            return
        with shell.open() as home:
            chosen = project_named(home, value) if scope == "project" else value
            given = home.share(grantee, scope, chosen or value, until_at=ahead(until))
            n_runs = n_covered(home, given)
            if given.grant.grantee not in home.users():
                shell.note(f"Nobody named {grantee} is here yet; they can read it once they have a machine here.")
        _tell(shell, given, n_runs)

    share.help = f"{what} Later ones count as well. Secrets are masked."
    return share


def _shared_afar(thin: Rules, grantee: str, scope: GrantScope, value: str, until_at: datetime | None) -> Given:
    """Share it at the remote home."""
    with afar.opened(thin) as there:
        chosen = project_named(Believed(there), value) if scope == "project" else value
        return there.share(grantee, scope, chosen or value, until_at=until_at)


def _tell(shell: Shell, given: Given, n_runs: int | None) -> None:
    grant = given.grant
    if shell.as_json:
        shell.answer({**_json(given), "runs_now": n_runs})
        return
    said = f"{grant.grantee} may read {_scope(given)}, {_until(given)}: {grant.grant_id}."
    shell.out.print(printable(said), markup=False)
    now = "what is there" if n_runs is None else plural(n_runs, "run")
    shell.out.print(f"That is {now} now, and what comes to it later. Secrets are masked.")
    shell.suggest([(f"perdure share revoke {grant.grant_id}", "share it no more")])


def _scope(given: Given) -> str:
    grant = given.grant
    return f"run {grant.value} and what is below it" if grant.scope == "run" else f"{grant.scope} {grant.value}"


def _until(given: Given) -> str:
    if given.revoked_at is not None:
        return f"revoked {day(given.revoked_at)}"
    if given.declined_at is not None:
        return f"declined {day(given.declined_at)}"
    return f"until {day(given.grant.until_at)}" if given.grant.until_at else "until it is revoked"


run_command = _shared(
    "run", "RUN", "  perdure share run 01m4x8… --with bob", "Share a run, by any unique beginning of its id."
)
tag_command = _shared("tag", "TAG", "  perdure share tag orchard --with bob --until 2027-01-31", "Share a tag's runs.")
project_command = _shared(
    "project", "PATH", "  perdure share project ~/src/orchard --with bob", "Share a project: a folder or its name."
)
agent_command = _shared("agent", "AGENT", "  perdure share agent gardener --with bob", "Share an agent's runs.")


@command("list", epilog="  perdure share list\n  perdure share list --all --json")
@click.option("--all", "every", is_flag=True, help="Also what is over.")
def list_command(shell: Shell, every: bool) -> None:
    """What you share with others, and what others share with you."""
    given, received, counts = _listed(shell, every=every)
    if shell.as_json:
        mine = [{**_json(one), "runs_now": n} for one, n in zip(given, counts, strict=True)]
        shell.answer({"given": mine, "to_me": [_json(one) for one in received]})
        return
    for one, n in zip(given, counts, strict=True):
        line = f"{one.grant.grant_id}  to {one.grant.grantee}: {_scope(one)}{_counted(n)}, {_until(one)}"
        shell.out.print(printable(line), markup=False)
    for one in received:
        line = f"{one.grant.grant_id}  from {one.grant.owner}: {_scope(one)}, {_until(one)}"
        shell.out.print(printable(line), markup=False)
    if not given and not received:
        shell.out.print("Nothing is shared: everything is its owner's alone.")


def _listed(shell: Shell, *, every: bool) -> tuple[list[Given], list[Given], list[int | None]]:
    """(what is shared, what others share, how many runs each of the first covers now)."""
    if (thin := shell.thin()) is not None:
        with afar.opened(thin) as there:
            given, received = there.grants(every=every)
        return given, received, [None] * len(given)
    with shell.open() as home:
        given = home.grants.given(every=every)
        return given, home.grants.received(every=every), [n_covered(home, one) for one in given]


def _counted(n_runs: int | None) -> str:
    return "" if n_runs is None else f" ({plural(n_runs, 'run')} now)"


@command("revoke", epilog="  perdure share revoke g-5b1e83f0a92d47c6")
@click.argument("grant", metavar="ID")
def revoke_command(shell: Shell, grant: str) -> None:
    """Share it no more, from the next question on."""
    if (thin := shell.thin()) is not None:
        with afar.opened(thin) as there:
            done = there.unshare(grant)
    else:
        with shell.open() as home:
            done = home.grants.revoke(grant)
    if shell.as_json:
        shell.answer(_json(done))
        return
    shell.out.print(printable(f"{done.grant.grantee} may no longer read {_scope(done)}."), markup=False)


@command("decline", epilog="  perdure share decline g-5b1e83f0a92d47c6")
@click.argument("grant", metavar="ID")
def decline_command(shell: Shell, grant: str) -> None:
    """Read no more of what another shares with you, from the next question on."""
    with shell.open() as home:
        done = home.grants.decline(grant)
    if shell.as_json:
        shell.answer(_json(done))
        return
    shell.out.print(f"You read no more of {_scope(done)} of {done.grant.owner}.", markup=False)


def _json(given: Given) -> dict[str, Any]:
    said: dict[str, Any] = msgspec.to_builtins(given.grant)
    return {**said, "given_at": given.given_at, "revoked_at": given.revoked_at, "declined_at": given.declined_at}
