"""Writing projected rows into the index. Applying the same run twice changes nothing.

Two runs may hold the same message (a fork copies history, homes were merged). It is indexed once: the copy of
the source that sorts first stands; within one source a later line with the same native id is a newer state of
the message and replaces the content, while its place and id stay. So the outcome does not depend on the order
in which runs arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perdure import formats
from perdure.archive.archive import stored_sha256
from perdure.index.rows import ChunkRow, RunRow, TurnRow
from perdure.index.store import Connection
from perdure.index.values import ms, scope_token
from perdure.index.wording import name_of, worded
from perdure.text import index_terms
from perdure.types import Parsed, Run, Source

MACHINE = "machine"  # the role that filters know for user turns which nobody typed: notices, environments
_LINKS_PER_RUN = 1 << 20  # tree entries of one run are numbered from_offset * this + i
_DIMENSIONS = ("user", "project", "conversation", "runtime", "machine", "agent")


class Scope(NamedTuple):
    """The numbers of the names that filter a run's chunks."""

    user: int
    project: int  # of "" for what has none
    conversation: int
    runtime: int
    machine: int
    agent: int
    tags: tuple[int, ...]


class _Standing(NamedTuple):
    """A turn that is in the index already."""

    id: int
    turn_id: str
    offset: int
    content_offset: int
    session: str
    generation: int
    run_id: str


_STANDING = """SELECT turn.id, turn_id, offset, content_offset, session, generation, run.captured_in
  FROM turn JOIN run ON run.id = turn.content_run WHERE turn.id = coalesce(
    (SELECT id FROM turn WHERE copy_key = ?), (SELECT id FROM turn WHERE turn_id = ?))"""  # one OR costs ten times more


def knows(index: Connection, run_id: str) -> bool:
    """Whether this run stands in the index, with whatever bytes; asked first, as it needs no file."""
    return next(iter(index.db.execute("SELECT 1 FROM run WHERE run_id = ?", (run_id,))), None) is not None


def has(index: Connection, run: Run) -> bool:
    """Whether this run stands in the index with these very bytes."""
    rows = index.db.execute("SELECT stored_sha256, to_offset FROM run WHERE run_id = ?", (run.run_id,))
    return next(iter(rows), None) == (stored_sha256(run), run.to_offset)


def write_run(index: Connection, run: Run, parsed: Parsed, rows: Sequence[RunRow]) -> int:
    """Put one captured run (and its sidechains) into the index; returns the number of chunks written."""
    _remove(index, run.run_id)
    scope = _scope(index, run)
    n_chunks = 0
    for row in rows:
        number = _insert_run(index, run, parsed, row, scope)
        n_chunks += sum(_write_turn(index, run, number, turn, scope) for turn in row.turns)
    if parsed.links:
        _mark_branches(index, run, parsed)
    index.settle_counts()
    return n_chunks


def _scope(index: Connection, run: Run) -> Scope:
    source = run.source
    return Scope(
        index.name("user", source.user),
        index.name("project", run.project or ""),
        index.name("conversation", run.conversation),
        index.name("runtime", source.runtime),
        index.name("machine", run.machine),
        index.name("agent", run.agent),
        tuple(index.name("tag", tag) for tag in run.tags),
    )


def _insert_run(index: Connection, run: Run, parsed: Parsed, row: RunRow, scope: Scope) -> int:
    source, main = run.source, not row.thread
    values = {
        "run_id": row.run_id, "captured_in": run.run_id, "thread": row.thread,
        **{name: getattr(scope, name) for name in _DIMENSIONS},
        "session": source.session, "generation": source.generation,
        "from_offset": run.from_offset, "to_offset": run.to_offset, "stored_sha256": stored_sha256(run),
        "started_ms": row.started_ms, "ended_ms": row.ended_ms, "captured_ms": ms(run.captured_at),
        "parent_run_id": run.parent_run_id if main else run.run_id, "parent_session": run.parent_session,
        "fork": int(run.fork and main), "path": run.path, "cwd": run.cwd,
        "readable_by": " ".join(run.readable_by), "title": row.title, "intent": row.intent,
        "n_turns": len(row.turns), "n_user": row.count("user"), "n_assistant": row.count("assistant"),
        "n_tool": row.count("tool"), "n_calls": row.n_calls, "n_tokens": row.n_tokens,
        "n_forgotten": parsed.n_forgotten if main else 0, "n_malformed": len(parsed.malformed) if main else 0,
        "skipped": msgspec.json.encode(parsed.skipped if main else {}).decode(),
    }  # fmt: skip
    columns, marks = ", ".join(values), ", ".join("?" * len(values))
    index.db.execute(f"INSERT INTO run({columns}) VALUES ({marks})", tuple(values.values()))
    number = index.db.last_insert_rowid()
    index.db.executemany("INSERT OR IGNORE INTO run_tag VALUES (?, ?)", [(tag, number) for tag in scope.tags])
    return number


def _write_turn(index: Connection, run: Run, number: int, row: TurnRow, scope: Scope) -> int:
    """Insert a turn, or let it replace or give way to the copy that stands; returns chunks written."""
    standing = _standing(index, row)
    if standing is None:
        return _insert_turn(index, number, row, scope, turn_id=row.turn_id, offset=row.turn.offset)
    ours = (run.source.session, run.source.generation)
    theirs = (standing.session, standing.generation)
    if ours == theirs and standing.turn_id != row.turn_id:
        first_offset, first_id = min((standing.offset, standing.turn_id), (row.turn.offset, row.turn_id))
        if row.turn.offset < standing.content_offset:
            index.db.execute(
                "UPDATE turn SET offset = ?, turn_id = ? WHERE id = ?", (first_offset, first_id, standing.id)
            )
            return 0
        _delete_turn(index, standing.id)
        return _insert_turn(index, number, row, scope, turn_id=first_id, offset=first_offset)
    if (ours, run.run_id) < (theirs, standing.run_id):
        _delete_turn(index, standing.id)
        return _insert_turn(index, number, row, scope, turn_id=row.turn_id, offset=row.turn.offset)
    return 0


def _standing(index: Connection, row: TurnRow) -> _Standing | None:
    """The turn in the index that is a copy of this one, or else has its id."""
    return next((_Standing._make(found) for found in index.db.execute(_STANDING, (row.copy_key, row.turn_id))), None)


def _insert_turn(index: Connection, number: int, row: TurnRow, scope: Scope, *, turn_id: str, offset: int) -> int:
    turn = row.turn
    index.db.execute(
        """INSERT INTO turn(turn_id, copy_key, run, offset, content_run, content_offset, role, author, stated_ms,
           model, n_tokens, is_summary, entry, thread, said, speaker)
           VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)""",
        (
            turn_id, row.copy_key, number, offset, number, turn.offset, turn.role, turn.author, row.stated_ms,
            turn.model, turn.n_tokens, int(turn.is_summary), turn.link[0] if turn.link else None,
            row.thread, int(row.is_said), row.speaker,
        ),
    )  # fmt: skip
    key = index.db.last_insert_rowid()
    for kind, value in row.facets:
        facet = index.facet(kind, value)
        index.db.execute("INSERT OR IGNORE INTO turn_facet VALUES (?, ?)", (facet, key))
    role = index.name("role", MACHINE if turn.role == "user" and turn.author == "machine" else turn.role)
    for chunk in row.chunks:
        insert_chunk(index, number, key, chunk, scope, role, row.stated_ms)
    return len(row.chunks)


def insert_chunk(
    index: Connection, run: int, turn: int, chunk: ChunkRow, scope: Scope, role: int, stated_ms: int | None
) -> None:
    """Insert a piece of a turn, or a memory as its one piece: then `turn` is its number below zero, and run is 0."""
    kind = index.name("kind", chunk.kind)
    numbers = [*scope[1:6], role, kind, *scope.tags]
    index.db.execute(
        """INSERT INTO chunk(turn, n, tie, user, run, project, conversation, runtime, machine, agent, role, kind,
           stated_ms) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)""",
        (
            turn, chunk.n, chunk.tie, scope.user, run, scope.project, scope.conversation, scope.runtime, scope.machine,
            scope.agent, role, kind, stated_ms,
        ),
    )  # fmt: skip
    key = index.db.last_insert_rowid()
    words = " ".join(map(scope_token, numbers))
    index.db.execute("INSERT INTO chunk_text VALUES (?, ?, ?)", (key, chunk.text, words))
    index.db.execute(
        f'INSERT INTO "words_{scope.user}"(rowid, text, scope) VALUES (?, ?, ?)', (key, index_terms(chunk.text), words)
    )
    index.count(scope.user, [scope.user, *numbers], 1)


def _delete_turn(index: Connection, turn: int) -> None:
    """Take a turn out of every table; its words leave the full-text index by their exact text."""
    delete_chunks(index, turn)
    facets = index.db.execute("DELETE FROM turn_facet WHERE turn = ? RETURNING facet", (turn,)).fetchall()
    unused = "DELETE FROM facet WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM turn_facet WHERE facet = ?1)"
    index.db.executemany(unused, facets)
    index.db.execute("DELETE FROM turn WHERE id = ?", (turn,))


def delete_chunks(index: Connection, turn: int) -> None:
    """Take the pieces of a turn (or of a memory, by its number below zero) out of every table."""
    query = """SELECT chunk.id, chunk.user, text, scope, author, turn.role, chunk.stated_ms FROM chunk
        JOIN chunk_text ON chunk_text.id = chunk.id LEFT JOIN turn ON turn.id = chunk.turn WHERE chunk.turn = ?"""
    for key, user, text, scope, author, role, stated_ms in index.rows(query, turn):
        index.db.execute(
            f'INSERT INTO "words_{user}"("words_{user}", rowid, text, scope) VALUES (\'delete\', ?, ?, ?)',
            (key, index_terms(text), scope),
        )
        index.db.execute("DELETE FROM chunk WHERE id = ?", (key,))
        index.db.execute("DELETE FROM chunk_text WHERE id = ?", (key,))
        _delete_vectors(index, key, worded(author, role, stated_ms, text))
        index.count(user, [user, *(int(word.strip("z")) for word in scope.split())], -1)


def _delete_vectors(index: Connection, chunk: int, words: str) -> None:
    """A chunk's rows in the slabs count no more, and the name of its words is noted for the embedding cache."""
    index.db.execute("INSERT INTO hole(slab, row) SELECT slab, row FROM vector WHERE chunk = ? AND row >= 0", (chunk,))
    index.db.execute("DELETE FROM vector WHERE chunk = ?", (chunk,))
    last = "(SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'chunk')"
    index.db.execute(f"INSERT OR REPLACE INTO gone VALUES (?, {last})", (name_of(words),))


def _remove(index: Connection, run_id: str) -> None:
    """Take out what an earlier projection of this captured run wrote."""
    numbers = [row[0] for row in index.db.execute("SELECT id FROM run WHERE captured_in = ?", (run_id,))]
    for number in numbers:
        for (turn,) in index.rows("SELECT id FROM turn WHERE content_run = ?", number):
            _delete_turn(index, turn)
        index.db.execute("DELETE FROM run_tag WHERE run = ?", (number,))
        index.db.execute("DELETE FROM run WHERE id = ?", (number,))


def _mark_branches(index: Connection, run: Run, parsed: Parsed) -> None:
    """Find which turns of a tree-shaped source its last entry no longer leads back to."""
    source: Source = run.source
    base = run.from_offset * _LINKS_PER_RUN
    index.db.execute(
        "DELETE FROM link WHERE source = ? AND n >= ? AND n < ?", (source.key, base, base + _LINKS_PER_RUN)
    )
    index.db.executemany(
        "INSERT INTO link VALUES (?, ?, ?, ?)",
        [(source.key, base + i, entry, parent) for i, (entry, parent) in enumerate(parsed.links)],
    )
    links = index.rows("SELECT entry, parent FROM link WHERE source = ? ORDER BY n", source.key)
    gone = formats.abandoned([(entry, parent) for entry, parent in links])
    turns = """SELECT turn.id, entry, abandoned FROM turn JOIN run ON run.id = turn.run
        WHERE run.user = (SELECT user FROM run WHERE run_id = ?1) AND session = ?2 AND generation = ?3
        AND entry IS NOT NULL"""
    found = index.rows(turns, run.run_id, source.session, source.generation)
    changed = [(int(entry in gone), key) for key, entry, was in found if was != int(entry in gone)]
    index.db.executemany("UPDATE turn SET abandoned = ? WHERE id = ?", changed)
