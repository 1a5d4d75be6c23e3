"""Commands that set clients up, and take Perdure out of them again."""

from __future__ import annotations

from pathlib import Path

import click

from perdure import config as settings
from perdure.clients import setup
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
  perdure install opencode""",
)
@click.argument("client", type=_CLIENT)
@_DRY
def install_command(shell: Shell, client: str, dry_run: bool) -> None:
    """Set a client up: from then on every turn is captured, and what matters is put beside every message. Other
    settings stay as they are; what was there is kept beside the file, for `perdure uninstall`.
    """
    home = settings.home_path(shell.home)
    path = _path(client)
    change = setup.install(client, path, setup.program(home))
    if not dry_run:
        with shell.open(create=True):
            setup.apply(change, keep=True)
    advice = _advice(client, home) if change.is_one else "It was set up like this already."
    _report(shell, client, change, dry_run, f"{_NAMES[client]} is set up.", advice)


@command("uninstall", epilog="  perdure uninstall codex --dry-run\n  perdure uninstall codex")
@click.argument("client", type=_CLIENT)
@_DRY
def uninstall_command(shell: Shell, client: str, dry_run: bool) -> None:
    """Take Perdure out of a client's settings. What was captured stays in the home."""
    change = setup.uninstall(client, _path(client))
    if not dry_run and change.is_one:
        setup.apply(change, keep=False)
    advice = "Sessions that are open now keep what they were started with." if change.is_one else "It was not set up."
    _report(shell, client, change, dry_run, f"Perdure is out of {_NAMES[client]}.", advice)


def _path(client: str) -> Path:
    return setup.settings_path(client, settings.user_home(), settings.environment)


def _advice(client: str, home: Path) -> str:
    start = f"Start it anew, and ask `perdure doctor` whether it works. It writes to {home}."
    if client == "codex":
        return f"Codex runs no hook before you trust it: start it, type /hooks, and trust Perdure's. {start}"
    return start


def _report(shell: Shell, client: str, change: setup.Change, dry_run: bool, done: str, advice: str) -> None:
    diff = change.diff()
    if shell.as_json:
        shell.answer(
            {"client": client, "path": str(change.path), "changed": change.is_one, "dry_run": dry_run, "diff": diff,
             "advice": advice}
        )  # fmt: skip
        return
    shell.out.print(diff or f"{change.path}: nothing changes.", markup=False, end="" if diff else "\n")
    if dry_run:
        shell.note("Nothing was changed (--dry-run).")
        return
    shell.out.print(done if change.is_one else "Nothing was changed.")
    shell.note(advice)
