"""Read memories from the index: by id, chain or page of a list, or by a search. `apply_journals` writes
them.

A memory that is not retired has one row in `chunk`; there its own negative number stands for the number
of a turn, so that words, vectors and filters find memories as they find turns. A page of a list decodes
only the rows that it shows, so a list of many thousands costs no more than one page. A search finds
memories by words, by path and, where there are vectors, by meaning; it never finds retired ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from perdure import text
from perdure.access.redact import mask
from perdure.archive import memory_events
from perdure.archive.journal import JournalEvent
from perdure.archive.memory_events import fold_path
from perdure.errors import VectorsMissing
from perdure.index import keyword, visibility
from perdure.index.encoding import MEMORY_KIND, to_ms
from perdure.index.fuse import fuse_legs
from perdure.index.memory_replay import MemoryChain, ReplayEvent, settle_chain
from perdure.index.store import IndexConnection
from perdure.index.visibility import ReadScope
from perdure.regex import lazy_re
from perdure.types import Filters, Memory, MemoryHit, Principal, Span

if TYPE_CHECKING:
    from perdure.index.vector_search import QueryVector

EVENT_TYPES = (
    memory_events.EVENT_TYPE,
    memory_events.USED,
    memory_events.INJECTED,
)  # of the events about memories


# In no order: with one, SQLite reads all memories of the owner in that order instead of the index of chains.
CHAIN_QUERY = "SELECT body FROM memory WHERE user = ? AND agent = ? AND project = ? AND place = ?"


def to_replay_event(event: JournalEvent) -> ReplayEvent:
    """Convert an event to the form that the replay reads."""
    instant = datetime.fromisoformat(event.at.partition("#")[0])
    return ReplayEvent(event.type, event.data, instant, f"{event.at}|{event.writer}|{event.seq:010d}")


def list_memories(index: IndexConnection, user: str, condition: str = "TRUE", *values: Any) -> list[Memory]:
    """Return an owner's memories that pass a test of the table's columns, newest first."""
    number = index.find_name("user", user)
    if number is None:
        return []
    query = f"SELECT body FROM memory WHERE user = ? AND {condition} ORDER BY stated_ms DESC, memory_id"
    return [decode_memory(body) for (body,) in index.select(query, number, *values)]


def get_memories(index: IndexConnection, user: str, memory_ids: Sequence[str]) -> list[Memory]:
    """Return an owner's memories with these ids; ids of no memory are left out."""
    number = index.find_name("user", user)
    return (
        list(get_by_numbers(index, list(find_numbers(index, number, memory_ids).values())).values()) if number else []
    )


class MemoryUse(msgspec.Struct, frozen=True):
    """How often a memory was shown and used: the few fields that are read when there are many memories."""

    memory_id: str
    path: str
    kind: str
    how: str
    pinned: bool
    retired: bool
    superseded_by: str | None
    n_injected: int
    n_used: int

    @property
    def is_current(self) -> bool:
        """True for the current memory of its chain."""
        return self.superseded_by is None and not self.retired


_use_decoder = msgspec.json.Decoder(MemoryUse)


def list_uses(index: IndexConnection, user: str) -> list[MemoryUse]:
    """Return how often each memory of an owner was shown and used."""
    rows = index.select("SELECT body FROM memory WHERE user = ?", index.find_name("user", user))
    return [_use_decoder.decode(body) for (body,) in rows]


def list_chain(index: IndexConnection, user: str, chain: MemoryChain) -> list[Memory]:
    """Return the memories of a chain, oldest first."""
    rows = index.select(CHAIN_QUERY, index.find_name("user", user), *chain)
    chain_memories = [decode_memory(body) for (body,) in rows]
    return sorted(chain_memories, key=lambda memory: (memory.stated_at, memory.order))


def get_by_numbers(index: IndexConnection, numbers: Sequence[int]) -> dict[int, Memory]:
    """Return memories by their numbers, whoever owns them."""
    return {number: memory for number, (_, memory) in _select_by_numbers(index, numbers).items()}


def _select_by_numbers(index: IndexConnection, numbers: Sequence[int]) -> dict[int, tuple[int, Memory]]:
    """Return (owner, memory) by number."""
    rows = index.select_in("SELECT id, user, body FROM memory WHERE id IN ({})", numbers)
    return {number: (user, decode_memory(body)) for number, user, body in rows}


# what others share ----------------------------------------------------------------------------------------------


def list_readable(index: IndexConnection, read_scope: ReadScope, numbers: Sequence[int]) -> dict[int, Memory]:
    """Return those of these memories, by their numbers, that may be read; memories of others as they are
    shared.
    """
    rows = _select_by_numbers(index, numbers)
    memory_by_number = {
        row_number: memory for row_number, (owner, memory) in rows.items() if owner == read_scope.own_user
    }
    shared_numbers = visibility.filter_readable(
        index, read_scope, (-row_number for row_number in rows if row_number not in memory_by_number)
    )
    for row_number in sorted(-shared_number for shared_number in shared_numbers):
        memory_by_number[row_number] = next(
            memory
            for number_in_chain, memory in list_shared_chain(index, read_scope, row_number)
            if number_in_chain == row_number
        )
    return memory_by_number


def list_shared_chain(
    index: IndexConnection, read_scope: ReadScope, number: int, *, as_of: datetime | None = None
) -> list[tuple[int, Memory]]:
    """Return (number, memory) of the readable part of the chain of another owner's memory, oldest first.

    The current memory is chosen among these alone, by what had been stated until `as_of`.
    """
    if not read_scope.other_owners:
        return []
    query = f"""SELECT memory.id, owner.value, memory.body FROM memory AS one
        JOIN memory ON memory.user = one.user AND memory.agent = one.agent AND memory.project = one.project
          AND memory.place = one.place JOIN name AS owner ON owner.id = memory.user
        WHERE one.id = ? AND {visibility.MEMORY_IS_READABLE}"""
    rows = {number: (owner, decode_memory(body)) for number, owner, body in index.select(query, number)}
    number_by_id = {memory.memory_id: row_number for row_number, (_, memory) in rows.items()}
    stated_memories = [
        _hide_sources(index, memory) for _, memory in rows.values() if as_of is None or memory.stated_at <= as_of
    ]
    return [
        (
            number_by_id[settled_memory.memory_id],
            _mask_shared(settled_memory, rows[number_by_id[settled_memory.memory_id]][0]),
        )
        for settled_memory in settle_chain(stated_memories)
    ]


def list_shared(index: IndexConnection, read_scope: ReadScope, condition: str = "TRUE", *values: Any) -> list[Memory]:
    """Return the readable memories of others that pass a test of the table's columns, newest first."""
    if not read_scope.other_owners:
        return []
    numbers = [
        number
        for (number,) in index.select(
            f"SELECT id FROM memory WHERE {visibility.MEMORY_IS_READABLE} AND {condition}", *values
        )
    ]
    return sorted(
        list_readable(index, read_scope, numbers).values(),
        key=lambda shared_memory: (-shared_memory.stated_at.timestamp(), shared_memory.memory_id),
    )


def _hide_sources(index: IndexConnection, memory: Memory) -> Memory:
    """Return a memory without the places behind it, unless all may be read: a note may rest on private turns."""
    run_ids = sorted({span.run_id for span in memory.sources})
    query = f"""SELECT count(*) FROM run JOIN temp.readable USING (id)
        WHERE run_id IN ({", ".join("?" * len(run_ids))})"""
    if not run_ids or index.select(query, *run_ids)[0][0] == len(run_ids):
        return memory
    return replace(memory, sources=(), conversation="")


def _mask_shared(memory: Memory, owner: str) -> Memory:
    """Return a memory as its owner shares it.

    It does not count as words of the reader. What its owner did with it, and what it was made from, is left
    out.
    """
    return replace(
        memory,
        shared_by=owner,
        trust="agent" if memory.trust == "owner" else memory.trust,
        text=mask(memory.text),
        path=mask(memory.path),
        project=mask(memory.project) if memory.project else None,
        conversation=mask(memory.conversation),
        entities=tuple(map(mask, memory.entities)),
        n_stated=max(1, len(memory.sources)),
        n_injected=0,
        n_used=0,
        renewed_at=None,
        used_at=None,
        stability=1.0,
        pinned=False,
        confidence=1.0,
        order="",
        made_from=(),
    )


def find_numbers(index: IndexConnection, user: int, memory_ids: Sequence[str]) -> dict[str, int]:
    """Return the numbers of an owner's memories by their ids."""
    return dict(
        index.select_in("SELECT memory_id, id FROM memory WHERE memory_id IN ({}) AND user = ?", memory_ids, user)
    )


def find_numbers_by_turn(index: IndexConnection, turns: Sequence[int]) -> dict[int, list[int]]:
    """Return turn number -> numbers of the memories that were made from the turn."""
    memories_by_turn: dict[int, list[int]] = {}
    query = """SELECT turn.id, memory FROM turn JOIN run ON run.id = turn.content_run
        JOIN memory_source AS source ON source.run_id = run.captured_in
          AND content_offset >= source.from_offset AND content_offset < source.to_offset
        WHERE turn.id IN ({}) ORDER BY turn.id, memory"""
    for turn, memory in index.select_in(query, turns):
        memories_by_turn.setdefault(turn, []).append(memory)
    return memories_by_turn


def list_source_turns(index: IndexConnection, memory: Memory) -> list[tuple[Span, str | None]]:
    """Return each source of a memory with the id of the first turn there; None when that turn is gone."""
    return [(span, find_first_turn(index, span)) for span in memory.sources]


def find_first_turn(index: IndexConnection, span: Span) -> str | None:
    """Return the id of the first turn in a span; None when there is none any more."""
    query = """SELECT turn_id FROM turn JOIN run ON run.id = turn.content_run WHERE run.captured_in = ?
        AND content_offset >= ? AND content_offset < ? ORDER BY content_offset LIMIT 1"""
    return next((str(row[0]) for row in index.select(query, *span)), None)


def find_run_projects(index: IndexConnection, user: str, run_ids: Collection[str]) -> dict[str, str]:
    """Return the project of each of these runs of an owner that has one, by run id."""
    query = """SELECT run_id, project.value FROM run JOIN name AS project ON project.id = run.project
        WHERE run.user = ? AND project.value <> '' AND run_id IN (SELECT value FROM json_each(?))"""
    rows = index.select(query, index.find_name("user", user), msgspec.json.encode(sorted(run_ids)).decode())
    return dict(rows)


def list_mined_ranges(index: IndexConnection, user: str) -> dict[str, list[tuple[int, int]]]:
    """Return source -> its mined ranges, in order."""
    number = index.find_name("user", user)
    query = "SELECT source, from_offset, to_offset FROM mined WHERE user = ? ORDER BY source, from_offset"
    ranges_by_source: dict[str, list[tuple[int, int]]] = {}
    for source, low, high in index.select(query, number) if number is not None else ():
        ranges_by_source.setdefault(source, []).append((low, high))
    return ranges_by_source


def decode_memory(body: bytes) -> Memory:
    """Decode the memory of a row."""
    return msgspec.json.decode(body, type=Memory)


MemoryOrder = Literal["subject", "newest"]
_ORDER_SQL: dict[MemoryOrder, str] = {  # the same orders as the indexes of the table
    "subject": "pinned DESC, place, stated_ms DESC, memory_id",
    "newest": "stated_ms DESC, memory_id",
}


class MemoryFilter(msgspec.Struct, frozen=True):
    """Filters of a list of memories. A field that is left out narrows nothing."""

    prefix: str = ""  # of the folded path, by whole parts
    kind: str = ""
    project: str | None = None  # "" for memories of no project
    trust: str = ""
    every: bool = False  # superseded and retired ones too


class ListRange(NamedTuple):
    """A range of a list."""

    offset: int
    limit: int


def list_page(
    index: IndexConnection, user: str, memory_filter: MemoryFilter, *, order: MemoryOrder, list_range: ListRange
) -> list[Memory]:
    """Return the memories of one range of the list, in order."""
    test, values = _build_test(index, user, memory_filter)
    table = "memory INDEXED BY memory_newest" if order == "newest" else _choose_table(memory_filter)
    inner = f"SELECT id FROM {table} WHERE {test} ORDER BY {_ORDER_SQL[order]} LIMIT ? OFFSET ?"
    query = f"SELECT body FROM memory WHERE id IN ({inner}) ORDER BY {_ORDER_SQL[order]}"
    return [decode_memory(body) for (body,) in index.select(query, *values, list_range.limit, list_range.offset)]


def count_memories(index: IndexConnection, user: str, memory_filter: MemoryFilter) -> int:
    """Count the memories that pass the filters."""
    test, values = _build_test(index, user, memory_filter)
    return int(index.select(f"SELECT count(*) FROM {_choose_table(memory_filter)} WHERE {test}", *values)[0][0])


def count_subjects(index: IndexConnection, user: str, memory_filter: MemoryFilter) -> dict[str, int]:
    """Count memories by part of the path: next part -> number of memories at or below it.

    The parts are those after the prefix; without a prefix, the first parts.
    """
    test, values = _build_test(index, user, memory_filter)
    start = len(memory_filter.prefix) + 2 if memory_filter.prefix else 1
    query = f"""SELECT substr(place, ?, instr(substr(place, ?) || '/', '/') - 1) AS part, count(*)
        FROM {_choose_table(memory_filter)} WHERE {test} GROUP BY 1 ORDER BY 1"""
    return {part: n for part, n in index.select(query, start, start, *values) if part}


def list_projects(index: IndexConnection, user: str) -> list[str]:
    """Return the projects that memories belong to."""
    query = "SELECT DISTINCT project FROM memory WHERE user = ? AND project <> '' ORDER BY project"
    return [project for (project,) in index.select(query, index.find_name("user", user))]


def _choose_table(memory_filter: MemoryFilter) -> str:
    """Return the table to read; current memories have an index of their own, which SQLite does not choose by
    itself.
    """
    return "memory" if memory_filter.every else "memory INDEXED BY memory_current"


def _build_test(index: IndexConnection, user: str, memory_filter: MemoryFilter) -> tuple[str, list[Any]]:
    """Return a test of a row of `memory`, with its values."""
    tests, values = ["user = ?"], list[Any]([index.find_name("user", user)])
    if not memory_filter.every:
        tests.append("superseded_by IS NULL AND NOT retired")
    if memory_filter.prefix:
        tests.append("(place = ? OR substr(place, 1, ?) = ?)")
        values += [memory_filter.prefix, len(memory_filter.prefix) + 1, f"{memory_filter.prefix}/"]
    for column, value in (
        ("kind", memory_filter.kind or None),
        ("trust", memory_filter.trust or None),
        ("project", memory_filter.project),
    ):
        if value is not None:
            tests.append(f"{column} = ?")
            values.append(value)
    return " AND ".join(tests), values


_ONLY_MEMORIES = Filters(roles=(MEMORY_KIND,), kinds=(MEMORY_KIND,), memories=True)
_WORD = lazy_re(r"\w+")
_LegScores: TypeAlias = tuple[float, float | None, float | None]  # fused, by words, by meaning
_PATH_SCORES: _LegScores = (0.0, None, None)  # of a memory that only its path names
_WIDEN_FACTOR = 4  # the factor by which more candidates are read when too few of them fit


def search_memories(
    index: IndexConnection, principal: Principal, query: str, query_vector: QueryVector | None, *, limit: int,
    fits: Callable[[Memory], bool],
) -> list[MemoryHit]:  # fmt: skip
    """Return the best memories that fit with their scores, best first; where others share theirs, scores are 1
    / rank, without parts.

    Superseded memories are found only if `fits` accepts them.
    """
    n_candidates = limit
    with index.begin_read():
        read_scope = visibility.get_read_scope(index, principal)
        path_turns = _find_by_path(index, read_scope, query)
        while True:
            by_words = _score_memories(index, principal, query, query_vector, n_candidates)
            scores = dict.fromkeys(path_turns, _PATH_SCORES) | dict(by_words)
            memory_by_number = list_readable(index, read_scope, [-memory_turn for memory_turn in scores])
            fitting = [
                MemoryHit(memory_by_number[-memory_turn], *leg_scores)
                for memory_turn, leg_scores in scores.items()
                if -memory_turn in memory_by_number and fits(memory_by_number[-memory_turn])
            ]
            if len(fitting) >= limit or len(by_words) < n_candidates:
                best = sorted(fitting, key=_to_order_key)[:limit]
                return (
                    [MemoryHit(hit.memory, 1 / rank) for rank, hit in enumerate(best, start=1)]
                    if read_scope.other_owners
                    else best
                )
            n_candidates *= _WIDEN_FACTOR


def list_recorded_since(index: IndexConnection, user: str, since_at: datetime) -> list[Memory]:
    """Return the current memories of no conversation that were recorded later than this."""
    condition = "superseded_by IS NULL AND NOT retired AND conversation = '' AND recorded_ms > ?"
    return list_memories(index, user, condition, to_ms(since_at))


def find_by_words(index: IndexConnection, principal: Principal, words: str, *, limit: int) -> list[Memory]:
    """Return the principal's own current memories that share words with a text, best first."""
    numbers = [-memory_turn for memory_turn in _score_memories(index, principal, words, None, limit)]
    memory_by_number = list_readable(index, visibility.get_read_scope(index, principal), numbers)
    memories = (memory_by_number[number] for number in numbers if number in memory_by_number)
    return [memory for memory in memories if memory.is_current and not memory.shared_by]


def _find_by_path(index: IndexConnection, read_scope: ReadScope, query: str) -> list[int]:
    """Return the memories with a word of the query in their path, as negative numbers."""
    terms = [fold_path(term) for term in text.without_stopwords(text.query_terms(query))]
    if not terms:
        return []
    test = " OR ".join(["instr(place, ?) > 0"] * len(terms))
    owner_test = "user = ?" + (f" OR {visibility.MEMORY_IS_READABLE}" if read_scope.other_owners else "")
    query = f"SELECT id, place FROM memory WHERE ({owner_test}) AND NOT retired AND ({test})"
    rows = index.select(query, read_scope.own_user, *terms)
    return [-number for number, folded_path in rows if not set(terms).isdisjoint(_WORD.findall(folded_path))]


def _to_order_key(hit: MemoryHit) -> tuple[float, float, str]:
    return -round(hit.score, 9), -hit.memory.stated_at.timestamp(), hit.memory.memory_id


def _score_memories(
    index: IndexConnection, principal: Principal, query: str, query_vector: QueryVector | None, n_candidates: int
) -> Mapping[int, _LegScores]:
    """Return the scores of at least n memories, if so many match, by their negative numbers."""
    by_words = keyword.find_candidates(index, principal, query, filters=_ONLY_MEMORIES, limit=n_candidates)
    bm25: dict[int, float] = {}
    for item in by_words.scored:
        bm25.setdefault(item.turn, item.score)
    if query_vector is None:
        return {turn: (score, score, None) for turn, score in bm25.items()}
    bm25 = bm25 if by_words.terms else {}
    read_scope = visibility.get_read_scope(index, principal)
    try:
        cosines = query_vector.score_turns(index, read_scope, filters=_ONLY_MEMORIES, k=n_candidates, others=list(bm25))
    except VectorsMissing:  # search by words alone; `status` reports the missing vectors
        return _score_memories(index, principal, query, None, n_candidates)
    fused = fuse_legs(bm25, cosines, vector=query_vector.weight)
    return {turn: (fused[turn], bm25.get(turn), cosines.get(turn)) for turn in fused}
