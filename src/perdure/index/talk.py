"""A line of talk: the turns of one session, or of one sidechain in it, found piece by piece in their order.

It says where each turn stands and what it is, never its words, so that a session of any length opens anywhere at the
price of a piece. Order is (generation, offset of the first line), whichever runs captured it. Reads only, and only what
the principal may read.
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
from perdure.index import memories, visible
from perdure.index.project import copy_key
from perdure.index.store import Connection
from perdure.index.values import instant
from perdure.types import Memory, Principal, Role

SHOWN = {  # name of a choice of turns -> its test of the table's columns
    "": "1",
    "person": "turn.author = 'person'",
    "words": "turn.role <> 'tool' AND (turn.said OR turn.role <> 'assistant')",
}
_LINE = "run.user = ?1 AND run.runtime = ?2 AND run.session = ?3 AND run.thread = ?4 AND {seen}"
_MOST_SPAWNED = 1000  # sub-agents of one line of talk; more are read in its tree

_FIRST = "min(run.run_id), run.intent, run.started_ms, sum(run.n_turns)"  # of the first run of a group
_SIDECHAINS = f"""SELECT {_FIRST} FROM run
    WHERE run.user = ?1 AND run.runtime = ?2 AND run.session = ?3 AND run.thread <> '' AND {{seen}}
    GROUP BY run.generation, run.thread LIMIT ?4"""
_SESSIONS = f"""WITH linked(runtime, session) AS (
      SELECT run.runtime, run.session FROM run WHERE run.user = ?1 AND run.runtime = ?2 AND run.parent_session = ?3
        AND coalesce(run.parent_run_id, '') = '' AND run.thread = '' AND NOT run.fork AND {{seen}}
      UNION SELECT child.runtime, child.session FROM run
        CROSS JOIN run AS child INDEXED BY run_child ON child.parent_run_id = run.run_id AND child.user = run.user
        WHERE run.user = ?1 AND run.runtime = ?2 AND run.session = ?3 AND run.thread = '' AND child.thread = ''
          AND NOT child.fork AND {{seen}})
    SELECT {_FIRST} FROM linked CROSS JOIN run
    WHERE run.user = ?1 AND run.runtime = linked.runtime AND run.session = linked.session AND run.thread = ''
      AND (run.runtime, run.session) <> (?2, ?3) AND {{seen}} GROUP BY run.runtime, run.session LIMIT ?4"""
# of the run above a line: the captured one that holds a sidechain; one that was named; one of the parent session
_HOLDS = "own.run_id = ?1 AND run.run_id = own.captured_in AND run.id <> own.id"
_IS_NAMED = "run.run_id = own.parent_run_id AND (run.runtime, run.session) <> (?3, ?4)"
_IS_PARENT = """own.run_id = ?1 AND coalesce(own.parent_run_id, '') = '' AND run.runtime = ?3
    AND run.session = own.parent_session AND run.thread = ''
    AND run.id <> own.id"""


class Place(NamedTuple):
    """Where a turn stands in its line of talk; places sort as the turns do."""

    generation: int
    offset: int


BEGINNING = Place(-1, -1)


class Standing(NamedTuple):
    """A turn by where it stands."""

    number: int  # its row in the index
    turn_id: str
    place: Place
    captured_in: str  # the captured run that holds its words
    offset: int  # of its first line there
    role: Role
    author: str
    stated_at: datetime | None
    is_abandoned: bool


@dataclass(frozen=True, slots=True)
class Spawned:
    """A sub-agent that began in a line of talk, by its first run."""

    run_id: str
    intent: str
    started_at: datetime | None
    n_turns: int


@dataclass(frozen=True, slots=True)
class Whole:
    """What all runs of a line of talk add up to."""

    n_runs: int
    n_turns: int
    n_calls: int
    n_tokens: int
    n_bytes: int
    started_at: datetime | None
    ended_at: datetime | None
    title: str  # the last that the client gave
    intent: str  # of its first run
    n_forgotten: int
    n_malformed: int
    skipped: Mapping[str, int]  # line type -> lines left out on purpose, most first
    models: tuple[str, ...]
    tags: tuple[str, ...]


class _Run(NamedTuple):
    """What is added up of one run."""

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


class Talk:
    """The line of talk in which a run or a turn stands."""

    def __init__(self, index: Connection, principal: Principal, name: str) -> None:
        """name: of a run, or of a turn. Raises NotFound."""
        self._index, self._principal = index, principal
        test = "run.run_id = ?" if is_run_id(name) else "run.id = (SELECT run FROM turn WHERE turn_id = ?)"
        found = self._rows(
            f"""SELECT run.run_id, run.user, run.runtime, run.session, run.thread, run.generation, run.from_offset
                FROM run WHERE {test} AND {{seen}}""",
            name,
        )
        if not found:
            raise NotFound(name)
        self.run_id: str = found[0][0]
        self.start = Place(*found[0][5:])  # where the run begins
        self._key = found[0][1:5]

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of a query; `{seen}` in it is the test of what the principal may read of `run`."""
        with self._index.reading():
            seen = visible.of(self._index, self._principal)
            return self._index.rows(query.format(seen=seen.runs()), *values)

    def place(self, turn_id: str) -> Place:
        """Where a turn stands in this line of talk. Raises NotFound when it does not."""
        found = self._rows(
            f"""SELECT run.generation, turn.offset FROM turn JOIN run ON run.id = turn.run
                WHERE turn.turn_id = ?5 AND {_LINE}""",
            *self._key, turn_id,
        )  # fmt: skip
        if not found:
            raise NotFound(turn_id)
        return Place(*found[0])

    def since(self, place: Place, k: int, shown: str = "") -> list[Standing]:
        """The first k turns at or behind a place, in order. shown: one of SHOWN."""
        return self._standing("(run.generation, turn.offset) >= (?5, ?6)", "ASC", place, k, shown)

    def before(self, place: Place, k: int, shown: str = "") -> list[Standing]:
        """The last k turns before a place, in order. shown: one of SHOWN."""
        return self._standing("(run.generation, turn.offset) < (?5, ?6)", "DESC", place, k, shown)[::-1]

    def _standing(self, test: str, order: str, place: Place, k: int, shown: str) -> list[Standing]:
        found = self._rows(
            f"""WITH piece(id, generation, place) AS (
                  SELECT turn.id, run.generation, turn.offset FROM run JOIN turn ON turn.run = run.id
                  WHERE {_LINE} AND {test} AND {SHOWN[shown]}
                  ORDER BY run.generation {order}, turn.offset {order} LIMIT ?7)
                SELECT turn.id, turn_id, piece.generation, place, holding.captured_in, content_offset, role, author,
                  stated_ms, abandoned
                FROM piece JOIN turn ON turn.id = piece.id JOIN run AS holding ON holding.id = turn.content_run
                ORDER BY piece.generation {order}, place {order}""",
            *self._key, *place, k,
        )  # fmt: skip
        return [
            Standing._make((row[0], row[1], Place(row[2], row[3]), *row[4:8], instant(row[8]), bool(row[9])))
            for row in found
        ]

    def n_before(self, place: Place) -> int:
        """How many turns stand before a place."""
        query = f"""SELECT count(*) FROM run JOIN turn ON turn.run = run.id
            WHERE {_LINE} AND (run.generation, turn.offset) < (?5, ?6)"""
        return int(self._rows(query, *self._key, *place)[0][0])

    def whole(self) -> Whole:
        """What its runs add up to."""
        rows = self._rows(
            f"""SELECT n_turns, n_calls, n_tokens, to_offset - from_offset, started_ms, ended_ms, title, intent,
                  n_forgotten, n_malformed, skipped FROM run WHERE {_LINE} ORDER BY generation, from_offset""",
            *self._key,
        )  # fmt: skip
        runs = [_Run._make(row) for row in rows]
        return Whole(
            n_runs=len(runs), n_turns=sum(run.n_turns for run in runs), n_calls=sum(run.n_calls for run in runs),
            n_tokens=sum(run.n_tokens for run in runs), n_bytes=sum(run.n_bytes for run in runs),
            started_at=instant(min((run.started_ms for run in runs if run.started_ms is not None), default=None)),
            ended_at=instant(max((run.ended_ms for run in runs if run.ended_ms is not None), default=None)),
            title=next((mask(run.title) for run in reversed(runs) if run.title), ""),
            intent=next((mask(run.intent) for run in runs if run.intent), ""),
            n_forgotten=sum(run.n_forgotten for run in runs), n_malformed=sum(run.n_malformed for run in runs),
            skipped=_added([run.skipped for run in runs]), models=self._models(), tags=self._tags(),
        )  # fmt: skip

    def _models(self) -> tuple[str, ...]:
        query = f"""SELECT DISTINCT model FROM run JOIN turn ON turn.run = run.id
            WHERE {_LINE} AND model <> '' ORDER BY model"""
        return tuple(model for (model,) in self._rows(query, *self._key))

    def _tags(self) -> tuple[str, ...]:
        query = f"""SELECT DISTINCT value FROM run JOIN run_tag ON run_tag.run = run.id JOIN name ON name.id = tag
            WHERE {_LINE} ORDER BY value"""
        return tuple(mask(tag) for (tag,) in self._rows(query, *self._key))

    def spawned(self) -> list[Spawned]:
        """The sub-agents that began in it, oldest first, one for each, however many runs captured it."""
        below = () if self._key[3] else (_SIDECHAINS, _SESSIONS)
        rows = [row for query in below for row in self._rows(query, *self._key[:3], _MOST_SPAWNED)]
        rows.sort(key=lambda row: (row[2] or 0, row[0]))
        return [Spawned(row[0], mask(row[1]), instant(row[2]), row[3]) for row in rows]

    def above(self) -> str | None:
        """A run of the session that spawned it, or that it was forked from; None at the top."""
        for test in (_HOLDS,) if self._key[3] else (_IS_NAMED, _IS_PARENT):
            found = self._rows(
                f"""SELECT run.run_id FROM run AS own CROSS JOIN run ON run.user = own.user
                    WHERE own.user = ?2 AND own.runtime = ?3 AND own.session = ?4 AND own.thread = ?5 AND {test}
                      AND {{seen}} ORDER BY run.generation, run.from_offset LIMIT 1""",
                self.run_id, *self._key,
            )  # fmt: skip
            if found:
                return str(found[0][0])
        return None

    def copy_of(self, user: str, runtime: str, native_id: str) -> str | None:
        """The turn that stands for a message which the client wrote into several files; None where there is none."""
        found = self._rows(
            "SELECT turn_id FROM turn JOIN run ON run.id = turn.run WHERE copy_key = ? AND {seen}",
            copy_key(user, runtime, native_id),
        )
        return found[0][0] if found else None

    def memories(self, turns: Sequence[int]) -> dict[int, list[Memory]]:
        """Turn number -> the memories that were made of it."""
        with self._index.reading():
            seen = visible.of(self._index, self._principal)
            made = memories.from_turns(self._index, turns)
            known = memories.readable(self._index, seen, sorted({key for keys in made.values() for key in keys}))
        found = {turn: [known[key] for key in dict.fromkeys(keys) if key in known] for turn, keys in made.items()}
        return {turn: kept for turn, kept in found.items() if kept}


def _added(counts: Sequence[str]) -> dict[str, int]:
    """Counts by name, as JSON, added up, most first."""
    total: Counter[str] = Counter()
    for text in counts:
        if text != "{}":
            total.update(msgspec.json.decode(text, type=dict[str, int]))
    return dict(total.most_common())
