"""Decide what becomes of each record of another product's store: new, changed, known, or kept out, and why.

A record with a name in its store is the same record while its text changes: the new text supersedes the old one. One
without a name is known by its words, and replaces a statement about the same thing that is gone and shares most of its
words. What another product's model wrote passes the write gate like what an agent stores. Changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from perdure.archive.memory_events import fold_path
from perdure.formats.passing import find_passing_sign
from perdure.memories import gate, markdown
from perdure.memories.explicit import guess_kind
from perdure.memories.markdown import NoteItem
from perdure.memories.markdown_io import FileRefusal, get_current_text, make_statement_id
from perdure.memories.other_stores.records import StoreContents, StoreRecord, make_digest
from perdure.memories.store import MAX_TEXT_BYTES, Memories, MemoryDraft
from perdure.text import normalise
from perdure.types import Memory, Trust

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class StoreTerms:
    """The trust that imported records get, and their projects."""

    trust: Trust = "agent"
    project: Callable[[str], str | None] = lambda name: name or None  # of the name that a store writes


class PlannedRecord(NamedTuple):
    """A record that becomes a memory."""

    record: StoreRecord
    draft: MemoryDraft


class DiscardedRecord(NamedTuple):
    """A record that is kept out."""

    record: StoreRecord
    reason: str  # one of gate.GateReason, or "long", or "corrected"
    why: str  # follows "it"


@dataclass
class StorePlan:
    """What an import would do, or has done."""

    store: str
    path: str
    n_records: int = 0
    new: list[PlannedRecord] = field(default_factory=list)
    changed: list[PlannedRecord] = field(default_factory=list)
    n_unchanged: int = 0
    n_forgotten: int = 0
    discarded: list[DiscardedRecord] = field(default_factory=list)
    moved: dict[str, list[Memory]] = field(default_factory=dict)  # folder -> earlier imports that had only its name
    removed: list[Memory] = field(default_factory=list)  # of an earlier import, gone from the store; they stay
    left_out: Counter[str] = field(default_factory=Counter)
    refusals: list[FileRefusal] = field(default_factory=list)
    by_project: Counter[str] = field(default_factory=Counter)  # of what is new or changed; "" for none


class _RecordPlace(NamedTuple):
    record: StoreRecord
    project: str | None
    path: str
    replaced: Memory | None  # the last import of it, or of the statement that it replaces


def plan_import(memories: Memories, store: str, contents: StoreContents, terms: StoreTerms) -> StorePlan:
    """Return what an import of these contents does."""
    plan = StorePlan(store, contents.path, len(contents.records))
    plan.left_out, plan.refusals = +contents.left_out, list(contents.refusals)
    last_imported = _list_last_imported(memories, contents.records)
    known_texts = _list_known_texts(memories)
    for place in _place_records(contents, terms, last_imported, plan):
        draft = _build_draft(memories, place, contents.changed_at, terms)
        if place.replaced is not None and draft.project and place.replaced.project != draft.project:
            plan.moved.setdefault(draft.project, []).append(place.replaced)
        if _is_known(memories, place, draft):
            plan.n_unchanged += 1
        elif _is_forgotten(memories, place.record, draft):
            plan.n_forgotten += 1
        elif discard := _find_discard(memories, place, draft, known_texts):
            plan.discarded.append(discard)
        else:
            known_texts.setdefault(normalise(draft.text), set()).add(draft.project)
            (plan.changed if place.replaced else plan.new).append(PlannedRecord(place.record, draft))
            plan.by_project[draft.project or ""] += 1
    return plan


# places -------------------------------------------------------------------------------------------------------

_Key = tuple[str | None, str]  # project and folded path


def _list_last_imported(memories: Memories, records: Sequence[StoreRecord]) -> dict[_Key, Memory]:
    """Return the newest import on each path below the pages of these records."""
    pages = {fold_path(record.page) for record in records}
    last_imported: dict[_Key, Memory] = {}
    for prefix in {page.partition("/")[0] for page in pages}:
        for memory in memories.list_memories(prefix=prefix, every=True):  # newest first
            path = fold_path(memory.path)
            if memory.how == "imported" and memory.agent == memories.agent:
                last_imported.setdefault((memory.project, path), memory)
    return last_imported


def _list_known_texts(memories: Memories) -> dict[str, set[str | None]]:
    """Return the texts of the current memories, each with the projects that have it."""
    known_texts: dict[str, set[str | None]] = {}
    for memory in memories.list_memories():
        if memory.agent == memories.agent:
            known_texts.setdefault(normalise(memory.text), set()).add(memory.project)
    return known_texts


def _place_records(
    contents: StoreContents, terms: StoreTerms, last_imported: Mapping[_Key, Memory], plan: StorePlan
) -> Iterator[_RecordPlace]:
    """Yield each record with its project, its path and its last import; note in the plan what is gone."""
    groups: dict[tuple[str | None, str], list[StoreRecord]] = {}
    for record in dict.fromkeys(contents.records):
        groups.setdefault((terms.project(record.project), record.page), []).append(record)
    memories_by_page: dict[tuple[str | None, str], dict[str, Memory]] = {}
    for (known_project, path), memory in last_imported.items():
        project = _find_folder(known_project, terms)
        pages = [page for page in _list_parents(path) if (project, page) in groups]
        if pages:  # the longest: a page can be above another one
            memories_by_page.setdefault((project, pages[-1]), {})[path] = memory
    for (project, page), records in groups.items():
        remaining = memories_by_page.get((project, page), {})
        yield from _place_named([record for record in records if record.record_id], project, remaining)
        others = {path: remaining.pop(path) for path in list(remaining) if not _is_from(remaining[path], contents)}
        yield from _place_unnamed([record for record in records if not record.record_id], project, remaining, others)
        plan.removed += [memory for memory in remaining.values() if memory.is_current]


def _find_folder(project: str | None, terms: StoreTerms) -> str | None:
    """Return the folder of a project that only had a name when its records came in; else the project itself."""
    if not project or project.startswith("/"):
        return project
    folder = terms.project(project)
    return folder if folder and folder.startswith("/") else project


def _list_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def _is_from(memory: Memory, contents: StoreContents) -> bool:
    """Return True if a memory came from this store, and not from another one of the same product."""
    return contents.has_own_pages or memory.conversation == contents.path


def _place_named(
    records: Iterable[StoreRecord], project: str | None, remaining: dict[str, Memory]
) -> Iterator[_RecordPlace]:
    """Yield the records that have a name in their store; take their last imports out of the remaining ones."""
    for record in records:
        path = f"{markdown.make_section_path(record.page, record.headings)}/{_make_name(record.record_id)}"
        yield _RecordPlace(record, project, path, remaining.pop(fold_path(path), None))


def _make_name(record_id: str) -> str:
    """Return the last part of a path for the name of a record; names that differ get parts that differ."""
    slug = markdown.slugify(record_id)
    return slug if slug == record_id else f"{slug}-{make_digest(record_id)}"


def _place_unnamed(
    records: Sequence[StoreRecord], project: str | None, remaining: dict[str, Memory], others: Mapping[str, Memory]
) -> Iterator[_RecordPlace]:
    """Yield records that only their words name, and take what they were or replace out of the remaining imports.

    remaining: folded path -> last import from this store; others: those from other stores of the product.
    """
    paths_by_text: dict[str, list[str]] = {}
    for path, memory in remaining.items():
        paths_by_text.setdefault(normalise(memory.text), []).append(path)
    new_records = []
    for record in records:
        if same_paths := paths_by_text.get(normalise(record.text)):
            memory = remaining.pop(same_paths.pop(0))
            yield _RecordPlace(record, project, memory.path, memory)
        else:
            new_records.append(record)
    replaced_paths = _pair_changed(new_records, remaining)
    for number, record in enumerate(new_records):
        replaced = remaining.pop(replaced_paths[number]) if number in replaced_paths else None
        path = markdown.make_item_path(record.page, NoteItem(record.headings, record.text))
        replaced = replaced or others.get(fold_path(path))
        yield _RecordPlace(record, project, replaced.path if replaced else path, replaced)


def _pair_changed(records: Sequence[StoreRecord], remaining: Mapping[str, Memory]) -> dict[int, str]:
    """Return the path of the import that each record replaces, by its number."""
    lead = f"{records[0].name}: " if records else ""  # words that all statements of a page share make none alike
    statements = [
        (markdown.make_section_path(record.page, record.headings), record.text.removeprefix(lead)) for record in records
    ]
    return markdown.pair_changed(
        statements, {path: memory.text.removeprefix(lead) for path, memory in remaining.items()}
    )


# decisions ----------------------------------------------------------------------------------------------------


def _build_draft(
    memories: Memories, place: _RecordPlace, changed_at: datetime | None, terms: StoreTerms
) -> MemoryDraft:
    record, now = place.record, memories.now()
    stated_at = min(record.stated_at or changed_at or now, now)
    return MemoryDraft(
        record.text,
        record.kind or guess_kind(record.text),
        place.path,
        place.project,
        stated_at=stated_at,
        trust=terms.trust,
        how="imported",
        entities=record.entities or None,
        memory_id=make_statement_id(memories, stated_at, place.path, record.text),
    )


def _is_known(memories: Memories, place: _RecordPlace, draft: MemoryDraft) -> bool:
    """Return True if this text of the record came before, or its owner has already corrected it so."""
    if place.replaced is not None:
        if normalise(place.replaced.text) == normalise(draft.text):
            return True
        if get_current_text(memories, place.replaced) == draft.text:
            return True
    return bool(memories.get_many([draft.memory_id])) if draft.memory_id else False


def _is_forgotten(memories: Memories, record: StoreRecord, draft: MemoryDraft) -> bool:
    """Return True if the text was forgotten. Where a store names no time, a later one is no new statement."""
    tombstones, stated_at = memories.get_tombstones(), draft.stated_at if record.stated_at else _EPOCH
    return tombstones is not None and stated_at is not None and tombstones.is_forgotten_memory(draft.text, stated_at)


def _find_discard(
    memories: Memories, place: _RecordPlace, draft: MemoryDraft, known_texts: Mapping[str, set[str | None]]
) -> DiscardedRecord | None:
    """Return why a record is kept out; None if it becomes a memory."""
    record = place.record
    if len(draft.text.encode("utf-8", "replace")) > MAX_TEXT_BYTES:
        return DiscardedRecord(record, "long", f"has more than {MAX_TEXT_BYTES:,} bytes")
    statements = (draft.text, draft.text.removeprefix(f"{record.name}: "))
    projects: set[str | None] = set().union(*(known_texts.get(normalise(statement), ()) for statement in statements))
    if projects and (draft.project is None or projects & {draft.project, None}):
        return DiscardedRecord(record, gate.GateReason.DUPLICATE.value, "is a memory here already")
    if draft.trust != "owner":
        if place.replaced is not None and _is_corrected(memories, place.replaced):
            return DiscardedRecord(record, "corrected", "was corrected by you here")
        weakness = gate.find_weakness(draft.text, lambda: memories.list_facts(draft.project))
        if weakness is not None:
            return DiscardedRecord(record, weakness.value, gate.EXPLANATIONS[weakness])
        if record.is_note and find_passing_sign(record.headings, record.text):
            return DiscardedRecord(record, "passing", "tells what was asked, planned or done once")
    if refusal := memories.find_refusal(draft):
        return DiscardedRecord(record, refusal.reason.value, refusal.why)
    return None


def _is_corrected(memories: Memories, memory: Memory) -> bool:
    """Return True if the owner's own words have taken the place of an import."""
    chain = memories.history(memory.memory_id)
    return any(chain_memory.is_current and chain_memory.trust == "owner" for chain_memory in chain)
