"""Commands of a thin machine, which keeps nothing itself: join, push, leave. They need click alone."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from perdure import config as settings
from perdure import disk
from perdure.capture import alert, credential, deliver, enqueue, failures, remote, transcripts
from perdure.capture.credential import Credential
from perdure.capture.policy import CaptureRules, RemoteSettings
from perdure.clients import entries, setup
from perdure.errors import (
    CertificateRefused,
    ClientFault,
    ConfigFault,
    CredentialFault,
    JoinFault,
    PerdureError,
    RemoteAway,
    RemoteNonsense,
    RemoteRefused,
    SecretRefused,
    UsageError,
)
from perdure.surfaces.cli.common import Shell, command, format_count, format_size, read_text
from perdure.surfaces.cli.settings_file import read_settings, set_values

_PROBE_LIMIT_S = 10.0  # limit for the first answer of an address
_BACKLOG_LIMIT_S = 20.0  # limit for sending what waits when a machine joins
_SENDER_WAIT_S = 60.0  # how long to wait for another process that is sending

# join -------------------------------------------------------------------------------------------------------------


@command(
    "join",
    epilog="""\
  perdure join https://home.example:8443
  perdure join https://home.example:8443 --name laptop --no-hooks
  perdure join https://home.example:8443 --secret-file - < secret.txt
  perdure join https://home.example:8443 --ca ~/family-ca.pem
  perdure join https://home.example:8443 --handle anna.family.example""",
)
@click.argument("url")
@click.option(
    "--name", help="The name under which this machine was registered; the secret of another machine is refused."
)
@click.option(
    "--secret-file", metavar="FILE", help="Read the secret from a file (- for standard input) instead of asking for it."
)
@click.option(
    "--handle", metavar="HANDLE|DID", help="Prove who you are by your server of the AT Protocol; no secret is needed."
)
@click.option("--ca", metavar="FILE", help="Trust this certificate authority for https (a PEM file).")
@click.option("--plain", is_flag=True, help="Allow http:// to another machine. Use it only in a private network.")
@click.option("--no-hooks", is_flag=True, help="Do not change the settings of your clients.")
@click.option(
    "--replace", "replace_credential", is_flag=True, help="Replace the credential that this machine already has."
)
def join_command(
    shell: Shell, url: str, name: str | None, secret_file: str | None, handle: str | None, ca: str | None, plain: bool,
    no_hooks: bool, replace_credential: bool,
) -> None:  # fmt: skip
    """Connect this machine to a home on another machine: captures go to that home, and recall comes from it. This
    machine stores only captures that are not sent yet. `perdure machine register` prints the secret, at the home. With
    --handle no secret is needed, if your user there is linked to your DID: you give your password to your own server,
    which makes an app password for this machine.
    """
    home = settings.find_home_path(shell.home)
    remote_settings = RemoteSettings(url.rstrip("/"), str(Path(ca).expanduser().absolute()) if ca else "", plain)
    _refuse_own_archive(home)
    if not replace_credential:
        credential.check_same_home(home, remote_settings.url)
    settings_text = add_remote(read_settings(home), remote_settings)
    with _raise_join_faults():
        remote.check_home(remote_settings, timeout_s=_PROBE_LIMIT_S)
    if handle is None:
        secret = _read_secret(secret_file)
    else:
        from perdure.surfaces.cli import join_person

        with _raise_join_faults():
            secret = join_person.join_as_person(home, remote_settings, handle, name, secret_file)
    with _raise_join_faults():
        own_credential = _verify_credential(remote_settings, secret, name)
    if not replace_credential:
        credential.check_same_owner(home, own_credential)
    _refuse_foreign_captures(home, own_credential)
    _store_membership(home, own_credential, settings_text)
    remote.mark_available(home)
    failures.end_remote_incidents(home)
    changes, faults = ([], []) if no_hooks else _install_hooks(home)
    _print_joined(shell, own_credential, changes, faults, _send_backlog(shell))


def _store_membership(home: Path, own_credential: Credential, settings_text: str) -> None:
    """Write the credential and the settings; if that fails, restore what was there before."""
    is_new = not home.exists()
    path = home / credential.CREDENTIAL_FILE
    earlier = path.read_bytes() if path.exists() else None
    try:
        credential.write_credential(home, own_credential, overwrite=True)  # the caller has checked that it may
        disk.replace_file(home / "config.toml", settings_text.encode())
    except (PerdureError, OSError):
        with contextlib.suppress(PerdureError, OSError):  # the first fault is the one to report
            path.unlink(missing_ok=True)
            if earlier is not None:
                disk.replace_file(path, earlier)
            if is_new:
                home.rmdir()
        raise


class _BacklogResult(NamedTuple):
    """The result of sending the captures that waited when a machine joined."""

    n_sent: int
    n_waiting: int
    why: str  # why they still wait, as the home says; may be empty


def _send_backlog(shell: Shell) -> _BacklogResult:
    """Send the captures that wait for this home, for at most _BACKLOG_LIMIT_S seconds."""
    rules, sent_sizes, reason = require_thin_rules(shell), list[int](), ""
    try:
        deliver.deliver_outbox(rules, deadline_s=time.monotonic() + _BACKLOG_LIMIT_S, progress=sent_sizes.append)
    except PerdureError as fault:
        reason = fault.detail
    return _BacklogResult(len(sent_sizes), enqueue.measure_backlog(rules.home / "outbox").n_files, reason)


@contextlib.contextmanager
def _raise_join_faults() -> Iterator[None]:
    """Raise what an address does with the advice for joining: nothing is written yet, so nothing waits or is wrong."""
    try:
        yield
    except ConfigFault as fault:
        raise UsageError(f"{fault.detail}; nothing was changed") from fault
    except CertificateRefused:
        raise
    except RemoteAway as fault:
        raise JoinFault(fault.detail) from fault
    except RemoteNonsense as fault:
        advice = "ask the owner of the home for its address, as https://home.example:8443"
        raise UsageError(f"this address does not answer as a Perdure home ({fault.detail}): {advice}") from fault


def _refuse_own_archive(home: Path) -> None:
    """Raise UsageError for a home that holds runs: a machine that joins another home keeps none itself."""
    archive_folders = (home / "archive" / kind for kind in ("runs", "packs"))
    if any(folder.is_dir() and any(folder.iterdir()) for folder in archive_folders):
        raise UsageError(
            f"{home} already holds an archive: exchange it with `perdure sync`, or join from another folder (--home)"
        )


def _refuse_foreign_captures(home: Path, own_credential: Credential) -> None:
    """Raise UsageError while captures of another person wait here: they would go to this person's home."""
    outbox_folder = home / "outbox"
    if n_others := enqueue.count_foreign_deltas(outbox_folder, own_credential.user_id):
        raise UsageError(
            f"{format_count(n_others, 'capture')} of another user than {own_credential.user_id} "
            f"in {outbox_folder} would become "
            "theirs: `perdure push` sends them while the old credential holds; or move them away, or join "
            "from another folder (--home); nothing was changed"
        )


def _read_secret(secret_file: str | None) -> str:
    """Read the secret of this machine. Raises UsageError if it cannot be a secret."""
    secret = read_text(secret_file, "Secret of this machine").strip()
    if not secret.isascii() or not secret.isprintable() or not secret or " " in secret:
        raise UsageError("this is not a secret: a secret is one word, as `perdure machine register` printed it")
    return secret


def _verify_credential(remote_settings: RemoteSettings, secret: str, name: str | None) -> Credential:
    """Ask the home whose secret this is; return the credential. Raises SecretRefused, UsageError, RemoteFault."""
    connection = remote.RemoteConnection(remote_settings, secret)
    try:
        response = connection.ask("GET", "me")
    except RemoteRefused as error:
        raise SecretRefused(remote_settings.url) from error
    finally:
        connection.close()
    body = response.body if response.status == 200 else {}
    user, machine_id, machine = (body.get(key) for key in ("user", "machine_id", "machine"))
    if not (isinstance(user, str) and isinstance(machine_id, str) and isinstance(machine, str)):
        raise RemoteNonsense(f"{remote_settings.url}: status {response.status} to the request `me`")
    if name and machine != name:
        raise UsageError(f"this is the secret of {machine!r}, not of {name!r}; nothing was changed")
    return Credential(user, machine_id, machine, secret, remote_settings.url)


def _install_hooks(home: Path) -> tuple[list[tuple[str, setup.SettingsChange]], list[str]]:
    """Install the hooks of every client on this machine; return ([(client, change made)], faults)."""
    changes, faults = [], []
    for client, root in transcripts.list_roots(settings.find_user_home(), settings.read_variable):
        if client not in setup.CLIENTS or not root.is_dir():
            continue
        try:
            path = setup.find_client_settings(client, settings.find_user_home(), settings.read_variable)
            program = setup.make_program(home)
            setup.write_script(program)
            change = setup.plan_install(client, path, program)
            setup.apply_change(change, keep_copy=True)
            changes.append((client, change))
        except PerdureError as fault:
            faults.append(f"{client}: {fault}")
    return changes, faults


def _print_joined(
    shell: Shell,
    own_credential: Credential,
    changes: list[tuple[str, setup.SettingsChange]],
    faults: list[str],
    backlog: _BacklogResult,
) -> None:
    if shell.as_json:
        rows = [
            {"client": client, "path": str(hook_change.path), "changed": hook_change.has_effect}
            for client, hook_change in changes
        ]
        shell.print_json(
            {
                "user": own_credential.user_id,
                "machine": own_credential.machine,
                "url": own_credential.url,
                "clients": rows,
                "faults": faults,
                "sent": backlog.n_sent,
                "waiting": backlog.n_waiting,
            }
        )
        return
    click.echo(f"This is {own_credential.machine}, a machine of {own_credential.user_id}'s, at {own_credential.url}.")
    for client, change in changes:
        effect = (
            "every turn is captured, and each message gets the matching memories"
            if change.has_effect
            else "not changed"
        )
        click.echo(f"  {client}: {change.path} ({effect})")
    for fault in faults:
        click.echo(f"  {fault}", err=True)
    if any(client == "codex" and change.has_effect for client, change in changes):
        click.echo(
            "Codex runs a hook only after you trust it: start Codex, type /hooks, and trust the hooks of Perdure."
        )
    _print_backlog(backlog)
    if not changes and not faults:
        click.echo("No client was set up. Run `perdure install CLIENT`.")
    click.echo("To try it, restart a client and send a message; `perdure search` finds it here and at the home.")
    click.echo("`perdure doctor` checks everything, `perdure leave` undoes this.")


def _print_backlog(backlog: _BacklogResult) -> None:
    if backlog.n_sent:
        click.echo(
            f"{format_count(backlog.n_sent, 'capture')} that waited here "
            f"{'was' if backlog.n_sent == 1 else 'were'} sent."
        )
    if backlog.n_waiting:
        reason = f" ({backlog.why})" if backlog.why else ""
        verb = "waits" if backlog.n_waiting == 1 else "wait"
        click.echo(
            f"{format_count(backlog.n_waiting, 'capture')} still {verb}{reason}: `perdure push` sends the rest.",
            err=True,
        )


# leave ------------------------------------------------------------------------------------------------------------


@command("leave", epilog="  perdure leave\n  perdure leave --hooks      also remove Perdure from the clients")
@click.option("--hooks", "with_hooks", is_flag=True, help="Also remove Perdure from the settings of your clients.")
def leave_command(shell: Shell, with_hooks: bool) -> None:
    """Disconnect this machine from its home: delete the credential here, and remove the address from the settings.
    Captures in the outbox stay there; the next `perdure` command archives them in the home on this machine. To change
    only the address, use `perdure join URL --replace` instead. At the home, `perdure machine revoke` ends the
    credential.
    """
    home = settings.find_home_path(shell.home)
    settings_text = remove_remote(read_settings(home))
    try:
        old_credential = credential.read_credential(home)
    except CredentialFault:
        old_credential = None
    if old_credential is None and settings_text == read_settings(home):
        raise UsageError(f"{home} has not joined a remote home")
    client_names, faults = _uninstall_hooks(home) if with_hooks else ([], [])
    (home / credential.CREDENTIAL_FILE).unlink(missing_ok=True)
    disk.replace_file(home / "config.toml", settings_text.encode())
    remote.mark_available(home)
    failures.end_incident(home, "credential")
    waiting = enqueue.measure_backlog(home / "outbox")
    if shell.as_json:
        shell.print_json(
            {
                "left": old_credential.url if old_credential else None,
                "waiting": waiting.n_files,
                "clients": client_names,
                "faults": faults,
            }
        )
        return
    click.echo(
        f"Left {old_credential.url if old_credential else 'the home'}. "
        "Run `perdure machine revoke` there to end the credential."
    )
    for row in (*(f"{client}: removed" for client in client_names), *faults):
        click.echo(f"  {row}")
    if waiting.n_files:
        click.echo(
            f"{format_count(waiting.n_files, 'capture')} ({format_size(waiting.n_bytes)}) never sent: kept in "
            f"{home / 'outbox'}, and archived here by the next `perdure` that keeps a home."
        )


def _uninstall_hooks(home: Path) -> tuple[list[str], list[str]]:
    """Take Perdure out of the clients of this home; return (names of these clients, faults)."""
    client_names, faults = [], []
    for client in setup.CLIENTS:
        path = setup.find_client_settings(client, settings.find_user_home(), settings.read_variable)
        try:
            commands = setup.read_commands(client, path)
            if commands and entries.get_home(next(iter(commands.values()))) == str(home):
                setup.apply_change(setup.plan_uninstall(client, path), keep_copy=False)
                client_names.append(client)
        except (ClientFault, PerdureError) as fault:
            faults.append(f"{client}: {fault}")
    return client_names, faults


# push -------------------------------------------------------------------------------------------------------------


@command("push", epilog="  perdure push\n  perdure push --retry\n  perdure push --json")
@click.option("--retry", is_flag=True, help="Also send the captures that were set aside because the home refused them.")
def push_command(shell: Shell, retry: bool) -> None:
    """Send the captures in the outbox to the remote home now. Normally they are sent at the end of each turn; this
    command sends those that had to wait. Exit status 1: the home did not accept them, or some are set aside. No capture
    is lost.
    """
    rules = require_thin_rules(shell)
    outbox_folder = rules.home / "outbox"
    if retry:
        enqueue.restore_set_aside(outbox_folder)
    sent_sizes: list[int] = []
    try:
        with _show_bar(shell, enqueue.measure_backlog(outbox_folder).n_bytes) as step:

            def note(n_bytes: int) -> None:
                sent_sizes.append(n_bytes)
                step(n_bytes)

            n_held = _send_all(shell, rules, note)
    finally:
        alert.check_outbox(rules)
    failures.end_remote_incidents(rules.home, recall=bool(sent_sizes))
    _print_pushed(shell, outbox_folder, sent_sizes, n_held)
    if enqueue.list_set_aside(outbox_folder):
        sys.exit(1)


def _print_pushed(shell: Shell, outbox_folder: Path, sent_sizes: Sequence[int], n_held: int) -> None:
    n_aside = len(enqueue.list_set_aside(outbox_folder))
    if shell.as_json:
        shell.print_json({"sent": len(sent_sizes), "bytes": sum(sent_sizes), "set_aside": n_aside, "held": n_held})
        return
    empty_message = "Nothing was sent." if n_held else "No captures are waiting."
    click.echo(
        f"{format_count(len(sent_sizes), 'capture')} sent ({format_size(sum(sent_sizes))})."
        if sent_sizes
        else empty_message
    )
    if n_held:
        click.echo(
            f"{format_count(n_held, 'capture')} of another user, not sent with this "
            f"credential: kept in {outbox_folder}.",
            err=True,
        )
    if n_aside:
        message = f"{format_count(n_aside, 'capture')} refused by the home: set aside in the outbox"
        click.echo(f"{message}; `perdure push --retry` sends them again.", err=True)


def _send_all(shell: Shell, rules: CaptureRules, progress: Callable[[int], object]) -> int:
    """Send everything that waits; return how many captures belong to another person and were not sent.

    When the home asks for a pause, wait and try again, as long as it took something since the last pause.
    """
    n_before = -1
    while True:
        try:
            return deliver.deliver_outbox(rules, wait_s=_SENDER_WAIT_S, progress=progress).n_foreign
        except RemoteAway as fault:
            n_now = enqueue.measure_backlog(rules.home / "outbox").n_files
            if not 0 < fault.after_s <= _SENDER_WAIT_S or n_now == n_before:
                raise
            n_before = n_now
            if not shell.as_json:
                click.echo(f"{fault.detail}: tried again in {fault.after_s:.0f} s.", err=True)
            time.sleep(fault.after_s)


@contextlib.contextmanager
def _show_bar(shell: Shell, n_bytes: int) -> Iterator[Callable[[int], object]]:
    """Show a progress bar on a terminal; yields a function that takes how many more bytes are sent."""
    if shell.as_json or not n_bytes or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=n_bytes, label="sending", file=sys.stderr) as bar:
        yield bar.update


def require_thin_rules(shell: Shell) -> CaptureRules:
    """Return the rules of this thin machine. Raises UsageError if it has joined no home."""
    rules = shell.load_thin_rules()
    if rules is None:
        raise UsageError("this machine has not joined a home: run `perdure join URL`")
    return rules


# the settings -----------------------------------------------------------------------------------------------------


def add_remote(text: str, remote_settings: RemoteSettings) -> str:
    """Add the remote home to the text of the settings; everything else keeps its meaning. Raises ConfigFault."""
    return set_values(text, ("remote",), {name: value or None for name, value in remote_settings._asdict().items()})


def remove_remote(text: str) -> str:
    """Remove the remote home from the settings; everything else keeps its meaning. Raises ConfigFault if not
    possible.
    """
    return set_values(text, ("remote",), dict.fromkeys(RemoteSettings._fields))
