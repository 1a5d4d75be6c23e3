"""From the measured service times to many users: a model, checked against the real run of no, one and two workers.

A recall works in its web process and in the server by turns. A worker takes chunks from the archive into the index,
which only one does at a time (the index has one writer), and makes vectors beside it. All of it shares the cores of one
machine. The real run has all pages in memory; a cell of many users has not, so a recall there first reads the pages of
its user's vectors and chunks from the disk, unless they are among those that memory holds.
"""

from __future__ import annotations

import json
import math
import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, spread
from benchmarks.scale.simulate import Cores, Pool, Process, Simulation, Take, Wait, Work

INGEST, BULK = 1, 2  # lanes of workers
N_STEPS = 8  # a recall goes so often from its process to the server and back
BATCH_CHUNKS = 64  # of vectors, as in `index.embed`
SESSION_CHUNKS = 32  # that come in together, so that they lie together
PAGE_BYTES = 8192
SCANNED = ("slab_row", "chunk")  # tables of which a recall reads every row of its user
INPUTS = Path(__file__).parent / "inputs.toml"


@dataclass(frozen=True)
class Costs:
    """Processor seconds, measured."""

    asker_s: tuple[float, ...]  # of a recall, in the process that asks: a sample
    recall_server_s: float  # of a recall, in the server
    index_s: float  # of a chunk: archive and index, in the worker and in the server
    embed_s: float  # of a chunk: its vector
    embed_server_s: float

    @classmethod
    def read(cls, result: dict[str, Any]) -> Costs:
        """Read them from the kept result of `users-…`."""
        idle, alone = result["idle"], result["ingest alone"]
        return cls(
            tuple(ms / 1000 for ms in idle["cpus"]), idle["server cpu ms, mean"] / 1000,
            (alone["index, cpu ms a chunk"] + alone["index, server, cpu ms a chunk"]) / 1000,
            alone["vectors, cpu ms a chunk"] / 1000, alone["vectors, server, cpu ms a chunk"] / 1000,
        )  # fmt: skip


class Machine:
    """One machine: its cores, its web processes, its workers and what it has done."""

    def __init__(
        self,
        simulation: Simulation,
        costs: Costs,
        rng: random.Random,
        *,
        n_cores: int,
        speed: float = 1.0,
        cold_share: float = 0.0,
        read_s: float = 0.0,
    ) -> None:
        """cold_share: of the recalls, how many find nothing of their user in memory. read_s: of the disk, for one."""
        self.simulation, self.costs, self._rng, self._speed = simulation, costs, rng, speed
        self.cores, self.disk = Cores(simulation, n_cores), Cores(simulation, 1)
        self._cold_share, self._read_s = cold_share, read_s
        self.writer = Pool(1)
        self.recalls_s: list[float] = []
        self.waits_s: list[tuple[int, float]] = []  # (lane, from arrival until a chunk's vector is there)
        self.n_indexed = self.n_embedded = 0

    def recall(self, process: Pool) -> Process:
        """Answer one message in a web process."""
        began_s = self.simulation.now_s
        yield Take(process)
        asker_s = self._rng.choice(self.costs.asker_s) / self._speed
        if self._rng.random() < self._cold_share:
            yield Work(self.disk, self._read_s)
        for _ in range(N_STEPS):
            yield Work(self.cores, asker_s / N_STEPS)
            yield Work(self.cores, self.costs.recall_server_s / N_STEPS / self._speed)
        process.release()
        self.recalls_s.append(self.simulation.now_s - began_s)

    def index(self, n_chunks: int) -> Process:
        """Write chunks into the index, alone."""
        yield Take(self.writer)
        yield Work(self.cores, n_chunks * self.costs.index_s / self._speed)
        self.writer.release()
        self.n_indexed += n_chunks

    def embed(self, n_chunks: int) -> Process:
        """Make the vectors of chunks, on two cores at once as the model does."""
        yield Work(self.cores, n_chunks * self.costs.embed_s / self._speed, n_threads=2)
        yield Work(self.cores, n_chunks * self.costs.embed_server_s / self._speed)
        self.n_embedded += n_chunks

    def take_in(self, workers: Pool, lane: int, n_chunks: int) -> Process:
        """Take in chunks by a worker of a pool, a batch at a time, so that a lane before it gets its turn."""
        began_s = self.simulation.now_s
        for start in range(0, n_chunks, BATCH_CHUNKS):
            n = min(BATCH_CHUNKS, n_chunks - start)
            yield Take(workers, lane)
            yield from self.index(n)
            yield from self.embed(n)
            workers.release()
        self.waits_s.append((lane, self.simulation.now_s - began_s))

    def work_on_backlog(self, step: Callable[[int], Process]) -> Process:
        """Index, or embed, without an end: a thread of a worker with a backlog."""
        while True:
            yield from step(BATCH_CHUNKS)


def arrive(simulation: Simulation, rng: random.Random, rate: float, start: Callable[[], Process]) -> Process:
    """Start something again and again, independently of what was before. rate: a second."""
    while rate > 0:
        yield Wait(rng.expovariate(rate))
        simulation.start(start())


# against the real run ---------------------------------------------------------------------------------------------


def simulate_real_run(costs: Costs, *, n_workers: int, rate: float, n_askers: int, n_cores: int, has_index_work: bool,
                      length_s: float = 400.0) -> dict[str, float]:  # fmt: skip
    """Simulate what `measure.run_together` does: askers with arrivals of their own, workers with a backlog."""
    simulation, rng = Simulation(), random.Random(11)
    machine = Machine(simulation, costs, rng, n_cores=n_cores)
    for _ in range(n_askers if rate else 0):
        process = Pool(1)
        simulation.start(arrive(simulation, rng, rate / n_askers, partial(machine.recall, process)))
    for _ in range(n_workers):
        step = machine.index if has_index_work else machine.embed  # a worker makes few vectors while words wait
        simulation.start(machine.work_on_backlog(step))
    simulation.run(length_s)
    times = spread([s * 1000 for s in machine.recalls_s]) if machine.recalls_s else {"p50": 0.0, "p95": 0.0}
    return {"p50 ms": times["p50"], "p95 ms": times["p95"], "chunks indexed a second": machine.n_indexed / length_s,
            "vectors a second": machine.n_embedded / length_s}  # fmt: skip


def compare(result: dict[str, Any], n_cores: int) -> list[dict[str, Any]]:
    """Return measured and simulated figures of each real run, and the error of the simulated ones."""
    costs = Costs.read(result)
    rows = []
    for run in (*result["together"], *result["ingest"]):
        rate = result["messages a second"] if run["recalls"] else 0.0
        simulated = simulate_real_run(costs, n_workers=run["workers"], rate=rate, n_askers=4, n_cores=n_cores,
                                      has_index_work=run["chunks indexed a second"] > 0)  # fmt: skip
        recall = run["recall ms, with waiting"] or {"p50": 0.0, "p95": 0.0}
        measured = {"p50 ms": recall["p50"], "p95 ms": recall["p95"],
                    "chunks indexed a second": run["chunks indexed a second"],
                    "vectors a second": run["vectors a second"]}  # fmt: skip
        rows.append({"workers": run["workers"], "messages a second": rate, "measured": measured,
                     "simulated": {name: round(value, 1) for name, value in simulated.items()},
                     "error": {name: round(simulated[name] / value - 1, 3) for name, value in measured.items()
                               if value}})  # fmt: skip
    return rows


# many users -------------------------------------------------------------------------------------------------------


def estimate_reads(inputs: dict[str, Any], sizes: dict[str, int], n_users: int) -> tuple[float, float]:
    """Return (share of the recalls that find their user's pages not in memory, seconds of disk for one of these).

    sizes: bytes a chunk, by table. The rows of a session lie together, and those of a user's sessions apart.
    """
    user, machine, disk = inputs["user"], inputs["machine"], inputs["disk"]
    n_sessions = user["chunks_held"] / SESSION_CHUNKS
    n_pages = n_sessions * sum(math.ceil(SESSION_CHUNKS * sizes[table] / PAGE_BYTES) + 1 for table in SCANNED)
    wanted_gb = n_users * user["active_share"] * n_pages * PAGE_BYTES / 1e9
    cache_gb = (machine["memory_gib"] - machine["memory_of_processes_gib"]) * 1.074
    return max(0.0, 1 - cache_gb / wanted_gb), n_pages / disk["reads_a_second"]


def simulate_cell(
    costs: Costs, inputs: dict[str, Any], sizes: dict[str, int], n_users: int, *, length_s: float = 600.0
) -> dict[str, Any]:
    """Simulate the busiest hour of one cell with so many users: messages, new sessions, and backfills of new users."""
    user, machine_inputs = inputs["user"], inputs["machine"]
    simulation, rng = Simulation(), random.Random(13)
    cold_share, read_s = estimate_reads(inputs, sizes, n_users)
    machine = Machine(simulation, costs, rng, n_cores=machine_inputs["cores"], speed=machine_inputs["speed"],
                      cold_share=cold_share, read_s=read_s)  # fmt: skip
    hourly = n_users * user["active_share"] / user["working_hours"] * user["peak_factor"] / 3600
    web, workers = Pool(machine_inputs["cores"] * 2), Pool(machine_inputs["cores"])
    backfills = n_users * user["growth_a_month"] / (30 * 86_400)
    simulation.start(arrive(simulation, rng, hourly * user["messages_a_day"], lambda: machine.recall(web)))
    simulation.start(arrive(simulation, rng, hourly * user["chunks_a_day"] / SESSION_CHUNKS,
                            lambda: machine.take_in(workers, INGEST, SESSION_CHUNKS)))  # fmt: skip
    simulation.start(arrive(simulation, rng, backfills,
                            lambda: machine.take_in(workers, BULK, user["chunks_held"])))  # fmt: skip
    simulation.run(length_s)
    recalls = spread([s * 1000 for s in machine.recalls_s]) if machine.recalls_s else {"p50": 0.0, "p95": 0.0}
    ingest = [s for lane, s in machine.waits_s if lane == INGEST] or [0.0]
    return {
        "users": n_users, "messages a second": round(hourly * user["messages_a_day"], 2),
        "recall p50 ms": recalls["p50"], "recall p95 ms": recalls["p95"],
        "session found after p95 s": spread(ingest)["p95"],
        "not in memory": round(cold_share, 3), "disk used": round(machine.disk.busy_s / length_s, 3),
        "cores used": round(machine.cores.busy_s / length_s / machine_inputs["cores"], 3),
        "writer waits for": machine.writer.count_waiting(), "workers wait for": workers.count_waiting(),
    }  # fmt: skip


def keeps_goals(cell: dict[str, Any], goal: dict[str, Any]) -> bool:
    """Return True if a cell answers soon enough and has room left."""
    used = max(cell["cores used"], cell["disk used"])
    return bool(cell["recall p95 ms"] <= goal["recall_p95_ms"] and used <= goal["max_used"])


def find_largest_cell(costs: Costs, inputs: dict[str, Any], sizes: dict[str, int]) -> tuple[int, list[dict[str, Any]]]:
    """Return (the most users for which a cell keeps its goals, to a twentieth; the cells that were tried)."""
    tried: dict[int, dict[str, Any]] = {}

    def try_cell(n_users: int) -> bool:
        tried[n_users] = simulate_cell(costs, inputs, sizes, n_users)
        return keeps_goals(tried[n_users], inputs["goal"])

    low, high = 0, 100
    while try_cell(high):
        low, high = high, high * 2
    while high - low > max(5, low // 20):
        middle = (low + high) // 2
        low, high = (middle, high) if try_cell(middle) else (low, middle)
    return low, [tried[n_users] for n_users in sorted(tried)]


def compute_costs(inputs: dict[str, Any], bytes_a_chunk: float, users_a_cell: int, n_users: int) -> dict[str, Any]:
    """Return machines, disk and money for so many users. Money is for a month, in the currency of the inputs."""
    user, machine, disk, store = (inputs[name] for name in ("user", "machine", "disk", "store"))
    n_cells = math.ceil(n_users / users_a_cell)
    index_gb = n_users * user["chunks_held"] * bytes_a_chunk / 1e9 / (1 - disk["free_share"])
    archive_gb = n_users * user["chunks_held"] * user["archive_bytes_a_chunk"] / 1e9
    money = {
        "machines": n_cells * machine["price_an_hour"] * machine["hours_a_month"],
        "disk": index_gb * disk["price_a_gb_month"],
        "store": archive_gb * store["price_a_gb_month"]
        + n_users * user["active_share"] * store["puts_a_day"] * 21 / 1000 * store["price_a_thousand_puts"],
    }  # fmt: skip
    total = sum(money.values())
    return {"users": n_users, "cells": n_cells, "disk TB": round(index_gb / 1000, 2),
            "disk GB a cell": round(index_gb / n_cells, 1), "archive TB": round(archive_gb / 1000, 2),
            "money a month": {name: round(value) for name, value in money.items()}, "total a month": round(total),
            "a user and month": round(total / n_users, 4), "currency": machine["currency"]}  # fmt: skip


def model(part: str = "users-10") -> dict[str, Any]:
    """Check the simulator against the kept real run, and model 10,000 and 1,000,000 users."""
    return build_model(json.loads((RESULTS / "scale" / f"{part}.json").read_text(encoding="utf-8")), part)


def build_model(result: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the model that follows from the result of `users-…`."""
    inputs = tomllib.loads(INPUTS.read_text(encoding="utf-8"))
    costs = Costs.read(result)
    sizes, size = result["size"]["by table"], result["size"]["bytes a chunk"]
    users_a_cell, cells = find_largest_cell(costs, inputs, sizes)
    return {
        "measured in": source, "check": compare(result, result["machine"]["n_cpus"]), "users a cell": users_a_cell,
        "cells": cells, "many": {str(n): compute_costs(inputs, size, users_a_cell, n) for n in (10**4, 10**6)},
        "inputs": json.loads(json.dumps(inputs, default=str)),
    }  # fmt: skip
