"""Runs over HTTP: one run, its bytes, its descendants, the newest trees; resolve an id; forget a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from functools import partial
from urllib.parse import quote

import msgspec

from perdure.archive.forget import ForgetTarget
from perdure.errors import IndexFault, NotFound
from perdure.home import Home
from perdure.identity import is_run_id
from perdure.surfaces.http.calls import HttpCall
from perdure.surfaces.http.responses import (
    API_PATH,
    HttpResponse,
    Json,
    Links,
    build_action,
    build_item,
    build_list,
    build_list_item,
    encode_noun,
    refuse_for_now,
)
from perdure.surfaces.units import parse_moment
from perdure.types import Filters, Node, RunView

JSONL_TYPE = "application/x-ndjson"


def build_byte_links(run_id: str) -> Links:
    """Build the links to a captured run, also if it is not in the index."""
    run_path = f"{API_PATH}/runs/{run_id}"
    return {"self": run_path, "jsonl": f"{run_path}/jsonl"}


def build_run_links(view: RunView) -> Links:
    """Build the links to a run and to what belongs to it."""
    byte_links = dict(build_byte_links(view.run_id))
    if view.sidechain:  # its lines are in the bytes of its parent
        byte_links["jsonl"] = build_byte_links(str(view.parent_run_id))["jsonl"]
    return {
        **byte_links,
        "descendants": f"{byte_links['self']}/descendants",
        "tree": f"{API_PATH}/runs/forest?root_run_id={quote(view.root_run_id)}",
        "conversation": f"{API_PATH}/runs?conversation_id={quote(view.conversation, safe='')}",
    }


def read_visible_runs(home: Home, run_ids: Iterable[str]) -> dict[str, RunView]:
    """Return the views of those runs that are in the index and that the caller may read, by id."""
    views = {}
    for run_id in set(run_ids):
        with contextlib.suppress(NotFound, IndexFault):
            views[run_id] = home.runs.get(run_id)
    return views


def build_source_links(run_id: str, view: RunView | None) -> Links:
    """Build the links from a quotation to its run; without an index, the links to the captured bytes."""
    source_links = dict(build_run_links(view) if view else build_byte_links(run_id))
    return {"run": source_links.pop("self"), **source_links}


def list_conversation(call: HttpCall) -> HttpResponse:
    """List the captured runs of a conversation, in the order of their content. Raises NotFound if there are none."""
    conversation_id = call.query.conversation_id
    page = call.read_list_page("conversation", conversation_id)
    views = call.home.runs.conversation(conversation_id)
    if not views:
        raise NotFound
    shown, next_cursor = page.cut_items(views)
    return HttpResponse(
        build_list(
            [build_list_item(view, build_run_links(view)) for view in shown],
            next_cursor,
            {"self": build_run_links(views[0])["conversation"]},
        )
    )


def list_projects(call: HttpCall) -> HttpResponse:
    """List the projects of the runs that the caller may read."""
    page = call.read_list_page("projects")
    projects, next_cursor = page.cut_items(call.home.runs.projects())
    items = [{"project": project, "_links": {}} for project in projects]
    return HttpResponse(build_list(items, next_cursor, {"self": f"{API_PATH}/projects"}))


def read_run(call: HttpCall) -> HttpResponse:
    """Read one run with everything that is derived from it."""
    view = _read_view(call)
    run_links = build_run_links(view)
    search_body = {"query": "", "filters": {"conversation_id": view.conversation}}
    actions = [
        build_action("read the turns", "GET", run_links["jsonl"]),
        build_action("see what it spawned", "GET", run_links["descendants"]),
        {**build_action("search its conversation", "POST", f"{API_PATH}/runs/search"), "body": search_body},
    ]
    return HttpResponse(build_item(view, run_links, actions=actions))


def _read_view(call: HttpCall) -> RunView:
    """Read the run that the path names.

    Raises NotFound; HttpRefusal (503) while a run of the caller is captured but not yet indexed.
    """
    run_id = _read_run_id(call)
    try:
        return call.home.runs.get(run_id)
    except (NotFound, IndexFault):
        if not _is_archived(call, run_id):
            raise
    call.server.wake()
    raise refuse_for_now("not-indexed", "The run is stored, but not indexed yet. Try again in a moment.")


def _read_run_id(call: HttpCall) -> str:
    """Return the run id in the path. Raises NotFound if it is no run id."""
    if not is_run_id(call.path_params["run_id"]):
        raise NotFound
    return call.path_params["run_id"]


def _is_archived(call: HttpCall, run_id: str) -> bool:
    """Return True if the archive holds this run as the caller's own."""
    with contextlib.suppress(NotFound):
        return call.home.archive.get_entry(run_id).user == call.identity.user
    return False


def read_jsonl(call: HttpCall) -> HttpResponse:
    """Return the bytes of a run, or those of its lines that begin at the offsets of the query."""
    run_id, offsets = _read_run_id(call), call.query.offset
    raw_lines = call.home.runs.raw_lines(run_id, offsets) if offsets else []
    raw = b"".join(line + b"\n" for line in raw_lines) if offsets else call.home.runs.raw(run_id)
    return HttpResponse(raw, content_type=JSONL_TYPE)


def read_transcript(call: HttpCall) -> HttpResponse:
    """Return the turns of a run as Python has them; of a sidechain its parent's, and the offsets of its own turns."""
    view = _read_view(call)
    fields = {
        "transcript": encode_noun(call.home.runs.transcript(call.home.runs.find_captured_run(view.run_id))),
        "turn_offsets": sorted(call.home.runs.turn_offsets(view.run_id)),
    }
    return HttpResponse(build_item(fields, build_run_links(view)))


def list_descendants(call: HttpCall) -> HttpResponse:
    """List the runs below a run, page by page."""
    view = _read_view(call)
    page = call.read_list_page("descendants", view.run_id)
    views, next_cursor = page.cut_items(call.home.runs.descendants(view.run_id))
    return HttpResponse(
        build_list(
            [build_list_item(run_view, build_run_links(run_view)) for run_view in views],
            next_cursor,
            {"run": build_run_links(view)["self"]},
        )
    )


def resolve_id(call: HttpCall) -> HttpResponse:
    """Resolve an id, or the beginning of one, and list the runs of its turns in order."""
    kind, full_id = call.home.resolve(call.path_params["identifier"])
    turn_run, offset = call.home.runs.locate_turn(full_id) if kind == "turn" else (None, None)
    run_id = full_id if kind == "run" else turn_run
    views = _list_runs_around(call.home, kind, full_id, run_id)
    target_links = {"run": build_run_links(views[0])["self"]} if views else {"memory": f"{API_PATH}/memories/{full_id}"}
    fields = {"kind": kind, "id": full_id, "run": run_id or (views[0].run_id if views else None), "offset": offset}
    return HttpResponse({**fields, "runs": [view.run_id for view in views], "_links": target_links, "next_actions": []})


def _list_runs_around(home: Home, kind: str, full_id: str, run_id: str | None) -> list[RunView]:
    """List the run of an id, the runs of a conversation, or the runs of the session that a turn belongs to."""
    if kind == "conversation":
        return home.runs.conversation(full_id)
    if run_id is None:
        return []
    view = home.runs.get(run_id)
    conversation_runs = home.runs.conversation(view.conversation) if kind == "turn" else []
    return [run_view for run_view in conversation_runs if run_view.session == view.session] or [view]


def forget_run(call: HttpCall) -> HttpResponse:
    """Delete the turns of a run and of the runs below it permanently; with `dry` only list what would be deleted."""
    query, run_id = call.query, _read_run_id(call)
    targets = call.home.forgetting.plan([run_id], cascade=query.cascade)
    memories = call.home.forgetting.memories_of(targets)
    changed: list[str] = []
    if not query.dry:
        changed = call.home.forgetting.apply(targets, memories=[memory.memory_id for memory in memories])
    fields = {
        "run_id": run_id,
        "dry": query.dry,
        "items": list(map(_build_target, targets)),
        "rewritten_runs": changed,
        "memories": [msgspec.to_builtins(memory, str_keys=True) for memory in memories],
        "left_on_floor": [
            {"page": line.name, "line": line.line}
            for line in call.home.forgetting.floor_lines_quoting(targets, memories)
        ],
        "transcripts": sorted({item.run.path for item in targets if item.run.path}),
    }
    return HttpResponse({**fields, "_links": {"runs": f"{API_PATH}/runs/forest"}, "next_actions": []})


def _build_target(target: ForgetTarget) -> Json:
    role, stated_at = (target.turn.role, target.turn.stated_at) if target.turn else (None, None)
    return {
        "turn_id": target.turn_id,
        "run_id": target.run.run_id,
        "role": role,
        "stated_at": stated_at,
        "preview": target.preview,
        "path": target.run.path,
    }


def list_forest(call: HttpCall) -> HttpResponse:
    """List the newest runs as trees, page by page; a tree is always whole and on one page."""
    query = call.query
    page = call.read_list_page("forest", query.since, query.runtime, query.root_run_id)
    filters = Filters(since_at=parse_moment(query.since), runtimes=(query.runtime,) if query.runtime else ())
    read_trees = partial(call.home.runs.forest, filters, root=query.root_run_id)
    nodes = read_trees(limit=page.limit, offset=page.offset)
    end = page.offset + len({node.run.root_run_id for node in nodes})
    next_cursor = page.cursor_at(end) if read_trees(limit=1, offset=end) else None
    items = _list_with_depth(nodes) if query.flat else [_encode_tree(node) for node in nodes]
    return HttpResponse(build_list(items, next_cursor, {"self": f"{API_PATH}/runs/forest"}))


def _encode_tree(top: Node) -> msgspec.Raw:
    """Encode a run and all runs below it as JSON, without recursion.

    The deltas of one session form a long chain of runs.
    """
    pieces: list[bytes] = []
    stack: list[Node | bytes] = [top]
    while stack:
        entry = stack.pop()
        if isinstance(entry, bytes):
            pieces.append(entry)
            continue
        pieces += [
            b'{"run":',
            msgspec.json.encode(build_list_item(entry.run, build_run_links(entry.run))),
            b',"children":[',
        ]
        child_entries: list[Node | bytes] = [child_entry for child in entry.children for child_entry in (child, b",")][
            :-1
        ]
        stack += [b"]}", *reversed(child_entries)]
    return msgspec.Raw(b"".join(pieces))


def _list_with_depth(nodes: Sequence[Node]) -> list[Json]:
    """List all runs of the trees with their depth, parents before their children."""
    items: list[Json] = []
    stack = [(node, 0) for node in reversed(nodes)]
    while stack:
        node, depth = stack.pop()
        items.append({"depth": depth, "run": build_list_item(node.run, build_run_links(node.run))})
        stack += [(child, depth + 1) for child in reversed(node.children)]
    return items
