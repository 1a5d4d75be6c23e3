"""Import the store of another product: read it, plan, and store its records as turns with the memories made of them.

The records come into the archive first, also those that the gate keeps out, so that every memory leads back to its
record, and forgetting reaches both. A second import of the same store stores nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from perdure.captures import Captures
from perdure.connections import Progress
from perdure.errors import UsageError
from perdure.formats.external import ExternalRow, make_lines, make_row_line
from perdure.memories.gate import STORE_AUTHOR
from perdure.memories.markdown_io import FileRefusal
from perdure.memories.other_stores import basic_memory, claude_mem, markdown_notes, mem0, memory_server
from perdure.memories.other_stores.plan import StorePlan, StoreTerms
from perdure.memories.other_stores.records import StoreContents, StoreRecord
from perdure.memories.store import Memories, MemoryDraft
from perdure.types import Memory, Origin, Span

_BATCH_MEMORIES = 200  # memories stored in one event


class StoreReader(NamedTuple):
    """How to read the store of a product."""

    read: Callable[[Path, StoreContents], None]  # raises UsageError if the path is no such store
    find: Callable[[], Path | None]  # returns where this user has it
    file: str = ""  # the file to read where a folder is named; "": the folder itself


READERS = {
    "claude-mem": StoreReader(claude_mem.read, claude_mem.find_store, claude_mem.FILE),
    "mem0": StoreReader(mem0.read, mem0.find_store, mem0.FILE),
    "basic-memory": StoreReader(basic_memory.read, basic_memory.find_store),
    "memory-server": StoreReader(memory_server.read, memory_server.find_store),
    "markdown": StoreReader(markdown_notes.read, lambda: None),
}


@dataclass
class StoreImport:
    """The plan of an import, and the memories that it made if it was applied."""

    plan: StorePlan
    new: list[Memory] = field(default_factory=list)
    changed: list[Memory] = field(default_factory=list)
    n_held: int = 0  # of these: they wait for review


def read_store(store: str, path: Path | None) -> StoreContents:
    """Return the records of a store. path: None for where this user has it.

    Raises UsageError if there is none, or if it cannot be read.
    """
    reader = READERS[store]
    named_path = path or reader.find()
    if named_path is None:
        raise UsageError(f"no store of {store} was found; name it: `perdure import --from {store} PATH`")
    store_path = Path(os.path.abspath(named_path))  # noqa: PTH100 - as the user named it, links and all
    try:
        if reader.file and store_path.is_dir():
            store_path /= reader.file
        if not store_path.exists():
            raise UsageError(f"{store_path}: there is no such file or folder")
        contents = StoreContents(str(store_path))
        reader.read(store_path, contents)
    except OSError as error:
        raise UsageError(f"{store_path}: {error.strerror or error}") from error
    return contents


def take_in(
    memories: Memories,
    captures: Captures,
    contents: StoreContents,
    plan: StorePlan,
    *,
    terms: StoreTerms,
    progress: Progress | None = None,
) -> StoreImport:
    """Store the records of a store, and make the memories of its plan. Records of excluded projects are refused.

    progress: gets (memories done, all). Raises UsageError while capture is paused.
    """
    captures.check_not_paused()
    spans = _store_records(captures, contents, plan, terms)
    planned_records = [
        planned_record for planned_record in (*plan.new, *plan.changed) if planned_record.record in spans
    ]
    plan.n_forgotten += len(plan.new) + len(plan.changed) - len(planned_records)
    drafts = [
        replace(
            planned_record.draft,
            sources=(spans[planned_record.record],),
            runtime=plan.store,
            conversation=contents.path,
        )
        for planned_record in planned_records
    ]
    _move_to_folders(memories, plan)
    made_memories = _keep_drafts(memories, drafts, progress or (lambda _, __: None))
    changed_places = {(planned_record.draft.project, planned_record.draft.path) for planned_record in plan.changed}
    result = StoreImport(plan)
    for memory in made_memories:
        (result.changed if (memory.project, memory.path) in changed_places else result.new).append(memory)
    result.n_held = sum(memory.in_review for memory in made_memories)
    return result


def _store_records(
    captures: Captures, contents: StoreContents, plan: StorePlan, terms: StoreTerms
) -> dict[StoreRecord, Span]:
    """Store the records of each project as a document; return where each record is."""
    groups: dict[str | None, list[StoreRecord]] = {}
    for record in contents.records:
        groups.setdefault(terms.project(record.project), []).append(record)
    spans: dict[StoreRecord, Span] = {}
    for project, records in groups.items():
        rows = [ExternalRow(record.raw_text, record.headings, record.record_id, record.stated_at) for record in records]
        name = contents.path if project is None else f"{contents.path}#{project}"
        name = captures.find_store_document(plan.store, name, partial(_list_row_lines, rows))
        origin = Origin(plan.store, name, name, cwd=project)
        lines = make_lines(name, rows, changed_at=contents.changed_at)
        try:
            _, span_by_line = captures.store_document(origin, lines, path=contents.path)
        except UsageError as error:
            plan.refusals.append(FileRefusal(name, error.detail))
            continue
        for record, row in zip(records, rows, strict=True):
            if (span := span_by_line.get(make_row_line(name, row))) is not None:
                spans[record] = span
    return spans


def _list_row_lines(rows: Sequence[ExternalRow], name: str) -> list[bytes]:
    return [make_row_line(name, row) for row in rows]


def _move_to_folders(memories: Memories, plan: StorePlan) -> None:
    """Move earlier imports, with their history, to the project folder that became known since."""
    for project, group in plan.moved.items():
        ids = dict.fromkeys(m.memory_id for memory in group for m in memories.history(memory.memory_id))
        memories.change(ids, project=project)


def _keep_drafts(memories: Memories, drafts: Sequence[MemoryDraft], progress: Progress) -> list[Memory]:
    """Store memories, oldest first, so that each takes its place in its history; return the new ones."""
    ordered_drafts = sorted(drafts, key=lambda draft: (draft.stated_at or memories.now(), draft.memory_id))
    new_memories: list[Memory] = []
    for start in range(0, len(ordered_drafts), _BATCH_MEMORIES):
        results = memories.keep_all(ordered_drafts[start : start + _BATCH_MEMORIES], by=STORE_AUTHOR)
        new_memories += [keep_result.memory for keep_result in results if keep_result.is_new]
        progress(min(start + _BATCH_MEMORIES, len(ordered_drafts)), len(ordered_drafts))
    return new_memories
