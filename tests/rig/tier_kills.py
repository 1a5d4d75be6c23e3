"""Agents of one workflow that are killed, on servers that are killed, and what is in their tiers afterwards."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import perdure
from perdure.workflow.memory import WorkflowMemory
from rig.tier_agent import WORKFLOW
from rig.tier_servers import ObjectServer, RedisServer, ServerProcess

_END_S = 1_800.0  # then those that still work are killed


@dataclass
class Killing:
    """How many agents log how many turns, and what is killed meanwhile."""

    n_agents: int
    n_turns: int  # each
    turn_s: float = 0.05  # from one turn to the next
    agent_kill_s: float = 3.0  # from one kill of an agent to the next
    server_kill_s: float = 12.0  # from one kill of a server to the next
    down_s: float = 1.0  # so long is a server away, and its start comes on top
    pause_s: float = 30.0  # of a tier that failed three times
    n_killed: Counter[str] = field(default_factory=Counter)  # agent, valkey, seaweedfs
    output: list[str] = field(default_factory=list)  # what the agents said at their end

    def run(self, folder: Path) -> dict[str, Any]:
        """Let them work in a folder to the end; return what the tiers hold."""
        for name in ("redis", "objects", "acknowledged"):
            (folder / name).mkdir(parents=True)
        redis, objects = RedisServer(folder / "redis"), ObjectServer(folder / "objects")
        servers: dict[str, ServerProcess] = {"valkey": redis, "seaweedfs": objects}
        program = [sys.executable, str(Path(__file__).with_name("tier_agent.py"))]
        places = [str(folder / "home"), redis.url, "s3://bucket", str(folder / "acknowledged")]
        numbers = [str(self.n_turns), str(self.turn_s), str(self.pause_s)]
        env = {**os.environ, **objects.environment, "PYTHONPATH": str(Path(__file__).parents[1])}

        def start(name: str) -> subprocess.Popen[str]:
            return subprocess.Popen([*program, *places, name, *numbers], env=env, stdout=subprocess.PIPE, text=True)

        try:
            for server in servers.values():
                server.start()
            started_s = time.monotonic()
            self._let_work(start, servers)
            wall_s = time.monotonic() - started_s
            return {"wall s": round(wall_s), **self._count(folder, redis, objects)}
        finally:
            for server in servers.values():
                server.kill()
            redis.client.close()

    def _let_work(self, start: Callable[[str], subprocess.Popen[str]], servers: dict[str, ServerProcess]) -> None:
        """Kill and start agents and servers until every agent came to its end."""
        chance, now_s = random.Random(8), time.monotonic()
        names = [f"agent{n}" for n in range(self.n_agents)]
        agents = {name: start(name) for name in names}
        agent_kill_at_s, server_kill_at_s, ends_s = (now_s + s for s in (self.agent_kill_s, self.server_kill_s, _END_S))
        try:
            while agents and time.monotonic() < ends_s:
                time.sleep(0.05)
                if time.monotonic() > server_kill_at_s:
                    name = "seaweedfs" if self.n_killed["valkey"] > self.n_killed["seaweedfs"] else "valkey"
                    self.n_killed[name] += 1
                    servers[name].kill()
                    time.sleep(self.down_s)
                    servers[name].start()
                    server_kill_at_s = time.monotonic() + self.server_kill_s
                if time.monotonic() > agent_kill_at_s:
                    agent_kill_at_s = time.monotonic() + self.agent_kill_s
                    name = chance.choice(names)
                    if name in agents:
                        self.n_killed["agent"] += 1
                        agents[name].kill()
                        agents[name].communicate()
                        agents[name] = start(name)
                for name in [name for name, agent in agents.items() if agent.poll() is not None]:
                    agent = agents.pop(name)
                    self.output.append(f"{agent.communicate()[0].strip()} (exit {agent.returncode})")
        finally:
            for agent in agents.values():
                agent.kill()
                agent.communicate()

    def _count(self, folder: Path, redis: RedisServer, objects: ObjectServer) -> dict[str, Any]:
        told = {f"agent{n}-{number}" for n in range(self.n_agents) for number in range(self.n_turns)}
        acknowledged = {
            f"{path.name}-{number}"
            for path in (folder / "acknowledged").iterdir()
            for number in path.read_text().split()
        }
        with perdure.open(folder / "home") as home:
            memory = WorkflowMemory(
                WORKFLOW, "any", "any", redis_store=redis.url, blob_storage=objects.store, home=home
            )
            tiers = {
                "export": [turn.turn_id for turn in memory.export()],
                "ledger": [turn.turn_id for turn in memory.read_tail(10**6)],
                "scratchpad": list_notes(objects),
                "summarised": list_originals(memory),
            }
            checkpoints = [redis.client.get(f"checkpoint:{WORKFLOW}:step-agent{n}") for n in range(self.n_agents)]
        counts: dict[str, Any] = {"acknowledged": len(acknowledged), "unacknowledged": len(told - acknowledged)}
        for tier, turn_ids in tiers.items():
            counts[tier] = len(turn_ids)
            if tier != "summarised":
                lost = sorted(acknowledged - set(turn_ids))
                counts[f"{tier} lost"] = len(lost)
                self.output += [f"lost in {tier}: {lost}"] if lost else []
            counts[f"{tier} twice"] = len(turn_ids) - len(set(turn_ids))
        counts["checkpoints at the end"] = checkpoints.count(b'{"next": %d}' % self.n_turns)
        return {**counts, **{f"kills of {name}": n for name, n in self.n_killed.items()}}


def list_notes(objects: ObjectServer) -> list[str]:
    """The turn of each object of the scratchpads."""
    import msgspec
    import obstore

    folder = f"workflows/{WORKFLOW}/scratchpads/"
    names = [meta["path"] for page in obstore.list(objects.store, folder) for meta in page]
    with ThreadPoolExecutor(8) as pool:
        bodies = pool.map(lambda name: bytes(obstore.get(objects.store, name).bytes()), names)
        return [msgspec.json.decode(body)["turn_id"] for body in bodies]


def list_originals(memory: WorkflowMemory) -> list[str]:
    """The turns that stand in generations of the summary."""
    assert memory._summaries is not None
    return [turn.turn_id for turns in memory._summaries.list_originals().values() for turn in turns]
