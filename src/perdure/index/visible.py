"""What of other owners a principal may read: runs and memories, by the grants in force. The one place that decides it.

Computed from the principal and from what the index holds, never from a request, into a TEMP table of the connection
(`readable`), which every query that reads across owners tests inside itself, before the best are taken. It is kept
while grants and index stay the same and made anew otherwise. Without a grant nothing of this runs.

A run: what was granted, with everything below it; a tag, a project or an agent: the runs that have it. A memory is
readable when every turn that it was made of is, and every memory; one that holds words of its owner's which stand in
no run (remembered, edited, imported) only under a grant of its agent or its project. docs/decisions/022-visibility.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.index.store import Connection
from perdure.index.values import scope_token
from perdure.index.wording import MEMORY
from perdure.types import Grant, Principal

SELECTIVE_SHARE = 0.1  # of an owner's chunks: a grant that leaves less becomes a word inside MATCH, as a filter does
MOST_TALKS = 200  # conversations of granted runs that become words inside MATCH; more are tested by column alone
IS_RUN = "run.id IN (SELECT id FROM temp.readable)"  # the test of a row of `run`
IS_CHUNK = "iif(chunk.turn < 0, chunk.turn, chunk.run) IN (SELECT id FROM temp.readable)"  # of a row of `chunk`
IS_MEMORY = "-memory.id IN (SELECT id FROM temp.readable)"  # of a row of `memory`
_FROM_RUNS = ("stated", "mined", "consolidated")  # ways in which a memory is made of nothing but turns and memories


@dataclass(frozen=True)
class Visible:
    """Whose runs and memories a principal may read, by the owners' numbers."""

    own: int | None  # the principal's; None when the index has nothing of theirs
    owners: tuple[int, ...] = ()  # others of whom anything may be read, ascending
    words: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # owner -> words, one of which is in each chunk
    n_words: Mapping[int, int] = field(default_factory=dict)  # owner -> chunks that these words leave
    n_turns: int = 0  # of others that may be read, memories counted as one each
    kept: dict[str, Any] = field(default_factory=dict, compare=False)  # what a leg derived from this, while it holds

    @property
    def every(self) -> tuple[int, ...]:
        """All owners of whom anything may be read, the principal first."""
        return (*(() if self.own is None else (self.own,)), *self.owners)

    def runs(self) -> str:
        """The test of a row of `run`."""
        own = f"run.user = {-1 if self.own is None else int(self.own)}"
        return f"({own} OR {IS_RUN})" if self.owners else own


def in_force(principal: Principal, now: datetime) -> tuple[Grant, ...]:
    """The grants of others to the principal that hold at a moment."""
    return tuple(
        grant
        for grant in principal.granted
        if grant.grantee == principal.user != grant.owner and (grant.until_at is None or now < grant.until_at)
    )


def of(index: Connection, principal: Principal, *, now: datetime | None = None) -> Visible:
    """What a principal may read now, with the TEMP table `readable` of what is others' brought up to it."""
    own = index.known("user", principal.user)
    grants = in_force(principal, now or datetime.now(UTC)) if principal.granted else ()
    if not grants:
        return Visible(own)
    key = (principal.user, grants, index.version())
    if index.derived is None or index.derived[0] != key:
        index.derived = None  # until the table is whole
        index.derived = (key, _made(index, own, grants))
    found: Visible = index.derived[1]
    return found


def is_readable(index: Connection, seen: Visible, runs: Iterable[int]) -> set[int]:
    """Those of these runs of others (or memories, by their numbers below zero) that may be read."""
    if not seen.owners:
        return set()
    query = "SELECT id FROM temp.readable WHERE id IN (SELECT value FROM json_each(?))"
    return {found for (found,) in index.rows(query, msgspec.json.encode(list(runs)).decode())}


def _made(index: Connection, own: int | None, grants: Sequence[Grant]) -> Visible:
    index.db.execute("CREATE TEMP TABLE IF NOT EXISTS readable(id INTEGER PRIMARY KEY, user INTEGER NOT NULL)")
    index.db.execute("DELETE FROM temp.readable")
    for grant in grants:
        owner = index.known("user", grant.owner)
        if owner is not None:
            _add_runs(index, owner, grant)
    granting = {owner: name for name in {g.owner for g in grants} if (owner := index.known("user", name)) is not None}
    for owner, name in sorted(granting.items()):
        _add_memories(index, owner, [grant for grant in grants if grant.owner == name])
    owners = tuple(user for (user,) in index.rows("SELECT DISTINCT user FROM temp.readable ORDER BY user"))
    words = {owner: _words(index, owner, [g for g in grants if g.owner == granting[owner]]) for owner in owners}
    return Visible(
        own, owners, {owner: chosen for owner, (chosen, _) in words.items() if chosen},
        {owner: n for owner, (_, n) in words.items()}, _n_turns(index),
    )  # fmt: skip


def _n_turns(index: Connection) -> int:
    query = "SELECT coalesce(sum(iif(readable.id < 0, 1, n_turns)), 0) FROM temp.readable LEFT JOIN run USING (id)"
    return int(index.rows(query)[0][0])


# runs -----------------------------------------------------------------------------------------------------------

_BY_TAG = "id IN (SELECT run FROM run_tag WHERE tag = ?2)"
_TESTS = {"tag": _BY_TAG, "project": "project = ?2", "agent": "agent = ?2"}

_FIRST_OF_SOURCE = """NOT EXISTS (SELECT 1 FROM run AS earlier WHERE earlier.user = run.user
    AND earlier.runtime = run.runtime AND earlier.session = run.session AND earlier.generation = run.generation
    AND earlier.from_offset < run.from_offset AND earlier.thread = '')"""
SPAWNER = """SELECT above.id FROM run AS above WHERE above.user = run.user AND above.runtime = run.runtime
    AND above.session = run.parent_session AND above.thread = '' AND above.run_id <> run.run_id
  ORDER BY coalesce(above.started_ms, 0) > coalesce(run.started_ms, 0),
    abs(coalesce(above.started_ms, 0) - coalesce(run.started_ms, 0)), above.run_id LIMIT 1"""
_BELOW = f"""WITH RECURSIVE
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
SELECT id FROM below"""  # the parents of `runs.parent`, followed downwards


def _add_runs(index: Connection, owner: int, grant: Grant) -> None:
    """Make the runs readable that a grant names: none for a scope that is unknown or has no value."""
    into = "INSERT OR IGNORE INTO temp.readable SELECT id, ?1 FROM"
    if not grant.value:
        return
    if grant.scope == "run":
        index.db.execute(f"{into} ({_BELOW})", (owner, grant.value))
    elif grant.scope in _TESTS:
        number = index.known(grant.scope, grant.value)
        if number is not None:
            index.db.execute(f"{into} run WHERE user = ?1 AND {_TESTS[grant.scope]}", (owner, number))


def _words(index: Connection, owner: int, grants: Sequence[Grant]) -> tuple[tuple[str, ...], int]:
    """(words of which every readable chunk of an owner has one, how many chunks they leave); none where that is much.

    Words only narrow: what they leave is tested row by row all the same.
    """
    named = {n for g in grants if g.scope in _TESTS and (n := index.known(g.scope, g.value)) is not None}
    if any(grant.scope == "run" for grant in grants):
        query = """SELECT DISTINCT conversation FROM run JOIN temp.readable USING (id) WHERE run.user = ? LIMIT ?"""
        talks = [number for (number,) in index.rows(query, owner, MOST_TALKS + 1)]
        if len(talks) > MOST_TALKS:
            return (), 0
        named.update(talks)
    if index.rows("SELECT EXISTS (SELECT 1 FROM temp.readable WHERE id < 0 AND user = ?)", owner)[0][0]:
        named.add(index.known("role", MEMORY) or 0)
    marks = ", ".join("?" * len(named))
    ((n_left,),) = index.rows(
        f"SELECT coalesce(sum(n_chunks), 0) FROM held WHERE user = ? AND name IN ({marks})", owner, *sorted(named)
    )
    ((total,),) = index.rows("SELECT n_chunks FROM name WHERE id = ?", owner)
    is_little = n_left < total * SELECTIVE_SHARE
    return (tuple(map(scope_token, sorted(named))), n_left) if is_little else ((), 0)


# memories -------------------------------------------------------------------------------------------------------


class Made(msgspec.Struct):
    """What a memory was made of, and where it belongs: of its body what decides who may read it."""

    memory_id: str
    agent: str
    how: str
    project: str | None = None
    sources: tuple[tuple[str, int, int], ...] = ()
    made_from: tuple[str, ...] = ()
    retired: bool = False


def _add_memories(index: Connection, owner: int, grants: Sequence[Grant]) -> None:
    """Make the memories of an owner readable that their lineage and the grants allow."""
    rows = index.rows("SELECT id, body FROM memory WHERE user = ?", owner)
    if not rows:
        return
    made = {one.memory_id: (key, one) for key, body in rows for one in (msgspec.json.decode(body, type=Made),)}
    runs = {
        run for (run,) in index.rows("SELECT run_id FROM run JOIN temp.readable USING (id) WHERE run.user = ?", owner)
    }
    allowed = readable_memories({name: one for name, (_, one) in made.items()}, runs, grants)
    index.db.executemany(
        "INSERT OR IGNORE INTO temp.readable VALUES (?, ?)", [(-made[name][0], owner) for name in sorted(allowed)]
    )


def readable_memories(made: Mapping[str, Made], runs: set[str], grants: Sequence[Grant]) -> set[str]:
    """The ids of an owner's memories that may be read. runs: ids of the readable runs of that owner. Pure.

    What a memory was made of must all be there and readable; so what is made in a circle, or of what is gone, is not.
    """
    verdicts: dict[str, bool] = {}
    for start in made:
        stack = [start]
        while stack:
            name = stack[-1]
            if name in verdicts:
                stack.pop()
                continue
            below = made[name].made_from
            unknown = next((o for o in below if o in made and o not in verdicts and o not in stack), None)
            if unknown is not None:
                stack.append(unknown)
                continue
            is_below = all(verdicts.get(other, False) for other in below)
            verdicts[name] = is_below and _may_read(made[name], runs, grants)
            stack.pop()
    return {name for name, is_allowed in verdicts.items() if is_allowed and not made[name].retired}


def _may_read(one: Made, runs: set[str], grants: Sequence[Grant]) -> bool:
    """Whether the grants allow a memory by itself, whatever it was made from."""
    if not all(run in runs for run, _, _ in one.sources):
        return False
    is_of_runs = one.how in _FROM_RUNS and bool(one.sources or one.made_from)
    return is_of_runs or any(_covers(grant, one) for grant in grants)


def _covers(grant: Grant, one: Made) -> bool:
    has = {"agent": one.agent, "project": one.project}.get(grant.scope)
    return bool(grant.value) and has == grant.value
