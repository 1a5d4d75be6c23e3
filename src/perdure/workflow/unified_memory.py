"""`UnifiedMemory`: the tiers of a workflow for asynchronous programs. Everything it does is `WorkflowMemory`'s.

One thread does the work of one object, call after call, so that the program's own loop never waits for a disk or a
server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, Unpack

from perdure.errors import UsageError
from perdure.workflow.athena import AthenaClient, AthenaMemory
from perdure.workflow.memory import N_TAIL, BackEnds, MemoryBundle, WorkflowMemory
from perdure.workflow.tier_queue import TierStatus
from perdure.workflow.turns import WorkflowTurn

Value = TypeVar("Value")


class UnifiedMemory:
    """The memory of one agent in one step of a workflow. Close it, or use it with `async with`."""

    def __init__(self, workflow_id: str, step_id: str, agent_id: str, **back_ends: Unpack[BackEnds]) -> None:
        """See `BackEnds`: what is left out turns its tiers off. Nothing is sent before the first call.

        Raises UsageError, PackageMissing.
        """
        self._home = home = back_ends.get("home")
        if home is not None:
            self._home = back_ends["home"] = home.clone_for_thread()
        self._agent_id, self._athena_client = agent_id, back_ends.get("athena_client")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="perdure-workflow")
        self._is_closed = False
        self._memory = WorkflowMemory(workflow_id, step_id, agent_id, **back_ends)

    async def __aenter__(self) -> UnifiedMemory:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def log_turn(self, turn_id: str, thought: str, action: str, result: str, tokens: int = 0) -> None:
        """Record a turn in the home's archive and in all tiers that are on.

        turn_id: unique within the step; the same turn told again is there once. action: a tool, a sub-agent, or a kind
        of decision. With a home the turn is durable there when this returns, and the tiers get it behind; every read
        waits for them. What a tier does not take waits and is counted; nothing is raised for it.
        """
        await self._call(lambda: self._memory.log_turn(turn_id, thought, action, result, tokens))

    async def save_checkpoint(self, state: str | Mapping[str, Any]) -> None:
        """Save a snapshot of the agent's own state (JSON, or what becomes JSON); the last one counts.

        The server has it when this returns, unless it is down: then it waits.
        """
        await self._call(lambda: self._memory.save_checkpoint(state))

    async def load_checkpoint(self) -> str | None:
        """Return the last checkpoint of this step as it was saved, or None."""
        return await self._call(self._memory.load_checkpoint)

    async def rehydrate_bundle(self, ledger_tail: int = N_TAIL) -> MemoryBundle:
        """Return the five parts that an agent reads before it begins or goes on; parts that are off are empty."""
        return await self._call(lambda: self._memory.rehydrate_bundle(ledger_tail))

    async def compress(self) -> str | None:
        """Summarise the older turns of the ledger if it has grown too long. Return the new summary, or None.

        Call it after a turn, or from a job: it costs one short read until it is due.
        """
        return await self._call(self._memory.compress)

    async def export(self) -> list[WorkflowTurn]:
        """Return every turn of the workflow from the home's archive, each once, by time; [] without a home."""
        return await self._call(self._memory.export)

    async def flush(self) -> bool:
        """Wait for the writes of all tiers, and try again what waits. Return True if nothing waits any more."""
        return await self._call(self._memory.flush)

    async def status(self) -> dict[str, TierStatus]:
        """Return what became of the writes, for each tier that is on and for the archive."""
        return await self._call(self._memory.status)

    async def _get_athena_memory(self) -> AthenaMemory | None:
        """Return the memory of the agent at the server of `athena_client`, opened at the first call; None without one.

        Raises TierFault, and then the next call tries again. The name is that of the object in JarvisCore.
        """
        client = self._athena_client
        return await AthenaMemory.create(self._agent_id, client) if isinstance(client, AthenaClient) else None

    async def close(self) -> None:
        """Try again what waits, let the home archive what it took, and end the thread. A second time does nothing."""
        if self._is_closed:
            return
        await self._call(self._memory.close)
        self._is_closed = True
        self._thread.shutdown()
        if self._home is not None:
            self._home.close()

    async def _call(self, call: Callable[[], Value]) -> Value:
        if self._is_closed:
            raise UsageError("this memory is closed: make another one")
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
