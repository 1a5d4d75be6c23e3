"""Search, recall, hooks and context over HTTP.

`search_runs` finds turns, with their scores and the links to read them. Recall without a session writes
nothing. With a session, the injection is written to that user's journal before it is returned, so that it
is neither repeated nor captured again from the transcript.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from perdure import turn
from perdure.access import fence
from perdure.archive import injections
from perdure.capture.events import HookEvent
from perdure.capture.transcripts import check_session
from perdure.errors import IndexFault, NotFound
from perdure.home import Home
from perdure.surfaces.http import runs, shapes
from perdure.surfaces.http.calls import HttpCall
from perdure.surfaces.http.responses import (
    API_PATH,
    HttpResponse,
    Json,
    build_action,
    build_item,
    encode_noun,
    refuse_usage,
)
from perdure.surfaces.last_recall import describe_last_recall
from perdure.surfaces.recall_sources import explain_omission
from perdure.types import Cue, Filters, Hit, Live, Recalled, RunView, SearchResult

MAX_DEPTH = 1000  # most hits of one question that can be listed page by page
_LAST_INSTANT = datetime.max.replace(tzinfo=UTC)
_TICK = timedelta(milliseconds=1)  # the resolution of the index; the end of a range belongs to the range


def search_runs(call: HttpCall) -> HttpResponse:
    """Return one page of the hits."""
    body, started_s = call.body, time.perf_counter()
    if not body.query.strip() and body.filters == shapes.SearchFilters():
        raise refuse_usage("a search needs words or filters: `query` and `filters` are empty")
    page = call.read_list_page("search", msgspec.to_builtins([body.query, body.mode, body.filters]))
    filters = build_filters(call, body.filters)
    max_hits = min(page.offset + page.limit + 1, MAX_DEPTH)
    mode = body.mode if body.query.strip() else "keyword"  # an empty query has no meaning: only the filters choose
    result = call.home.search(body.query, filters=filters, limit=max_hits, mode=mode)
    hits, next_cursor = page.cut_items(result.hits)
    fields = _build_search_body(call, result, hits, next_cursor, _count_facets(call, filters))
    fields["timing"]["total_ms"] = (time.perf_counter() - started_s) * 1000
    if body.full:
        fields["result"] = encode_noun(replace(result, hits=tuple(hits)))
    return HttpResponse(fields)


def build_filters(call: HttpCall, json_filters: shapes.SearchFilters) -> Filters:
    """Translate the filters of a request."""
    home, machines = call.home, _find_machine_names(call, json_filters.machine_id)
    return Filters(
        tags=json_filters.tags,
        runtimes=json_filters.agent_runtime,
        machines=machines,
        projects=json_filters.project,
        runs=_list_tree_ids(home, json_filters.root_run_id) if json_filters.root_run_id else (),
        conversations=(json_filters.conversation_id,)
        if isinstance(json_filters.conversation_id, str)
        else json_filters.conversation_id or (),
        roles=json_filters.role,
        kinds=json_filters.kind,
        agents=json_filters.agent,
        files=json_filters.file,
        tools=json_filters.tool,
        skills=json_filters.skill,
        entities=json_filters.entity,
        since_at=json_filters.stated_at.gte,
        until_at=_end_after(json_filters.stated_at.lte),
        begun_since_at=json_filters.started_at.gte,
        begun_until_at=_end_after(json_filters.started_at.lte),
    )


def _end_after(last: datetime | None) -> datetime | None:
    """Return the first instant after a range that ends with `last`; the end of the calendar for its last instants."""
    if last is None:
        return None
    return last + _TICK if last < _LAST_INSTANT - _TICK else _LAST_INSTANT


def _find_machine_names(call: HttpCall, names_or_ids: Sequence[str]) -> tuple[str, ...]:
    """Return machine names as runs carry them. names_or_ids: names, or ids of the caller's machines."""
    if not names_or_ids:
        return ()
    names_by_id = {
        machine.machine_id: machine.name
        for machine in call.home.sharing.machines.list_machines(call.identity.user, include_revoked=True)
    }
    names_by_id[call.identity.machine_id] = call.identity.machine
    return tuple(dict.fromkeys(names_by_id.get(name, name) for name in names_or_ids))


def _list_tree_ids(home: Home, root_run_id: str) -> tuple[str, ...]:
    """List a run and all runs below it; if the caller may not see it, only its id, which matches nothing."""
    with contextlib.suppress(NotFound, IndexFault):
        return root_run_id, *(view.run_id for view in home.runs.descendants(root_run_id))
    return (root_run_id,)


def _count_facets(call: HttpCall, filters: Filters) -> Json:
    """Count all matching turns by value; only with the first page."""
    if call.body.cursor:
        return {}
    try:
        facets = call.home.runs.facets(call.body.query, filters=filters)
    except IndexFault:  # the scan that replaces the index counts nothing
        return {}
    return {**facets.counts, "is_partial": facets.is_partial}


def _build_search_body(
    call: HttpCall, result: SearchResult, hits: Sequence[Hit], next_cursor: str | None, facets: Json
) -> Json:
    views = runs.read_visible_runs(call.home, (hit.run_id for hit in hits))
    hit_bodies = [_build_hit(hit, views.get(hit.run_id)) for hit in hits]
    timing = {
        "query_embed_ms": result.timings_ms.get("compute", 0.0),
        "query_queued_ms": result.timings_ms.get("queued", 0.0),
        "search_ms": result.took_ms,
        "total_ms": 0.0,
        "depth_before_submit": dict(result.depth),
    }
    actions = [build_action("read the best hit's run", "GET", hit_bodies[0]["_links"]["jsonl"])] if hit_bodies else []
    same_body = msgspec.to_builtins(call.body)
    if next_cursor:
        body = {**same_body, "cursor": next_cursor}
        actions.append({**build_action("read on, with `cursor`", "POST", f"{API_PATH}/runs/search"), "body": body})
    if result.n_behind:
        advice = "ask again: some runs are not indexed yet"
        actions.append({**build_action(advice, "POST", f"{API_PATH}/runs/search"), "body": same_body})
    return {
        "hits": hit_bodies,
        "facets": facets,
        "timing": timing,
        "mode": result.mode,
        "degraded": list(result.degraded),
        "behind": result.n_behind,
        "next_cursor": next_cursor,
        "_links": {},
        "next_actions": actions,
    }


def _build_hit(hit: Hit, view: RunView | None) -> Json:
    """Encode a hit, and add what the record of its run says, under the names that the API promises."""
    distance = None if hit.vector_score is None else 1 - hit.vector_score
    return {
        **encode_noun(hit),
        "chunk_idx": hit.chunk,
        "tags": list(view.tags) if view else [],
        "started_at": view.started_at if view else None,
        "score": {"fused": hit.score, "vector_distance": distance, "text_match": hit.keyword_score},
        "_links": runs.build_source_links(hit.run_id, view),
    }


EMPTY_HOOK_REPLY: Json = {"text": "", "notice": ""}
LATE_RECALL: Json = {
    "block": "", "cues": [], "silent": "nothing was found in time", "n_tokens": 0, "timings_ms": {},
    "depth_before_submit": {}, "degraded": ["late"], "_links": {}, "next_actions": [],
}  # fmt: skip


def recall_for_message(call: HttpCall) -> HttpResponse:
    """Return the few turns and memories that matter for a message, as a block to put beside it."""
    body, home, started_s = call.body, call.home, time.perf_counter()
    check_session(body.session)
    session = injections.read_injected_context(home.journal(), body.runtime, body.session) if body.session else None
    name, folder = home.resolve(body.why_not)[1] if body.why_not else "", choose_folder(body.project, body.cwd)
    result = home.recall(
        body.message,
        now=body.now,
        cwd=folder,
        all_projects=body.all_projects,
        mode=body.mode or call.choose_mode(),
        explain=body.explain or bool(name),
        as_of=body.as_of,
        session=Live(body.session, session.since_at) if session else None,
        already=session.turns if session else (),
        helper_s=min(1.0, body.limit_ms * turn.HELPER_SHARE / 1000),
    )
    nonce = fence.make_nonce()
    block, cues = turn.render_block(result.cues, nonce) if result.cues else ("", ())
    if block and session is not None:
        if not call.deadline.claim():
            return HttpResponse(LATE_RECALL)
        took_ms = (time.perf_counter() - started_s) * 1000
        event = HookEvent(body.runtime, "prompt", body.session)
        data = turn.build_injection(event, turn.RecallBlock(block, nonce, cues), result, took_ms)
        home.journal().append(injections.EVENT_TYPE, data, now=datetime.now(UTC))
    extra_fields = {"recalled": encode_noun(result)} if body.full else {}
    if name:
        extra_fields["omission"] = explain_omission(home, result, name, folder)
    return HttpResponse(_build_recall_body(home, result, block, cues) | extra_fields)


def choose_folder(project: str | None, cwd: str | None) -> str | None:
    """Return the folder that names a project of another machine; that machine computed the project itself."""
    return project or cwd


def _build_recall_body(home: Home, result: Recalled, block: str, cues: tuple[Cue, ...]) -> Json:
    views = runs.read_visible_runs(home, (cue.run_id for cue in cues if cue.run_id))
    cue_bodies = [_build_cue(cue, views.get(cue.run_id)) for cue in cues]
    source_links = [
        href for cue_body in cue_bodies[:1] for name, href in cue_body["_links"].items() if name in ("run", "memory")
    ]
    return {
        "block": block,
        "cues": cue_bodies,
        "silent": result.silent,
        "n_tokens": sum(cue.n_tokens for cue in cues),
        "timings_ms": dict(result.timings_ms),
        "depth_before_submit": dict(result.depth),
        "degraded": list(result.degraded),
        "_links": {},
        "next_actions": [build_action("read the source of the first", "GET", href) for href in source_links],
    }


def _build_cue(cue: Cue, view: RunView | None) -> Json:
    memory = {"memory": f"{API_PATH}/memories/{cue.memory.memory_id}"} if cue.memory else None
    cue_links = memory or runs.build_source_links(cue.run_id, view)
    return {**encode_noun(cue), "memory_id": cue.memory.memory_id if cue.memory else None, "_links": cue_links}


def answer_hook(call: HttpCall) -> HttpResponse:
    """Answer a hook exactly as the resident home does; with nothing if its time is over."""
    event_fields = msgspec.structs.asdict(call.body.event)
    check_session(event_fields["session"])
    event = HookEvent(**{**event_fields, "cwd": choose_folder(call.body.project, event_fields["cwd"]) or ""})
    answer = turn.answer_event(
        call.home, event, limit_ms=call.body.limit_ms, mode=call.choose_mode(), deadline=call.deadline
    )
    return HttpResponse({"text": answer.text, "notice": answer.notice})


def build_context(call: HttpCall) -> HttpResponse:
    """Build the text that a model is to read for a message, in its provider's format, with the cost of each part."""
    body = call.body
    check_session(body.session)
    context = call.home.context(
        body.message,
        window=body.window,
        cwd=choose_folder(body.project, body.cwd),
        platform=body.platform,
        session=Live(body.session) if body.session else None,
        now=body.now,
        mode=body.mode,
    )
    messages = context.anthropic() if body.format == "anthropic" else context.openai()
    fields = {"format": body.format, **messages, "parts": encode_noun(context.parts), "n_tokens": context.n_tokens}
    if body.full:
        fields |= {"context": encode_noun(context), "alerts": list(call.home.floor.alerts)}
    return HttpResponse(build_item(fields, {}))


def explain_last_recall(call: HttpCall) -> HttpResponse:
    """Return the last recall that a session was given, with the reasons, the time and the tokens."""
    return HttpResponse(build_item(describe_last_recall(call.home, call.query.session), {"self": f"{API_PATH}/why"}))
