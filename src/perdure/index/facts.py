"""Read the facts of action: commands that failed or worked, files that were missing, read or changed, decisions and
choices.

Rows of `fact` belong to a turn and go with it. A reader sees the facts of the project at hand, in runs that the
principal may read, and none of the session that asks: its model has read them, unless its context was emptied since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from perdure.formats.action_facts import build_call_key, get_call_id, join_call
from perdure.index import visibility
from perdure.index.encoding import from_ms, to_ms
from perdure.index.projection import hash_fact_key
from perdure.index.store import IndexConnection
from perdure.types import Live, Principal

_MAX_PER_KEY = 48  # newest facts of one key that are read
_FIELDS = "fact.id, fact.kind, fact.text, fact.detail, turn_id, author, fact.thread, fact.place, fact.n, stated_ms"
_COLUMNS = f"""{_FIELDS}
  FROM {{table}} JOIN turn ON turn.id = fact.turn JOIN run ON run.id = turn.content_run"""
_SELECT_BY_KEY = f"""SELECT {_COLUMNS.format(table="fact_key CROSS JOIN fact ON fact.id = fact_key.fact")}
  WHERE fact_key.key = ? AND fact_key.project = ? AND NOT abandoned
    AND (run.session <> ? OR coalesce(stated_ms, 0) < ?) AND {{run_test}} ORDER BY fact_key.fact DESC LIMIT ?"""
_SELECT_AFTER = f"""SELECT {_COLUMNS.format(table="fact")}
  WHERE fact.thread = ? AND (fact.place, fact.n) > (?, ?) AND NOT abandoned AND {{run_test}}
  ORDER BY fact.place, fact.n LIMIT ?"""

_SELECT_RETURN = """SELECT fact.text, fact.detail FROM fact_key JOIN fact ON fact.id = fact_key.fact
  WHERE fact_key.key = ? AND fact_key.project = ? AND fact.thread = ? AND fact.kind = 'returned' LIMIT 1"""


@dataclass(frozen=True, slots=True)
class FactRecord:
    """A fact of action in the index."""

    number: int
    kind: str  # failed, worked, missing, opened, edited, decided or chose; "called" only inside the index
    text: str  # the command, the path of a file, or the words of the decision or choice; masked
    detail: str
    turn_id: str
    author: str  # of its turn
    thread: int
    place: int  # order in its thread, with n
    n: int
    stated_at: datetime | None
    key: str = ""  # under which it was found

    @property
    def source(self) -> tuple[str, int]:
        """Its turn, and its number in it."""
        return self.turn_id, self.n


class IndexedFacts:
    """The facts that a principal may read of one project, for one session."""

    def __init__(self, index: IndexConnection, principal: Principal, project: str | None, *, session: Live) -> None:
        """session: facts of its own are left out, but for those from before its context was emptied."""
        self._index = index
        self._project = index.find_name("project", project or "")
        self._run_test = visibility.get_read_scope(index, principal).build_run_test()
        self._session = (session.conversation, to_ms(session.since_at) or 0)

    def find(self, keys: Sequence[str]) -> list[FactRecord]:
        """Return the facts under these keys, newest first; each once, with the first of the keys."""
        if self._project is None:
            return []
        records: dict[int, FactRecord] = {}
        query = _SELECT_BY_KEY.format(run_test=self._run_test)
        for key in keys:
            values = (hash_fact_key(key), self._project, *self._session, _MAX_PER_KEY)
            for row in self._index.select(query, *values):
                if row[0] not in records and (record := self._join(_from_row(row, key))):
                    records[row[0]] = record
        return sorted(records.values(), key=_get_order, reverse=True)

    def list_after(self, record: FactRecord, limit: int) -> list[FactRecord]:
        """Return the facts that follow one in its thread, in order."""
        query = _SELECT_AFTER.format(run_test=self._run_test)
        rows = self._index.select(query, record.thread, record.place, record.n, limit)
        return [joined for row in rows if (joined := self._join(_from_row(row, "")))]

    def _join(self, record: FactRecord) -> FactRecord | None:
        """Return a record as it is; a call whose result lies in another run with what that result says, or None."""
        if record.kind == "returned":
            return None
        if record.kind != "called":
            return record
        key = hash_fact_key(build_call_key(get_call_id(record.detail)))
        for status, error in self._index.select(_SELECT_RETURN, key, self._project, record.thread):
            draft = join_call(record.text, record.detail, has_failed=status == "failed", error=error)
            if draft and (not record.key or record.key in draft.keys):
                return replace(record, kind=draft.kind, text=draft.text, detail=draft.detail)
        return None


class FailedCommand(NamedTuple):
    """A command that failed in a captured session."""

    command: str  # masked, as the line
    line: str  # of its output, the one that says most
    project: str  # "" without one
    session: str
    at: datetime


def list_failures(index: IndexConnection, principal: Principal, since_at: datetime) -> list[FailedCommand]:
    """Return the commands that failed since a moment, in the runs that a principal may read, oldest first."""
    run_test = visibility.get_read_scope(index, principal).build_run_test()
    query = f"""SELECT fact.text, fact.detail, coalesce(project.value, ''), run.session, stated_ms
      FROM turn CROSS JOIN fact ON fact.turn = turn.id JOIN run ON run.id = turn.content_run
        LEFT JOIN name AS project ON project.id = run.project
      WHERE turn.stated_ms >= ? AND fact.kind = 'failed' AND NOT abandoned AND {run_test} ORDER BY stated_ms, fact.id"""
    return [
        FailedCommand(command, line, project, session, datetime.fromtimestamp(ms / 1000, UTC))
        for command, line, project, session, ms in index.select(query, to_ms(since_at))
    ]


class RepeatedFailure(NamedTuple):
    """A command that failed as another session's command had failed before."""

    record: FactRecord  # the failure
    earlier: FactRecord  # the newest earlier one, in another session
    project: str  # "" without one
    runtime: str
    session: str


_SELECT_FAILED = f"""SELECT coalesce(project.value, ''), runtime.value, run.session, {_FIELDS}
  FROM turn CROSS JOIN fact ON fact.turn = turn.id JOIN run ON run.id = turn.content_run
    LEFT JOIN name AS project ON project.id = run.project JOIN name AS runtime ON runtime.id = run.runtime
  WHERE stated_ms BETWEEN ? AND ? AND fact.kind = 'failed' AND NOT abandoned AND {{run_test}}
  ORDER BY stated_ms, fact.id"""
_SELECT_EARLIER = f"""SELECT {_FIELDS}
  FROM fact_key AS own JOIN fact_key ON fact_key.key = own.key AND fact_key.project = own.project
    JOIN fact ON fact.id = fact_key.fact JOIN turn ON turn.id = fact.turn JOIN run ON run.id = turn.content_run
  WHERE own.fact = ? AND fact.kind = 'failed' AND NOT abandoned AND run.session <> ? AND stated_ms < ? AND {{run_test}}
  ORDER BY stated_ms DESC LIMIT 1"""


def list_repeated_failures(
    index: IndexConnection, principal: Principal, since_at: datetime, until_at: datetime
) -> tuple[int, list[RepeatedFailure]]:
    """Return (commands that failed between two moments, those that had failed so before in another session)."""
    run_test = visibility.get_read_scope(index, principal).build_run_test()
    query = _SELECT_FAILED.format(run_test=run_test)
    rows = index.select(query, to_ms(since_at), to_ms(until_at))
    repeated = []
    for project, runtime, session, *fact_row in rows:
        record = _from_row(tuple(fact_row), "")
        earlier = index.select(_SELECT_EARLIER.format(run_test=run_test), record.number, session, fact_row[-1])
        repeated += [RepeatedFailure(record, _from_row(row, ""), project, runtime, session) for row in earlier]
    return len(rows), repeated


class MemorySearch(NamedTuple):
    """A call by which an agent looked something up in Perdure by itself."""

    turn_id: str  # of the call; of a command, of its result
    at: datetime
    runtime: str
    session: str
    is_command: bool  # `perdure search` in a shell; otherwise a tool of MCP


_LOOKUPS = """SELECT turn.turn_id, turn.stated_ms, runtime.value, run.session, {is_command} FROM {found}
    JOIN run ON run.id = turn.content_run JOIN name AS runtime ON runtime.id = run.runtime
  WHERE run.user = ? AND NOT turn.abandoned AND turn.stated_ms BETWEEN ? AND ?"""
_TOOL_LOOKUPS = _LOOKUPS.format(
    found="facet JOIN turn_facet ON facet = facet.id JOIN turn ON turn.id = turn_facet.turn", is_command=0
)
_COMMAND_LOOKUPS = _LOOKUPS.format(
    found="fact_key JOIN fact ON fact.id = fact_key.fact JOIN turn ON turn.id = fact.turn", is_command=1
)


def list_memory_searches(
    index: IndexConnection, user: str, since_at: datetime, until_at: datetime
) -> list[MemorySearch]:
    """Return the calls of agents that searched Perdure between two moments, oldest first."""
    values = (index.find_name("user", user), to_ms(since_at), to_ms(until_at))
    is_lookup = "instr(facet.value, 'perdure') > 0 AND substr(facet.value, length(facet.value) - 5) IN (?, ?)"
    query = f"{_TOOL_LOOKUPS} AND facet.kind = 'tool' AND {is_lookup}"
    tools = index.select(query, *values, "recall", "search")
    is_search = "instr(fact.text, 'perdure search ') > 0 OR instr(fact.text, 'perdure recall ') > 0"
    program = hash_fact_key("program perdure")
    query = f"{_COMMAND_LOOKUPS} AND fact_key.key = ? AND fact.kind = 'worked' AND ({is_search})"
    commands = index.select(query, *values, program)
    return [
        MemorySearch(turn_id, datetime.fromtimestamp(stated_ms / 1000, UTC), runtime, session, bool(is_command))
        for turn_id, stated_ms, runtime, session, is_command in sorted({*tools, *commands}, key=lambda row: row[1])
    ]


def list_of_turns(index: IndexConnection, principal: Principal, turn_ids: Iterable[str]) -> list[FactRecord]:
    """Return the facts that these turns state, turn by turn; none of a turn that was forgotten or may not be read."""
    run_test = visibility.get_read_scope(index, principal).build_run_test()
    query = f"SELECT {_COLUMNS.format(table='fact')} WHERE turn_id = ? AND {run_test} ORDER BY fact.n"
    return [_from_row(row, "") for turn_id in turn_ids for row in index.select(query, turn_id)]


def _get_order(record: FactRecord) -> tuple[datetime, str, int]:
    return record.stated_at or datetime.min.replace(tzinfo=UTC), record.turn_id, record.n


def _from_row(row: tuple[Any, ...], key: str) -> FactRecord:
    number, kind, text, detail, turn_id, author, thread, place, n, stated_ms = row
    return FactRecord(number, kind, text, detail, turn_id, author, thread, place, n, from_ms(stated_ms), key)
