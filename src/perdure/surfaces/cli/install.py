"""Commands that set up clients and take Perdure out of them: install, uninstall."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from perdure import config as settings
from perdure.clients import entries, setup
from perdure.errors import ClientFault, PackageMissing, PerdureError, UsageError
from perdure.service import unit
from perdure.service.client import ask_health
from perdure.surfaces.cli.common import Shell, command

CLIENT_NAMES = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "pi": "pi",
    "gemini-cli": "Gemini CLI",
    "opencode": "OpenCode",
    "qwen-code": "Qwen Code",
    "kimi-code": "Kimi Code",
}
_CLIENT_CHOICE = click.Choice(setup.CLIENTS)
_DRY_RUN_OPTION = click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
_DIFF_OPTION = click.option("--diff", is_flag=True, help="Show the changed lines of each file.")
_SERVICE_ADVICE = "`perdure service install` starts Perdure at login: hooks get their answers sooner."


@command(
    "install",
    epilog="""\
  perdure install claude-code --dry-run     show the changes only
  perdure install claude-code
  perdure install claude-code --yes         also start the service at login, without a question
  perdure install codex                     then trust its hooks once: /hooks in Codex
  perdure install pi
  perdure install gemini-cli
  perdure install opencode
  perdure install qwen-code
  perdure install kimi-code
  perdure install claude-code --mcp         also add MCP tools: recall, search, remember, forget""",
)
@click.argument("client", type=_CLIENT_CHOICE)
@click.option("--mcp", is_flag=True, help="Also add the MCP tools: recall, search, remember, …")
@click.option("--yes", "service", flag_value="yes", help="Also start the service at login, without a question.")
@click.option("--no-service", "service", flag_value="no", help="Do not ask about the service.")
@_DIFF_OPTION
@_DRY_RUN_OPTION
def install_command(shell: Shell, client: str, mcp: bool, service: str | None, diff: bool, dry_run: bool) -> None:
    """Set up a client: it then captures every turn, and adds matching memories and earlier turns to every message.
    Other settings of the client stay the same. The old settings are kept in a copy next to the file, for `perdure
    uninstall`. On a terminal, the command asks whether Perdure may start at login.
    """
    home = settings.find_home_path(shell.home)
    changes = plan_client_changes(client, home, mcp=mcp)
    is_thin = shell.load_thin_rules() is not None
    if not dry_run:
        if not is_thin:
            shell.open_home(create=True).close()
        setup.write_script(setup.make_program(home))
        for change in changes:
            setup.apply_change(change, keep_copy=True)
    is_changed = any(file_change.has_effect for file_change in changes)
    advice = _build_advice(client, home) if is_changed else "It is already set up this way."
    _print_changes(
        shell, client, changes, f"{CLIENT_NAMES[client]} is set up.", advice, dry_run=dry_run, with_diff=diff
    )
    if not dry_run and not is_thin and service != "no":
        offer_service(shell, home, is_agreed=service == "yes")


def offer_service(shell: Shell, home: Path, *, is_agreed: bool) -> None:
    """Start the service of a home at login, if the person agrees, and say what was done."""
    system_service = unit.describe_local_unit(home, settings.find_user_home())
    if system_service.path.exists() or ask_health(home) is not None:
        return
    if not is_agreed:
        if shell.as_json or not sys.stdin.isatty():
            shell.note(_SERVICE_ADVICE)
            return
        question = "Start Perdure at login, so that hooks get their answers sooner?"
        if not click.confirm(question, default=True, err=True):
            shell.note(f"The service was not started. {_SERVICE_ADVICE}")
            return
    if failed := unit.install(system_service):
        unit.uninstall(system_service)
        shell.note(f"The service could not be started (`{shlex.join(failed[0])}` failed); Perdure works without it.")
    else:
        shell.note(f"The service runs now and starts at login ({system_service.path}).")


def plan_client_changes(client: str, home: Path, *, mcp: bool) -> list[setup.SettingsChange]:
    """Return all changes that set up a client, one for each file, before any is made. Raises if one is refused."""
    change = setup.plan_install(client, _find_settings_path(client), setup.make_program(home))
    if not mcp:
        return [change]
    server_change = _plan_mcp_server(client, home, change)
    return [server_change] if server_change.path == change.path else [change, server_change]


def _plan_mcp_server(client: str, home: Path, base_change: setup.SettingsChange) -> setup.SettingsChange:
    """Return the change that gives a client the MCP tools.

    Raises UsageError for a client without MCP, PackageMissing if the `mcp` package is not installed.
    """
    if client not in entries.CLIENTS:
        raise UsageError(f"{CLIENT_NAMES[client]} supports no MCP servers; its agents can run `perdure` in a shell")
    if importlib.util.find_spec("mcp") is None:
        raise PackageMissing("pip install 'perdure[mcp]'")
    return setup.plan_install_server(
        client,
        _find_servers_path(client),
        entries.make_server_command(sys.executable, str(home)),
        earlier_change=base_change,
    )


def _find_servers_path(client: str) -> Path:
    return entries.find_server_settings(client, settings.find_user_home(), settings.read_variable)


@command("uninstall", epilog="  perdure uninstall codex --dry-run\n  perdure uninstall codex")
@click.argument("client", type=_CLIENT_CHOICE)
@_DIFF_OPTION
@_DRY_RUN_OPTION
def uninstall_command(shell: Shell, client: str, diff: bool, dry_run: bool) -> None:
    """Remove Perdure from the settings of a client. Captured data stays in the home."""
    changes, faults = _plan_uninstall(client)
    if not dry_run:
        faults += [fault for change in changes for fault in _apply_removal(change)]
    is_changed = any(change.has_effect for change in changes)
    advice = "Open sessions keep the old settings until they end." if is_changed else "It is not set up."
    advice += f" The archive stays in {settings.find_home_path(shell.home)}: delete that folder to remove it too."
    if not faults:
        message = f"Perdure is removed from {CLIENT_NAMES[client]}."
        return _print_changes(shell, client, changes, message, advice, dry_run=dry_run, with_diff=diff)
    if is_changed and not shell.as_json:
        message = "Perdure is removed from the settings that could be changed."
        _print_changes(shell, client, changes, message, advice, dry_run=dry_run, with_diff=diff)
    for fault in faults[1:]:
        shell.note(str(fault))
    raise faults[0]


def _plan_uninstall(client: str) -> tuple[list[setup.SettingsChange], list[PerdureError]]:
    """Return (one change for each file that Perdure is taken out of, the faults of the other files)."""
    changes: list[setup.SettingsChange] = []
    faults: list[PerdureError] = []
    try:
        if client in entries.CLIENTS:
            changes.append(setup.plan_uninstall_server(client, _find_servers_path(client)))
    except ClientFault as fault:
        faults.append(fault)
    try:
        change = setup.plan_uninstall(
            client, _find_settings_path(client), earlier_change=changes[0] if changes else None
        )
        changes = [*(other for other in changes if other.path != change.path), change]
    except ClientFault as fault:
        faults.append(fault)
    return changes, faults


def _apply_removal(change: setup.SettingsChange) -> list[PerdureError]:
    """Apply a change; return the fault, if there is one."""
    try:
        setup.apply_change(change, keep_copy=False)
    except PerdureError as fault:
        return [fault]
    return []


def _find_settings_path(client: str) -> Path:
    return setup.find_client_settings(client, settings.find_user_home(), settings.read_variable)


def _build_advice(client: str, home: Path) -> str:
    restart_advice = f"Restart the client, then run `perdure doctor` to check it. Captures go to {home}."
    if client == "codex":
        return (
            "Codex runs a hook only after you trust it: start Codex, type /hooks, and "
            f"trust the hooks of Perdure. {restart_advice}"
        )
    return restart_advice


def _print_changes(
    shell: Shell,
    client: str,
    changes: Sequence[setup.SettingsChange],
    message: str,
    advice: str,
    *,
    dry_run: bool,
    with_diff: bool,
) -> None:
    """Print one line for each file, with its changed lines for --diff and --dry-run."""
    real_changes = [change for change in changes if change.has_effect]
    if shell.as_json:
        files = [
            {"path": str(file_change.path), "changed": file_change.has_effect, "diff": file_change.diff()}
            for file_change in changes
        ]
        shell.print_json(
            {"client": client, "changed": bool(real_changes), "dry_run": dry_run, "files": files, "advice": advice}
        )
        return
    for change in real_changes:
        verb = "created" if change.before is None else "deleted" if change.after is None else "changed"
        shell.out.print(f"{change.path}: {'would be ' if dry_run else ''}{verb}", markup=False)
        if with_diff or dry_run:
            shell.out.print(change.diff(), markup=False, end="")
    if not real_changes:
        shell.out.print(f"{changes[0].path}: no change.", markup=False)
    if dry_run:
        shell.note("Nothing was changed (--dry-run).")
        return
    shell.out.print(message if real_changes else "Nothing was changed.")
    shell.note(advice)
