"""Commands that set clients up, and take Perdure out of them again."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from perdure import config as settings
from perdure.clients import servers, setup
from perdure.errors import ClientFault, PackageMissing, PerdureError, UsageError
from perdure.surfaces.cli.common import Shell, command

_NAMES = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "pi": "pi",
    "gemini-cli": "Gemini CLI",
    "opencode": "OpenCode",
}
_CLIENT = click.Choice(setup.CLIENTS)
_DRY = click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")


@command(
    "install",
    epilog="""\
  perdure install claude-code --dry-run     see what would change
  perdure install claude-code
  perdure install codex                     then trust its hooks once: /hooks in Codex
  perdure install pi
  perdure install gemini-cli
  perdure install opencode
  perdure install claude-code --mcp         its agents also get tools: recall, search, remember, forget""",
)
@click.argument("client", type=_CLIENT)
@click.option("--mcp", is_flag=True, help="Give it the tools of `perdure mcp` as well: recall, search, remember, …")
@_DRY
def install_command(shell: Shell, client: str, mcp: bool, dry_run: bool) -> None:
    """Set a client up: from then on every turn is captured, and what matters is put beside every message. Other
    settings stay as they are; what was there is kept beside the file, for `perdure uninstall`.
    """
    home = settings.home_path(shell.home)
    changes = _additions(client, home, mcp=mcp)
    if not dry_run:
        if shell.thin() is None:
            shell.open(create=True).close()
        for change in changes:
            setup.apply(change, keep=True)
    is_news = any(one.is_one for one in changes)
    advice = _advice(client, home) if is_news else "It was set up like this already."
    _report(shell, client, changes, dry_run, f"{_NAMES[client]} is set up.", advice)


def _additions(client: str, home: Path, *, mcp: bool) -> list[setup.Change]:
    """All that sets a client up, one change for each file, before any is made. Raises what refuses one of them."""
    change = setup.install(client, _path(client), setup.program(home))
    if not mcp:
        return [change]
    served = _served(client, home, change)
    return [served] if served.path == change.path else [change, served]


def _served(client: str, home: Path, on: setup.Change) -> setup.Change:
    """The change that gives a client our tools. Raises UsageError for one that knows no such tools."""
    if client not in servers.CLIENTS:
        raise UsageError(f"{_NAMES[client]} takes no MCP servers; its agents can run `perdure` in a shell")
    if importlib.util.find_spec("mcp") is None:
        raise PackageMissing("pip install 'perdure[mcp]'")
    return setup.install_server(client, _servers_path(client), servers.server(sys.executable, str(home)), on=on)


def _servers_path(client: str) -> Path:
    return servers.settings_path(client, settings.user_home(), settings.environment)


@command("uninstall", epilog="  perdure uninstall codex --dry-run\n  perdure uninstall codex")
@click.argument("client", type=_CLIENT)
@_DRY
def uninstall_command(shell: Shell, client: str, dry_run: bool) -> None:
    """Take Perdure out of a client's settings. What was captured stays in the home."""
    changes, faults = _removals(client)
    if not dry_run:
        faults += [fault for change in changes for fault in _taken_out(change)]
    is_news = any(change.is_one for change in changes)
    advice = "Sessions that are open now keep what they were started with." if is_news else "It was not set up."
    if not faults:
        return _report(shell, client, changes, dry_run, f"Perdure is out of {_NAMES[client]}.", advice)
    if is_news and not shell.as_json:
        _report(shell, client, changes, dry_run, "Perdure is out of what could be changed.", advice)
    for fault in faults[1:]:
        shell.note(str(fault))
    raise faults[0]


def _removals(client: str) -> tuple[list[setup.Change], list[PerdureError]]:
    """(one change for each file that Perdure is taken out of, what is wrong with the others)."""
    changes: list[setup.Change] = []
    faults: list[PerdureError] = []
    try:
        if client in servers.CLIENTS:
            changes.append(setup.uninstall_server(client, _servers_path(client)))
    except ClientFault as fault:
        faults.append(fault)
    try:
        change = setup.uninstall(client, _path(client), on=changes[0] if changes else None)
        changes = [*(one for one in changes if one.path != change.path), change]
    except ClientFault as fault:
        faults.append(fault)
    return changes, faults


def _taken_out(change: setup.Change) -> list[PerdureError]:
    """What went wrong when a change was made."""
    try:
        setup.apply(change, keep=False)
    except PerdureError as fault:
        return [fault]
    return []


def _path(client: str) -> Path:
    return setup.settings_path(client, settings.user_home(), settings.environment)


def _advice(client: str, home: Path) -> str:
    start = f"Start it anew, and ask `perdure doctor` whether it works. It writes to {home}."
    if client == "codex":
        return f"Codex runs no hook before you trust it: start it, type /hooks, and trust Perdure's. {start}"
    return start


def _report(shell: Shell, client: str, changes: Sequence[setup.Change], dry_run: bool, done: str, advice: str) -> None:
    made = [change for change in changes if change.is_one]
    if shell.as_json:
        files = [{"path": str(one.path), "changed": one.is_one, "diff": one.diff()} for one in changes]
        shell.answer(
            {"client": client, "changed": bool(made), "dry_run": dry_run, "files": files, "advice": advice}
        )  # fmt: skip
        return
    for change in made:
        shell.out.print(change.diff(), markup=False, end="")
    if not made:
        shell.out.print(f"{changes[0].path}: nothing changes.", markup=False)
    if dry_run:
        shell.note("Nothing was changed (--dry-run).")
        return
    shell.out.print(done if made else "Nothing was changed.")
    shell.note(advice)
