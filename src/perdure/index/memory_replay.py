"""Replay: from events to memories, current and superseded, and how they fade. Pure; every clock is an
argument.

Applying all events in their order gives the state; a later event needs only the memories that it names
and the chains that it touches. In one chain (agent, project and path) the memory that was stated last
is current, whoever recorded it first, so an old statement found late enters as history. A statement of
a tool or of the web never ends one of the owner or the agent. An operation that names an unknown memory
changes nothing: that memory was forgotten.

A memory fades with disuse and never vanishes. Only use renews it, or saying it again: being shown does
not count. A pinned memory does not fade.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from perdure.archive import memory_events
from perdure.archive.memory_events import fold_path
from perdure.types import Memory

HALF_LIFE = timedelta(days=30)
MIN_DECAY = 0.04  # least decay factor, of very old memories (as in term-llm)
USE_COOLDOWN = timedelta(hours=12)  # uses closer together than this count as one
STABILITY_GROWTH = 1.5  # factor of stability per use
COOLING_H_PER_STABILITY = 24.0  # hours in which the heat of a memory of stability 1 falls to 1/e
CONFIDENCE_SHARE, DENSITY_SHARE = 0.7, 0.3  # shares of the confidence and of the repetitions in the heat


def compute_decay(memory: Memory, now: datetime, *, half_life: timedelta = HALF_LIFE) -> float:
    """Return the decay factor: 1 for what was just stated or used or is pinned, half after each half-life, at
    least MIN_DECAY.
    """
    if memory.pinned:
        return 1.0
    age = max(timedelta(), now - max(memory.renewed_at or memory.stated_at, memory.stated_at))
    return max(MIN_DECAY, float(0.5 ** (age / half_life)))


def compute_heat(memory: Memory, now: datetime) -> float:
    """Return the heat of a memory, 0 to 1: its weight, cooling more slowly the more often it was used (row
    D09).
    """
    density = 1 - 1 / (memory.n_stated + memory.n_used)
    hours = max(0.0, (now - (memory.renewed_at or memory.stated_at)).total_seconds() / 3600)
    weight = min(1.0, CONFIDENCE_SHARE * memory.confidence + DENSITY_SHARE * density)
    return weight * math.exp(-hours / (COOLING_H_PER_STABILITY * memory.stability))


def compute_stability(memory: Memory, used_at: datetime) -> float:
    """Return the stability after a use: grown, unless another use is less than the cooldown away."""
    if memory.used_at is not None and abs(used_at - memory.used_at) < USE_COOLDOWN:
        return memory.stability
    return memory.stability * STABILITY_GROWTH


REINFORCEMENT_SHARE = 0.2  # share of the missing certainty that a repetition adds
_WEAK_TRUST = ("tool", "web")


class MemoryChain(NamedTuple):
    """The subject of a memory, and its agent and project."""

    agent: str
    project: str
    path: str  # folded


class ReplayEvent(NamedTuple):
    """An event in the form that the replay reads."""

    type: str
    data: Mapping[str, Any]
    at: datetime
    order: str  # sorts as the events do


class ReplayState(Struct):
    """Memories by id, and the mined ranges of each source."""

    memories: dict[str, Memory] = {}
    mined: dict[str, list[tuple[int, int]]] = {}  # source -> its mined ranges
    judged: set[str] = set()  # nonces of the injections that are judged

    def group_by_chain(self) -> dict[MemoryChain, list[Memory]]:
        """Group all memories by chain."""
        memories_by_chain: dict[MemoryChain, list[Memory]] = defaultdict(list)
        for memory in self.memories.values():
            memories_by_chain[get_chain(memory)].append(memory)
        return memories_by_chain


def get_chain(memory: Memory) -> MemoryChain:
    """Return the chain of a memory."""
    return MemoryChain(memory.agent, memory.project or "", fold_path(memory.path))


def replay_events(events: Iterable[ReplayEvent]) -> ReplayState:
    """Return the state after all these events, in their order."""
    state = ReplayState()
    for event in events:
        apply_event(state, event)
    mark_superseded(state)
    return state


def find_touched(events: Iterable[ReplayEvent]) -> tuple[set[str], set[MemoryChain]]:
    """Return (memory ids, chains) that the events touch directly: what must be loaded to apply them."""
    ids: set[str] = set()
    chains: set[MemoryChain] = set()
    for event in events:
        ids.update(_list_cue_memories(event))
        for operation in event.data.get("ops", ()) if event.type == memory_events.EVENT_TYPE else ():
            ids.update((operation["id"], *operation.get("made_from", ())))
            if operation["op"] == "create":
                chains.add(
                    MemoryChain(operation["agent"], operation.get("project") or "", fold_path(operation["path"]))
                )
    return ids, chains


def apply_event(state: ReplayState, event: ReplayEvent) -> None:
    """Apply one event; `mark_superseded` then says which memories are current."""
    if event.type == memory_events.EVENT_TYPE:
        if claim_mined_range(state, event.data.get("batch")):
            for n, operation in enumerate(event.data["ops"]):
                _apply_operation(state, operation, event.at, f"{event.order}|{n:04d}")
        return
    if event.type == memory_events.USED and not _claim_judgement(state, event.data.get("nonce", "")):
        return
    for memory_id in _list_cue_memories(event):
        if memory_id in state.memories:
            state.memories[memory_id] = _count_cue(state.memories[memory_id], event)


def claim_mined_range(state: ReplayState, batch: list[Any] | None) -> bool:
    """Claim the range of a mining batch; return False if any of it was mined before."""
    if batch is None:
        return True
    source, from_offset, to_offset = batch
    mined_ranges = state.mined.setdefault(source, [])
    if any(from_offset < mined_to and mined_from < to_offset for mined_from, mined_to in mined_ranges):
        return False
    mined_ranges.append((from_offset, to_offset))
    return True


def _claim_judgement(state: ReplayState, nonce: str) -> bool:
    """Claim the judgement of an injection; return False if it was judged before."""
    if nonce in state.judged:
        return False
    if nonce:
        state.judged.add(nonce)
    return True


def _apply_operation(state: ReplayState, operation: Mapping[str, Any], recorded_at: datetime, order: str) -> None:
    known_memory = state.memories.get(operation["id"])
    if operation["op"] == "create":
        if known_memory is None:
            new_memory = memory_events.build_memory(operation, recorded_at=recorded_at, order=order)
            state.memories[operation["id"]] = _inherit_counts(
                new_memory, [parent for parent_id in new_memory.made_from if (parent := state.memories.get(parent_id))]
            )
    elif known_memory is not None:
        state.memories[operation["id"]] = (
            _reinforce(known_memory, operation)
            if operation["op"] == "reinforce"
            else replace(known_memory, **memory_events.read_changed_fields(operation))
        )


def _inherit_counts(memory: Memory, parents: list[Memory]) -> Memory:
    """Give a memory the counts of those that it was made from: how often they were stated, shown and used."""
    if not parents:
        return memory
    return replace(
        memory,
        n_stated=sum(parent.n_stated for parent in parents),
        n_injected=sum(parent.n_injected for parent in parents),
        n_used=sum(parent.n_used for parent in parents),
        stability=max(parent.stability for parent in parents),
        used_at=max((parent.used_at for parent in parents if parent.used_at), default=None),
        renewed_at=max((parent.renewed_at or parent.stated_at) for parent in parents),
    )


def _reinforce(memory: Memory, operation: Mapping[str, Any]) -> Memory:
    stated_at = memory_events.read_stated_at(operation) or memory.stated_at
    return replace(
        memory,
        n_stated=memory.n_stated + 1,
        confidence=memory.confidence + REINFORCEMENT_SHARE * (1 - memory.confidence),
        renewed_at=max(memory.renewed_at or memory.stated_at, stated_at),
        sources=tuple(dict.fromkeys((*memory.sources, *memory_events.read_sources(operation)))),
    )


def _list_cue_memories(event: ReplayEvent) -> list[str]:
    """Return the memories that an event says were injected or used."""
    data_key = {memory_events.INJECTED: "turns", memory_events.USED: "cues"}.get(event.type, "")
    return [cue_id for cue_id in event.data.get(data_key, ()) if cue_id.startswith("mem-")]


def _count_cue(memory: Memory, event: ReplayEvent) -> Memory:
    if event.type == memory_events.INJECTED:
        return replace(memory, n_injected=memory.n_injected + 1)
    used_at = memory_events.read_used_at(event.data) or event.at
    return replace(
        memory,
        n_used=memory.n_used + 1,
        renewed_at=max(memory.renewed_at or memory.stated_at, used_at),
        used_at=max(memory.used_at or used_at, used_at),
        stability=compute_stability(memory, used_at),
    )


def mark_superseded(state: ReplayState) -> None:
    """Set for every memory which one superseded it, and when."""
    for members in state.group_by_chain().values():
        state.memories.update((memory.memory_id, memory) for memory in settle_chain(members))


def settle_chain(members: Iterable[Memory]) -> list[Memory]:
    """Return the memories of one chain, each with the one that superseded it. Retired ones take no part."""
    ordered_memories = sorted(members, key=lambda memory: (memory.stated_at, memory.order))
    alive = [memory for memory in ordered_memories if not memory.retired]
    has_strong = any(memory.trust not in _WEAK_TRUST for memory in alive)
    eligible = [memory for memory in alive if memory.trust not in _WEAK_TRUST or not has_strong]
    next_by_id = dict(zip((eligible_memory.memory_id for eligible_memory in eligible), eligible[1:], strict=False))
    current = eligible[-1] if eligible else None
    settled_memories = []
    for memory in ordered_memories:
        following = next_by_id.get(memory.memory_id)
        if memory.retired or memory is current:
            settled_memories.append(replace(memory, superseded_by=None, ended_at=memory.valid_until))
        elif following is not None:
            ended_at = min(filter(None, (following.stated_at, memory.valid_until)))
            settled_memories.append(replace(memory, superseded_by=following.memory_id, ended_at=ended_at))
        else:
            assert current is not None
            settled_memories.append(replace(memory, superseded_by=current.memory_id, ended_at=memory.stated_at))
    return settled_memories


def find_current_at(members: Iterable[Memory], moment: datetime) -> Memory | None:
    """Return the current memory of one chain at a moment, by what had been stated until then."""
    settled_memories = settle_chain(memory for memory in members if memory.stated_at <= moment)
    return next((memory for memory in settled_memories if memory.is_current), None)
