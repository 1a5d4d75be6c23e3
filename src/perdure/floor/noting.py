"""Notes as they come in: by a person or an agent who says so, and by rules from what a person stated.

A pass of the rules looks at what was noted in the journal since the text that stands there was written, so that a
merge in which another text counts brings its lines again, and what a person took out stays out. It writes one event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.errors import EditRefused
from perdure.floor import notes, pages
from perdure.floor.events import Piece
from perdure.floor.floor import Change, Floor
from perdure.index import memories as rows
from perdure.index.store import Connection
from perdure.memories import replay
from perdure.types import Memory, Span

_FRESH = """superseded_by IS NULL AND NOT retired AND agent = ?
    AND (kind IN ('preference', 'decision', 'procedure') OR place LIKE 'user/%' OR place LIKE 'project/%')"""


@dataclass(frozen=True)
class Noted:
    """What became of a note."""

    line: str  # as it stands on the page, or would have
    is_new: bool
    known: str = ""  # the line that said the same
    replaced: tuple[str, ...] = ()  # the lines whose place it took


def note(floor: Floor, said: str, *, by: str, project: str | None = None, sources: Sequence[Span] = ()) -> Noted:
    """Put a note at the end of notes.md, unless a line there says the same. Raises EditRefused."""
    line = notes.written(said, project=project or "")
    n_words = len(line.words.split())
    if not n_words or n_words > notes.MAX_WORDS:
        raise EditRefused(f"{pages.NOTES}: a note has 1 to {notes.MAX_WORDS} words, and this one has {n_words}")
    found: list[notes.Added] = []

    def change(text: str) -> Change | None:
        found.append(notes.add(text, line))
        if found[-1].known is not None:
            return None
        return Change(found[-1].text, by, pieces=(Piece(line.raw, "", tuple(sources)),))

    floor.rework(pages.NOTES, change)
    added = found[-1]
    known = added.known.raw if added.known else ""
    return Noted(known or line.raw, not known, known, tuple(one.raw for one in added.replaced))


def note_stated(floor: Floor, index: Connection, user: str) -> int:
    """Bring notes.md up to what was stated and to what became of it; returns how many lines are new."""
    page = floor.known().pages.get(pages.NOTES)
    cursor: dict[str, str] = dict(page.cursor or {}) if page else {}
    every = [memory for memory in rows.every(index, user, _FRESH, floor.agent) if notes.is_worth_it(memory)]
    fresh = [memory for memory in every if _is_fresh(memory, cursor) and not floor.suspicious(memory.text)]
    found: list[notes.Passed] = []

    def change(text: str) -> Change | None:
        known = {memory.memory_id: memory for memory in rows.of_ids(index, user, list(notes.marked(text)))}
        found.append(notes.passed(text, fresh, known, _heirs(index, user, known.values())))
        if not found[-1].text or (found[-1].text == text and not fresh):
            return None
        reached = cursor | _reached(fresh, cursor)
        return Change(found[-1].text, "rules", pieces=found[-1].pieces, cursor=reached)

    if fresh or (page and page.text):
        floor.rework(pages.NOTES, change)
    return len(found[-1].pieces) if found else 0


def _is_fresh(memory: Memory, cursor: dict[str, str]) -> bool:
    """Whether a memory was noted behind what the page's text rests on."""
    at, writer = _noted(memory)
    return at > cursor.get(writer, "")


def _noted(memory: Memory) -> tuple[str, str]:
    """(hybrid time, writer) of the event that made a memory."""
    at, writer, _ = memory.order.split("|", 2)
    return at, writer


def _reached(fresh: Sequence[Memory], cursor: dict[str, str]) -> dict[str, str]:
    """How far the journal of each writer was looked at, with these."""
    found = dict(cursor)
    for at, writer in map(_noted, fresh):
        found[writer] = max(at, found.get(writer, ""))
    return found


def _heirs(index: Connection, user: str, known: Iterable[Memory]) -> dict[str, Memory]:
    """What is believed instead of each memory that is no longer current."""
    found: dict[str, Memory] = {}
    for old in known:
        if not old.is_current:
            chain = rows.of_chain(index, user, replay.chain_of(old))
            heir = next((memory for memory in chain if memory.is_current), None) or _made_of(index, user, old)
            if heir is not None and heir.kind != "event":
                found[old.memory_id] = heir
    return found


def _made_of(index: Connection, user: str, old: Memory) -> Memory | None:
    """The current memory that was made from an old one."""
    where = "superseded_by IS NULL AND NOT retired AND instr(body, ?)"
    made = rows.every(index, user, where, f'"{old.memory_id}"'.encode())
    return next((memory for memory in made if old.memory_id in memory.made_from), None)
