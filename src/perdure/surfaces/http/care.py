"""Whether it works, and the jobs: liveness for a monitor, an authenticated probe of the data path, what runs when."""

from __future__ import annotations

from typing import Any

from perdure import schedule
from perdure.jobs.book import Book
from perdure.resident import clock
from perdure.surfaces.http.answers import API, Answer, Json, action, listed, one
from perdure.surfaces.http.calls import Call

JOBS = f"{API}/jobs"


def alive(call: Call) -> Answer:  # noqa: ARG001 - it asks nothing
    """That the server answers, and nothing else."""
    return Answer({"alive": True})


def health(call: Call) -> Answer:
    """A real write, search and forget in a scratch home on the same disk, and how fresh the parts of this one are.

    503 when anything is wrong, so that a monitor need not read it. Who asks within a few seconds shares one probe.
    """
    found = call.server.probe.found(call.home)
    told = call.server.health()
    problems = [*found.problems, *told.get("problems", [])]
    said: Json = {
        "healthy": not problems, "problems": problems, "checked_at": found.checked_at, "probe_ms": found.took_ms,
    }  # fmt: skip
    if call.identity.is_admin:
        said = {**told, **said, "waiting": call.server.depth(), "depth_before_submit": told.get("embedding", {})}
    return Answer(one(said, {"self": f"{API}/health"}), 503 if problems else 200)


def jobs(call: Call) -> Answer:
    """The jobs that run by the clock, when each does, and what became of it."""
    book, when = Book(call.home.path), schedule.when(call.home.config.jobs)
    paused = book.paused()
    items = [_job(job, when[job.name], job.name in paused, book) for job in schedule.JOBS]
    return Answer(listed(items, None, {"self": JOBS}))


def _job(job: schedule.Job, when: str, is_paused: bool, book: Book) -> Json:
    last = book.settle(job.name)
    said: dict[str, Any] = {"job": job.name, "does": job.does, "when": when, "paused": is_paused}
    said["last"] = vars(last) if last else None
    return {**said, "_links": {"self": JOBS}, "next_actions": [action("run it now", "POST", f"{JOBS}/{job.name}")]}


def begin(call: Call) -> Answer:
    """Start a job now. It goes on behind this answer; how it ended, the list says, and an event."""
    job = schedule.job(call.path["name"])
    call.server.begin(job.name, lambda: _run(call, job.name))
    actions = [action("see how it ends", "GET", JOBS)]
    return Answer({"job": job.name, "started": True, "_links": {"jobs": JOBS}, "next_actions": actions}, 202)


def _run(call: Call, name: str) -> None:
    with call.server.lent() as home:
        clock.run(home, name, trigger="person")
