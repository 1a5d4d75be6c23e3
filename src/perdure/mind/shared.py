"""The memories of others that a principal may read: looked up, never changed. Each as its owner shares it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perdure.errors import MemoryMissing
from perdure.index import memories as rows
from perdure.index import visible
from perdure.index.store import Connection
from perdure.types import Memory, Principal, Span


@dataclass(frozen=True)
class Shared:
    """What others let a principal read of their memories. index: the one in use."""

    principal: Principal
    index: Callable[[], Connection]

    def listed(self, *, every: bool = False) -> list[Memory]:
        """What is believed, newest first; with `every`, also what was superseded."""
        return [memory for memory in self._of("1") if every or memory.is_current]

    def get(self, identifier: str) -> Memory:
        """The memory of this id, or of the one id that begins so. Raises MemoryMissing."""
        found = self._of("memory_id >= ? AND memory_id < ?", identifier, identifier + "~")
        exact = [memory for memory in found if memory.memory_id == identifier]
        if len(exact or found) != 1 or not identifier.startswith("mem-"):
            raise MemoryMissing(f"no memory {identifier!r}")
        return (exact or found)[0]

    def history(self, identifier: str) -> list[Memory]:
        """What may be read of a memory's chain, oldest first. Raises MemoryMissing."""
        memory, index = self.get(identifier), self.index()
        with index.reading():
            seen = visible.of(index, self.principal)
            (key,) = rows.numbers(index, index.known("user", memory.shared_by) or 0, [memory.memory_id]).values()
            return [one for _, one in rows.shared_chain(index, seen, key)]

    def sources(self, identifier: str) -> list[tuple[Span, str | None]]:
        """The turns behind a memory: (where, turn id). Raises MemoryMissing."""
        return rows.turns_of(self.index(), self.get(identifier))

    def _of(self, where: str, *values: str) -> list[Memory]:
        index = self.index()
        with index.reading():
            return rows.shared(index, visible.of(index, self.principal), where, *values)
