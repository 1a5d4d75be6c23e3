"""POST /api/runs/search: the turns that match, with what they scored and where they are read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from perdure.errors import IndexFault, NotFound
from perdure.home import Home
from perdure.surfaces.http import runs, shapes
from perdure.surfaces.http.answers import API, Answer, Json, action
from perdure.surfaces.http.calls import Call
from perdure.surfaces.http.faults import bad
from perdure.types import Filters, Found, Hit, RunView

DEEPEST = 1000  # hits of one question that can be paged through
_LAST = datetime.max.replace(tzinfo=UTC)
_TICK = timedelta(milliseconds=1)  # the index counts in these: the end of a stretch belongs to it


def search(call: Call) -> Answer:
    """One page of the hits."""
    asked, started_s = call.body, time.perf_counter()
    if not asked.query.strip() and asked.filters == shapes.Wanted():
        raise bad("a search needs words or filters: `query` is empty, and so is `filters`")
    page = call.page("search", msgspec.to_builtins([asked.query, asked.mode, asked.filters]))
    filters = _filters(call, asked.filters)
    most = min(page.offset + page.limit + 1, DEEPEST)
    mode = asked.mode if asked.query.strip() else "keyword"  # no words mean nothing: the filters alone choose
    found = call.home.search(asked.query, filters=filters, limit=most, mode=mode)
    hits, following = page.of(found.hits)
    said = _said(call, found, hits, following, _facets(call, filters))
    said["timing"]["total_ms"] = (time.perf_counter() - started_s) * 1000
    return Answer(said)


def _filters(call: Call, wanted: shapes.Wanted) -> Filters:
    home, machines = call.home, _machines(call, wanted.machine_id)
    return Filters(
        tags=wanted.tags, runtimes=wanted.agent_runtime, machines=machines, projects=wanted.project,
        runs=_tree(home, wanted.root_run_id) if wanted.root_run_id else (),
        conversations=(wanted.conversation_id,) if wanted.conversation_id else (), roles=wanted.role,
        kinds=wanted.kind, agents=wanted.agent, since_at=wanted.stated_at.gte,
        until_at=_behind(wanted.stated_at.lte), begun_since_at=wanted.started_at.gte,
        begun_until_at=_behind(wanted.started_at.lte),
    )  # fmt: skip


def _behind(at: datetime | None) -> datetime | None:
    """The first instant that is not in a stretch which ends with this one; the last of the calendar at its end."""
    if at is None:
        return None
    return at + _TICK if at < _LAST - _TICK else _LAST


def _machines(call: Call, named: Sequence[str]) -> tuple[str, ...]:
    """Machines as runs carry them, by their names. named: names, or ids of machines of the caller's."""
    if not named:
        return ()
    known = {one.machine_id: one.name for one in call.home.machines.listed(call.identity.user, every=True)}
    known[call.identity.machine_id] = call.identity.machine
    return tuple(dict.fromkeys(known.get(name, name) for name in named))


def _tree(home: Home, root: str) -> tuple[str, ...]:
    """A run and all that is below it; of a run that the caller may not see, only its name, which finds nothing."""
    with contextlib.suppress(NotFound, IndexFault):
        return root, *(view.run_id for view in home.descendants(root))
    return (root,)


def _facets(call: Call, filters: Filters) -> Json:
    """How many of all matching turns have which value; with the first page only."""
    if call.body.cursor:
        return {}
    try:
        found = call.home.facets(call.body.query, filters=filters)
    except IndexFault:  # the scan that answers instead counts nothing
        return {}
    return {**found.counts, "is_partial": found.is_partial}


def _said(call: Call, found: Found, hits: Sequence[Hit], following: str | None, facets: Json) -> Json:
    views = runs.seen(call.home, (hit.run_id for hit in hits))
    shown = [_hit(hit, found, views.get(hit.run_id)) for hit in hits]
    timing = {
        "query_embed_ms": found.timings_ms.get("compute", 0.0), "query_queued_ms": found.timings_ms.get("queued", 0.0),
        "search_ms": found.took_ms, "total_ms": 0.0, "depth_before_submit": dict(found.depth),
    }  # fmt: skip
    actions = [action("read the best hit's run", "GET", shown[0]["_links"]["jsonl"])] if shown else []
    again = msgspec.to_builtins(call.body)
    if following:
        body = {**again, "cursor": following}
        actions.append({**action("read on, with `cursor`", "POST", f"{API}/runs/search"), "body": body})
    if found.n_behind:
        said = "ask again: something is not indexed yet"
        actions.append({**action(said, "POST", f"{API}/runs/search"), "body": again})
    return {
        "hits": shown, "facets": facets, "timing": timing,
        "mode": found.mode, "degraded": list(found.degraded), "behind": found.n_behind, "next_cursor": following,
        "_links": {}, "next_actions": actions,
    }  # fmt: skip


def _hit(hit: Hit, found: Found, view: RunView | None) -> Json:
    said: dict[str, Any] = msgspec.to_builtins(replace(hit, score=0.0))
    words = hit.score if found.mode == "keyword" else hit.keyword_score
    for name in ("keyword_score", "vector_score"):
        said.pop(name)
    said["chunk_idx"] = said.pop("chunk")
    distance = None if hit.vector_score is None else 1 - hit.vector_score
    return {
        **said, "tags": list(view.tags) if view else [], "started_at": view.started_at if view else None,
        "score": {"fused": hit.score, "vector_distance": distance, "text_match": words},
        "_links": runs.links_beside(hit.run_id, view),
    }  # fmt: skip
