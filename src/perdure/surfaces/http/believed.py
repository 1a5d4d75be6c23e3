"""Memories over HTTP: listed, made, read with what is behind them, changed, forgotten, found."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.memories.kinds import guessed
from perdure.surfaces.http import runs
from perdure.surfaces.http.answers import API, Answer, Json, Links, action, linked, listed, one
from perdure.surfaces.http.calls import Call
from perdure.surfaces.http.faults import bad
from perdure.types import Memory, RunView

HERE = f"{API}/memories"


def _links(memory: Memory) -> Links:
    return {"self": f"{HERE}/{memory.memory_id}"}


def memories(call: Call) -> Answer:
    """What is believed, newest first, page by page."""
    asked = call.query
    page = call.page("memories", asked.every, asked.prefix, asked.kind, asked.project, asked.shared)
    found = _shared(call) if asked.shared else _own(call)
    shown, following = page.of(found)
    actions = [action("keep one", "POST", HERE), action("search them", "POST", f"{HERE}/search")]
    return Answer(listed([linked(m, _links(m)) for m in shown], following, {"self": HERE}, actions=actions))


def _own(call: Call) -> list[Memory]:
    asked = call.query
    return call.home.memories.listed(every=asked.every, prefix=asked.prefix, kind=asked.kind, project=asked.project)


def _shared(call: Call) -> list[Memory]:
    """What others let the caller read, narrowed in the same way."""
    asked = call.query
    prefix = f"{asked.prefix.rstrip('/')}/" if asked.prefix else ""
    return [
        memory
        for memory in call.home.shared.listed(every=asked.every)
        if f"{memory.path}/".startswith(prefix)
        and asked.kind in ("", memory.kind)
        and asked.project in (None, memory.project or "")
    ]


def remember(call: Call) -> Answer:
    """Keep a statement; one that is believed already is counted once more."""
    said = call.body
    kept = call.home.remember(
        said.text, kind=said.kind or guessed(said.text), path=said.path, cwd=said.project, trust=said.trust
    )
    return Answer(_one(call, kept), 201, {"Location": _links(kept)["self"]}, made=kept.memory_id)


def again(call: Call, made: str) -> Answer:
    """The memory that the first request made."""
    return Answer(_one(call, call.home.memories.get(made)))


def memory(call: Call) -> Answer:
    """One memory, the caller's or one that is shared with them, with its history and the turns behind it."""
    name = call.path["memory_id"]
    return Answer(_one(call, call.home.holding(name).get(name)))


def _one(call: Call, kept: Memory) -> Json:
    here, about = _links(kept)["self"], call.home.holding(kept.memory_id)
    behind = about.sources(kept.memory_id)
    views = runs.seen(call.home, (span.run_id for span, _ in behind))
    sources = [_source(span.run_id, turn, views.get(span.run_id)) for span, turn in behind]
    actions = [action("change or pin it", "PATCH", here), action("forget it", "DELETE", here)]
    actions = [] if kept.shared_by else actions
    where = [said["_links"]["run"] for said in sources if said["_links"]]
    actions += [action("read where it was said", "GET", href) for href in where[:1]]
    history = [linked(before, _links(before)) for before in about.history(kept.memory_id)]
    return one(kept, _links(kept), actions=actions, history=history, turns=sources)


def _source(run_id: str, turn: str | None, view: RunView | None) -> Json:
    """A turn behind a memory; without links where its run is not there any more, or may not be read."""
    return {"run_id": run_id, "turn_id": turn, "_links": runs.links_beside(run_id, view) if view else {}}


def change(call: Call) -> Answer:
    """Change a memory; other words take the place of the old ones, which stay in its history."""
    wanted: dict[str, Any] = {k: v for k, v in msgspec.structs.asdict(call.body).items() if v is not None}
    if not wanted:
        raise bad("nothing is to be changed: name text, pinned, retired, path or kind")
    name, text = call.home.memories.get(call.path["memory_id"]).memory_id, wanted.pop("text", None)
    if text is not None:
        kept = call.home.memories.edit(name, text, **wanted)
    else:
        (kept,) = call.home.memories.change([name], **wanted)
    return Answer(_one(call, kept))


def forget(call: Call) -> Answer:
    """Delete a memory for good, with every one that was made of it."""
    name = call.home.memories.get(call.path["memory_id"]).memory_id
    gone = [memory.memory_id for memory in call.home.doomed_memories(memories=[name])]
    call.home.forget([], memories=[name])
    return Answer({"forgotten": gone, "_links": {"memories": HERE}, "next_actions": []})


def search(call: Call) -> Answer:
    """The memories that match, best first, with their scores."""
    if not call.body.query.strip():
        raise bad("a search needs words: `query` is empty")
    found = call.home.search_memories(call.body.query, limit=call.body.limit)
    items = [{**linked(memory, _links(memory)), "score": score} for memory, score in found]
    return Answer(listed(items, None, {"memories": HERE}))
