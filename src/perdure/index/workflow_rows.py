"""The turns of workflows by agent, and the topics that are made of them: rows of the index, and their reading.

A row of `workflow_turn` is written with its turn and leaves with it. A topic is made by `workflow` and holds words of
its turns, so all topics of an agent leave when one of their turns does, and are made again of the turns that are left.
When a topic was read, and what a model said of it, cannot be computed: it is in the journal and becomes `topic_mark`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from perdure.identity import find_workflow_agent
from perdure.index.encoding import to_ms
from perdure.index.store import IndexConnection
from perdure.types import Source

if TYPE_CHECKING:
    from perdure.index.memory_replay import ReplayEvent

TOPICS_TYPE = "topics"  # event type: topics that were read ("read"), or what a model said of a turn ("judged")
AGENT_KIND = "workflow agent"  # kind of a name
_MAX_OVERLAP_CHARS = 400  # of two pieces of one text
_CALL_END = " {}"  # behind the name of an action, which has no arguments


class StoredTurn(NamedTuple):
    """A turn of a workflow, with secrets masked."""

    number: int
    turn_id: str
    at_ms: int
    workflow: str
    thought: str
    action: str
    result: str

    @property
    def text(self) -> str:
        """What the agent thought, did and got, as one text."""
        outcome = f"{self.action}: {self.result}" if self.action and self.result else self.action or self.result
        return "\n".join(filter(None, (self.thought, outcome)))


class PlacedTurn(NamedTuple):
    """A turn of an agent in the order of time."""

    at_ms: int
    offset: int
    turn_id: str
    number: int
    topic: int | None


class TopicMark(NamedTuple):
    """What the journal says of a topic."""

    topic: str
    turn: str  # that was judged; "" for a reading
    at_ms: int
    is_same: bool  # as judged


class StoredTopic(NamedTuple):
    """A topic as it is stored."""

    number: int
    first: str  # its first turn, which names it
    body: bytes


# writing ------------------------------------------------------------------------------------------------------


def add_turn(index: IndexConnection, turn: int, source: Source, *, role: str, at_ms: int, offset: int) -> None:
    """Write whose turn of a workflow this is. The result of an action is a turn, too, and has no row of its own."""
    agent_name, user = find_workflow_agent(source.session), index.add_name("user", source.user)
    facet = index.add_facet(AGENT_KIND, agent_name, user)
    index.db.execute("INSERT OR IGNORE INTO turn_facet VALUES (?, ?)", (facet, turn))
    if role == "assistant":
        agent = index.add_name(AGENT_KIND, agent_name)
        index.hold_names(user, (agent,))
        values = (turn, user, agent, at_ms, offset)
        index.db.execute("INSERT INTO workflow_turn(turn, user, agent, at_ms, offset) VALUES (?, ?, ?, ?, ?)", values)


def delete_turn(index: IndexConnection, turn: int) -> None:
    """Delete the row of a turn, and the topics of its agent: their words may be its words."""
    for user, agent, topic, embedded in index.select(
        "SELECT user, agent, topic, embedded FROM workflow_turn WHERE turn = ?", turn
    ):
        if topic is not None:
            clear_topics(index, user, agent)
        if embedded is not None:
            index.record_gone([embedded])
        index.db.execute("DELETE FROM workflow_turn WHERE turn = ?", (turn,))


def clear_topics(index: IndexConnection, user: int, agent: int) -> None:
    """Delete all topics of an agent."""
    of_agent = "(SELECT id FROM topic WHERE user = ? AND agent = ?)"
    index.db.execute(f"DELETE FROM relation WHERE topic IN {of_agent}", (user, agent))
    index.db.execute(f"UPDATE workflow_turn SET topic = NULL WHERE topic IN {of_agent}", (user, agent))
    index.db.execute("DELETE FROM topic WHERE user = ? AND agent = ?", (user, agent))


def write_topic(index: IndexConnection, user: int, agent: int, *, first: str, ended_ms: int, body: bytes) -> int:
    """Write a topic, or its new state. Return its number."""
    index.db.execute(
        """INSERT INTO topic(user, agent, first, ended_ms, body) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT(user, first) DO UPDATE SET ended_ms = excluded.ended_ms, body = excluded.body""",
        (user, agent, first, ended_ms, body),
    )
    return int(index.select("SELECT id FROM topic WHERE user = ? AND first = ?", user, first)[0][0])


def put_into_topic(index: IndexConnection, turn: int, topic: int, embedded: bytes | None) -> None:
    """Note in which topic a turn is. embedded: the hash of the text that was embedded for it, if one was."""
    values = (topic, embedded, turn)
    index.db.execute("UPDATE workflow_turn SET topic = ?, embedded = ? WHERE turn = ?", values)


def add_relations(index: IndexConnection, topic: int, turn: int, relations: Iterable[tuple[str, str, str]]) -> None:
    """Write what a turn says of things; what is there already changes nothing."""
    rows = [(topic, turn, *relation) for relation in relations]
    index.db.executemany("INSERT OR IGNORE INTO relation VALUES (?, ?, ?, ?, ?)", rows)


# reading ------------------------------------------------------------------------------------------------------


def list_agents(index: IndexConnection, user: int) -> list[tuple[int, str]]:
    """Return (number, name) of each agent that has turns in workflows."""
    query = (
        """SELECT DISTINCT agent, value FROM workflow_turn JOIN name ON name.id = agent WHERE user = ? ORDER BY value"""
    )
    return index.select(query, user)


def list_open(index: IndexConnection, user: int, agent: int) -> list[PlacedTurn]:
    """Return the turns that are in no topic yet, in the order of time."""
    rows = index.select(
        f"{_SELECT_PLACED} AND topic IS NULL ORDER BY at_ms, workflow_turn.offset, turn_id", user, agent
    )
    return [PlacedTurn._make(row) for row in rows]


def find_newest_in_topic(index: IndexConnection, user: int, agent: int) -> PlacedTurn | None:
    """Return the newest turn that is in a topic."""
    order = "ORDER BY at_ms DESC, workflow_turn.offset DESC, turn_id DESC LIMIT 1"
    rows = index.select(f"{_SELECT_PLACED} AND topic IS NOT NULL {order}", user, agent)
    return PlacedTurn._make(rows[0]) if rows else None


_SELECT_PLACED = """SELECT at_ms, workflow_turn.offset, turn_id, workflow_turn.turn, topic
  FROM workflow_turn JOIN turn ON turn.id = workflow_turn.turn WHERE user = ? AND agent = ?"""


def list_newest(index: IndexConnection, user: int, agent: int, limit: int) -> list[int]:
    """Return the numbers of the newest turns of an agent, oldest first."""
    query = """SELECT workflow_turn.turn FROM workflow_turn JOIN turn ON turn.id = workflow_turn.turn
      WHERE user = ? AND agent = ? ORDER BY at_ms DESC, workflow_turn.offset DESC, turn_id DESC LIMIT ?"""
    return [number for (number,) in reversed(index.select(query, user, agent, limit))]


def list_of_topic(index: IndexConnection, topic: int, limit: int) -> list[int]:
    """Return the numbers of the newest turns of a topic, oldest first."""
    query = """SELECT workflow_turn.turn FROM workflow_turn JOIN turn ON turn.id = workflow_turn.turn
      WHERE topic = ? ORDER BY at_ms DESC, workflow_turn.offset DESC, turn_id DESC LIMIT ?"""
    return [number for (number,) in reversed(index.select(query, topic, limit))]


def list_topics(index: IndexConnection, user: int, agent: int, limit: int) -> list[StoredTopic]:
    """Return the topics of an agent that went on last, the newest first."""
    query = "SELECT id, first, body FROM topic WHERE user = ? AND agent = ? ORDER BY ended_ms DESC, first LIMIT ?"
    return [StoredTopic._make(row) for row in index.select(query, user, agent, limit)]


def list_marks(index: IndexConnection, user: int) -> list[TopicMark]:
    """Return what the journal says of topics, in the order of time."""
    query = "SELECT topic, turn, at_ms, same FROM topic_mark WHERE user = ? ORDER BY at_ms, topic, turn"
    return [TopicMark(topic, turn, at_ms, bool(same)) for topic, turn, at_ms, same in index.select(query, user)]


def list_relations(index: IndexConnection, topics: Sequence[int]) -> list[tuple[str, str, str, int, str]]:
    """Return (subject, verb, object, weight, newest source) of what these topics say of things, the weightiest first.

    The weight is the number of turns that say it. An entity alone has no verb and no object.
    """
    marks = ", ".join("?" * len(topics))
    query = f"""SELECT subject, verb, object, count(DISTINCT turn) AS weight, max(turn_id)
      FROM relation JOIN turn ON turn.id = relation.turn WHERE topic IN ({marks})
      GROUP BY subject, verb, object ORDER BY weight DESC, subject, verb, object"""
    return index.select(query, *topics)


def list_memory_texts(index: IndexConnection, topics: Sequence[int]) -> list[tuple[str, str]]:
    """Return (text, id of a turn) of the current memories that were made of turns of these topics, newest first."""
    marks = ", ".join("?" * len(topics))
    query = f"""SELECT memory.text, max(turn.turn_id) FROM workflow_turn JOIN turn ON turn.id = workflow_turn.turn
        JOIN run ON run.id = turn.run
        JOIN memory_source AS span ON span.run_id = run.run_id
          AND span.from_offset <= turn.offset AND span.to_offset > turn.offset
        JOIN memory ON memory.id = span.memory
      WHERE workflow_turn.topic IN ({marks}) AND memory.user = workflow_turn.user
        AND memory.superseded_by IS NULL AND NOT memory.retired
      GROUP BY memory.id ORDER BY memory.stated_ms DESC, memory.memory_id"""
    return index.select(query, *topics)


def read_turns(index: IndexConnection, numbers: Sequence[int]) -> list[StoredTurn]:
    """Return these turns with their words, in the given order; turns that are gone are left out."""
    turns: dict[int, StoredTurn] = {}
    rows = index.select_in(_SELECT_TURNS, numbers)
    words = _read_words(index, [number for row in rows for number in (row[0], row[4]) if number is not None])
    for number, turn_id, at_ms, workflow, result in rows:
        own = words.get(number, {})
        action = own.get("call", "").removesuffix(_CALL_END)
        answer = words.get(result, {}).get("result", "")
        turns[number] = StoredTurn(number, turn_id, at_ms, workflow, own.get("text", ""), action, answer)
    return [turns[number] for number in numbers if number in turns]


_SELECT_TURNS = """SELECT turn.id, turn.turn_id, workflow_turn.at_ms, name.value,
    (SELECT answer.id FROM turn AS answer WHERE answer.run = turn.run AND answer.offset > turn.offset
      AND answer.role = 'tool' ORDER BY answer.offset LIMIT 1)
  FROM workflow_turn JOIN turn ON turn.id = workflow_turn.turn JOIN run ON run.id = turn.content_run
    JOIN name ON name.id = run.conversation
  WHERE turn.id IN ({})"""


def _read_words(index: IndexConnection, numbers: Sequence[int]) -> dict[int, dict[str, str]]:
    """Return turn -> kind of its text -> the text, put together from its pieces."""
    words: dict[int, dict[str, str]] = {}
    query = """SELECT chunk.turn, name.value, text FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id
        JOIN name ON name.id = chunk.kind WHERE chunk.turn IN ({}) ORDER BY chunk.turn, n"""
    for turn, kind, text in index.select_in(query, numbers):
        kinds = words.setdefault(turn, {})
        kinds[kind] = _join(kinds[kind], text) if kind in kinds else text
    return words


def _join(first: str, second: str) -> str:
    """Return two pieces of one text, of which the second may begin with the end of the first, as one.

    >>> _join("the tide table", "table of May")
    'the tide table of May'
    """
    longest = min(len(first), len(second), _MAX_OVERLAP_CHARS)
    n_shared = next((n for n in range(longest, 0, -1) if first.endswith(second[:n])), 0)
    return first + second[n_shared:]


# marks of the journal -----------------------------------------------------------------------------------------


def clear(index: IndexConnection, user: int) -> None:
    """Delete what the journal said of an owner's topics."""
    index.db.execute("DELETE FROM topic_mark WHERE user = ?", (user,))


def write(index: IndexConnection, user: int, replay_events: Iterable[ReplayEvent]) -> None:
    """Write what these events say of topics."""
    for event in replay_events:
        if event.type == TOPICS_TYPE:
            marks: list[tuple[str, str, bool]] = [("", topic, False) for topic in event.data.get("read", ())]
            marks += event.data.get("judged", ())
            rows = [(user, topic, turn, to_ms(event.at), int(same)) for turn, topic, same in marks]
            index.db.executemany("INSERT OR IGNORE INTO topic_mark VALUES (?, ?, ?, ?, ?)", rows)
