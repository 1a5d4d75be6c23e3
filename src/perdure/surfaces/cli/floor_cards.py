"""Commands about the cards that there are: list, edit, remove."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem
from rich.text import Text

from perdure import text
from perdure.access.redact import mask
from perdure.errors import PerdureError, UsageError
from perdure.floor.layers import Layers
from perdure.floor.state import Card
from perdure.surfaces.cli.common import Shell, command, plural
from perdure.surfaces.cli.floor_notes import card_json, say_card
from perdure.surfaces.cli.memory import said
from perdure.surfaces.cli.page import by_agent_option, when, writer


def complete_cards(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Ids of cards that begin so, each with its words; none where no home can be read."""
    from perdure.home import open_home

    try:
        with open_home(ctx.params.get("home"), create=False, read_only=True) as home:
            found = home.floor.cards()
    except PerdureError:  # a shell that completes has nowhere to show an error
        return []
    return [CompletionItem(c.id, help=text.one_line(mask(c.text), 60)) for c in found if c.id.startswith(incomplete)]


_id = click.argument("identifier", metavar="ID", shell_complete=complete_cards)


@command("list", epilog="  perdure floor cards\n  perdure floor cards list --json")
def list_command(shell: Shell) -> None:
    """Every card, oldest first. Those for which there is no room any more are marked, and so are those of a project."""
    with shell.open() as home:
        cards = home.floor.cards()
        layer = _layer(home.layers(cwd=str(Path.cwd())))
    if shell.as_json:
        shell.answer({"cards": [card_json(card) for card in cards], "tokens": layer[1], "left": layer[0]})
        return
    for card in cards:
        _print_card(shell, card)
    if not cards:
        shell.out.print("No cards. `perdure floor card` makes one.")
    elif layer[0]:
        shell.note(f"For the oldest {plural(layer[0], 'card')} there is no room in a session here.")


def _layer(found: Layers) -> tuple[int, int]:
    """(how many cards have no room, the tokens of those that have)."""
    return next((one.n_left, one.n_tokens) for one in found.layers if one.name == "cards")


def _print_card(shell: Shell, card: Card) -> None:
    head = Text(f"{card.id}  ", style="bold") + Text(f"{when(card.at)}  {card.by}", style="dim")
    shell.out.print(head + Text(f"  {text.printable(card.project)}" if card.project else "", style="dim"))
    for line in text.printable(mask(card.text)).splitlines():
        shell.out.print(f"  {line}", markup=False)


@command("edit", epilog='  perdure floor cards edit card-3f9c2a11 "Ask before you push to main"')
@_id
@click.argument("words", nargs=-1, metavar="TEXT…|-")
@by_agent_option
def edit_command(shell: Shell, identifier: str, words: tuple[str, ...], by_agent: bool) -> None:
    """Give a card other words; it keeps its place. The journal keeps the old ones."""
    fresh = said(words, "the new words")
    with shell.open() as home:
        made = home.floor.change_card(identifier, fresh, by=writer(by_agent=by_agent))
    say_card(shell, made, "Now")


@command("remove", epilog="  perdure floor cards remove card-3f9c2a11 card-77a0b1c2")
@click.argument("ids", nargs=-1, required=True, metavar="ID…", shell_complete=complete_cards)
@by_agent_option
def remove_command(shell: Shell, ids: tuple[str, ...], by_agent: bool) -> None:
    """Take cards away; the journal keeps them. To delete their words for good: `perdure floor forget`."""
    if not all(ids):
        raise UsageError("name cards by their ids")
    with shell.open() as home:
        known = [home.floor.card(name) for name in ids]
        gone = [home.floor.remove_card(card.id, by=writer(by_agent=by_agent)) for card in known]
    if shell.as_json:
        shell.answer({"removed": [card_json(card) for card in gone]})
        return
    for card in gone:
        shell.out.print(f"Removed: {card.id}  {text.one_line(mask(card.text), 100)}", markup=False)
