"""What tests of workflows use: a semantic tier in memory, a clock that they move, and turns."""

from __future__ import annotations

from typing import Any

from perdure.workflow.memory import WorkflowMemory


class Athena:
    """A semantic tier in memory."""

    def __init__(self) -> None:
        self.turns: dict[str, dict[str, Any]] = {}

    def store_turn(self, agent_id: str, turn: dict[str, Any]) -> None:
        self.turns[turn["key"]] = {"agent": agent_id, **turn}

    def get_memory_context(self, agent_id: str, *, limit: int) -> dict[str, Any] | None:
        own = [turn for turn in self.turns.values() if turn["agent"] == agent_id]
        return {"stm_events": own[-limit:]} if own else None


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def log(memory: WorkflowMemory, n: int, *, first: int = 0, result: str = "200 OK") -> None:
    for number in range(first, first + n):
        memory.log_turn(f"t{number}", f"Thought {number}.", "http_get", f"{result} {number}", 10 + number)
