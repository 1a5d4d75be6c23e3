"""Ask one home: search and recall over its open parts.

Both bring the index up to date for a moment and start to embed the question; `index` searches, `recall` decides what
matters. The answer names in `degraded` what could not be done. Nothing is written but the index.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from perdure.connections import Connections, pending_rows
from perdure.errors import Busy, ConfigFault, IndexFault, UsageError
from perdure.index import keyword, memory_rows, runs, store, visibility
from perdure.index.store import IndexConnection
from perdure.memories import own_writes
from perdure.memories.remarks import Remarks
from perdure.recall import plan as planning
from perdure.recall.index_candidates import IndexCandidates
from perdure.recall.rank import list_texts_to_embed
from perdure.recall.recall import TextScan, hide_scores, recall
from perdure.recall.tuning import DEFAULT
from perdure.types import Filters, Hit, Live, Memory, Plan, Recalled, SearchResult
from perdure.upkeep import Upkeep

# Loaded where they are used: a recall by words needs no numpy (0.2 s), and only a home without an index is scanned.
if TYPE_CHECKING:
    from perdure.index.home_vectors import PendingQueryVector

HELPER = "helper"  # the role, and the name in `degraded` of a recall that had to do without its model
HELPER_S = 1.0  # a helper model may plan a recall for so long, unless told otherwise
_N_ALIKE = 12  # own memories that are compared with a note of the team
SEARCH_MODES = ("hybrid", "keyword", "semantic")
RECALL_MODES = ("hybrid", "keyword")


# search -------------------------------------------------------------------------------------------------------


def search_turns(
    connections: Connections,
    upkeep: Upkeep,
    query: str,
    *,
    filters: Filters,
    limit: int,
    mode: str | None,
    scan: bool,
) -> SearchResult:
    """Return the turns that match, as `Home.search` describes it. scan: do not use the index."""
    if limit < 1:
        raise UsageError("the limit must be at least 1")
    _check_mode(mode, SEARCH_MODES)
    if not scan:
        with contextlib.suppress(IndexFault):
            index = upkeep.index_for_search()
            n_behind = upkeep.catch_up_for_search(index)
            result = _search_index(connections, index, query, filters=filters, limit=limit, mode=mode)
            return replace(result, hits=_show_hits(connections, index, result.hits), n_behind=n_behind)
    from perdure.index import raw_scan

    return raw_scan.search(connections.archive, connections.principal, query, filters=filters, limit=limit)


def _show_hits(connections: Connections, index: store.IndexConnection, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return hits as their reader sees them: tool calls in words, under the title of the whole session."""
    views = runs.find_first_runs(index, connections.principal, {hit.run_id for hit in hits})
    titles = {run_id: view.title or view.intent for run_id, view in views.items()}
    described_hits = keyword.describe_calls(index, hits)
    return tuple(replace(hit, title=titles.get(hit.run_id) or hit.title) for hit in described_hits)


def _search_index(
    connections: Connections,
    index: store.IndexConnection,
    query: str,
    *,
    filters: Filters,
    limit: int,
    mode: str | None,
) -> SearchResult:
    """Search by words and vectors; by words alone where there are no vectors or the model fails."""
    pending, has_failed = connections.ask_vectors(index, [query], mode)
    rows = pending_rows(pending)
    if pending is not None and rows is not None and rows.any():
        from perdure.index import hybrid

        weight = connections.config.search.vector_weight
        query_vectors, by_words = hybrid.QueryVector(pending.space, rows, weight), mode != "semantic"
        result = hybrid.search_hybrid(
            index, connections.principal, query, query_vectors, filters=filters, limit=limit, use_words=by_words
        )
        timings_ms, depth = _read_wait(pending)
        return replace(result, timings_ms=timings_ms, depth=depth)
    result = keyword.search(index, connections.principal, query, filters=filters, limit=limit)
    return replace(result, degraded=("vector",)) if has_failed or pending is not None else result


# recall -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecallRequest:
    """One message to recall for. The fields are the arguments of `Home.recall`."""

    message: str
    now: datetime
    cwd: str | None
    all_projects: bool
    session: Live | None
    already: Collection[str]
    mode: str | None
    explain: bool
    as_of: datetime | None
    helper_s: float
    catch_up_s: float | None


def recall_cues(connections: Connections, upkeep: Upkeep, request: RecallRequest, *, scan_text: TextScan) -> Recalled:
    """Return what matters for a message, or silence, as `Home.recall` describes it.

    scan_text: finds text that reads like an order to a model; it is left out.
    """
    _check_mode(request.mode, RECALL_MODES)
    plan = planning.plan(request.message, now=request.now)
    plan, has_helper_failed = plan_with_helper(
        connections, plan, timeout_s=0.0 if request.mode == "keyword" else request.helper_s
    )
    try:
        index = upkeep.index_for_search(limit_s=request.catch_up_s)
        n_behind = upkeep.catch_up_for_search(index, limit_s=request.catch_up_s)
        pending, has_vector_failed = connections.ask_vectors(index, list_texts_to_embed(plan), request.mode)
        principal = connections.principal
        filters = planning.choose_filters(
            plan.message,
            project=connections.project_of(request.cwd),
            projects=runs.list_names(index, principal, "project"),
            all_projects=request.all_projects,
            live_sessions=_list_live(request.session) if request.session else (),
        )
        filters = replace(filters, until_at=request.as_of)
        written_ids = own_writes.list_written_here(index, principal, request.session) if request.session else set()
        remarks = Remarks(connections.project_of(request.cwd), scan_text, partial(_list_alike, connections, index))
        with index.begin_read(), pending.lanes.pause_bulk() if pending else contextlib.nullcontext():
            space = pending.space if pending else None
            recalled = recall(
                IndexCandidates(index, principal, filters, space, request.as_of, connections.config.agent),
                plan,
                vectors=lambda: pending_rows(pending),
                model=pending.tag.name if pending else "",
                session_turn_ids={*request.already, *written_ids},
                explain=request.explain,
                scan_text=scan_text,
                describe_changes=None if connections.is_used_remotely else remarks.describe,
                limits=connections.config.live.limits,
                tuning=replace(DEFAULT, vector=connections.config.search.vector_weight),
            )
            if visibility.get_read_scope(index, principal).other_owners:
                recalled = hide_scores(recalled)
    except (IndexFault, Busy) as error:
        return Recalled((), plan, silent=f"recall failed: {error}".removesuffix("."), degraded=("index",))
    if pending and recalled.timings_ms:  # a plan that asks for nothing has no timings, and waited for no vector
        has_vector_failed = pending.pending.exception() is not None
        if not has_vector_failed:
            timings_ms, depth = _read_wait(pending)
            recalled = replace(recalled, timings_ms={**timings_ms, **recalled.timings_ms}, depth=depth)
    shortfalls = {"vector": has_vector_failed, "behind": n_behind > 0, HELPER: has_helper_failed}
    degraded = tuple(name for name, is_degraded in shortfalls.items() if is_degraded)
    return replace(recalled, degraded=degraded, n_behind=n_behind)


def _list_alike(connections: Connections, index: IndexConnection, words: str) -> list[Memory]:
    """Return the agent's own current memories that share words with a text."""
    memories = memory_rows.find_by_words(index, connections.principal, words, limit=_N_ALIKE)
    return [memory for memory in memories if memory.agent == connections.config.agent]


def _list_live(session: Live) -> list[Live]:
    """Return what the model reads anyway: the session, and the instructions that its client loads."""
    return [session, *map(Live, session.loaded_files)]


def plan_with_helper(connections: Connections, plan: Plan, *, timeout_s: float) -> tuple[Plan, bool]:
    """Return (the plan, improved by the helper model if there is one and time for it; whether it failed)."""
    has_helper = connections.config.models.roles.helper.provider or HELPER in (connections.chats or {})
    if not (has_helper and plan.queries and timeout_s > 0):
        return plan, False
    try:
        chat = connections.chat(HELPER, job="recall")
    except ConfigFault:
        return plan, True
    return planning.plan_with_model(plan, chat, timeout_s=timeout_s) if chat else (plan, False)


# both ---------------------------------------------------------------------------------------------------------


def _check_mode(mode: str | None, known: Collection[str]) -> None:
    """Raise UsageError for a mode that is not known; None stands for the best that there is."""
    if mode is not None and mode not in known:
        raise UsageError(f"mode {mode!r} (known: {', '.join(known)})")


def _read_wait(pending: PendingQueryVector) -> tuple[dict[str, float], dict[str, int]]:
    """Return (milliseconds that the vectors took, lane -> texts that waited before them)."""
    answer = pending.wait()
    timings_ms = {"queued": answer.queued_ms, "compute": answer.compute_ms}
    return timings_ms, {str(lane): n for lane, n in answer.depth_before.items()}
