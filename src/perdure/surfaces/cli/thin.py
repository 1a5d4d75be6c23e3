"""Commands of a machine that keeps nothing itself: join a home, send it what waits, leave it. They need click alone."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from perdure import config as settings
from perdure.capture import alert, credential, failures, files, outbox, places, remote, ship
from perdure.capture.credential import Credential
from perdure.capture.rules import Remote, Rules
from perdure.clients import hooks, setup
from perdure.errors import (
    ClientFault,
    ConfigFault,
    CredentialFault,
    PerdureError,
    RemoteAway,
    RemoteNonsense,
    RemoteRefused,
    SecretRefused,
    UsageError,
)
from perdure.surfaces.cli.common import Shell, command, plural, size

_WAIT_S = 60.0  # for another process that is sending
_SECTION = re.compile(r"\s*\[")
_HEAD = re.compile(r"\s*\[\s*remote\s*\]\s*(#.*)?\Z")
_KEY = re.compile(r"\s*(url|ca|plain)\s*=")

# join -------------------------------------------------------------------------------------------------------------


@command(
    "join",
    epilog="""\
  perdure join https://home.example:8443
  perdure join https://home.example:8443 --name laptop --no-hooks
  perdure join https://home.example:8443 --secret-file - < secret.txt
  perdure join https://home.example:8443 --ca ~/family-ca.pem""",
)
@click.argument("url")
@click.option("--name", help="What this machine was registered as: the secret of another one is refused.")
@click.option("--secret-file", metavar="FILE", help="Read the secret from a file (- for standard input), unasked.")
@click.option("--ca", metavar="FILE", help="A certificate authority of your own (PEM), for https.")
@click.option("--plain", is_flag=True, help="Let http:// reach beyond this machine: the network itself is private.")
@click.option("--no-hooks", is_flag=True, help="Leave the settings of your clients as they are.")
@click.option("--replace", "anew", is_flag=True, help="Take the place of a credential that is here already.")
def join_command(
    shell: Shell, url: str, name: str | None, secret_file: str | None, ca: str | None, plain: bool, no_hooks: bool,
    anew: bool,
) -> None:  # fmt: skip
    """Make this a machine of a home elsewhere: what its agents do is captured there, and recalled from there. Nothing
    is kept here but what waits to be sent. The secret is what `perdure machine register` printed at the home.
    """
    place = settings.home_path(shell.home)
    there = Remote(url.rstrip("/"), str(Path(ca).expanduser().absolute()) if ca else "", plain)
    with _as_arguments():
        remote.address(there)
    _refuse_own_archive(place)
    if not anew:
        credential.check_place(place, there.url)
    text = with_remote(_settings_text(place), there)
    secret = _secret(secret_file)
    with _as_arguments():
        known = _proven(there, secret, name)
    files.make_folder(place)
    credential.write(place, known, anew=anew)
    files.replace(place / "config.toml", text.encode())
    remote.is_there(place)
    failures.over(place, "credential")
    changes, faults = ([], []) if no_hooks else _set_up(place)
    _say_joined(shell, known, changes, faults)


@contextlib.contextmanager
def _as_arguments() -> Iterator[None]:
    """Turn what would be wrong in the settings into a wrong argument: nothing of it stands in the settings yet."""
    try:
        yield
    except ConfigFault as fault:
        raise UsageError(f"{fault.detail}; nothing was changed") from fault
    except RemoteNonsense as fault:
        advice = "give the address that its owner gave you, as https://home.example:8443"
        raise UsageError(f"what answers there is no Perdure home ({fault.detail}): {advice}") from fault


def _refuse_own_archive(place: Path) -> None:
    """Raise UsageError for a home that holds runs: a machine that joins another keeps none itself."""
    kept = (place / "archive" / kind for kind in ("runs", "packs"))
    if any(folder.is_dir() and any(folder.iterdir()) for folder in kept):
        raise UsageError(f"{place} holds an archive of its own: exchange it with `perdure sync`, or join from another "
                         "folder (--home)")  # fmt: skip


def _secret(secret_file: str | None) -> str:
    """What proves this machine; asked for where no file says it. Raises UsageError for what cannot be one."""
    if secret_file is None:
        said = click.prompt("Secret of this machine", hide_input=True, err=True)
    elif secret_file == "-":
        said = sys.stdin.read(10_000)
    else:
        try:
            said = Path(secret_file).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{secret_file}: {error}") from error
    secret = str(said).strip()
    if not secret.isascii() or not secret.isprintable() or not secret or " " in secret:
        raise UsageError("that is no secret: it is one word, as `perdure machine register` printed it")
    return secret


def _proven(there: Remote, secret: str, name: str | None) -> Credential:
    """The credential, as the home says whose it is. Raises SecretRefused, UsageError, RemoteFault."""
    line = remote.Line(there, secret)
    try:
        said = line.ask("GET", "me")
    except RemoteRefused as error:
        raise SecretRefused(there.url) from error
    finally:
        line.close()
    body = said.body if said.status == 200 else {}
    user, machine_id, machine = (body.get(key) for key in ("user", "machine_id", "machine"))
    if not (isinstance(user, str) and isinstance(machine_id, str) and isinstance(machine, str)):
        raise RemoteNonsense(f"{there.url}: status {said.status} to who this is")
    if name and machine != name:
        raise UsageError(f"this is the secret of {machine!r}, not of {name!r}; nothing was changed")
    return Credential(user, machine_id, machine, secret, there.url)


def _set_up(place: Path) -> tuple[list[tuple[str, setup.Change]], list[str]]:
    """([(client, change made)], what could not be done) for every client that is on this machine."""
    changes, faults = [], []
    for client, root in places.roots(settings.user_home(), settings.environment):
        if client not in setup.CLIENTS or not root.is_dir():
            continue
        try:
            path = setup.settings_path(client, settings.user_home(), settings.environment)
            change = setup.install(client, path, setup.program(place))
            setup.apply(change, keep=True)
            changes.append((client, change))
        except PerdureError as fault:
            faults.append(f"{client}: {fault}")
    return changes, faults


def _say_joined(shell: Shell, known: Credential, changes: list[tuple[str, setup.Change]], faults: list[str]) -> None:
    if shell.as_json:
        rows = [{"client": client, "path": str(one.path), "changed": one.is_one} for client, one in changes]
        shell.answer({
            "user": known.user_id, "machine": known.machine, "url": known.url, "clients": rows, "faults": faults,
        })  # fmt: skip
        return
    click.echo(f"This is {known.machine}, a machine of {known.user_id}'s, at {known.url}.")
    for client, change in changes:
        what = "every turn is captured, and what matters is put beside each message" if change.is_one else "as it was"
        click.echo(f"  {client}: {change.path} ({what})")
    for fault in faults:
        click.echo(f"  {fault}", err=True)
    if any(client == "codex" and change.is_one for client, change in changes):
        click.echo("Codex runs no hook before you trust it: start it, type /hooks, and trust Perdure's.")
    if not changes and not faults:
        click.echo("No client was set up; `perdure install CLIENT` does that.")
    click.echo("Try it: start a client anew and say something; `perdure search` finds it here and at the home.")
    click.echo("`perdure doctor` checks everything, `perdure leave` undoes this.")


# leave ------------------------------------------------------------------------------------------------------------


@command("leave", epilog="  perdure leave\n  perdure leave --hooks      take Perdure out of the clients, too")
@click.option("--hooks", "with_hooks", is_flag=True, help="Also take Perdure out of the settings of your clients.")
def leave_command(shell: Shell, with_hooks: bool) -> None:
    """Make this a machine of its own again: the credential is deleted here, the address taken out of the settings.
    What waits in the outbox stays there. At the home, `perdure machine revoke` ends the credential itself.
    """
    place = settings.home_path(shell.home)
    text = without_remote(_settings_text(place))
    try:
        left = credential.read(place)
    except CredentialFault:
        left = None
    if left is None and text == _settings_text(place):
        raise UsageError(f"{place} belongs to no other home")
    taken_out, faults = _taken_out(place) if with_hooks else ([], [])
    (place / credential.NAME).unlink(missing_ok=True)
    files.replace(place / "config.toml", text.encode())
    remote.is_there(place)
    failures.over(place, "credential")
    waiting = outbox.backlog(place / "outbox")
    if shell.as_json:
        shell.answer({"left": left.url if left else None, "waiting": waiting.n_files, "clients": taken_out,
                      "faults": faults})  # fmt: skip
        return
    click.echo(f"Left {left.url if left else 'the home'}. Its `perdure machine revoke` ends the credential there.")
    for line in (*(f"{client}: taken out" for client in taken_out), *faults):
        click.echo(f"  {line}")
    if waiting.n_files:
        click.echo(f"{plural(waiting.n_files, 'capture')} ({size(waiting.n_bytes)}) never sent: kept in "
                   f"{place / 'outbox'}, and archived here by the next `perdure` that keeps a home.")  # fmt: skip


def _taken_out(place: Path) -> tuple[list[str], list[str]]:
    """(clients that Perdure was taken out of, what could not be done)."""
    done, faults = [], []
    for client in setup.CLIENTS:
        path = setup.settings_path(client, settings.user_home(), settings.environment)
        try:
            commands = setup.commands(client, path)
            if commands and hooks.home_of(next(iter(commands.values()))) == str(place):
                setup.apply(setup.uninstall(client, path), keep=False)
                done.append(client)
        except (ClientFault, PerdureError) as fault:
            faults.append(f"{client}: {fault}")
    return done, faults


# push -------------------------------------------------------------------------------------------------------------


@command("push", epilog="  perdure push\n  perdure push --json")
def push_command(shell: Shell) -> None:
    """Send what waits in the outbox to the remote home now. It goes by itself at the end of each turn; this is for
    what had to wait. Exit status 1 when the home does not take it; nothing is lost by that.
    """
    rules = of_this_machine(shell)
    box = rules.home / "outbox"
    n_aside = _n_aside(box)
    sent: list[int] = []
    try:
        with _bar(shell, outbox.backlog(box).n_bytes) as step:

            def note(n_bytes: int) -> None:
                sent.append(n_bytes)
                step(n_bytes)

            _push(rules, note)
    finally:
        alert.of_outbox(rules)
    failures.over(rules.home, "credential")
    failures.over(rules.home, "ship")
    n_aside = _n_aside(box) - n_aside
    if shell.as_json:
        shell.answer({"sent": len(sent), "bytes": sum(sent), "set_aside": n_aside})
        return
    click.echo(f"{plural(len(sent), 'capture')} sent ({size(sum(sent))})." if sent else "Nothing waits.")
    if n_aside:
        click.echo(f"{plural(n_aside, 'capture')} the home cannot take: set aside in the outbox.", err=True)


def _push(rules: Rules, progress: Callable[[int], object]) -> None:
    """Send what waits. A home that asks for a pause gets it, as long as it took something since the last."""
    n_before = -1
    while True:
        try:
            ship.ship(rules, wait_s=_WAIT_S, progress=progress)
        except RemoteAway as fault:
            n_now = outbox.backlog(rules.home / "outbox").n_files
            if not 0 < fault.after_s <= _WAIT_S or n_now == n_before:
                raise
            n_before = n_now
            time.sleep(fault.after_s)
        else:
            return


def _n_aside(box: Path) -> int:
    return sum(1 for _ in box.glob("*.unreadable"))


@contextlib.contextmanager
def _bar(shell: Shell, n_bytes: int) -> Iterator[Callable[[int], object]]:
    """A bar where somebody watches; what it yields takes how much more is done."""
    if shell.as_json or not n_bytes or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=n_bytes, label="sending", file=sys.stderr) as bar:
        yield bar.update


def of_this_machine(shell: Shell) -> Rules:
    """The rules of a machine that has joined a home. Raises UsageError on another."""
    rules = shell.thin()
    if rules is None:
        raise UsageError("this machine has joined no home: `perdure join URL` does that")
    return rules


# the settings -----------------------------------------------------------------------------------------------------


def _settings_text(place: Path) -> str:
    try:
        return (place / "config.toml").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigFault(f"{place / 'config.toml'}: {error}") from error


def with_remote(text: str, there: Remote) -> str:
    """Settings that name the remote home, and say otherwise what they said. Raises ConfigFault where that fails.

    >>> with_remote("agent = 'a'\\n", Remote("https://h"))
    "agent = 'a'\\n\\n[remote]\\nurl = \\"https://h\\"\\n"
    """
    table = {name: value for name, value in there._asdict().items() if value}
    rows = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in table.items()]
    left = _kept_rows(text, drop_head=False)
    at = next((i for i, row in enumerate(left) if _HEAD.match(row)), None)
    if at is None:
        left += ["", "[remote]"] if left else ["[remote]"]
        at = len(left) - 1
    made = "\n".join([*left[: at + 1], *rows, *left[at + 1 :]]) + "\n"
    return _meaning(made, {**_parsed(text), "remote": table})


def without_remote(text: str) -> str:
    """Settings that name no remote home, and say otherwise what they said. Raises ConfigFault where that fails."""
    said = _parsed(text)
    if "remote" not in said:
        return text
    rows = _kept_rows(text, drop_head=True)
    made = "\n".join(rows).rstrip("\n") + "\n" if any(rows) else ""
    return _meaning(made, {name: value for name, value in said.items() if name != "remote"})


def _kept_rows(text: str, *, drop_head: bool) -> list[str]:
    """The lines without those that say where the remote home is."""
    kept, is_inside = [], False
    for row in text.splitlines():
        if _SECTION.match(row):
            is_inside = bool(_HEAD.match(row))
            if is_inside and drop_head:
                continue
        if not (is_inside and _KEY.match(row)):
            kept.append(row)
    return kept


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigFault(f"config.toml: {error}") from error


def _meaning(made: str, wanted: Mapping[str, Any]) -> str:
    """The new text, if it means what it must."""
    try:
        if tomllib.loads(made) == wanted:
            return made
    except tomllib.TOMLDecodeError:
        pass
    raise ConfigFault("config.toml: `remote` stands in it in a form that is not changed here: write it as a [remote] "
                      "table, or take it out")  # fmt: skip
