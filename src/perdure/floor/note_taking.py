"""Add notes: from a person or an agent, and by rules from the statements of a person.

A pass of the rules looks at the memories that the journal got after the page's current text was written.
So a merge after which another text counts brings its lines again, and a line that a person removed stays
away. A pass writes one event.

The module also finds the suspicious texts that recall held back from a model. Texts that were forgotten,
changed or allowed since are no longer among them. It reads the index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from perdure.access.scan import digest_text
from perdure.errors import EditRefused
from perdure.floor import notes, pages
from perdure.floor.floor import Floor, PageChange
from perdure.floor.layers import InjectionFinder, Suspect
from perdure.floor.state import AddedLine
from perdure.index import memory_replay, memory_rows, session_turns
from perdure.index.store import IndexConnection
from perdure.types import Memory, Span

_NOTE_FILTER = """superseded_by IS NULL AND NOT retired AND agent = ?
    AND (kind IN ('preference', 'decision', 'procedure') OR place LIKE 'user/%' OR place LIKE 'project/%')"""


@dataclass(frozen=True)
class NoteResult:
    """The result of adding a note."""

    line: str  # as on the page, or as it would have been
    is_new: bool
    same_line: str = ""  # the existing line that says the same
    replaced_lines: tuple[str, ...] = ()  # the lines it replaced


def add_note(
    floor: Floor, note_text: str, *, by: str, project: str | None = None, sources: Sequence[Span] = ()
) -> NoteResult:
    """Add a note at the end of notes.md, unless a line there says the same. Raises EditRefused."""
    line = notes.make_line(note_text, project=project or "")
    n_words = len(line.words.split())
    if not n_words or n_words > notes.MAX_WORDS:
        raise EditRefused(f"{pages.NOTES}: a note must have 1 to {notes.MAX_WORDS} words; this one has {n_words}")
    additions: list[notes.NoteAddition] = []

    def change(text: str) -> PageChange | None:
        additions.append(notes.add_line(text, line))
        if additions[-1].same_line is not None:
            return None
        return PageChange(additions[-1].text, by, added_lines=(AddedLine(line.raw, "", tuple(sources)),))

    floor.rework(pages.NOTES, change)
    addition = additions[-1]
    same_line = addition.same_line.raw if addition.same_line else ""
    return NoteResult(
        same_line or line.raw,
        not same_line,
        same_line,
        tuple(replaced_line.raw for replaced_line in addition.replaced_lines),
    )


def add_stated_notes(floor: Floor, index: IndexConnection, user: str, moved_ids: Collection[str] = ()) -> int:
    """Bring notes.md up to the current statements; return the number of new lines.

    moved_ids: memories that now hold in another project.
    """
    page = floor.load_state().pages.get(pages.NOTES)
    cursor: dict[str, str] = dict(page.cursor or {}) if page else {}
    candidates = [
        memory
        for memory in memory_rows.list_memories(index, user, _NOTE_FILTER, floor.agent)
        if notes.is_worth_noting(memory)
    ]
    unread = [memory for memory in candidates if _is_unread(memory, cursor) and not floor.find_injections(memory.text)]
    updates: list[notes.NotesUpdate] = []

    def change(text: str) -> PageChange | None:
        marked = {
            memory.memory_id: memory
            for memory in memory_rows.get_memories(index, user, list(notes.list_marked_memories(text)))
        }
        successors = _find_successors(index, user, marked.values())
        successors |= {
            memory_id: marked[memory_id]
            for memory_id in moved_ids
            if memory_id in marked and marked[memory_id].is_current
        }
        updates.append(notes.update_page(text, unread, marked, successors))
        if not updates[-1].text or (updates[-1].text == text and not unread):
            return None
        new_cursor = cursor | _advance_cursor(unread, cursor)
        return PageChange(updates[-1].text, "rules", added_lines=updates[-1].added_lines, cursor=new_cursor)

    if unread or (page and page.text):
        floor.rework(pages.NOTES, change)
    return len(updates[-1].added_lines) if updates else 0


def _is_unread(memory: Memory, cursor: dict[str, str]) -> bool:
    """Return True if the journal got a memory after the page's text was written."""
    hybrid_time, writer = _parse_order(memory)
    return hybrid_time > cursor.get(writer, "")


def _parse_order(memory: Memory) -> tuple[str, str]:
    """Return (hybrid time, writer) of the event that made a memory."""
    hybrid_time, writer, _ = memory.order.split("|", 2)
    return hybrid_time, writer


def _advance_cursor(unread: Sequence[Memory], cursor: dict[str, str]) -> dict[str, str]:
    """Return how far the journal of each writer was read, with these memories."""
    new_cursor = dict(cursor)
    for hybrid_time, writer in map(_parse_order, unread):
        new_cursor[writer] = max(hybrid_time, new_cursor.get(writer, ""))
    return new_cursor


def _find_successors(index: IndexConnection, user: str, marked: Iterable[Memory]) -> dict[str, Memory]:
    """Return the current successor of each memory that is no longer current."""
    successors: dict[str, Memory] = {}
    for old in marked:
        if not old.is_current:
            chain = memory_rows.list_chain(index, user, memory_replay.get_chain(old))
            successor = next((memory for memory in chain if memory.is_current), None) or _find_derived_memory(
                index, user, old
            )
            if successor is not None and successor.kind != "event":
                successors[old.memory_id] = successor
    return successors


def _find_derived_memory(index: IndexConnection, user: str, old: Memory) -> Memory | None:
    """Return the current memory that was made from an old one."""
    condition = "superseded_by IS NULL AND NOT retired AND instr(body, ?) > 0"
    candidates = memory_rows.list_memories(index, user, condition, f'"{old.memory_id}"'.encode())
    return next((memory for memory in candidates if old.memory_id in memory.made_from), None)


def find_suspects(
    index: IndexConnection, user: str, location_by_digest: Mapping[str, str], find_injections: InjectionFinder
) -> list[Suspect]:
    """Return the texts with these digests that are still held back.

    location_by_digest: digest of a text -> the turn or memory that holds it.
    """
    return [
        Suspect(location, text, finding)
        for text_digest, location in location_by_digest.items()
        if location
        for text in _read_texts(index, user, location)
        if digest_text(text) == text_digest
        for finding in find_injections(text)[:1]
    ]


def _read_texts(index: IndexConnection, user: str, location: str) -> Sequence[str]:
    if location.startswith("mem-"):
        return [memory.text for memory in memory_rows.get_memories(index, user, [location])]
    return session_turns.list_turn_chunks(index, user, location)
