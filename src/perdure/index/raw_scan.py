"""Search the archive itself while there is no index. Slow and complete; the result says so.

Runs that others let the principal read are found from what capture recorded: tag, project, agent. Below a
granted run are the runs that name it as their parent, those that follow it in its source, and sessions
spawned from a session of which everything may be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from perdure import text
from perdure.access.redact import mask
from perdure.archive.archive import Archive
from perdure.archive.store import LedgerEntry
from perdure.errors import DamagedRun
from perdure.formats.call_text import describe_turn
from perdure.identity import make_turn_id
from perdure.index import projection
from perdure.index.visibility import list_grants_in_force
from perdure.types import Filters, Grant, Hit, PartKind, Principal, Run, SearchResult, Source, Turn

_SEARCHED_KINDS: tuple[PartKind, ...] = ("text", "pasted", "thinking", "call", "result")


def search(archive: Archive, principal: Principal, query: str, *, filters: Filters, limit: int) -> SearchResult:
    """Return the turns that hold most of the words, newest first among equals."""
    started = time.perf_counter()
    terms = text.without_stopwords(text.query_terms(query))
    scored_hits: list[tuple[float, str, Hit]] = []
    seen_ids: set[str] = set()  # a fork copies history, and homes that merged may have cut one session differently
    now = datetime.now(UTC)
    for entry in (
        *archive.ledger.list_runs(principal.user),
        *_list_shared_runs(archive, list_grants_in_force(principal, now)),
    ):
        for copy_id, hit in _find_hits(archive, entry, terms, filters):
            if not seen_ids & {copy_id, hit.turn_id}:
                seen_ids |= {copy_id, hit.turn_id}
                if entry.user != principal.user:
                    hit = replace(hit, project=mask(hit.project) if hit.project else None)
                scored_hits.append((hit.score, hit.stated_at.isoformat() if hit.stated_at else "", hit))
    scored_hits.sort(key=lambda item: (item[0], item[1], item[2].turn_id), reverse=True)
    hits = tuple(hit for _, _, hit in scored_hits[:limit])
    return SearchResult(hits, terms=terms, degraded=("index",), took_ms=(time.perf_counter() - started) * 1000)


def _list_shared_runs(archive: Archive, grants: Sequence[Grant]) -> Iterator[LedgerEntry]:
    """Yield the runs of others that these grants let a principal read."""
    for owner in sorted({grant.owner for grant in grants}):
        runs = {
            entry.run_id: (entry, run)
            for entry in archive.ledger.list_runs(owner)
            if (run := _read_run_or_none(archive, entry))
        }
        readable = _find_readable_runs(
            [run for _, run in runs.values()], [grant for grant in grants if grant.owner == owner]
        )
        yield from (entry for run_id, (entry, _) in runs.items() if run_id in readable)


def _read_run_or_none(archive: Archive, entry: LedgerEntry) -> Run | None:
    try:
        return archive.read_run(entry)
    except DamagedRun:
        return None


def _find_readable_runs(runs: Sequence[Run], grants: Sequence[Grant]) -> set[str]:
    """Return the ids of an owner's runs that grants name, and of the runs that are certainly below a granted run."""
    named_ids = {run.run_id for run in runs for grant in grants if _is_named(run, grant)}
    granted_ids = {g.value for g in grants if g.scope == "run"} & {run.run_id for run in runs}
    previous_by_source: dict[Source, Run] = {}
    parents: dict[str, set[str]] = {}  # run -> those of which all must be readable
    sessions: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        sessions.setdefault((run.source.runtime, run.source.session), set()).add(run.run_id)
    for run in sorted(runs, key=lambda run: run.from_offset):
        previous = previous_by_source.get(run.source)
        previous_by_source[run.source] = run
        if run.parent_run_id:
            parents[run.run_id] = {run.parent_run_id}
        elif previous:
            parents[run.run_id] = {previous.run_id}
        elif run.parent_session:
            parents[run.run_id] = sessions.get((run.source.runtime, run.parent_session), set()) - {run.run_id}
    while (
        new_ids := {run_id for run_id, parent_ids in parents.items() if parent_ids and parent_ids <= granted_ids}
        - granted_ids
    ):
        granted_ids |= new_ids
    return named_ids | granted_ids


def _is_named(run: Run, grant: Grant) -> bool:
    if not grant.value or grant.scope == "run":
        return False
    run_values = {"tag": run.tags, "project": (run.project,), "agent": (run.agent,)}[grant.scope]
    return grant.value in run_values


def _find_hits(
    archive: Archive, entry: LedgerEntry, terms: tuple[str, ...], filters: Filters
) -> Iterator[tuple[str, Hit]]:
    """Yield (an id that its copies share, hit) of each turn of a run that passes the filters."""
    try:
        run, stored_bytes = archive.read_run(entry), archive.read(entry)
        if not _is_run_in_filters(run, filters) or not _can_match(stored_bytes, terms):
            return
        _, parsed = archive.read_turns(entry)
    except DamagedRun:
        return  # `verify` reports it; the other runs are still searched
    title = projection.build_title(parsed.title) or projection.find_intent(parsed.turns)
    for turn in parsed.turns:
        if _is_turn_in_filters(turn, filters):
            masked_text = mask(turn.text(*_SEARCHED_KINDS))
            lowered = text.normalise(masked_text)
            score = sum(text.normalise(term) in lowered for term in terms) if terms else 1
            if score:
                shown_text = describe_turn(turn, run.project, *_SEARCHED_KINDS)
                hit = _make_hit(run, turn, title, shown_text, float(score))
                yield (f"{hit.user}\0{hit.runtime}\0{turn.native_id}" if turn.native_id else hit.turn_id), hit


def _can_match(stored_bytes: bytes, terms: tuple[str, ...]) -> bool:
    """Return True if the bytes can contain one of the words.

    JSON may escape what is not ASCII, so words that are not ASCII always count as possible.
    """
    ascii_words = [term.split()[0].encode() for term in terms if term.isascii() and term.split()]
    if len(ascii_words) < len(terms) or not ascii_words:
        return True
    lowered = stored_bytes.lower()
    return any(word in lowered for word in ascii_words)


def _is_run_in_filters(run: Run, filters: Filters) -> bool:
    conditions = (
        (filters.runtimes, run.source.runtime),
        (filters.machines, run.machine),
        (filters.agents, run.agent),
        (filters.conversations, run.conversation),
    )
    if filters.runs and run.run_id not in filters.runs:
        return False
    if not _is_within(run.started_at, filters.begun_since_at, filters.begun_until_at):
        return False
    if any(values and value not in values for values, value in conditions) or set(filters.tags) - set(run.tags):
        return False
    return not filters.projects or any(_has_path_end(run.project or "", project) for project in filters.projects)


def _is_within(instant: datetime | None, since_at: datetime | None, until_at: datetime | None) -> bool:
    """Return True if a time is in a range, of which the end is excluded; None is in no bounded range."""
    if instant is None:
        return since_at is None and until_at is None
    return (since_at is None or instant >= since_at) and (until_at is None or instant < until_at)


def _is_turn_in_filters(turn: Turn, filters: Filters) -> bool:
    if filters.roles and turn.role not in filters.roles:
        return False
    if not _is_within(turn.stated_at, filters.since_at, filters.until_at):
        return False
    tools = {part.name for part in turn.parts if part.kind == "call"}
    return (
        (not filters.tools or bool(tools & set(filters.tools)))
        and (not filters.skills or bool(set(turn.skills) & set(filters.skills)))
        and (
            not filters.files
            or any(_has_path_end(path, file_filter) for path in turn.files for file_filter in filters.files)
        )
    )


def _has_path_end(path: str, path_end: str) -> bool:
    return path == path_end or path.endswith("/" + path_end)


def _make_hit(run: Run, turn: Turn, title: str, masked_text: str, score: float) -> Hit:
    return Hit(
        turn_id=make_turn_id(run.source, turn.offset),
        run_id=run.run_id,
        conversation=run.conversation,
        title=title,
        runtime=run.source.runtime,
        machine=run.machine,
        agent=run.agent,
        project=run.project,
        role=turn.role,
        author=turn.author,
        kind="text",
        stated_at=turn.stated_at,
        text=masked_text,
        score=score,
        is_summary=turn.is_summary,
        user=run.source.user,
    )
