"""`/jobs` and `/health`: the jobs and the health of the home.

An admin sees all of it; other users see whether the home works and how far their own data has been
processed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.agent import job_definition, start_jobs
from perdure.environ import LOCAL_ZONE
from perdure.errors import IndexFault
from perdure.index import catchup
from perdure.jobs import MAX_RUNS, JobLog
from perdure.report import answers
from perdure.service import builtin_jobs, clock, job_list
from perdure.surfaces import health_checks
from perdure.surfaces.health_checks import HealthCheck
from perdure.surfaces.web.visits import HtmlPage, Redirect, View, Visit

_DAY = timedelta(days=1)
_PART_NAMES = {
    "keeper": "archiving and indexing", "write": "writing into the index", "read": "searching", "http": "answering",
}  # fmt: skip
_OUTCOME_NAMES = {"injected": "told", "shadow": "recorded, not told"}
_WEEKDAYS = ("Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays")
_SCHEDULE_PATTERNS = (
    (re.compile(r"\* \* \* \* \*"), "every minute"),
    (re.compile(r"\*/(\d+) \* \* \* \*"), "every {minute} minutes"),
    (re.compile(r"(\d+) \* \* \* \*"), "hourly at :{minute:0>2}"),
    (re.compile(r"(\d+) (\d+) \* \* \*"), "daily at {hour:02}:{minute:0>2}"),
    (re.compile(r"(\d+) (\d+) \* \* ([0-6])"), "on {day} at {hour:02}:{minute:0>2}"),
)


# jobs -----------------------------------------------------------------------------------------------------------


def describe_schedule(expression: str) -> str:
    """Say a cron expression in words if it is a simple one; otherwise return it unchanged.

    >>> [describe_schedule(cron) for cron in ("*/5 * * * *", "45 3 * * 0", "10 6 * * *", "0 9 1 * *")]
    ['every 5 minutes', 'on Sundays at 03:45', 'daily at 06:10', '0 9 1 * *']
    """
    for pattern, words in _SCHEDULE_PATTERNS:
        if match := pattern.fullmatch(expression):
            minute, hour, day = (*match.groups(), "0", "0", "0")[:3]
            return words.format(minute=minute, hour=int(hour), day=_WEEKDAYS[int(day)])
    return expression


def show_jobs(visit: Visit) -> HtmlPage:
    """List all jobs, when each runs next, and how it went."""
    rows = job_list.list_jobs(visit.home, visit.now.astimezone(LOCAL_ZONE))
    return HtmlPage("jobs.html", {"title": "Jobs", "rows": rows, "spoken": describe_schedule})


def show_job(visit: Visit) -> HtmlPage:
    """Show a job, its page if it is the owner's, and how its runs went, newest first."""
    name = visit.path_params["name"]
    row = job_list.find_job(visit.home, name, visit.now.astimezone(LOCAL_ZONE))
    runs = start_jobs.describe_runs(visit.home, name)[:MAX_RUNS]
    page = job_definition.read_job_page(visit.home, name) if row["is_own"] else ""
    return HtmlPage("job.html", {"title": f"Job {name}", "job": row, "runs": runs, "page": page})


def start_job(visit: Visit) -> Redirect:
    """Start a job now; it continues after this answer."""
    name, now = visit.path_params["name"], visit.now.astimezone(LOCAL_ZONE)
    job = job_list.find_work(visit.home, name)
    if isinstance(job, job_definition.JobDefinition) and not job.command:
        with visit.server.lend_home() as home:
            job_run = start_jobs.start_job(home, job, trigger="person", due_at=now, now=now)
        if job_run.result != "queued":
            return Redirect("/jobs", f"{name}: {job_run.result}, {job_run.why}.")
    else:
        visit.server.start_job(name, lambda: _run_job(visit, job))
    return Redirect("/jobs", f"{name} has started. This page shows the result.")


def _run_job(visit: Visit, job: builtin_jobs.BuiltinJob | job_definition.JobDefinition) -> None:
    with visit.server.lend_home() as home:
        if isinstance(job, builtin_jobs.BuiltinJob):
            clock.run_job(home, job.name, trigger="person")
        else:
            start_jobs.run_command(home, job, trigger="person", stop=lambda: False)


def pause_job(visit: Visit) -> Redirect:
    """Stop the clock from running a job."""
    name = job_list.find_work(visit.home, visit.path_params["name"]).name
    JobLog(visit.home.path).pause(name)
    return Redirect("/jobs", f"{name} is paused until you resume it.")


def resume_job(visit: Visit) -> Redirect:
    """Let the clock run a job again."""
    name = job_list.find_work(visit.home, visit.path_params["name"]).name
    was_paused = JobLog(visit.home.path).resume(name)
    return Redirect("/jobs", f"{name} runs on its schedule again." if was_paused else f"{name} was not paused.")


# health ---------------------------------------------------------------------------------------------------------


def show_health(visit: Visit) -> HtmlPage:
    """Show whether the home does its work: in one sentence, then part by part."""
    report = visit.server.read_health()
    if not visit.identity.is_admin:
        own_values = {"is_well": report["healthy"], "outcomes_of": _OUTCOME_NAMES, **_collect_own_health(visit)}
        return HtmlPage("health_own.html", {"title": "Health", **own_values})
    checks = [
        *health_checks.check_resident_home(visit.home, report),
        *health_checks.check_proxies(visit.home, report),
        *health_checks.run_light_checks(visit.home),
    ]
    values = {
        "title": "Health",
        "sentence": summarise_checks(checks),
        "checks": sort_checks(checks),
        "told": report,
        "since_at": datetime.fromisoformat(report["since_at"]),
        "queues": visit.server.count_waiting(),
        "parts_of": _PART_NAMES,
        "silent": compute_silent_share(report["answers"]["outcomes"]),
        "captured": visit.home.archive.ledger.count_all(),
        "outcomes_of": _OUTCOME_NAMES,
    }
    return HtmlPage("health.html", values)


def summarise_checks(checks: Sequence[HealthCheck]) -> str:
    """Say in one sentence whether all is well.

    >>> summarise_checks([HealthCheck("disk", "ok", "9 GB free"), HealthCheck("index", "notice", "2 runs behind")])
    'It works. One notice.'
    """
    n_problems, n_notices = (sum(check.grade == grade for check in checks) for grade in ("problem", "notice"))
    if n_problems:
        return f"{'One check fails' if n_problems == 1 else f'{n_problems} checks fail'}."
    if n_notices:
        return f"It works. {'One notice' if n_notices == 1 else f'{n_notices} notices'}."
    return "It works: no problems."


def sort_checks(checks: Sequence[HealthCheck]) -> list[HealthCheck]:
    """Sort the checks: problems first, then notices."""
    return sorted(checks, key=lambda check: ("problem", "notice", "ok").index(check.grade))


def compute_silent_share(outcomes: Mapping[str, int]) -> float | None:
    """Return the share of messages at which recall was silent; None if recall was never asked.

    >>> compute_silent_share({"injected": 3, "silent": 1, "skipped": 9}), compute_silent_share({})
    (0.25, None)
    """
    n_silent = outcomes.get("silent", 0)
    n_spoke = outcomes.get("injected", 0) + outcomes.get("shadow", 0) + n_silent
    return n_silent / n_spoke if n_spoke else None


def _collect_own_health(visit: Visit) -> dict[str, Any]:
    """Return the health values of the visitor's own data."""
    home = visit.home
    lines = answers.read_answers(home.path, home.user, since_at=visit.now - _DAY)
    summary = answers.summarise_answers(map(msgspec.structs.asdict, lines))
    try:
        n_behind = catchup.count_unprojected(home.index(), home.archive, home.user)
        captures = home.runs.captures_by_machine()
    except IndexFault:
        n_behind, captures = 0, {}
    captured_at = max((capture.captured_at for capture in captures.values()), default=None)
    share = compute_silent_share(summary["outcomes"])
    return {"n_behind": n_behind, "captured_at": captured_at, "answers": summary, "silent": share}


def probe_home(visit: Visit) -> Redirect:
    """Prove the data path by a real write, search and forget in a scratch home on the same disk."""
    result = visit.server.probe.check_health(visit.home)
    if result.problems:
        return Redirect("/health", f"Problems: {'; '.join(result.problems)}.")
    return Redirect("/health", f"Tested: write, archive, index, search and forget work ({result.took_ms:.0f} ms).")


def show_disk(visit: Visit) -> HtmlPage:
    """Show the size of the home's files on disk, part by part. Looks at every file."""
    sizes = health_checks.measure_disk_use(visit.home.path)
    largest = max(sizes.values(), default=0)
    rows = [(name, n, n / largest if largest else 0.0) for name, n in sizes.items()]
    return HtmlPage("disk.html", {"title": "Disk space by part", "rows": rows, "total": sum(sizes.values())})


STATUS_VIEWS: tuple[View, ...] = (
    View("GET", "/jobs", show_jobs, nav="jobs", is_admin=True),
    View("GET", "/jobs/{name}", show_job, nav="jobs", is_admin=True),
    View("POST", "/jobs/{name}/run", start_job, nav="jobs", is_admin=True, pool="write"),
    View("POST", "/jobs/{name}/pause", pause_job, nav="jobs", is_admin=True, pool="write"),
    View("POST", "/jobs/{name}/resume", resume_job, nav="jobs", is_admin=True, pool="write"),
    View("GET", "/health", show_health, nav="health"),
    View("POST", "/health/probe", probe_home, nav="health", is_admin=True, pool="slow"),
    View("GET", "/health/disk", show_disk, nav="health", is_admin=True, pool="slow"),
)
