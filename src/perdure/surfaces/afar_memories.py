"""What is believed at the remote home, asked in the words in which a home here is asked.

What its API has no words for is refused, never answered as if it had been asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any
from urllib.parse import quote

from perdure.errors import MemoryMissing, NotFound, ThinHome
from perdure.memories.paths import folded
from perdure.surfaces.afar import Afar, listed, noun
from perdure.types import Live, Memory, MemoryKind, Span

_PAGE = 100  # memories in one answer
_PREFIX = "mem-"
_REWORDED = ("pinned", "retired", "path", "kind")  # what a change can name
_DEFAULTS = {"trust": "owner", "pinned": False}


class Believed:
    """The memories of a home that is asked over the line, in place of the home that holds them."""

    def __init__(self, there: Afar) -> None:
        self._there = there
        self._said: dict[str, dict[str, Any]] = {}  # id or its beginning -> the answer about it
        self._turns: dict[str, str] = {}  # id of a turn -> its words on one line

    @property
    def memories(self) -> Believed:
        """Itself: the home keeps its memories apart from the rest, this is nothing but them."""
        return self

    def holding(self, identifier: str) -> Believed:  # noqa: ARG002 - the home there finds out whose it is
        """Itself."""
        return self

    def catch_up(self) -> None:
        """The home there is up to date by itself."""

    def projects(self) -> list[str]:
        """None is known here; a folder names one all the same."""
        return []

    def get(self, identifier: str) -> Memory:
        """The memory of this id, or of the one id that begins so. Raises MemoryMissing."""
        return noun(self._about(identifier), Memory)

    def history(self, identifier: str) -> list[Memory]:
        """How a belief came to be, oldest first. identifier: an id or a path. Raises MemoryMissing."""
        if identifier.startswith(_PREFIX):
            return [noun(item, Memory) for item in listed(self._about(identifier), "history")]
        path = folded(identifier)
        found = [memory for memory in self.listed(prefix=identifier, every=True) if folded(memory.path) == path]
        if not found:
            raise MemoryMissing(f"no memory has the path {identifier!r}")
        return sorted(found, key=lambda memory: (memory.agent, memory.project or "", memory.stated_at, memory.order))

    def sources(self, identifier: str) -> list[tuple[Span, str | None]]:
        """The turns behind a memory: (where, turn id), None for one that cannot be found any more."""
        found = []
        for item in listed(self._about(identifier), "turns"):
            turn = item.get("turn_id")
            self._turns[str(turn)] = str(item.get("text") or "")
            where = item["run_id"], item.get("from_offset", 0), item.get("to_offset", 0)
            found.append((noun(where, Span), turn if isinstance(turn, str) else None))
        return found

    def preview(self, turn_id: str) -> str:
        """The words of a turn behind a memory, on one line."""
        return self._turns.get(turn_id, "")

    def listed(
        self, *, prefix: str = "", kind: str = "", project: str | None = None, every: bool = False,
        as_of: datetime | None = None, recorded_as_of: datetime | None = None,
    ) -> list[Memory]:  # fmt: skip
        """What is believed, newest first; with `every`, also what was superseded or retired."""
        self._refuse(as_of is not None or recorded_as_of is not None)
        asked = [("prefix", prefix), ("kind", kind), ("every", "true" if every else "")]
        query = [(name, value) for name, value in asked if value]
        query += [("project", project)] if project is not None else []
        return [noun(item, Memory) for item in self._there.pages("memories", query, _PAGE)]

    def search_memories(
        self, query: str, *, limit: int = 20, every: bool = False, touch: bool = False
    ) -> list[tuple[Memory, float]]:
        """Memories that match by words and meaning, best first, with their scores."""
        self._refuse(every or touch)
        said = self._there.ask("POST", "memories/search", body={"query": query, "limit": min(limit, _PAGE)})
        return [(noun(item, Memory), float(item.get("score") or 0.0)) for item in listed(said, "items")]

    def remember(
        self, text: str, *, kind: MemoryKind = "fact", path: str = "", cwd: str | None = None,
        session: Live | None = None, **more: Any,
    ) -> Memory:  # fmt: skip
        """Keep a memory, durably; one that says what is current already is counted once more."""
        unknown = {name for name, value in more.items() if value and name not in _DEFAULTS}
        self._refuse(session is not None or bool(unknown))
        asked = {"text": text, "kind": kind, "path": path, "project": cwd, "trust": more.get("trust", "owner")}
        kept = self._kept(self._there.ask("POST", "memories", body=asked))
        return self.change([kept.memory_id], pinned=True)[0] if more.get("pinned") else kept

    def edit(self, identifier: str, said: str, **fields: Any) -> Memory:
        """Correct the words of a memory: the new ones take its place, the old ones stay in its history."""
        return self._changed(identifier, {"text": said, **fields})

    def change(self, ids: Collection[str], **fields: Any) -> list[Memory]:
        """Set fields of memories."""
        return [self._changed(identifier, fields) for identifier in ids]

    def _changed(self, identifier: str, fields: dict[str, Any]) -> Memory:
        self._refuse(bool(fields.keys() - {"text", *_REWORDED}))
        return self._kept(self._asked(identifier, lambda path: self._there.ask("PATCH", path, body=fields)))

    def _about(self, identifier: str) -> dict[str, Any]:
        if identifier not in self._said:
            self._said[identifier] = self._asked(identifier, lambda path: self._there.ask("GET", path))
        return self._said[identifier]

    def _asked(self, identifier: str, ask: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        try:
            return ask(f"memories/{quote(identifier, safe='')}")
        except NotFound as error:
            raise MemoryMissing(f"no memory {identifier!r}") from error

    def _kept(self, said: dict[str, Any]) -> Memory:
        """The memory of an answer, which is what is known of it from now on."""
        kept = noun(said, Memory)
        self._said = {kept.memory_id: said}
        return kept

    def _refuse(self, is_beyond: bool) -> None:
        """Raise ThinHome for what the API has no words for."""
        if is_beyond:
            raise ThinHome(self._there.url)
