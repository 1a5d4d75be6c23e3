"""Jobs over HTTP: the same words as `perdure jobs`. For an admin alone; the jobs are those of the home's owner."""

from __future__ import annotations

from typing import Any

from perdure.agent import job_definition, start_jobs
from perdure.agent.envelope import describe_run
from perdure.environ import local_now
from perdure.errors import AgentRunMissing
from perdure.home import Home
from perdure.jobs import JobLog
from perdure.service import builtin_jobs, clock, job_list
from perdure.surfaces.http.calls import HttpCall
from perdure.surfaces.http.responses import (
    API_PATH,
    HttpRefusal,
    HttpResponse,
    Json,
    build_action,
    build_item,
    build_list,
)

JOBS_PATH = f"{API_PATH}/jobs"


def list_jobs(call: HttpCall) -> HttpResponse:
    """List all jobs, with their times and their last results."""
    with call.server.lend_home() as home:
        rows = job_list.list_jobs(home, local_now())
    actions = [build_action("add one", "POST", JOBS_PATH)]
    return HttpResponse(build_list([_build_row(row) for row in rows], None, {"self": JOBS_PATH}, actions=actions))


def _build_row(row: Json) -> Json:
    path = f"{JOBS_PATH}/{row['job']}"
    switch = "resume" if row["paused"] else "pause"
    actions = [
        build_action("run it now", "POST", f"{path}/trigger"),
        build_action(f"{switch} it", "POST", f"{path}/{switch}"),
    ]
    return {**row, "_links": {"self": path, "runs": f"{path}/runs"}, "next_actions": actions}


def add_job(call: HttpCall) -> HttpResponse:
    """Add a job of the owner. 409 if there is one of this name."""
    name = call.body.name
    with call.server.lend_home() as home:
        if home.floor.read(job_definition.to_page(name)).strip():
            raise HttpRefusal(409, "exists", f"there is a job {name}: PUT changes it")
        job_definition.save_job(home, name, job_definition.make_page(call.body.job))
        return HttpResponse(_show(home, name), 201)


def read_job(call: HttpCall) -> HttpResponse:
    """Return a job: its row, and its page if it is the owner's."""
    with call.server.lend_home() as home:
        return HttpResponse(_show(home, call.path_params["name"]))


def _show(home: Home, name: str) -> Json:
    row = job_list.find_job(home, name, local_now())
    return {**_build_row(row), "page": job_definition.read_job_page(home, name) if row["is_own"] else ""}


def change_job(call: HttpCall) -> HttpResponse:
    """Give a job of the owner a new definition. It counts from its next time on."""
    name = call.path_params["name"]
    with call.server.lend_home() as home:
        job_definition.read_job_page(home, name)
        job_definition.save_job(home, name, job_definition.make_page(call.body.job))
        return HttpResponse(_show(home, name))


def remove_job(call: HttpCall) -> HttpResponse:
    """Remove a job of the owner; its page stays in the floor's history."""
    name = call.path_params["name"]
    with call.server.lend_home() as home:
        start_jobs.remove_job(home, name)
    return HttpResponse(build_item({"job": name, "removed": True}, {"jobs": JOBS_PATH}))


def trigger_job(call: HttpCall) -> HttpResponse:
    """Start a job now. It continues after this answer; its runs and an event say how it ended."""
    name, now = call.path_params["name"], local_now()
    result = "started"
    with call.server.lend_home() as home:
        job = job_list.find_work(home, name)
        if isinstance(job, job_definition.JobDefinition) and not job.command:
            result = start_jobs.start_job(home, job, trigger="person", due_at=now, now=now).result
        else:
            call.server.start_job(name, lambda: _run_here(call, name))
    path = f"{JOBS_PATH}/{name}"
    actions = [build_action("see the result", "GET", f"{path}/runs")]
    return HttpResponse(build_item({"job": name, "result": result}, {"self": path}, actions=actions), 202)


def _run_here(call: HttpCall, name: str) -> None:
    with call.server.lend_home() as home:
        job = job_list.find_work(home, name)
        if isinstance(job, builtin_jobs.BuiltinJob):
            clock.run_job(home, name, trigger="person")
        else:
            start_jobs.run_command(home, job, trigger="person", stop=lambda: False)


def pause_job(call: HttpCall) -> HttpResponse:
    """Pause a job: its schedule no longer starts it."""
    return _switch(call, is_paused=True)


def resume_job(call: HttpCall) -> HttpResponse:
    """Let the schedule start a job again."""
    return _switch(call, is_paused=False)


def _switch(call: HttpCall, *, is_paused: bool) -> HttpResponse:
    name = call.path_params["name"]
    with call.server.lend_home() as home:
        job_list.find_work(home, name)
        job_log = JobLog(home.path)
        if is_paused:
            job_log.pause(name)
        else:
            job_log.resume(name)
    return HttpResponse(build_item({"job": name, "paused": is_paused}, {"self": f"{JOBS_PATH}/{name}"}))


def list_runs(call: HttpCall) -> HttpResponse:
    """List the runs of a job, the last one first."""
    name = call.path_params["name"]
    list_page = call.read_list_page("job-runs", name)
    with call.server.lend_home() as home:
        job_list.find_work(home, name)
        shown, next_cursor = list_page.cut_items(start_jobs.describe_runs(home, name))
    path = f"{JOBS_PATH}/{name}/runs"
    items = [{**row, "_links": {"self": f"{path}/{row['run']}"} if row["run"] else {}} for row in shown]
    return HttpResponse(build_list(items, next_cursor, {"self": path}))


def read_run(call: HttpCall) -> HttpResponse:
    """Return a run of a job's agent in full: how it ended and why, what it cost, what it said, its session."""
    name, run_id = call.path_params["name"], call.path_params["run"]
    with call.server.lend_home() as home:
        for run in start_jobs.list_runs(home, name):
            if run.run == run_id:
                fields = describe_run(home, run)
                break
        else:
            raise AgentRunMissing(run_id)
    path = f"{JOBS_PATH}/{name}/runs/{run_id}"
    actions = [build_action("end it", "POST", f"{path}/cancel")] if fields["state"] != "ended" else []
    return HttpResponse(build_item(fields, {"self": path, "job": f"{JOBS_PATH}/{name}"}, actions=actions))


def cancel_run(call: HttpCall) -> HttpResponse:
    """End a run of a job that waits or runs. What it said until then is kept."""
    name, run_id = call.path_params["name"], call.path_params["run"]
    with call.server.lend_home() as home:
        fields: dict[str, Any] = {"job": name, "cancelled": start_jobs.cancel_job(home, name, run_id)}
    return HttpResponse(build_item(fields, {"self": f"{JOBS_PATH}/{name}/runs/{run_id}"}), 202)
