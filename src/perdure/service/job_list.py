"""All jobs of a home in one list: those that Perdure brings, and those of the owner."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from perdure import jobs
from perdure.agent import start_jobs
from perdure.agent.job_definition import JobDefinition, check_job, list_definitions, read_job
from perdure.errors import JobFault, JobMissing
from perdure.jobs import JobLog, JobRun
from perdure.service import builtin_jobs
from perdure.service.builtin_jobs import BuiltinJob
from perdure.service.lock import find_resident
from perdure.service.worker_list import list_workers

if TYPE_CHECKING:
    from perdure.home import Home


def find_idleness(home: Home) -> str:
    """Return why no job runs by itself now; "" where a process sees to them."""
    if home.config.workers.enabled:
        return "" if list_workers(home.path) else "No worker is running. Run `perdure worker`."
    return "" if find_resident(home.path) else "No resident home is running. Run `perdure serve`."


def find_work(home: Home, name: str) -> BuiltinJob | JobDefinition:
    """Return the job of this name: one that Perdure brings, or the owner's. Raises JobMissing, JobFault."""
    known = {builtin.name: builtin for builtin in builtin_jobs.BUILTIN_JOBS}
    if name in known:
        return known[name]
    try:
        return read_job(home, name)
    except JobMissing as error:
        names = [*known, *sorted(job.name for job in list_definitions(home)[0])]
        raise JobMissing(f"no job {name!r} (there are {', '.join(names)})") from error


def find_job(home: Home, name: str, now: datetime) -> dict[str, Any]:
    """Return the row of one job, as in `list_jobs`. Raises JobMissing."""
    for row in list_jobs(home, now):
        if row["job"] == name:
            return row
    find_work(home, name)
    raise JobMissing(name)


def list_jobs(home: Home, now: datetime) -> list[dict[str, Any]]:
    """Return a row for each job: what it does, when, whether it is paused or faulty, and its last run."""
    job_log = JobLog(home.path)
    paused, schedules = job_log.list_paused(), builtin_jobs.read_expressions(home.config.jobs)
    rows: list[dict[str, Any]] = []
    for job in builtin_jobs.BUILTIN_JOBS:
        last_run = job_log.settle_latest(job.name)
        last = to_json(last_run, home.user) if last_run else None
        shown = {"does": job.does, "when": schedules[job.name], "missed": job.missed}
        rows.append({"job": job.name, **shown, "last": last})
    definitions, faults = list_definitions(home)
    for definition in definitions:
        latest_row = next(iter(start_jobs.describe_runs(home, definition.name)), None)
        when = definition.cron if definition.machine in ("", home.config.machine) else ""
        words: dict[str, Any] = {
            "does": definition.summary,
            "when": when,
            "missed": definition.missed,
            "last": latest_row,
        }
        rows.append({"job": definition.name, **words, "is_own": True})
    for name, fault in faults.items():
        rows.append({"job": name, "does": "", "when": "", "missed": "", "last": None, "is_own": True, "fault": fault})
    for row in rows:
        is_active = row["when"] and row["job"] not in paused
        row["paused"] = row["job"] in paused
        row["next_at"] = jobs.find_next_time(row["when"], now) if is_active else None
        row.setdefault("is_own", False)
        row.setdefault("fault", "")
    return rows


def list_problems(home: Home, now: datetime) -> list[str]:
    """Return what keeps the owner's jobs from running as they should, a line each."""
    definitions, faults = list_definitions(home)
    problems = [f"{name} does not run: {fault}" for name, fault in faults.items()]
    for definition in definitions:
        if definition.machine in ("", home.config.machine):
            try:
                check_job(home, definition)
            except JobFault as error:  # the page is as it was; config.toml, or this machine, is not
                problems.append(f"{definition.name}: {error.detail}")
    if definitions and (idleness := find_idleness(home)):
        overdue = [due.definition.name for due in start_jobs.list_due(home, now)]
        if overdue:
            problems.append(f"overdue: {', '.join(overdue)}. {idleness}")
    return problems


def to_json(job_run: JobRun, user: str) -> dict[str, Any]:
    """Convert a job run to JSON values, as this user may see it.

    `n_users`: how many users it ran for; 0 if it ran for the whole home.
    """
    fields = {name: value for name, value in vars(job_run.to_user_view(user)).items() if name != "by_user"}
    return {**fields, "n_users": len(job_run.by_user), "result_of_all": job_run.result}
