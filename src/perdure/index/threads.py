"""Threads: the turns of one session, or of one sidechain in it, read page by page in their order.

A thread says where each turn stands and what it is, never its words, so that a session of any length
opens at any point for the price of one page. The order is (generation, offset of the first line),
whichever runs captured it. Reads only, and only what the principal may read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from perdure.access.redact import mask
from perdure.errors import NotFound
from perdure.identity import is_run_id
from perdure.index import memory_rows, visibility
from perdure.index.encoding import from_ms
from perdure.index.projection import compute_copy_key
from perdure.index.store import IndexConnection
from perdure.types import Memory, Principal, Role

TURN_CHOICES = {  # choice of turns -> its test of the table's columns
    "": "TRUE",
    "person": "turn.author = 'person'",
    "words": "turn.role <> 'tool' AND (turn.said OR turn.role <> 'assistant')",
}
_IS_IN_THREAD = "run.user = ?1 AND run.runtime = ?2 AND run.session = ?3 AND run.thread = ?4 AND {seen}"
_MAX_SPAWNED = 1000  # sub-agents of one thread; its tree shows more

_FIRST_RUNS = """SELECT run_id, intent, started_ms, n_turns FROM (
    SELECT run.run_id, run.intent, run.started_ms, sum(run.n_turns) OVER (PARTITION BY {group}) AS n_turns,
      row_number() OVER (PARTITION BY {group} ORDER BY run.run_id) AS place FROM {source}) AS numbered
    WHERE place = 1 LIMIT ?4"""  # the first run of each group, with the turns of all
_SIDECHAINS = _FIRST_RUNS.format(
    group="run.generation, run.thread",
    source="""run
      WHERE run.user = ?1 AND run.runtime = ?2 AND run.session = ?3 AND run.thread <> '' AND {seen}""",
)
_SPAWNED_SESSIONS = """WITH linked(runtime, session) AS (
      SELECT run.runtime, run.session FROM run WHERE run.user = ?1 AND run.runtime = ?2 AND run.parent_session = ?3
        AND coalesce(run.parent_run_id, '') = '' AND run.thread = '' AND NOT run.fork AND {seen}
      UNION SELECT child.runtime, child.session FROM run
        CROSS JOIN run AS child INDEXED BY run_child ON child.parent_run_id = run.run_id AND child.user = run.user
        WHERE run.user = ?1 AND run.runtime = ?2 AND run.session = ?3 AND run.thread = '' AND child.thread = ''
          AND NOT child.fork AND {seen})
    """ + _FIRST_RUNS.format(
    group="run.runtime, run.session",
    source="""linked CROSS JOIN run ON run.runtime = linked.runtime AND run.session = linked.session
      WHERE run.user = ?1 AND run.thread = '' AND (run.runtime, run.session) <> (?2, ?3) AND {seen}""",
)
# the parent run of a thread: the captured run that holds a sidechain, a named run, or one of the parent session
_HOLDS_SIDECHAIN = "own.run_id = ?1 AND run.run_id = own.captured_in AND run.id <> own.id"
_IS_NAMED_PARENT = "run.run_id = own.parent_run_id AND (run.runtime, run.session) <> (?3, ?4)"
_IS_PARENT_SESSION = """own.run_id = ?1 AND coalesce(own.parent_run_id, '') = '' AND run.runtime = ?3
    AND run.session = own.parent_session AND run.thread = ''
    AND run.id <> own.id"""


class ThreadPosition(NamedTuple):
    """The position of a turn in its thread; positions sort as the turns do."""

    generation: int
    offset: int


THREAD_START = ThreadPosition(-1, -1)


class ThreadTurn(NamedTuple):
    """A turn of a thread and its position."""

    number: int  # its row in the index
    turn_id: str
    position: ThreadPosition
    captured_in: str  # the captured run that holds its bytes
    offset: int  # of its first line in that run
    role: Role
    author: str
    stated_at: datetime | None
    is_abandoned: bool


@dataclass(frozen=True, slots=True)
class SpawnedAgent:
    """A sub-agent that began in a thread, by its first run."""

    run_id: str
    intent: str
    started_at: datetime | None
    n_turns: int


@dataclass(frozen=True, slots=True)
class ThreadSummary:
    """The sums over all runs of a thread."""

    n_runs: int
    n_turns: int
    n_calls: int
    n_tokens: int
    n_bytes: int
    started_at: datetime | None
    ended_at: datetime | None
    title: str  # the last title that the client set
    intent: str  # of its first run
    n_forgotten: int
    n_malformed: int
    skipped: Mapping[str, int]  # line type -> lines left out on purpose, most first
    models: tuple[str, ...]
    tags: tuple[str, ...]


class _RunTotals(NamedTuple):
    """The fields of one run that are summed up."""

    n_turns: int
    n_calls: int
    n_tokens: int
    n_bytes: int
    started_ms: int | None
    ended_ms: int | None
    title: str
    intent: str
    n_forgotten: int
    n_malformed: int
    skipped: str


class SessionThread:
    """The thread to which a run or a turn belongs."""

    def __init__(self, index: IndexConnection, principal: Principal, identifier: str) -> None:
        """name: id of a run or of a turn. Raises NotFound."""
        self._index, self._principal = index, principal
        test = "run.run_id = ?" if is_run_id(identifier) else "run.id = (SELECT run FROM turn WHERE turn_id = ?)"
        rows = self._select(
            f"""SELECT run.run_id, run.user, run.runtime, run.session, run.thread, run.generation, run.from_offset
                FROM run WHERE {test} AND {{seen}}""",
            identifier,
        )
        if not rows:
            raise NotFound(identifier)
        self.run_id: str = rows[0][0]
        self.start = ThreadPosition(*rows[0][5:])  # where the run begins
        self._key = rows[0][1:5]

    def _select(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return rows of a query; `{seen}` in it stands for the test of what the principal may read of `run`."""
        with self._index.begin_read():
            read_scope = visibility.get_read_scope(self._index, self._principal)
            return self._index.select(query.format(seen=read_scope.build_run_test()), *values)

    def find_position(self, turn_id: str) -> ThreadPosition:
        """Return the position of a turn in this thread. Raises NotFound when the turn is not in it."""
        rows = self._select(
            f"""SELECT run.generation, turn.offset FROM turn JOIN run ON run.id = turn.run
                WHERE turn.turn_id = ?5 AND {_IS_IN_THREAD}""",
            *self._key,
            turn_id,
        )
        if not rows:
            raise NotFound(turn_id)
        return ThreadPosition(*rows[0])

    def list_from(self, position: ThreadPosition, k: int, choice: str = "") -> list[ThreadTurn]:
        """Return the first k turns at or after a position, in order. choice: one of TURN_CHOICES."""
        return self._list_turns("(run.generation, turn.offset) >= (?5, ?6)", "ASC", position, k, choice)

    def list_before(self, position: ThreadPosition, k: int, choice: str = "") -> list[ThreadTurn]:
        """Return the last k turns before a position, in order. choice: one of TURN_CHOICES."""
        return self._list_turns("(run.generation, turn.offset) < (?5, ?6)", "DESC", position, k, choice)[::-1]

    def _list_turns(self, test: str, order: str, position: ThreadPosition, k: int, choice: str) -> list[ThreadTurn]:
        rows = self._select(
            f"""WITH piece(id, generation, place) AS (
                  SELECT turn.id, run.generation, turn.offset FROM run JOIN turn ON turn.run = run.id
                  WHERE {_IS_IN_THREAD} AND {test} AND {TURN_CHOICES[choice]}
                  ORDER BY run.generation {order}, turn.offset {order} LIMIT ?7)
                SELECT turn.id, turn_id, piece.generation, place, holding.captured_in, content_offset, role, author,
                  stated_ms, abandoned
                FROM piece JOIN turn ON turn.id = piece.id JOIN run AS holding ON holding.id = turn.content_run
                ORDER BY piece.generation {order}, place {order}""",
            *self._key,
            *position,
            k,
        )
        return [
            ThreadTurn._make((row[0], row[1], ThreadPosition(row[2], row[3]), *row[4:8], from_ms(row[8]), bool(row[9])))
            for row in rows
        ]

    def count_before(self, position: ThreadPosition) -> int:
        """Count the turns before a position."""
        query = f"""SELECT count(*) FROM run JOIN turn ON turn.run = run.id
            WHERE {_IS_IN_THREAD} AND (run.generation, turn.offset) < (?5, ?6)"""
        return int(self._select(query, *self._key, *position)[0][0])

    def summarise(self) -> ThreadSummary:
        """Return the sums over its runs."""
        rows = self._select(
            f"""SELECT n_turns, n_calls, n_tokens, to_offset - from_offset, started_ms, ended_ms, title, intent,
                  n_forgotten, n_malformed, skipped FROM run WHERE {_IS_IN_THREAD} ORDER BY generation, from_offset""",
            *self._key,
        )
        runs = [_RunTotals._make(row) for row in rows]
        return ThreadSummary(
            n_runs=len(runs),
            n_turns=sum(run.n_turns for run in runs),
            n_calls=sum(run.n_calls for run in runs),
            n_tokens=sum(run.n_tokens for run in runs),
            n_bytes=sum(run.n_bytes for run in runs),
            started_at=from_ms(min((run.started_ms for run in runs if run.started_ms is not None), default=None)),
            ended_at=from_ms(max((run.ended_ms for run in runs if run.ended_ms is not None), default=None)),
            title=next((mask(run.title) for run in reversed(runs) if run.title), ""),
            intent=next((mask(run.intent) for run in runs if run.intent), ""),
            n_forgotten=sum(run.n_forgotten for run in runs),
            n_malformed=sum(run.n_malformed for run in runs),
            skipped=_add_counts([run.skipped for run in runs]),
            models=self._list_models(),
            tags=self._list_tags(),
        )

    def _list_models(self) -> tuple[str, ...]:
        query = f"""SELECT DISTINCT model FROM run JOIN turn ON turn.run = run.id
            WHERE {_IS_IN_THREAD} AND model <> '' ORDER BY model"""
        return tuple(model for (model,) in self._select(query, *self._key))

    def _list_tags(self) -> tuple[str, ...]:
        query = f"""SELECT DISTINCT value FROM run JOIN run_tag ON run_tag.run = run.id JOIN name ON name.id = tag
            WHERE {_IS_IN_THREAD} ORDER BY value"""
        return tuple(mask(tag) for (tag,) in self._select(query, *self._key))

    def list_spawned(self) -> list[SpawnedAgent]:
        """Return the sub-agents that began in it, oldest first, each once, however many runs captured it."""
        queries = () if self._key[3] else (_SIDECHAINS, _SPAWNED_SESSIONS)
        rows = [row for query in queries for row in self._select(query, *self._key[:3], _MAX_SPAWNED)]
        rows.sort(key=lambda row: (row[2] or 0, row[0]))
        return [SpawnedAgent(row[0], mask(row[1]), from_ms(row[2]), row[3]) for row in rows]

    def find_parent_run(self) -> str | None:
        """Return a run of the session that spawned it, or from which it was forked; None at the top."""
        for test in (_HOLDS_SIDECHAIN,) if self._key[3] else (_IS_NAMED_PARENT, _IS_PARENT_SESSION):
            rows = self._select(
                f"""SELECT run.run_id FROM run AS own CROSS JOIN run ON run.user = own.user
                    WHERE own.user = ?2 AND own.runtime = ?3 AND own.session = ?4 AND own.thread = ?5 AND {test}
                      AND {{seen}} ORDER BY run.generation, run.from_offset LIMIT 1""",
                self.run_id,
                *self._key,
            )
            if rows:
                return str(rows[0][0])
        return None

    def find_copy(self, user: str, runtime: str, native_id: str) -> str | None:
        """Return the turn that stands for a message which the client wrote into several files; None when there is
        none.
        """
        rows = self._select(
            "SELECT turn_id FROM turn JOIN run ON run.id = turn.run WHERE copy_key = ? AND {seen}",
            compute_copy_key(user, runtime, native_id),
        )
        return rows[0][0] if rows else None

    def find_memories(self, turns: Sequence[int]) -> dict[int, list[Memory]]:
        """Return turn number -> the memories that were made from the turn."""
        with self._index.begin_read():
            read_scope = visibility.get_read_scope(self._index, self._principal)
            numbers_by_turn = memory_rows.find_numbers_by_turn(self._index, turns)
            memory_by_number = memory_rows.list_readable(
                self._index, read_scope, sorted({number for numbers in numbers_by_turn.values() for number in numbers})
            )
        memories_by_turn = {
            turn: [memory_by_number[number] for number in dict.fromkeys(numbers) if number in memory_by_number]
            for turn, numbers in numbers_by_turn.items()
        }
        return {turn: turn_memories for turn, turn_memories in memories_by_turn.items() if turn_memories}


def _add_counts(counts: Sequence[str]) -> dict[str, int]:
    """Add up counts by name, given as JSON; most first."""
    total: Counter[str] = Counter()
    for encoded in counts:
        if encoded != "{}":
            total.update(msgspec.json.decode(encoded, type=dict[str, int]))
    return dict(total.most_common())
