"""Read runs and their trees from the index.

Parents and roots are derived when they are read, so the order in which runs arrive never matters: a
child that came before its parent finds it as soon as the parent is there. Every function takes the
principal and shows their own runs and those that others let them read; any other run is NotFound, never
"forbidden". A run whose parent may not be read stands as a root, and nothing above it is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.access.redact import mask
from perdure.errors import NotFound, UsageError
from perdure.index import visibility
from perdure.index.encoding import build_month_sql, from_ms, to_ms
from perdure.index.keyword import find_name_numbers
from perdure.index.store import IndexConnection
from perdure.index.visibility import ReadScope
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

_PREVIOUS_OF_SOURCE = """SELECT above.id FROM run AS above WHERE above.user = run.user AND above.runtime = run.runtime
    AND above.session = run.session AND above.generation = run.generation AND above.from_offset < run.from_offset
    AND above.thread = '' ORDER BY above.from_offset DESC, above.run_id LIMIT 1"""
_NAMED_PARENT = "SELECT above.id FROM run AS above WHERE above.run_id = run.parent_run_id AND above.user = run.user"
_PARENT = f"""CASE WHEN coalesce(run.parent_run_id, '') <> '' THEN ({_NAMED_PARENT}) ELSE
    coalesce(({_PREVIOUS_OF_SOURCE}), CASE WHEN coalesce(run.parent_session, '') <> '' THEN ({visibility.SPAWNER}) END)
  END"""
# the parent: the run that was named, the previous run of the source, or the run that spawned the session
_RUNS_ABOVE = f"""WITH RECURSIVE above(id, run_id, parent) AS (
    SELECT run.id, run.run_id, {_PARENT} FROM run WHERE run.id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))
    UNION SELECT run.id, run.run_id, {_PARENT} FROM above CROSS JOIN run ON run.id = above.parent WHERE {{may_read}})
  SELECT id, run_id, parent FROM above"""
_POSSIBLE_RUNS_BELOW = """WITH RECURSIVE below(id) AS (
    SELECT CAST(value AS BIGINT) FROM json_each(?)
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
  SELECT id FROM below"""  # everything that a session spawned, whichever of its runs did it

RunValues = dict[str, Any]
_ROOTS_PER_LOOKUP = 1000  # runs whose roots are looked up in one query
_MIN_PREFIX_CHARS = 4


def _select_runs(index: IndexConnection, condition: str, *values: object) -> list[RunValues]:
    rows = index.select(f"SELECT {_COLUMNS} FROM {_FROM} WHERE {condition}", *values)
    return [dict(zip(_NAMES, row, strict=True)) for row in rows]


def read_run(index: IndexConnection, principal: Principal, run_id: str) -> RunView:
    """Return one run. Raises NotFound when the principal may see no run with this id."""
    with index.begin_read():
        read_scope = visibility.get_read_scope(index, principal)
        return _build_views(index, read_scope, [_find_row(index, read_scope, run_id)])[0]


def _find_row(index: IndexConnection, read_scope: ReadScope, run_id: str) -> RunValues:
    rows = _select_runs(index, f"run.run_id = ? AND {read_scope.build_run_test()}", run_id)
    if not rows:
        raise NotFound(run_id)
    return rows[0]


class _RunLineage:
    """The parents and roots, as far as they may be read, of runs by their numbers."""

    def __init__(self, index: IndexConnection, read_scope: ReadScope) -> None:
        self._index = index
        self._query = _RUNS_ABOVE.format(may_read=read_scope.build_run_test())
        self._parents: dict[int, int | None] = {}
        self._run_ids: dict[int, str] = {}
        self._roots: dict[int, int] = {}

    def load(self, run_numbers: Iterable[int]) -> None:
        """Look up the parents of these runs, up to their roots."""
        numbers = [number for number in run_numbers if number not in self._parents]
        for number, run_id, parent in self._index.select(self._query, _encode_numbers(numbers)):
            self._parents[number], self._run_ids[number] = parent, run_id

    def get_parent(self, number: int) -> int | None:
        """Return the parent of a run, or None."""
        parent = self._parents[number]
        return parent if parent in self._parents else None

    def find_root(self, number: int) -> int:
        """Return the run at the top of a run's tree; when made-up parents form a loop, the first run of the loop."""
        steps_by_run, top = {number: 0}, number  # run -> its distance above the first run
        while top not in self._roots and (parent := self.get_parent(top)) is not None:
            if parent in steps_by_run:
                top = min(list(steps_by_run)[steps_by_run[parent] :], key=self.get_run_id)
                break
            steps_by_run[parent] = len(steps_by_run)
            top = parent
        root = self._roots.get(top, top)
        self._roots.update(dict.fromkeys(steps_by_run, root))
        return root

    def get_run_id(self, number: int) -> str:
        """Return the id of a run."""
        return self._run_ids[number]


def _encode_numbers(numbers: Iterable[int]) -> str:
    return msgspec.json.encode(list(numbers)).decode()


def _build_views(
    index: IndexConnection, read_scope: ReadScope, rows: Sequence[RunValues], lineage: _RunLineage | None = None
) -> list[RunView]:
    """Return runs as the principal may see them, in the order given."""
    lineage = lineage or _RunLineage(index, read_scope)
    run_numbers = _encode_numbers(row["id"] for row in rows)
    lineage.load(row["id"] for row in rows)
    tags, models, n_abandoned = (
        _group_by_run(index, query, run_numbers) for query in (_TAGS_BY_RUN, _MODELS_BY_RUN, _N_ABANDONED_BY_RUN)
    )
    views = [
        replace(
            _build_view(row, lineage),
            tags=tuple(tags.get(row["id"], ())),
            models=tuple(models.get(row["id"], ())),
            n_abandoned=sum(n_abandoned.get(row["id"], ())),
        )
        for row in rows
    ]
    return [
        view if row["user"] == read_scope.own_user else _mask_view(view) for row, view in zip(rows, views, strict=True)
    ]


_TAGS_BY_RUN = """SELECT run, value FROM run_tag JOIN name ON name.id = tag
  WHERE run IN (SELECT CAST(value AS BIGINT) FROM json_each(?)) ORDER BY value"""
_MODELS_BY_RUN = """SELECT DISTINCT run, model FROM turn
  WHERE run IN (SELECT CAST(value AS BIGINT) FROM json_each(?)) AND model <> '' ORDER BY model"""
_N_ABANDONED_BY_RUN = """SELECT run, count(*) FROM turn
  WHERE run IN (SELECT CAST(value AS BIGINT) FROM json_each(?)) AND abandoned GROUP BY run"""


def _group_by_run(index: IndexConnection, query: str, run_numbers: str) -> dict[int, list[Any]]:
    values_by_run: dict[int, list[Any]] = {}
    for number, value in index.select(query, run_numbers):
        values_by_run.setdefault(number, []).append(value)
    return values_by_run


def _mask_view(view: RunView) -> RunView:
    """Return a run as its owner shares it: native names and paths masked, and without fields of its raw bytes."""
    return replace(
        view,
        title=mask(view.title),
        intent=mask(view.intent),
        readable_by=(),
        jsonl_sha256="",
        session=mask(view.session),
        conversation=mask(view.conversation),
        tags=tuple(map(mask, view.tags)),
        path=mask(view.path) if view.path else None,
        cwd=mask(view.cwd) if view.cwd else None,
        project=mask(view.project) if view.project else None,
    )


def _build_view(row: RunValues, lineage: _RunLineage) -> RunView:
    parent = lineage.get_parent(row["id"])
    started_ms, ended_ms = row["started_ms"], row["ended_ms"]
    return RunView(
        run_id=row["run_id"],
        user=row["owner"],
        machine=row["machine_name"],
        runtime=row["runtime_name"],
        agent=row["agent_name"],
        project=row["project_name"] or None,
        conversation=row["conversation_name"],
        session=row["session"],
        generation=row["generation"],
        parent_run_id=None if parent is None else lineage.get_run_id(parent),
        root_run_id=lineage.get_run_id(lineage.find_root(row["id"])),
        sidechain=bool(row["thread"]),
        fork=bool(row["fork"]),
        tags=(),
        readable_by=tuple(row["readable_by"].split()),
        models=(),
        title=row["title"],
        intent=row["intent"],
        started_at=from_ms(started_ms),
        ended_at=from_ms(ended_ms),
        captured_at=_from_known_ms(row["captured_ms"]),
        duration_ms=ended_ms - started_ms if started_ms is not None and ended_ms is not None else None,
        n_turns=row["n_turns"],
        n_user=row["n_user"],
        n_assistant=row["n_assistant"],
        n_tool=row["n_tool"],
        n_calls=row["n_calls"],
        n_tokens=row["n_tokens"],
        n_forgotten=row["n_forgotten"],
        n_malformed=row["n_malformed"],
        skipped=msgspec.json.decode(row["skipped"]),
        path=row["path"],
        cwd=row["cwd"],
        from_offset=row["from_offset"],
        to_offset=row["to_offset"],
        jsonl_bytes=row["to_offset"] - row["from_offset"],
        jsonl_sha256=row["stored_sha256"],
    )


def _from_known_ms(stated_ms: int) -> datetime:
    known_instant = from_ms(stated_ms)
    assert known_instant is not None
    return known_instant


def list_descendants(index: IndexConnection, principal: Principal, run_id: str) -> list[RunView]:
    """Return every run below a run, parents before children."""
    with index.begin_read():
        read_scope = visibility.get_read_scope(index, principal)
        lineage = _RunLineage(index, read_scope)
        rows = _select_with_below(index, read_scope, lineage, [_find_row(index, read_scope, run_id)["id"]])
        views = _build_views(index, read_scope, rows, lineage)
    children: dict[str | None, list[RunView]] = {}
    for view in sorted(views, key=_to_begin_key):
        children.setdefault(view.parent_run_id, []).append(view)
    ordered_ids, placed_ids = [run_id], {run_id}
    for parent_id in ordered_ids:
        new_ids = [view.run_id for view in children.get(parent_id, ()) if view.run_id not in placed_ids]
        placed_ids.update(new_ids)
        ordered_ids += new_ids
    view_by_id = {view.run_id: view for view in views}
    return [view_by_id[parent_id] for parent_id in ordered_ids[1:]]


def _to_begin_key(view: RunView) -> tuple[float, str]:
    return (view.started_at.timestamp() if view.started_at else 0.0, view.run_id)


def _select_with_below(
    index: IndexConnection, read_scope: ReadScope, lineage: _RunLineage, tops: Sequence[int]
) -> list[RunValues]:
    """Return these runs and all runs below them."""
    candidates = [
        number
        for (number,) in index.select(
            _POSSIBLE_RUNS_BELOW.format(may_read=read_scope.build_run_test()), _encode_numbers(tops)
        )
    ]
    lineage.load(candidates)
    children: dict[int | None, list[int]] = {}
    for number in candidates:
        children.setdefault(lineage.get_parent(number), []).append(number)
    numbers = dict.fromkeys(tops)
    stack = list(tops)
    while stack:
        new_numbers = [number for number in children.get(stack.pop(), ()) if number not in numbers]
        numbers.update(dict.fromkeys(new_numbers))
        stack += new_numbers
    return _select_runs(index, "run.id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))", _encode_numbers(numbers))


def build_forest(
    index: IndexConnection,
    principal: Principal,
    filters: Filters,
    *,
    root: str | None = None,
    limit: int = 500,
    offset: int = 0,
) -> list[Node]:
    """Return whole trees, those with the newest runs first; `limit` trees, after leaving out `offset` newer
    ones.

    filters: agents, projects, runtimes, machines, tags and since when a run was active. Only runs that pass
    are shown, and a run whose parent does not pass stands as a root. root: only the tree below this run.
    """
    with index.begin_read():
        read_scope = visibility.get_read_scope(index, principal)
        lineage = _RunLineage(index, read_scope)
        if root:
            rows = (
                _select_with_below(index, read_scope, lineage, [_find_row(index, read_scope, root)["id"]])
                if offset == 0
                else []
            )
        else:
            matching = _list_newest(index, read_scope, filters)
            matching_set = set(matching)
            tops = _choose_roots(lineage, matching, limit, offset)
            rows = [row for row in _select_with_below(index, read_scope, lineage, tops) if row["id"] in matching_set]
        views = _build_views(index, read_scope, rows, lineage)
    return _build_trees(views, top=root)


def _list_newest(index: IndexConnection, read_scope: ReadScope, filters: Filters) -> list[int]:
    """Return the runs with turns that pass the filters, newest first."""
    tests, values = [read_scope.build_run_test(), "run.n_turns + run.n_forgotten > 0"], []
    for field in ("agents", "projects", "runtimes", "machines"):
        if filter_values := getattr(filters, field):
            kind = field.removesuffix("s")
            tests.append(f"run.{kind} IN (SELECT CAST(value AS BIGINT) FROM json_each(?))")
            values.append(_encode_numbers(find_name_numbers(index, kind, filter_values)))
    for tag in filters.tags:
        tests.append(
            "run.id IN (SELECT run FROM run_tag WHERE tag IN (SELECT CAST(value AS BIGINT) FROM json_each(?)))"
        )
        values.append(_encode_numbers(find_name_numbers(index, "tag", [tag])))
    if filters.since_at is not None:
        tests.append("coalesce(run.ended_ms, run.captured_ms) >= CAST(? AS BIGINT)")
        values.append(str(to_ms(filters.since_at)))
    order = "coalesce(run.started_ms, run.captured_ms) DESC, run.run_id"
    rows = index.select(f"SELECT run.id FROM run WHERE {' AND '.join(tests)} ORDER BY {order}", *values)
    return [number for (number,) in rows]


def _choose_roots(lineage: _RunLineage, matching: Sequence[int], limit: int, offset: int) -> list[int]:
    """Return the roots of one page: skip `offset` trees, then take `limit` trees, in the order of these runs."""
    earlier_roots: set[int] = set()
    roots: dict[int, None] = {}  # used as an ordered set
    n_left = limit
    for start in range(0, len(matching), _ROOTS_PER_LOOKUP):
        part = matching[start : start + _ROOTS_PER_LOOKUP]
        lineage.load(part)
        for found_root in map(lineage.find_root, part):
            if found_root in earlier_roots or len(earlier_roots) < offset:
                earlier_roots.add(found_root)
                continue
            roots[found_root] = None
            n_left -= 1
            if n_left == 0:
                return list(roots)
    return list(roots)


def _build_trees(views: Sequence[RunView], *, top: str | None) -> list[Node]:
    """Build trees from runs that know their parents. A loop of made-up parents is cut at its first run."""
    view_by_id = {view.run_id: view for view in views}
    children: dict[str, list[RunView]] = {}
    roots = []
    for view in views:
        if view.run_id != top and view.parent_run_id in view_by_id and view.root_run_id != view.run_id:
            children.setdefault(str(view.parent_run_id), []).append(view)
        else:
            roots.append(view)
    placed_ids: set[str] = set()
    nodes = [_build_tree(view, children, placed_ids) for view in sorted(roots, key=_to_age_key)]
    nodes += [
        _build_tree(view, children, placed_ids)
        for view in sorted(views, key=_to_age_key)
        if view.run_id not in placed_ids
    ]
    return sorted(nodes, key=_find_newest_key, reverse=True)


def _build_tree(top: RunView, children: dict[str, list[RunView]], placed_ids: set[str]) -> Node:
    """Build the tree under a run, without recursion: a session can be thousands of deltas deep."""
    ordered_views, stack = [], [top]
    placed_ids.add(top.run_id)
    while stack:
        view = stack.pop()
        ordered_views.append(view)
        new_views = [child for child in children.get(view.run_id, ()) if child.run_id not in placed_ids]
        placed_ids.update(child.run_id for child in new_views)
        stack += new_views
    node_by_id: dict[str, Node] = {}
    for view in reversed(ordered_views):
        child_nodes = [
            node_by_id.pop(child.run_id) for child in children.get(view.run_id, ()) if child.run_id in node_by_id
        ]
        node_by_id[view.run_id] = Node(view, tuple(sorted(child_nodes, key=lambda node: _to_age_key(node.run))))
    return node_by_id[top.run_id]


def _to_age_key(view: RunView) -> tuple[str, str]:
    return ((view.started_at or view.captured_at).isoformat(), view.run_id)


def _find_newest_key(node: Node) -> tuple[str, str]:
    newest, stack = _to_age_key(node.run), [node]
    while stack:
        item = stack.pop()
        newest = max(newest, _to_age_key(item.run))
        stack += item.children
    return newest


def read_columns(index: IndexConnection, principal: Principal, run_id: str) -> Columns:
    """Return the six columns of a run: messages of user and agent, calls, files, entities and skills."""
    with index.begin_read():
        row = _find_row(index, visibility.get_read_scope(index, principal), run_id)
        chunks = index.select(
            """SELECT turn.role, kind.value, chunk_text.text FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id
               JOIN turn ON turn.id = chunk.turn JOIN name AS kind ON kind.id = chunk.kind
               WHERE turn.run = ? ORDER BY turn.offset, chunk.n""",
            row["id"],
        )
        facets = index.select(
            """SELECT facet.kind, facet.value FROM turn JOIN turn_facet ON turn_facet.turn = turn.id
               JOIN facet ON facet.id = turn_facet.facet WHERE turn.run = ? ORDER BY facet.kind, facet.value""",
            row["id"],
        )
    return Columns(
        user_messages=tuple(chunk_text for role, kind, chunk_text in chunks if role == "user" and kind == "text"),
        agent_messages=tuple(chunk_text for role, kind, chunk_text in chunks if role == "assistant" and kind == "text"),
        tool_calls=tuple(chunk_text for _, kind, chunk_text in chunks if kind == "call"),
        files_touched=_filter_values(facets, "file"),
        entities=_filter_values(facets, "entity"),
        skills=_filter_values(facets, "skill"),
    )


def _filter_values(facets: Sequence[tuple[Any, ...]], kind: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for facet_kind, value in facets if facet_kind == kind))


def resolve_id(index: IndexConnection, principal: Principal, prefix: str) -> tuple[str, str]:
    """Return ("turn" | "run" | "conversation", id) for an id or the beginning of one. Raises NotFound,
    UsageError.
    """
    queries = {
        "turn": "SELECT DISTINCT turn_id FROM turn JOIN run ON run.id = turn.run WHERE turn_id >= ?1 AND turn_id < ?2",
        "run": "SELECT DISTINCT run_id FROM run WHERE run_id >= ?1 AND run_id < ?2",
        "conversation": """SELECT DISTINCT value FROM run JOIN name ON name.id = conversation
            WHERE name.kind = 'conversation' AND value >= ?1 AND value < ?2""",
    }
    with index.begin_read():
        may_read = visibility.get_read_scope(index, principal).build_run_test()
        matches = [
            (kind, row[0])
            for kind, query in queries.items()
            for row in index.select(f"{query} AND {may_read} LIMIT 3", prefix, prefix + "\U0010ffff")
        ]
    exact_matches = [item for item in matches if item[1] == prefix]
    if len(prefix) < _MIN_PREFIX_CHARS and not exact_matches:
        raise UsageError(f"{prefix!r} is too short: give at least {_MIN_PREFIX_CHARS} characters of the id")
    if not matches:
        raise NotFound(prefix)
    if len(exact_matches or matches) > 1 and not exact_matches:
        raise UsageError(f"{prefix!r} could be {', '.join(f'{kind} {matching_id}' for kind, matching_id in matches)}")
    return (exact_matches or matches)[0]


def list_conversation_runs(index: IndexConnection, principal: Principal, conversation: str) -> list[RunView]:
    """Return the captured runs of a conversation, in the order of their messages.

    The principal's own runs come first, in case somebody shares runs of another conversation with the same
    id.
    """
    with index.begin_read():
        read_scope = visibility.get_read_scope(index, principal)
        rows = _select_runs(
            index,
            f"""conversation.value = ? AND {read_scope.build_run_test()} AND thread = ''
                ORDER BY owner.value <> ?, owner.value,
                session <> conversation.value, session, generation, from_offset, run.run_id""",
            conversation,
            principal.user,
        )
        return _build_views(index, read_scope, rows)


def find_first_runs(index: IndexConnection, principal: Principal, run_ids: Iterable[str]) -> dict[str, RunView]:
    """Return, for each of these runs, the first run of its conversation, if it may be read."""
    with index.begin_read():
        read_scope = visibility.get_read_scope(index, principal)
        pairs = index.select(
            _FIRST_RUNS.format(may_read=read_scope.build_run_test()), msgspec.json.encode(list(run_ids)).decode()
        )
        rows = _select_runs(
            index,
            "run.id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))",
            _encode_numbers({first_run for _, first_run in pairs}),
        )
        views = dict(zip((row["id"] for row in rows), _build_views(index, read_scope, rows), strict=True))
    return {run_id: views[first_run] for run_id, first_run in pairs}


_FIRST_RUNS = """SELECT run_id, first FROM (SELECT asked.run_id, (SELECT run.id FROM run INDEXED BY run_conversation
    WHERE run.conversation = asked.conversation AND run.user = asked.user AND run.thread = '' AND {may_read}
    ORDER BY run.n_turns + run.n_forgotten = 0, run.session <> (SELECT value FROM name WHERE id = run.conversation),
      run.session, run.generation,
      run.from_offset, run.run_id LIMIT 1) AS first
  FROM (SELECT run.run_id, run.conversation, run.user FROM json_each(?) AS given
      CROSS JOIN run ON run.run_id = given.value WHERE {may_read}) AS asked) AS found
  WHERE first IS NOT NULL"""


def list_names(index: IndexConnection, principal: Principal, kind: str) -> list[str]:
    """Return the names of a kind on anything that may be read.

    kind: project ("" for runs without one), tag, runtime, machine or agent.
    """
    with index.begin_read():
        read_scope = visibility.get_read_scope(index, principal)
        if kind not in read_scope.leg_cache:
            query = """SELECT value FROM name WHERE kind = ?
                AND EXISTS (SELECT 1 FROM held WHERE user = ? AND name = name.id AND held.n_chunks > 0)"""
            values = {value for (value,) in index.select(query, kind, read_scope.own_user)}
            if read_scope.other_owners:
                column = "(SELECT tag FROM run_tag WHERE run_tag.run = run.id)" if kind == "tag" else f"(run.{kind})"
                shared_query = f"""SELECT DISTINCT value FROM run JOIN name ON name.id IN {column}
                    WHERE {visibility.RUN_IS_READABLE}"""
                values |= {value for (value,) in index.select(shared_query)}
            read_scope.leg_cache[kind] = sorted(values)
        return list(read_scope.leg_cache[kind])


def list_runs_in(index: IndexConnection, principal: Principal, captured_run_id: str) -> list[str]:
    """Return the principal's runs in the bytes of a captured run: itself, and its inline sidechains."""
    query = """SELECT run_id FROM run JOIN name AS owner ON owner.id = run.user
        WHERE captured_in = ? AND owner.value = ? ORDER BY run_id"""
    return [run_id for (run_id,) in index.select(query, captured_run_id, principal.user)]


def list_shared_projects(index: IndexConnection, principal: Principal) -> list[str]:
    """Return the projects of what others let the principal read: their runs and their memories."""
    with index.begin_read():
        read_scope = visibility.get_read_scope(index, principal)
        if not read_scope.other_owners:
            return []
        if "shared projects" not in read_scope.leg_cache:
            query = f"""SELECT value FROM run JOIN name ON name.id = run.project WHERE {visibility.RUN_IS_READABLE}
                UNION SELECT project FROM memory WHERE project <> '' AND {visibility.MEMORY_IS_READABLE}"""
            read_scope.leg_cache["shared projects"] = sorted(project for (project,) in index.select(query))
        return list(read_scope.leg_cache["shared projects"])


def count_messages_by_month(index: IndexConnection, principal: Principal) -> dict[str, int]:
    """Return the number of messages by people in each month (yyyy-mm, in UTC); messages without a time are
    left out.
    """
    rows = index.select(
        f"""SELECT {build_month_sql("turn.stated_ms")}, count(*) FROM turn
          JOIN run ON run.id = turn.run JOIN name AS owner ON owner.id = run.user
          WHERE owner.value = ? AND turn.author = 'person' AND turn.said AND turn.stated_ms IS NOT NULL GROUP BY 1""",
        principal.user,
    )
    return dict(rows)


def locate_turn(index: IndexConnection, principal: Principal, turn_id: str) -> tuple[str, int, bool]:
    """Return (captured run with the bytes of a turn, offset of its first line there, True on an abandoned
    branch).

    Raises NotFound.
    """
    may_read = visibility.get_read_scope(index, principal).build_run_test()
    rows = index.select(
        f"""SELECT run.captured_in, turn.content_offset, turn.abandoned FROM turn JOIN run ON run.id = turn.content_run
            WHERE turn_id = ? AND {may_read}""",
        turn_id,
    )
    if not rows:
        raise NotFound(turn_id)
    return rows[0][0], rows[0][1], bool(rows[0][2])


def list_abandoned_offsets(index: IndexConnection, run_id: str) -> set[int]:
    """Return the offsets of those turns of a captured run that lie on a branch which the session left."""
    rows = index.select(
        """SELECT turn.content_offset FROM turn JOIN run ON run.id = turn.content_run
           WHERE run.captured_in = ? AND abandoned""",
        run_id,
    )
    return {row[0] for row in rows}


def list_turn_offsets(index: IndexConnection, principal: Principal, run_id: str) -> set[int]:
    """Return the offsets of the turns of a run (also of an inline sidechain) in the bytes that hold them."""
    may_read = visibility.get_read_scope(index, principal).build_run_test()
    query = f"SELECT content_offset FROM turn JOIN run ON run.id = turn.content_run WHERE run.run_id = ? AND {may_read}"
    return {row[0] for row in index.select(query, run_id)}
