"""The command that deletes words on the floor for good: of a page a line, or a card or a proposal."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from perdure.errors import UsageError
from perdure.floor.floor import Floor
from perdure.surfaces.cli.common import Shell, command, confirmed
from perdure.surfaces.cli.floor_cards import complete_cards
from perdure.surfaces.cli.memory import said
from perdure.surfaces.cli.page import complete_pages

_WITH_ID = ("card-", "edit-")


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [*complete_pages(ctx, param, incomplete), *complete_cards(ctx, param, incomplete)]


@command(
    "forget",
    epilog="""\
  perdure floor forget notes "The shed key is under the mat"
  perdure floor forget diary/2026-11-21 - --yes < line.txt
  perdure floor forget card-3f9c2a11
  perdure floor forget edit-77a0b1c2 --yes --json""",
)
@click.argument("name", metavar="PAGE|ID", shell_complete=_complete)
@click.argument("words", nargs=-1, metavar="[LINE…|-]")
@click.option("--dry-run", is_flag=True, help="Only look whether it is there; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget_command(shell: Shell, name: str, words: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Delete a line of a page, a card or a proposal for good: from every state of it, also one that was taken away, in
    this home and in those that are merged with it. This cannot be undone.
    """
    is_asked = name.startswith(_WITH_ID)
    if is_asked == bool(words):
        raise UsageError("name a page and the words of one of its lines, or the id of a card or a proposal alone")
    line = said(words, "the line").strip() if words else ""
    if len(line.splitlines()) > 1:
        raise UsageError("name one line")
    with shell.open() as home:
        found = home.floor.check_asked(name) if is_asked else home.floor.check_line(name, line)
        if not dry_run:
            _forget(shell, home.floor, found, line, yes=yes)
    if shell.as_json:
        shell.answer({"name": found, "dry_run": dry_run, "forgotten": not dry_run})
        return
    what = f"A line of {found}" if line else found
    shell.out.print(f"{what}: {'would be forgotten' if dry_run else 'forgotten'}.", style="bold", markup=False)


def _forget(shell: Shell, floor: Floor, name: str, line: str, *, yes: bool) -> None:
    what = f"this line of {name}" if line else name
    if not confirmed(shell, f"Forget {what} for good, with every state in which it stands?", yes=yes):
        raise UsageError("nothing was forgotten")
    if line:
        floor.forget_line(name, line)
    else:
        floor.forget_asked(name)
