"""The command `recall`: what a model would get for a message, and why."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure import text
from perdure.access import shown_alerts
from perdure.capture import policy
from perdure.environ import find_home_path
from perdure.errors import UsageError
from perdure.service import client
from perdure.surfaces.cli.common import Actions, Shell, agent_option, command, parse_moment

if TYPE_CHECKING:
    from perdure.types import Recalled

_MAX_CUE_CHARS = 600  # most characters of a cue on a terminal, unless --full


@command(
    "recall",
    epilog="""\
  perdure recall "which port did we give the staging server?"
  perdure recall --all-projects what broke last Tuesday
  perdure recall "why sqlite" --why-not t7k2m9q     why a turn was not recalled
  perdure recall "which port does staging use?" --as-of 2026-03-01     as on that day
  echo "a long message" | perdure recall -
  perdure recall "the release" --json""",
)
@click.argument("message", nargs=-1)
@agent_option
@click.option("--all-projects", is_flag=True, help="Search all projects, not only the project of this folder.")
@click.option("--why-not", metavar="ID", help="Explain why this turn was not recalled.")
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "keyword"]),
    help="Search words and meaning, or only words (default: hybrid).",
)
@click.option("--as-of", metavar="DATE", help="Use only data from before this time: a date, or 30m, 12h, 7d, 4w ago.")
@click.option("--full", is_flag=True, help="Show the cues in full.")
@click.option("--explain", is_flag=True, help="Show the plan, the scores and the time that each step took.")
def recall_command(
    shell: Shell, message: tuple[str, ...], agent: str, all_projects: bool, why_not: str | None, mode: str | None,
    as_of: str | None, full: bool, explain: bool,
) -> None:  # fmt: skip
    """Show what a model would get with a message: a few memories and earlier turns, each with its source and the reason
    for the choice. Often the result is empty. Recall searches the project of the current folder, and the data without a
    project.
    """
    words = _read_message(message)
    recalled, reason = _run_recall(shell, words, agent, all_projects, why_not, mode, parse_moment(as_of))
    if recalled.held_back:
        home = find_home_path(shell.home)
        alerts = {suspect.digest: name for name, suspect in recalled.held_back.items()}
        shown_alerts.mark_shown(home, policy.load_rules(home).user, alerts)
    actions = _suggest_next(recalled, all_projects)
    if shell.as_json:
        shell.print_json({**_recall_to_json(recalled), "why_not": reason or None}, next_actions=actions)
        return
    from perdure.surfaces.cli import recall_output  # with rich 25 ms, which pass while the resident home answers

    recall_output.print_notices(shell, recalled, mode)
    now = datetime.now(UTC)
    for number, cue in enumerate(recalled.cues):
        recall_output.print_cue(shell.out, cue, number, None if full else _MAX_CUE_CHARS, now=now, explain=explain)
    if not recalled.cues:
        shell.out.print(f"Nothing is recalled: {recalled.silent}.", markup=False)
    if explain:
        recall_output.print_plan(shell.out, recalled)
    if reason:
        shell.out.print(f"\n{why_not}: {reason}", markup=False)
    shell.suggest(actions)


def _run_recall(
    shell: Shell,
    words: str,
    agent: str,
    all_projects: bool,
    why_not: str | None,
    mode: str | None,
    as_of: datetime | None,
) -> tuple[Recalled, str]:
    """Return (what is recalled, what a turn lacked to be a cue).

    The resident home answers if it would say the same as this process.
    """
    cwd = None if all_projects else str(Path.cwd())
    if not agent and not why_not and as_of is None and shell.load_thin_rules() is None:
        meanwhile = None if shell.as_json else partial(import_module, "perdure.surfaces.cli.recall_output")
        recalled = client.ask_recall(
            find_home_path(shell.home), words, cwd=cwd, all_projects=all_projects, mode=mode, meanwhile=meanwhile
        )
        if recalled is not None:
            return recalled, ""
        if mode != "keyword":
            shell.begin_loading_model()
    with shell.use_home(agent=agent) as home:
        name = home.resolve(why_not)[1] if why_not else ""
        recalled = home.recall(words, cwd=cwd, all_projects=all_projects, mode=mode, explain=bool(name), as_of=as_of)
        if not name:
            return recalled, ""
        from perdure.remote_home import RemoteHome

        if isinstance(home, RemoteHome):
            return recalled, home.explain_omission(
                words, name, cwd=cwd, all_projects=all_projects, mode=mode, as_of=as_of
            )
        from perdure.surfaces import recall_sources  # 0.15 s

        return recalled, recall_sources.explain_omission(home, recalled, name, cwd)


def _read_message(message: Sequence[str]) -> str:
    if tuple(message) == ("-",):
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    if not message:
        raise UsageError("give a message to recall for, or `-` to read it from standard input")
    return " ".join(message)


def _suggest_next(recalled: Recalled, all_projects: bool) -> Actions:
    if recalled.cues:
        return [(f"perdure show {recalled.cues[0].turn_id}", "read the first cue in its conversation")]
    if all_projects or not recalled.plan.queries:
        return []
    return [(f"perdure recall --all-projects {_quote_message(recalled.plan.message)}", "search every project")]


def _quote_message(message: str) -> str:
    return "'" + text.one_line(message, 60).replace("'", "'\\''") + "'"


def _recall_to_json(recalled: Recalled) -> dict[str, Any]:
    from msgspec import to_builtins

    return {
        "cues": [to_builtins(cue) for cue in recalled.cues],
        "silent": recalled.silent or None,
        "degraded": recalled.degraded,
        "n_tokens": recalled.n_tokens,
        "plan": to_builtins(recalled.plan),
        "timings_ms": recalled.timings_ms,
        "depth": recalled.depth,
        "relevance": recalled.relevance,
        "threshold": recalled.threshold,
        "held_back": {name: finding._asdict() for name, finding in recalled.held_back.items()},
    }
