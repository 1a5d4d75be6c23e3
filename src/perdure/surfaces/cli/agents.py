"""The commands about runs of agents in the background: list, show, queue, wait, cancel."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from perdure import text
from perdure.access.redact import mask
from perdure.agent.envelope import describe_run, format_run
from perdure.agent.permission import MODES
from perdure.agent.queue_runner import queue_run, start_runner, wake_resident
from perdure.agent_queue import AgentQueue, AgentRecipe, AgentRun
from perdure.errors import UsageError
from perdure.home import Home
from perdure.surfaces.cli.common import Shell, command, format_count, format_time_and_age
from perdure.surfaces.cli.lazy import LazyGroup

MAX_WAIT_S = 7200
JOB = "shell"  # under this name the model calls of runs from the shell are metered

_STYLES = {"done": "green", "waiting": "dim", "running": "cyan"}

_AGENT_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("agents", "List runs: those that wait and run, then those that have ended."),
    "show": ("agents", "Show a run: how it ended, what it said, what to do."),
    "queue": ("agents", "Give a task to an agent in the background."),
    "wait": ("agents", "Wait until runs have ended, and show them."),
    "cancel": ("agents", "End runs that wait or run."),
}


@click.group(
    "agents",
    cls=LazyGroup,
    table=_AGENT_COMMANDS,
    default_command="list",
    epilog="""\b
Examples:
  perdure agents
  perdure agents queue "list the flaky tests" --wait
  perdure agents wait a7k2 a9m4
  perdure agents show a7k2
  perdure agents cancel a7k2

An ID is the beginning of the id of a run.""",
)
def agents_command() -> None:
    """Work with runs of agents in the background: those that an agent queued as its sub-agents, and your own.

    The resident home (`perdure serve`) carries them out; where none runs, the session or command that waits for them.
    """


@command(
    "list",
    epilog="""\
  perdure agents
  perdure agents list --limit 100 --json""",
)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most so many.")
def list_command(shell: Shell, limit: int) -> None:
    """List runs: those that have not ended in their order, then those that have, the last one first."""
    with shell.open_home() as home:
        queue = AgentQueue(home.path)
        runs = [run for run in (*queue.list_active(), *queue.list_ended()) if run.user == home.user]
        rows = [mask_fields(describe_run(home, run)) for run in runs[:limit]]
    if shell.as_json:
        shell.print_json({"runs": rows, "n_runs": len(runs)})
        return
    now = datetime.now(UTC)
    for row in rows:
        for line in _draw_row(row, now):
            shell.out.print(line)
    if not rows:
        shell.out.print('No runs yet. `perdure agents queue "…"` queues one.', markup=False)
    if len(runs) > limit:
        shell.note(f"{format_count(len(runs) - limit, 'older run')}: --limit shows more.")


def _draw_row(row: dict[str, Any], now: datetime) -> Iterator[Text]:
    end = row["outcome"] or row["state"]
    head = Text(row["run"], style="cyan")
    head.append(f"  {end:<13}", style=_STYLES.get(end, "yellow"))
    yield head.append(text.printable(text.one_line(row["instruction"], 80)))
    details = (
        format_time_and_age(row["ended_at"] or row["started_at"] or row["queued_at"], now),
        row["job"],
        format_count(row["n_turns"], "turn"),
        format_count(row["n_tokens"], "token"),
        f"sub-agent of {row['spawned_by'][:8]}" if row["spawned_by"] else "",
        row["why"],
    )
    yield Text("             " + text.printable(" · ".join(filter(None, details))), style="dim")


def mask_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields without secrets."""
    return {name: mask(value) if isinstance(value, str) else value for name, value in fields.items()}


@command(
    "show",
    epilog="""\
  perdure agents show a7k2
  perdure agents show a7k2 --json""",
)
@click.argument("identifier", metavar="ID")
def show_command(shell: Shell, identifier: str) -> None:
    """Show a run in full: how it ended and why, what it cost and said, its session, and what to do."""
    with shell.open_home() as home:
        fields = mask_fields(describe_run(home, AgentQueue(home.path).resolve(identifier, user=home.user)))
    if shell.as_json:
        shell.print_json({"run": fields})
        return
    shell.out.print(text.printable(format_run(fields)), markup=False)
    if fields["session"]:
        shell.suggest([(f"perdure sessions show {fields['session'][:8]}", "all that it did")])


@command(
    "queue",
    epilog="""\
  perdure agents queue "list the flaky tests of this project" --wait
  perdure agents queue "mend the cart" --mode edits --check "make test" --max-turns 30
  perdure agents queue "summarise the week" --tool recall --model summariser --json""",
)
@click.argument("instruction")
@click.option("--context", metavar="TEXT", default="", help="What it must know and cannot find.")
@click.option("--tool", "tools", metavar="NAME", multiple=True, help="A tool that it has (default: all of agent.yaml).")
@click.option("--model", metavar="ROLE|NAME", default="", help="The model (default: of the role resident).")
@click.option("--mode", type=click.Choice(MODES), default="ask", show_default=True, help="What runs; nobody is asked.")
@click.option("--max-turns", type=click.IntRange(1), metavar="N", default=None, help="Answers of the model at most.")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", default=None, help="Tokens of all answers at most.")
@click.option("--max-s", type=click.IntRange(1), metavar="N", default=None, help="Seconds at most.")
@click.option("--check", metavar="LINE", default="", help="A shell line that must succeed at its end.")
@click.option("--cwd", metavar="DIR", default="", help="The folder to work in (default: this one).")
@click.option("--retry", type=click.IntRange(0, 3), default=0, help="Begin again if its process is killed, so often.")
@click.option("--wait", "is_waiting", is_flag=True, help="Wait until it has ended, and show it.")
def queue_command(shell: Shell, instruction: str, tools: tuple[str, ...], is_waiting: bool, **options: Any) -> None:
    """Give a task to an agent in the background, and print the id of its run. What would need a person is denied."""
    limits: dict[str, Any] = {name: options.pop(name) or 0 for name in ("max_turns", "max_tokens", "max_s")}
    if not instruction.strip():
        raise UsageError("say what is to be done")
    cwd = str(Path(options.pop("cwd") or ".").resolve())
    if not Path(cwd).is_dir():
        raise UsageError(f"there is no folder {cwd}")
    recipe = AgentRecipe(instruction=instruction, tools=tools or None, cwd=cwd, **limits, **options)
    with shell.open_home(create=True) as home:
        run = queue_run(home, recipe, job=JOB)
        if is_waiting:
            await_runs(shell, home, [run], MAX_WAIT_S)
            return
        is_served = wake_resident(home.path)
    if shell.as_json:
        shell.print_json({"job": run.job, "run": run.run, "served": is_served})
        return
    shell.out.print(run.run)
    if not is_served:
        shell.note(f"No resident home runs: it waits until `perdure serve`, or `perdure agents wait {run.run}`.")


@command(
    "wait",
    epilog="""\
  perdure agents wait a7k2 a9m4
  perdure agents wait a7k2 --timeout 60 --json""",
)
@click.argument("identifiers", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(0, MAX_WAIT_S), default=MAX_WAIT_S, show_default=True,
    metavar="SECONDS", help="Wait at most so long.",
)  # fmt: skip
def wait_command(shell: Shell, identifiers: tuple[str, ...], timeout_s: int) -> None:
    """Wait until runs have ended, and show them. The status is 0 if all are done, else 1."""
    with shell.open_home() as home:
        queue = AgentQueue(home.path)
        runs = [queue.resolve(identifier, user=home.user) for identifier in identifiers]
        await_runs(shell, home, runs, timeout_s)


def await_runs(shell: Shell, home: Home, runs: Sequence[AgentRun], timeout_s: float) -> None:
    """Wait for runs, carried out here where nobody else does it, and show them; exit 1 unless all are done."""
    queue, ends_s = AgentQueue(home.path), time.monotonic() + timeout_s
    with _carry_out_runs(home):
        ended_runs = [queue.wait_until(run.run, ends_s) for run in runs]
    rows = [mask_fields(describe_run(home, run)) for run in ended_runs]
    if shell.as_json:
        shell.print_json({"runs": rows})
    else:
        shell.out.print("\n\n".join(text.printable(format_run(row)) for row in rows), markup=False)
    if not all(row["outcome"] == "done" for row in rows):
        sys.exit(1)


@contextlib.contextmanager
def _carry_out_runs(home: Home) -> Iterator[None]:
    """Carry out runs in this process while no resident home does."""
    stop_event = threading.Event()
    runner = start_runner(home, stop_event)
    try:
        yield
    finally:
        stop_event.set()
        runner.wake()


@command(
    "cancel",
    epilog="""\
  perdure agents cancel a7k2
  perdure agents cancel a7k2 a9m4 --json""",
)
@click.argument("identifiers", metavar="ID...", nargs=-1, required=True)
def cancel_command(shell: Shell, identifiers: tuple[str, ...]) -> None:
    """End runs: one that waits at once, one that runs within a second or so. What it said until then is kept."""
    with shell.open_home() as home:
        queue = AgentQueue(home.path)
        runs = [queue.cancel(queue.resolve(identifier, user=home.user).run) for identifier in identifiers]
    if shell.as_json:
        shell.print_json({"runs": [{"run": run.run, "state": run.state} for run in runs]})
        return
    for run in runs:
        how = run.envelope.outcome if run.envelope else "asked to end"
        shell.out.print(f"{run.run}: {how}", markup=False)
