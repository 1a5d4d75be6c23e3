"""Runs and their trees, read from the index. Parents and roots are derived at reading, so the order in which
runs arrive never matters: a child that came before its parent finds it as soon as it is there.

Every function takes the principal and shows what is theirs and what others let them read; what is neither is NotFound,
never "forbidden". A run whose parent may not be read stands as a root, and nothing above it is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from perdure.access.redact import mask
from perdure.errors import NotFound, UsageError
from perdure.index import visible
from perdure.index.keyword import numbers
from perdure.index.store import Connection
from perdure.index.values import instant, ms
from perdure.index.visible import Visible
from perdure.types import Columns, Filters, Node, Principal, RunView

_COLUMNS = """run.id, run.run_id, run.captured_in, run.thread, run.user, run.runtime, machine.value AS machine_name,
  runtime.value AS runtime_name, agent.value AS agent_name, project.value AS project_name,
  conversation.value AS conversation_name, owner.value AS owner, session, generation, from_offset, to_offset,
  stored_sha256, started_ms, ended_ms, captured_ms, parent_run_id, parent_session, fork, path, cwd, readable_by,
  title, intent, n_turns, n_user, n_assistant, n_tool, run.n_calls, run.n_tokens, n_forgotten, n_malformed, skipped"""
_FROM = """run JOIN name AS machine ON machine.id = run.machine JOIN name AS runtime ON runtime.id = run.runtime
  JOIN name AS agent ON agent.id = run.agent JOIN name AS conversation ON conversation.id = run.conversation
  JOIN name AS owner ON owner.id = run.user JOIN name AS project ON project.id = run.project"""
_NAMES = [part.split(" AS ")[-1].split(".")[-1].strip() for part in _COLUMNS.split(",")]

_BEFORE = """SELECT above.id FROM run AS above WHERE above.user = run.user AND above.runtime = run.runtime
    AND above.session = run.session AND above.generation = run.generation AND above.from_offset < run.from_offset
    AND above.thread = '' ORDER BY above.from_offset DESC, above.run_id LIMIT 1"""
_NAMED = "SELECT above.id FROM run AS above WHERE above.run_id = run.parent_run_id AND above.user = run.user"
_PARENT = f"""iif(coalesce(run.parent_run_id, '') <> '', ({_NAMED}),
    coalesce(({_BEFORE}), iif(coalesce(run.parent_session, '') <> '', ({visible.SPAWNER}), NULL)))"""
# the run above: the one that was named, the previous of its source, or the one that spawned its session
_ABOVE = f"""WITH RECURSIVE above(id, run_id, parent) AS (
    SELECT run.id, run.run_id, {_PARENT} FROM run WHERE run.id IN (SELECT value FROM json_each(?))
    UNION SELECT run.id, run.run_id, {_PARENT} FROM above CROSS JOIN run ON run.id = above.parent WHERE {{may_read}})
  SELECT id, run_id, parent FROM above"""
_MAY_BE_BELOW = """WITH RECURSIVE below(id) AS (
    SELECT value FROM json_each(?)
    UNION SELECT run.id FROM below CROSS JOIN run AS top ON top.id = below.id
      CROSS JOIN run INDEXED BY run_child ON run.parent_run_id = top.run_id AND run.user = top.user WHERE {may_read}
    UNION SELECT run.id FROM below CROSS JOIN run AS top ON top.id = below.id AND top.thread = ''
      CROSS JOIN run ON run.id = (SELECT id FROM run AS next WHERE next.user = top.user AND next.runtime = top.runtime
          AND next.session = top.session AND next.generation = top.generation AND next.from_offset > top.from_offset
          AND next.thread = '' ORDER BY next.from_offset, next.run_id LIMIT 1)
      WHERE coalesce(run.parent_run_id, '') = '' AND {may_read}
    UNION SELECT run.id FROM below CROSS JOIN run AS top ON top.id = below.id AND top.thread = ''
      CROSS JOIN run ON run.user = top.user AND run.runtime = top.runtime AND run.parent_session = top.session
      WHERE {may_read})
  SELECT id FROM below"""  # of what a session spawned all, whichever of its runs did

Row = dict[str, Any]
_SCANNED = 1000  # runs whose roots are looked up at once
_MIN_PREFIX_CHARS = 4


def _select(index: Connection, where: str, *values: object) -> list[Row]:
    rows = index.rows(f"SELECT {_COLUMNS} FROM {_FROM} WHERE {where}", *values)
    return [dict(zip(_NAMES, row, strict=True)) for row in rows]


def run(index: Connection, principal: Principal, run_id: str) -> RunView:
    """One run. Raises NotFound when there is none of that id that the principal may see."""
    with index.reading():
        seen = visible.of(index, principal)
        return _views(index, seen, [_row(index, seen, run_id)])[0]


def _row(index: Connection, seen: Visible, run_id: str) -> Row:
    found = _select(index, f"run.run_id = ? AND {seen.runs()}", run_id)
    if not found:
        raise NotFound(run_id)
    return found[0]


class _Lineage:
    """Parents and roots that may be read, of runs by their numbers."""

    def __init__(self, index: Connection, seen: Visible) -> None:
        self._index = index
        self._query = _ABOVE.format(may_read=seen.runs())
        self._above: dict[int, int | None] = {}
        self._names: dict[int, str] = {}
        self._roots: dict[int, int] = {}

    def load(self, runs: Iterable[int]) -> None:
        """Look up what is above these runs, up to their roots."""
        wanted = [number for number in runs if number not in self._above]
        for number, name, above in self._index.rows(self._query, _json(wanted)):
            self._above[number], self._names[number] = above, name

    def parent(self, number: int) -> int | None:
        """The run above a run."""
        above = self._above[number]
        return above if above in self._above else None

    def root(self, number: int) -> int:
        """The run at the top of a run's tree; where made-up parents form a loop, the first of it."""
        path, top = {number: 0}, number  # with how far each is above the run
        while top not in self._roots and (above := self.parent(top)) is not None:
            if above in path:
                top = min(list(path)[path[above] :], key=self.name)
                break
            path[above] = len(path)
            top = above
        root = self._roots.get(top, top)
        self._roots.update(dict.fromkeys(path, root))
        return root

    def name(self, number: int) -> str:
        """The id of a run."""
        return self._names[number]


def _json(items: Iterable[int]) -> str:
    return msgspec.json.encode(list(items)).decode()


def _views(index: Connection, seen: Visible, rows: Sequence[Row], lineage: _Lineage | None = None) -> list[RunView]:
    """Runs as they may be told, in the order given."""
    lineage = lineage or _Lineage(index, seen)
    wanted = _json(row["id"] for row in rows)
    lineage.load(row["id"] for row in rows)
    tags, models, left = (_by_run(index, query, wanted) for query in (_TAGS, _MODELS, _LEFT))
    views = [
        replace(
            _whole(row, lineage), tags=tuple(tags.get(row["id"], ())), models=tuple(models.get(row["id"], ())),
            n_abandoned=sum(left.get(row["id"], ())),
        )
        for row in rows
    ]  # fmt: skip
    return [view if row["user"] == seen.own else _shared(view) for row, view in zip(rows, views, strict=True)]


_TAGS = """SELECT run, value FROM run_tag JOIN name ON name.id = tag
  WHERE run IN (SELECT value FROM json_each(?)) ORDER BY value"""
_MODELS = """SELECT DISTINCT run, model FROM turn
  WHERE run IN (SELECT value FROM json_each(?)) AND model <> '' ORDER BY model"""
_LEFT = "SELECT run, count(*) FROM turn WHERE run IN (SELECT value FROM json_each(?)) AND abandoned GROUP BY run"


def _by_run(index: Connection, query: str, runs: str) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for number, value in index.rows(query, runs):
        found.setdefault(number, []).append(value)
    return found


def _shared(view: RunView) -> RunView:
    """A run as its owner shares it: with its native places masked, and without what is of its raw bytes."""
    return replace(
        view, title=mask(view.title), intent=mask(view.intent), readable_by=(), jsonl_sha256="",
        session=mask(view.session), conversation=mask(view.conversation), tags=tuple(map(mask, view.tags)),
        path=mask(view.path) if view.path else None, cwd=mask(view.cwd) if view.cwd else None,
        project=mask(view.project) if view.project else None,
    )  # fmt: skip


def _whole(row: Row, lineage: _Lineage) -> RunView:
    above = lineage.parent(row["id"])
    started, ended = row["started_ms"], row["ended_ms"]
    return RunView(
        run_id=row["run_id"], user=row["owner"], machine=row["machine_name"], runtime=row["runtime_name"],
        agent=row["agent_name"], project=row["project_name"] or None, conversation=row["conversation_name"],
        session=row["session"], generation=row["generation"],
        parent_run_id=None if above is None else lineage.name(above),
        root_run_id=lineage.name(lineage.root(row["id"])),
        sidechain=bool(row["thread"]), fork=bool(row["fork"]), tags=(),
        readable_by=tuple(row["readable_by"].split()), models=(),
        title=row["title"], intent=row["intent"],
        started_at=instant(started), ended_at=instant(ended), captured_at=_required(row["captured_ms"]),
        duration_ms=ended - started if started is not None and ended is not None else None,
        n_turns=row["n_turns"], n_user=row["n_user"], n_assistant=row["n_assistant"], n_tool=row["n_tool"],
        n_calls=row["n_calls"], n_tokens=row["n_tokens"], n_forgotten=row["n_forgotten"],
        n_malformed=row["n_malformed"], skipped=msgspec.json.decode(row["skipped"]), path=row["path"], cwd=row["cwd"],
        from_offset=row["from_offset"], to_offset=row["to_offset"],
        jsonl_bytes=row["to_offset"] - row["from_offset"], jsonl_sha256=row["stored_sha256"],
    )  # fmt: skip


def _required(stated_ms: int) -> datetime:
    at = instant(stated_ms)
    assert at is not None
    return at


def descendants(index: Connection, principal: Principal, run_id: str) -> list[RunView]:
    """Every run below a run, parents before children."""
    with index.reading():
        seen = visible.of(index, principal)
        lineage = _Lineage(index, seen)
        rows = _with_below(index, seen, lineage, [_row(index, seen, run_id)["id"]])
        views = _views(index, seen, rows, lineage)
    below: dict[str | None, list[RunView]] = {}
    for view in sorted(views, key=_begun):
        below.setdefault(view.parent_run_id, []).append(view)
    found, known = [run_id], {run_id}
    for name in found:
        fresh = [view.run_id for view in below.get(name, ()) if view.run_id not in known]
        known.update(fresh)
        found += fresh
    by_name = {view.run_id: view for view in views}
    return [by_name[name] for name in found[1:]]


def _begun(view: RunView) -> tuple[float, str]:
    return (view.started_at.timestamp() if view.started_at else 0.0, view.run_id)


def _with_below(index: Connection, seen: Visible, lineage: _Lineage, tops: Sequence[int]) -> list[Row]:
    """These runs and all that is below them."""
    near = [number for (number,) in index.rows(_MAY_BE_BELOW.format(may_read=seen.runs()), _json(tops))]
    lineage.load(near)
    below: dict[int | None, list[int]] = {}
    for number in near:
        below.setdefault(lineage.parent(number), []).append(number)
    found = dict.fromkeys(tops)
    todo = list(tops)
    while todo:
        fresh = [number for number in below.get(todo.pop(), ()) if number not in found]
        found.update(dict.fromkeys(fresh))
        todo += fresh
    return _select(index, "run.id IN (SELECT value FROM json_each(?))", _json(found))


def forest(
    index: Connection,
    principal: Principal,
    filters: Filters,
    *,
    root: str | None = None,
    limit: int = 500,
    offset: int = 0,
) -> list[Node]:
    """The trees of the newest so many runs, whole, newest tree first. offset: so many newer trees are left out.

    filters: agents, projects, runtimes, machines, tags and since when a run was active; of a tree what they leave is
    shown, and a run whose parent they do not leave stands as a root. root: nothing but the tree below this run.
    """
    with index.reading():
        seen = visible.of(index, principal)
        lineage = _Lineage(index, seen)
        if root:
            rows = _with_below(index, seen, lineage, [_row(index, seen, root)["id"]]) if offset == 0 else []
        else:
            matching = _newest(index, seen, filters)
            left = set(matching)
            tops = _page(lineage, matching, limit, offset)
            rows = [row for row in _with_below(index, seen, lineage, tops) if row["id"] in left]
        views = _views(index, seen, rows, lineage)
    return _trees(views, top=root)


def _newest(index: Connection, seen: Visible, filters: Filters) -> list[int]:
    """The runs with turns that the filters leave, newest first."""
    tests, values = [seen.runs(), "run.n_turns + run.n_forgotten > 0"], []
    for field in ("agents", "projects", "runtimes", "machines"):
        if wanted := getattr(filters, field):
            kind = field.removesuffix("s")
            tests.append(f"run.{kind} IN (SELECT value FROM json_each(?))")
            values.append(_json(numbers(index, kind, wanted)))
    for tag in filters.tags:
        tests.append("run.id IN (SELECT run FROM run_tag WHERE tag IN (SELECT value FROM json_each(?)))")
        values.append(_json(numbers(index, "tag", [tag])))
    if filters.since_at is not None:
        tests.append("coalesce(run.ended_ms, run.captured_ms) >= CAST(? AS INTEGER)")
        values.append(str(ms(filters.since_at)))
    order = "coalesce(run.started_ms, run.captured_ms) DESC, run.run_id"
    found = index.rows(f"SELECT run.id FROM run WHERE {' AND '.join(tests)} ORDER BY {order}", *values)
    return [number for (number,) in found]


def _page(lineage: _Lineage, matching: Sequence[int], limit: int, offset: int) -> list[int]:
    """The roots of a page: those of so many of these runs, behind so many trees that begin before them."""
    passed: set[int] = set()
    chosen: dict[int, None] = {}  # a set that keeps the order
    n_left = limit
    for first in range(0, len(matching), _SCANNED):
        part = matching[first : first + _SCANNED]
        lineage.load(part)
        for top in map(lineage.root, part):
            if top in passed or len(passed) < offset:
                passed.add(top)
                continue
            chosen[top] = None
            n_left -= 1
            if n_left == 0:
                return list(chosen)
    return list(chosen)


def _trees(views: Sequence[RunView], *, top: str | None) -> list[Node]:
    """Trees from runs that know their parents. A loop of made-up parents is cut at its first run."""
    known = {view.run_id: view for view in views}
    below: dict[str, list[RunView]] = {}
    roots = []
    for view in views:
        if view.run_id != top and view.parent_run_id in known and view.root_run_id != view.run_id:
            below.setdefault(str(view.parent_run_id), []).append(view)
        else:
            roots.append(view)
    placed: set[str] = set()
    nodes = [_node(view, below, placed) for view in sorted(roots, key=_age)]
    nodes += [_node(view, below, placed) for view in sorted(views, key=_age) if view.run_id not in placed]
    return sorted(nodes, key=_newest_of, reverse=True)


def _node(top: RunView, below: dict[str, list[RunView]], placed: set[str]) -> Node:
    """The tree under a run, built without recursion: sessions can be thousands of deltas deep."""
    order, stack = [], [top]
    placed.add(top.run_id)
    while stack:
        view = stack.pop()
        order.append(view)
        fresh = [child for child in below.get(view.run_id, ()) if child.run_id not in placed]
        placed.update(child.run_id for child in fresh)
        stack += fresh
    built: dict[str, Node] = {}
    for view in reversed(order):
        kids = [built.pop(child.run_id) for child in below.get(view.run_id, ()) if child.run_id in built]
        built[view.run_id] = Node(view, tuple(sorted(kids, key=lambda node: _age(node.run))))
    return built[top.run_id]


def _age(view: RunView) -> tuple[str, str]:
    return ((view.started_at or view.captured_at).isoformat(), view.run_id)


def _newest_of(node: Node) -> tuple[str, str]:
    newest, stack = _age(node.run), [node]
    while stack:
        item = stack.pop()
        newest = max(newest, _age(item.run))
        stack += item.children
    return newest


def columns(index: Connection, principal: Principal, run_id: str) -> Columns:
    """The six columns of a run: messages, calls, files, entities and skills."""
    with index.reading():
        row = _row(index, visible.of(index, principal), run_id)
        said = index.rows(
            """SELECT turn.role, kind.value, chunk_text.text FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id
               JOIN turn ON turn.id = chunk.turn JOIN name AS kind ON kind.id = chunk.kind
               WHERE turn.run = ? ORDER BY turn.offset, chunk.n""",
            row["id"],
        )
        facets = index.rows(
            """SELECT facet.kind, facet.value FROM turn JOIN turn_facet ON turn_facet.turn = turn.id
               JOIN facet ON facet.id = turn_facet.facet WHERE turn.run = ? ORDER BY facet.kind, facet.value""",
            row["id"],
        )
    return Columns(
        user_messages=tuple(text for role, kind, text in said if role == "user" and kind == "text"),
        agent_messages=tuple(text for role, kind, text in said if role == "assistant" and kind == "text"),
        tool_calls=tuple(text for _, kind, text in said if kind == "call"),
        files_touched=_of(facets, "file"),
        entities=_of(facets, "entity"),
        skills=_of(facets, "skill"),
    )


def _of(facets: Sequence[tuple[Any, ...]], kind: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for found, value in facets if found == kind))


def resolve(index: Connection, principal: Principal, prefix: str) -> tuple[str, str]:
    """("turn" | "run" | "conversation", id) for an id or the beginning of one. Raises NotFound, UsageError."""
    queries = {
        "turn": "SELECT DISTINCT turn_id FROM turn JOIN run ON run.id = turn.run WHERE turn_id >= ?1 AND turn_id < ?2",
        "run": "SELECT DISTINCT run_id FROM run WHERE run_id >= ?1 AND run_id < ?2",
        "conversation": """SELECT DISTINCT value FROM run JOIN name ON name.id = conversation
            WHERE name.kind = 'conversation' AND value >= ?1 AND value < ?2""",
    }
    with index.reading():
        may_read = visible.of(index, principal).runs()
        found = [
            (kind, row[0])
            for kind, query in queries.items()
            for row in index.rows(f"{query} AND {may_read} LIMIT 3", prefix, prefix + "\U0010ffff")
        ]
    exact = [item for item in found if item[1] == prefix]
    if len(prefix) < _MIN_PREFIX_CHARS and not exact:
        raise UsageError(f"{prefix!r} is too short: give at least {_MIN_PREFIX_CHARS} characters of the id")
    if not found:
        raise NotFound(prefix)
    if len(exact or found) > 1 and not exact:
        raise UsageError(f"{prefix!r} could be {', '.join(f'{kind} {name}' for kind, name in found)}")
    return (exact or found)[0]


def runs_of_conversation(index: Connection, principal: Principal, conversation: str) -> list[RunView]:
    """The captured runs of a conversation, in the order in which they were said; the principal's own first, should
    somebody share runs of another that has its id.
    """
    with index.reading():
        seen = visible.of(index, principal)
        rows = _select(
            index,
            f"""conversation.value = ? AND {seen.runs()} AND thread = '' ORDER BY owner.value <> ?, owner.value,
                session <> conversation.value, session, generation, from_offset, run.run_id""",
            conversation, principal.user,
        )  # fmt: skip
        return _views(index, seen, rows)


def openings(index: Connection, principal: Principal, run_ids: Iterable[str]) -> dict[str, RunView]:
    """The run with which the conversation of each of these runs begins, of those that may be read."""
    with index.reading():
        seen = visible.of(index, principal)
        pairs = index.rows(_OPENING.format(may_read=seen.runs()), msgspec.json.encode(list(run_ids)).decode())
        rows = _select(index, "run.id IN (SELECT value FROM json_each(?))", _json({first for _, first in pairs}))
        views = dict(zip((row["id"] for row in rows), _views(index, seen, rows), strict=True))
    return {run_id: views[first] for run_id, first in pairs}


_OPENING = """SELECT asked.run_id, (SELECT run.id FROM run INDEXED BY run_conversation
    WHERE run.conversation = asked.conversation AND run.user = asked.user AND run.thread = '' AND {may_read}
    ORDER BY run.session <> (SELECT value FROM name WHERE id = run.conversation), run.session, run.generation,
      run.from_offset, run.run_id LIMIT 1) AS first
  FROM (SELECT run.run_id, run.conversation, run.user FROM json_each(?) AS given
      CROSS JOIN run ON run.run_id = given.value WHERE {may_read}) AS asked
  WHERE first IS NOT NULL"""


def names(index: Connection, principal: Principal, kind: str) -> list[str]:
    """The names of a kind that stand on anything that may be read. kind: project ("" for none), tag, runtime, machine
    or agent.
    """
    with index.reading():
        seen = visible.of(index, principal)
        if kind not in seen.kept:
            query = """SELECT value FROM name WHERE kind = ?
                AND EXISTS (SELECT 1 FROM held WHERE user = ? AND name = name.id AND held.n_chunks > 0)"""
            found = {value for (value,) in index.rows(query, kind, seen.own)}
            if seen.owners:
                column = "(SELECT tag FROM run_tag WHERE run_tag.run = run.id)" if kind == "tag" else f"(run.{kind})"
                shared = f"SELECT DISTINCT value FROM run JOIN name ON name.id IN {column} WHERE {visible.IS_RUN}"
                found |= {value for (value,) in index.rows(shared)}
            seen.kept[kind] = sorted(found)
        return list(seen.kept[kind])


def said_by_month(index: Connection, principal: Principal) -> dict[str, int]:
    """How many messages of a person there are of each month (yyyy-mm, in UTC); undated ones are left out."""
    found = index.rows(
        """SELECT strftime('%Y-%m', turn.stated_ms / 1000, 'unixepoch'), count(*) FROM turn
          JOIN run ON run.id = turn.run JOIN name AS owner ON owner.id = run.user
          WHERE owner.value = ? AND turn.author = 'person' AND turn.said AND turn.stated_ms IS NOT NULL GROUP BY 1""",
        principal.user,
    )
    return dict(found)


def run_of_turn(index: Connection, principal: Principal, turn_id: str) -> tuple[str, int, bool]:
    """(captured run that holds a turn's bytes, offset of its first line there, on an abandoned branch)."""
    may_read = visible.of(index, principal).runs()
    rows = index.rows(
        f"""SELECT run.captured_in, turn.content_offset, turn.abandoned FROM turn JOIN run ON run.id = turn.content_run
            WHERE turn_id = ? AND {may_read}""",
        turn_id,
    )
    if not rows:
        raise NotFound(turn_id)
    return rows[0][0], rows[0][1], bool(rows[0][2])


def abandoned_turns(index: Connection, run_id: str) -> set[int]:
    """Offsets of the turns of a captured run that lie on a branch which the session left."""
    rows = index.rows(
        """SELECT turn.content_offset FROM turn JOIN run ON run.id = turn.content_run
           WHERE run.captured_in = ? AND abandoned""",
        run_id,
    )
    return {row[0] for row in rows}


def turn_offsets(index: Connection, principal: Principal, run_id: str) -> set[int]:
    """Offsets of the turns of a run (an inline sidechain, say) in the bytes that hold them."""
    may_read = visible.of(index, principal).runs()
    query = f"SELECT content_offset FROM turn JOIN run ON run.id = turn.content_run WHERE run.run_id = ? AND {may_read}"
    return {row[0] for row in index.rows(query, run_id)}
