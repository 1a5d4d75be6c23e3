"""The four tiers of one agent in one step of a workflow, synchronous. `UnifiedMemory` is its asynchronous shell.

A tier that was not given is off: writes are nothing, reads give empty defaults. What one that is down should have got
waits in a queue of its own, and no other tier notices. The archive of a home is no tier: every turn goes there first,
and the tiers get it behind. What a killed process did not give them, the next one of its step and agent gives them.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

from perdure.connections import utc_now
from perdure.errors import PerdureError
from perdure.upkeep import SEARCH_CATCH_UP_S
from perdure.workflow import redis_store as redis_keys
from perdure.workflow.blobs import Blobs, open_blobs
from perdure.workflow.semantic_home import SemanticHome
from perdure.workflow.summary_store import JOB, SummaryStore
from perdure.workflow.tier_queue import MAX_WAITING, TierQueue, TierStatus, map_client_errors
from perdure.workflow.turn_archive import N_TOGETHER, TurnArchive
from perdure.workflow.turns import (
    WorkflowTurn,
    abridge_turns,
    clean_text,
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
MAX_BUNDLE_CHARS = 45_000  # of a bundle of up to 40 turns, as JSON, without the checkpoint and the semantic tier's part
_RESEND = "resend"  # key of the write of what an earlier process may not have written
CLOSE_WAIT_S = 60.0  # at most, for the writes that wait


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


class BackEnds(TypedDict, total=False):
    """What a workflow's memory is kept in. Any of them may be left out or None, and its tiers are then off."""

    redis_store: Any  # an address (redis://…) or a synchronous client: ledger and checkpoint; with blobs, the summary
    blob_storage: Any  # a folder, an address (s3://bucket/folder) or a store of obstore: the scratchpad
    athena_client: SemanticStore | None  # the semantic tier
    home: Home | None  # keeps every turn for good
    user: str  # part of every key and path


class WorkflowMemory:
    """The tiers of one (workflow, step, agent). Use it from one thread, and close it."""

    def __init__(
        self,
        workflow_id: str,
        step_id: str,
        agent_id: str,
        *,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
        **back_ends: Unpack[BackEnds],
    ) -> None:
        """See `BackEnds`. Nothing is sent before the first call. Raises UsageError, PackageMissing."""
        self.workflow_id, self.step_id, self.agent_id = workflow_id, step_id, agent_id
        home, user = back_ends.get("home"), back_ends.get("user", "")
        self._now, self._home = now, home
        folder = f"users/{to_name_part(user)}/" if user else ""
        folder += f"workflows/{to_name_part(workflow_id)}"
        self._notes_log = f"{folder}/scratchpads/{to_name_part(step_id)}/{to_name_part(agent_id)}"
        self._archive, self._redis, self._blobs, self._summaries = None, None, None, None
        self._tiers: dict[str, Callable[[Sequence[WorkflowTurn]], object]] = {}  # those that get every turn
        self._known_keys: OrderedDict[str, None] = OrderedDict()  # of the newest turns, which need not be told again
        self._is_begun = False
        if home is not None:
            self._archive = TurnArchive(home, workflow_id, step_id=step_id, agent_id=agent_id, user=user)
        if back_ends.get("redis_store") is not None:
            client = redis_keys.connect(back_ends["redis_store"])
            self._redis = redis_keys.RedisStore(client, workflow_id, step_id=step_id, user=user)
            self._tiers["ledger"] = self._redis.append_turns
        if back_ends.get("blob_storage") is not None:
            self._blobs = open_blobs(back_ends["blob_storage"])
            self._tiers["scratchpad"] = partial(self._append_notes, self._blobs)
        if self._redis is not None and self._blobs is not None:
            chat = partial(home.chat, "summariser", job=JOB) if home is not None else lambda: None
            self._summaries = SummaryStore(self._redis, self._blobs, f"{folder}/ltm", chat, now=now)
        self._semantic: SemanticStore | None = back_ends.get("athena_client")
        self._semantic_id = agent_id
        if self._semantic is not None:
            self._semantic_id = f"{to_name_part(user)}:{to_name_part(agent_id)}" if user else agent_id
            self._tiers["semantic"] = partial(self._store_events, self._semantic)
        elif home is not None:  # its turns come from the archive
            self._semantic = SemanticHome(home, user=user, now=now)
        self._queues = self._make_queues(clock)

    def _make_queues(self, clock: Callable[[], float]) -> dict[str, TierQueue]:
        """Return the queue of the archive and of each tier that is on. A thread writes what nobody needs to wait for;
        what is only read, and the archive, are used in the thread of the caller.
        """
        with_thread = [*self._tiers, *(["checkpoint"] if self._redis is not None else [])]
        direct = ["archive"] if self._archive is not None else []
        direct += ["summary", "summariser"] if self._summaries is not None else []
        direct += ["semantic"] if self._semantic is not None and "semantic" not in self._tiers else []
        return {name: TierQueue(has_thread=name not in direct, clock=clock) for name in (*direct, *with_thread)}

    # writing --------------------------------------------------------------------------------------------

    def log_turn(self, turn_id: str, thought: str, action: str, result: str, tokens: int = 0) -> None:
        """Record a turn in the archive and in all tiers. A turn that is told again is there once.

        It is durable in the archive when this returns, and the tiers get it behind. Without a home, or if that did not
        take it, this returns when each tier took it or failed to. What a tier does not take waits, and is counted
        (`status`); nothing is raised for it.
        """
        self._begin()
        turn = make_turn(
            turn_id, thought=thought, action=action, result=result, tokens=tokens,
            step=self.step_id, agent=self.agent_id, now=self._now(),
        )  # fmt: skip
        if turn.key in self._known_keys:
            return
        is_durable = False
        if self._archive is not None:
            is_behind = any(self._queues[name].is_behind(_RESEND, N_TOGETHER) for name in self._tiers)
            self._queues["archive"].write(turn.key, partial(self._archive.append, turn, is_behind=is_behind))
            is_durable = not self._queues["archive"].status.last_error
        for name, append in self._tiers.items():
            self._queues[name].write(turn.key, partial(append, [turn]))
        if not is_durable:
            for name in self._tiers:
                self._queues[name].settle()
        if is_durable or self._archive is None:
            self._note_key(turn.key)

    def _note_key(self, key: str) -> None:
        self._known_keys[key] = None
        if len(self._known_keys) > MAX_WAITING:
            self._known_keys.popitem(last=False)

    def _begin(self) -> None:
        """Give the tiers what a killed process of this step and agent may not have given them."""
        if self._is_begun or self._archive is None:
            return
        turns = self._queues["archive"].read(self._archive.read_newest, None)
        if turns is None:
            return
        self._is_begun = True
        since = (self._now() - timedelta(seconds=redis_keys.TTL_S)).isoformat()
        for turn in turns:
            self._note_key(turn.key)
        turns = [turn for turn in turns if turn.timestamp >= since]
        if turns and self._blobs is not None:
            self._queues["scratchpad"].write(_RESEND, partial(self._append_missing_notes, self._blobs, turns))
        if turns and self._redis is not None:
            self._queues["ledger"].write(_RESEND, partial(self._redis.append_missing, turns))
        if turns and "semantic" in self._tiers:
            self._queues["semantic"].write(_RESEND, partial(self._tiers["semantic"], turns))

    def _append_notes(self, blobs: Blobs, turns: Sequence[WorkflowTurn]) -> None:
        for turn in turns:
            blobs.append(self._notes_log, encode_turn(turn), entry_name=turn.key, at_ns=turn.at_ns)

    def _append_missing_notes(self, blobs: Blobs, turns: Sequence[WorkflowTurn]) -> None:
        """Append the turns after the last one that is there: they came in order."""
        keys = [turn.key for turn in turns]
        known_turns = decode_turns(blobs.read_newest(self._notes_log, N_NOTES + 1))
        n_known = max((keys.index(turn.key) + 1 for turn in known_turns if turn.key in keys), default=0)
        self._append_notes(blobs, turns[n_known:])

    def _store_events(self, store: SemanticStore, turns: Sequence[WorkflowTurn]) -> None:
        for turn in turns:
            event = {**turn.to_fields(), "key": turn.key, "workflow_id": self.workflow_id, "step_id": self.step_id}
            with map_client_errors("the semantic tier"):
                store.store_turn(self._semantic_id, event)

    def save_checkpoint(self, state: str | Mapping[str, Any]) -> None:
        """Save a snapshot of the agent's own state, for seven days; the last one counts.

        state: JSON, or what becomes JSON. The server has it when this returns, or is down: then it waits.
        """
        text = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
        text = clean_text(text)  # a write that no server can take would wait for ever, and all later ones behind it
        if (redis := self._redis) is not None:
            key = f"{time.time_ns()}"
            self._queues["checkpoint"].write(key, lambda: redis.set_text(redis.checkpoint_key, text))
            self._queues["checkpoint"].settle()

    def flush(self) -> bool:
        """Try again what waits. Return True if nothing waits any more."""
        waits = [name for name, queue in self._queues.items() if not queue.flush(CLOSE_WAIT_S)]
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
        self._begin()
        if (redis := self._redis) is None:
            return []
        return self._queues["ledger"].read(lambda: redis.read_tail(count), [])

    def read_scratchpad(self) -> str:
        """Return the notes of this step as Markdown, "" if there are none."""
        self._begin()
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
                return store.get_memory_context(self._semantic_id, limit=15)

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
