"""Runs: one, its bytes, what is below it, the newest as trees, what an id means, and forgetting one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from functools import partial
from urllib.parse import quote

import msgspec

from perdure.errors import IndexFault, NotFound
from perdure.forget import Doomed
from perdure.home import Home
from perdure.identity import is_run_id
from perdure.surfaces.http.answers import API, Answer, Json, Links, action, linked, listed, one
from perdure.surfaces.http.calls import Call
from perdure.surfaces.http.faults import retry
from perdure.surfaces.moments import moment
from perdure.types import Filters, Node, RunView

JSONL = "application/x-ndjson"


def kept_links(run_id: str) -> Links:
    """Where a captured run is read, whether or not the index has it."""
    here = f"{API}/runs/{run_id}"
    return {"self": here, "jsonl": f"{here}/jsonl"}


def links(view: RunView) -> Links:
    """Where a run and what belongs to it are read."""
    found = dict(kept_links(view.run_id))
    if view.sidechain:  # it lies in the bytes of its parent
        found["jsonl"] = kept_links(str(view.parent_run_id))["jsonl"]
    return {
        **found, "descendants": f"{found['self']}/descendants",
        "tree": f"{API}/runs/forest?root_run_id={quote(view.root_run_id)}",
        "conversation": f"{API}/runs?conversation_id={quote(view.conversation, safe='')}",
    }  # fmt: skip


def seen(home: Home, names: Iterable[str]) -> dict[str, RunView]:
    """Those of these runs that the index has and the caller may read, by their ids."""
    found = {}
    for name in set(names):
        with contextlib.suppress(NotFound, IndexFault):
            found[name] = home.run(name)
    return found


def links_beside(run_id: str, view: RunView | None) -> Links:
    """The links of a run for something that is said in it; without an index, those of what is kept."""
    found = dict(links(view) if view else kept_links(run_id))
    return {"run": found.pop("self"), **found}


def conversation(call: Call) -> Answer:
    """The captured runs of a conversation, in the order in which they were said. Raises NotFound where none is."""
    name = call.query.conversation_id
    page = call.page("conversation", name)
    views = call.home.conversation(name)
    if not views:
        raise NotFound
    shown, following = page.of(views)
    return Answer(
        listed([linked(view, links(view)) for view in shown], following, {"self": links(views[0])["conversation"]})
    )


def run(call: Call) -> Answer:
    """One run with everything that is derived of it."""
    view = _view(call)
    where = links(view)
    narrowed = {"query": "", "filters": {"conversation_id": view.conversation}}
    actions = [
        action("read the turns", "GET", where["jsonl"]),
        action("see what it spawned", "GET", where["descendants"]),
        {**action("search its conversation", "POST", f"{API}/runs/search"), "body": narrowed},
    ]
    return Answer(one(view, where, actions=actions))


def _view(call: Call) -> RunView:
    """The run of the path. Raises NotFound; Refused (503) while its own run is kept and not indexed yet."""
    name = _name(call)
    try:
        return call.home.run(name)
    except (NotFound, IndexFault):
        if not _is_kept(call, name):
            raise
    call.server.wake()
    raise retry("not-indexed", "It is kept, and will be in the index in a moment.")


def _name(call: Call) -> str:
    """The id in the path. Raises NotFound for what is none."""
    if not is_run_id(call.path["run_id"]):
        raise NotFound
    return call.path["run_id"]


def _is_kept(call: Call, name: str) -> bool:
    """Whether the archive holds a run of the caller's own."""
    with contextlib.suppress(NotFound):
        return call.home.archive.held(name).user == call.identity.user
    return False


def jsonl(call: Call) -> Answer:
    """The bytes of a run."""
    return Answer(call.home.jsonl(_name(call)), kind=JSONL)


def descendants(call: Call) -> Answer:
    """The runs below a run, page by page."""
    view = _view(call)
    page = call.page("descendants", view.run_id)
    views, following = page.of(call.home.descendants(view.run_id))
    return Answer(listed([linked(below, links(below)) for below in views], following, {"run": links(view)["self"]}))


def resolve(call: Call) -> Answer:
    """What an id, or the beginning of one, means; and the runs in which its turns stand, in order."""
    kind, name = call.home.resolve(call.path["identifier"])
    run_id = call.home.locate(name)[0] if kind == "turn" else name if kind == "run" else None
    views = _around(call.home, kind, name, run_id)
    where = {"run": links(views[0])["self"]} if views else {"memory": f"{API}/memories/{name}"}
    said = {"kind": kind, "id": name, "run": run_id or (views[0].run_id if views else None)}
    return Answer({**said, "runs": [view.run_id for view in views], "_links": where, "next_actions": []})


def _around(home: Home, kind: str, name: str, run_id: str | None) -> list[RunView]:
    """The run of an id, those of its conversation, or those of the session in which a turn stands."""
    if kind == "conversation":
        return home.conversation(name)
    if run_id is None:
        return []
    view = home.run(run_id)
    whole = home.conversation(view.conversation) if kind == "turn" else []
    return [other for other in whole if other.session == view.session] or [view]


def forget(call: Call) -> Answer:
    """Delete the turns of a run for good, with those of the runs below it; with `dry` say only what would go."""
    asked, name = call.query, _name(call)
    doomed = call.home.doomed([name], cascade=asked.cascade)
    memories = call.home.doomed_memories(doomed)
    changed: list[str] = []
    if not asked.dry:
        changed = call.home.forget(doomed, memories=[memory.memory_id for memory in memories])
    said = {
        "run_id": name, "dry": asked.dry, "items": list(map(_doomed, doomed)), "rewritten_runs": changed,
        "memories": [msgspec.to_builtins(memory, str_keys=True) for memory in memories],
        "left_on_floor": [{"page": page, "line": line} for page, line in call.home.repeating(doomed)],
        "transcripts": sorted({item.run.path for item in doomed if item.run.path}),
    }  # fmt: skip
    return Answer({**said, "_links": {"runs": f"{API}/runs/forest"}, "next_actions": []})


def _doomed(item: Doomed) -> Json:
    role, at = (item.turn.role, item.turn.stated_at) if item.turn else (None, None)
    return {
        "turn_id": item.turn_id, "run_id": item.run.run_id, "role": role, "stated_at": at, "preview": item.preview,
        "path": item.run.path,
    }  # fmt: skip


def forest(call: Call) -> Answer:
    """The newest runs as trees, page by page; a tree is whole, and stands on one page."""
    asked = call.query
    page = call.page("forest", asked.since, asked.runtime, asked.root_run_id)
    filters = Filters(since_at=moment(asked.since), runtimes=(asked.runtime,) if asked.runtime else ())
    part = partial(call.home.forest, filters, root=asked.root_run_id)
    nodes = part(limit=page.limit, offset=page.offset)
    end = page.offset + len({node.run.root_run_id for node in nodes})
    following = page.cursor_at(end) if part(limit=1, offset=end) else None
    items = _rows(nodes) if asked.flat else [_tree(node) for node in nodes]
    return Answer(listed(items, following, {"self": f"{API}/runs/forest"}))


def _tree(top: Node) -> msgspec.Raw:
    """A run and what is below it as JSON, written piece by piece: deltas of one session are a long chain of runs."""
    pieces: list[bytes] = []
    todo: list[Node | bytes] = [top]
    while todo:
        at = todo.pop()
        if isinstance(at, bytes):
            pieces.append(at)
            continue
        pieces += [b'{"run":', msgspec.json.encode(linked(at.run, links(at.run))), b',"children":[']
        below: list[Node | bytes] = [part for child in at.children for part in (child, b",")][:-1]
        todo += [b"]}", *reversed(below)]
    return msgspec.Raw(b"".join(pieces))


def _rows(nodes: Sequence[Node]) -> list[Json]:
    """The same as a list, each run with its depth, parents before their children."""
    found: list[Json] = []
    todo = [(node, 0) for node in reversed(nodes)]
    while todo:
        node, depth = todo.pop()
        found.append({"depth": depth, "run": linked(node.run, links(node.run))})
        todo += [(child, depth + 1) for child in reversed(node.children)]
    return found
