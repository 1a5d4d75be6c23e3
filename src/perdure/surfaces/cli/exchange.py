"""Commands that write memories as Markdown and take Markdown in: export, import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import click

from perdure.errors import UsageError
from perdure.home import Home
from perdure.mind.exchange import Refused, Taken, Terms
from perdure.surfaces.cli.common import Shell, command, plural
from perdure.surfaces.cli.memory import line, memory_json, project_named
from perdure.types import TRUSTS, Memory, Trust

_SHOWN = 20
_SHOWN_REFUSED = 10


@command(
    "export",
    epilog="""\
  perdure memories export                     into ./memories
  perdure memories export notes/mine --prefix user
  perdure memories export archive/ --all      also what was superseded or retired""",
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path("memories"))
@click.option("--prefix", default="", metavar="PATH", help="Only what lies at this path and below it.")
@click.option("--all", "every", is_flag=True, help="Also what was superseded or retired.")
def export_command(shell: Shell, folder: Path, prefix: str, every: bool) -> None:
    """Write memories as Markdown, one file each under its path, with everything but the words in front matter. A file
    that holds something else, or changes that were not imported, is left as it is. Links are not followed.
    """
    with shell.open() as home:
        done = home.export_memories(folder, prefix=prefix, every=every)
    if shell.as_json:
        shell.answer(
            {
                "folder": str(folder), "written": done.n_written, "unchanged": done.n_same,
                "refused": [item._asdict() for item in done.refused],
            }
        )  # fmt: skip
        return
    files = plural(done.n_written, "file")
    shell.out.print(f"{files} written to {folder}, {done.n_same:,} unchanged.", markup=False)
    _say_refused(shell, done.refused)
    shell.suggest([(f"perdure memories import {folder}", "take edited files back in")])


@command(
    "import",
    epilog="""\
  perdure memories import memories/                  an export, with your edits
  perdure memories import CLAUDE.md AGENTS.md        instructions: one memory for each list item and paragraph
  perdure memories import ~/notes --trust web --everywhere""",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--trust", type=click.Choice(TRUSTS), default="owner", show_default=True, help="Trust them so far, at most."
)
@click.option("--project", help="Notes belong to this project (default: the repository that they lie in, or none).")
@click.option("--everywhere", is_flag=True, help="Notes belong to no project.")
def import_command(shell: Shell, paths: tuple[Path, ...], trust: str, project: str | None, everywhere: bool) -> None:
    """Take in Markdown. Files of an export come back under their ids, edited words as an edit. Of other pages each
    list item and short paragraph becomes a memory; code, tables and quotations are left out. Importing again changes
    nothing; a changed statement takes the place of the old one, and one that is gone is named and kept.
    """
    if everywhere and project:
        raise UsageError("say one of --project and --everywhere")
    with shell.open(create=True) as home:
        done = home.import_memories(paths, terms=_terms(home, trust, project, everywhere=everywhere))
    if not (done.n_files or done.refused):
        raise UsageError("there is no Markdown file; name files, or folders that hold some")
    if shell.as_json:
        shell.answer(_taken_json(done))
    else:
        _say_taken(shell, done)


def _terms(home: Home, trust: str, project: str | None, *, everywhere: bool) -> Terms:
    given = cast("Trust", trust)
    if not everywhere and project is None:
        return Terms(given)
    named = None if everywhere else project_named(home, project or "")
    return Terms(given, lambda _: named)


def _taken_json(done: Taken) -> dict[str, object]:
    return {
        "files": done.n_files, "new": [memory_json(m) for m in done.new],
        "changed": [memory_json(m) for m in done.changed], "unchanged": done.n_unchanged,
        "forgotten": done.n_forgotten, "removed": [memory_json(m) for m in done.removed],
        "left_out": dict(done.left_out), "refused": [item._asdict() for item in done.refused],
    }  # fmt: skip


def _say_taken(shell: Shell, done: Taken) -> None:
    counts = f"{len(done.new):,} new, {len(done.changed):,} changed, {done.n_unchanged:,} unchanged"
    shell.out.print(f"{plural(done.n_files, 'file')}: {counts}.")
    for memory in done.changed[:_SHOWN]:
        shell.out.print(line(memory, 80))
    _say_removed(shell, done.removed)
    if done.left_out:
        what = ", ".join(f"{n:,} {kind}" for kind, n in sorted(done.left_out.items()))
        shell.note(f"Left out: {what}.")
    if done.n_forgotten:
        shell.note(f"{plural(done.n_forgotten, 'statement')} that you had forgotten stayed so.")
    _say_refused(shell, done.refused)


def _say_removed(shell: Shell, removed: Sequence[Memory]) -> None:
    if removed:
        shell.out.print("No longer in the files, and kept (`perdure memories retire ID` sets one aside):", style="bold")
    for memory in removed[:_SHOWN]:
        shell.out.print(line(memory, 80))
    if len(removed) > _SHOWN:
        shell.out.print(f"… and {len(removed) - _SHOWN:,} more (--json names them)", style="dim")


def _say_refused(shell: Shell, refused: Sequence[Refused]) -> None:
    for item in refused[:_SHOWN_REFUSED]:
        shell.note(f"{item.path}: {item.why}")
    if len(refused) > _SHOWN_REFUSED:
        shell.note(f"… and {plural(len(refused) - _SHOWN_REFUSED, 'more file')} left alone (--json names them)")
