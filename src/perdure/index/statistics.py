"""Count: how a home grew over time, how much a grant covers, and the results of `perdure eval` on this
machine.

Growth counts only the principal's own runs, turns, bytes and memories, whatever others share with them.
It counts rows of runs and memories, never of turns or chunks, so it stays fast however much was
captured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from perdure.archive.journal import measure_files, read_new_events, was_rewritten
from perdure.index import encoding, memory_rows
from perdure.index.encoding import from_ms, to_ms
from perdure.index.memory_replay import ReplayEvent
from perdure.index.runs import list_descendants, read_run
from perdure.index.store import IndexConnection, get_journal_positions
from perdure.types import Grant, Principal

_OWNED_BY_USER = "JOIN name AS owner ON owner.id = {table}.user WHERE owner.value = ?"


@dataclass(frozen=True, slots=True)
class MonthGrowth:
    """The growth of one month."""

    month: str  # yyyy-mm, UTC
    n_runs: int = 0  # captured runs that began in the month; runs without a time count by their capture
    n_turns: int = 0  # of these runs and the sub-agents inside them
    n_bytes: int = 0  # captured in the month


@dataclass(frozen=True, slots=True)
class MachineCaptures:
    """The captures of one machine."""

    n_runs: int
    captured_at: datetime  # time of the newest capture


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth by month and by week."""

    months: list[MonthGrowth]
    memories: dict[date, int]  # Monday -> memories recorded in that week


@dataclass(frozen=True, slots=True)
class IndexSize:
    """The size of an index, of all users together."""

    n_turns: int
    n_chunks: int
    chunks_by_runtime: dict[str, int]  # by name


class ParagraphCounts(NamedTuple):
    """How many paragraphs the files of hosts hold."""

    n_believed: int
    n_passing: int  # found and not believed: they say nothing that lasts


def measure_size(index: IndexConnection) -> IndexSize:
    """Return how much an index holds."""
    runtimes = "SELECT value, n_chunks FROM name WHERE kind = 'runtime' AND n_chunks > 0 ORDER BY value"
    with index.show_all():
        return IndexSize(
            index.select("SELECT count(*) FROM turn")[0][0],
            index.select("SELECT count(*) FROM chunk")[0][0],
            dict(index.select(runtimes)),
        )


def count_paragraphs(index: IndexConnection, principal: Principal, runtimes: Sequence[str]) -> ParagraphCounts:
    """Count the paragraphs of host files; those that are no longer in their file are left out.

    runtimes: those of host files.
    """
    marks = ", ".join("?" for _ in runtimes)
    sql = f"""SELECT count(*), count(*) FILTER (WHERE turn.author = 'machine') FROM turn JOIN run ON run.id = turn.run
        JOIN name AS runtime ON runtime.id = run.runtime {_OWNED_BY_USER.format(table="run")}
        AND runtime.value IN ({marks}) AND NOT turn.abandoned"""
    n_all, n_passing = index.select(sql, principal.user, *runtimes)[0]
    return ParagraphCounts(n_all - n_passing, n_passing)


def count_by_month(index: IndexConnection, principal: Principal) -> list[MonthGrowth]:
    """Return every month in which anything began or was captured, oldest first."""
    owned = _OWNED_BY_USER.format(table="run")
    begun_month = encoding.build_month_sql("coalesce(started_ms, captured_ms)")
    runs_query = f"""SELECT {begun_month}, count(*) FILTER (WHERE thread = ''),
        sum(n_turns) FROM run {owned} GROUP BY 1"""
    bytes_query = f"""SELECT {encoding.build_month_sql("captured_ms")}, sum(to_offset - from_offset)
        FROM run {owned}
        AND thread = '' GROUP BY 1"""
    runs_by_month = {month: (n_runs, n_turns) for month, n_runs, n_turns in index.select(runs_query, principal.user)}
    bytes_by_month = dict(index.select(bytes_query, principal.user))
    return [
        MonthGrowth(month, *runs_by_month.get(month, (0, 0)), bytes_by_month.get(month, 0))
        for month in sorted({*runs_by_month, *bytes_by_month})
    ]


def count_memories_by_week(index: IndexConnection, principal: Principal) -> dict[date, int]:
    """Count the memories recorded in each week, by its Monday."""
    owned = _OWNED_BY_USER.format(table="memory")
    sql = f"SELECT {encoding.build_week_sql('recorded_ms')}, count(*) FROM memory {owned} GROUP BY 1"
    rows = index.select(sql, principal.user)
    return {date.fromisoformat(monday): n for monday, n in rows}


def count_captures_by_machine(index: IndexConnection, principal: Principal) -> dict[str, MachineCaptures]:
    """Return the captures of each of the principal's machines, by its name."""
    sql = f"""SELECT machine.value, count(*), max(captured_ms) FROM run JOIN name AS machine ON machine.id = run.machine
        {_OWNED_BY_USER.format(table="run")} AND thread = '' GROUP BY 1"""
    rows = index.select(sql, principal.user)
    return {machine: MachineCaptures(n, datetime.fromtimestamp(at_ms / 1000, UTC)) for machine, n, at_ms in rows}


def list_source_paths(index: IndexConnection, principal: Principal, machine: str) -> list[tuple[str, str, str]]:
    """Return (runtime, session, path) of what one of the principal's machines captured from files."""
    sql = f"""SELECT DISTINCT runtime.value, session, path FROM run JOIN name AS machine ON machine.id = run.machine
        JOIN name AS runtime ON runtime.id = run.runtime {_OWNED_BY_USER.format(table="run")}
        AND machine.value = ? AND path IS NOT NULL"""
    return index.select(sql, principal.user, machine)


_GRANTED_RUNS_BY_SCOPE = {
    "tag": "run.id IN (SELECT run FROM run_tag JOIN name ON name.id = tag WHERE value = ?)",
    "project": "run.project IN (SELECT id FROM name WHERE kind = 'project' AND value = ?)",
    "agent": "run.agent IN (SELECT id FROM name WHERE kind = 'agent' AND value = ?)",
}


def count_granted_runs(index: IndexConnection, principal: Principal, grant: Grant) -> int:
    """Count the principal's runs that a grant covers now. Raises NotFound for a run that is not theirs."""
    if grant.scope == "run":
        return len(list_descendants(index, principal, read_run(index, principal, grant.value).run_id)) + 1
    if grant.scope == "memory":
        return 0
    owned = "run JOIN name AS owner ON owner.id = run.user"
    sql = f"SELECT count(*) FROM {owned} WHERE owner.value = ? AND {_GRANTED_RUNS_BY_SCOPE[grant.scope]}"
    if grant.since_at is None:
        ((n,),) = index.select(sql, principal.user, grant.value)
    else:
        ((n,),) = index.select(f"{sql} AND run.started_ms >= ?", principal.user, grant.value, to_ms(grant.since_at))
    return int(n)


MEASURED_TYPE = "measured"


def clear(index: IndexConnection, user: int) -> None:
    """Delete all measurements of an owner."""
    index.db.execute("DELETE FROM measured WHERE user = ?", (user,))


def write(index: IndexConnection, user: int, replay_events: Iterable[ReplayEvent]) -> None:
    """Write the measurements in these events."""
    rows = [
        (user, event.order, to_ms(event.at), msgspec.json.encode(event.data))
        for event in replay_events
        if event.type == MEASURED_TYPE
    ]
    index.db.executemany("INSERT OR IGNORE INTO measured VALUES (?, ?, ?, ?)", rows)


def list_newest_measurements(index: IndexConnection, user: str, folder: Path, *, limit: int) -> list[ReplayEvent]:
    """Return the newest measurements, oldest first.

    folder: the journal; events at its end that the index has not read yet are added.
    """
    query = "SELECT place, at_ms, body FROM measured WHERE user = ? ORDER BY place DESC LIMIT ?"
    with index.show_all(), index.begin_read():  # figures of the home's owner, which every user of it may see
        rows = index.select(query, index.find_name("user", user), limit)
        unread = _read_unread_measurements(index, user, folder)
    measurements = [
        ReplayEvent(MEASURED_TYPE, msgspec.json.decode(body), measured_at, order)
        for order, at_ms, body in rows
        if (measured_at := from_ms(at_ms))
    ]
    return sorted([*measurements, *unread], key=lambda event: event.order)[-limit:]


def _read_unread_measurements(index: IndexConnection, user: str, folder: Path) -> list[ReplayEvent]:
    old_positions, current_positions = get_journal_positions(index, user), measure_files(folder)
    if old_positions == current_positions or was_rewritten(old_positions, current_positions):
        return []
    return [
        memory_rows.to_replay_event(event)
        for event in read_new_events(folder, old_positions, current_positions, (MEASURED_TYPE,))[0]
    ]
