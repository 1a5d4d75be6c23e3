"""The command by which two homes of one owner exchange what they hold."""

from __future__ import annotations

import contextlib
import shlex
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.config import environment
from perdure.errors import PerdureError
from perdure.home import Home
from perdure.surfaces.cli.common import Shell, command, plural, progress, say_without_effect, size
from perdure.sync import exchange, reach
from perdure.sync.exchange import Moved, Plan, Synced
from perdure.sync.wire import Link

_LISTED = 5  # damaged runs named one by one


@command(
    "sync",
    epilog="""\
  perdure sync laptop                     the home of perdure on that machine, over ssh
  perdure sync me@laptop:/data/perdure    another home there
  perdure sync /media/disk/.perdure       a home in a folder
  perdure sync laptop --dry-run           what would move""",
)
@click.argument("target", required=False)
@click.option("--ssh", "ssh", metavar="COMMAND", help="How to reach a host (default: PERDURE_SSH, or ssh).")
@click.option("--remote", default="perdure", metavar="COMMAND", help="How Perdure is called there.")
@click.option("--dry-run", is_flag=True, help="Only say what would move.")
@click.option("--stdio", is_flag=True, help="Answer on stdin and stdout (what the other side runs here).")
def sync_command(shell: Shell, target: str | None, ssh: str | None, remote: str, dry_run: bool, stdio: bool) -> None:
    """Exchange everything with another home of yours: either takes what it lacks, and at the end both hold the same.
    Only your own runs and journals move. What was forgotten in one home is forgotten in both. In whatever order homes
    sync, they end the same; cut short, nothing is lost and the next sync goes on.
    """
    if stdio:
        _serve(shell)
        return
    place = reach.place(target or "")
    with shell.open(create=not dry_run) as home, _reached(home, place, ssh, remote) as link:
        if dry_run:
            _say_plan(shell, *exchange.plan(home, link))
            return
        with progress(shell, "syncing", None) as step:
            done = exchange.sync(home, link, progress=step)
        if done.here.n_runs or done.here.n_events:
            with progress(shell, "indexing", None) as step:
                home.catch_up(progress=lambda n, _: step(n))
    _say(shell, done, target or "")


def _reached(home: Home, place: reach.Host | Path, ssh: str | None, remote: str) -> AbstractContextManager[Link]:
    if isinstance(place, Path):
        return reach.beside(home, place)
    words = shlex.split(ssh or environment("PERDURE_SSH") or "ssh")
    return reach.over_ssh(place, ssh=words, remote=shlex.split(remote))


def _serve(shell: Shell) -> None:
    """Answer for this home; the side that asked says what failed."""
    try:
        reach.serve(Path(shell.home) if shell.home else None, sys.stdin.buffer, sys.stdout.buffer)
    except PerdureError as error:
        sys.exit(error.exit_code)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.buffer.flush()


def _say_plan(shell: Shell, here: Plan, there: Plan) -> None:
    if shell.as_json:
        shell.answer({"here": _plan_json(here), "there": _plan_json(there)})
        return
    for where, one in (("here", here), ("there", there)):
        words = f"{plural(len(one.runs), 'run')} ({size(one.n_bytes)}), {plural(len(one.journals), 'journal')}"
        shell.out.print(f"Would come {where}: {words}.", markup=False)


def _plan_json(one: Plan) -> dict[str, Any]:
    return {"runs": len(one.runs), "bytes": one.n_bytes, "journals": list(one.journals)}


def _say(shell: Shell, done: Synced, target: str) -> None:
    if shell.as_json:
        both = {"here": msgspec.to_builtins(done.here), "there": msgspec.to_builtins(done.there)}
        shell.answer({**both, "same": done.is_same, "copy": done.is_copy, "rounds": done.n_rounds})
    else:
        _say_in_words(shell, done, target)
    if not done.is_same:
        sys.exit(1)


def _say_in_words(shell: Shell, done: Synced, target: str) -> None:
    for where, one in (("here", done.here), ("there", done.there)):
        shell.out.print(f"Taken in {where}: {plural(one.n_runs, 'run')} and {plural(one.n_events, 'event')}.")
        say_without_effect(shell, one.n_without_effect)
        if one.n_forgotten:
            shell.out.print(f"{plural(one.n_forgotten, 'run')} {where} rewritten, because the other home forgot parts.")
    if done.is_copy:
        shell.note(f"{target} was a copy of this home; it has a writer of its own from now on.")
    _say_damage(shell, done.here, f"in {target}")
    _say_damage(shell, done.there, "here")
    last = "Both homes hold the same." if done.is_same else "The homes do not hold the same yet: sync again."
    shell.out.print(last, markup=False)


def _say_damage(shell: Shell, one: Moved, where: str) -> None:
    if one.damaged:
        named = ", ".join(one.damaged[:_LISTED]) + (", …" if len(one.damaged) > _LISTED else "")
        what = f"{plural(len(one.damaged), 'run')} not taken, because damaged {where}: {named}."
        shell.err.print(f"{what} Run `perdure verify` there.", style="yellow", markup=False)
