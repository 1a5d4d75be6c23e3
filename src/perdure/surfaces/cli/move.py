"""Commands between homes: merge, export, backup, restore."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from perdure.config import home_path
from perdure.home import Merged, open_home, restore
from perdure.surfaces.cli.common import Shell, command, plural, progress, say_without_effect, size
from perdure.text import one_line


@command("merge", epilog="  perdure merge /media/old-disk/me/.perdure\n  perdure merge old-home --user ada --user bob")
@click.argument("other", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--user", "users", metavar="USER", multiple=True, help="Whose (default: your own); may be repeated.")
def merge_command(shell: Shell, other: Path, users: tuple[str, ...]) -> None:
    """Take everything of yours from another home's archive: runs, events, and what was forgotten there; of others only
    with --user. The other home is only read: name one that you trust, for what it says of you counts as yours. Machines
    and grants count only in the home that made them. In whatever order homes are merged, they end holding the same.
    """
    with shell.open(create=True) as home:
        with progress(shell, "merging", None) as step:
            done = home.merge(other, users=users, progress=lambda n, _: step(n))
        with progress(shell, "indexing", None) as step:
            home.catch_up(progress=lambda n, _: step(n))
        digest = home.digest()
    if shell.as_json:
        result = {
            "runs": done.n_runs,
            "events": done.n_events,
            "rewritten_by_forgetting": done.n_forgotten,
            "damaged": list(done.damaged),
            "left_out": list(done.left_out),
            "without_effect": done.n_without_effect,
            "digest": digest,
        }
        shell.answer(result)
        return
    _say_merged(shell, done, digest)


def _say_merged(shell: Shell, done: Merged, digest: str) -> None:
    shell.out.print(
        f"{plural(done.n_runs, 'run')} and {plural(done.n_events, 'event')} taken in. Digest {digest[:16]}."
    )
    if done.n_forgotten:
        shell.out.print(
            f"{plural(done.n_forgotten, 'run')} here rewritten, because the other home forgot parts of them."
        )
    if done.left_out:
        names = ", ".join(one_line(name, 64) for name in done.left_out)
        shell.out.print(f"Left out, because --user does not name them: {names}.", markup=False)
    say_without_effect(shell, done.n_without_effect)
    if done.damaged:
        shell.out.print(
            f"{plural(len(done.damaged), 'run')} not taken, because they are damaged there: run `perdure verify` on it."
        )


@command("export", epilog="  perdure export ~/my-memory\n  perdure export --user bob /media/stick/bob")
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--user", metavar="USER", help="Of another user of this home (default: its own).")
def export_command(shell: Shell, target: Path, user: str | None) -> None:
    """Write everything of one user, to the byte, into a new folder that is a home of its own, and prove it whole."""
    with shell.open(user=user) as home:
        if user:
            home.check_is_here()
        found = home.export(target)
        whose = home.user
    if shell.as_json:
        result = {"path": str(target), "user": whose, "runs": found.n_runs, "events": found.n_events}
        shell.answer({**result, "bytes": found.n_bytes, "digest": found.digest})
        return
    counts = f"{plural(found.n_runs, 'run')} and {plural(found.n_events, 'event')} of {whose}"
    shell.out.print(f"{target}: {counts}, whole. Digest {found.digest[:16]}.", markup=False)
    shell.suggest([(f"perdure search WORDS --home {target}", "find something in it")])


@command("backup", epilog="  perdure backup ~/perdure-2026-11.tar.zst\n  perdure backup")
@click.argument("target", required=False, type=click.Path(path_type=Path))
@click.option("--no-prove", is_flag=True, help="Do not restore it beside itself to prove it.")
def backup_command(shell: Shell, target: Path | None, no_prove: bool) -> None:
    """Write everything that cannot be derived to one compressed file, then prove it by restoring and comparing."""
    chosen = target or Path(f"perdure-backup-{datetime.now():%Y-%m-%d-%H%M%S}.tar.zst")
    with shell.open() as home, progress(shell, "writing", None) as step:
        n_bytes, digest = home.backup(chosen, prove=not no_prove, progress=step)
    if shell.as_json:
        shell.answer({"path": str(chosen), "bytes": n_bytes, "digest": digest, "proven": not no_prove})
        return
    proof = "not proven" if no_prove else "restored beside and compared: whole"
    shell.out.print(f"{chosen}: {size(n_bytes)}, {proof}. Digest {digest[:16]}.", markup=False)
    shell.suggest([(f"perdure restore {chosen} --home NEW", "make a home from it")])


@command("restore", epilog="  perdure restore perdure-2026-11.tar.zst --home ~/.perdure")
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--no-index", is_flag=True, help="Leave the index to the next `perdure rebuild`.")
def restore_command(shell: Shell, source: Path, no_index: bool) -> None:
    """Make a home from a backup, in a place that is empty or does not exist (--home), and prove it."""
    place = home_path(shell.home)
    found = restore(source, place)
    if not no_index:
        with open_home(place) as home, progress(shell, "indexing", found.n_bytes, in_bytes=True) as step:
            home.catch_up(progress=lambda _, n: step(n))
    if shell.as_json:
        shell.answer({"home": str(place), "runs": found.n_runs, "events": found.n_events, "digest": found.digest})
        return
    shell.out.print(f"{place}: {plural(found.n_runs, 'run')}, digest {found.digest[:16]} as backed up.", markup=False)
