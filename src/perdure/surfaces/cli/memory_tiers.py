"""The commands that bring up, check and stop the back ends of the tiers."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from perdure.disk import lock_file, make_folder
from perdure.errors import IndexMissing, PerdureError, TierFault, UsageError
from perdure.lazy_module import LazyModule
from perdure.surfaces.cli.common import Shell, command, format_count

if TYPE_CHECKING:
    from perdure.home import Home
    from perdure.workflow import tier_setup
    from perdure.workflow.tier_setup import TierBackEnd
else:
    tier_setup = LazyModule("perdure.workflow.tier_setup")  # not part of the client

_MAX_WAIT_S = 90.0
_TIERS = {"redis": "ledger, checkpoint", "blobs": "scratchpad"}
_SUMMARY = "summary"
env_file_option = click.option(
    "--env-file", type=click.Path(path_type=Path, dir_okay=False), default=".env", show_default=True,
    help="The environment file of your program.",
)  # fmt: skip


# init -----------------------------------------------------------------------------------------------------------


@command(
    "init",
    epilog="""\
  perdure memory init                            asks, at a terminal; otherwise --redis --blobs folder
  perdure memory init --redis --blobs s3
  perdure memory init --no-redis --blobs ~/tiers
  perdure memory init --blobs s3://bucket/folder --env-file production.env""",
)
@click.option("--redis/--no-redis", default=None, help="Ledger and checkpoints, in a Redis-compatible server.")
@click.option(
    "--blobs", metavar="folder|s3|none|PLACE", default=None,
    help="The scratchpad: in the home, in an S3-compatible store, in your own folder or s3://BUCKET/FOLDER. With "
    "--redis, the summary too.",
)  # fmt: skip
@click.option("--own", is_flag=True, help="Take no server but those of this home, also where others run.")
@env_file_option
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0, _MAX_WAIT_S), default=_MAX_WAIT_S, show_default=True,
    help="The most seconds to wait for a server.",
)  # fmt: skip
def init_command(
    shell: Shell, redis: bool | None, blobs: str | None, own: bool, env_file: Path, wait_s: float
) -> None:  # fmt: skip
    """Find the back ends of the tiers, or bring them up, and write the environment file that your program reads.

    A server that is set in the environment or in the environment file counts, then one of this home, then one that runs
    on this machine at its usual port. Where there is none, one is started for this home: it listens on this machine
    alone, has a password of its own, and stays until `perdure memory stop` or the next boot. A program that is missing
    is downloaded from PyPI. Lines of the environment file are added, never changed. Run it again at any time.
    """
    if redis is None and blobs is None and not shell.as_json and sys.stdin.isatty():
        redis, blobs = _ask()
    with shell.open_home(create=True) as home:
        folder = tier_setup.get_folder(home.path)
        make_folder(folder)
        with lock_file(folder / "init.lock"):
            back_ends = _choose(
                folder, tier_setup.read_variables(home.path, env_file), redis is not False, blobs, own=own
            )
            variables = {name: value for back_end in back_ends for name, value in back_end.variables.items()}
            _refuse_conflicts(env_file, variables)
            rows = [_bring_up(shell, back_end, folder, wait_s) for back_end in back_ends]
            tier_setup.keep_variables(home.path, variables)
            added = tier_setup.add_to_env_file(env_file, variables)
    _print_init(shell, rows, env_file, added)


def _ask() -> tuple[bool, str]:
    """Ask a person which tiers are wanted."""
    redis = click.confirm("Ledger and checkpoints (a Redis-compatible server)?", default=True, err=True)
    kinds = click.Choice(["folder", "s3", "none"])
    return redis, click.prompt("Where do scratchpad and summary go?", type=kinds, default="folder", err=True)


def _choose(
    folder: Path, variables: dict[str, str], wants_redis: bool, blobs: str | None, *, own: bool
) -> list[TierBackEnd]:  # fmt: skip
    back_ends = [tier_setup.choose_redis(folder, variables, own=own)] if wants_redis else []
    if blobs != "none":
        back_ends.append(tier_setup.choose_blobs(folder, variables, blobs or "", own=own))
    return back_ends


def _refuse_conflicts(env_file: Path, variables: dict[str, str]) -> None:
    if names := tier_setup.list_conflicts(env_file, variables):
        raise UsageError(
            f"{env_file}, or the environment, sets {', '.join(names)} to something else, and that is not changed: "
            "remove it there, or name another --env-file. Nothing was started"
        )


def _bring_up(shell: Shell, back_end: TierBackEnd, folder: Path, wait_s: float) -> dict[str, Any]:
    started_s = time.monotonic()
    is_new = tier_setup.bring_up(back_end, folder, wait_s=wait_s, note=shell.note)
    took_s = round(time.monotonic() - started_s, 2)
    origin = "started" if is_new else "running" if back_end.server or "://" in back_end.address else "folder"
    return {
        "back_end": back_end.name,
        "tiers": _TIERS[back_end.name],
        "address": back_end.shown_address,
        "own": back_end.server is not None,
        "state": origin,
        "took_s": took_s,
    }


def _print_init(shell: Shell, rows: list[dict[str, Any]], env_file: Path, added: list[str]) -> None:
    is_exposed = bool(added) and _is_in_git(env_file)
    if shell.as_json:
        shell.print_json(
            {"back_ends": rows, "env_file": str(env_file), "added": added},
            next_actions=[("perdure memory status", "check every tier")],
        )
        return
    for row in rows:
        state = {"started": f"started in {row['took_s']:.1f} s", "running": "runs already", "folder": "a folder"}
        shell.out.print(f"{row['tiers']:<20}{row['address']}  ({state[row['state']]})", markup=False)
    names = f"{format_count(len(added), 'line')} added: {', '.join(added)}" if added else "nothing to add"
    shell.out.print(f"{'environment':<20}{env_file}  ({names})", markup=False)
    if is_exposed:
        shell.note(f"{env_file} has passwords and git does not ignore it: add it to .gitignore.")
    shell.suggest([("perdure memory status", "check every tier")])


def _is_in_git(path: Path) -> bool:
    """Return True if git would take the file."""
    ask = ["git", "-C", str(path.absolute().parent), "check-ignore", "--quiet", path.name]
    try:
        return subprocess.run(ask, capture_output=True, check=False, timeout=5).returncode == 1
    except (OSError, subprocess.TimeoutExpired):
        return False


# status ---------------------------------------------------------------------------------------------------------


@command("status", epilog="  perdure memory status\n  perdure memory status --json")
@env_file_option
def status_command(shell: Shell, env_file: Path) -> None:
    """Check every tier with a write, and the home behind them. Exit status 1: one is down, and the answer says which
    one and what to do. A tier that is not set is off, and no failure.
    """
    with shell.open_home(create=True) as home:
        back_ends = {back_end.name: back_end for back_end in tier_setup.find_back_ends(home.path, env_file)}
        rows = [_check_back_end(name, back_ends.get(name)) for name in _TIERS]
        rows.insert(2, _join_summary(rows))
        rows.append(_check_home(home))
    is_down = any(row["state"] == "down" for row in rows)
    actions = [] if back_ends else [("perdure memory init", "bring the tiers up")]
    if shell.as_json:
        shell.print_json({"healthy": not is_down, "tiers": rows}, next_actions=actions)
    else:
        styles = {"up": "green", "off": "dim", "down": "red"}
        for row in rows:
            mark = Text(f"{row['state']:<6}", style=styles[row["state"]])
            shell.out.print(Text(f"{row['tiers']:<20}", style="bold") + mark + Text(row["address"]))
            if row["state"] == "down":
                shell.out.print(f"{'':<20}{row['reason']}\n{'':<20}{row['advice']}", style="dim", markup=False)
        shell.suggest(actions)
    if is_down:
        sys.exit(1)


def _check_back_end(name: str, back_end: TierBackEnd | None) -> dict[str, Any]:
    row = {"tiers": _TIERS[name], "state": "off", "address": "", "reason": "", "advice": ""}
    if back_end is None:
        return row
    row |= {"state": "up", "address": back_end.shown_address}
    try:
        back_end.check()
    except TierFault as fault:
        advice = "`perdure memory init` starts it again"
        if back_end.server is None:
            advice = "start it, or correct its address; `perdure memory init --own` starts one for this home"
        if name == "blobs" and "://" not in back_end.address:
            advice = "make it writable, or correct its address; `perdure memory init` makes a folder that is missing"
        if back_end.server is not None and back_end.server.is_running:
            advice = f"its process runs: see {back_end.server.log_path}, or `perdure memory stop` and `init`"
        row |= {"state": "down", "reason": fault.detail, "advice": advice}
    return row


def _join_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Make the row of the summary, which needs both back ends."""
    states = {row["state"] for row in rows}
    state = next(state for state in ("off", "down", "up") if state in states)
    row = {"tiers": _SUMMARY, "state": state, "address": "in both", "reason": "", "advice": ""}
    if state == "off":
        return row | {"address": ""}
    return row | ({"reason": "it needs both", "advice": "see above"} if state == "down" else {})


def _check_home(home: Home) -> dict[str, Any]:
    """Check the archive, which every turn goes to first, and the index, from which the semantic tier reads."""
    row = {"tiers": "archive, semantic", "state": "up", "address": str(home.path), "reason": "", "advice": ""}
    try:
        if not home.writable:
            raise UsageError("the home cannot be written")
        home.runs.names("agent")
    except IndexMissing:  # the first turn makes one
        pass
    except PerdureError as error:
        row |= {"state": "down", "reason": str(error), "advice": "`perdure doctor` shows more"}
    return row


# stop -----------------------------------------------------------------------------------------------------------


@command("stop", epilog="  perdure memory stop")
def stop_command(shell: Shell) -> None:
    """Stop the servers that this home brought up. Their data stays, and `perdure memory init` starts them again."""
    with shell.open_home() as home:
        folder = tier_setup.get_folder(home.path)
        stopped = [server.folder.name for server in tier_setup.list_servers(folder) if server.stop()]
    if shell.as_json:
        shell.print_json({"stopped": stopped})
    else:
        shell.out.print(f"Stopped: {', '.join(stopped)}" if stopped else "No server of this home runs.")
