"""From events to memories: what is believed, and what came before it. Pure.

Applying all events in their order gives the state; a later event needs only the memories that it names and the chains
that it touches. Of one chain (agent, project and path) the memory that was stated last is current, whoever noted it
first, so an old statement found late enters as history. What a tool or the web said never ends what the owner or the
agent said. An operation that names what is not there changes nothing: it was forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from perdure.memories import decay, events
from perdure.memories.paths import folded
from perdure.types import Memory

REINFORCED = 0.2  # of what lacks to certainty, that saying it again adds
_WEAK = ("tool", "web")


class Chain(NamedTuple):
    """What a memory is about, and for whom."""

    agent: str
    project: str
    path: str  # folded


class Noted(NamedTuple):
    """An event as the replay reads it."""

    type: str
    data: Mapping[str, Any]
    at: datetime
    order: str  # sorts as the events do


@dataclass
class State:
    """Memories by id, and what was mined of each source."""

    memories: dict[str, Memory] = field(default_factory=dict)
    mined: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # source -> the stretches that were mined
    judged: set[str] = field(default_factory=set)  # nonces of injections of which it was said what was used

    def chains(self) -> dict[Chain, list[Memory]]:
        """All memories by what they are about."""
        found: dict[Chain, list[Memory]] = defaultdict(list)
        for memory in self.memories.values():
            found[chain_of(memory)].append(memory)
        return found


def chain_of(memory: Memory) -> Chain:
    """What a memory is about, and for whom."""
    return Chain(memory.agent, memory.project or "", folded(memory.path))


def replayed(noted: Iterable[Noted]) -> State:
    """What all these events, in their order, add up to."""
    state = State()
    for event in noted:
        apply(state, event)
    settle(state)
    return state


def named(noted: Iterable[Noted]) -> tuple[set[str], set[Chain]]:
    """(memory ids, chains) that events touch by themselves: what has to be at hand to apply them."""
    ids: set[str] = set()
    chains: set[Chain] = set()
    for event in noted:
        ids.update(_shown(event))
        for op in event.data.get("ops", ()) if event.type == events.TYPE else ():
            ids.update((op["id"], *op.get("made_from", ())))
            if op["op"] == "create":
                chains.add(Chain(op["agent"], op.get("project") or "", folded(op["path"])))
    return ids, chains


def apply(state: State, event: Noted) -> None:
    """Apply one event; `settle` then says what is current."""
    if event.type == events.TYPE:
        if _is_first(state, event.data.get("batch")):
            for n, op in enumerate(event.data["ops"]):
                _apply(state, op, event.at, f"{event.order}|{n:04d}")
        return
    if event.type == events.USED and not _is_first_judgement(state, event.data.get("nonce", "")):
        return
    for name in _shown(event):
        if name in state.memories:
            state.memories[name] = _noticed(state.memories[name], event)


def _is_first(state: State, batch: list[Any] | None) -> bool:
    """Whether nothing of this stretch was mined before; then it is now."""
    if batch is None:
        return True
    source, low, high = batch
    known = state.mined.setdefault(source, [])
    if any(low < until and since < high for since, until in known):
        return False
    known.append((low, high))
    return True


def _is_first_judgement(state: State, nonce: str) -> bool:
    """Whether nobody said before what of this injection was used; now it is said."""
    if nonce in state.judged:
        return False
    if nonce:
        state.judged.add(nonce)
    return True


def _apply(state: State, op: Mapping[str, Any], at: datetime, order: str) -> None:
    known = state.memories.get(op["id"])
    if op["op"] == "create":
        if known is None:
            made = events.made(op, recorded_at=at, order=order)
            state.memories[op["id"]] = _inheriting(made, [m for i in made.made_from if (m := state.memories.get(i))])
    elif known is not None:
        act = _reinforced if op["op"] == "reinforce" else _changed
        state.memories[op["id"]] = act(known, op)


def _inheriting(memory: Memory, before: list[Memory]) -> Memory:
    """A memory with what those that it was made from had come to: how often they were said, shown and used."""
    if not before:
        return memory
    return replace(
        memory,
        n_stated=sum(m.n_stated for m in before),
        n_injected=sum(m.n_injected for m in before),
        n_used=sum(m.n_used for m in before),
        stability=max(m.stability for m in before),
        used_at=max((m.used_at for m in before if m.used_at), default=None),
        renewed_at=max((m.renewed_at or m.stated_at) for m in before),
    )


def _reinforced(memory: Memory, op: Mapping[str, Any]) -> Memory:
    said_at = events.stated_at(op) or memory.stated_at
    return replace(
        memory,
        n_stated=memory.n_stated + 1,
        confidence=memory.confidence + REINFORCED * (1 - memory.confidence),
        renewed_at=max(memory.renewed_at or memory.stated_at, said_at),
        sources=tuple(dict.fromkeys((*memory.sources, *events.sources(op)))),
    )


def _changed(memory: Memory, op: Mapping[str, Any]) -> Memory:
    return replace(memory, **events.changed_fields(op))


def _shown(event: Noted) -> list[str]:
    """The memories that an event says were injected or used."""
    key = {events.INJECTED: "turns", events.USED: "cues"}.get(event.type, "")
    return [name for name in event.data.get(key, ()) if name.startswith("mem-")]


def _noticed(memory: Memory, event: Noted) -> Memory:
    if event.type == events.INJECTED:
        return replace(memory, n_injected=memory.n_injected + 1)
    at = events.used_at(event.data) or event.at
    return replace(
        memory,
        n_used=memory.n_used + 1,
        renewed_at=max(memory.renewed_at or memory.stated_at, at),
        used_at=max(memory.used_at or at, at),
        stability=decay.stabler(memory, at),
    )


def settle(state: State) -> None:
    """Say of every memory what took its place, and when."""
    for members in state.chains().values():
        state.memories.update((memory.memory_id, memory) for memory in settled(members))


def settled(members: Iterable[Memory]) -> list[Memory]:
    """The memories of one chain, each with what superseded it. Retired ones take no part."""
    line = sorted(members, key=lambda memory: (memory.stated_at, memory.order))
    alive = [memory for memory in line if not memory.retired]
    has_strong = any(memory.trust not in _WEAK for memory in alive)
    eligible = [memory for memory in alive if memory.trust not in _WEAK or not has_strong]
    after = dict(zip((m.memory_id for m in eligible), eligible[1:], strict=False))
    last = eligible[-1] if eligible else None
    found = []
    for memory in line:
        following = after.get(memory.memory_id)
        if memory.retired or memory is last:
            found.append(replace(memory, superseded_by=None, ended_at=memory.valid_until))
        elif following is not None:
            ends = min(filter(None, (following.stated_at, memory.valid_until)))
            found.append(replace(memory, superseded_by=following.memory_id, ended_at=ends))
        else:
            assert last is not None
            found.append(replace(memory, superseded_by=last.memory_id, ended_at=memory.stated_at))
    return found


def current_at(members: Iterable[Memory], at: datetime) -> Memory | None:
    """What one chain said at a moment, by what had been stated until then."""
    known = settled(memory for memory in members if memory.stated_at <= at)
    return next((memory for memory in known if memory.is_current), None)
