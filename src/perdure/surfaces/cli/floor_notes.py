"""Commands about what is added to the floor bit by bit: note, card, cards, diary."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from perdure import text
from perdure.access.redact import mask
from perdure.errors import FloorMissing, UsageError
from perdure.floor import layers, pages
from perdure.floor.diary import Paged
from perdure.floor.recent import Updated
from perdure.floor.state import Card
from perdure.home import Home
from perdure.identity import project_of
from perdure.surfaces.cli.common import Shell, command, plural
from perdure.surfaces.cli.lazy import LazyGroup
from perdure.surfaces.cli.memory import project_named, said
from perdure.surfaces.cli.page import by_agent_option, tell_alerts, writer

_CARDS: dict[str, tuple[str, str]] = {
    "list": ("floor_cards", "Every card, oldest first, and which are before a model now."),
    "edit": ("floor_cards", "Give a card other words."),
    "remove": ("floor_cards", "Take a card away."),
}


_project = click.option(
    "--project", help="Only for sessions in this project: a folder, or the name of one that is known."
)
_here = click.option("--here", is_flag=True, help="Only for sessions in the project of the folder you are in.")


@command(
    "note",
    epilog="""\
  perdure floor note "The key of the shed hangs behind the door"
  perdure floor note "Mira answers fastest by mail" --by-agent""",
)
@click.argument("words", nargs=-1, metavar="TEXT…|-")
@_project
@_here
@by_agent_option
def note_command(shell: Shell, words: tuple[str, ...], project: str | None, here: bool, by_agent: bool) -> None:
    """Add a line to the notes, which stand before every session: the newest stay when there is no room for all. One
    that is there already is not added, and what it corrects makes room for it.
    """
    line = " ".join(said(words, "what to note").split())
    if not line:
        raise UsageError("a note needs words")
    with shell.open(create=True) as home:
        made = home.note(line, by=writer(by_agent=by_agent), cwd=_where(home, project, here=here))
    if shell.as_json:
        shell.answer({
            "page": pages.NOTES, "line": mask(made.line), "is_new": made.is_new, "known": mask(made.known) or None,
            "replaced": [mask(old) for old in made.replaced],
        })  # fmt: skip
        return
    shell.out.print("Noted: " if made.is_new else "It is there already: ", style="bold", end="")
    shell.out.print(text.printable(layers.injected(made.line if made.is_new else made.known)), markup=False)
    for old in made.replaced:
        shell.out.print(f"  before: {text.printable(layers.injected(old))}", style="dim", markup=False)


def _where(home: Home, project: str | None, *, here: bool) -> str | None:
    """The project that the options name; None for none."""
    if here and project is not None:
        raise UsageError("say one of --project and --here")
    return project_of(str(Path.cwd())) if here else project_named(home, project or "")


@command(
    "card",
    epilog="""\
  perdure floor card "Ask before you push" --by-agent
  perdure floor card "The tests of web need the database" --here
  git log -1 --format=%B | perdure floor card -""",
)
@click.argument("words", nargs=-1, metavar="TEXT…|-")
@_project
@_here
@by_agent_option
def card_command(shell: Shell, words: tuple[str, ...], project: str | None, here: bool, by_agent: bool) -> None:
    """Add a card: a few sentences that every session begins with. Cards share a budget of tokens, and the oldest leave
    it first; those that have left stay listed, with `perdure floor cards`.
    """
    sentences = said(words, "what the card says")
    with shell.open(create=True) as home:
        where = _where(home, project, here=here)
        made = home.floor.add_card(sentences, by=writer(by_agent=by_agent), project=where)
    say_card(shell, made, "Card")


def say_card(shell: Shell, card: Card, done: str) -> None:
    """What became of a card."""
    if shell.as_json:
        shell.answer({"card": card_json(card)})
        return
    shell.out.print(f"{done}: ", style="bold", end="")
    shell.out.print(f"{card.id}  {text.one_line(mask(card.text), 100)}", markup=False)


def card_json(card: Card) -> dict[str, Any]:
    """A card for programs."""
    found: dict[str, Any] = msgspec.structs.asdict(card)
    return found | {"text": mask(card.text), "tokens": text.tokens(card.text)}


@click.group(
    "cards",
    cls=LazyGroup,
    table=_CARDS,
    usual="list",
    epilog="""\b
Examples:
  perdure floor cards
  perdure floor cards edit card-3f9c2a11 "Ask before you push to main"
  perdure floor cards remove card-3f9c2a11""",
)
def cards_command() -> None:
    """The cards: list them (as `perdure floor cards`), edit one, remove one."""


# diary --------------------------------------------------------------------------------------------------------


@command(
    "diary",
    epilog="""\
  perdure floor diary                    today's page, or the newest
  perdure floor diary yesterday
  perdure floor diary --write            that of the last day that is over
  perdure floor diary 2026-11-21 --write --json""",
)
@click.argument("day", required=False, metavar="[DATE]")
@click.option("--write", "is_to_write", is_flag=True, help="Write it, as the job does, unless somebody has.")
def diary_command(shell: Shell, day: str | None, is_to_write: bool) -> None:
    """Read a page of the diary: a letter to the sessions that come. A day ends at six in the morning. With --write it
    is written from what was said on that day: by the model of the role `summariser`, or by rules where there is none.
    """
    if is_to_write:
        with shell.open() as home:
            made = home.write_diary(day_named(day) if day else None)
        _say_made(shell, f"{pages.DIARY}/{made.day}.md", made)
        return
    with shell.open() as home:
        name = f"{pages.DIARY}/{day_named(day)}.md" if day else _newest(home)
        found = mask(home.floor.read(name))
        tell_alerts(shell, home.floor)
    if not found:
        raise FloorMissing(f"page {name} of the floor (the diary has none for that day)")
    if shell.as_json:
        shell.answer({"page": name, "text": found})
    else:
        shell.out.print(text.printable(found), end="", markup=False)


@command(
    "recent",
    epilog="""\
  perdure floor recent
  perdure floor recent --rebuild         from the memories and what was said last
  perdure floor show recent              read it""",
)
@click.option("--rebuild", is_flag=True, help="Make it anew.")
def recent_command(shell: Shell, rebuild: bool) -> None:
    """Bring recent.md, what has been going on, up to what was said since the last time: by the model of the role
    `summariser`, in one call, or by rules where there is none. Where nothing is new nobody is asked. The resident home
    does it every ten minutes.
    """
    with shell.open() as home:
        made = home.update_recent(rebuild=rebuild)
    _say_made(shell, pages.RECENT, made)


def _say_made(shell: Shell, name: str, made: Updated | Paged) -> None:
    """What became of a page that is written from what was said. Raises what kept it from being written."""
    if made.fault is not None:
        raise made.fault
    if shell.as_json:
        shell.answer({
            "page": name, "outcome": made.outcome, "turns": made.n_turns, "calls": made.n_calls,
            "tokens": made.n_tokens, "why": made.why or None,
        })  # fmt: skip
        return
    why = f" ({text.one_line(made.why, 200)})" if made.why else ""
    shell.out.print(f"{name}: {made.outcome}{why}", style="bold", markup=False)
    if made.n_turns:
        read = f"{plural(made.n_turns, 'message')} read, {plural(made.n_calls, 'call')} of a model"
        shell.out.print(f"  {read}, {plural(made.n_tokens, 'token')} now", style="dim", markup=False)
    if made.n_tokens:
        shell.suggest([(f"perdure floor show {name}", "read it")])


def _newest(home: Home) -> str:
    """The newest page of the diary, or today's where there is none."""
    written = [name for name in home.floor.names() if name.startswith(f"{pages.DIARY}/")]
    return max(written, default=f"{pages.DIARY}/{day_named('today')}.md")


def day_named(named: str) -> date:
    """The day of the diary that a person means: today, yesterday, or a date."""
    today = layers.diary_day(datetime.now().astimezone())
    known = {"today": today, "yesterday": today - timedelta(days=1)}
    try:
        return known.get(named) or date.fromisoformat(named)
    except ValueError:
        raise UsageError(f"{text.printable(named)!r} is no day: write 2026-11-21, today or yesterday") from None
