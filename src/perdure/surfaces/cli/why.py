"""The command `why`: what was put beside the last message of a session, and the reason for each text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from perdure import text, tool_turn
from perdure.archive.memory_events import WRONG
from perdure.errors import UsageError
from perdure.remote_home import RemoteHome
from perdure.surfaces.cli.common import Shell, command, format_count, format_time_and_age
from perdure.surfaces.last_recall import describe_last_recall

_MAX_TOLD = 10  # facts that were told at tool calls and are shown


@command(
    "why",
    epilog="""\
  perdure why                      the last recall of all sessions
  perdure why --session 5f0c       the last recall of one session
  perdure why --wrong 2            text 2 did not belong beside the message
  perdure why --tools              the facts that sessions were told at tool calls
  perdure why --json""",
)
@click.option("--session", help="Show the last recall of this session (the beginning of its id).")
@click.option("--wrong", type=click.IntRange(min=1), metavar="N", help="Keep that text N did not belong there.")
@click.option("--explain", is_flag=True, help="Show the scores, and the time that each step took.")
@click.option("--tools", is_flag=True, help="Show what sessions were told at tool calls, newest first.")
def why_command(shell: Shell, session: str | None, wrong: int | None, explain: bool, tools: bool) -> None:
    """Show the last recall that went into a session: the message, the memories and turns beside it, and the reason for
    each.
    """
    if tools:
        _show_told_facts(shell, session or "")
        return
    if wrong is not None:
        _mark_wrong(shell, session or "", wrong)
        return
    with shell.use_home() as home:
        recall = home.why(session or "") if isinstance(home, RemoteHome) else describe_last_recall(home, session or "")
    if shell.as_json:
        shell.print_json(recall)
        return
    _print_why(shell, recall, explain=explain)


def _show_told_facts(shell: Shell, session: str) -> None:
    """Print the newest facts of action that were told; at the home's own machine alone."""
    with shell.open_home() as home:
        told_facts = tool_turn.list_told(home, session, limit=_MAX_TOLD)
    if shell.as_json:
        shell.print_json({"told": [asdict(fact) for fact in told_facts]})
        return
    if not told_facts:
        shell.note("No session was told anything at a tool call yet.")
    for fact in told_facts:
        header = f"{format_time_and_age(fact.at, datetime.now(UTC))} · {fact.runtime} session {fact.session}"
        shell.out.print(header, style="bold", markup=False)
        for kind, words in fact.stated:
            shell.out.print(f"  {kind:<8}{text.one_line(words, 200)}", markup=False)
        names = " ".join(map(_shorten_id, fact.turn_ids)) + ("" if fact.stated else "  (forgotten)")
        shell.out.print(f"  from    {names}", style="dim", markup=False)


def _mark_wrong(shell: Shell, session: str, number: int) -> None:
    """Keep the label, as one click on the page does; at the home's own machine alone."""
    with shell.open_home() as home:
        recall = describe_last_recall(home, session)
        if number > len(recall["cues"]):
            raise UsageError(
                f"the last recall has {format_count(len(recall['cues']), 'text')}: `perdure why` shows them"
            )
        cue = recall["cues"][number - 1]
        home.memories.label_cue(recall["nonce"], cue["turn"], WRONG)
    if shell.as_json:
        shell.print_json({"nonce": recall["nonce"], "cue": cue["turn"], "label": WRONG})
        return
    shell.out.print(f"Marked as wrong for this message: {text.one_line(cue['text'], 100)}", markup=False)
    shell.note("The page takes this back (`perdure page`, Recall). A false memory is corrected there, too.")


def _print_why(shell: Shell, recall: Mapping[str, Any], *, explain: bool) -> None:
    cues, now = recall["cues"], datetime.now(UTC)
    agent = f", agent {recall['agent']}" if recall["agent"] else ""
    session_text = f"{recall['runtime']} session {recall['session']}{agent}"
    shell.out.print(f"{format_time_and_age(recall['at'], now)} · {session_text}", style="bold", markup=False)
    if recall["message"]:
        message = text.one_line(recall["message"], 200)
        shell.out.print(f'message: "{message}"', markup=False)
    cost_text = f"{format_count(recall['n_tokens'], 'token')}, {recall['took_ms']:.0f} ms"
    shell.out.print(f"{format_count(len(cues), 'text')} put beside it: {cost_text}", markup=False)
    if explain:
        shell.out.print(f"milliseconds: {_format_values(recall['timings_ms'])}", style="dim", markup=False)
    if recall["degraded"]:
        shell.note(f"Without: {', '.join(recall['degraded'])}.")
    for number, cue in enumerate(cues, start=1):
        if not cue["text"]:
            shell.out.print(f"\n{number}. {_shorten_id(cue['turn'])}  (forgotten)", style="dim", markup=False)
            continue
        names = (cue["said_by"], text.shorten_project(cue["project"]), format_time_and_age(cue["stated_at"], now))
        header = "  ".join(filter(None, (*names, _shorten_id(cue["turn"]))))
        shell.out.print(f"\n{number}. {header}", markup=False)
        shell.out.print(f"   {text.one_line(cue['text'], 200)}", style="dim", markup=False)
        shell.out.print(f"   because it {'; '.join(cue['why']) or 'matches best'}", style="yellow", markup=False)
        if explain:
            shell.out.print(f"   score {cue['score']:.2f}: {_format_values(cue['legs'])}", style="dim", markup=False)


def _shorten_id(name: str) -> str:
    """Shorten the id of a turn to what finds it; the id of a memory stays whole."""
    return name if name.startswith("mem-") else name[:8]


def _format_values(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values.items())
