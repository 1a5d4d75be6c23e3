"""Start the owner's jobs when they are due: queue the runs of agents, run commands, and say what became of them.

A run of an agent is queued under the name of its job and the time at which it was due, and the queue takes a name once:
however often the resident home is killed, a job runs once at each of its times. A command runs in the resident home
itself; one that was killed with it is recorded as interrupted, and runs at its next time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from perdure import jobs, log, text
from perdure.access.redact import mask
from perdure.agent.deliver_result import deliver_text
from perdure.agent.job_definition import JobDefinition, find_folder, list_definitions, read_job_page, to_page
from perdure.agent.new_errors import find_new_errors, mark_known
from perdure.agent.process import end_process
from perdure.agent.queue_runner import queue_run
from perdure.agent.tools.shell import MAX_OUTPUT_BYTES, OUTPUT_TOO_LONG
from perdure.agent_queue import AgentQueue, AgentRecipe, AgentRun, RunCause
from perdure.environ import copy_variables, local_now
from perdure.errors import AgentRunMissing, Busy, IndexFault, PerdureError
from perdure.floor import recent
from perdure.floor.state import to_time
from perdure.index import session_turns
from perdure.jobs import MAX_OUTPUT_CHARS, JobLog, JobOutcome, JobResult, JobRun

if TYPE_CHECKING:
    from perdure.home import Home

MAX_CONVERSATIONS = 100  # that go with a run
_POLL_S = 0.1
_BUSY = "its last run has not ended"

Trigger = Literal["clock", "person"]


@dataclass(frozen=True)
class DueJob:
    """A job of the owner whose time has come."""

    definition: JobDefinition
    due_at: datetime


def list_due(home: Home, now: datetime) -> list[DueJob]:
    """Return the owner's jobs that must start now, by name."""
    job_log, due = JobLog(home.path), []
    paused = job_log.list_paused()
    for definition in list_definitions(home)[0]:
        if not definition.cron or definition.name in paused or not _is_here(home, definition):
            continue
        since_at = find_start(home, job_log, definition.name, now).astimezone(now.tzinfo)
        if jobs.is_due(definition.cron, since=since_at, now=now, missed=definition.missed):
            due.append(DueJob(definition, jobs.find_latest_time(definition.cron, now) or now))
    return due


def _is_here(home: Home, definition: JobDefinition) -> bool:
    return definition.machine in ("", home.config.machine)


def find_start(home: Home, job_log: JobLog, name: str, now: datetime) -> datetime:
    """Return the moment after which a job is due at its next time: its last start, or the last change of its page."""
    latest_run, page = job_log.settle_latest(name), home.floor.load_state().pages.get(to_page(name))
    changed_at = to_time(page.current.at) if page else datetime.now(UTC)
    return jobs.find_last_start([changed_at, *([latest_run.started_at] if latest_run else [])], now)


def start_job(home: Home, definition: JobDefinition, *, trigger: Trigger, due_at: datetime, now: datetime) -> JobRun:
    """Queue the runs of a job's agent, and record that; the record says why, if there is none.

    Raises Busy and AgentQueueFull, which record nothing: the same time can be tried again; and DiskFull.
    """
    job_log = JobLog(home.path)
    cause = RunCause(trigger=trigger, due_at=due_at, is_serial=definition.overlap == "queue")
    try:
        runs, why = _queue_runs(home, definition, cause, now)
        result: JobOutcome = "queued" if runs else "busy" if why.startswith(_BUSY) else "nothing"
        job_run = JobRun(definition.name, now, trigger, result, why or ", ".join(run.run for run in runs))
    except Busy:
        raise
    except PerdureError as error:
        job_run = JobRun(definition.name, now, trigger, "failed", f"{error.code}: {error}")
    if job_run.result in ("failed", "busy"):
        log.append_entry(home.path, "job", job=definition.name, result=job_run.result)
    return job_log.record(job_run)


def _queue_runs(
    home: Home, definition: JobDefinition, cause: RunCause, now: datetime
) -> tuple[list[AgentRun], str]:  # fmt: skip
    """Return the runs that were queued, and if there are none why."""
    key = (
        f"{home.user}/{home.config.agent}/{definition.name}/{cause.trigger}/{cause.due_at.astimezone(UTC).isoformat()}"
    )
    if definition.overlap == "forbid":
        active_runs = [run for run in list_runs(home, definition.name) if run.state != "ended"]
        if others := [run for run in active_runs if run.cause and run.cause.due_at != cause.due_at]:
            return [], f"{_BUSY} ({others[0].run})"
    recipe = _make_recipe(definition)
    if definition.seen_days:
        seen = describe_conversations(home, now - timedelta(days=definition.seen_days), now)
        if not seen:
            return [], f"the home saw no conversation in {definition.seen_days} days"
        recipe = _add_context(recipe, seen)
    if not definition.each:
        return [queue_run(home, recipe, job=definition.name, cause=cause, key=key)], ""
    runs = []
    for error in find_new_errors(home, definition.name, now):
        changes: dict[str, Any] = {}
        if not definition.cwd and error.project and Path(error.project).is_dir():
            changes["cwd"] = error.project
        words = f"The error, which the home saw at {error.at:%Y-%m-%d %H:%M} UTC:\n{error.text}"
        error_recipe = _add_context(recipe, words, **changes)
        runs.append(queue_run(home, error_recipe, job=definition.name, cause=cause, key=f"{key}/{error.key}"))
        mark_known(home, definition.name, [error])
    return runs, "" if runs else "no new error"


def _make_recipe(definition: JobDefinition) -> AgentRecipe:
    first, *others = definition.prompts or (definition.instruction,)
    return AgentRecipe(
        instruction=first, prompts=tuple(others), context=definition.context, tools=definition.tools,
        model=definition.model, effort=definition.effort, mode=definition.mode, max_turns=definition.max_turns,
        max_tokens=definition.max_tokens, max_money=definition.max_money, max_s=definition.max_s,
        check=definition.check, cwd=find_folder(definition), retry=definition.retry, deliver=definition.deliver,
    )  # fmt: skip


def _add_context(recipe: AgentRecipe, words: str, **changes: Any) -> AgentRecipe:
    context = "\n\n".join(filter(None, (recipe.context, words)))
    return replace(recipe, context=context, **changes)


def describe_conversations(home: Home, since_at: datetime, now: datetime) -> str:
    """Return a line for each conversation that a person had since a moment, by project; "" for none."""
    rows: list[str] = []
    with contextlib.suppress(IndexFault, Busy):
        home.upkeep.catch_up()
        index = home.index()
        for project in session_turns.list_projects(index, home.user, since_at):
            lines = []
            for conversation in session_turns.iter_recent_conversations(
                index, home.user, home.config.agent, project or None, since_at
            ):
                line = recent.render_conversation(conversation, now.tzinfo)
                if line and not home.captures.refusal(conversation.origin) and not home.floor.find_injections(line):
                    lines.append(f"- {mask(line)}")
            if lines:
                rows += [f"In {project or 'no project'}:", *lines]
    if not rows:
        return ""
    head = f"The conversations that this home saw since {since_at.astimezone(now.tzinfo):%Y-%m-%d %H:%M}, newest first"
    return "\n".join([f"{head}; recall finds more of each:", *rows[:MAX_CONVERSATIONS]])


# commands -------------------------------------------------------------------------------------------------------


def run_command(home: Home, definition: JobDefinition, *, trigger: str, stop: Callable[[], bool]) -> JobRun:
    """Run the command of a job to its end, deliver what it said, and return the record."""
    started_at = local_now()
    job_run = JobLog(home.path).run(
        definition.name, lambda: _run_line(home, definition, stop), trigger=trigger, now=local_now
    )  # fmt: skip
    log.append_entry(home.path, "job", job=definition.name, result=job_run.result, took_ms=job_run.took_ms)
    for target in definition.deliver if job_run.result != "busy" else ():
        body = f"{job_run.output or 'No output.'}\n\n{job_run.result}: {job_run.why}"
        key = f"job/{definition.name}/{started_at.isoformat()}/{target}"
        deliver_text(home, target, body, title=f"{definition.name}: {job_run.result}", key=key)
    return job_run


def _run_line(home: Home, definition: JobDefinition, stop: Callable[[], bool]) -> JobResult:
    """Run a shell line to its end. Raises CommandFailed, with what it said."""
    cancel_path = JobLog(home.path).to_cancel_path(definition.name)
    cancel_path.unlink(missing_ok=True)
    limit_s = definition.max_s or home.config.agents.max_s
    ends_s, why = time.monotonic() + limit_s, ""
    with tempfile.TemporaryFile() as file:
        process = subprocess.Popen(
            [shutil.which("bash") or "/bin/sh", "-c", definition.command], cwd=find_folder(definition),
            env=_make_environment(home), stdin=subprocess.DEVNULL, stdout=file,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        while process.poll() is None and not why:
            if cancel_path.exists():
                why = "somebody cancelled it"
            elif stop():
                why = "the resident home ended"
            elif time.monotonic() >= ends_s:
                why = f"max_s = {limit_s}"
            elif os.fstat(file.fileno()).st_size > MAX_OUTPUT_BYTES:
                why = OUTPUT_TOO_LONG
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)
        end_process(process)
        output = _read_end(file)
    if not why and process.returncode:
        why = f"its status is {process.returncode}"
    if why:
        return JobResult(why, output=output, has_failed=True)
    counts = _read_counts(output)
    return JobResult("" if counts else text.one_line(output.strip().rpartition("\n")[2], 200), counts, output=output)


def _make_environment(home: Home) -> dict[str, str]:
    """Return the variables of a command: this home, and `perdure` on the path, also under a service manager."""
    variables = copy_variables()
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), variables.get("PATH", ""))))
    return {**variables, "PATH": path, "PERDURE_HOME": str(home.path)}


def _read_end(file: IO[bytes]) -> str:
    """Return the end of an output, without a line that was cut, and without secrets."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MAX_OUTPUT_CHARS))
    data = file.read()
    whole = data if size <= MAX_OUTPUT_CHARS else data.partition(b"\n")[2] or data
    return mask(text.printable(whole.decode("utf-8", "replace")))


def _read_counts(output: str) -> dict[str, float]:
    """Return the numbers of a last line of JSON; none if it is something else.

    >>> _read_counts('one\\n{"files": 3, "name": "x"}')
    {'files': 3}
    """
    try:
        table = json.loads(output.strip().rpartition("\n")[2])
    except ValueError:
        return {}
    pairs = table.items() if isinstance(table, dict) else ()
    return {key: value for key, value in pairs if type(value) in (int, float)}


# runs -----------------------------------------------------------------------------------------------------------


def list_runs(home: Home, name: str) -> list[AgentRun]:
    """Return the runs of a job's agent that the owner has, the last one first."""
    queue = AgentQueue(home.path)
    runs = {run.run: run for run in (*queue.list_active(), *queue.list_ended())}
    own_runs = [run for run in runs.values() if run.cause and (run.user, run.job) == (home.user, name)]
    return sorted(own_runs, key=lambda run: (run.queued_at, run.run), reverse=True)


def describe_runs(home: Home, name: str) -> list[dict[str, Any]]:
    """Return what became of a job at each of its times, the last one first: its runs, and why there was none."""
    rows = [_to_row(run) for run in list_runs(home, name)]
    job_log = JobLog(home.path)
    job_runs = job_log.read_history(name)
    latest_run = job_log.settle_latest(name)
    if latest_run and latest_run.result in ("nothing", "running"):
        job_runs.append(latest_run)
    rows += [_to_log_row(job_run.to_user_view(home.user)) for job_run in job_runs]
    return sorted(rows, key=lambda row: (row["started_at"], row["run"]), reverse=True)


def _to_row(run: AgentRun) -> dict[str, Any]:
    envelope, began_at = run.envelope, run.started_at or run.queued_at
    took_s = (envelope.ended_at - began_at).total_seconds() if envelope else 0.0
    return {
        "run": run.run,
        "trigger": run.cause.trigger if run.cause else "",
        "due_at": run.cause.due_at if run.cause else None,
        "started_at": began_at,
        "result": envelope.outcome if envelope else run.state,
        "why": envelope.why if envelope else "",
        "counts": {"turns": envelope.n_turns, "tokens": envelope.n_tokens} if envelope else {},
        "money": envelope.money if envelope else None,
        "took_ms": round(took_s * 1000, 1),
        "session": run.session,
    }


def _to_log_row(job_run: JobRun) -> dict[str, Any]:
    return {
        "run": "",
        "trigger": job_run.trigger,
        "due_at": None,
        "started_at": job_run.started_at,
        "result": job_run.result,
        "why": job_run.why,
        "counts": dict(job_run.counts),
        "money": None,
        "took_ms": job_run.took_ms,
        "session": "",
    }


def cancel_job(home: Home, name: str, run_prefix: str = "") -> list[str]:
    """Ask the runs of a job to end, or one of them; return their ids. Raises AgentRunMissing."""
    queue = AgentQueue(home.path)
    active_runs = [run for run in list_runs(home, name) if run.state != "ended" and run.run.startswith(run_prefix)]
    if run_prefix and not active_runs:
        raise AgentRunMissing(run_prefix)
    run_ids = [queue.cancel(run.run).run for run in active_runs]
    return [*run_ids, *([name] if not run_prefix and JobLog(home.path).cancel(name) else [])]


def remove_job(home: Home, name: str) -> None:
    """Remove a job: its page and its record. Its runs go on, and their sessions stay. Raises JobMissing."""
    read_job_page(home, name)
    home.floor.remove(to_page(name))
    JobLog(home.path).forget_job(name)
