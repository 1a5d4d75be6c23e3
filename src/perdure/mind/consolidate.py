"""Consolidation: proposals are shown, applied on request, and undone by one command.

Applying is one event in the journal, so it happens as a whole or not at all; undoing is another one, that sets back
what the first one changed and nothing that was changed since. Nothing is deleted: what is retired stays and can be
restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.archive.journal import Event
from perdure.errors import ModelFault, NotFound, ProposalMissing, UsageError
from perdure.index import memories as rows
from perdure.memories import consolidation, events, replay
from perdure.memories.consolidation import Proposal
from perdure.memories.events import Op
from perdure.mind.memories import Memories
from perdure.types import Memory

BY = "consolidation"
Reword = Callable[[Sequence[str]], str]  # the words of several memories -> one wording; raises ModelFault


@dataclass(frozen=True, slots=True)
class Applied:
    """What was applied."""

    event_id: str  # that `undo` takes; "" when nothing was left to do
    proposals: tuple[Proposal, ...] = ()


@dataclass(frozen=True, slots=True)
class Undone:
    """What was set back."""

    event_id: str  # the event that was undone
    memories: tuple[str, ...]  # that are as they were before it
    left: tuple[str, ...] = ()  # that somebody changed since: they stay as they are


def proposals(memories: Memories) -> list[Proposal]:
    """Everything that could be tidied up now. Changes nothing."""
    return consolidation.proposals(memories.listed(every=True), now=memories.now())


def apply(
    memories: Memories, ids: Sequence[str] | None = None, *, kind: str = "", reword: Reword | None = None
) -> Applied:
    """Apply proposals (all when none is named) in one event; those that were applied already are left out.

    kind: only of those of this kind. reword: a model that words what is made of several; where it fails or adds
    something, the rule's wording stays. Raises ProposalMissing for a proposal that there is not.
    """
    chosen = _chosen([one for one in proposals(memories) if kind in ("", one.kind)], ids, memories)
    if not chosen:
        return Applied("")
    worded = [_worded(proposal, reword) for proposal in chosen]
    ops = [op for proposal in worded for op in proposal.ops()]
    named = [[proposal.proposal_id, proposal.kind] for proposal in worded]
    event = memories.note(ops, by=BY, why=f"{len(worded)} proposals", proposals=named)
    return Applied(event.key, tuple(worded))


def undo(memories: Memories, event_id: str = "") -> Undone:
    """Set back what a consolidation did (the last one that was not undone yet, unless named).

    Raises NotFound for what is no consolidation, UsageError for one that is undone or on which a later one rests.
    """
    every = memories.journal.read(type_=events.TYPE)
    event = _wanted(every, event_id)
    later = _resting_on(event, every)
    if later is not None:
        raise UsageError(f"a later consolidation rests on {event.key[:12]}: undo {later.key[:12]} first")
    before = replay.replayed(rows.noted(known) for known in every if known.order < event.order).memories
    set_back, left = _set_back(event, before, memories)
    memories.note(set_back, by=BY, why="undone", undoes=event.key)
    return Undone(event.key, tuple(dict.fromkeys(op["id"] for op in set_back)), tuple(left))


def last(memories: Memories) -> Event | None:
    """The consolidation that `undo` takes back unless another is named; None where none is left."""
    standing = _standing(memories.journal.read(type_=events.TYPE))
    return standing[-1] if standing else None


# choosing -------------------------------------------------------------------------------------------------------


def _chosen(found: Sequence[Proposal], ids: Sequence[str] | None, memories: Memories) -> list[Proposal]:
    if ids is None:
        return list(found)
    chosen: dict[str, Proposal] = {}
    for wanted in ids:
        fitting = [proposal for proposal in found if proposal.proposal_id == wanted]
        if not fitting and wanted not in _applied_ids(memories):
            raise ProposalMissing(wanted)
        chosen.update((proposal.proposal_id, proposal) for proposal in fitting)
    return list(chosen.values())


def _applied_ids(memories: Memories) -> set[str]:
    every = memories.journal.read(type_=events.TYPE)
    return {name for event in _standing(every) for name, _ in event.data["proposals"]}


def _standing(every: Iterable[Event]) -> list[Event]:
    """The consolidations that were not undone, oldest first."""
    known = list(every)
    undone = {event.data.get("undoes") for event in known}
    return [event for event in known if event.data.get("proposals") and event.key not in undone]


def _worded(proposal: Proposal, reword: Reword | None) -> Proposal:
    """A proposal whose new memory has a model's wording, where that is faithful."""
    if reword is None or proposal.kind not in ("merge", "lift") or not proposal.makes:
        return proposal
    (made,) = proposal.makes
    originals = [made.text, *(memory.text for memory in proposal.memories)]
    try:
        said = reword(originals).strip()
    except ModelFault:
        return proposal
    if not consolidation.is_faithful(said, originals):
        return proposal
    return replace(proposal, makes=(replace(made, text=said),))


# undoing --------------------------------------------------------------------------------------------------------


def _wanted(every: Sequence[Event], event_id: str) -> Event:
    """The consolidation that is meant."""
    standing = _standing(every)
    if not event_id:
        if not standing:
            raise UsageError("no consolidation is left to take back")
        return standing[-1]
    named = [event for event in every if event.data.get("proposals") and event.key.startswith(event_id)]
    if len(named) != 1:
        raise NotFound(f"consolidation {event_id!r}" + (f" ({len(named)} begin so)" if named else ""))
    if named[0] not in standing:
        raise UsageError(f"{named[0].key[:12]} was undone already")
    return named[0]


def _resting_on(event: Event, every: Sequence[Event]) -> Event | None:
    """The last later consolidation that took up something that this one made."""
    made = {op["id"] for op in event.data["ops"] if op["op"] == "create"}
    later = [one for one in _standing(every) if one.order > event.order]
    return next((one for one in reversed(later) if made & {op["id"] for op in one.data["ops"]}), None)


def _set_back(event: Event, before: dict[str, Memory], memories: Memories) -> tuple[list[Op], list[str]]:
    """(the operations that set back an event, the memories that changed since). What was forgotten stays so."""
    ids = [op["id"] for op in event.data["ops"]]
    now = {memory.memory_id: memory for memory in rows.of_ids(memories.index(), memories.user, ids)}
    ops, left = [], []
    for op in event.data["ops"]:
        known = now.get(op["id"])
        if known is None:
            continue
        if op["op"] == "create":
            ops += [events.change(known.memory_id, retired=True)] if not known.retired else []
        else:
            old = before.get(op["id"])  # one that was made anew since is left as it is
            fields, is_changed = _old_fields(op, old, known) if old is not None else ({}, True)
            ops += [events.change(known.memory_id, **fields)] if fields else []
            left += [known.memory_id] if is_changed else []
    return ops, left


def _old_fields(op: Op, old: Memory, known: Memory) -> tuple[dict[str, Any], bool]:
    """(what a change overwrote, for those fields that still have its value; whether others were changed since)."""
    wanted = {name: value for name, value in events.changed_fields(op).items() if getattr(old, name) != value}
    still = {name: getattr(old, name) for name, value in wanted.items() if getattr(known, name) == value}
    changed = [name for name in wanted if name not in still and getattr(known, name) != getattr(old, name)]
    return still, bool(changed)
