"""Write projected rows into the index. Writing the same run twice changes nothing.

Two runs may hold the same message (a fork copies history, homes were merged). It is indexed once: the
copy of the source that sorts first stays. Within one source a later line with the same native id is a
newer state of the message and replaces the content, while its position and id stay. So the result does
not depend on the order in which runs arrive.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from perdure import formats
from perdure.archive.archive import get_stored_sha256
from perdure.identity import make_turn_id
from perdure.index import workflow_rows
from perdure.index.embedded_texts import EmbeddedText, read_embedded_texts
from perdure.index.encoding import hash_embedded_text, to_ms, to_scope_token
from perdure.index.store import IndexConnection
from perdure.types import PROMPTS_ONLY, WORKFLOW_RUNTIME, ParsedLines, Run, Source, Turn


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A searchable piece of one turn."""

    n: int  # position in its turn, from 0
    kind: str  # text, thinking, call, result or picture
    text: str  # masked
    tie: int  # a number from the turn's id and n: equal scores are ordered by it


@dataclass(frozen=True, slots=True)
class FactRow:
    """A fact of action, stated by one turn."""

    n: int  # position in its turn, from 0
    kind: str  # as in `formats.action_facts`
    text: str  # masked
    detail: str  # masked; of a failed command, the line of its output that says most
    keys: tuple[int, ...]  # hashes of the names under which it is found


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn as the index stores it."""

    turn_id: str
    copy_key: int  # equal for copies of one message
    turn: Turn
    stated_ms: int | None
    chunks: tuple[ChunkRow, ...]
    facets: tuple[tuple[str, str], ...]  # (file | tool | skill | entity, value)
    thread: int  # equal for the turns of one thread: a source, or a sidechain in it
    is_said: bool  # True if a person or an agent wrote text in it: not a notice, and not only a call, result or thought
    filter_role: str  # its role in filters: `find_filter_role`
    speaker: str  # the name before the text, where several people share a role ("Ada: …"); masked
    facts: tuple[FactRow, ...] = ()  # of action
    pictures: tuple[str, ...] = ()  # digests of the pictures that its lines carry, in their order


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as the index stores it: a captured run, or an inline sidechain inside one."""

    run_id: str
    thread: str  # "" for the captured run itself
    title: str
    intent: str  # beginning of the first turn that a person wrote, or else of the first user turn
    turns: tuple[TurnRow, ...]
    n_calls: int
    n_tokens: int
    started_ms: int | None
    ended_ms: int | None

    def count_role(self, role: str) -> int:
        """Count its turns with this role."""
        return sum(row.turn.role == role for row in self.turns)


_LINKS_PER_RUN = 1 << 20  # tree entries of one run are numbered from_offset * this + i
_SCOPE_COLUMNS = ("user", "project", "conversation", "runtime", "machine", "agent")


class ChunkScope(NamedTuple):
    """The numbers of the names by which the chunks of a run are filtered."""

    user: int
    project: int  # the number of "" for runs without a project
    conversation: int
    runtime: int
    machine: int
    agent: int
    tags: tuple[int, ...]
    source: Source | None = None  # of the run; None for what is no turn


class _IndexedTurn(NamedTuple):
    """A turn that is in the index already."""

    id: int
    turn_id: str
    offset: int
    content_offset: int
    session: str
    generation: int
    run_id: str


_SELECT_INDEXED_TURN = """SELECT turn.id, turn_id, offset, content_offset, session, generation, run.captured_in
  FROM turn JOIN run ON run.id = turn.content_run
  WHERE turn.id = coalesce((SELECT id FROM turn WHERE copy_key = ?), (SELECT id FROM turn WHERE turn_id = ?))"""


def has_run_id(index: IndexConnection, run_id: str) -> bool:
    """Return True if the index has this run, with whatever bytes. It reads no file, so call it before
    `has_run`.
    """
    return next(iter(index.db.execute("SELECT 1 FROM run WHERE run_id = ?", (run_id,))), None) is not None


def has_run(index: IndexConnection, run: Run) -> bool:
    """Return True if the index has this run with exactly these bytes."""
    rows = index.db.execute("SELECT stored_sha256, to_offset FROM run WHERE run_id = ?", (run.run_id,))
    return next(iter(rows), None) == (get_stored_sha256(run), run.to_offset)


def write_run(index: IndexConnection, run: Run, parsed: ParsedLines, rows: Sequence[RunRow]) -> int:
    """Write one captured run (and its sidechains) into the index; return the number of chunks written."""
    scope, turns = _begin_run(index, run, parsed, rows)
    n_chunks = sum(_write_turn(index, run, number, turn, scope) for number, turn in turns)
    _end_run(index, run, parsed, scope)
    return n_chunks


def is_in_parts(index: IndexConnection, run_id: str) -> bool:
    """Return True if `write_run_in_parts` began a run and has not ended it: its process may have been killed."""
    return index.get_meta(f"part:{run_id}") is not None


def write_run_in_parts(
    index: IndexConnection,
    run: Run,
    parsed: ParsedLines,
    rows: Sequence[RunRow],
    *,
    part_s: float,
    is_valid: Callable[[], bool],
) -> int | None:
    """Do the same in transactions of about `part_s` seconds, so that other writers wait for one of them at most.

    Return None if the run is no longer `is_valid` (asked in each transaction), or another process wrote it meanwhile.
    A run whose process is killed in between counts as not written: `is_in_parts` says so. Raises Busy.
    """
    key, token, n_done, n_chunks = f"part:{run.run_id}", secrets.token_hex(8), 0, 0
    with index.begin_write():
        if not is_valid():
            return None
        scope, turns = _begin_run(index, run, parsed, rows)
        index.set_meta(**{key: token})
        index.write_counts()
    while n_done < len(turns):
        with index.begin_write():
            if index.get_meta(key) != token or not is_valid():
                return None
            ends_s = time.monotonic() + part_s
            for number, turn in turns[n_done:]:
                n_chunks += _write_turn(index, run, number, turn, scope)
                n_done += 1
                if time.monotonic() >= ends_s:
                    break
            index.write_counts()
    with index.begin_write():
        if index.get_meta(key) != token or not is_valid():
            return None
        _end_run(index, run, parsed, scope)
        index.db.execute("DELETE FROM meta WHERE key = ?", (key,))
    return n_chunks


def _begin_run(
    index: IndexConnection, run: Run, parsed: ParsedLines, rows: Sequence[RunRow]
) -> tuple[ChunkScope, list[tuple[int, TurnRow]]]:
    """Insert a run and its sidechains without their turns; return the scope, and each turn with its run's number."""
    _delete_run(index, run)
    index.db.execute("DELETE FROM meta WHERE key = ?", (f"part:{run.run_id}",))
    scope = _build_scope(index, run)
    if _is_of_known_session(index, run, scope):
        rows = [replace(row, turns=(), title="", intent="", n_calls=0, n_tokens=0) for row in rows]
    numbered_rows = [(_insert_run(index, run, parsed, row, scope), row) for row in rows]
    return scope, [(number, turn) for number, row in numbered_rows for turn in row.turns]


def _end_run(index: IndexConnection, run: Run, parsed: ParsedLines, scope: ChunkScope) -> None:
    if parsed.links:
        _mark_abandoned_turns(index, run, parsed)
    if parsed.turns or parsed.n_forgotten:
        _empty_prompts_only(index, run, scope)
    index.write_counts()


def _is_of_known_session(index: IndexConnection, run: Run, scope: ChunkScope) -> bool:
    """Return True if a run holds only prompts, of a session whose transcript is in the index."""
    client = run.source.runtime.removesuffix(PROMPTS_ONLY)
    if client == run.source.runtime:
        return False
    query = """SELECT EXISTS (SELECT 1 FROM run WHERE user = ? AND runtime = ? AND session = ?
        AND n_turns + n_forgotten > 0)"""
    ((is_known,),) = index.select(query, scope.user, index.find_name("runtime", client), run.source.session)
    return bool(is_known)


def _empty_prompts_only(index: IndexConnection, run: Run, scope: ChunkScope) -> None:
    """Delete the turns that only repeat the prompts of this run's session; the archive keeps their bytes."""
    runtime = index.find_name("runtime", run.source.runtime + PROMPTS_ONLY)
    if runtime is None:
        return
    query = "SELECT id FROM run WHERE user = ? AND runtime = ? AND session = ? AND n_turns > 0"
    for (number,) in index.select(query, scope.user, runtime, run.source.session):
        for (turn,) in index.select("SELECT id FROM turn WHERE content_run = ?", number):
            _delete_turn(index, turn)
        index.db.execute("UPDATE run SET n_turns = 0, n_user = 0, title = '', intent = '' WHERE id = ?", (number,))


def _build_scope(index: IndexConnection, run: Run) -> ChunkScope:
    source = run.source
    scope = ChunkScope(
        index.add_name("user", source.user),
        index.add_name("project", run.project or ""),
        index.add_name("conversation", run.conversation),
        index.add_name("runtime", source.runtime),
        index.add_name("machine", run.machine),
        index.add_name("agent", run.agent),
        tuple(index.add_name("tag", tag) for tag in run.tags),
        source,
    )
    index.hold_names(scope.user, (*scope[1:6], *scope.tags))
    return scope


def _insert_run(index: IndexConnection, run: Run, parsed: ParsedLines, row: RunRow, scope: ChunkScope) -> int:
    source, is_main = run.source, not row.thread
    values = {
        "run_id": row.run_id,
        "captured_in": run.run_id,
        "thread": row.thread,
        **{name: getattr(scope, name) for name in _SCOPE_COLUMNS},
        "session": source.session,
        "generation": source.generation,
        "from_offset": run.from_offset,
        "to_offset": run.to_offset,
        "stored_sha256": get_stored_sha256(run),
        "started_ms": row.started_ms,
        "ended_ms": row.ended_ms,
        "captured_ms": to_ms(run.captured_at),
        "parent_run_id": run.parent_run_id if is_main else run.run_id,
        "parent_session": run.parent_session,
        "fork": bool(run.fork and is_main),
        "path": run.path,
        "cwd": run.cwd,
        "readable_by": " ".join(run.readable_by),
        "title": row.title,
        "intent": row.intent,
        "n_turns": len(row.turns),
        "n_user": row.count_role("user"),
        "n_assistant": row.count_role("assistant"),
        "n_tool": row.count_role("tool"),
        "n_calls": row.n_calls,
        "n_tokens": row.n_tokens,
        "n_forgotten": parsed.n_forgotten if is_main else 0,
        "n_malformed": len(parsed.malformed) if is_main else 0,
        "skipped": msgspec.json.encode(parsed.skipped if is_main else {}).decode(),
    }
    columns, marks = ", ".join(values), ", ".join("?" * len(values))
    number = index.insert(f"INSERT INTO run({columns}) VALUES ({marks})", tuple(values.values()))
    index.db.executemany("INSERT OR IGNORE INTO run_tag VALUES (?, ?)", [(tag, number) for tag in scope.tags])
    return number


def _write_turn(index: IndexConnection, run: Run, number: int, row: TurnRow, scope: ChunkScope) -> int:
    """Insert a turn; if a copy of it is in the index, replace that copy or leave it. Return the number of
    chunks written.
    """
    indexed_turn = _find_indexed_turn(index, row)
    if indexed_turn is None:
        return _insert_turn(index, number, row, scope, turn_id=row.turn_id, offset=row.turn.offset)
    new_session = (run.source.session, run.source.generation)
    indexed_session = (indexed_turn.session, indexed_turn.generation)
    if new_session == indexed_session and indexed_turn.turn_id != row.turn_id:
        first_offset, first_id = min((indexed_turn.offset, indexed_turn.turn_id), (row.turn.offset, row.turn_id))
        if row.turn.offset < indexed_turn.content_offset:
            _move_turn(index, indexed_turn.id, first_offset, first_id)
            return 0
        _delete_turn(index, indexed_turn.id)
        return _insert_turn(index, number, row, scope, turn_id=first_id, offset=first_offset)
    if (new_session, run.run_id) < (indexed_session, indexed_turn.run_id):
        _delete_turn(index, indexed_turn.id)
        return _insert_turn(index, number, row, scope, turn_id=row.turn_id, offset=row.turn.offset)
    return 0


def _find_indexed_turn(index: IndexConnection, row: TurnRow) -> _IndexedTurn | None:
    """Return the turn in the index that is a copy of this one, or else the turn with its id."""
    rows = index.db.execute(_SELECT_INDEXED_TURN, (row.copy_key, row.turn_id))
    return next(map(_IndexedTurn._make, rows), None)


def _insert_turn(
    index: IndexConnection, number: int, row: TurnRow, scope: ChunkScope, *, turn_id: str, offset: int
) -> int:
    turn = row.turn
    if row.is_said:
        _drop_vectors_after(index, row.thread, offset)
    key = index.insert(
        """INSERT INTO turn(turn_id, copy_key, run, offset, content_run, content_offset, role, author, stated_ms,
           model, n_tokens, is_summary, entry, thread, said, speaker)
           VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)""",
        (
            turn_id,
            row.copy_key,
            number,
            offset,
            number,
            turn.offset,
            turn.role,
            turn.author,
            row.stated_ms,
            turn.model,
            turn.n_tokens,
            turn.is_summary,
            turn.link[0] if turn.link else None,
            row.thread,
            row.is_said,
            row.speaker,
        ),
    )
    facets = [index.add_facet(kind, value, scope.user) for kind, value in row.facets]
    index.db.executemany("INSERT OR IGNORE INTO turn_facet VALUES (?, ?)", [(facet, key) for facet in facets])
    if scope.source is not None and scope.source.runtime == WORKFLOW_RUNTIME:
        workflow_rows.add_turn(index, key, scope.source, role=turn.role, at_ms=row.stated_ms or 0, offset=offset)
    role = index.add_name("role", row.filter_role)
    for chunk in row.chunks:
        insert_chunk(index, number, key, chunk, scope, role, row.stated_ms)
    for fact in row.facts:
        _insert_fact(index, key, row, fact, scope)
    index.db.executemany(
        "INSERT INTO picture(turn, n, digest) VALUES (?, ?, ?)",
        [(key, n, digest) for n, digest in enumerate(row.pictures)],
    )
    return len(row.chunks)


def _insert_fact(index: IndexConnection, turn: int, row: TurnRow, fact: FactRow, scope: ChunkScope) -> None:
    """Insert a fact of action of a turn, under each of its keys. turn: the number of the turn."""
    number = index.insert(
        "INSERT INTO fact(turn, thread, place, n, kind, text, detail) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (turn, row.thread, row.turn.offset, fact.n, fact.kind, fact.text, fact.detail),
    )
    index.db.executemany(
        "INSERT OR IGNORE INTO fact_key VALUES (?, ?, ?)", [(key, scope.project, number) for key in fact.keys]
    )


def insert_chunk(
    index: IndexConnection, run: int, turn: int, chunk: ChunkRow, scope: ChunkScope, role: int, stated_ms: int | None
) -> None:
    """Insert a chunk of a turn, or the one chunk of a memory; then `turn` is its negative number, and run is
    0.
    """
    kind = index.add_name("kind", chunk.kind)
    numbers = [*scope[1:6], role, kind, *scope.tags]
    key = index.insert(
        """INSERT INTO chunk(turn, n, tie, user, run, project, conversation, runtime, machine, agent, role, kind,
           stated_ms) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)""",
        (
            turn,
            chunk.n,
            chunk.tie,
            scope.user,
            run,
            scope.project,
            scope.conversation,
            scope.runtime,
            scope.machine,
            scope.agent,
            role,
            kind,
            stated_ms,
        ),
    )
    scope_words = " ".join(map(to_scope_token, numbers))
    index.add_text(scope.user, key, chunk.text, scope_words)
    index.add_to_counts(scope.user, [scope.user, *numbers], 1)


def _delete_turn(index: IndexConnection, turn: int) -> None:
    """Delete a turn from every table; its words leave the full-text index by their exact text."""
    for thread, offset in index.select("SELECT thread, offset FROM turn WHERE id = ?", turn):
        _drop_vectors_after(index, thread, offset)
    delete_chunks(index, turn)
    facets = index.db.execute("DELETE FROM turn_facet WHERE turn = ? RETURNING facet", (turn,)).fetchall()
    unused = "DELETE FROM facet WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM turn_facet WHERE facet = ?1)"
    index.db.executemany(unused, facets)
    for key, project, number in index.select(
        "SELECT key, project, fact FROM fact_key WHERE fact IN (SELECT id FROM fact WHERE turn = ?)", turn
    ):
        index.db.execute("DELETE FROM fact_key WHERE key = ? AND project = ? AND fact = ?", (key, project, number))
    index.db.execute("DELETE FROM fact WHERE turn = ?", (turn,))
    index.db.execute("INSERT OR IGNORE INTO gone_picture SELECT digest FROM picture WHERE turn = ?", (turn,))
    index.db.execute("DELETE FROM picture WHERE turn = ?", (turn,))
    workflow_rows.delete_turn(index, turn)
    index.db.execute("DELETE FROM turn WHERE id = ?", (turn,))


def delete_chunks(index: IndexConnection, turn: int, *, kind: str = "") -> None:
    """Delete the chunks of a turn (or of a memory, by its negative number) from every table. kind: only these."""
    query = """SELECT chunk.id, user, text, scope FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id
        WHERE turn = ? AND (? = '' OR kind = ?)"""
    rows = index.select(query, turn, kind, index.find_name("kind", kind))
    embedded_texts = read_embedded_texts(index, [row[0] for row in rows])
    for key, user, chunk_text, scope in rows:
        index.delete_text(user, key, chunk_text, scope)
        index.db.execute("DELETE FROM chunk WHERE id = ?", (key,))
        _delete_vectors(index, key, embedded_texts[key])
        index.add_to_counts(user, [user, *(int(scope_word.strip("z")) for scope_word in scope.split())], -1)


def _move_turn(index: IndexConnection, turn: int, offset: int, turn_id: str) -> None:
    """Give a turn another place in its thread, and the id of that place."""
    ((thread, old_offset),) = index.select("SELECT thread, offset FROM turn WHERE id = ?", turn)
    _drop_vectors(index, turn)
    for place in (old_offset, offset):
        _drop_vectors_after(index, thread, place)
    index.db.execute("UPDATE turn SET offset = ?, turn_id = ? WHERE id = ?", (offset, turn_id, turn))


def _drop_vectors_after(index: IndexConnection, thread: int, offset: int) -> None:
    """Drop the vectors of the first turn behind a place in a thread, before the turn at that place changes: they are
    made from the words of both.
    """
    query = "SELECT id FROM turn WHERE thread = ? AND offset > ? AND said ORDER BY offset LIMIT 1"
    for (turn_after,) in index.select(query, thread, offset):
        _drop_vectors(index, turn_after)


def _drop_vectors(index: IndexConnection, turn: int) -> None:
    """Drop the vectors of the turn's short texts; they are embedded again, with the turn that is then before them."""
    chunks = [chunk for (chunk,) in index.select("SELECT id FROM chunk WHERE turn = ?", turn)]
    for chunk, embedded in read_embedded_texts(index, chunks).items():
        if embedded.is_short:
            lists_again = "UPDATE slab SET n_left = n_left + 1 WHERE id IN (SELECT slab FROM vector WHERE chunk = ?)"
            index.db.execute(lists_again, (chunk,))
            _delete_vectors(index, chunk, embedded)


def _delete_vectors(index: IndexConnection, chunk: int, embedded: EmbeddedText) -> None:
    """Turn a chunk's rows in the slabs into holes, and record the hashes of its text for the embedding cache."""
    index.db.execute("INSERT INTO hole(slab, row) SELECT slab, row FROM vector WHERE chunk = ? AND row >= 0", (chunk,))
    index.db.execute("DELETE FROM vector WHERE chunk = ?", (chunk,))
    index.record_gone(hash_embedded_text(words) for words in {embedded.text, embedded.text_alone})


def _delete_run(index: IndexConnection, run: Run) -> None:
    """Delete what an earlier projection of this captured run wrote."""
    numbers = [row[0] for row in index.db.execute("SELECT id FROM run WHERE captured_in = ?", (run.run_id,))]
    if numbers:
        _release_turn_ids(index, run)
    for number in numbers:
        for (turn,) in index.select("SELECT id FROM turn WHERE content_run = ?", number):
            _delete_turn(index, turn)
        index.db.execute("DELETE FROM run_tag WHERE run = ?", (number,))
        index.db.execute("DELETE FROM run WHERE id = ?", (number,))


def _release_turn_ids(index: IndexConnection, run: Run) -> None:
    """Let newer states of messages give back the places that they took over from this run.

    The run is written again: a message that is still there is joined to its newer state again, and another one
    gets the place.
    """
    source = run.source
    query = """SELECT turn.id, content_offset FROM turn JOIN run ON run.id = turn.content_run
        WHERE user = ? AND runtime = ? AND session = ? AND generation = ? AND captured_in <> ?
        AND turn.offset >= ? AND turn.offset < ? AND turn.offset <> content_offset"""
    user, runtime = index.add_name("user", source.user), index.add_name("runtime", source.runtime)
    where = (user, runtime, source.session, source.generation, run.run_id, run.from_offset, run.to_offset)
    for turn, offset in index.select(query, *where):
        _move_turn(index, turn, offset, make_turn_id(source, offset))


def _mark_abandoned_turns(index: IndexConnection, run: Run, parsed: ParsedLines) -> None:
    """Mark the turns of a tree-shaped source that its last entry does not lead back to."""
    source: Source = run.source
    first_link = run.from_offset * _LINKS_PER_RUN
    index.db.execute(
        "DELETE FROM link WHERE source = ? AND n >= ? AND n < ?", (source.key, first_link, first_link + _LINKS_PER_RUN)
    )
    index.db.executemany(
        "INSERT INTO link VALUES (?, ?, ?, ?)",
        [(source.key, first_link + i, entry, parent) for i, (entry, parent) in enumerate(parsed.links)],
    )
    links = index.select("SELECT entry, parent FROM link WHERE source = ? ORDER BY n", source.key)
    abandoned_entries = formats.find_abandoned([(entry, parent) for entry, parent in links])
    query = """SELECT turn.id, entry, abandoned FROM turn JOIN run ON run.id = turn.run
        WHERE run.user = (SELECT user FROM run WHERE run_id = ?1) AND session = ?2 AND generation = ?3
        AND entry IS NOT NULL"""
    turn_rows = index.select(query, run.run_id, source.session, source.generation)
    changes = [
        (entry in abandoned_entries, key)
        for key, entry, was_abandoned in turn_rows
        if bool(was_abandoned) != (entry in abandoned_entries)
    ]
    index.db.executemany("UPDATE turn SET abandoned = ? WHERE id = ?", changes)
