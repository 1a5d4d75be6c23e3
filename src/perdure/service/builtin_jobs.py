"""The built-in jobs: name, missed runs, and the work that each does on a home."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from perdure import jobs
from perdure.capture import alert, events, policy
from perdure.config import JobsConfig
from perdure.delivery.queue import DeliveryQueue
from perdure.errors import ArchiveFault, JobMissing, ModelFault, NotFound, RuntimeMissing
from perdure.jobs import JobResult, MissedRuns
from perdure.service.health import run_probe
from perdure.service.lock import find_resident

if TYPE_CHECKING:
    from perdure.home import Home

EMBED_SLICE_S = 5.0  # the embedding job checks the stop event after each slice
MAX_HEALTH_WAIT_S = 10.0  # longest wait for the resident home's health
MAX_EMBED_S = 600.0  # longest time of one run
MAX_PICTURES_S = 240.0  # longest time of one run; the next begins with the newest
MAX_USE_S = 60.0  # longest time of one run
MAX_PROBES_S = 120.0  # longest time of one run
PROBES_AGE = timedelta(hours=20)  # the probes are asked again after this time

StopCheck = Callable[[], bool]
JobWork = Callable[["Home", StopCheck], JobResult]


@dataclass(frozen=True)
class BuiltinJob:
    """One built-in job."""

    name: str
    does: str  # in words
    missed: MissedRuns
    work: JobWork
    for_each_user: bool = False  # run for each of the home's users; else once, for the whole home
    max_s: float = 0.0  # for all users together, in equal shares; 0: no limit


def sweep(home: Home, stop: StopCheck) -> JobResult:  # noqa: ARG001 - every job has the same parameters
    """Capture what known clients wrote and no hook delivered."""
    if policy.read_pause(home.path, datetime.now(UTC)):
        return JobResult("capture is paused", did_work=False)
    import_result = home.import_files(index=False)
    counts = {
        "files": import_result.n_files,
        "runs": import_result.n_runs,
        "bytes": import_result.n_bytes,
        "refused": len(import_result.refused),
    }
    return JobResult(
        f"{import_result.n_runs} runs from {import_result.n_files} files", counts, did_work=import_result.n_runs > 0
    )


def pack(home: Home, stop: StopCheck) -> JobResult:
    """Compress conversations that have been idle for long, and join the segments of the full-text index."""
    n_packs, n_runs = home.upkeep.pack()
    home.upkeep.merge_words(stop)
    return JobResult(f"{n_runs} runs packed", {"packs": n_packs, "runs": n_runs}, did_work=n_runs > 0)


def embed(home: Home, stop: StopCheck) -> JobResult:
    """Embed new captures, until all have vectors, the time is over or the process must stop."""
    import time

    n_done = n_left = 0
    ends_s = time.monotonic() + MAX_EMBED_S
    try:
        while not stop() and time.monotonic() < ends_s:
            filled = home.upkeep.embed(limit_s=EMBED_SLICE_S)
            n_done, n_left = n_done + filled.n_done, filled.n_left
            if not filled.n_done or not n_left:
                break
    except NotFound as error:
        return JobResult(error.detail or "there is no embedder", did_work=False)
    except ModelFault:
        if not n_done:
            raise
    return JobResult(f"{n_done} embedded, {n_left} left", {"embedded": n_done, "left": n_left}, did_work=n_done > 0)


def read_pictures(home: Home, stop: StopCheck) -> JobResult:
    """Read the text in new pictures, until all are read, the time is over or the process must stop."""
    if not home.config.pictures.read:
        return JobResult("switched off (pictures.read)", did_work=False)
    try:
        result = home.upkeep.read_pictures(limit_s=MAX_PICTURES_S, stop=stop)
    except RuntimeMissing as error:
        return JobResult(f"not installed: {error.detail}", did_work=False)
    counts = {"read": result.n_read, "faulty": result.n_faulty, "left": result.n_left}
    return JobResult(f"{result.n_read} pictures read, {result.n_left} left", counts, did_work=result.n_read > 0)


def check_data_path(home: Home, stop: StopCheck) -> JobResult:  # noqa: ARG001
    """Prove the data path by a real write, search and forget on this disk."""
    took_s = run_probe(home)
    return JobResult("write, archive, index, search and forget work", {"took_ms": round(took_s * 1000, 1)})


def verify(home: Home, stop: StopCheck) -> JobResult:  # noqa: ARG001
    """Read and check the whole archive."""
    report = home.upkeep.verify()
    problems = [finding for finding in report.findings if finding.severity == "problem"]
    if problems:
        raise ArchiveFault(f"{len(problems)} problems, the first in {problems[0].where}")
    return JobResult(f"{report.n_runs} runs checked, no damage", {"runs": report.n_runs, "bytes": report.n_bytes})


def watch_resident(home: Home, stop: StopCheck) -> JobResult:  # noqa: ARG001
    """Ask the resident home for its health; a problem becomes one alert until it is solved."""
    try:
        answer = events.ask_resident(home.path, {"op": "health"}, timeout_s=MAX_HEALTH_WAIT_S)
        problems = [str(problem) for problem in answer.get("problems", ())]
    except (OSError, ValueError) as error:
        problems = [f"the resident home does not answer ({type(error).__name__})"] if find_resident(home.path) else []
    changed = alert.update_alert(home.path, problems)
    return JobResult("; ".join(problems) or "no problems", {"problems": len(problems)}, did_work=changed)


def mine(home: Home, stop: StopCheck) -> JobResult:
    """Mine memories from finished sessions."""
    from perdure.memories.mine import MiningRequest

    mining_result = home.memories.mine(MiningRequest(max_batches=home.config.mining.job_batches), stop=stop)
    if mining_result is None:
        return JobResult("no model is set for it (models.roles.miner)", did_work=False)
    if mining_result.fault is not None and not mining_result.n_batches:
        raise mining_result.fault
    counts = {
        "batches": mining_result.n_batches,
        "calls": mining_result.n_calls,
        "new": mining_result.n_new,
        "again": mining_result.n_reinforced,
        "refused": len(mining_result.refusals),
        "tokens": mining_result.usage.n_tokens,
        "left": mining_result.n_left,
    }
    why = f"{mining_result.n_new} memories from {mining_result.n_messages} messages"
    return JobResult(
        f"{why}; {mining_result.stop_reason}" if mining_result.stop_reason else why,
        counts,
        did_work=bool(mining_result.n_calls or mining_result.n_batches),
    )


def refresh_recent(home: Home, stop: StopCheck) -> JobResult:
    """Bring recent.md up to the last messages, if the owner wants a page about all projects."""
    if not home.config.floor.overall:
        return JobResult("switched off (floor.overall)", did_work=False)
    return update_recent(home, stop)


def update_recent(home: Home, stop: StopCheck, *, rebuild: bool = False) -> JobResult:
    """Bring recent.md up to the last messages, or rebuild it."""
    page_result = home.floor.update_recent(rebuild=rebuild, stop=stop)
    if page_result.fault is not None:
        raise page_result.fault
    counts = {"turns": page_result.n_turns, "calls": page_result.n_calls, "tokens": page_result.n_tokens}
    explanation = f"{page_result.outcome}: {page_result.why}" if page_result.why else page_result.outcome
    return JobResult(explanation, counts, did_work=page_result.outcome in ("updated", "rebuilt"))


def write_diary(home: Home, stop: StopCheck, *, day: date | None = None) -> JobResult:
    """Write the diary page of a day; without a day, of the last finished one."""
    page_result = home.floor.write_diary(day, stop=stop)
    if page_result.fault is not None:
        raise page_result.fault
    counts = {"turns": page_result.n_turns, "calls": page_result.n_calls, "tokens": page_result.n_tokens}
    return JobResult(
        f"{page_result.day}: {page_result.outcome}, {page_result.why}",
        counts,
        did_work=page_result.outcome == "written",
    )


def mark_used_cues(home: Home, stop: StopCheck) -> JobResult:
    """Mark which of the cues shown with a prompt the answer used."""
    marked = home.memories.mark_used_cues(limit_s=MAX_USE_S, stop=stop)
    counts = {
        "injections": marked.n_injections,
        "cues": marked.n_cues,
        "used": marked.n_used,
        "waiting": marked.n_waiting,
    }
    return JobResult(f"{marked.n_used} of {marked.n_cues} cues were used", counts, did_work=marked.n_injections > 0)


def deliver(home: Home, stop: StopCheck) -> JobResult:
    """Send the deliveries whose time has come."""
    tried = DeliveryQueue(home.path, home.config.delivery).send_due(stop)
    states = [delivery.state for delivery in tried]
    counts = {"sent": states.count("sent"), "waiting": states.count("waiting"), "dead": states.count("dead")}
    why = f"{counts['sent']} sent, {counts['waiting']} to be tried again, {counts['dead']} given up"
    return JobResult(why, counts, did_work=bool(tried))


def ask_probes(home: Home, stop: StopCheck) -> JobResult:
    """Ask questions of the home's own history, once a night, while the machine has nothing else to do."""
    from perdure.report import probe_runs

    now = datetime.now(UTC)
    if (runs := probe_runs.read_runs(home, now)) and now - runs[-1].at < PROBES_AGE:
        return JobResult("asked already tonight", did_work=False)
    if not is_idle():
        return JobResult("the machine is busy; the next look is in an hour", did_work=False)
    run = probe_runs.run_probes(home, now=now, limit_s=MAX_PROBES_S, stop=stop)
    if run is None:
        return JobResult("the history states nothing yet that can be asked", did_work=False)
    warning = probe_runs.find_warning(probe_runs.find_drift(home, [*runs, run]))
    counts = {"asked": len(run.answers), "answered": run.n_answered, "left": run.n_left, "fell": bool(warning)}
    return JobResult(warning or f"{run.n_answered} of {len(run.answers)} questions answered", counts)


def is_idle() -> bool:
    """Return True if the processors had less to do in the last minute than they can do."""
    return os.getloadavg()[0] < (os.cpu_count() or 1)


def make_weekly_report(home: Home, stop: StopCheck) -> JobResult:  # noqa: ARG001
    """Make the report of one's own memory for the last week, and keep its counts."""
    from perdure.report import own_report

    report = own_report.make_report(home, now=datetime.now(UTC))
    if not report.outcomes and not report.costs.n_answers:
        return JobResult("nobody asked this home anything in the last week", did_work=False)
    own_report.keep_report(home, report)
    why = f"{report.verdict.verdict}: {report.verdict.n_used} of {report.verdict.n_judged} recalls were used"
    return JobResult(f"{why}; {report.warning}" if report.warning else why, dict(report.counts))


def consolidate(home: Home, stop: StopCheck) -> JobResult:  # noqa: ARG001
    """Count the proposals for tidying up the memories; nothing is changed."""
    from collections import Counter

    counts: Counter[str] = Counter(proposal.kind for proposal in home.memories.proposals())
    why = f"{counts.total()} proposals (`perdure consolidate` shows them)"
    return JobResult(why, {kind: float(n) for kind, n in counts.items()}, did_work=bool(counts))


def sort_topics(home: Home, stop: StopCheck) -> JobResult:
    """Sort the turns of workflows into topics, and promote warm ones into relations."""
    from perdure.workflow.topic_upkeep import update_topics

    home.upkeep.index_all()
    result = update_topics(home, now=datetime.now(UTC), stop=stop)
    counts = {"turns": result.n_turns, "topics": result.n_topics, "promoted": result.n_promoted}
    why = f"{result.n_turns} turns sorted into {result.n_topics} topics, relations of {result.n_promoted} turns written"
    return JobResult(why, counts, did_work=bool(result.n_turns or result.n_promoted))


def check_persons(home: Home, stop: StopCheck) -> JobResult:  # noqa: ARG001
    """Look up the linked persons of the AT Protocol, and revoke app passwords at their servers."""
    if not home.config.identity.atproto.directory:
        return JobResult("nobody is known by a DID (identity.atproto.directory)", did_work=False)
    result = home.sharing.app_passwords.check()
    n_ended, n_revoked, n_waiting = len(result.revoked_there), len(result.revoked), len(result.waiting)
    counts = {"renamed": len(result.renamed), "ended": n_ended, "revoked": n_revoked, "waiting": n_waiting}
    why = f"{n_revoked} app password{'' if n_revoked == 1 else 's'} revoked, {n_waiting} left; {n_ended} machines ended"
    return JobResult("; ".join([why, *result.faults[:3]]), counts, did_work=any(counts.values()))


BUILTIN_JOBS: tuple[BuiltinJob, ...] = (
    BuiltinJob("sweep", "capture transcripts that no hook has sent", "once", sweep),
    BuiltinJob("embed", "make vectors for captured text", "once", embed, for_each_user=True, max_s=MAX_EMBED_S),
    BuiltinJob("pictures", "read the text in pictures", "once", read_pictures),
    BuiltinJob(
        "use",
        "record which recalled cues the answers used",
        "once",
        mark_used_cues,
        for_each_user=True,
        max_s=MAX_USE_S,
    ),
    BuiltinJob("consolidate", "list proposals to tidy up memories", "once", consolidate, for_each_user=True),
    BuiltinJob("pack", "compress conversations that were idle for many days, and tidy the index", "once", pack),
    BuiltinJob("health", "test the data path with a real write, search and forget", "skip", check_data_path),
    BuiltinJob("verify", "read the whole archive and check it", "once", verify),
    BuiltinJob("mine", "make memories from sessions that have ended", "once", mine, for_each_user=True),
    BuiltinJob("recent", "update recent.md with the newest messages", "once", refresh_recent, for_each_user=True),
    BuiltinJob("diary", "write the diary page of the last complete day", "once", write_diary, for_each_user=True),
    BuiltinJob("topics", "sort the turns of workflows into topics", "once", sort_topics, for_each_user=True),
    BuiltinJob("deliver", "send messages to the targets of deliveries", "once", deliver),
    BuiltinJob(
        "probes",
        "ask questions of your own history at night, and notice when fewer are answered",
        "once",
        ask_probes,
        for_each_user=True,
        max_s=MAX_PROBES_S,
    ),
    BuiltinJob(
        "report",
        "keep the counts of the week: what the memory told, and what came of it",
        "once",
        make_weekly_report,
        for_each_user=True,
    ),
    BuiltinJob("identities", "look up linked persons, and revoke app passwords there", "once", check_persons),
    BuiltinJob("watchdog", "notice a part that does not work, and report it once", "skip", watch_resident),
)


def find_job(name: str) -> BuiltinJob:
    """Return the built-in job of this name. Raises JobMissing."""
    for builtin in BUILTIN_JOBS:
        if builtin.name == name:
            return builtin
    raise JobMissing(f"no job {name!r} (there are {', '.join(builtin.name for builtin in BUILTIN_JOBS)})")


def read_expressions(config: JobsConfig) -> dict[str, str]:
    """Return the cron expression of each job, "" if it is switched off. Raises ConfigFault."""
    expressions: dict[str, str] = {builtin.name: getattr(config, builtin.name) for builtin in BUILTIN_JOBS}
    for name, expression in expressions.items():
        jobs.check_expression(expression, name=f"jobs.{name}")
    return expressions
