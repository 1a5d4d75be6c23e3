"""The table of built-in jobs: name, when, what is made of missed runs, and what each does to a home."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from perdure.capture import alert, privacy, wire
from perdure.config import JobsConfig
from perdure.errors import ArchiveFault, ModelFault, NotFound
from perdure.jobs import cron
from perdure.jobs.book import Done
from perdure.jobs.cron import Missed
from perdure.jobs.post import resident

if TYPE_CHECKING:
    from perdure.home import Home

SLICE_S = 5.0  # so long does the embedding job work between two looks at whether it is to stop
WATCH_S = 10.0  # so long may the resident home take to say how it is
EMBED_S = 600.0  # so long at most, a run
USE_S = 60.0  # so long at most, a run

Stop = Callable[[], bool]
Work = Callable[["Home", Stop], Done]


@dataclass(frozen=True)
class Job:
    """One line of the table."""

    name: str
    does: str  # in words
    missed: Missed
    work: Work
    for_each: bool = False  # of the home's users, each with their own; else once, for the whole home
    most_s: float = 0.0  # so long for all users together, shared out; 0: until each is done


def sweep(home: Home, stop: Stop) -> Done:  # noqa: ARG001 - every job is called alike
    """Capture what known clients wrote and no hook brought."""
    from datetime import UTC, datetime

    if privacy.paused(home.path, datetime.now(UTC)):
        return Done("capture is paused", did=False)
    done = home.import_files(index=False)
    counts = {"files": done.n_files, "runs": done.n_runs, "bytes": done.n_bytes, "refused": len(done.refused)}
    return Done(f"{done.n_runs} runs from {done.n_files} files", counts, did=done.n_runs > 0)


def pack(home: Home, stop: Stop) -> Done:  # noqa: ARG001
    """Compress conversations that have been idle for long."""
    n_packs, n_runs = home.pack()
    return Done(f"{n_runs} runs packed", {"packs": n_packs, "runs": n_runs}, did=n_runs > 0)


def embed(home: Home, stop: Stop) -> Done:
    """Give what was captured its vectors, until all has one, the time is over or the process is to stop."""
    import time

    n_done = n_left = 0
    ends_s = time.monotonic() + EMBED_S
    try:
        while not stop() and time.monotonic() < ends_s:
            filled = home.embed(limit_s=SLICE_S)
            n_done, n_left = n_done + filled.n_done, filled.n_left
            if not filled.n_done or not n_left:
                break
    except NotFound as error:
        return Done(error.detail or "there is no embedder", did=False)
    except ModelFault:
        if not n_done:
            raise
    return Done(f"{n_done} embedded, {n_left} left", {"embedded": n_done, "left": n_left}, did=n_done > 0)


def health(home: Home, stop: Stop) -> Done:  # noqa: ARG001
    """Prove the data path by a real write, search and forget on this disk."""
    took_s = home.probe()
    return Done("write, archive, index, search and forget work", {"took_ms": round(took_s * 1000, 1)})


def verify(home: Home, stop: Stop) -> Done:  # noqa: ARG001
    """Read the whole archive and check it."""
    found = home.verify()
    problems = [item for item in found.findings if item.severity == "problem"]
    if problems:
        raise ArchiveFault(f"{len(problems)} problems, first in {problems[0].where}")
    return Done(f"{found.n_runs} runs are whole", {"runs": found.n_runs, "bytes": found.n_bytes})


def watchdog(home: Home, stop: Stop) -> Done:  # noqa: ARG001
    """Ask the resident home how it is; what is wrong becomes one alert, until it is right again."""
    try:
        said = wire.ask(home.path, {"op": "health"}, timeout_s=WATCH_S)
        problems = [str(problem) for problem in said.get("problems", ())]
    except (OSError, ValueError) as error:
        problems = [f"the resident home does not answer ({type(error).__name__})"] if resident(home.path) else []
    changed = alert.settle(home.path, problems)
    return Done("; ".join(problems) or "nothing is wrong", {"problems": len(problems)}, did=changed)


def mine(home: Home, stop: Stop) -> Done:
    """Make memories of what was said in sessions that are over."""
    from perdure.mind.mine import Wish

    done = home.mine(Wish(most=home.config.mining.job_batches), stop=stop)
    if done is None:
        return Done("no model is set for it (models.roles.miner)", did=False)
    if done.fault is not None and not done.n_batches:
        raise done.fault
    counts = {
        "batches": done.n_batches, "calls": done.n_calls, "new": done.n_new, "again": done.n_again,
        "refused": len(done.refused), "tokens": done.usage.n_tokens, "left": done.n_left,
    }  # fmt: skip
    why = f"{done.n_new} memories from {done.n_messages} messages"
    return Done(f"{why}; {done.stopped}" if done.stopped else why, counts, did=bool(done.n_calls or done.n_batches))


def recent(home: Home, stop: Stop, *, rebuild: bool = False) -> Done:
    """Bring recent.md up to what was said, or make it anew."""
    done = home.update_recent(rebuild=rebuild, stop=stop)
    if done.fault is not None:
        raise done.fault
    counts = {"turns": done.n_turns, "calls": done.n_calls, "tokens": done.n_tokens}
    said = f"{done.outcome}: {done.why}" if done.why else done.outcome
    return Done(said, counts, did=done.outcome in ("updated", "rebuilt"))


def diary(home: Home, stop: Stop, *, day: date | None = None) -> Done:
    """Write the diary's page of a day; of the last that is over unless named."""
    done = home.write_diary(day, stop=stop)
    if done.fault is not None:
        raise done.fault
    counts = {"turns": done.n_turns, "calls": done.n_calls, "tokens": done.n_tokens}
    return Done(f"{done.day}: {done.outcome}, {done.why}", counts, did=done.outcome == "written")


def use(home: Home, stop: Stop) -> Done:
    """Note which of the cues that were put beside prompts their answers rest on."""
    found = home.judge_use(limit_s=USE_S, stop=stop)
    counts = {"injections": found.n_injections, "cues": found.n_cues, "used": found.n_used, "waiting": found.n_waiting}
    return Done(f"{found.n_used} of {found.n_cues} cues were used", counts, did=found.n_injections > 0)


def consolidate(home: Home, stop: Stop) -> Done:  # noqa: ARG001
    """Say what could be tidied up among the memories; nothing is changed."""
    from collections import Counter

    counts: Counter[str] = Counter(proposal.kind for proposal in home.proposals())
    why = f"{counts.total()} proposals (`perdure consolidate` shows them)"
    return Done(why, {kind: float(n) for kind, n in counts.items()}, did=bool(counts))


JOBS: tuple[Job, ...] = (
    Job("sweep", "capture what clients wrote and no hook brought", "once", sweep),
    Job("embed", "give what was captured its vectors", "once", embed, for_each=True, most_s=EMBED_S),
    Job("use", "note which recalled cues the answers rest on", "once", use, for_each=True, most_s=USE_S),
    Job("consolidate", "say what could be tidied up among the memories", "once", consolidate, for_each=True),
    Job("pack", "compress conversations that have been idle for long", "once", pack),
    Job("health", "prove the data path by a real write, search and forget", "skip", health),
    Job("verify", "read the whole archive and check it", "once", verify),
    Job("mine", "make memories of what was said in sessions that are over", "once", mine, for_each=True),
    Job("recent", "bring recent.md up to what was said", "once", recent, for_each=True),
    Job("diary", "write the diary's page of the day that is over", "once", diary, for_each=True),
    Job("watchdog", "notice when something stands still, and say so once", "skip", watchdog),
)


def job(name: str) -> Job:
    """One of the table. Raises NotFound."""
    for known in JOBS:
        if known.name == name:
            return known
    raise NotFound(f"job {name!r} (there are {', '.join(known.name for known in JOBS)})")


def when(config: JobsConfig) -> dict[str, str]:
    """Job -> its cron expression, "" where it is switched off. Raises ConfigFault."""
    found: dict[str, str] = {known.name: getattr(config, known.name) for known in JOBS}
    for name, expression in found.items():
        cron.check(expression, name=f"jobs.{name}")
    return found
