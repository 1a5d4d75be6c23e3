"""The four tiers of one agent in one step of a workflow, synchronous. `UnifiedMemory` is its asynchronous shell.

A tier that was not given is off: writes are nothing, reads give empty defaults. What one that is down should have got
waits in a queue of its own, and no other tier notices. The archive of a home is no tier: every turn goes there first.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from perdure.connections import utc_now
from perdure.errors import PerdureError
from perdure.upkeep import SEARCH_CATCH_UP_S
from perdure.workflow import redis_store as redis_keys
from perdure.workflow.blobs import open_blobs
from perdure.workflow.semantic_home import SemanticHome
from perdure.workflow.summary_store import JOB, SummaryStore
from perdure.workflow.tier_queue import TierQueue, TierStatus, map_client_errors
from perdure.workflow.turn_archive import TurnArchive
from perdure.workflow.turns import (
    WorkflowTurn,
    abridge_turns,
    decode_turns,
    encode_turn,
    make_turn,
    render_notes,
    to_name_part,
)

if TYPE_CHECKING:
    from perdure.home import Home

N_NOTES = 20  # newest turns of the scratchpad that a bundle shows
N_TAIL = 10  # newest turns of the ledger that a bundle shows


class SemanticStore(Protocol):
    """What the semantic tier asks of a client: memory of an agent across workflows."""

    def store_turn(self, agent_id: str, turn: Mapping[str, Any]) -> None:
        """Store what an agent thought and did. A turn with a `key` that it has already changes nothing."""

    def get_memory_context(self, agent_id: str, *, limit: int) -> dict[str, Any] | None:
        """Return recent events and the topics that matter most, or None if there is nothing."""


class MemoryBundle(TypedDict):
    """What an agent reads before it begins, or goes on after a crash."""

    ltm_summary: str | None  # of the workflow so far
    recent_turns: list[dict[str, Any]]  # newest of the workflow, oldest first: the six fields of the ledger
    checkpoint: str | None  # JSON, as it was saved
    scratchpad: str  # Markdown: the notes of this step
    athena_context: dict[str, Any] | None


class WorkflowMemory:
    """The tiers of one (workflow, step, agent). Use it from one thread, and close it."""

    def __init__(  # noqa: PLR0913 - the three names, and one argument for each back end
        self,
        workflow_id: str,
        step_id: str,
        agent_id: str,
        *,
        redis_store: Any = None,
        blob_storage: Any = None,
        athena_client: SemanticStore | None = None,
        home: Home | None = None,
        user: str = "",
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """See `UnifiedMemory`. Nothing is sent before the first call. Raises UsageError, PackageMissing."""
        self.workflow_id, self.step_id, self.agent_id = workflow_id, step_id, agent_id
        self._now, self._home = now, home
        folder = f"users/{to_name_part(user)}/" if user else ""
        folder += f"workflows/{to_name_part(workflow_id)}"
        self._notes_log = f"{folder}/scratchpads/{to_name_part(step_id)}/{to_name_part(agent_id)}"
        self._archive, self._redis, self._blobs = None, None, None
        self._athena = athena_client
        self._semantic = athena_client or (SemanticHome(home, user=user, now=now) if home is not None else None)
        self._queues: dict[str, TierQueue] = {}
        if home is not None:
            self._archive = TurnArchive(home, workflow_id, step_id=step_id, agent_id=agent_id, user=user)
            self._queues["archive"] = TierQueue(clock=clock)
        if redis_store is not None:
            client = redis_keys.connect(redis_store)
            self._redis = redis_keys.RedisStore(client, workflow_id, step_id=step_id, user=user)
            self._queues |= {"ledger": TierQueue(clock=clock), "checkpoint": TierQueue(clock=clock)}
        if blob_storage is not None:
            self._blobs = open_blobs(blob_storage)
            self._queues["scratchpad"] = TierQueue(clock=clock)
        self._summaries = None
        if self._redis is not None and self._blobs is not None:
            chat = partial(home.chat, "summariser", job=JOB) if home is not None else lambda: None
            self._summaries = SummaryStore(self._redis, self._blobs, f"{folder}/ltm", chat, now=now)
            self._queues |= {"summary": TierQueue(clock=clock), "summariser": TierQueue(clock=clock)}
        if self._semantic is not None:
            self._queues["semantic"] = TierQueue(clock=clock)

    # writing --------------------------------------------------------------------------------------------

    def log_turn(self, turn_id: str, thought: str, action: str, result: str, tokens: int = 0) -> None:
        """Record a turn in the archive and in all tiers. A turn that is told again is there once.

        What a tier does not take now waits, and is counted (`status`); nothing is raised for it.
        """
        turn = make_turn(
            turn_id, thought=thought, action=action, result=result, tokens=tokens,
            step=self.step_id, agent=self.agent_id, now=self._now(),
        )  # fmt: skip
        at_ns = time.time_ns()
        if (archive := self._archive) is not None:
            self._queues["archive"].write(turn.key, lambda: archive.append(turn))
        if (blobs := self._blobs) is not None:
            write = lambda: blobs.append(self._notes_log, encode_turn(turn), entry_name=turn.key, at_ns=at_ns)  # noqa: E731
            self._queues["scratchpad"].write(turn.key, write)
        if (redis := self._redis) is not None:
            self._queues["ledger"].write(turn.key, lambda: redis.append_turn(turn))
        if self._athena is not None:
            self._queues["semantic"].write(turn.key, lambda: self._store_event(turn))

    def _store_event(self, turn: WorkflowTurn) -> None:
        if self._athena is not None:
            event = {**turn.to_fields(), "key": turn.key, "workflow_id": self.workflow_id, "step_id": self.step_id}
            with map_client_errors("the semantic tier"):
                self._athena.store_turn(self.agent_id, event)

    def save_checkpoint(self, state: str | Mapping[str, Any]) -> None:
        """Save a snapshot of the agent's own state, for seven days; the last one counts. state: JSON, or what becomes
        JSON.
        """
        text = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
        if (redis := self._redis) is not None:
            key = f"{time.time_ns()}"
            self._queues["checkpoint"].write(key, lambda: redis.set_text(redis.checkpoint_key, text))

    def flush(self) -> bool:
        """Try again what waits. Return True if nothing waits any more."""
        waits = [name for name, queue in self._queues.items() if not queue.flush()]
        return not waits

    def close(self) -> None:
        """Try again what waits, let the home archive what it took, and index it for a moment."""
        self.flush()
        if self._archive is not None:
            self._queues["archive"].read(self._archive.close, None)
        if self._home is not None:
            with contextlib.suppress(PerdureError):  # whoever searches next does it
                self._home.upkeep.catch_up(limit_s=SEARCH_CATCH_UP_S)

    # reading --------------------------------------------------------------------------------------------

    def load_checkpoint(self) -> str | None:
        """Return the last checkpoint of this step as it was saved, or None."""
        if (redis := self._redis) is None:
            return None
        return self._queues["checkpoint"].read(lambda: redis.get_text(redis.checkpoint_key), None)

    def rehydrate_bundle(self, ledger_tail: int = N_TAIL) -> MemoryBundle:
        """Return what the agent needs to begin or to go on, of a bounded size however long the workflow is.

        ledger_tail: so many of the newest turns. Long texts are abridged and say so; secrets are masked.
        """
        return MemoryBundle(
            ltm_summary=self.load_summary(),
            recent_turns=[turn.to_fields() for turn in abridge_turns(self.read_tail(ledger_tail))],
            checkpoint=self.load_checkpoint(),
            scratchpad=self.read_scratchpad(),
            athena_context=self._read_semantic(),
        )

    def read_tail(self, count: int = N_TAIL) -> list[WorkflowTurn]:
        """Return the newest turns of the workflow with their whole texts, oldest first."""
        if (redis := self._redis) is None:
            return []
        return self._queues["ledger"].read(lambda: redis.read_tail(count), [])

    def read_scratchpad(self) -> str:
        """Return the notes of this step as Markdown, "" if there are none."""
        if (blobs := self._blobs) is None:
            return ""
        no_lines: list[bytes] = []
        lines = self._queues["scratchpad"].read(lambda: blobs.read_newest(self._notes_log, N_NOTES + 1), no_lines)
        return render_notes(decode_turns(lines[-N_NOTES:]), has_earlier=len(lines) > N_NOTES)

    def load_summary(self) -> str | None:
        """Return the summary of the workflow so far, or None. A cache that lost it is filled again."""
        if self._summaries is None:
            return None
        return self._queues["summary"].read(self._summaries.load, None)

    def compress(self) -> str | None:
        """Summarise the older turns of the ledger if it has grown too long. Return the new summary, or None.

        A summariser that fails changes nothing, which is counted.
        """
        if self._summaries is None:
            return None
        self._queues["ledger"].flush()
        return self._queues["summariser"].read(self._summaries.compress, None)

    def _read_semantic(self) -> dict[str, Any] | None:
        if (store := self._semantic) is None:
            return None

        def read() -> dict[str, Any] | None:
            with map_client_errors("the semantic tier"):
                return store.get_memory_context(self.agent_id, limit=15)

        return self._queues["semantic"].read(read, None)

    def export(self) -> list[WorkflowTurn]:
        """Return every turn of the workflow from the archive, each once, by time; [] without a home.

        It is complete also after the ledger expired and was summarised. Raises ArchiveFault: an export with holes
        would be worse than none.
        """
        if self._archive is None:
            return []
        self._queues["archive"].flush()
        return self._archive.export()

    def status(self) -> dict[str, TierStatus]:
        """Return what became of the writes, for each tier that is on and for the archive."""
        return {name: queue.status for name, queue in self._queues.items()}
