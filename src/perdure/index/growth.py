"""How what is kept grew, counted: runs, turns, bytes and memories over time, and what each machine brought.

Only what is the principal's own counts, whatever others share with them. Rows of runs and memories are counted, never
those of turns or chunks, so that it stays quick however much was said. Reads only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime

from perdure.index import weeks
from perdure.index.store import Connection
from perdure.types import Principal

_OWN = "JOIN name AS owner ON owner.id = {table}.user WHERE owner.value = ?"


@dataclass(frozen=True, slots=True)
class Month:
    """What one month brought."""

    month: str  # yyyy-mm, UTC
    n_runs: int = 0  # that were captured and began in it; those without a time, by when they were captured
    n_turns: int = 0  # of these, and of the sub-agents inside them
    n_bytes: int = 0  # that were captured in it


@dataclass(frozen=True, slots=True)
class Brought:
    """What one machine captured."""

    n_runs: int
    captured_at: datetime  # the newest


@dataclass(frozen=True, slots=True)
class Growth:
    """By month and by week."""

    months: list[Month]
    memories: dict[date, int]  # noted in the week of this Monday


def by_month(index: Connection, principal: Principal) -> list[Month]:
    """Every month in which anything began or was captured, oldest first."""
    own = _OWN.format(table="run")
    said = f"""SELECT strftime('%Y-%m', coalesce(started_ms, captured_ms) / 1000, 'unixepoch'), sum(thread = ''),
        sum(n_turns) FROM run {own} GROUP BY 1"""
    kept = f"""SELECT strftime('%Y-%m', captured_ms / 1000, 'unixepoch'), sum(to_offset - from_offset) FROM run {own}
        AND thread = '' GROUP BY 1"""
    begun = {month: (n_runs, n_turns) for month, n_runs, n_turns in index.rows(said, principal.user)}
    captured = dict(index.rows(kept, principal.user))
    return [
        Month(month, *begun.get(month, (0, 0)), captured.get(month, 0)) for month in sorted({*begun, *captured})
    ]  # fmt: skip


def memories_by_week(index: Connection, principal: Principal) -> dict[date, int]:
    """How many memories were noted in each week, by its Monday."""
    sql = f"SELECT {weeks.sql('recorded_ms')}, count(*) FROM memory {_OWN.format(table='memory')} GROUP BY 1"
    found = index.rows(sql, principal.user)
    return {date.fromisoformat(at): n for at, n in found}


def by_machine(index: Connection, principal: Principal) -> dict[str, Brought]:
    """What each machine of the principal's captured, by its name."""
    sql = f"""SELECT machine.value, count(*), max(captured_ms) FROM run JOIN name AS machine ON machine.id = run.machine
        {_OWN.format(table="run")} AND thread = '' GROUP BY 1"""
    found = index.rows(sql, principal.user)
    return {name: Brought(n, datetime.fromtimestamp(at_ms / 1000, UTC)) for name, n, at_ms in found}
