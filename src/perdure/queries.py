"""Ask one home: search and recall over its open parts.

Both bring the index up to date for a moment and start to embed the question; `index` searches, `recall` decides what
matters. The answer names in `degraded` what could not be done. Nothing is written but the index.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from perdure import text
from perdure.connections import Connections, pending_rows
from perdure.environ import local_now
from perdure.errors import Busy, ConfigFault, IndexFault, UsageError, VectorsMissing
from perdure.index import keyword, memory_rows, runs, store, visibility
from perdure.index.store import IndexConnection
from perdure.memories import own_writes
from perdure.memories.remarks import Remarks
from perdure.recall import plan as planning
from perdure.recall.index_candidates import IndexCandidates
from perdure.recall.rank import list_texts_to_embed
from perdure.recall.recall import hide_scores, recall
from perdure.recall.recaller import RecallContext, Recaller, TextScan
from perdure.recall.search import SearchScore, plan_search, search, search_by_meaning
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


class SearchRequest(Struct, frozen=True):
    """One query to search for. The fields are the arguments of `Home.search`."""

    query: str
    filters: Filters
    limit: int
    mode: str | None

    @property
    def terms(self) -> tuple[str, ...]:
        """The words that are searched; none if the query is a list of the newest."""
        return text.without_stopwords(text.query_terms(self.query))


def search_turns(connections: Connections, upkeep: Upkeep, request: SearchRequest, *, scan: bool) -> SearchResult:
    """Return the turns that match, as `Home.search` describes it. scan: do not use the index."""
    if request.limit < 1:
        raise UsageError("the limit must be at least 1")
    _check_mode(request.mode, SEARCH_MODES)
    if not scan:
        with contextlib.suppress(IndexFault):
            index = upkeep.index_for_search()
            n_behind = upkeep.catch_up_for_search(index)
            result = _search_index(connections, index, request)
            return replace(result, hits=_show_hits(connections, index, result.hits), n_behind=n_behind)
    return _search_archive(connections, request)


def _search_archive(connections: Connections, request: SearchRequest) -> SearchResult:
    """Search by words without the index: in one that is made for this query."""
    from perdure.index.raw_scan import build_temporary_index

    started_s = time.perf_counter()
    index = build_temporary_index(connections.archive, connections.principal, request.terms)
    with contextlib.closing(index):
        result = _search_words(connections, index, request)
        hits = _show_hits(connections, index, result.hits)
    return replace(result, hits=hits, degraded=("index",), took_ms=(time.perf_counter() - started_s) * 1000)


def _show_hits(connections: Connections, index: store.IndexConnection, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return hits as their reader sees them: tool calls in words, under the title of the whole session."""
    views = runs.find_first_runs(index, connections.principal, {hit.run_id for hit in hits})
    titles = {run_id: view.title or view.intent for run_id, view in views.items()}
    described_hits = keyword.describe_calls(index, hits)
    return tuple(replace(hit, title=titles.get(hit.run_id) or hit.title) for hit in described_hits)


def _search_index(connections: Connections, index: store.IndexConnection, request: SearchRequest) -> SearchResult:
    """Search by words and vectors; by words alone where there are no vectors or the model fails."""
    started_s = time.perf_counter()
    pending, has_failed = connections.ask_vectors(index, [request.query], request.mode)
    rows = pending_rows(pending)
    result = None
    if pending is not None and rows is not None and rows.any():
        with contextlib.suppress(VectorsMissing):
            result = _search_vectors(connections, index, request, pending)
    if result is None:
        result = _search_words(connections, index, request)
        result = replace(result, degraded=("vector",) if has_failed or pending is not None else ())
    return replace(result, took_ms=(time.perf_counter() - started_s) * 1000)


def _search_words(connections: Connections, index: store.IndexConnection, request: SearchRequest) -> SearchResult:
    """Search by words; without words in the query, return the newest turns that the filters leave."""
    principal = connections.principal
    if not request.terms:
        return keyword.search(index, principal, request.query, filters=request.filters, limit=request.limit)
    with index.begin_read():
        candidates = IndexCandidates(index, principal, request.filters)
        search_plan = plan_search(request.query, now=local_now())
        scores = search(candidates, search_plan, None, limit=request.limit)
        return _build_result(candidates, request, scores)


def _search_vectors(
    connections: Connections, index: store.IndexConnection, request: SearchRequest, pending: PendingQueryVector
) -> SearchResult:
    """Search by words and meaning, or by meaning alone."""
    from perdure.index.embed import count_missing

    vectors, space = pending.wait().vectors, pending.space
    tuning = replace(DEFAULT, vector=connections.config.search.vector_weight)
    with index.begin_read(), pending.lanes.pause_bulk():
        candidates = IndexCandidates(index, connections.principal, request.filters, space)
        if request.mode == "semantic" or not request.terms:
            scores = search_by_meaning(candidates, vectors, limit=request.limit)
        else:
            search_plan = plan_search(request.query, now=local_now())
            scores = search(candidates, search_plan, vectors, limit=request.limit, tuning=tuning)
        is_own = space.info.user == index.find_name("user", connections.user)
        timings_ms, depth = _read_wait(pending)
        return replace(
            _build_result(candidates, request, scores),
            mode="semantic" if request.mode == "semantic" else "hybrid",
            n_unembedded=count_missing(index, space.info) if is_own else 0,
            timings_ms=timings_ms,
            depth=depth,
        )


def _build_result(candidates: IndexCandidates, request: SearchRequest, scores: Sequence[SearchScore]) -> SearchResult:
    """Return the best of the scored turns as hits, with what each leg says of them."""
    scores_by_id = {score.turn_id: score for score in scores}
    hits = candidates.read_hits({score.turn_id: score.score for score in scores}, limit=request.limit)
    explained_hits = [
        replace(
            hit,
            keyword_score=scores_by_id[hit.turn_id].bm25,
            vector_score=scores_by_id[hit.turn_id].cosine,
            legs_score=scores_by_id[hit.turn_id].legs,
        )
        for hit in hits
    ]
    readable_hits = keyword.hide_shared_scores(candidates.index, candidates.principal, explained_hits)
    return SearchResult(readable_hits, terms=request.terms, dropped=tuple(candidates.dropped_words))


# recall -------------------------------------------------------------------------------------------------------


class RecallRequest(Struct, frozen=True):
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


def recall_cues(
    connections: Connections,
    upkeep: Upkeep,
    request: RecallRequest,
    *,
    scan_text: TextScan,
    recaller: Recaller | None = None,
) -> Recalled:
    """Return what matters for a message, or silence, as `Home.recall` describes it.

    scan_text: finds text that reads like an order to a model; it is left out. recaller: instead of what ships.
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
        filters = _choose_filters(connections, index, plan.message, request)
        written_ids = own_writes.list_written_here(index, principal, request.session) if request.session else set()
        remarks = Remarks(connections.project_of(request.cwd), scan_text, partial(_list_alike, connections, index))
        with index.begin_read(), pending.lanes.pause_bulk() if pending else contextlib.nullcontext():
            space = pending.space if pending else None
            candidates = IndexCandidates(index, principal, filters, space, request.as_of, connections.config.agent)
            context = RecallContext(
                vectors=lambda: pending_rows(pending),
                model=pending.tag.name if pending else "",
                session_turn_ids={*request.already, *written_ids},
                explain=request.explain,
                scan_text=scan_text,
                describe_changes=None if connections.is_used_remotely else remarks.describe,
                limits=connections.config.live.limits,
                tuning=replace(DEFAULT, vector=connections.config.search.vector_weight),
            )
            try:
                recalled = (recaller or recall)(candidates, plan, context)
            except VectorsMissing:  # words alone
                pending, has_vector_failed = None, True
                candidates, context = replace(candidates, space=None), replace(context, vectors=None, model="")
                recalled = (recaller or recall)(candidates, plan, context)
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


def _choose_filters(connections: Connections, index: IndexConnection, message: str, request: RecallRequest) -> Filters:
    """Return what a message looks at: its project and shared ones, without what its session holds."""
    filters = planning.choose_filters(
        message,
        project=connections.project_of(request.cwd),
        projects=runs.list_names(index, connections.principal, "project"),
        all_projects=request.all_projects,
        live_sessions=_list_live(request.session) if request.session else (),
        shared_projects=runs.list_shared_projects(index, connections.principal),
    )
    return replace(filters, until_at=request.as_of)


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
