"""Sub-agents with a scripted model behind a real port: how soon they begin, side by side, and over kills.

    python -m benchmarks.agents

Start: from the answer of queue_agent to the arrival of the first request at the model's port, recall included; once
with the process that forks loaded, once without. Parallel: three tasks of one second. Kills: fifty runs with four
workers, while the resident home is killed (-9) twice.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import perdure
from benchmarks.common import save, scratch, spread, table
from perdure.agent.agent import Agent, open_agent
from perdure.agent.envelope import describe_run
from perdure.agent.queue_runner import queue_run
from perdure.agent_queue import AgentQueue, AgentRecipe
from perdure.capture import events
from perdure.home import Home
from perdure.testing import ScriptedChat

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from rig.model_server import ModelServer

N_STARTS = 20
N_RUNS = 50
_DEADLINE_S = 300


class ClockedModel(ModelServer):
    """A model that notes when each request arrives."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.queue = AgentQueue(home)
        self.arrivals_s: list[float] = []
        self.worker_times_ms: list[tuple[float, float]] = []  # of the processor, and waiting for one

    def keep(self, request: Any) -> Any:
        self.worker_times_ms += [read_times_ms(run.pid) for run in self.queue.list_active() if run.pid]
        self.arrivals_s.append(time.monotonic())
        return super().keep(request)


def read_times_ms(pid: int) -> tuple[float, float]:
    """Return how long a process has had a processor, and how long its threads have waited for one (Linux)."""
    with contextlib.suppress(OSError):
        rows = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return sum(int(row[0]) for row in rows) / 1e6, sum(int(row[1]) for row in rows) / 1e6
    return 0.0, 0.0


def write_settings(home: Path, model: ModelServer, *, recall: bool) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        f"[live]\nrecall = {str(recall).lower()}\n[memories]\nstated = false\n[agents]\nworkers = 4\n"
        f'[models.roles.resident]\nprovider = "openai"\nmodel = "scripted"\nurl = "{model.url}/v1"\n'
    )


@contextlib.contextmanager
def serve(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "perdure.surfaces.cli", "serve", "--home", str(home)]
    child = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: ask_health(home).get("pid") == child.pid)
        yield child
    finally:
        child.kill()
        child.wait()


def ask_health(home: Path) -> dict[str, Any]:
    try:
        return events.ask_resident(home, {"op": "health"}, timeout_s=2)
    except (OSError, ValueError):
        return {}


def wait_until(ask: Any) -> None:
    ends_s = time.monotonic() + _DEADLINE_S
    while not ask():
        if time.monotonic() > ends_s:
            raise TimeoutError
        time.sleep(0.01)


def open_parent(home: Home, project: Path) -> Agent:
    return open_agent(home, cwd=str(project), chat=ScriptedChat([]), recall_mode="keyword", mode="yolo")


def measure_starts(folder: Path) -> dict[str, Any]:
    """Milliseconds from the answer of queue_agent to the first request; and of queue_agent itself."""
    starts_ms, answers_ms, cold_ms = [], [], 0.0
    with ClockedModel(folder / "home") as model:
        write_settings(folder / "home", model, recall=True)
        with perdure.open(folder / "home") as home, serve(home.path), open_parent(home, folder) as agent:
            wait_until(lambda: not ask_health(home.path).get("embedding", {}).get("query"))
            for number in range(N_STARTS + 1):
                n_before, asked_s = len(model.arrivals_s), time.monotonic()
                agent.spawner.queue({"instruction": f"Look at buoy number {number} in the harbour."})
                answered_s = time.monotonic()
                wait_until(lambda: len(model.arrivals_s) > n_before)  # noqa: B023 - called within the loop
                if number:
                    starts_ms.append((model.arrivals_s[-1] - answered_s) * 1000)
                    answers_ms.append((answered_s - asked_s) * 1000)
                else:
                    cold_ms = (model.arrivals_s[-1] - answered_s) * 1000
                wait_until(lambda: not AgentQueue(home.path).list_active())
        times_ms = model.worker_times_ms[1:]
    return {
        "start_ms": spread(starts_ms),
        "start_cpu_ms": spread([cpu for cpu, _ in times_ms]),
        "start_waiting_for_cpu_ms": spread([waiting for _, waiting in times_ms]),
        "cold_start_ms": round(cold_ms),
        "queue_agent_ms": spread(answers_ms),
    }


def measure_parallel(folder: Path) -> dict[str, Any]:
    """Seconds of three tasks of one second each, from the first queue_agent to the last envelope."""
    took_s = []
    with ClockedModel(folder / "home") as model:
        write_settings(folder / "home", model, recall=False)
        with perdure.open(folder / "home") as home, serve(home.path), open_parent(home, folder) as agent:
            for number in range(4):
                started_s = time.monotonic()
                texts = [agent.spawner.queue({"instruction": f"@delay 1\n@say Part {n}."}).text for n in range(3)]
                runs = [AgentQueue(home.path).read(re.findall(r"run (a\w{10})", text)[0]) for text in texts]
                ended = [AgentQueue(home.path).wait_until(run.run, started_s + 60) for run in runs]
                if number:  # the first one loads
                    took_s.append(time.monotonic() - started_s)
                assert [describe_run(home, run)["output"] for run in ended] == [f"Part {n}." for n in range(3)]
    return {"three_tasks_s": [round(value, 2) for value in took_s]}


def measure_kills(folder: Path) -> dict[str, Any]:
    """Fifty runs, four workers, two kills of the resident home."""
    started_s = time.monotonic()
    with ClockedModel(folder / "home") as model:
        write_settings(folder / "home", model, recall=False)
        with perdure.open(folder / "home") as home:
            queue = AgentQueue(home.path)
            recipes = [AgentRecipe(instruction=f"@delay 0.2\n@say Run {n}.", cwd=str(folder)) for n in range(N_RUNS)]
            runs = [queue_run(home, recipe, job="bench") for recipe in recipes]
            for n_ended in (10, 25):
                with serve(home.path) as resident:
                    wait_until(lambda: len(queue.list_ended()) >= n_ended)  # noqa: B023 - called within the loop
                    resident.send_signal(signal.SIGKILL)
            with serve(home.path):
                wait_until(lambda: not queue.list_active())
            rows = [describe_run(home, queue.read(run.run)) for run in runs]
        texts = [request.body["messages"][-1]["content"] for request in model.requests]
    asked = Counter(int(re.findall(r"@say Run (\d+)", text)[0]) for text in texts)
    return {
        "outcomes": dict(Counter(row["outcome"] for row in rows)),
        "n_right_outputs": sum(row["output"] == f"Run {n}." for n, row in enumerate(rows)),
        "n_asked_twice": sum(n > 1 for n in asked.values()),
        "n_never_asked": N_RUNS - len(asked),
        "took_s": round(time.monotonic() - started_s, 1),
    }


def main() -> None:
    """Measure and print."""
    figures: dict[str, Any] = {}
    for measure in (measure_starts, measure_parallel, measure_kills):
        with scratch() as folder:
            figures |= measure(folder)
    save("agents", figures)
    table("Sub-agents", [{"what": name, "figure": value} for name, value in figures.items()])


if __name__ == "__main__":
    main()
