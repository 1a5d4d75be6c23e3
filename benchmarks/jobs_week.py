"""Fifty jobs of agents over a week of a simulated clock, with four workers, while the resident home is killed twice.

    python -m benchmarks.jobs_week

Each job says how its runs must end: done, its check fails, too many turns. The rules of overlap take turns. For every
time at which a job was due there must be one run with the right envelope, or, where the rule is forbid, a record that
the last run had not ended; runs of a job with forbid or queue must not overlap.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import perdure
from benchmarks.common import save, scratch, table
from perdure import jobs
from perdure.agent.job_definition import save_job
from perdure.agent_queue import AgentQueue, AgentRun
from perdure.capture import events
from perdure.home import Home
from perdure.jobs import JobLog

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from rig.model_server import ModelServer

ROOT = Path(__file__).parents[1]

N_JOBS = 50
_DEADLINE_S = 300
_RULES = ("forbid", "allow", "queue")
_ENDS = {
    "done": "instruction: '@say Fine.'\n",
    "wrong": "instruction: '@say Fine.'\nmode: yolo\ncheck: exit 3\n",
    "out-of-turns": 'instruction: \'@call glob {"pattern": "*.md"}\'\nmax_turns: 1\n',
}


def make_job(number: int) -> tuple[str, str, str, str]:
    """Return (name, cron expression, how its runs must end, page): 10 slow, 15 daily, 25 weekly ones."""
    outcome, rule = tuple(_ENDS)[number // 3 % 3], _RULES[number % 3]
    if number < 10:
        cron, page = "0,20,40 0 * * *", "instruction: |\n  @delay 4\n  @say Fine.\n"
        outcome = "done"
    else:
        cron = f"{number} {number % 24} * * " + ("*" if number < 25 else str(number % 7))
        page = _ENDS[outcome]
    return f"job-{number}", cron, outcome, f"cron: {cron}\noverlap: {rule}\n{page}"


@contextlib.contextmanager
def serving(home: Path, clock: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Serve a home with the clock of a file, until killed."""
    words = [sys.executable, str(ROOT / "tests/rig/clocked_home.py"), str(home), str(clock)]
    child = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: ask_pid(home) == child.pid)
        yield child
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


def ask_pid(home: Path) -> int:
    """Return the process of the resident home; 0 if none answers."""
    with contextlib.suppress(OSError, ValueError):
        return int(events.ask_resident(home, {"op": "health"}, timeout_s=2)["pid"])
    return 0


def wait_until(ask: Any) -> None:
    """Wait until something is so. Raises TimeoutError."""
    ends_s = time.monotonic() + _DEADLINE_S
    while not ask():
        if time.monotonic() > ends_s:
            raise TimeoutError
        time.sleep(0.2)


def list_runs(home: Home) -> list[AgentRun]:
    """Return all runs of jobs."""
    queue = AgentQueue(home.path)
    runs = {run.run: run for run in (*queue.list_active(), *queue.list_ended())}
    return [run for run in runs.values() if run.cause]


def list_busy(home: Home, names: list[str]) -> Counter[tuple[str, datetime]]:
    """Count the times at which the rule of overlap allowed no run."""
    job_log = JobLog(home.path)
    return Counter(
        (name, job_run.started_at)
        for name in names
        for job_run in job_log.read_history(name)
        if job_run.result == "busy"
    )


def count_overlaps(runs: list[AgentRun]) -> int:
    """Count the runs that began before an earlier one of the same job had ended."""
    spans = sorted((run.started_at, run.envelope.ended_at) for run in runs if run.started_at and run.envelope)
    return sum(began_at < ended_at for (_, ended_at), (began_at, _) in itertools.pairwise(spans))


def measure(home: Home, clock: Path) -> dict[str, Any]:
    """Let a week pass, and compare what ran with what was due."""
    definitions = [make_job(number) for number in range(N_JOBS)]
    for name, _, _, page in definitions:
        save_job(home, name, page)
    begins_at = datetime.now().astimezone().replace(second=0, microsecond=0) + timedelta(minutes=2)
    due: dict[datetime, list[str]] = {}
    for name, cron, _, _ in definitions:
        at = jobs.find_next_time(cron, begins_at)
        while at and at <= begins_at + timedelta(days=7):
            due.setdefault(at, []).append(name)
            at = jobs.find_next_time(cron, at)
    names, times = [name for name, *_ in definitions], sorted(due)
    clock.write_text(begins_at.isoformat())
    queue, n_active_at_kill = AgentQueue(home.path), []
    thirds = (times[: len(times) // 3], times[len(times) // 3 : 2 * len(times) // 3], times[2 * len(times) // 3 :])
    for part in thirds:
        with serving(home.path, clock):
            for number, at in enumerate(part):
                clock.write_text(at.isoformat())
                keys = {(name, at) for name in due[at]}
                wait_until(lambda: keys <= list_seen(home, names))  # noqa: B023 - asked within the loop
                if number % 4 == 3 and at is not part[-1]:
                    wait_until(lambda: not queue.list_active())
            if part is thirds[-1]:
                wait_until(lambda: not queue.list_active())
            else:
                n_active_at_kill.append(len(queue.list_active()))
    runs, busy = list_runs(home), list_busy(home, names)
    by_key = Counter((run.job, run.cause.due_at) for run in runs if run.cause)
    expected = {(name, at) for at, due_names in due.items() for name in due_names}
    ends = {name: outcome for name, _, outcome, _ in definitions}
    rules = {name: _RULES[number % 3] for number, (name, *_) in enumerate(definitions)}
    return {
        "jobs": N_JOBS,
        "times at which a job was due": len(expected),
        "runs": len(runs),
        "no run, because the last one had not ended (forbid)": sum(busy.values()),
        "due, and neither run nor record": len(expected - set(by_key) - set(busy)),
        "ran twice, or run and record": sum(n > 1 for n in by_key.values()) + len(set(by_key) & set(busy)),
        "not due, and ran": len(set(by_key) - expected),
        "records with a rule other than forbid": sum(rules[name] != "forbid" for name, _ in busy),
        "wrong envelopes": sum(not run.envelope or run.envelope.outcome != ends[run.job] for run in runs),
        "begun more than once": sum(run.n_tries > 1 for run in runs),
        "overlaps with forbid or queue": sum(
            count_overlaps([run for run in runs if run.job == name]) for name in names if rules[name] != "allow"
        ),
        "overlaps with allow": sum(
            count_overlaps([run for run in runs if run.job == name]) for name in names if rules[name] == "allow"
        ),
        "kills of the resident home": 2,
        "runs that waited or ran at the kills": n_active_at_kill,
    }


def list_seen(home: Home, names: list[str]) -> set[tuple[str, datetime]]:
    """Return the times that the clock has dealt with."""
    return {(run.job, run.cause.due_at) for run in list_runs(home) if run.cause} | set(list_busy(home, names))


def main() -> None:
    """Measure, print and save."""
    with scratch() as folder, ModelServer() as model:
        path = folder / "home"
        path.mkdir(mode=0o700)
        (path / "config.toml").write_text(
            '[models.embedder]\nkind = "off"\n[live]\nrecall = false\n[memories]\nstated = false\n'
            "[agents]\nworkers = 4\nmax_waiting = 1000\n"
            f'[models.roles.resident]\nprovider = "openai"\nmodel = "scripted"\nurl = "{model.url}/v1"\n'
        )
        with perdure.open(path) as home:
            figures = measure(home, folder / "now")
    table("A week of fifty jobs", [{"what": name, "n": value} for name, value in figures.items()])
    save("jobs_week", figures)


if __name__ == "__main__":
    main()
