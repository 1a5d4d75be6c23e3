"""Make the topics of a home from its turns of workflows, and promote the warm ones into relations. Derived.

Any process may do it, as often as it likes: a job of the resident home does, and a reader does what is due. Turns are
embedded before the transaction; who finds that another process was faster does nothing. Failures of the embedder leave
turns unsorted until the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from perdure.errors import ConfigFault, ModelFault
from perdure.index import workflow_rows
from perdure.index.encoding import hash_embedded_text, to_ms
from perdure.index.store import IndexConnection
from perdure.index.workflow_rows import PlacedTurn
from perdure.models.chat import ChatMessage
from perdure.text import clip
from perdure.workflow import heat, topics
from perdure.workflow.relations import find_relations
from perdure.workflow.topics import Topic, TurnSubject

if TYPE_CHECKING:
    import numpy as np

    from perdure.home import Home
    from perdure.models.chat import Chat

JOB = "topics"  # the job under which the helper model is metered
_BATCH_TURNS = 200  # sorted in one transaction
_EMBEDDED_CHARS = 1_200  # of a turn: more than the default model reads
_JUDGE_CHARS = 600  # of a turn that a model judges
_JUDGE_PROMPT = """An agent's work is sorted into topics. Say whether the new step continues the topic: the same \
problem, component or goal. A step about something else that happens beside it does not."""
_JUDGE_SCHEMA = {
    "type": "object",
    "properties": {"same_topic": {"type": "boolean"}},
    "required": ["same_topic"],
    "additionalProperties": False,
}
_decode_topic = msgspec.json.Decoder(Topic).decode
_encode_topic = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class TopicResult:
    """What was sorted and promoted."""

    n_turns: int = 0
    n_topics: int = 0  # that are new or went on
    n_promoted: int = 0  # turns whose relations were written


def update_topics(
    home: Home, *, now: datetime, agent: str | None = None, stop: Callable[[], bool] = lambda: False
) -> TopicResult:
    """Sort the turns that are due into topics, and promote what is warm. agent: only this one.

    Raises ModelFault if the embedder fails, Busy, IndexFault.
    """
    index = home.connections.index_with_memories()
    user = index.find_name("user", home.user)
    result = TopicResult()
    for number, name in workflow_rows.list_agents(index, user) if user is not None else ():
        if agent is None or name == agent:
            sorter = _Sorter(home, index, user or 0, number, now)
            while sorter.sort_batch() and not stop():
                pass
            result = replace(
                result,
                n_turns=result.n_turns + sorter.n_turns,
                n_topics=result.n_topics + len(sorter.changed),
                n_promoted=result.n_promoted + sorter.promote(),
            )
    return result


def decode_topic(body: bytes) -> Topic:
    """Return a topic as it is stored."""
    return _decode_topic(body)


class _Sorter:
    """Sorts the turns of one agent."""

    def __init__(self, home: Home, index: IndexConnection, user: int, agent: int, now: datetime) -> None:
        self._home, self._index, self._user, self._agent, self._now = home, index, user, agent, now
        tag = home.connections.vectors().tag
        self._model = tag.key if tag else ""
        self._verdicts = {(mark.turn, mark.topic): mark.is_same for mark in workflow_rows.list_marks(index, user)}
        self._new_verdicts: list[tuple[str, str, bool]] = []
        self.n_turns = 0
        self.changed: set[str] = set()

    def sort_batch(self) -> bool:
        """Sort some of the turns that are due. Return True if there may be more."""
        due = self._list_due()
        if not due:
            return False
        turns = workflow_rows.read_turns(self._index, [placed.number for placed in due])
        texts = [clip(turn.text, _EMBEDDED_CHARS) or "." for turn in turns]
        vectors = self._embed(texts)
        subjects = [
            topics.read_subject(turn, vectors[n] if vectors is not None else None) for n, turn in enumerate(turns)
        ]
        known = self._read_topics()
        members = self._choose(subjects, known)
        hashes = [hash_embedded_text(text) if vectors is not None else None for text in texts]
        with self._index.begin_write():
            if self._list_due(clears=False) != due:
                return False  # another process sorts them
            self._write(members, hashes)
        if self._new_verdicts:
            event = {"judged": self._new_verdicts}
            self._home.journal().append(workflow_rows.TOPICS_TYPE, event, now=self._now)
            self._new_verdicts = []
        return True

    def _list_due(self, *, clears: bool = True) -> list[PlacedTurn]:
        """Return the turns to sort next. A turn that came late, or another model, begins all topics again."""
        open_turns = workflow_rows.list_open(self._index, self._user, self._agent)
        newest = workflow_rows.find_newest_in_topic(self._index, self._user, self._agent)
        if clears and newest and open_turns and (open_turns[0][:3] < newest[:3] or self._has_other_model()):
            with self._index.begin_write():
                workflow_rows.clear_topics(self._index, self._user, self._agent)
            open_turns = workflow_rows.list_open(self._index, self._user, self._agent)
        n_due = topics.count_due(open_turns, to_ms(self._now) or 0)
        return open_turns[: min(n_due, _BATCH_TURNS)]

    def _has_other_model(self) -> bool:
        stored = workflow_rows.list_topics(self._index, self._user, self._agent, 1)
        return bool(stored) and decode_topic(stored[0].body).model != self._model

    def _embed(self, texts: Sequence[str]) -> np.ndarray | None:
        return self._home.connections.vectors().embed_documents(texts, "ingest") if self._model else None

    def _read_topics(self) -> list[Topic]:
        rows = workflow_rows.list_topics(self._index, self._user, self._agent, topics.MAX_TOPICS)
        return [decode_topic(row.body) for row in rows]

    def _choose(self, subjects: Sequence[TurnSubject], known: list[Topic]) -> list[tuple[TurnSubject, Topic]]:
        """Return each turn with its topic. known: the newest first, and so they stay."""
        members: list[tuple[TurnSubject, Topic]] = []
        for subject in subjects:
            topic = topics.choose_topic(subject, known, self._model, self._judge)
            if topic is None:
                topic = topics.begin_topic(subject, self._model)
            else:
                known.remove(topic)
            topics.add_to_topic(topic, subject)
            known.insert(0, topic)
            del known[topics.MAX_TOPICS :]
            members.append((subject, topic))
        return members

    def _judge(self, subject: TurnSubject, topic: Topic) -> bool:
        """Decide by what was decided before, by the helper model where one is set, or by the rules."""
        key = (subject.turn.turn_id, topic.first)
        if key in self._verdicts:
            return self._verdicts[key]
        if subject.vector is not None and (chat := self._find_chat()) is not None:
            try:
                self._verdicts[key] = ask_model(chat, subject, topic)
                self._new_verdicts.append((*key, self._verdicts[key]))
                return self._verdicts[key]
            except (ModelFault, ConfigFault):
                pass  # the rules do; another time nobody asks again
        return topics.shares_subject(subject, topic)

    def _find_chat(self) -> Chat | None:
        try:
            return self._home.chat("helper", job=JOB)
        except ConfigFault:
            return None

    def _write(self, members: Sequence[tuple[TurnSubject, Topic]], hashes: Sequence[bytes | None]) -> None:
        changed = {topic.first: topic for _, topic in members}
        numbers = {first: self._write_topic(topic) for first, topic in changed.items()}
        for (subject, topic), text_hash in zip(members, hashes, strict=True):
            workflow_rows.put_into_topic(self._index, subject.turn.number, numbers[topic.first], text_hash)
        for first, topic in changed.items():
            newest = workflow_rows.list_of_topic(self._index, numbers[first], topics.SUMMARY_TURNS)
            topics.summarise(topic, workflow_rows.read_turns(self._index, newest))
            self._write_topic(topic)
        self.n_turns += len(members)
        self.changed |= set(changed)

    def _write_topic(self, topic: Topic) -> int:
        return workflow_rows.write_topic(
            self._index,
            self._user,
            self._agent,
            first=topic.first,
            ended_ms=topic.ended_ms,
            body=_encode_topic(topic),
        )

    def promote(self) -> int:
        """Write the relations of warm topics. Return from how many turns; promoting again writes nothing."""
        n_promoted = 0
        for row in workflow_rows.list_topics(self._index, self._user, self._agent, topics.MAX_TOPICS):
            topic = decode_topic(row.body)
            base = heat.compute_base(topic.importance, topic.density)
            ended_at = topics.to_instant(topic.ended_ms)
            if topic.n_promoted == topic.n_turns or not heat.is_promoted(base, ended_at, self._now):
                continue
            newest = workflow_rows.list_of_topic(self._index, row.number, topic.n_turns - topic.n_promoted)
            turns = workflow_rows.read_turns(self._index, newest)
            with self._index.begin_write():
                for turn in turns:
                    workflow_rows.add_relations(self._index, row.number, turn.number, find_relations(turn.text))
                topic.n_promoted = topic.n_turns
                self._write_topic(topic)
            n_promoted += len(turns)
        return n_promoted


def ask_model(chat: Chat, subject: TurnSubject, topic: Topic) -> bool:
    """Ask a model whether a turn goes on with a topic. Raises ModelFault."""
    lines = [f"Topic: {topic.title}", *topic.summary[:3], "", f"New step: {clip(subject.turn.text, _JUDGE_CHARS)}"]
    question = [ChatMessage("system", _JUDGE_PROMPT), ChatMessage("user", "\n".join(lines))]
    value = chat.reply(question, schema=_JUDGE_SCHEMA).value
    return bool(value and value["same_topic"])
