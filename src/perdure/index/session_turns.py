"""Read turns of sessions: prompts and their answers, quotes, and the messages that are still to be mined.

A prompt is found by the session and the time of the injection beside it. A turn that stands in several
transcripts counts once here, as everywhere in the index. Summaries of compactions and abandoned
branches are not mined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, NamedTuple

from msgspec import Struct

from perdure.formats.prompt_text import strip_wrappers
from perdure.index import visibility
from perdure.index.encoding import OWN_WRITE, from_ms, to_ms
from perdure.index.store import IndexConnection
from perdure.types import Live, Memory, Origin, Principal

MAX_TIME_GAP = timedelta(seconds=60)  # greatest distance between the time of a prompt and that of its injection
MAX_ANSWER_TIME = timedelta(days=1)  # of an answer
MAX_OWN_WRITES = 60  # turns in which a session wrote into Perdure
_MAX_ANSWER_TURNS = 500  # of an answer
_MAX_QUOTED_CHUNKS = 40  # of a quoted turn
_MIN_TASK_CHARS = 1  # of the text of a sub-agent's task


class PromptExchange(Struct, frozen=True):
    """A prompt and the answer to it."""

    prompt: str
    answer: str  # the agent's words, then the input of its calls; "" before the agent answers
    ended: bool  # the next prompt has come
    last_at: datetime | None  # time of the last turn of the answer


class QuotedTurn(Struct, frozen=True):
    """One turn, to be quoted."""

    turn_id: str
    role: str
    author: str
    at: datetime | None
    runtime: str
    machine: str
    said: str  # masked; cut off when it is very long


class _SessionTurn(Struct, frozen=True):
    number: int
    role: str
    author: str
    stated_ms: int


def find_exchange(
    index: IndexConnection, user: str, runtime: str, session: str, moment: datetime
) -> PromptExchange | None:
    """Return the prompt of a session at a moment and its answer; None when there was no prompt then."""
    with index.begin_read():
        turns = _list_session_turns(index, user, runtime, session, moment)
        prompts = [
            turn
            for turn in turns
            if turn.role == "user"
            and abs(turn.stated_ms - _to_known_ms(moment)) <= MAX_TIME_GAP // timedelta(milliseconds=1)
            and is_prompt(turn.author, "\n".join(_list_texts(index, [turn.number], "text")))
        ]
        if not prompts:
            return None
        prompt = min(
            prompts, key=lambda turn: (turn.author != "person", abs(turn.stated_ms - _to_known_ms(moment)), turn.number)
        )
        later_turns = turns[turns.index(prompt) + 1 :]
        answer_turns = list(takewhile(lambda turn: turn.author != "person", later_turns))
        agent_turns = [turn.number for turn in answer_turns if turn.role == "assistant"]
        return PromptExchange(
            "\n".join(_list_texts(index, [prompt.number], "text")),
            "\n".join([*_list_texts(index, agent_turns, "text"), *_list_texts(index, agent_turns, "call")]),
            len(answer_turns) < len(later_turns),
            from_ms(answer_turns[-1].stated_ms) if answer_turns else None,
        )


class OwnWrite(NamedTuple):
    """The calls of one turn that write into Perdure."""

    text: str
    stated_at: datetime | None


def list_own_writes(index: IndexConnection, user: str, live: Live) -> list[OwnWrite]:
    """Return the calls by which a session wrote into Perdure since its context was last emptied, newest first.

    At most MAX_OWN_WRITES turns: they are compared with memories at every message.
    """
    query = """SELECT group_concat(text, char(10)), min(stated_ms) FROM (
          SELECT chunk.turn AS turn, text, chunk.stated_ms AS stated_ms
          FROM facet JOIN turn_facet ON facet = facet.id JOIN chunk USING (turn)
            JOIN chunk_text ON chunk_text.id = chunk.id
          WHERE facet.kind = ? AND facet.value = ? AND chunk.user = ? AND chunk.conversation = ? AND chunk.kind = ?
            AND coalesce(chunk.stated_ms, ?) >= ? ORDER BY chunk.turn, chunk.n)
        GROUP BY turn ORDER BY turn DESC LIMIT ?"""
    names = (("user", user), ("conversation", live.conversation), ("kind", "result"))
    since_ms = 0 if live.since_at is None else to_ms(live.since_at)
    values = (*OWN_WRITE, *(index.find_name(*name) for name in names), since_ms, since_ms, MAX_OWN_WRITES)
    return [OwnWrite(calls, from_ms(stated_ms)) for calls, stated_ms in index.select(query, *values)]


def find_last_time(index: IndexConnection, user: str, conversation: str) -> datetime | None:
    """Return when the newest indexed turn of a conversation was said; None if there is none."""
    query = "SELECT max(ended_ms) FROM run WHERE conversation = ? AND user = ?"
    numbers = (index.find_name("conversation", conversation), index.find_name("user", user))
    return from_ms(index.select(query, *numbers)[0][0])


class PromptTurn(Struct, frozen=True):
    """A message of a person in a session, or the task of a sub-agent."""

    turn_id: str
    at: datetime
    text: str  # its beginning, masked
    project: str | None
    is_typed: bool = True  # a person wrote it


def list_prompts(
    index: IndexConnection, user: str, runtime: str, session: str, *, since_at: datetime, until_at: datetime
) -> list[PromptTurn]:
    """Return the prompts of a session between two moments, in order; only runs with anything from then are
    read.
    """
    query = """SELECT turn_id, stated_ms, nullif(project.value, ''), author,
          (SELECT text FROM chunk JOIN chunk_text USING (id)
            WHERE chunk.turn = turn.id AND chunk.kind = ? ORDER BY n LIMIT 1)
        FROM run JOIN turn ON turn.run = run.id JOIN name AS project ON project.id = run.project
        WHERE run.user = ? AND run.runtime = ? AND run.session = ? AND run.thread = ''
          AND run.started_ms <= ? AND run.ended_ms >= ? AND role = 'user' AND NOT is_summary
          AND stated_ms BETWEEN ? AND ? ORDER BY generation, offset"""
    session_key = (
        index.find_name("kind", "text"),
        index.find_name("user", user),
        index.find_name("runtime", runtime),
        session,
    )
    since, until = _to_known_ms(since_at), _to_known_ms(until_at)
    rows = index.select(query, *session_key, until, since, since, until)
    return [
        PromptTurn(turn_id, datetime.fromtimestamp(stated_ms / 1000, UTC), text or "", project, author == "person")
        for turn_id, stated_ms, project, author, text in rows
        if is_prompt(author, text or "")
    ]


def is_prompt(author: str, text: str) -> bool:
    """Return True for a message of a person and for the task of a sub-agent, False for a notice of a program."""
    return author == "person" or bool(strip_wrappers(text, _MIN_TASK_CHARS))


def find_nearest_prompt(prompts: Sequence[PromptTurn], moment: datetime) -> PromptTurn | None:
    """Return the prompt that belongs to an injection at a moment; None when there is no prompt near it."""
    near_prompts = [prompt for prompt in prompts if abs(prompt.at - moment) <= MAX_TIME_GAP]
    return min(near_prompts, key=lambda prompt: (not prompt.is_typed, abs(prompt.at - moment)), default=None)


def list_turn_chunks(index: IndexConnection, user: str, turn_id: str) -> list[str]:
    """Return the texts of the chunks of one turn; none when this user has no such turn."""
    query = """SELECT text FROM chunk_text JOIN chunk USING (id) JOIN turn ON turn.id = chunk.turn
        WHERE turn.turn_id = ? AND chunk.user = ? ORDER BY chunk.n"""
    return [text for (text,) in index.select(query, turn_id, index.find_name("user", user))]


def quote_turn(index: IndexConnection, principal: Principal, turn_id: str) -> QuotedTurn | None:
    """Return one turn with its author, time and origin; None when there is none that may be read."""
    query = f"""SELECT turn.id, turn.role, turn.author, turn.stated_ms, runtime.value, machine.value FROM turn
        JOIN run ON run.id = turn.run JOIN name AS runtime ON runtime.id = run.runtime
        JOIN name AS machine ON machine.id = run.machine
        WHERE turn.turn_id = ? AND {visibility.get_read_scope(index, principal).build_run_test()}"""
    with index.begin_read():
        for number, role, author, stated_ms, runtime, machine in index.select(query, turn_id):
            chunks_query = """SELECT text FROM chunk_text JOIN chunk USING (id) WHERE turn = ? ORDER BY n LIMIT ?"""
            quoted_text = "\n".join(text for (text,) in index.select(chunks_query, number, _MAX_QUOTED_CHUNKS))
            return QuotedTurn(turn_id, role, author, from_ms(stated_ms), runtime, machine, quoted_text)
    return None


def _list_session_turns(
    index: IndexConnection, user: str, runtime: str, session: str, moment: datetime
) -> list[_SessionTurn]:
    """Return the turns of a session from shortly before a moment on, in order."""
    query = """SELECT turn.id, role, author, stated_ms FROM turn JOIN run ON run.id = turn.run
        WHERE run.user = ? AND run.runtime = ? AND run.session = ? AND run.thread = '' AND NOT is_summary
          AND stated_ms BETWEEN ? AND ? ORDER BY generation, offset LIMIT ?"""
    session_key = index.find_name("user", user), index.find_name("runtime", runtime), session
    return [
        _SessionTurn(*row)
        for row in index.select(
            query,
            *session_key,
            _to_known_ms(moment - MAX_TIME_GAP),
            _to_known_ms(moment + MAX_ANSWER_TIME),
            _MAX_ANSWER_TURNS,
        )
    ]


def _list_texts(index: IndexConnection, turns: Sequence[int], kind: str) -> list[str]:
    query = """SELECT text FROM chunk_text JOIN chunk USING (id) WHERE turn = ? AND kind = ? ORDER BY n"""
    number = index.find_name("kind", kind)
    return [text for turn in turns for (text,) in index.select(query, turn, number)]


def _to_known_ms(moment: datetime) -> int:
    known_ms = to_ms(moment)
    assert known_ms is not None
    return known_ms


MINING_TAG = "memory-mining"  # of sessions that a miner itself ran

_SOURCE_NAME = """runtime.value || char(9) || run.session || char(9) || run.generation
  || CASE WHEN run.thread = '' THEN '' ELSE char(9) || run.thread END"""
_IS_MESSAGE = "turn.said AND NOT turn.is_summary AND NOT turn.abandoned"
_IS_UNMINED = """coalesce((SELECT to_offset FROM mined WHERE mined.user = run.user AND mined.source = {source}
  AND from_offset <= content_offset ORDER BY from_offset DESC LIMIT 1), -1) <= content_offset"""


class UnminedSource(NamedTuple):
    """A source with messages left to mine: one session, or one sub-agent's stream in it."""

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

    def can_know(self, memory: Memory) -> bool:
        """Return True if a memory is current and belongs to the agent and project of this source."""
        return memory.is_current and memory.agent == self.agent and memory.project in (None, self.project)


class SourceTurn(NamedTuple):
    """One turn of a source, and where its bytes are."""

    run_id: str  # the captured run
    offset: int
    author: str  # person, machine, agent, tool
    is_message: bool  # True for a message that may be mined
    stated_at: datetime | None


def list_unmined_sources(index: IndexConnection, user: str) -> list[UnminedSource]:
    """Return an owner's sources with messages left to mine; those that began first come first."""
    number = index.find_name("user", user)
    query = f"""SELECT {_SOURCE_NAME} AS source, max(runtime.value), max(run.session), max(run.generation),
          max(run.thread), max(agent.value), max(conversation.value), nullif(max(project.value), ''), max(run.cwd),
          max(run.parent_session),
          max(CASE WHEN run.thread <> '' OR (run.parent_session IS NOT NULL AND NOT run.fork) THEN 1 ELSE 0 END),
          count(*)
        FROM turn JOIN run ON run.id = turn.content_run JOIN name AS runtime ON runtime.id = run.runtime
          JOIN name AS conversation ON conversation.id = run.conversation
          JOIN name AS agent ON agent.id = run.agent JOIN name AS project ON project.id = run.project
        WHERE run.user = ? AND {_IS_MESSAGE} AND {_IS_UNMINED.format(source=_SOURCE_NAME)}
        GROUP BY 1 ORDER BY min(coalesce(turn.stated_ms, run.captured_ms)), 1"""
    rows = index.select(query, number) if number is not None else []
    return [UnminedSource._make((*row[:10], bool(row[10]), row[11])) for row in rows]


def list_turns_of_source(index: IndexConnection, user: str, source: UnminedSource) -> list[SourceTurn]:
    """Return every turn of a source, in the order of its bytes."""
    query = f"""SELECT run.captured_in, content_offset, turn.author, {_IS_MESSAGE}, turn.stated_ms
        FROM turn JOIN run ON run.id = turn.content_run
        WHERE run.user = ? AND run.runtime = ? AND run.session = ? AND run.generation = ? AND run.thread = ?
        ORDER BY content_offset"""
    name_numbers = index.find_name("user", user), index.find_name("runtime", source.runtime)
    rows = index.select(query, *name_numbers, source.session, source.generation, source.thread)
    return [SourceTurn(row[0], row[1], row[2], bool(row[3]), from_ms(row[4])) for row in rows]


def list_message_offsets(index: IndexConnection, run_id: str) -> set[int]:
    """Return the offsets of the messages that this captured run holds and no other run does, without inline
    sidechains.
    """
    query = f"""SELECT content_offset FROM run JOIN turn ON turn.content_run = run.id
        WHERE run.captured_in = ? AND run.thread = '' AND {_IS_MESSAGE}"""
    return {offset for (offset,) in index.select(query, run_id)}


_OWN_SESSION = """run.user = ? AND run.project = ? AND run.agent = ? AND run.thread = ''
  AND (run.parent_session IS NULL OR run.fork) AND NOT EXISTS (SELECT 1 FROM run_tag JOIN name ON name.id = run_tag.tag
    WHERE run_tag.run = run.id AND name.value = ?)"""  # no sub-agent and no miner
_MAX_RECENT_PROMPTS = 20  # messages at each end of a conversation that are read


class RecentConversation(NamedTuple):
    """A conversation of one project, with the messages at its two ends."""

    origin: Origin
    last_at: datetime  # of its last turn
    first_prompts: tuple[str, ...]  # of the person, oldest first; their beginnings, masked
    last_prompts: tuple[str, ...]  # newest first
    last_answer: str  # the beginning of the agent's last words, masked

    @property
    def runtime(self) -> str:
        """The client."""
        return self.origin.runtime


def iter_recent_conversations(
    index: IndexConnection, user: str, agent: str, project: str | None, since_at: datetime
) -> Iterator[RecentConversation]:
    """Yield the conversations of a project with a turn since a moment, newest first.

    Only runs of this project count: a conversation that went on elsewhere shows its part here alone.
    """
    scope = (
        index.find_name("user", user),
        index.find_name("project", project or ""),
        index.find_name("agent", agent),
        MINING_TAG,
    )
    query = f"""SELECT number, conversation, runtime, session, parent_session, cwd, last_ms FROM (
          SELECT run.conversation AS number, conversation.value AS conversation, runtime.value AS runtime, run.session,
            run.parent_session, coalesce(run.cwd, ?) AS cwd, coalesce(run.ended_ms, run.captured_ms) AS last_ms,
            row_number() OVER (PARTITION BY run.conversation
              ORDER BY coalesce(run.ended_ms, run.captured_ms) DESC, run.id) AS place
          FROM run JOIN name AS runtime ON runtime.id = run.runtime
            JOIN name AS conversation ON conversation.id = run.conversation
          WHERE {_OWN_SESSION}) AS numbered
        WHERE place = 1 AND last_ms >= ? ORDER BY last_ms DESC"""
    for number, conversation, runtime, session, parent_session, cwd, last_ms in index.select(
        query, project, *scope, to_ms(since_at)
    ):
        origin = Origin(runtime, session, conversation, parent_session, cwd)
        last_at = datetime.fromtimestamp(last_ms / 1000, UTC)
        first_prompts = _list_ends(index, scope, number, "person", "ASC")
        last_prompts = _list_ends(index, scope, number, "person", "DESC")
        answers = _list_ends(index, scope, number, "agent", "DESC")
        yield RecentConversation(origin, last_at, first_prompts, last_prompts, next(iter(answers), ""))


def list_projects(index: IndexConnection, user: str, since_at: datetime) -> list[str]:
    """Return the projects in which a user's runs have a turn since a moment, by name; "" for none."""
    query = """SELECT DISTINCT project.value FROM run JOIN name AS project ON project.id = run.project
      WHERE run.user = ? AND coalesce(run.ended_ms, run.captured_ms) >= ? ORDER BY 1"""
    return [project for (project,) in index.select(query, index.find_name("user", user), to_ms(since_at))]


class ConversationTurn(NamedTuple):
    """One turn of a conversation, with the place of its bytes."""

    turn_id: str
    run_id: str  # the captured run
    offset: int
    is_known: bool  # a memory rests on it, or the miner has read it


def list_conversation_turns(index: IndexConnection, user: str, conversation: str) -> list[ConversationTurn]:
    """Return an owner's turns of a conversation in their order: no sub-agents, summaries or abandoned branches."""
    query = f"""SELECT turn.turn_id, run.captured_in, turn.content_offset,
          EXISTS (SELECT 1 FROM memory_source AS source WHERE source.run_id = run.captured_in
            AND turn.content_offset >= source.from_offset AND turn.content_offset < source.to_offset)
          OR NOT ({_IS_UNMINED.format(source=_SOURCE_NAME)})
        FROM turn JOIN run ON run.id = turn.content_run JOIN name AS runtime ON runtime.id = run.runtime
        WHERE run.user = ? AND run.conversation = ? AND run.thread = ''
          AND (run.parent_session IS NULL OR run.fork) AND NOT turn.is_summary AND NOT turn.abandoned
          AND NOT EXISTS (SELECT 1 FROM run_tag JOIN name ON name.id = run_tag.tag
            WHERE run_tag.run = run.id AND name.value = ?)
        ORDER BY run.generation, run.session, turn.content_offset"""
    scope = index.find_name("user", user), index.find_name("conversation", conversation)
    rows = index.select(query, *scope, MINING_TAG) if None not in scope else []
    return [ConversationTurn._make((*row[:3], bool(row[3]))) for row in rows]


def _list_ends(
    index: IndexConnection, scope: tuple[Any, ...], conversation: int, author: str, order: str
) -> tuple[str, ...]:
    """Return the beginnings of the first (ASC) or last (DESC) messages of an author in a conversation."""
    query = f"""SELECT (SELECT text FROM chunk JOIN chunk_text USING (id)
            WHERE chunk.turn = turn.id AND chunk.kind = ? ORDER BY n LIMIT 1) AS beginning
        FROM run JOIN turn ON turn.run = run.id
        WHERE {_OWN_SESSION} AND run.conversation = ? AND turn.author = ? AND {_IS_MESSAGE}
          AND EXISTS (SELECT 1 FROM chunk WHERE chunk.turn = turn.id AND chunk.kind = ?)
        ORDER BY coalesce(turn.stated_ms, run.captured_ms) {order}, generation {order}, offset {order} LIMIT ?"""
    text_kind = index.find_name("kind", "text")
    rows = index.select(query, text_kind, *scope, conversation, author, text_kind, _MAX_RECENT_PROMPTS)
    return tuple(text for (text,) in rows)


def find_last_times(index: IndexConnection, user: str) -> dict[str, datetime]:
    """Return conversation -> time of its last turn, or of its last capture when no time is known."""
    query = """SELECT conversation.value, max(coalesce(run.ended_ms, run.captured_ms)) FROM run
        JOIN name AS conversation ON conversation.id = run.conversation WHERE run.user = ? GROUP BY 1"""
    rows = index.select(query, index.find_name("user", user))
    return {conversation: last_at for conversation, stated_ms in rows if (last_at := from_ms(stated_ms)) is not None}


def find_tagged_conversations(index: IndexConnection, user: str, tag: str) -> set[str]:
    """Return the conversations in which any run has a tag."""
    query = """SELECT DISTINCT conversation.value FROM run_tag JOIN run ON run.id = run_tag.run
        JOIN name AS conversation ON conversation.id = run.conversation WHERE tag = ? AND run.user = ?"""
    return {
        conversation
        for (conversation,) in index.select(query, index.find_name("tag", tag), index.find_name("user", user))
    }
