"""Make memories of what people told an agent to keep: by explicit forms, each with its kind and its source.

Only text that a person typed counts, and only from captures of the owner's own sessions. The id of such
a memory follows from its words and the time at which they were said, so a second look, another copy of
the session or another home makes the same memory and no second one. The progress is kept in the ledger:
losing it costs another look. The forms are in `explicit`; no model is asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perdure.access.redact import mask
from perdure.archive.archive import Archive
from perdure.archive.store import LedgerEntry
from perdure.capture.events import is_command
from perdure.errors import DamagedRun, NotFound
from perdure.identity import make_memory_id
from perdure.memories.explicit import Statement, find_statements
from perdure.memories.mining_question import to_span
from perdure.memories.scope import is_said_everywhere
from perdure.memories.store import Memories, MemoryDraft
from perdure.text import normalise
from perdure.types import Run, Turn

# keeping statements -------------------------------------------------------------------------------------------

_BATCH_RUNS = 200  # runs between two records of the progress


@dataclass
class StatementsResult:
    """The result of keeping the statements of captures."""

    n_turns: int = 0  # typed by a person
    n_new: int = 0
    n_reinforced: int = 0  # known already: said before, or read twice


def build_mark(user: str) -> str:
    """Return the ledger's name for the progress of the rules in an owner's captures."""
    return f"stated:{user}"


def keep_statements(memories: Memories, archive: Archive, *, limit_s: float | None = None) -> StatementsResult:
    """Keep the statements of every capture since the last call. limit_s: stop after so many seconds."""
    result = StatementsResult()
    ends_s = None if limit_s is None else time.monotonic() + limit_s
    ledger, mark = archive.ledger, build_mark(memories.user)
    last_change = ledger.get_last_change()
    while entries := ledger.list_changes(int(ledger.get_meta(mark) or 0), limit=_BATCH_RUNS, user=memories.user):
        for entry in entries:
            _keep_run_statements(memories, archive, entry, result)
            is_over = ends_s is not None and time.monotonic() > ends_s
            if is_over:
                break
        ledger.set_meta(mark, str(entry.change))
        if is_over:
            return result
    if last_change > int(ledger.get_meta(mark) or 0):  # the remaining changes belong to other users
        ledger.set_meta(mark, str(last_change))
    return result


def restate(memories: Memories, archive: Archive, run_ids: Iterable[str]) -> StatementsResult:
    """Keep what is stated in these runs again: a memory of it was forgotten together with something else."""
    result = StatementsResult()
    for run_id in run_ids:
        with contextlib.suppress(NotFound):
            _keep_run_statements(memories, archive, archive.get_entry(run_id), result)
    return result


def _keep_run_statements(memories: Memories, archive: Archive, entry: LedgerEntry, result: StatementsResult) -> None:
    try:
        run, typed_turns = archive.take_typed_turns(entry)
    except DamagedRun:  # `verify` reports it
        return
    for turn in typed_turns:
        result.n_turns += 1
        drafts = [_build_draft(memories.user, run, turn, statement) for statement in _iter_statements(turn)]
        if drafts:
            keep_results = memories.keep_all(drafts, by="rules")
            result.n_new += sum(keep_result.is_new for keep_result in keep_results)
            result.n_reinforced += sum(not keep_result.is_new for keep_result in keep_results)


def _iter_statements(turn: Turn) -> Iterator[Statement]:
    """Yield what the typed text of a person's turn asks to keep."""
    for part in turn.parts:
        if part.kind == "text" and not is_command(part.text):
            yield from find_statements(part.text)


def _build_draft(user: str, run: Run, turn: Turn, statement: Statement) -> MemoryDraft:
    stated_at = min(turn.stated_at or run.ended_at or run.captured_at, run.captured_at)
    id_seed = f"{user}\0{stated_at.isoformat()}\0{normalise(statement.text)}"
    return MemoryDraft(
        text=statement.text,
        kind=statement.kind,
        project=None if is_said_everywhere(statement.text) else run.project,
        stated_at=stated_at,
        how="stated",
        sources=(to_span(run.run_id, turn),),
        runtime=run.source.runtime,
        conversation=run.conversation,
        agent=run.agent,
        memory_id=make_memory_id(stated_at, hashlib.sha256(id_seed.encode("utf-8", "surrogatepass")).digest()),
    )


# what earlier rules guessed -----------------------------------------------------------------------------------


def find_guesses(memories: Memories, archive: Archive) -> set[str]:
    """Return the ids of memories that earlier rules guessed from plain sentences: today's forms would not keep them.

    Left out are those that are pinned or were used, that say how they are to be kept, or whose conversation is gone:
    what was said there cannot be read again.
    """
    stated_memories = [memory for memory in memories.list_memories(every=True) if memory.how == "stated"]
    texts_by_run: dict[str, frozenset[str] | None] = {}
    guess_ids = set()
    for memory in stated_memories:
        if memory.retired or memory.pinned or memory.n_used or _is_among(memory.text, _list_texts(memory.text)):
            continue
        run_ids = {span.run_id for span in memory.sources}
        for run_id in run_ids - texts_by_run.keys():
            texts_by_run[run_id] = _read_kept_texts(archive, run_id)
        texts = [texts_by_run[run_id] for run_id in run_ids]
        if texts and not any(statements is None or _is_among(memory.text, statements) for statements in texts):
            guess_ids.add(memory.memory_id)
    return guess_ids


def _read_kept_texts(archive: Archive, run_id: str) -> frozenset[str] | None:
    """Return what a person asked to keep in a run; None if it cannot be read."""
    try:
        _, typed_turns = archive.take_typed_turns(archive.get_entry(run_id))
    except (DamagedRun, NotFound):
        return None
    return frozenset(mask(statement.text) for turn in typed_turns for statement in _iter_statements(turn))


def _list_texts(message: str) -> list[str]:
    return [statement.text for statement in find_statements(message)]


def _is_among(memory_text: str, texts: Iterable[str]) -> bool:
    """Return True if one of the texts says what a memory says: earlier rules cut a sentence differently."""
    text = normalise(memory_text)
    return any(text in other or other in text for other in map(normalise, texts))
