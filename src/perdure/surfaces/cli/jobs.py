"""The commands about scheduled jobs: those that Perdure brings, and those that the owner defines."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from perdure import text
from perdure.access.redact import mask
from perdure.agent import job_definition, start_jobs
from perdure.agent.envelope import describe_run, format_run
from perdure.agent.job_definition import KNOWN_WORDS, JobDefinition
from perdure.agent_queue import AgentQueue
from perdure.config import find_home_path
from perdure.environ import local_now
from perdure.errors import JobMissing, UsageError
from perdure.home import Home
from perdure.jobs import JobLog
from perdure.service import builtin_jobs, clock, job_list
from perdure.service.machine_load import measure_machine
from perdure.surfaces.cli.agents import MAX_WAIT_S, await_runs, mask_fields
from perdure.surfaces.cli.common import Shell, command, confirm, format_age, format_count
from perdure.surfaces.cli.lazy import LazyGroup

_JOB_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("jobs", "List all jobs, when each runs, and how it went."),
    "show": ("jobs", "Show a job: its page, its next time, its last runs."),
    "add": ("jobs", "Add a job: an agent or a command that runs on a schedule."),
    "edit": ("jobs", "Change a job of yours."),
    "remove": ("jobs", "Remove a job of yours."),
    "trigger": ("jobs", "Start a job now."),
    "pause": ("jobs", "Pause a job: its schedule no longer starts it."),
    "resume": ("jobs", "Let the schedule start a job again."),
    "runs": ("jobs", "List the runs of a job, the last one first."),
    "logs": ("jobs", "Show what the last run of a job said, or another run."),
    "cancel": ("jobs", "End the runs of a job."),
    "examples": ("jobs", "List the jobs that come with Perdure, to add."),
    "measure": ("jobs", "Measure processor, memory and disk of this machine."),
}


@click.group(
    "jobs",
    cls=LazyGroup,
    table=_JOB_COMMANDS,
    default_command="list",
    epilog="""\b
Examples:
  perdure jobs
  perdure jobs add standup --cron "0 9 * * 1-5" --instruction "What is open in my projects?" --deliver notes
  perdure jobs add digest --example daily-digest --deliver notes
  perdure jobs trigger digest --wait
  perdure jobs runs digest
  perdure jobs pause digest""",
)
def jobs_command() -> None:
    """Show and control scheduled jobs: those that Perdure brings, and your own.

    The resident home (`perdure serve`) runs them. The schedule of a job that Perdure brings is a setting, `jobs.NAME`;
    yours are pages of the floor, jobs/NAME.yaml.
    """


# the schedule ---------------------------------------------------------------------------------------------------


@command("list", epilog="  perdure jobs\n  perdure jobs list --json")
def list_command(shell: Shell) -> None:
    """List all jobs: when each runs, what it does, and how its last run went."""
    with shell.open_home() as home:
        rows = job_list.list_jobs(home, local_now())
        idleness = job_list.find_idleness(home)
    if shell.as_json:
        shell.print_json({"jobs": rows, "served": not idleness})
        return
    width, now = max(len(row["job"]) for row in rows), datetime.now(UTC)
    for row in rows:
        state = "paused" if row["paused"] else row["when"] or "never"
        shell.out.print(
            f"{row['job']:<{width}} {state:<13} {text.printable(text.one_line(row['does'], 90))}", markup=False
        )
        if row["fault"]:
            shell.out.print(f"{'':<{width}} it does not run: {text.printable(row['fault'])}", style="red", markup=False)
        if row["last"]:
            shell.out.print(f"{'':<{width}} {_format_row(row['last'], now)}", style="dim", markup=False)
    if idleness:
        shell.note(f"No job runs by itself: {idleness}")


def _format_row(row: Mapping[str, Any], now: datetime) -> str:
    took = "" if row["result"] in ("running", "waiting", "queued") else f" ({row['took_ms'] / 1000:.1f} s)"
    why = text.printable(text.one_line(mask(row["why"]), 200))
    return f"{format_age(row['started_at'], now)}, by {row['trigger']}: {row['result']}{took} {why}".rstrip()


@command("show", epilog="  perdure jobs show digest\n  perdure jobs show digest --json")
@click.argument("name")
def show_command(shell: Shell, name: str) -> None:
    """Show a job: what it does, when it runs next, its page if it is yours, and its last runs."""
    now = local_now()
    with shell.open_home() as home:
        row = job_list.find_job(home, name, now)
        page = ""
        if row["is_own"]:
            with contextlib.suppress(JobMissing):  # the row says why its file is no page
                page = job_definition.read_job_page(home, name)
        runs = start_jobs.describe_runs(home, name)[:5]
    if shell.as_json:
        shell.print_json({**row, "page": page, "runs": runs})
        return
    shell.out.print(f"{name}: {text.printable(row['does'])}", markup=False)
    shell.out.print(f"runs: {row['when'] or 'only when triggered'}; next {row['next_at'] or 'never'}", markup=False)
    if row["fault"]:
        shell.out.print(f"it does not run: {text.printable(row['fault'])}", style="red", markup=False)
    if page:
        shell.out.print(f"\n{text.printable(mask(page)).rstrip()}\n", markup=False, style="dim")
    for item in runs:
        shell.out.print(_format_row(item, now), markup=False)


# definitions ----------------------------------------------------------------------------------------------------


def _choose(key: str) -> click.Choice[str]:
    return click.Choice(KNOWN_WORDS[key])


_MULTIPLE = {"prompts": "prompt", "tools": "tool", "deliver": "deliver"}  # key -> its option, given once for each
_OPTIONS: tuple[tuple[str, Any, str], ...] = (
    ("cron", str, "When it runs: five fields, in this machine's time zone."),
    ("instruction", str, "What the agent is to do."),
    ("prompts", str, "Instead: a message of one session; give it for each."),
    ("command", str, "Instead of an agent: a shell line."),
    ("does", str, "What it does, in words, for the list."),
    ("context", str, "What the agent must know and cannot find."),
    ("seen_days", click.IntRange(1), "Give it the conversations of so many days."),
    ("each", _choose("each"), "One run for each error that is seen for the first time."),
    ("tools", str, "A tool that it has (default: all of agent.yaml); give it for each."),
    ("mode", _choose("mode"), "What runs; nobody is asked (default: ask)."),
    ("model", str, "A role, or a name at the provider (default: as agent.yaml says)."),
    ("effort", _choose("effort"), "How hard the model thinks."),
    ("max_turns", click.IntRange(1), "Answers of the model to a message at most."),
    ("max_tokens", click.IntRange(1), "Tokens of all answers to a message at most."),
    ("max_money", click.FloatRange(0), "Money for a message at most."),
    ("max_s", click.IntRange(1), "Seconds at most."),
    ("check", str, "A shell line that must succeed at its end."),
    ("cwd", str, "The folder to work in (default: your own)."),
    ("deliver", str, "A target of config.toml, to which the result goes; give it for each."),
    ("missed", _choose("missed"), "For missed runs: one run, or none (default: once)."),
    ("overlap", _choose("overlap"), "While its last run has not ended (default: forbid)."),
    ("retry", click.IntRange(0, 3), "Begin again if its process is killed, so often."),
    ("machine", str, "Run it only at the home on this machine (default of `add`: this one)."),
)  # fmt: skip


def _add_options(function: Any) -> Any:
    for key, type_, help_ in reversed(_OPTIONS):
        is_multiple = key in _MULTIPLE
        flag = f"--{_MULTIPLE.get(key, key).replace('_', '-')}"
        metavar = None if isinstance(type_, click.Choice) else "N" if type_ is not str else "TEXT"
        function = click.option(flag, key, type=type_, multiple=is_multiple, metavar=metavar, help=help_)(function)
    return function


_file_option = click.option(
    "--file", "path", type=click.Path(exists=True, dir_okay=False, allow_dash=True), help="The page: a YAML file, or -."
)  # fmt: skip


@command(
    "add",
    epilog="""\
  perdure jobs add standup --cron "0 9 * * 1-5" --instruction "What is open in my projects?" --tool recall
  perdure jobs add backup --cron "0 2 * * *" --command "perdure backup ~/backups" --missed once
  perdure jobs add digest --example daily-digest
  perdure jobs add hunter --example bug-hunter --json""",
)
@click.argument("name")
@_file_option
@click.option(
    "--example", metavar="NAME", default="", help="Begin with a job that comes with Perdure (`jobs examples`)."
)
@_add_options
def add_command(shell: Shell, name: str, path: str | None, example: str, **options: Any) -> None:
    """Add a job of yours: an agent or a command that runs on a schedule. Other options change what a file or an example
    says.
    """
    if path and example:
        raise UsageError("give --file or --example")
    page = _read_file(path) if path else job_definition.find_example(example) if example else ""
    with shell.open_home(create=True) as home:
        if home.floor.read(job_definition.to_page(name)).strip():
            raise UsageError(f"there is a job {name} already: `perdure jobs edit {name}` changes it")
        options["machine"] = options["machine"] or home.config.machine
        definition = job_definition.save_job(home, name, job_definition.change_page(page, options))
        _print_definition(shell, home, definition, "Added")


@command(
    "edit",
    epilog="""\
  perdure jobs edit standup --cron "30 8 * * 1-5" --effort low
  perdure jobs edit standup --file standup.yaml
  perdure jobs edit standup --unset deliver
  perdure jobs edit standup                        in your editor""",
)
@click.argument("name")
@_file_option
@click.option("--unset", metavar="KEY", multiple=True, help="Leave out this key of the page; give it for each.")
@_add_options
def edit_command(shell: Shell, name: str, path: str | None, unset: tuple[str, ...], **options: Any) -> None:
    """Change a job of yours: the keys that you give, or the whole page. It counts from its next time on."""
    with shell.open_home() as home:
        page = job_definition.read_job_page(home, name)
        has_options = any(value not in (None, ()) for value in options.values()) or unset
        if path:
            page = _read_file(path)
        elif not has_options:
            page = _ask_editor(page)
        if has_options:
            page = job_definition.change_page(page, options, unset)
        definition = job_definition.save_job(home, name, page)
        _print_definition(shell, home, definition, "Changed")


def _ask_editor(page: str) -> str:
    edited: str | None = click.edit(text=page, extension=".yaml")
    if edited is None or edited == page:
        raise UsageError("nothing was changed")
    return edited


def _read_file(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _print_definition(shell: Shell, home: Home, definition: JobDefinition, verb: str) -> None:
    row = job_list.find_job(home, definition.name, local_now())
    if shell.as_json:
        shell.print_json(row)
        return
    next_at = row["next_at"]
    when = f"next at {next_at:%Y-%m-%d %H:%M}" if next_at else "it runs only when you trigger it"
    shell.out.print(f"{verb} {definition.name}: {when}.", markup=False)
    if idleness := job_list.find_idleness(home):
        shell.note(f"No job runs by itself: {idleness}")


@command("remove", epilog="  perdure jobs remove standup\n  perdure jobs remove standup --yes --json")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove_command(shell: Shell, name: str, yes: bool) -> None:
    """Remove a job of yours. Its page stays in the floor's history, and the sessions of its runs in the archive."""
    with shell.open_home() as home:
        job_definition.read_job_page(home, name)
        if not confirm(shell, f"Remove the job {name}?", yes=yes):
            return
        start_jobs.remove_job(home, name)
    if shell.as_json:
        shell.print_json({"job": name, "removed": True})
    else:
        shell.out.print(f"Removed {name}.", markup=False)


@command("examples", epilog="  perdure jobs examples\n  perdure jobs add digest --example daily-digest")
def examples_command(shell: Shell) -> None:
    """List the jobs that come with Perdure. None of them runs before you add it."""
    rows = [(name, job_definition.parse_job(name, page), page) for name, page in job_definition.list_examples().items()]
    if shell.as_json:
        shell.print_json(
            {"examples": [{"name": name, "does": job.does, "when": job.cron, "page": page} for name, job, page in rows]}
        )
        return
    for name, job, _ in rows:
        shell.out.print(f"{name:<14} {job.cron:<13} {job.does}", markup=False)


# runs -----------------------------------------------------------------------------------------------------------


@command(
    "trigger",
    epilog="""\
  perdure jobs trigger sweep              runs in this process
  perdure jobs trigger digest --wait      queued for an agent; wait until it has ended
  perdure jobs trigger digest --json""",
)
@click.argument("name")
@click.option("--wait", "is_waiting", is_flag=True, help="Wait until the agent has ended, and show what it said.")
def trigger_command(shell: Shell, name: str, is_waiting: bool) -> None:
    """Start a job now, whatever its schedule says. A run of an agent is queued; anything else runs in this process."""
    with shell.open_home() as home:
        job = job_list.find_work(home, name)
        now = local_now()
        if isinstance(job, builtin_jobs.BuiltinJob):
            job_run = clock.run_job(home, name, trigger="person")
        elif job.command:
            job_run = start_jobs.run_command(home, job, trigger="person", stop=lambda: False)
        else:
            job_run = start_jobs.start_job(home, job, trigger="person", due_at=now, now=now)
            if job_run.result == "queued" and is_waiting:
                queue = AgentQueue(home.path)
                await_runs(shell, home, [queue.read(run_id) for run_id in job_run.why.split(", ")], MAX_WAIT_S)
                return
        idleness = job_list.find_idleness(home)
    if shell.as_json:
        shell.print_json(job_list.to_json(job_run, home.user))
    elif job_run.result == "queued":
        shell.out.print(f"{name}: queued as {job_run.why}", markup=False)
        if idleness:
            shell.note(f"It waits. {idleness} Or `perdure agents wait {job_run.why}`.")
    else:
        shell.out.print(f"{name}: {job_run.result}, {job_run.why} ({job_run.took_ms:.0f} ms)", markup=False)
        if job_run.output:
            shell.out.print(job_run.output.rstrip(), markup=False, style="dim")
    if job_run.result in ("failed", "busy"):
        sys.exit(1)


@command("runs", epilog="  perdure jobs runs digest\n  perdure jobs runs sweep --limit 100 --json")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 2000), default=20, show_default=True, help="Show at most so many.")
def runs_command(shell: Shell, name: str, limit: int) -> None:
    """List the runs of a job, the last one first: when it was due, how it ended, what it cost."""
    with shell.open_home() as home:
        job_list.find_work(home, name)
        rows = start_jobs.describe_runs(home, name)
    if shell.as_json:
        shell.print_json({"job": name, "runs": rows[:limit], "n_runs": len(rows)})
        return
    now = datetime.now(UTC)
    for row in rows[:limit]:
        counts = ", ".join(f"{value:,g} {key}" for key, value in row["counts"].items())
        shell.out.print(" · ".join(filter(None, (row["run"], _format_row(row, now), counts))), markup=False)
    if not rows:
        shell.out.print(f"{name} has not run yet.")


@command("logs", epilog="  perdure jobs logs digest\n  perdure jobs logs digest a7k2 --json")
@click.argument("name")
@click.argument("identifier", metavar="[RUN]", required=False)
def logs_command(shell: Shell, name: str, identifier: str | None) -> None:
    """Show what the last run of a job said, and how it ended; or another run, by the beginning of its id."""
    with shell.open_home() as home:
        job_list.find_work(home, name)
        runs = [run for run in start_jobs.list_runs(home, name) if run.run.startswith(identifier or "")]
        job_run = JobLog(home.path).settle_latest(name)
        if runs:
            fields = mask_fields(describe_run(home, runs[0]))
        elif identifier or job_run is None:
            raise JobMissing(f"{name} has no run {identifier}" if identifier else f"{name} has not run yet")
        else:
            fields = job_list.to_json(job_run, home.user)
    if shell.as_json:
        shell.print_json({"job": name, "run": fields})
    elif runs:
        shell.out.print(text.printable(format_run(fields)), markup=False)
    else:
        shell.out.print(_format_row(fields, datetime.now(UTC)), markup=False)
        shell.out.print(str(fields["output"]).rstrip(), markup=False)


@command("cancel", epilog="  perdure jobs cancel digest\n  perdure jobs cancel digest a7k2 --json")
@click.argument("name")
@click.argument("identifier", metavar="[RUN]", default="")
def cancel_command(shell: Shell, name: str, identifier: str) -> None:
    """End all runs of a job of yours that wait or run, or one of them. What it said until then is kept."""
    with shell.open_home() as home:
        job_definition.read_job_page(home, name)
        ended = start_jobs.cancel_job(home, name, identifier)
    if shell.as_json:
        shell.print_json({"job": name, "cancelled": ended})
    else:
        shell.out.print(f"Asked {format_count(len(ended), 'run')} to end." if ended else f"No run of {name} goes on.")


@command("pause", epilog="  perdure jobs pause digest\n  perdure jobs pause sweep --json")
@click.argument("name")
def pause_command(shell: Shell, name: str) -> None:
    """Pause a job: its schedule no longer starts it. `trigger` still does."""
    with shell.open_home() as home:
        job_list.find_work(home, name)
        JobLog(home.path).pause(name)
    if shell.as_json:
        shell.print_json({"job": name, "paused": True})
    else:
        shell.out.print(f"{name} is paused until `perdure jobs resume {name}`.")


@command("resume", epilog="  perdure jobs resume digest\n  perdure jobs resume sweep --json")
@click.argument("name")
def resume_command(shell: Shell, name: str) -> None:
    """Let the schedule start a job again."""
    with shell.open_home() as home:
        job_list.find_work(home, name)
        was_paused = JobLog(home.path).resume(name)
    if shell.as_json:
        shell.print_json({"job": name, "paused": False})
    else:
        shell.out.print(f"{name} runs on its schedule again." if was_paused else f"{name} was not paused.")


@command("measure", epilog="  perdure jobs measure\n  perdure jobs add sys-stats --example sys-stats")
def measure_command(shell: Shell) -> None:
    """Print how busy the processor is, and the memory and disk of this machine, as a line of JSON.

    The example sys-stats keeps a row of it every five minutes; `perdure jobs runs sys-stats` shows them.
    """
    click.echo(json.dumps(measure_machine(find_home_path(shell.home))))
