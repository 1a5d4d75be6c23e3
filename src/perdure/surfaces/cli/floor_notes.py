"""Commands that add to the floor bit by bit: note, card, cards (list, edit, remove), diary, recent."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem
from rich.text import Text

from perdure import text
from perdure.access.redact import mask
from perdure.errors import FloorMissing, PerdureError, UsageError
from perdure.floor import layers, pages
from perdure.floor.state import FloorCard
from perdure.floor.summaries import DiaryResult, RecentResult
from perdure.home import Home, open_home
from perdure.identity import find_project
from perdure.remote_home import RemoteHome
from perdure.surfaces.cli.common import Shell, command, format_count
from perdure.surfaces.cli.floor_common import by_agent_option, format_hybrid_time, name_writer, print_alerts
from perdure.surfaces.cli.lazy import LazyGroup
from perdure.surfaces.cli.memory_common import read_words, resolve_project

_CARD_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("floor_notes", "List every card, oldest first, and the number that do not fit."),
    "edit": ("floor_notes", "Replace the text of a card."),
    "remove": ("floor_notes", "Remove a card."),
}


_project_option = click.option(
    "--project", help="Show it only to sessions in this project: a folder, or the name of a known project."
)
_here_option = click.option(
    "--here", is_flag=True, help="Show it only to sessions in the project of the current folder."
)


@command(
    "note",
    epilog="""\
  perdure floor note "The key of the shed hangs behind the door"
  perdure floor note "Mira answers fastest by mail" --by-agent""",
)
@click.argument("words", nargs=-1, metavar="TEXT…|-")
@_project_option
@_here_option
@by_agent_option
def note_command(shell: Shell, words: tuple[str, ...], project: str | None, here: bool, by_agent: bool) -> None:
    """Add a line to the notes, which every session begins with. If there is no room for all lines, the newest are
    shown. A line that exists already is not added again; a line that the new one corrects is removed.
    """
    line = " ".join(read_words(words, "the note").split())
    if not line:
        raise UsageError("a note needs words")
    with shell.open_home(create=True) as home:
        result = home.floor.note(
            line, by=name_writer(by_agent=by_agent), cwd=_choose_project(home, project, in_this_folder=here)
        )
    if shell.as_json:
        shell.print_json(
            {
                "page": pages.NOTES,
                "line": mask(result.line),
                "is_new": result.is_new,
                "known": mask(result.same_line) or None,
                "replaced": [mask(old) for old in result.replaced_lines],
            }
        )
        return
    shell.out.print("Noted: " if result.is_new else "The line exists already: ", style="bold", end="")
    shell.out.print(
        text.printable(layers.clean_page_text(result.line if result.is_new else result.same_line)), markup=False
    )
    for old in result.replaced_lines:
        shell.out.print(f"  before: {text.printable(layers.clean_page_text(old))}", style="dim", markup=False)


def _choose_project(home: Home | RemoteHome, project: str | None, *, in_this_folder: bool) -> str | None:
    """Return the project that the options name, or None."""
    if in_this_folder and project is not None:
        raise UsageError("give only one of --project and --here")
    return find_project(str(Path.cwd())) if in_this_folder else resolve_project(home, project or "")


@command(
    "card",
    epilog="""\
  perdure floor card "Ask before you push" --by-agent
  perdure floor card "The tests of web need the database" --here
  git log -1 --format=%B | perdure floor card -""",
)
@click.argument("words", nargs=-1, metavar="TEXT…|-")
@_project_option
@_here_option
@by_agent_option
def card_command(shell: Shell, words: tuple[str, ...], project: str | None, here: bool, by_agent: bool) -> None:
    """Add a card: a few sentences that every session begins with. Cards share a budget of tokens; when it is full, the
    oldest cards are no longer shown. `perdure floor cards` lists those too.
    """
    sentences = read_words(words, "the text of the card")
    with shell.use_home(create=True) as home:
        card_project = _choose_project(home, project, in_this_folder=here)
        new_card = home.floor.add_card(sentences, by=name_writer(by_agent=by_agent), project=card_project)
    print_card_change(shell, new_card, "Card")


def print_card_change(shell: Shell, card: FloorCard, label: str) -> None:
    """Print the result of adding or changing a card."""
    if shell.as_json:
        shell.print_json({"card": card_to_json(card)})
        return
    shell.out.print(f"{label}: ", style="bold", end="")
    shell.out.print(f"{card.id}  {text.one_line(mask(card.text), 100)}", markup=False)


def card_to_json(card: FloorCard) -> dict[str, Any]:
    """Convert a card to JSON values."""
    fields: dict[str, Any] = msgspec.structs.asdict(card)
    return fields | {"text": mask(card.text), "tokens": text.tokens(card.text)}


@click.group(
    "cards",
    cls=LazyGroup,
    table=_CARD_COMMANDS,
    default_command="list",
    epilog="""\b
Examples:
  perdure floor cards
  perdure floor cards edit card-3f9c2a11 "Ask before you push to main"
  perdure floor cards remove card-3f9c2a11""",
)
def cards_command() -> None:
    """List, edit and remove cards. Without a command it runs `perdure floor cards list`."""


# diary --------------------------------------------------------------------------------------------------------


@command(
    "diary",
    epilog="""\
  perdure floor diary                    today's page, or the newest
  perdure floor diary yesterday
  perdure floor diary --write            that of the last complete day
  perdure floor diary 2026-11-21 --write --json""",
)
@click.argument("day", required=False, metavar="[DATE]")
@click.option(
    "--write", "is_to_write", is_flag=True, help="Write the page now, as the job does, unless the page exists."
)
def diary_command(shell: Shell, day: str | None, is_to_write: bool) -> None:
    """Read a page of the diary: a summary of one day for later sessions. A day ends at six in the morning. With
    --write, the page is written from the messages of that day: by the model of the role `summariser`, or by rules if no
    model is set.
    """
    if is_to_write:
        with shell.open_home() as home:
            written = home.floor.write_diary(parse_diary_day(day) if day else None)
        _print_page_update(shell, f"{pages.DIARY}/{written.day}.md", written)
        return
    with shell.open_home() as home:
        name = f"{pages.DIARY}/{parse_diary_day(day)}.md" if day else _find_newest_page(home)
        page_text = mask(home.floor.read(name))
        print_alerts(shell, home.floor)
    if not page_text:
        raise FloorMissing(f"the diary has no page {name}: `perdure floor` lists the pages")
    if shell.as_json:
        shell.print_json({"page": name, "text": page_text})
    else:
        shell.out.print(text.printable(page_text), end="", markup=False)


@command(
    "recent",
    epilog="""\
  perdure floor recent
  perdure floor recent --rebuild         from the memories and the newest messages
  perdure floor show recent              read it""",
)
@click.option("--rebuild", is_flag=True, help="Write the whole page again.")
def recent_command(shell: Shell, rebuild: bool) -> None:
    """Update recent.md, the summary of current work in all projects, with the messages since the last update: by the
    model of the role `summariser`, in one call, or by rules if no model is set. Without new messages, no model is
    called. With the setting floor.overall, sessions get this page, and the resident home updates it every ten minutes.
    """
    with shell.open_home() as home:
        updated = home.floor.update_recent(rebuild=rebuild)
        is_shown = home.config.floor.overall
    if not is_shown:
        shell.note("No session gets recent.md. Set floor.overall = true in config.toml to show it in all projects.")
    _print_page_update(shell, pages.RECENT, updated)


def _print_page_update(shell: Shell, name: str, result: RecentResult | DiaryResult) -> None:
    """Print the result of writing a page from what was said. Raises the fault that kept it from being written."""
    if result.fault is not None:
        raise result.fault
    if shell.as_json:
        shell.print_json(
            {
                "page": name,
                "outcome": result.outcome,
                "turns": result.n_turns,
                "calls": result.n_calls,
                "tokens": result.n_tokens,
                "why": result.why or None,
            }
        )
        return
    reason = f" ({text.one_line(result.why, 200)})" if result.why else ""
    shell.out.print(f"{name}: {result.outcome}{reason}", style="bold", markup=False)
    if result.n_turns:
        counts = f"{format_count(result.n_turns, 'message')} read, {format_count(result.n_calls, 'call')} of a model"
        shell.out.print(f"  {counts}, {format_count(result.n_tokens, 'token')} now", style="dim", markup=False)
    if result.n_tokens:
        shell.suggest([(f"perdure floor show {name}", "read it")])


def _find_newest_page(home: Home) -> str:
    """Return the newest page of the diary, or today's if there is none."""
    page_names = [name for name in home.floor.list_pages() if name.startswith(f"{pages.DIARY}/")]
    return max(page_names, default=f"{pages.DIARY}/{parse_diary_day('today')}.md")


def parse_diary_day(day_text: str) -> date:
    """Parse the day of the diary that a person means: today, yesterday, or a date. Raises UsageError."""
    today = layers.to_diary_day(datetime.now().astimezone())
    named_days = {"today": today, "yesterday": today - timedelta(days=1)}
    try:
        return named_days.get(day_text) or date.fromisoformat(day_text)
    except ValueError:
        raise UsageError(f"{text.printable(day_text)!r} is not a date: write 2026-11-21, today or yesterday") from None


def complete_cards(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Return the ids of cards with this beginning, each with its words; none if no home can be read."""
    try:
        with open_home(ctx.params.get("home"), create=False, read_only=True) as home:
            cards = home.floor.list_cards()
    except PerdureError:  # completion has nowhere to show an error
        return []
    return [
        CompletionItem(card.id, help=text.one_line(mask(card.text), 60))
        for card in cards
        if card.id.startswith(incomplete)
    ]


_card_id_argument = click.argument("identifier", metavar="ID", shell_complete=complete_cards)


@command("list", epilog="  perdure floor cards\n  perdure floor cards list --json")
def list_command(shell: Shell) -> None:
    """List every card, oldest first. Cards for one project name the project; a note tells how many cards do not fit."""
    with shell.use_home() as home:
        cards = home.floor.list_cards()
        floor_layers = home.floor.layers(cwd=str(Path.cwd())).layers
        card_layer = next(layer for layer in floor_layers if layer.name == "cards")
    if shell.as_json:
        shell.print_json(
            {"cards": [card_to_json(card) for card in cards], "tokens": card_layer.n_tokens, "left": card_layer.n_left}
        )
        return
    for card in cards:
        _print_card(shell, card)
    if not cards:
        shell.out.print("No cards. `perdure floor card` makes one.")
    elif card_layer.n_left:
        shell.note(f"The oldest {format_count(card_layer.n_left, 'card')} do not fit into a session here.")


def _print_card(shell: Shell, card: FloorCard) -> None:
    header = Text(f"{card.id}  ", style="bold") + Text(f"{format_hybrid_time(card.at)}  {card.by}", style="dim")
    shell.out.print(header + Text(f"  {text.printable(card.project)}" if card.project else "", style="dim"))
    for line in text.printable(mask(card.text)).splitlines():
        shell.out.print(f"  {line}", markup=False)


@command("edit", epilog='  perdure floor cards edit card-3f9c2a11 "Ask before you push to main"')
@_card_id_argument
@click.argument("words", nargs=-1, metavar="TEXT…|-")
@by_agent_option
def edit_command(shell: Shell, identifier: str, words: tuple[str, ...], by_agent: bool) -> None:
    """Replace the text of a card; the card keeps its place. The journal keeps the old text."""
    new_words = read_words(words, "the new words")
    with shell.open_home() as home:
        changed_card = home.floor.change_card(identifier, new_words, by=name_writer(by_agent=by_agent))
    print_card_change(shell, changed_card, "Now")


@command("remove", epilog="  perdure floor cards remove card-3f9c2a11 card-77a0b1c2")
@click.argument("ids", nargs=-1, required=True, metavar="ID…", shell_complete=complete_cards)
@by_agent_option
def remove_command(shell: Shell, ids: tuple[str, ...], by_agent: bool) -> None:
    """Remove cards; the journal keeps them. To delete their text permanently, use `perdure floor forget`."""
    if not all(ids):
        raise UsageError("give the ids of cards")
    with shell.use_home() as home:
        cards = [home.floor.get_card(card_id) for card_id in ids]
        removed_cards = [home.floor.remove_card(card.id, by=name_writer(by_agent=by_agent)) for card in cards]
    if shell.as_json:
        shell.print_json({"removed": [card_to_json(card) for card in removed_cards]})
        return
    for card in removed_cards:
        shell.out.print(f"Removed: {card.id}  {text.one_line(mask(card.text), 100)}", markup=False)
