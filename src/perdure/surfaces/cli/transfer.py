"""Commands between homes: merge, export, backup, restore, sync, and the store of an archive."""

from __future__ import annotations

import contextlib
import shlex
import sys
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure.config import find_home_path, read_variable
from perdure.errors import PerdureError, ReadOnlyHome, UsageError
from perdure.home import Home, open_home
from perdure.service import sync_connect, sync_protocol
from perdure.service.sync_link import SyncLink
from perdure.service.sync_protocol import MergeCounts, SyncPlan, SyncResult
from perdure.surfaces.cli.common import (
    Shell,
    command,
    format_count,
    format_size,
    print_events_without_effect,
    show_progress,
)
from perdure.text import one_line
from perdure.upkeep import Merged, restore


@command("merge", epilog="  perdure merge /media/old-disk/me/.perdure\n  perdure merge old-home --user ada --user bob")
@click.argument("other", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--user",
    "users",
    metavar="USER",
    multiple=True,
    help="Take the data of this user (default: yours). Can be repeated.",
)
def merge_command(shell: Shell, other: Path, users: tuple[str, ...]) -> None:
    """Copy all your data from the archive of another home: runs, events and tombstones. Data of other users is copied
    only with --user. The other home is not changed. Use only a home that you trust: its data counts as yours. Machines
    and grants have effect only in the home that made them. Merged homes have the same content, in any order of merging.
    """
    with shell.open_home(create=True) as home:
        with show_progress(shell, "merging", None) as step:
            merged = home.upkeep.merge(other, users=users, progress=lambda n, _: step(n))
        with show_progress(shell, "indexing", None) as step:
            home.upkeep.catch_up(progress=lambda n, _: step(n))
        digest = home.upkeep.digest()
    if shell.as_json:
        result = {
            "runs": merged.n_runs,
            "events": merged.n_events,
            "rewritten_by_forgetting": merged.n_forgotten,
            "damaged": list(merged.damaged),
            "left_out": list(merged.left_out),
            "without_effect": merged.n_without_effect,
            "digest": digest,
        }
        shell.print_json(result)
        return
    _print_merged(shell, merged, digest)


def _print_merged(shell: Shell, merged: Merged, digest: str) -> None:
    shell.out.print(
        f"{format_count(merged.n_runs, 'run')} and {format_count(merged.n_events, 'event')} "
        f"taken in. Digest {digest[:16]}."
    )
    if merged.n_forgotten:
        shell.out.print(
            f"{format_count(merged.n_forgotten, 'run')} here rewritten, because parts were forgotten in the other home."
        )
    if merged.left_out:
        names = ", ".join(one_line(name, 64) for name in merged.left_out)
        shell.out.print(f"Left out, because --user does not name them: {names}.", markup=False)
    print_events_without_effect(shell, merged.n_without_effect)
    if merged.damaged:
        shell.out.print(
            f"{format_count(len(merged.damaged), 'run')} not taken, because they are damaged there: "
            "run `perdure verify` on it."
        )


@command("export", epilog="  perdure export ~/my-memory\n  perdure export --user bob /media/stick/bob")
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--user", metavar="USER", help="The user whose data is copied (default: the user of this home).")
def export_command(shell: Shell, target: Path, user: str | None) -> None:
    """Copy everything of one user, byte for byte, into a new folder that is a complete home, and check the copy."""
    with shell.open_home(user=user) as home:
        if user:
            home.sharing.require_user()
        exported = home.forgetting.export_user(target)
        owner = home.user
    if shell.as_json:
        result = {"path": str(target), "user": owner, "runs": exported.n_runs, "events": exported.n_events}
        shell.print_json({**result, "bytes": exported.n_bytes, "digest": exported.digest})
        return
    counts = f"{format_count(exported.n_runs, 'run')} and {format_count(exported.n_events, 'event')} of {owner}"
    shell.out.print(f"{target}: {counts}, whole. Digest {exported.digest[:16]}.", markup=False)
    shell.suggest([(f"perdure search WORDS --home {target}", "find something in it")])


@command("backup", epilog="  perdure backup ~/perdure-2026-11.tar.zst\n  perdure backup")
@click.argument("target", required=False, type=click.Path(path_type=Path))
@click.option("--no-prove", is_flag=True, help="Do not check the backup by restoring it.")
def backup_command(shell: Shell, target: Path | None, no_prove: bool) -> None:
    """Write all data that cannot be derived to one compressed file, then restore the file to check it."""
    backup_path = target or Path(f"perdure-backup-{datetime.now():%Y-%m-%d-%H%M%S}.tar.zst")
    with shell.open_home() as home, show_progress(shell, "writing", None) as step:
        n_bytes, digest = home.upkeep.backup(backup_path, prove=not no_prove, progress=step)
    if shell.as_json:
        shell.print_json({"path": str(backup_path), "bytes": n_bytes, "digest": digest, "proven": not no_prove})
        return
    proof = "not checked" if no_prove else "restored for a check: complete"
    shell.out.print(f"{backup_path}: {format_size(n_bytes)}, {proof}. Digest {digest[:16]}.", markup=False)
    shell.suggest([(f"perdure restore {backup_path} --home NEW", "restore it")])


@command("restore", epilog="  perdure restore perdure-2026-11.tar.zst --home ~/.perdure")
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--no-index", is_flag=True, help="Do not build the index; `perdure rebuild` does it later.")
def restore_command(shell: Shell, source: Path, no_index: bool) -> None:
    """Create a home from a backup, in an empty or new folder (--home), and check it."""
    home_folder = find_home_path(shell.home)
    restored = restore(source, home_folder)
    if not no_index:
        with open_home(home_folder) as home, show_progress(shell, "indexing", restored.n_bytes, in_bytes=True) as step:
            home.upkeep.catch_up(progress=lambda _, n: step(n))
    if shell.as_json:
        shell.print_json(
            {"home": str(home_folder), "runs": restored.n_runs, "events": restored.n_events, "digest": restored.digest}
        )
        return
    shell.out.print(
        f"{home_folder}: {format_count(restored.n_runs, 'run')}, digest {restored.digest[:16]} as backed up.",
        markup=False,
    )


@command("store", epilog="  perdure store\n  perdure store --json")
def store_command(shell: Shell) -> None:
    """Exchange data with the store of the archive (archive.store) now, and show what is there: take in what other
    machines put there, put there what is new here, and replace there what `perdure verify` found damaged. The resident
    home does this by itself. Exit status 1: something there is damaged, and this machine does not have it.
    """
    with open_home(shell.home) as home:  # `shell.open_home` would say first what waits
        if not home.config.archive.store:
            raise UsageError("this archive has no store: set archive.store in config.toml")
        n_taken, n_put = home.upkeep.collect(), home.upkeep.publish()
        home.upkeep.catch_up()
        status = home.upkeep.store_status()
    if status is None:
        raise ReadOnlyHome(str(home.path))
    if shell.as_json:
        shell.print_json({**msgspec.to_builtins(status), "put": n_put, "taken": n_taken})
    else:
        shell.out.print(
            f"{status.address}: {format_count(status.n_objects, 'object')}, {format_size(status.n_bytes)}, "
            f"of {format_count(status.n_writers, 'machine')}. {format_count(n_put, 'object')} put there, "
            f"{format_count(n_taken, 'object')} taken from there.",
            markup=False,
        )
        if status.n_damaged:
            shell.err.print(f"{format_count(status.n_damaged, 'object')} damaged: `perdure verify` names them.")
    if status.n_damaged:
        sys.exit(1)


_MAX_LISTED = 5  # damaged runs that are listed one by one


@command(
    "sync",
    epilog="""\
  perdure sync laptop                     the home on that machine, over ssh
  perdure sync me@laptop:/data/perdure    another home on that machine
  perdure sync /media/disk/.perdure       a home in a folder
  perdure sync laptop --dry-run           show what would be copied""",
)
@click.argument("target", required=False)
@click.option("--ssh", "ssh", metavar="COMMAND", help="The ssh command (default: PERDURE_SSH, or ssh).")
@click.option(
    "--remote",
    default="perdure",
    metavar="COMMAND",
    help="The `perdure` command on the other machine (default: perdure).",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@click.option("--stdio", is_flag=True, help="Answer on stdin and stdout. The other machine calls this.")
def sync_command(shell: Shell, target: str | None, ssh: str | None, remote: str, dry_run: bool, stdio: bool) -> None:
    """Exchange data with another home of yours: each home copies what it lacks, and at the end both hold the same. Only
    your own runs and journals are exchanged. Data forgotten in one home is forgotten in both. If a sync is interrupted,
    nothing is lost and the next sync continues.
    """
    if stdio:
        _answer_on_stdio(shell)
        return
    address = sync_connect.parse_target(target or "")
    with shell.open_home(create=not dry_run) as home, _connect(home, address, ssh, remote) as link:
        if dry_run:
            _print_plan(shell, *sync_protocol.plan_sync(home, link))
            return
        with show_progress(shell, "syncing", None) as step:
            synced = sync_protocol.sync(home, link, progress=step)
        if synced.here.n_runs or synced.here.n_events:
            with show_progress(shell, "indexing", None) as step:
                home.upkeep.catch_up(progress=lambda n, _: step(n))
    _report_sync(shell, synced, target or "")


def _connect(
    home: Home, address: sync_connect.SshTarget | Path, ssh: str | None, remote: str
) -> AbstractContextManager[SyncLink]:
    if isinstance(address, Path):
        return sync_connect.connect_folder(home, address)
    words = shlex.split(ssh or read_variable("PERDURE_SSH") or "ssh")
    return sync_connect.connect_ssh(address, ssh=words, remote=shlex.split(remote))


def _answer_on_stdio(shell: Shell) -> None:
    """Answer for this home on stdin and stdout; the side that asked reports what failed."""
    try:
        sync_connect.serve(Path(shell.home) if shell.home else None, sys.stdin.buffer, sys.stdout.buffer)
    except PerdureError as error:
        sys.exit(error.exit_code)
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.buffer.flush()


def _print_plan(shell: Shell, local_plan: SyncPlan, remote_plan: SyncPlan) -> None:
    if shell.as_json:
        shell.print_json({"here": _plan_to_json(local_plan), "there": _plan_to_json(remote_plan)})
        return
    for side, side_plan in (("here", local_plan), ("there", remote_plan)):
        n_runs, n_journals = format_count(len(side_plan.runs), "run"), format_count(len(side_plan.journals), "journal")
        amounts = f"{n_runs} ({format_size(side_plan.n_bytes)}), {n_journals}"
        shell.out.print(f"Would be copied {side}: {amounts}.", markup=False)


def _plan_to_json(side_plan: SyncPlan) -> dict[str, Any]:
    return {"runs": len(side_plan.runs), "bytes": side_plan.n_bytes, "journals": list(side_plan.journals)}


def _report_sync(shell: Shell, synced: SyncResult, target: str) -> None:
    if shell.as_json:
        sides = {"here": msgspec.to_builtins(synced.here), "there": msgspec.to_builtins(synced.there)}
        shell.print_json({**sides, "same": synced.is_same, "copy": synced.is_copy, "rounds": synced.n_rounds})
    else:
        _print_sync(shell, synced, target)
    if not synced.is_same:
        sys.exit(1)


def _print_sync(shell: Shell, synced: SyncResult, target: str) -> None:
    for side, moved in (("here", synced.here), ("there", synced.there)):
        shell.out.print(
            f"Copied {side}: {format_count(moved.n_runs, 'run')} and {format_count(moved.n_events, 'event')}."
        )
        print_events_without_effect(shell, moved.n_without_effect)
        if moved.n_forgotten:
            shell.out.print(
                f"{format_count(moved.n_forgotten, 'run')} {side} rewritten, because "
                "parts were forgotten in the other home."
            )
    if synced.is_copy:
        shell.note(f"{target} was a copy of this home; it has its own writer id from now on.")
    _print_damage(shell, synced.here, f"in {target}")
    _print_damage(shell, synced.there, "here")
    last_sentence = "Both homes hold the same." if synced.is_same else "The homes do not hold the same yet: sync again."
    shell.out.print(last_sentence, markup=False)


def _print_damage(shell: Shell, moved: MergeCounts, location: str) -> None:
    if moved.damaged:
        run_names = ", ".join(moved.damaged[:_MAX_LISTED]) + (", …" if len(moved.damaged) > _MAX_LISTED else "")
        damage_text = (
            f"{format_count(len(moved.damaged), 'run')} not taken, because they are damaged {location}: {run_names}."
        )
        shell.err.print(f"{damage_text} Run `perdure verify` there.", style="yellow", markup=False)
