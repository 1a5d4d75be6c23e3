"""Runs and their trees, read from the index. Parents and roots are derived at reading, so the order in which
runs arrive never matters: a child that came before its parent finds it as soon as it is there.

Every function takes the principal and shows what is theirs and what others let them read; what is neither is NotFound,
never "forbidden". A run whose parent may not be read stands as a root, and nothing above it is named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from perdure.access.redact import mask
from perdure.errors import NotFound, UsageError
from perdure.index import visible
from perdure.index.store import Connection
from perdure.index.values import instant, ms
from perdure.index.visible import Visible
from perdure.types import Columns, Node, Principal, RunView

_COLUMNS = """run.id, run.run_id, run.captured_in, run.thread, run.user, run.runtime, machine.value AS machine_name,
  runtime.value AS runtime_name, agent.value AS agent_name, project.value AS project_name,
  conversation.value AS conversation_name, owner.value AS owner, session, generation, from_offset, to_offset,
  stored_sha256, started_ms, ended_ms, captured_ms, parent_run_id, parent_session, fork, path, cwd, readable_by,
  title, intent, n_turns, n_user, n_assistant, n_tool, run.n_calls, run.n_tokens, n_forgotten, n_malformed, skipped"""
_FROM = """run JOIN name AS machine ON machine.id = run.machine JOIN name AS runtime ON runtime.id = run.runtime
  JOIN name AS agent ON agent.id = run.agent JOIN name AS conversation ON conversation.id = run.conversation
  JOIN name AS owner ON owner.id = run.user JOIN name AS project ON project.id = run.project"""
_NAMES = [part.split(" AS ")[-1].split(".")[-1].strip() for part in _COLUMNS.split(",")]

Row = dict[str, Any]
_MIN_PREFIX_CHARS = 4


def _select(index: Connection, where: str, *values: object) -> list[Row]:
    rows = index.rows(f"SELECT {_COLUMNS} FROM {_FROM} WHERE {where}", *values)
    return [dict(zip(_NAMES, row, strict=True)) for row in rows]


def run(index: Connection, principal: Principal, run_id: str) -> RunView:
    """One run. Raises NotFound when there is none of that id that the principal may see."""
    with index.reading():
        seen = visible.of(index, principal)
        return _view(index, _row(index, seen, run_id), _Lineage(index, seen))


def _row(index: Connection, seen: Visible, run_id: str) -> Row:
    found = _select(index, f"run.run_id = ? AND {seen.runs()}", run_id)
    if not found:
        raise NotFound(run_id)
    return found[0]


class _Lineage:
    """Parents and roots that may be read, each looked up once."""

    def __init__(self, index: Connection, seen: Visible) -> None:
        self._index = index
        self.seen = seen
        self._parents: dict[str, Row | None] = {}
        self._roots: dict[str, str] = {}

    def parent(self, row: Row) -> Row | None:
        """The run above a run."""
        key = row["run_id"]
        if key not in self._parents:
            above = _parent(self._index, row)
            self._parents[key] = above if above and _may_read(self._index, self.seen, [above]) else None
        return self._parents[key]

    def root(self, row: Row) -> str:
        """The run at the top of a run's tree; where made-up parents form a loop, the run at which it closes."""
        path, top = [row["run_id"]], row
        while top["run_id"] not in self._roots and (above := self.parent(top)) and above["run_id"] not in path:
            path.append(above["run_id"])
            top = above
        root = self._roots.get(top["run_id"], str(top["run_id"]))
        self._roots.update((run_id, root) for run_id in path)
        return root


def _may_read(index: Connection, seen: Visible, rows: Sequence[Row]) -> list[Row]:
    """Those of these runs that may be read."""
    others = [row["id"] for row in rows if row["user"] != seen.own]
    readable = visible.is_readable(index, seen, others) if others else set()
    return [row for row in rows if row["user"] == seen.own or row["id"] in readable]


def _view(index: Connection, row: Row, lineage: _Lineage) -> RunView:
    view = _whole(index, row, lineage)
    return view if row["user"] == lineage.seen.own else _shared(view)


def _shared(view: RunView) -> RunView:
    """A run as its owner shares it: with its native places masked, and without what is of its raw bytes."""
    return replace(
        view, title=mask(view.title), intent=mask(view.intent), readable_by=(), jsonl_sha256="",
        session=mask(view.session), conversation=mask(view.conversation), tags=tuple(map(mask, view.tags)),
        path=mask(view.path) if view.path else None, cwd=mask(view.cwd) if view.cwd else None,
        project=mask(view.project) if view.project else None,
    )  # fmt: skip


def _whole(index: Connection, row: Row, lineage: _Lineage) -> RunView:
    parent = lineage.parent(row)
    tags = index.rows("SELECT value FROM run_tag JOIN name ON name.id = tag WHERE run = ? ORDER BY value", row["id"])
    models = index.rows("SELECT DISTINCT model FROM turn WHERE run = ? AND model <> '' ORDER BY model", row["id"])
    started, ended = row["started_ms"], row["ended_ms"]
    return RunView(
        run_id=row["run_id"], user=row["owner"], machine=row["machine_name"], runtime=row["runtime_name"],
        agent=row["agent_name"], project=row["project_name"] or None, conversation=row["conversation_name"],
        session=row["session"], generation=row["generation"],
        parent_run_id=parent["run_id"] if parent else None, root_run_id=lineage.root(row),
        sidechain=bool(row["thread"]), fork=bool(row["fork"]), tags=tuple(tag for (tag,) in tags),
        readable_by=tuple(row["readable_by"].split()), models=tuple(model for (model,) in models),
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


def _parent(index: Connection, row: Row) -> Row | None:
    """The run above: the one that was named, the previous of its source, or the one that spawned its session."""
    if row["parent_run_id"]:
        named = _select(index, "run.run_id = ? AND run.user = ?", row["parent_run_id"], row["user"])
        return named[0] if named else None
    before = _select(
        index,
        """run.user = ? AND run.runtime = ? AND session = ? AND generation = ? AND from_offset < ? AND thread = ''
           ORDER BY from_offset DESC, run.run_id LIMIT 1""",
        row["user"], row["runtime"], row["session"], row["generation"], row["from_offset"],
    )  # fmt: skip
    if before:
        return before[0]
    return _spawner(index, row) if row["parent_session"] else None


def _spawner(index: Connection, row: Row) -> Row | None:
    """The run of the parent session during which this session began, or else its first run."""
    above = _select(
        index,
        """run.user = ? AND run.runtime = ? AND session = ? AND thread = '' AND run.run_id <> ?
           ORDER BY coalesce(started_ms, 0) > ?, abs(coalesce(started_ms, 0) - ?), run.run_id LIMIT 1""",
        row["user"], row["runtime"], row["parent_session"], row["run_id"],
        row["started_ms"] or 0, row["started_ms"] or 0,
    )  # fmt: skip
    return above[0] if above else None


def children(index: Connection, row: Row) -> list[Row]:
    """The runs directly below a run, oldest first."""
    found = _select(index, "run.parent_run_id = ? AND run.user = ?", row["run_id"], row["user"])
    if not row["thread"]:
        found += _select(
            index,
            """run.user = ? AND run.runtime = ? AND session = ? AND generation = ? AND thread = '' AND from_offset > ?
               ORDER BY from_offset, run.run_id LIMIT 1""",
            row["user"], row["runtime"], row["session"], row["generation"], row["from_offset"],
        )  # fmt: skip
        spawned = "run.user = ? AND run.runtime = ? AND parent_session = ?"
        found += _select(index, spawned, row["user"], row["runtime"], row["session"])
    below = {r["run_id"]: r for r in found if (_parent(index, r) or {}).get("run_id") == row["run_id"]}
    return sorted(below.values(), key=lambda r: (r["started_ms"] or 0, r["run_id"]))


def descendants(index: Connection, principal: Principal, run_id: str) -> list[RunView]:
    """Every run below a run, parents before children."""
    with index.reading():
        seen = visible.of(index, principal)
        return _views(index, seen, _below(index, seen, _row(index, seen, run_id), None))


def _views(index: Connection, seen: Visible, rows: Sequence[Row]) -> list[RunView]:
    lineage = _Lineage(index, seen)
    return [_view(index, row, lineage) for row in rows]


def forest(
    index: Connection,
    principal: Principal,
    *,
    since_at: datetime | None = None,
    runtime: str | None = None,
    root: str | None = None,
    limit: int = 500,
    offset: int = 0,
) -> list[Node]:
    """The trees of the newest runs, newest tree first; a run whose parent is not among them stands as a root.

    offset: so many newer ones are left out.
    """
    with index.reading():
        seen = visible.of(index, principal)
        if root:
            top = _row(index, seen, root)
            rows = [top, *_below(index, seen, top, offset + limit - 1)][offset:]
        else:
            rows = _recent(index, seen, since_at, runtime, (limit, offset))
        views = _views(index, seen, rows)
    return _trees(views, top=root)


def _below(index: Connection, seen: Visible, top: Row, limit: int | None) -> list[Row]:
    found: list[Row] = []
    queue, known = deque([top]), {top["run_id"]}
    while queue and (limit is None or len(found) < limit):
        fresh = [row for row in children(index, queue.popleft()) if row["run_id"] not in known]
        below = _may_read(index, seen, fresh)
        known.update(row["run_id"] for row in below)
        found += below
        queue += below
    return found[:limit]


def _recent(
    index: Connection, seen: Visible, since_at: datetime | None, runtime: str | None, part: tuple[int, int]
) -> list[Row]:
    tests, values = [seen.runs(), "run.n_turns + run.n_forgotten > 0"], []
    if since_at is not None:
        tests.append("coalesce(run.ended_ms, run.captured_ms) >= ?")
        values.append(str(ms(since_at)))
    if runtime:
        tests.append("runtime.value = ?")
        values.append(runtime)
    order = "coalesce(run.started_ms, run.captured_ms) DESC, run.run_id"
    where = " AND ".join(test.replace(">= ?", ">= CAST(? AS INTEGER)") for test in tests)
    return _select(index, f"{where} ORDER BY {order} LIMIT ? OFFSET ?", *values, *part)


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


def projects(index: Connection, principal: Principal) -> list[str]:
    """The projects of which anything may be read, by their paths, "" for what has none."""
    with index.reading():
        seen = visible.of(index, principal)
        if "projects" not in seen.kept:
            query = """SELECT value FROM name WHERE kind = 'project'
                AND EXISTS (SELECT 1 FROM held WHERE user = ? AND name = name.id AND held.n_chunks > 0)"""
            found = {path for (path,) in index.rows(query, seen.own)}
            if seen.owners:
                shared = f"SELECT DISTINCT value FROM run JOIN name ON name.id = run.project WHERE {visible.IS_RUN}"
                found |= {path for (path,) in index.rows(shared)}
            seen.kept["projects"] = sorted(found)
        return list(seen.kept["projects"])


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
