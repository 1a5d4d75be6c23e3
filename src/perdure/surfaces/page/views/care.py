"""`/jobs` and `/health`: what runs when and how it went, whether the home does its work, and what to do when not.

Whoever sees to the home sees all of it; others see whether it works, and how far it has come with what is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure import schedule
from perdure.errors import IndexFault
from perdure.index import catchup
from perdure.jobs import cron
from perdure.jobs.book import Book, Envelope
from perdure.resident import clock, health
from perdure.surfaces import condition
from perdure.surfaces.checks import Check
from perdure.surfaces.page.visits import Moved, Shown, View, Visit

_DAY = timedelta(days=1)
_PARTS = {
    "keeper": "archiving and indexing", "write": "writing into the index", "read": "searching", "http": "answering",
}  # fmt: skip
_OUTCOMES = {"injected": "told"}
_DAYS = ("Sundays", "Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays")
_SPOKEN = (
    (re.compile(r"\* \* \* \* \*"), "every minute"),
    (re.compile(r"\*/(\d+) \* \* \* \*"), "every {minute} minutes"),
    (re.compile(r"(\d+) \* \* \* \*"), "hourly at :{minute:0>2}"),
    (re.compile(r"(\d+) (\d+) \* \* \*"), "daily at {hour:02}:{minute:0>2}"),
    (re.compile(r"(\d+) (\d+) \* \* ([0-6])"), "on {day} at {hour:02}:{minute:0>2}"),
)


# jobs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One job."""

    job: schedule.Job
    when: str  # its cron expression, "" where it is switched off
    is_paused: bool
    next_at: datetime | None
    last: Envelope | None  # as the visitor may see it


def spoken(when: str) -> str:
    """A cron expression in words, where it is one of the plain ones; else as it is.

    >>> spoken("*/5 * * * *"), spoken("45 3 * * 0"), spoken("10 6 * * *"), spoken("0 9 1 * *")
    ('every 5 minutes', 'on Sundays at 03:45', 'daily at 06:10', '0 9 1 * *')
    """
    for form, words in _SPOKEN:
        if found := form.fullmatch(when):
            minute, hour, day = (*found.groups(), "0", "0", "0")[:3]
            return words.format(minute=minute, hour=int(hour), day=_DAYS[int(day)])
    return when


def jobs(visit: Visit) -> Shown:
    """What runs by the clock, when it does next, and how it went."""
    book, when = Book(visit.home.path), schedule.when(visit.home.config.jobs)
    paused, now = book.paused(), visit.now.astimezone()
    found = [
        Entry(
            job, when[job.name], job.name in paused,
            cron.next_at(when[job.name], now) if when[job.name] and job.name not in paused else None,
            _seen(book.settle(job.name), visit.home.user),
        )
        for job in schedule.JOBS
    ]  # fmt: skip
    return Shown("jobs.html", {"title": "Jobs", "entries": found, "spoken": spoken})


def _seen(envelope: Envelope | None, user: str) -> Envelope | None:
    return envelope.seen_by(user) if envelope else None


def history(visit: Visit) -> Shown:
    """How the runs of one job went, the newest first."""
    job = schedule.job(visit.path["name"])
    book, user = Book(visit.home.path), visit.home.user
    runs = [envelope.seen_by(user) for envelope in reversed(book.history(job.name))]
    last = _seen(book.settle(job.name), user)
    if last is not None and last.result in ("running", "nothing") and (not runs or runs[0] != last):
        runs.insert(0, last)
    return Shown("job.html", {"title": f"Job {job.name}", "job": job, "runs": runs})


def run(visit: Visit) -> Moved:
    """Start a job now; it goes on behind this answer."""
    job = schedule.job(visit.path["name"])
    visit.server.begin(job.name, lambda: _run(visit, job.name))
    return Moved("/jobs", f"{job.name} has begun. This page follows how it ends.")


def _run(visit: Visit, name: str) -> None:
    with visit.server.lent() as home:
        clock.run(home, name, trigger="person")


def pause(visit: Visit) -> Moved:
    """Let the clock leave a job alone."""
    job = schedule.job(visit.path["name"])
    Book(visit.home.path).pause(job.name)
    return Moved("/jobs", f"{job.name} is paused until you resume it.")


def resume(visit: Visit) -> Moved:
    """Let the clock run a job again."""
    job = schedule.job(visit.path["name"])
    was = Book(visit.home.path).resume(job.name)
    return Moved("/jobs", f"{job.name} runs by the clock again." if was else f"{job.name} was not paused.")


# health ---------------------------------------------------------------------------------------------------------


def health_page(visit: Visit) -> Shown:
    """Whether the home does its work: in one sentence, then part by part."""
    told = visit.server.health()
    if not visit.identity.is_admin:
        own = {"is_well": told["healthy"], "outcomes_of": _OUTCOMES, **_own(visit)}
        return Shown("health_own.html", {"title": "Health", **own})
    checks = [*condition.resident(visit.home, told), *condition.lightly(visit.home)]
    values = {
        "title": "Health", "sentence": sentence(checks), "checks": ordered(checks), "told": told,
        "since_at": datetime.fromisoformat(told["since_at"]), "queues": visit.server.depth(), "parts_of": _PARTS,
        "silent": silent_share(told["answers"]["outcomes"]), "captured": visit.home.archive.ledger.counts(),
        "outcomes_of": _OUTCOMES,
    }  # fmt: skip
    return Shown("health.html", values)


def sentence(checks: Sequence[Check]) -> str:
    """Whether all is well.

    >>> sentence([Check("disk", "ok", "9 GB free"), Check("index", "notice", "2 runs behind")])
    'It works. One thing to know.'
    """
    n_problems, n_notices = (sum(check.grade == grade for check in checks) for grade in ("problem", "notice"))
    if n_problems:
        return f"{'One thing is' if n_problems == 1 else f'{n_problems} things are'} wrong."
    if n_notices:
        return f"It works. {'One thing' if n_notices == 1 else f'{n_notices} things'} to know."
    return "It works: nothing is wrong."


def ordered(checks: Sequence[Check]) -> list[Check]:
    """What is wrong first, then what is to be known."""
    return sorted(checks, key=lambda check: ("problem", "notice", "ok").index(check.grade))


def silent_share(outcomes: Mapping[str, int]) -> float | None:
    """The share of messages at which recall had nothing to say; None where it was not asked.

    >>> silent_share({"injected": 3, "silent": 1, "skipped": 9}), silent_share({})
    (0.25, None)
    """
    n_silent = outcomes.get("silent", 0)
    n_spoke = outcomes.get("injected", 0) + n_silent
    return n_silent / n_spoke if n_spoke else None


def _own(visit: Visit) -> dict[str, Any]:
    """What is the visitor's of it."""
    home = visit.home
    lines = health.answers(home.path, home.user, since_at=visit.now - _DAY)
    found = health.summary(map(msgspec.structs.asdict, lines))
    try:
        n_behind = catchup.behind(home.index(), home.archive, home.user)
        brought = home.brought()
    except IndexFault:
        n_behind, brought = 0, {}
    captured_at = max((one.captured_at for one in brought.values()), default=None)
    silent = silent_share(found["outcomes"])
    return {"n_behind": n_behind, "captured_at": captured_at, "answers": found, "silent": silent}


def probe(visit: Visit) -> Moved:
    """Prove the data path by a real write, search and forget in a scratch home on the same disk."""
    found = visit.server.probe.found(visit.home)
    if found.problems:
        return Moved("/health", f"Not well: {'; '.join(found.problems)}.")
    return Moved("/health", f"Proven: write, archive, index, search and forget work ({found.took_ms:.0f} ms).")


def disk(visit: Visit) -> Shown:
    """What the files of the home take on disk, part by part. Every file is looked at."""
    sizes = condition.disk(visit.home.path)
    most = max(sizes.values(), default=0)
    rows = [(name, n, n / most if most else 0.0) for name, n in sizes.items()]
    return Shown("disk.html", {"title": "What takes the room", "rows": rows, "total": sum(sizes.values())})


ROWS: tuple[View, ...] = (
    View("GET", "/jobs", jobs, nav="jobs", is_admin=True),
    View("GET", "/jobs/{name}", history, nav="jobs", is_admin=True),
    View("POST", "/jobs/{name}/run", run, nav="jobs", is_admin=True, desk="write"),
    View("POST", "/jobs/{name}/pause", pause, nav="jobs", is_admin=True, desk="write"),
    View("POST", "/jobs/{name}/resume", resume, nav="jobs", is_admin=True, desk="write"),
    View("GET", "/health", health_page, nav="health"),
    View("POST", "/health/probe", probe, nav="health", is_admin=True, desk="slow"),
    View("GET", "/health/disk", disk, nav="health", is_admin=True, desk="slow"),
)
