"""Raw search: answer from the archive itself while there is no index to ask. Slow, complete, and says so.

What others let the principal read is found by what capture wrote down: tag, project, agent; below a granted run, what
names it as its parent, what follows it in its source, and sessions that were spawned from one of which all may be read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from perdure import text
from perdure.access.redact import mask
from perdure.archive.archive import Archive
from perdure.archive.store import Held
from perdure.errors import DamagedRun
from perdure.formats.of_run import parse_run, without_injected
from perdure.identity import turn_id
from perdure.index.visible import in_force
from perdure.types import Filters, Found, Grant, Hit, PartKind, Principal, Run, Source, Turn

_SEARCHED: tuple[PartKind, ...] = ("text", "pasted", "thinking", "call", "result")


def search(archive: Archive, principal: Principal, query: str, *, filters: Filters, limit: int) -> Found:
    """The turns that hold most of the words, newest first among equals."""
    started = time.perf_counter()
    terms = text.without_stopwords(text.query_terms(query))
    found: list[tuple[float, str, Hit]] = []
    seen: set[str] = set()  # a fork copies history, and merged homes may have cut one session differently
    now = datetime.now(UTC)
    for held in (*archive.ledger.all(principal.user), *_shared(archive, in_force(principal, now))):
        for native, hit in _hits(archive, held, terms, filters):
            if not seen & {native, hit.turn_id}:
                seen |= {native, hit.turn_id}
                if held.user != principal.user:
                    hit = replace(hit, project=mask(hit.project) if hit.project else None)
                found.append((hit.score, hit.stated_at.isoformat() if hit.stated_at else "", hit))
    found.sort(key=lambda item: (item[0], item[1], item[2].turn_id), reverse=True)
    hits = tuple(hit for _, _, hit in found[:limit])
    return Found(hits, terms=terms, degraded=("index",), took_ms=(time.perf_counter() - started) * 1000)


def _shared(archive: Archive, grants: Sequence[Grant]) -> Iterator[Held]:
    """The runs of others that these grants let a principal read."""
    for owner in sorted({grant.owner for grant in grants}):
        runs = {held.run_id: (held, run) for held in archive.ledger.all(owner) if (run := _known(archive, held))}
        readable = _readable([run for _, run in runs.values()], [grant for grant in grants if grant.owner == owner])
        yield from (held for name, (held, _) in runs.items() if name in readable)


def _known(archive: Archive, held: Held) -> Run | None:
    try:
        return archive.run(held)
    except DamagedRun:
        return None


def _readable(runs: Sequence[Run], grants: Sequence[Grant]) -> set[str]:
    """The ids of an owner's runs that grants name, with what is surely below a granted run."""
    found = {run.run_id for run in runs for grant in grants if _is_named(run, grant)}
    below = {g.value for g in grants if g.scope == "run"} & {run.run_id for run in runs}
    before: dict[Source, Run] = {}
    parents: dict[str, set[str]] = {}  # run -> those of which all must be readable
    sessions: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        sessions.setdefault((run.source.runtime, run.source.session), set()).add(run.run_id)
    for run in sorted(runs, key=lambda run: run.from_offset):
        previous = before.get(run.source)
        before[run.source] = run
        if run.parent_run_id:
            parents[run.run_id] = {run.parent_run_id}
        elif previous:
            parents[run.run_id] = {previous.run_id}
        elif run.parent_session:
            parents[run.run_id] = sessions.get((run.source.runtime, run.parent_session), set()) - {run.run_id}
    while fresh := {name for name, above in parents.items() if above and above <= below} - below:
        below |= fresh
    return found | below


def _is_named(run: Run, grant: Grant) -> bool:
    if not grant.value or grant.scope == "run":
        return False
    has = {"tag": run.tags, "project": (run.project,), "agent": (run.agent,)}[grant.scope]
    return grant.value in has


def _hits(archive: Archive, held: Held, terms: tuple[str, ...], filters: Filters) -> Iterator[tuple[str, Hit]]:
    """(an id that its copies share, hit) of each turn of a run that passes."""
    try:
        run, stored = archive.run(held), archive.read(held)
        if not _run_passes(run, filters) or not _may_hold(stored, terms):
            return
        parsed = without_injected(parse_run(run, archive.lines(held)), partial(archive.injected, run))
    except DamagedRun:
        return  # `verify` names it; the others still answer
    for turn in parsed.turns:
        if _turn_passes(turn, filters):
            words = mask(turn.text(*_SEARCHED))
            lowered = text.normalised(words)
            score = sum(text.normalised(term) in lowered for term in terms) if terms else 1
            if score:
                hit = _hit(run, turn, mask(parsed.title), words, float(score))
                yield (f"{hit.user}\0{hit.runtime}\0{turn.native_id}" if turn.native_id else hit.turn_id), hit


def _may_hold(stored: bytes, terms: tuple[str, ...]) -> bool:
    """Whether the bytes can hold any of the words; JSON may escape what is not ASCII, so that is not judged here."""
    plain = [term.split()[0].encode() for term in terms if term.isascii() and term.split()]
    if len(plain) < len(terms) or not plain:
        return True
    lowered = stored.lower()
    return any(word in lowered for word in plain)


def _run_passes(run: Run, filters: Filters) -> bool:
    wanted = (
        (filters.runtimes, run.source.runtime),
        (filters.machines, run.machine),
        (filters.agents, run.agent),
        (filters.conversations, run.conversation),
    )
    if filters.runs and run.run_id not in filters.runs:
        return False
    if not _within(run.started_at, filters.begun_since_at, filters.begun_until_at):
        return False
    if any(values and value not in values for values, value in wanted) or set(filters.tags) - set(run.tags):
        return False
    return not filters.projects or any(_ends(run.project or "", project) for project in filters.projects)


def _within(at: datetime | None, since_at: datetime | None, until_at: datetime | None) -> bool:
    """Whether a time lies in a stretch whose end does not belong to it; none lies in one."""
    if at is None:
        return since_at is None and until_at is None
    return (since_at is None or at >= since_at) and (until_at is None or at < until_at)


def _turn_passes(turn: Turn, filters: Filters) -> bool:
    if filters.roles and turn.role not in filters.roles:
        return False
    if not _within(turn.stated_at, filters.since_at, filters.until_at):
        return False
    tools = {part.name for part in turn.parts if part.kind == "call"}
    return (
        (not filters.tools or bool(tools & set(filters.tools)))
        and (not filters.skills or bool(set(turn.skills) & set(filters.skills)))
        and (not filters.files or any(_ends(path, wanted) for path in turn.files for wanted in filters.files))
    )


def _ends(path: str, wanted: str) -> bool:
    return path == wanted or path.endswith("/" + wanted)


def _hit(run: Run, turn: Turn, title: str, words: str, score: float) -> Hit:
    return Hit(
        turn_id=turn_id(run.source, turn.offset), run_id=run.run_id, conversation=run.conversation, title=title,
        runtime=run.source.runtime, machine=run.machine, agent=run.agent, project=run.project, role=turn.role,
        author=turn.author, kind="text", stated_at=turn.stated_at, text=words, score=score, is_summary=turn.is_summary,
        user=run.source.user,
    )  # fmt: skip
