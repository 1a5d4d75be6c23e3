"""The command `context`: what a model would get for a message, and what each part of it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from perdure import text
from perdure.capture.transcripts import check_session
from perdure.context import Context, ContextPart
from perdure.errors import UsageError
from perdure.surfaces.cli.common import Shell, agent_option, command, emit, format_count, parse_moment
from perdure.surfaces.cli.floor_common import choose_folder, print_alerts
from perdure.surfaces.cli.memory_common import read_words
from perdure.types import Live


@command(
    "context",
    epilog="""\
  perdure context "which port does the staging server use?"
  perdure context "what is next?" --project web --platform telegram
  perdure context "what is next?" --anthropic | jq .system
  perdure context "what is next?" --agent mira
  perdure context - --json < message.txt
  perdure context "and now?" --session 5f0c2a1b --now 2026-11-22T09:05
  perdure context --session last           what a session of Perdure's own costs, part by part""",
)
@click.argument("message", nargs=-1, metavar="MESSAGE…|-")
@agent_option
@click.option("--platform", default="api", show_default=True, help="The platform of the session, for {{platform}}.")
@click.option("--project", help='The project of the session; "" for none (default: the project of the current folder).')
@click.option(
    "--session",
    metavar="ID",
    help="A session that is still running; recall skips its turns. Without a message: the bill of a session of "
    "Perdure's own.",
)
@click.option("--now", help="Use this time as the current time: a date, an ISO time, or 30m, 12h, 7d, 4w ago.")
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "keyword"]),
    help="Search words and meaning, or only words (default: hybrid).",
)
@click.option("--anthropic", is_flag=True, help="Print only the request body for Anthropic's Messages API.")
@click.option("--openai", is_flag=True, help="Print only the request body for an endpoint like OpenAI's.")
def context_command(
    shell: Shell, message: tuple[str, ...], anthropic: bool, openai: bool, **options: str | None
) -> None:  # fmt: skip
    """Show exactly what a model would get for a message, in the order in which it reads it: the layers of the floor,
    the message, the recalled text, time and place. Each part has its source and its tokens (an estimate: models count
    differently). The text above the line stays the same during a session, so that the cache of a provider holds it.
    Writes nothing.
    """
    if anthropic and openai:
        raise UsageError("give only one of --anthropic and --openai")
    if options["session"] and not message and not (anthropic or openai):
        _print_bill(shell, options["session"])
        return
    context = _build_context(shell, read_words(message, "the message"), options)
    if anthropic or openai:
        emit(context.anthropic() if anthropic else context.openai())
    elif shell.as_json:
        shell.print_json(_context_to_json(context))
    else:
        _print_context(shell, context)


def _print_bill(shell: Shell, name: str) -> None:
    """Print what a model would read of a session now, and the tokens of each part."""
    from perdure.session.bill import make_bill
    from perdure.surfaces.session_costs import list_costs, totals_to_json

    with shell.open_home() as home:
        bill = make_bill(home, name, cwd=str(Path.cwd()))
    if shell.as_json:
        by_job = {job: totals_to_json(totals) for job, totals in bill.totals_by_job.items()}
        parts = [asdict(part) for part in bill.parts]
        fields = {"session": bill.session, "parts": parts, "window_tokens": bill.window_tokens}
        shell.print_json({**fields, "n_tokens": bill.n_tokens, "totals_by_job": by_job})
        return
    for part in bill.parts:
        n_messages = f"  {format_count(part.n_messages, 'message')}" if part.n_messages else ""
        shell.out.print(f"{part.name:30}{part.n_tokens:>9,}{n_messages}", markup=False)
    window = f" of {bill.window_tokens:,} ({bill.n_tokens / bill.window_tokens:.0%})" if bill.window_tokens else ""
    shell.out.print(f"{'in total':30}{bill.n_tokens:>9,}{window}", style="bold", markup=False)
    for row in list_costs(bill.totals_by_job) if bill.totals_by_job else ():
        shell.out.print(row, style="dim", markup=False)


def _build_context(shell: Shell, message: str, options: dict[str, Any]) -> Context:
    if not message.strip():
        raise UsageError("a message needs words")
    check_session(options["session"] or "")
    now = parse_moment(options["now"])
    with shell.use_home(agent=options["agent"] or "") as home:
        context = home.context(
            message,
            cwd=choose_folder(home, options["project"], str(Path.cwd())),
            platform=options["platform"],
            session=Live(options["session"]) if options["session"] else None,
            now=now.astimezone() if now else None,
            mode=options["mode"],
        )
        print_alerts(shell, home.floor)
    return context


def _context_to_json(context: Context) -> dict[str, Any]:
    return {
        "parts": [_part_to_json(part) for part in context.parts],
        "n_tokens": context.n_tokens,
        "n_cacheable_tokens": _count_cacheable_tokens(context),
        "silent": context.recalled.silent or None,
        "cues": [{"turn_id": cue.turn_id, "score": cue.score} for cue in context.recalled.cues],
        "degraded": context.recalled.degraded,
        "anthropic": context.anthropic(),
        "openai": context.openai(),
    }


def _part_to_json(part: ContextPart) -> dict[str, Any]:
    names = {"n_tokens": "tokens", "n_rows": "rows", "n_left": "left", "is_cacheable": "cacheable"}
    return {names.get(name, name): value for name, value in asdict(part).items()}


def _count_cacheable_tokens(context: Context) -> int:
    return sum(part.n_tokens for part in context.parts if part.is_cacheable)


_EMPTY_FLOOR = "nothing stands before every message yet: `perdure floor edit profile` writes it"


def _print_context(shell: Shell, context: Context) -> None:
    """Print everything as a model reads it; above each part a line that is not sent."""
    n_cacheable, is_above = _count_cacheable_tokens(context), True
    for part in context.parts:
        if is_above and not part.is_cacheable:
            is_above = False
            stays = "the text above stays the same during a session, so a provider can cache it: "
            caption = f"{stays}{format_count(n_cacheable, 'token')}" if n_cacheable else _EMPTY_FLOOR
            shell.out.print(_format_rule(caption, "═"))
        shell.out.print(_format_rule(f"{part.name}: {', '.join(_describe_part(part))}", "─"))
        if part.text:
            shell.out.print(text.printable(part.text) + "\n", markup=False)
        for alert in part.alerts:
            shell.note(text.printable(alert))
    if context.recalled.silent:
        shell.out.print(
            f"(nothing is recalled: {text.printable(context.recalled.silent)})\n", style="dim", markup=False
        )
    if context.recalled.degraded:
        shell.note(f"Recall worked without: {', '.join(context.recalled.degraded)}. `perdure doctor` shows the reason.")
    n_message_tokens = context.n_tokens - n_cacheable
    shell.out.print(
        _format_rule(
            f"in total: {format_count(context.n_tokens, 'token')}, {n_message_tokens:,} of them for this message", "═"
        )
    )


def _format_rule(caption: str, stroke: str) -> Text:
    """Format a line between parts; it is not sent to the model."""
    return Text(f"{stroke * 2} {text.printable(caption)} {stroke * 2}", style="bold" if stroke == "═" else "cyan")


def _describe_part(part: ContextPart) -> Iterator[str]:
    yield f"from {part.source}"
    if part.n_rows > 1:
        yield f"{part.n_rows:,} rows"
    yield format_count(part.n_tokens, "token")
    if part.n_left:
        yield f"{part.n_left:,} left out: no room"
