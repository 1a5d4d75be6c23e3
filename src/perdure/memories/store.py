"""Make, change and look up memories: one owner's own, and those that others share with a principal.

Every change is an event in the journal before it is a row. Reading first brings the rows up to date
with the journal. A memory that is said again is reinforced and not doubled; one with other words on the
same path supersedes the one before it (`memories.replay`). Shared memories are read and never changed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure import text
from perdure.access.redact import mask
from perdure.access.scan import Finding
from perdure.archive import memory_events
from perdure.archive.journal import Journal, JournalEvent
from perdure.archive.memory_events import MinedRange, Op
from perdure.archive.tombstones import Tombstones
from perdure.errors import MemoryMissing, UsageError
from perdure.identity import make_memory_id
from perdure.index import memory_replay, memory_rows, visibility
from perdure.index.memory_replay import MemoryChain
from perdure.index.memory_rows import ListRange, MemoryFilter, MemoryOrder
from perdure.index.store import IndexConnection
from perdure.memories import gate, subject
from perdure.memories.gate import GateCounts, GateReason, GateRefusal, RepositoryFact
from perdure.types import MEMORY_KINDS, TRUSTS, Memory, MemoryKind, Principal, Span, Trust

_MAX_COMPARED_WORDS, _MIN_SHARED_WORDS = 8, 2  # telling words by which memories about one thing are found
MAX_TEXT_BYTES = 8192  # of one memory: a statement, not a document (row M13)
_MEMORY_ID_PREFIX = "mem-"
# A file or a value is no single statement; a correction is exact.
_COMPARED_LITERALLY = (memory_events.FILE, memory_events.STORED, "edited")


@dataclass(frozen=True)
class MemoryDraft:
    """A memory about to be made. Fields that are left out follow from the words, the clock and the owner's
    settings.
    """

    text: str
    kind: MemoryKind = "fact"
    path: str = ""  # "": chosen by the words of the text
    project: str | None = None
    stated_at: datetime | None = None
    trust: Trust = "owner"
    how: str = "remembered"
    sources: tuple[Span, ...] = ()
    made_from: tuple[str, ...] = ()
    entities: tuple[str, ...] | None = None
    runtime: str = ""
    conversation: str = ""
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    pinned: bool = False
    confidence: float = 1.0
    agent: str = ""
    memory_id: str = ""  # "": a random id


@dataclass(frozen=True)
class KeepResult:
    """The result of keeping one draft."""

    memory: Memory
    is_new: bool  # False: it existed already and was reinforced


@dataclass
class Memories:
    """The memories of one owner. index: returns the index in use; `follow` brings it up to date."""

    user: str
    agent: str
    journal: Journal
    index: Callable[[], IndexConnection]
    follow: Callable[[], None]
    get_tombstones: Callable[[], Tombstones | None]
    now: Callable[[], datetime]
    scan_text: Callable[[str], Sequence[Finding]]  # findings in a text that its owner has not allowed
    list_facts: Callable[[str | None], Sequence[RepositoryFact]]  # what a project's manifests say
    is_reviewed: bool = False  # hold what others draft until the owner accepts it
    _counted_discards: set[tuple[str, ...]] | None = field(default=None, init=False, repr=False)

    # reading ----------------------------------------------------------------------------------------------

    def get(self, identifier: str) -> Memory:
        """Return the memory with this id, or with the one id that begins with it. Raises MemoryMissing."""
        matches = memory_rows.list_memories(
            self.index(), self.user, "memory_id >= ? AND memory_id < ?", identifier, identifier + "~"
        )
        exact = [memory for memory in matches if memory.memory_id == identifier]
        if len(exact or matches) != 1 or not identifier.startswith(_MEMORY_ID_PREFIX):
            n_matches_note = f" ({len(matches)} ids begin with it)" if matches else ""
            raise MemoryMissing(f"no memory {identifier!r}{n_matches_note}")
        return (exact or matches)[0]

    def list_memories(
        self,
        *,
        prefix: str = "",
        kind: str = "",
        project: str | None = None,
        every: bool = False,
        as_of: datetime | None = None,
        recorded_as_of: datetime | None = None,
    ) -> list[Memory]:
        """Return the current memories, newest first; with `every`, superseded and retired ones too.

        as_of: judge by what had been stated until then. recorded_as_of: judge by what Perdure had recorded
        until then. prefix: of the path, by whole parts. project: its path, "" for memories of no project.
        """
        folded_prefix = memory_events.fold_path(memory_events.check_path(prefix.rstrip("/"))) if prefix else ""
        is_past_asked = as_of is not None or recorded_as_of is not None
        memories = (
            self._list_as_of(as_of, recorded_as_of)
            if is_past_asked
            else self._list_rows(folded_prefix, kind, every=every)
        )
        return [
            memory
            for memory in memories
            if (every or memory.is_current)
            and (not folded_prefix or f"{memory_events.fold_path(memory.path)}/".startswith(f"{folded_prefix}/"))
            and (not kind or memory.kind == kind)
            and (project is None or (memory.project or "") == project)
        ]

    def _list_rows(self, prefix: str, kind: str, *, every: bool) -> list[Memory]:
        """Return every memory below a folded path and of a kind, or only the current ones of them; newest first."""
        condition = "TRUE" if every else "superseded_by IS NULL AND NOT retired"
        values = [kind] if kind else []
        condition += " AND kind = ?" if kind else ""
        if prefix:
            condition += r" AND (place = ? OR place LIKE ? ESCAPE '\')"
            values += [prefix, f"{_escape_like(prefix)}/%"]
        return memory_rows.list_memories(self.index(), self.user, condition, *values)

    def list_page(self, filters: MemoryFilter, page_range: ListRange, *, order: MemoryOrder) -> list[Memory]:
        """Return one range of the memories that fit the filters, without decoding the rest of the list."""
        return memory_rows.list_page(self.index(), self.user, filters, order=order, list_range=page_range)

    def count(self, filters: MemoryFilter) -> int:
        """Count the memories that fit the filters."""
        return memory_rows.count_memories(self.index(), self.user, filters)

    def count_subjects(self, filters: MemoryFilter) -> dict[str, int]:
        """Count the memories at or below each part of a path: the parts that follow the prefix, or the first
        parts.
        """
        return memory_rows.count_subjects(self.index(), self.user, filters)

    def projects(self) -> list[str]:
        """Return the projects that the memories belong to."""
        return memory_rows.list_projects(self.index(), self.user)

    def turns_of(self, memory: Memory) -> list[tuple[Span, str | None]]:
        """Return the sources of this one memory as (span, turn id); the turn id is None where the turn is gone."""
        return memory_rows.list_source_turns(self.index(), memory)

    def uses(self) -> list[memory_rows.MemoryUse]:
        """Return how often each memory was shown and used, superseded and retired ones too."""
        return memory_rows.list_uses(self.index(), self.user)

    def get_many(self, ids: Sequence[str]) -> list[Memory]:
        """Return the memories with these ids, in the order of the ids; ids of no memory are left out."""
        memories_by_id = {memory.memory_id: memory for memory in memory_rows.get_memories(self.index(), self.user, ids)}
        return [memories_by_id[memory_id] for memory_id in ids if memory_id in memories_by_id]

    def _list_as_of(self, as_of: datetime | None, recorded_as_of: datetime | None) -> list[Memory]:
        """Return every memory in its state at that time, newest first."""
        if recorded_as_of is None:
            memories = memory_rows.list_memories(self.index(), self.user)
        else:
            journal_events = [
                memory_rows.to_replay_event(event)
                for event in self.journal.read()
                if event.type in memory_rows.EVENT_TYPES
            ]
            memories = list(
                memory_replay.replay_events(
                    journal_event for journal_event in journal_events if journal_event.at <= recorded_as_of
                ).memories.values()
            )
        stated_memories = [memory for memory in memories if as_of is None or memory.stated_at <= as_of]
        state = memory_replay.ReplayState({memory.memory_id: memory for memory in stated_memories})
        memory_replay.mark_superseded(state)
        return sorted(state.memories.values(), key=lambda m: (-m.stated_at.timestamp(), m.memory_id))

    def history(self, identifier: str) -> list[Memory]:
        """Return every memory of one chain, oldest first: how a belief came to be. identifier: an id or a path."""
        if identifier.startswith(_MEMORY_ID_PREFIX):
            return memory_rows.list_chain(self.index(), self.user, memory_replay.get_chain(self.get(identifier)))
        path = memory_events.fold_path(memory_events.check_path(identifier))
        memories = memory_rows.list_memories(self.index(), self.user, "place = ?", path)
        if not memories:
            raise MemoryMissing(f"no memory has the path {identifier!r}")
        return sorted(memories, key=lambda m: (m.agent, m.project or "", m.stated_at, m.order))

    def sources(self, identifier: str) -> list[tuple[Span, str | None]]:
        """Return the turns that a memory, and the memories it was made from, rest on.

        Each is (span, turn id); the turn id is None where the turn is gone.
        """
        return [
            source
            for memory in self._iter_lineage(self.get(identifier))
            for source in memory_rows.list_source_turns(self.index(), memory)
        ]

    def _iter_lineage(self, memory: Memory) -> Iterator[Memory]:
        seen_ids, queue = set(), [memory]
        while queue:
            current = queue.pop(0)
            if current.memory_id not in seen_ids:
                seen_ids.add(current.memory_id)
                yield current
                queue += memory_rows.get_memories(self.index(), self.user, current.made_from)

    # writing ----------------------------------------------------------------------------------------------

    def keep(self, draft: MemoryDraft, *, by: str = "owner") -> KeepResult:
        """Store a memory; if the current one says the same, reinforce it instead.

        Raises UsageError for text, a path or a time that cannot be kept, for a memory that was forgotten since,
        and for a draft that `find_refusal` refuses.
        """
        if refusal := self.find_refusal(draft):
            self._build_memory(draft)  # an invalid draft is no decision of the gate
            self.write_event([], by=by, discards=[self._build_discard(draft, refusal.reason)])
            raise UsageError(f"this text cannot be stored: it {refusal.why}")
        results = self.keep_all([draft], by=by)
        if not results:
            raise UsageError(
                "this statement was forgotten later than its time: state it again with a new time to store it"
            )
        return results[0]

    def keep_all(
        self,
        drafts: Sequence[MemoryDraft],
        *,
        by: str,
        batch: MinedRange | None = None,
        discards: Sequence[tuple[str, str]] = (),
        settled: Sequence[tuple[str, str]] = (),
    ) -> list[KeepResult]:
        """Store several memories in one event, which counts those that the gate discards.

        Left out are those that were forgotten, that `find_refusal` refuses, or whose id exists already. Held for review
        are those that somebody else drafted, if the owner reviews: not the files of an agent, which it reads. What the
        rules found is also held if it reads like an order to a model. discards: (reason, time of the statement) of what
        the gate refused before. settled: (id of a turn, outcome) of candidates.
        """
        results: list[KeepResult] = []
        ops: list[Op] = []
        all_discards = list(discards)
        for draft in drafts:
            memory = self._build_memory(draft)
            if self._is_forgotten(memory):
                continue
            if refusal := self.find_refusal(draft):
                all_discards.append(self._build_discard(draft, refusal.reason))
                continue
            is_draft_of_others = by in gate.REVIEWED_AUTHORS and draft.how != memory_events.FILE
            if (self.is_reviewed and is_draft_of_others) or (by == "rules" and self.scan_text(memory.text)):
                memory = replace(memory, retired=True, in_review=True)
            keep_result, op = self._decide(memory, [result.memory for result in results])
            ops += [op] if op is not None else []
            results.append(keep_result)
        new_discards = all_discards if by != "rules" else self._remove_counted(all_discards)
        if ops or new_discards or settled or batch is not None:
            self.write_event(ops, by=by, batch=batch, discards=new_discards, settled=settled)
        return [KeepResult(self.get(result.memory.memory_id), result.is_new) for result in results]

    def count_decisions(self) -> GateCounts:
        """Count how many memories the gate allowed, and how many it discarded for each reason."""
        return gate.count_decisions(self.journal.read(type_=memory_events.EVENT_TYPE))

    def _build_discard(self, draft: MemoryDraft, reason: GateReason) -> tuple[str, str]:
        """Return a reason and the time of the statement: no word, because words can be forgotten."""
        return reason.value, (draft.stated_at or self.now()).isoformat()

    def _remove_counted(self, discards: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the discards of the rules that no event counts yet: they read a conversation again when it grows."""
        if not discards:
            return []
        if self._counted_discards is None:  # once: an import keeps the statements of many conversations
            self._counted_discards = {
                tuple(discard)
                for event in self.journal.read(type_=memory_events.EVENT_TYPE)
                for discard in event.data.get("discards", ())
            }
        new_discards = [discard for discard in dict.fromkeys(discards) if discard not in self._counted_discards]
        self._counted_discards.update(new_discards)
        return new_discards

    def find_duplicate(self, draft: MemoryDraft) -> Memory | None:
        """Return the current memory that says the same as a draft, or None. Raises UsageError for an invalid or
        refused draft.
        """
        if refusal := self.find_refusal(draft):
            raise UsageError(refusal.why)
        return self._find_current_duplicate(self._build_memory(draft), [])

    def write_event(
        self, ops: Sequence[Op], *, by: str, batch: MinedRange | None = None, **event_fields: Any
    ) -> JournalEvent:
        """Write operations as one event and apply it. event_fields: `why`, `undoes`, `proposals`, `discards`, `settled`
        of the event's data.
        """
        event = self.journal.append(
            memory_events.EVENT_TYPE,
            memory_events.build_event_data(ops, by=by, batch=batch, **event_fields),
            now=self.now(),
        )
        self.follow()
        return event

    def _decide(self, memory: Memory, pending: Sequence[Memory]) -> tuple[KeepResult, Op | None]:
        """Return the result of keeping a memory and the operation for it. pending: memories that the same event
        makes.
        """
        if memory_rows.get_memories(self.index(), self.user, [memory.memory_id]):
            return KeepResult(memory, False), None
        duplicate = self._find_current_duplicate(memory, pending)
        if duplicate is None:
            return KeepResult(memory, True), memory_events.build_create_op(memory)
        if memory.sources and set(memory.sources) <= set(duplicate.sources):
            return KeepResult(duplicate, False), None
        return KeepResult(duplicate, False), memory_events.build_reinforce_op(
            duplicate.memory_id, stated_at=memory.stated_at, sources=memory.sources
        )

    def _build_memory(self, draft: MemoryDraft) -> Memory:
        """Build the memory of a draft, with every field that follows from the others."""
        clean_text, now = mask(text.printable(draft.text).strip()), self.now()
        _check_draft(draft, clean_text)
        stated_at = min(draft.stated_at or now, now)
        agent = draft.agent or self.agent
        path = (
            memory_events.check_path(draft.path)
            if draft.path
            else self._choose_path(clean_text, draft, agent, stated_at)
        )
        if draft.stated_at is None:  # said now: after all that was said, also by a clock that was ahead
            chain_memories = self._list_chain(path, draft.project, agent)
            stated_at = max([stated_at, *(memory.stated_at for memory in chain_memories)])
        return Memory(
            memory_id=draft.memory_id or self._make_id(now),
            text=clean_text,
            kind=draft.kind,
            path=path,
            agent=agent,
            project=draft.project,
            stated_at=stated_at,
            recorded_at=now,
            trust=draft.trust,
            how=draft.how,
            sources=draft.sources,
            made_from=draft.made_from,
            entities=text.entities(clean_text) if draft.entities is None else _clean_entities(draft.entities),
            runtime=draft.runtime,
            conversation=draft.conversation,
            valid_from=draft.valid_from,
            valid_until=draft.valid_until,
            pinned=draft.pinned,
            confidence=draft.confidence,
        )

    def find_refusal(self, draft: MemoryDraft) -> GateRefusal | None:
        """Return why the write gate refuses a draft; None if it does not."""
        return gate.find_refusal(
            draft.text,
            trust=draft.trust,
            how=draft.how,
            scan_text=self.scan_text,
            list_facts=lambda: self.list_facts(draft.project),
        )

    def _make_id(self, now: datetime) -> str:
        """Return an id that no memory of the owner has."""
        while True:
            new_id = make_memory_id(now, secrets.token_bytes(3))
            if not memory_rows.get_memories(self.index(), self.user, [new_id]):
                return new_id

    def _choose_path(self, memory_text: str, draft: MemoryDraft, agent: str, stated_at: datetime) -> str:
        """Choose a path by the words: that of a memory about the same thing if there is one."""
        path = subject.path_for(memory_text, draft.kind)
        if draft.kind == "event" or self._list_chain(path, draft.project, agent):  # one event does not end another
            return path
        for memory in self._list_alike(memory_text, draft.project, agent):
            newer, older = (memory_text, memory.text) if memory.stated_at <= stated_at else (memory.text, memory_text)
            if subject.replaces(newer, older) or subject.says_same(newer, older):
                return memory.path
        return path

    def _list_chain(self, path: str, project: str | None, agent: str) -> list[Memory]:
        return memory_rows.list_chain(
            self.index(), self.user, MemoryChain(agent, project or "", memory_events.fold_path(path))
        )

    def _list_alike(self, memory_text: str, project: str | None, agent: str) -> list[Memory]:
        """Return the current memories of this project that share telling words with a text, the newest first."""
        words = sorted(subject.read_subject(memory_text).words, key=len, reverse=True)[:_MAX_COMPARED_WORDS]
        n_shared = " + ".join(["CASE WHEN instr(lower(text), ?) > 0 THEN 1 ELSE 0 END"] * len(words)) or "0"
        condition = f"superseded_by IS NULL AND NOT retired AND agent = ? AND project = ? AND ({n_shared}) >= ?"
        n_needed = min(_MIN_SHARED_WORDS, len(words)) or 1
        return memory_rows.list_memories(self.index(), self.user, condition, agent, project or "", *words, n_needed)

    def _find_current_duplicate(self, memory: Memory, pending: Sequence[Memory]) -> Memory | None:
        """Return the current memory on the same path if it says the same."""
        chain = memory_replay.get_chain(memory)
        chain_memories = [
            *memory_rows.list_chain(self.index(), self.user, chain),
            *(m for m in pending if memory_replay.get_chain(m) == chain),
        ]
        current = (
            memory_replay.find_current_at(chain_memories, max(memory.stated_at, *(m.stated_at for m in chain_memories)))
            if chain_memories
            else None
        )
        set_aside = (
            [m for m in chain_memories if m.retired] if memory.in_review else []
        )  # refused once, never asked again
        for known_memory in (*([current] if current else []), *set_aside):
            if memory.how in _COMPARED_LITERALLY:
                is_same = memory.text == known_memory.text
            else:
                is_same = subject.says_same(memory.text, known_memory.text)
            if is_same:
                return known_memory
        return None

    def _is_forgotten(self, memory: Memory) -> bool:
        tombstones = self.get_tombstones()
        return tombstones is not None and tombstones.is_forgotten_memory(memory.text, memory.stated_at)

    def edit(self, identifier: str, new_text: str, **fields: Any) -> Memory:
        """Correct the text of a memory: the owner's new text supersedes the old one, which stays in the history.

        fields: changed first, as by `change`. If any part of this is invalid, nothing is changed.
        """
        old = self.get(identifier)
        self._build_memory(_build_edit_draft(replace(old, **fields), new_text))  # raises before anything is changed
        if fields:
            (old,) = self.change([old.memory_id], **fields)
        return self.keep(_build_edit_draft(old, new_text)).memory

    def change(self, ids: Collection[str], *, by: str = "owner", why: str = "", **fields: Any) -> list[Memory]:
        """Set fields of CHANGEABLE: pinned, retired, path, kind, validity, entities, project.

        Return each memory once. Raises UsageError for an invalid value, and then changes none of them.
        """
        if "path" in fields:
            fields["path"] = memory_events.check_path(fields["path"])
        memory_events.check_project(fields.get("project"))
        if fields.get("kind", "fact") not in MEMORY_KINDS:
            raise UsageError(f"kind {fields['kind']!r} (known: {', '.join(MEMORY_KINDS)})")
        if "entities" in fields:
            fields["entities"] = _clean_entities(fields["entities"])
        memories_by_id = {memory.memory_id: memory for memory in map(self.get, ids)}
        if fields.keys() & {"valid_from", "valid_until"}:
            for memory in memories_by_id.values():
                _check_validity(
                    fields.get("valid_from", memory.valid_from), fields.get("valid_until", memory.valid_until)
                )
        self.write_event(
            [memory_events.build_change_op(memory_id, **fields) for memory_id in memories_by_id], by=by, why=why
        )
        return [self.get(memory_id) for memory_id in memories_by_id]

    def list_in_review(self) -> list[Memory]:
        """Return the memories that wait for their owner's review, newest first."""
        retired_memories = memory_rows.list_memories(self.index(), self.user, "retired")
        in_review = [memory for memory in retired_memories if memory.in_review]
        return sorted(in_review, key=lambda m: (-m.stated_at.timestamp(), m.memory_id))

    def find_in_review(self, name: str) -> list[Memory]:
        """Return the memories that wait and have this id or its beginning, are at or below this path, or came from this
        file or session.

        Raises MemoryMissing if there is none.
        """
        if name.startswith(_MEMORY_ID_PREFIX):
            return [self.get(name)]
        folder = memory_events.fold_path(name.rstrip("/"))
        origins = {name, os.path.abspath(os.path.expanduser(name))}  # noqa: PTH100, PTH111 - links and all
        waiting = [
            memory
            for memory in self.list_in_review()
            if f"{memory_events.fold_path(memory.path)}/".startswith(f"{folder}/") or memory.conversation in origins
        ]
        if not waiting:
            raise MemoryMissing(f"nothing that waits for review has the path {name!r}, or came from such a file")
        return waiting

    def find_order(self, memory: Memory) -> str:
        """Say why a memory reads like an order to a model; "" if it does not, or its owner allowed the text."""
        return next((gate.describe_order(finding) for finding in self.scan_text(memory.text)), "")

    def review(self, ids: Collection[str], *, is_accepted: bool) -> list[Memory]:
        """Accept memories that wait for review, or refuse them: then they stay retired. Return each once.

        Raises MemoryMissing, and UsageError for one that does not wait; then none is changed.
        """
        for memory in map(self.get, ids):
            if not memory.in_review:
                raise UsageError(f"{memory.memory_id} does not wait for review")
        if not ids:
            return []
        return self.change(ids, retired=False) if is_accepted else self.change(ids, in_review=False)

    def move(self, old: str, new: str) -> int:
        """Rename a path and everything below it; return the number of memories that moved."""
        old_prefix, new_prefix = memory_events.check_path(old.rstrip("/")), memory_events.check_path(new.rstrip("/"))
        moved_memories = self.list_memories(prefix=old_prefix, every=True)
        self.write_event(
            [
                memory_events.build_change_op(m.memory_id, path=new_prefix + m.path[len(old_prefix) :])
                for m in moved_memories
            ],
            by="owner",
        )
        return len(moved_memories)


def _check_draft(draft: MemoryDraft, memory_text: str) -> None:
    """Raise UsageError for a draft that cannot be kept."""
    if not memory_text:
        raise UsageError("a memory cannot be empty")
    if len(memory_text.encode("utf-8", "surrogatepass")) > MAX_TEXT_BYTES:
        raise UsageError(f"a memory has at most {MAX_TEXT_BYTES} bytes: store the statement, not the document")
    if draft.kind not in MEMORY_KINDS:
        raise UsageError(f"kind {draft.kind!r} (known: {', '.join(MEMORY_KINDS)})")
    if draft.trust not in TRUSTS:
        raise UsageError(f"trust {draft.trust!r} (known: {', '.join(TRUSTS)})")
    _check_zones(draft.stated_at)
    _check_validity(draft.valid_from, draft.valid_until)


def _check_validity(valid_from: datetime | None, valid_until: datetime | None) -> None:
    """Raise UsageError for a validity that ends before it begins."""
    _check_zones(valid_from, valid_until)
    if valid_from and valid_until and valid_until <= valid_from:
        raise UsageError(
            f"the time range is empty: the memory is valid until {valid_until:%Y-%m-%d %H:%M %Z}, "
            f"and from {valid_from:%Y-%m-%d %H:%M %Z}"
        )


def _check_zones(*times: datetime | None) -> None:
    if any(instant is not None and instant.tzinfo is None for instant in times):
        raise UsageError("times need a time zone")


def _clean_entities(entities: Collection[str]) -> tuple[str, ...]:
    """Return the names that are not empty, each once, with their secrets masked."""
    return tuple(dict.fromkeys(name for entity in entities if (name := mask(text.printable(entity).strip()))))


def _build_edit_draft(old: Memory, new_text: str) -> MemoryDraft:
    """Build the draft of a memory with its owner's new text."""
    return MemoryDraft(
        new_text,
        old.kind,
        old.path,
        old.project,
        how="edited",
        agent=old.agent,
        pinned=old.pinned,
        valid_from=old.valid_from,
        valid_until=old.valid_until,
    )


def _escape_like(value: str) -> str:
    """Escape a value so that LIKE matches only this value."""
    return value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


@dataclass(frozen=True)
class SharedMemories:
    """The memories of others that a principal may read. index: returns the index in use."""

    principal: Principal
    index: Callable[[], IndexConnection]

    def list_memories(self, *, every: bool = False) -> list[Memory]:
        """Return the current memories, newest first; with `every`, superseded ones too."""
        return [memory for memory in self._query("TRUE") if every or memory.is_current]

    def get(self, identifier: str) -> Memory:
        """Return the memory with this id, or with the one id that begins with it. Raises MemoryMissing."""
        matches = self._query("memory_id >= ? AND memory_id < ?", identifier, identifier + "~")
        exact = [memory for memory in matches if memory.memory_id == identifier]
        if len(exact or matches) != 1 or not identifier.startswith("mem-"):
            raise MemoryMissing(f"no memory {identifier!r}")
        return (exact or matches)[0]

    def history(self, identifier: str) -> list[Memory]:
        """Return the readable part of a memory's chain, oldest first. Raises MemoryMissing."""
        memory, index = self.get(identifier), self.index()
        with index.begin_read():
            visible_rows = visibility.get_read_scope(index, self.principal)
            (key,) = memory_rows.find_numbers(
                index, index.find_name("user", memory.shared_by) or 0, [memory.memory_id]
            ).values()
            return [chain_memory for _, chain_memory in memory_rows.list_shared_chain(index, visible_rows, key)]

    def sources(self, identifier: str) -> list[tuple[Span, str | None]]:
        """Return the turns that a memory rests on, as (span, turn id). Raises MemoryMissing."""
        return memory_rows.list_source_turns(self.index(), self.get(identifier))

    def _query(self, condition: str, *values: str) -> list[Memory]:
        index = self.index()
        with index.begin_read():
            return memory_rows.list_shared(index, visibility.get_read_scope(index, self.principal), condition, *values)
