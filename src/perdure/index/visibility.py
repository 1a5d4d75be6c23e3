"""Decide what a principal may read of other owners, by the grants in force: runs and memories. No other
place decides it.

The answer comes from the principal and the index, never from a request. It is stored in a TEMP table of
the connection (`readable`); every query across owners tests it inside itself, before it takes the best
rows. The table is kept while grants and index stay the same, and is built again otherwise. Without a
grant none of this runs.

A grant of a run covers the run and everything below it; a grant of a tag, a project or an agent covers
the runs that have it; with `since_at`, only those that began then or later. A grant of a memory covers that
memory alone. A memory is readable when every turn and every memory that it was made from is
readable. A memory with words of its owner that stand in no run (remembered, edited, imported) needs a
grant of its agent or its project. docs/decisions/022-visibility.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.index.encoding import MEMORY_KIND, to_ms, to_scope_token
from perdure.index.store import IndexConnection
from perdure.types import Grant, Principal

SELECTIVE_SHARE = 0.1  # of an owner's chunks: a grant that covers less becomes a word inside MATCH, like a filter
MAX_CONVERSATION_WORDS = (
    200  # conversations of granted runs that become words inside MATCH; more are tested by column alone
)
RUN_IS_READABLE = "run.id IN (SELECT id FROM temp.readable)"  # the test of a row of `run`
CHUNK_IS_READABLE = "CASE WHEN chunk.turn < 0 THEN chunk.turn ELSE chunk.run END IN (SELECT id FROM temp.readable)"
MEMORY_IS_READABLE = "-memory.id IN (SELECT id FROM temp.readable)"  # of a row of `memory`
_MADE_FROM_RUNS = ("stated", "mined", "consolidated")  # values of `how` for memories made of turns and memories alone


@dataclass(frozen=True)
class ReadScope:
    """The owners whose runs and memories a principal may read, by the owners' numbers."""

    own_user: int | None  # number of the principal; None when the index has nothing of theirs
    other_owners: tuple[int, ...] = ()  # other owners who share anything, ascending
    words: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # owner -> words; each chunk has one of them
    n_words: Mapping[int, int] = field(default_factory=dict)  # owner -> number of chunks with these words
    n_turns: int = 0  # readable turns of others; each memory counts as one
    leg_cache: dict[str, Any] = field(default_factory=dict, compare=False)  # what a leg derived from this scope

    @property
    def all_owners(self) -> tuple[int, ...]:
        """All owners who have anything that may be read, the principal first."""
        return (*(() if self.own_user is None else (self.own_user,)), *self.other_owners)

    def build_run_test(self) -> str:
        """Return the test of a row of `run`."""
        own_test = f"run.user = {-1 if self.own_user is None else int(self.own_user)}"
        return f"({own_test} OR {RUN_IS_READABLE})" if self.other_owners else own_test


def list_grants_in_force(principal: Principal, now: datetime) -> tuple[Grant, ...]:
    """Return the grants of others to the principal that are in force at that time."""
    return tuple(
        grant
        for grant in principal.granted
        if grant.grantee == principal.user != grant.owner and (grant.until_at is None or now < grant.until_at)
    )


def get_read_scope(index: IndexConnection, principal: Principal, *, now: datetime | None = None) -> ReadScope:
    """Return what a principal may read now, and bring the TEMP table `readable` of other owners' rows up to
    date.
    """
    own_user = index.find_name("user", principal.user)
    grants = list_grants_in_force(principal, now or datetime.now(UTC)) if principal.granted else ()
    if not grants:
        return ReadScope(own_user)
    key = (principal.user, grants, index.get_version())
    if index.temp_cache is None or index.temp_cache[0] != key:
        index.temp_cache = None  # until the table is whole
        index.temp_cache = (key, _build_read_scope(index, own_user, grants))
    read_scope: ReadScope = index.temp_cache[1]
    return read_scope


def list_granted(index: IndexConnection, grants: Iterable[Grant]) -> tuple[set[str], set[str]]:
    """Return the ids of (runs, memories) that these grants cover, whoever may use them."""
    reader = "@"  # no user's name
    get_read_scope(index, Principal(reader, tuple(replace(grant, grantee=reader) for grant in grants)))
    if index.temp_cache is None or index.temp_cache[0][0] != reader:  # no grants
        return set(), set()
    runs = index.select("SELECT run_id FROM run JOIN temp.readable USING (id)")
    memories = index.select("SELECT memory_id FROM memory JOIN temp.readable ON readable.id = -memory.id")
    return {run_id for (run_id,) in runs}, {memory_id for (memory_id,) in memories}


def filter_readable(index: IndexConnection, read_scope: ReadScope, numbers: Iterable[int]) -> set[int]:
    """Return those of these runs of others (or memories, by their negative numbers) that may be read."""
    if not read_scope.other_owners:
        return set()
    query = "SELECT id FROM temp.readable WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))"
    return {number for (number,) in index.select(query, msgspec.json.encode(list(numbers)).decode())}


def _build_read_scope(index: IndexConnection, own_user: int | None, grants: Sequence[Grant]) -> ReadScope:
    index.db.execute("CREATE TEMP TABLE IF NOT EXISTS readable(id INTEGER PRIMARY KEY, user INTEGER NOT NULL)")
    index.db.execute("DELETE FROM temp.readable")
    for grant in grants:
        owner = index.find_name("user", grant.owner)
        if owner is not None:
            _add_granted_runs(index, owner, grant)
    name_by_owner = {
        owner: name
        for name in {owner_grant.owner for owner_grant in grants}
        if (owner := index.find_name("user", name)) is not None
    }
    for owner, name in sorted(name_by_owner.items()):
        _add_granted_memories(index, owner, [grant for grant in grants if grant.owner == name])
    owners = tuple(user for (user,) in index.select("SELECT DISTINCT user FROM temp.readable ORDER BY user"))
    words = {
        owner: _choose_match_words(
            index, owner, [owner_grant for owner_grant in grants if owner_grant.owner == name_by_owner[owner]]
        )
        for owner in owners
    }
    return ReadScope(
        own_user,
        owners,
        {owner: match_words for owner, (match_words, _) in words.items() if match_words},
        {owner: n_chunks for owner, (_, n_chunks) in words.items()},
        _count_shared_turns(index),
    )


def _count_shared_turns(index: IndexConnection) -> int:
    query = """SELECT coalesce(sum(CASE WHEN readable.id < 0 THEN 1 ELSE n_turns END), 0)
      FROM temp.readable LEFT JOIN run ON run.id = readable.id"""
    return int(index.select(query)[0][0])


# runs -----------------------------------------------------------------------------------------------------------

_HAS_TAG = "id IN (SELECT run FROM run_tag WHERE tag = ?2)"
_BEGAN_SINCE = "started_ms >= ?3"  # a run without a time began at none
_RUN_TEST_BY_SCOPE = {"tag": _HAS_TAG, "project": "project = ?2", "agent": "agent = ?2"}

_FIRST_OF_SOURCE = """NOT EXISTS (SELECT 1 FROM run AS earlier WHERE earlier.user = run.user
    AND earlier.runtime = run.runtime AND earlier.session = run.session AND earlier.generation = run.generation
    AND earlier.from_offset < run.from_offset AND earlier.thread = '')"""
SPAWNER = """SELECT above.id FROM run AS above WHERE above.user = run.user AND above.runtime = run.runtime
    AND above.session = run.parent_session AND above.thread = '' AND above.run_id <> run.run_id
  ORDER BY coalesce(above.started_ms, 0) > coalesce(run.started_ms, 0),
    abs(coalesce(above.started_ms, 0) - coalesce(run.started_ms, 0)), above.run_id LIMIT 1"""
_RUNS_BELOW = f"""WITH RECURSIVE
  spawned(child, parent) AS MATERIALIZED (SELECT run.id, ({SPAWNER}) FROM run
    WHERE run.user = ?1 AND coalesce(run.parent_session, '') <> '' AND coalesce(run.parent_run_id, '') = ''
      AND {_FIRST_OF_SOURCE}),
  below(id) AS (
    SELECT id FROM run WHERE run_id = ?2 AND user = ?1
    UNION SELECT child.id FROM below JOIN run AS above ON above.id = below.id
      JOIN run AS child INDEXED BY run_child ON child.parent_run_id = above.run_id AND child.user = ?1
    UNION SELECT next.id FROM below JOIN run AS above ON above.id = below.id AND above.thread = ''
      JOIN run AS next ON next.id = (SELECT id FROM run WHERE user = ?1 AND runtime = above.runtime
          AND session = above.session AND generation = above.generation AND from_offset > above.from_offset
          AND thread = '' ORDER BY from_offset, run_id LIMIT 1)
        AND coalesce(next.parent_run_id, '') = ''
    UNION SELECT spawned.child FROM below JOIN spawned ON spawned.parent = below.id)
SELECT id FROM below"""  # the parents of `runs`, followed downwards


def _add_granted_runs(index: IndexConnection, owner: int, grant: Grant) -> None:
    """Make the runs readable that a grant names: none for a scope that is unknown or has no value."""
    insert = "INSERT OR IGNORE INTO temp.readable SELECT id, ?1 FROM"
    since_test, since = (_BEGAN_SINCE, (to_ms(grant.since_at),)) if grant.since_at else ("TRUE", ())
    if not grant.value:
        return
    if grant.scope == "run":
        source = f"run WHERE id IN ({_RUNS_BELOW}) AND {since_test}" if since else f"({_RUNS_BELOW})"
        index.db.execute(f"{insert} {source}", (owner, grant.value, *since))
    elif grant.scope in _RUN_TEST_BY_SCOPE:
        number = index.find_name(grant.scope, grant.value)
        if number is not None:
            test = f"user = ?1 AND {_RUN_TEST_BY_SCOPE[grant.scope]} AND {since_test}"
            index.db.execute(f"{insert} run WHERE {test}", (owner, number, *since))


def _choose_match_words(index: IndexConnection, owner: int, grants: Sequence[Grant]) -> tuple[tuple[str, ...], int]:
    """Return (words, the number of chunks with them): every readable chunk of the owner has one of the words.

    Return no words when they leave too many chunks. Words only narrow the search: each row is tested all
    the same.
    """
    name_numbers = {
        name_number
        for scoped_grant in grants
        if scoped_grant.scope in _RUN_TEST_BY_SCOPE
        and (name_number := index.find_name(scoped_grant.scope, scoped_grant.value)) is not None
    }
    if any(grant.scope == "run" for grant in grants):
        query = """SELECT DISTINCT conversation FROM run JOIN temp.readable USING (id) WHERE run.user = ? LIMIT ?"""
        conversations = [number for (number,) in index.select(query, owner, MAX_CONVERSATION_WORDS + 1)]
        if len(conversations) > MAX_CONVERSATION_WORDS:
            return (), 0
        name_numbers.update(conversations)
    if index.select("SELECT EXISTS (SELECT 1 FROM temp.readable WHERE id < 0 AND user = ?)", owner)[0][0]:
        name_numbers.add(index.find_name("role", MEMORY_KIND) or 0)
    marks = ", ".join("?" * len(name_numbers))
    ((n_left,),) = index.select(
        f"SELECT coalesce(sum(n_chunks), 0) FROM held WHERE user = ? AND name IN ({marks})",
        owner,
        *sorted(name_numbers),
    )
    ((total,),) = index.select("SELECT n_chunks FROM name WHERE id = ?", owner)
    is_little = n_left < total * SELECTIVE_SHARE
    return (tuple(map(to_scope_token, sorted(name_numbers))), n_left) if is_little else ((), 0)


# memories -------------------------------------------------------------------------------------------------------


class MemoryLineage(msgspec.Struct):
    """The fields of a memory that decide who may read it: its sources, and the agent and project it belongs
    to.
    """

    memory_id: str
    agent: str
    how: str
    project: str | None = None
    sources: tuple[tuple[str, int, int], ...] = ()
    made_from: tuple[str, ...] = ()
    retired: bool = False
    stated_at: datetime | None = None


def _add_granted_memories(index: IndexConnection, owner: int, grants: Sequence[Grant]) -> None:
    """Make those memories of an owner readable that their lineage and the grants allow."""
    rows = index.select("SELECT id, body FROM memory WHERE user = ?", owner)
    if not rows:
        return
    lineages = {
        lineage.memory_id: (key, lineage)
        for key, body in rows
        for lineage in (msgspec.json.decode(body, type=MemoryLineage),)
    }
    run_ids = {
        run_id
        for (run_id,) in index.select("SELECT run_id FROM run JOIN temp.readable USING (id) WHERE run.user = ?", owner)
    }
    readable_ids = find_readable_memories(
        {memory_id: lineage for memory_id, (_, lineage) in lineages.items()}, run_ids, grants
    )
    index.db.executemany(
        "INSERT OR IGNORE INTO temp.readable VALUES (?, ?)",
        [(-lineages[memory_id][0], owner) for memory_id in sorted(readable_ids)],
    )


def find_readable_memories(
    lineages: Mapping[str, MemoryLineage], run_ids: set[str], grants: Sequence[Grant]
) -> set[str]:
    """Return the ids of those memories of an owner that may be read. Pure.

    runs: ids of the readable runs of that owner. Everything that a memory was made from must exist and be
    readable; so a memory made in a circle, or from something that was deleted, is not readable.
    """
    verdicts: dict[str, bool] = {}
    for start_id in lineages:
        stack = [start_id]
        while stack:
            memory_id = stack[-1]
            if memory_id in verdicts:
                stack.pop()
                continue
            parent_ids = lineages[memory_id].made_from
            undecided_id = next(
                (
                    candidate_id
                    for candidate_id in parent_ids
                    if candidate_id in lineages and candidate_id not in verdicts and candidate_id not in stack
                ),
                None,
            )
            if undecided_id is not None:
                stack.append(undecided_id)
                continue
            are_parents_readable = all(verdicts.get(parent_id, False) for parent_id in parent_ids)
            verdicts[memory_id] = are_parents_readable and _is_memory_granted(lineages[memory_id], run_ids, grants)
            stack.pop()
    notes = {grant.value for grant in grants if grant.scope == "memory"} & lineages.keys()
    allowed_ids = {memory_id for memory_id, is_allowed in verdicts.items() if is_allowed} | notes
    return {memory_id for memory_id in allowed_ids if not lineages[memory_id].retired}


def _is_memory_granted(lineage: MemoryLineage, run_ids: set[str], grants: Sequence[Grant]) -> bool:
    """Return True if the grants allow this memory, leaving aside the memories that it was made from."""
    if not all(run_id in run_ids for run_id, _, _ in lineage.sources):
        return False
    is_of_runs = lineage.how in _MADE_FROM_RUNS and bool(lineage.sources or lineage.made_from)
    return is_of_runs or any(_covers_memory(grant, lineage) for grant in grants)


def _covers_memory(grant: Grant, lineage: MemoryLineage) -> bool:
    scope_value = {"agent": lineage.agent, "project": lineage.project}.get(grant.scope)
    is_since = grant.since_at is None or (lineage.stated_at is not None and lineage.stated_at >= grant.since_at)
    return bool(grant.value) and scope_value == grant.value and is_since
