"""What is left to mine: the sources in which people and agents said something that no event has mined yet.

A turn that stands in several transcripts is one turn here, as everywhere in the index. What a compaction summed up and
what was said on a branch that the session left is not mined.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from perdure.index.store import Connection
from perdure.index.values import instant
from perdure.types import Memory

TAG = "memory-mining"  # of sessions that are a miner's own work

_SOURCE = """runtime.value || char(9) || run.session || char(9) || run.generation
  || iif(run.thread = '', '', char(9) || run.thread)"""
_IS_SAID = "turn.said AND NOT turn.is_summary AND NOT turn.abandoned"
_LEFT = """coalesce((SELECT to_offset FROM mined WHERE mined.user = run.user AND mined.source = {source}
  AND from_offset <= content_offset ORDER BY from_offset DESC LIMIT 1), -1) <= content_offset"""


class Lode(NamedTuple):
    """A source with something left to mine: one session, or one sub-agent's stream in it."""

    source: str  # runtime, session and generation; for an inline sidechain also its thread
    runtime: str
    session: str
    generation: int
    thread: str
    agent: str
    conversation: str
    project: str | None
    cwd: str | None
    parent_session: str | None
    is_subagent: bool
    n_left: int  # messages

    def may_know(self, memory: Memory) -> bool:
        """Whether a memory is believed and concerns whoever spoke here."""
        return memory.is_current and memory.agent == self.agent and memory.project in (None, self.project)


class Place(NamedTuple):
    """One turn of a source, and where its bytes are."""

    run_id: str  # the captured run
    offset: int
    author: str  # person, machine, agent, tool
    is_said: bool  # a message that may be mined
    stated_at: datetime | None


def lodes(index: Connection, user: str) -> list[Lode]:
    """An owner's sources with something left to mine, those first that began first."""
    number = index.known("user", user)
    query = f"""SELECT {_SOURCE} AS source, runtime.value, run.session, run.generation, run.thread, max(agent.value),
          conversation.value, nullif(max(project.value), ''), max(run.cwd), max(run.parent_session),
          max(run.thread <> '' OR (run.parent_session IS NOT NULL AND NOT run.fork)), count(*)
        FROM turn JOIN run ON run.id = turn.content_run JOIN name AS runtime ON runtime.id = run.runtime
          JOIN name AS conversation ON conversation.id = run.conversation
          JOIN name AS agent ON agent.id = run.agent JOIN name AS project ON project.id = run.project
        WHERE run.user = ? AND {_IS_SAID} AND {_LEFT.format(source=_SOURCE)}
        GROUP BY 1 ORDER BY min(coalesce(turn.stated_ms, run.captured_ms)), 1"""
    rows = index.rows(query, number) if number is not None else []
    return [Lode._make((*row[:10], bool(row[10]), row[11])) for row in rows]


def places(index: Connection, user: str, lode: Lode) -> list[Place]:
    """Every turn of a source, in the order of its bytes."""
    query = f"""SELECT run.captured_in, content_offset, turn.author, {_IS_SAID}, turn.stated_ms
        FROM turn JOIN run ON run.id = turn.content_run
        WHERE run.user = ? AND run.runtime = ? AND run.session = ? AND run.generation = ? AND run.thread = ?
        ORDER BY content_offset"""
    numbers = index.known("user", user), index.known("runtime", lode.runtime)
    rows = index.rows(query, *numbers, lode.session, lode.generation, lode.thread)
    return [Place(row[0], row[1], row[2], bool(row[3]), instant(row[4])) for row in rows]


def said_in(index: Connection, run_id: str) -> set[int]:
    """The offsets of the messages that stand in a captured run and in no other, its inline sidechains left out."""
    query = f"""SELECT content_offset FROM run JOIN turn ON turn.content_run = run.id
        WHERE run.captured_in = ? AND run.thread = '' AND {_IS_SAID}"""
    return {offset for (offset,) in index.rows(query, run_id)}


def newest(index: Connection, user: str) -> dict[str, datetime]:
    """Conversation -> when something was last said in it, or captured where no time is known."""
    query = """SELECT conversation.value, max(coalesce(run.ended_ms, run.captured_ms)) FROM run
        JOIN name AS conversation ON conversation.id = run.conversation WHERE run.user = ? GROUP BY 1"""
    rows = index.rows(query, index.known("user", user))
    return {name: at for name, stated_ms in rows if (at := instant(stated_ms)) is not None}


def tagged(index: Connection, user: str, tag: str) -> set[str]:
    """The conversations of which any run has a tag."""
    query = """SELECT DISTINCT conversation.value FROM run_tag JOIN run ON run.id = run_tag.run
        JOIN name AS conversation ON conversation.id = run.conversation WHERE tag = ? AND run.user = ?"""
    return {name for (name,) in index.rows(query, index.known("tag", tag), index.known("user", user))}
