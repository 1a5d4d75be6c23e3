"""`perdure context`: what a model would get for a message, and what each part of it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from perdure import text
from perdure.context import Context, Part
from perdure.errors import UsageError
from perdure.surfaces.cli.common import Shell, command, emit, moment, plural
from perdure.surfaces.cli.memory import said
from perdure.surfaces.cli.page import folder_of_project, tell_alerts
from perdure.types import Live


@command(
    "context",
    epilog="""\
  perdure context "which port does the staging server use?"
  perdure context "what is next?" --project web --platform telegram
  perdure context "what is next?" --anthropic | jq .system
  perdure context - --json < message.txt
  perdure context "and now?" --session 5f0c2a1b --now 2026-11-22T09:05""",
)
@click.argument("message", nargs=-1, metavar="MESSAGE…|-")
@click.option("--platform", default="api", show_default=True, help="Where the session runs, for {{platform}}.")
@click.option("--project", help='For a session in this project; "" for none (default: of the folder you are in).')
@click.option("--session", help="One that goes on: what it holds itself is not recalled.")
@click.option("--now", help="As if it were then: a date, an ISO time, or 30m, 12h, 7d, 4w ago.")
@click.option("--mode", type=click.Choice(["hybrid", "keyword"]), help="By words and meaning, or by words alone.")
@click.option("--anthropic", is_flag=True, help="Print the body for Anthropic's Messages API, and nothing else.")
@click.option("--openai", is_flag=True, help="Print the body for an endpoint like OpenAI's, and nothing else.")
def context_command(
    shell: Shell, message: tuple[str, ...], anthropic: bool, openai: bool, **given: str | None
) -> None:  # fmt: skip
    """Exactly what a model would get for a message, in the order in which it reads it: the layers of the floor, the
    message, what is recalled for it, time and place, each with its source and its tokens (about: models differ). What
    stands above the line stays the same within a session, so that a provider's cache holds it. Writes nothing.
    """
    if anthropic and openai:
        raise UsageError("say one of --anthropic and --openai")
    found = _context(shell, said(message, "which message"), given)
    if anthropic or openai:
        emit(found.anthropic() if anthropic else found.openai())
    elif shell.as_json:
        shell.answer(_json(found))
    else:
        _print(shell, found)


def _context(shell: Shell, message: str, given: dict[str, Any]) -> Context:
    if not message.strip():
        raise UsageError("a message needs words")
    at = moment(given["now"])
    with shell.open() as home:
        found = home.context(
            message, cwd=folder_of_project(home, given["project"], str(Path.cwd())), platform=given["platform"],
            session=Live(given["session"]) if given["session"] else None, now=at.astimezone() if at else None,
            mode=given["mode"],
        )  # fmt: skip
        tell_alerts(shell, home.floor)
    return found


def _json(found: Context) -> dict[str, Any]:
    return {
        "parts": [_part_json(part) for part in found.parts], "n_tokens": found.n_tokens,
        "n_cacheable_tokens": _n_cacheable(found), "silent": found.recalled.silent or None,
        "cues": [{"turn_id": cue.turn_id, "score": cue.score} for cue in found.recalled.cues],
        "degraded": found.recalled.degraded, "anthropic": found.anthropic(), "openai": found.openai(),
    }  # fmt: skip


def _part_json(part: Part) -> dict[str, Any]:
    names = {"n_tokens": "tokens", "n_rows": "rows", "n_left": "left", "is_cacheable": "cacheable"}
    return {names.get(name, name): value for name, value in asdict(part).items()}


def _n_cacheable(found: Context) -> int:
    return sum(part.n_tokens for part in found.parts if part.is_cacheable)


def _print(shell: Shell, found: Context) -> None:
    """Everything as a model reads it; above each part a line that is not sent."""
    n_cacheable, is_above = _n_cacheable(found), True
    for part in found.parts:
        if is_above and not part.is_cacheable:
            is_above = False
            shell.out.print(_rule(f"above is the same all session, and cached: {plural(n_cacheable, 'token')}", "═"))
        shell.out.print(_rule(f"{part.name}: {', '.join(_about(part))}", "─"))
        if part.text:
            shell.out.print(text.printable(part.text) + "\n", markup=False)
        for alert in part.alerts:
            shell.note(text.printable(alert))
    if found.recalled.silent:
        shell.out.print(f"(nothing is recalled: {text.printable(found.recalled.silent)})\n", style="dim", markup=False)
    if found.recalled.degraded:
        shell.note(f"Recall did without: {', '.join(found.recalled.degraded)}. `perdure doctor` says why.")
    beside = found.n_tokens - n_cacheable
    shell.out.print(_rule(f"in all: {plural(found.n_tokens, 'token')}, {beside:,} of them for this message", "═"))


def _rule(said: str, stroke: str) -> Text:
    """A line between parts, which is not part of what is sent."""
    return Text(f"{stroke * 2} {text.printable(said)} {stroke * 2}", style="bold" if stroke == "═" else "cyan")


def _about(part: Part) -> Iterator[str]:
    yield f"from {part.source}"
    if part.n_rows > 1:
        yield f"{part.n_rows:,} rows"
    yield plural(part.n_tokens, "token")
    if part.n_left:
        yield f"{part.n_left:,} left out for want of room"
