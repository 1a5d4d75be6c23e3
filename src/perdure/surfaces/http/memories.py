"""Memories over HTTP: list, store, read with their sources, change, forget and search them."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import Any

import msgspec

from perdure.errors import NotFound
from perdure.memories.explicit import guess_kind
from perdure.memories.host_answer import HostStatement
from perdure.surfaces.http import runs
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
    refuse_usage,
)
from perdure.types import Memory, RunView, Span

MEMORIES_PATH = f"{API_PATH}/memories"


def _build_memory_links(memory: Memory) -> Links:
    return {"self": f"{MEMORIES_PATH}/{memory.memory_id}"}


def list_memories(call: HttpCall) -> HttpResponse:
    """List the current memories, newest first, page by page."""
    query = call.query
    page = call.read_list_page("memories", query.every, query.prefix, query.kind, query.project, query.shared)
    memories = _list_shared(call) if query.shared else _list_own(call)
    shown, following = page.cut_items(memories)
    actions = [
        build_action("store one", "POST", MEMORIES_PATH),
        build_action("search them", "POST", f"{MEMORIES_PATH}/search"),
    ]
    return HttpResponse(
        build_list(
            [build_list_item(memory, _build_memory_links(memory)) for memory in shown],
            following,
            {"self": MEMORIES_PATH},
            actions=actions,
        )
    )


def _list_own(call: HttpCall) -> list[Memory]:
    query = call.query
    return call.home.memories.list_memories(
        every=query.every, prefix=query.prefix, kind=query.kind, project=query.project
    )


def _list_shared(call: HttpCall) -> list[Memory]:
    """List the memories that others let the caller read, with the same filters."""
    query = call.query
    prefix = f"{query.prefix.rstrip('/')}/" if query.prefix else ""
    return [
        memory
        for memory in call.home.memories.shared.list_memories(every=query.every)
        if f"{memory.path}/".startswith(prefix)
        and query.kind in ("", memory.kind)
        and query.project in (None, memory.project or "")
    ]


def remember_statement(call: HttpCall) -> HttpResponse:
    """Store a statement; if a current memory says the same, reinforce it."""
    body = call.body
    memory = call.home.remember(
        body.text, kind=body.kind or guess_kind(body.text), path=body.path, cwd=body.project, trust=body.trust
    )
    return HttpResponse(
        _build_memory(call, memory), 201, {"Location": _build_memory_links(memory)["self"]}, created_id=memory.memory_id
    )


def repeat_remember(call: HttpCall, memory_id: str) -> HttpResponse:
    """Return the memory that the first request stored."""
    return HttpResponse(_build_memory(call, call.home.memories.get(memory_id)))


def read_memory(call: HttpCall) -> HttpResponse:
    """Read one memory, the caller's own or a shared one, with its history and its source turns."""
    memory_id = call.path_params["memory_id"]
    return HttpResponse(_build_memory(call, call.home.memories.holder_of(memory_id).get(memory_id)))


def _build_memory(call: HttpCall, memory: Memory) -> Json:
    self_link, owner_memories = _build_memory_links(memory)["self"], call.home.memories.holder_of(memory.memory_id)
    source_turns = owner_memories.sources(memory.memory_id)
    views = runs.read_visible_runs(call.home, (span.run_id for span, _ in source_turns))
    sources = [_build_source(call, span, turn, views.get(span.run_id)) for span, turn in source_turns]
    actions = [build_action("change or pin it", "PATCH", self_link), build_action("forget it", "DELETE", self_link)]
    actions = [] if memory.shared_by else actions
    run_links = [source["_links"]["run"] for source in sources if source["_links"]]
    actions += [build_action("read its source turn", "GET", href) for href in run_links[:1]]
    history = [
        build_list_item(earlier, _build_memory_links(earlier)) for earlier in owner_memories.history(memory.memory_id)
    ]
    return build_item(memory, _build_memory_links(memory), actions=actions, history=history, turns=sources)


def _build_source(call: HttpCall, span: Span, turn_id: str | None, view: RunView | None) -> Json:
    """Build one source turn of a memory; it has no links if its run is gone or may not be read."""
    text = None
    with contextlib.suppress(NotFound):  # the source turn of a shared memory need not be shared
        text = call.home.preview(turn_id) if turn_id else None
    run_links = runs.build_source_links(span.run_id, view) if view else {}
    return {**span._asdict(), "turn_id": turn_id, "text": text, "_links": run_links}


def change_memory(call: HttpCall) -> HttpResponse:
    """Change a memory; a new text replaces the old one, which stays in its history."""
    changes: dict[str, Any] = {
        field: value for field, value in msgspec.structs.asdict(call.body).items() if value is not None
    }
    if not changes:
        raise refuse_usage("the request changes nothing: give text, pinned, retired, path or kind")
    memory_id, text = call.home.memories.get(call.path_params["memory_id"]).memory_id, changes.pop("text", None)
    if text is not None:
        memory = call.home.memories.edit(memory_id, text, **changes)
    else:
        (memory,) = call.home.memories.change([memory_id], **changes)
    return HttpResponse(_build_memory(call, memory))


def forget_memory(call: HttpCall) -> HttpResponse:
    """Delete a memory permanently, with every memory that was made from it."""
    memory_id = call.home.memories.get(call.path_params["memory_id"]).memory_id
    forgotten = call.home.forgetting.memories_of(memories=[memory_id])
    call.home.forgetting.apply([], memories=[memory_id])
    lines = call.home.forgetting.floor_lines_quoting([], forgotten)
    fields = {
        "forgotten": [memory.memory_id for memory in forgotten],
        "left_on_floor": [{"page": line.name, "line": line.line} for line in lines],
    }
    return HttpResponse({**fields, "_links": {"memories": MEMORIES_PATH}, "next_actions": []})


def search_memories(call: HttpCall) -> HttpResponse:
    """Search memories; return them best first, with their scores."""
    if not call.body.query.strip():
        raise refuse_usage("a search needs words: `query` is empty")
    hits = call.home.memories.search(call.body.query, limit=call.body.limit)
    items = [
        {
            **build_list_item(hit.memory, _build_memory_links(hit.memory)),
            "score": hit.score,
            "keyword_score": hit.keyword_score,
            "vector_score": hit.vector_score,
        }
        for hit in hits
    ]
    return HttpResponse(build_list(items, None, {"memories": MEMORIES_PATH}))


def settle_lines(call: HttpCall) -> HttpResponse:
    """Keep what a client's own model found worth a memory in lines of a session; without an answer, list the lines."""
    body, memories = call.body, call.home.memories
    fields: Json = {"candidates": [], "kept": [], "refused": [], "n_none": 0, "n_known": 0}
    if not body.statements and body.none is None:
        candidates = memories.request_candidates(cwd=body.project, session=body.session)
        fields["candidates"] = [asdict(candidate) for candidate in candidates]
    else:
        statements = [HostStatement(item.ids, item.text, item.kind or "", item.path) for item in body.statements]
        result = memories.settle(statements, body.none, cwd=body.project)
        fields |= {"n_none": result.n_none, "n_known": result.n_known}
        fields["kept"] = [
            {"memory": build_list_item(kept.memory, _build_memory_links(kept.memory)), "is_new": kept.is_new}
            for kept in result.kept
        ]
        fields["refused"] = [refusal._asdict() for refusal in result.refusals]
    return HttpResponse({**fields, "_links": {"memories": MEMORIES_PATH}, "next_actions": []})
