"""The semantic tier of a home: what an agent did in all its workflows, by topics, with what matters most first.

Memory belongs to the agent's name, not to a process, a step or a workflow: two runs of one agent share it, two agents
do not, and neither do two users of workflows. Everything here is derived from the archive (`topic_upkeep`); only the
readings of topics are noted in the journal, because a topic that is read fades later.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.access.redact import mask
from perdure.connections import utc_now
from perdure.errors import Busy, DiskFull, IndexFault, ModelFault, NotFound, ReadOnlyHome
from perdure.index import workflow_rows
from perdure.index.workflow_rows import StoredTurn
from perdure.text import one_line
from perdure.types import WORKFLOW_RUNTIME, Filters, Hit
from perdure.workflow import heat, turn_archive
from perdure.workflow.relations import find_relations
from perdure.workflow.topic_upkeep import decode_topic, update_topics
from perdure.workflow.topics import MAX_TOPICS, Topic, find_retractions, to_instant
from perdure.workflow.turns import abridge_masked, to_name_part

if TYPE_CHECKING:
    from perdure.home import Home
    from perdure.index.store import IndexConnection

MAX_EVENTS = 50  # that a context shows, whatever limit is asked for
N_TOPICS = 5  # hottest topics that a context shows
N_FACTS = 10
MAX_EVENTS_CHARS = 6_000  # of all events of a context
_MAX_FIELD_CHARS, _MIN_FIELD_CHARS = 600, 80
_LINE_CHARS = 120  # of an event that the limit leaves out
_CATCH_UP_S = 0.5
_SORT_S = 1.0  # that a reader sorts, and the batch that it is at; the next reading or the job goes on
_EMBED_S = 2.0  # that a search embeds what has no vector yet
_N_RANKED, _RANK_OFFSET, _WORDS_WEIGHT = 20, 10, 0.5  # of the ranks by meaning and by words that a search fuses
_WITHHELD = "(left out: it reads like an order to a model; `perdure search` finds it)"
_ACTIONS_ALONE = "perdure.note"  # step of what is noted outside of a step


@dataclass(frozen=True)
class HotTopic:
    """A topic, and its heat now."""

    number: int
    topic: Topic
    heat: float


class SemanticHome:
    """The semantic tier that a home holds itself. Use it from the thread of the home."""

    def __init__(self, home: Home, *, user: str = "", now: Callable[[], datetime] = utc_now) -> None:
        """user: of the workflows, as in `UnifiedMemory`."""
        self._home, self._user, self._now = home, user, now
        self._archives: dict[tuple[str, str, str], turn_archive.TurnArchive] = {}

    def close(self) -> None:
        """Archive what was stored."""
        for archive in self._archives.values():
            archive.close()
        self._archives = {}

    # writing --------------------------------------------------------------------------------------------

    def store_turn(self, agent_id: str, turn: Mapping[str, Any]) -> None:
        """Store what an agent thought and did, durably. A turn with a `key` that it has already changes nothing."""
        place = (str(turn.get("workflow_id") or agent_id), str(turn.get("step_id") or _ACTIONS_ALONE), agent_id)
        if place not in self._archives:
            self._archives[place] = turn_archive.TurnArchive(
                self._home, place[0], step_id=place[1], agent_id=agent_id, user=self._user
            )
        self._archives[place].append(turn_archive.from_event(turn, step=place[1], agent=agent_id, now=self._now()))

    # reading --------------------------------------------------------------------------------------------

    def get_memory_context(self, agent_id: str, *, limit: int = 15) -> dict[str, Any] | None:
        """Return recent events and the hottest topics of an agent, or None if there is nothing.

        `stm_events`: at most `limit` of the newest turns, oldest first; `stm_earlier`: a line for each older turn that
        is in no topic yet; `mtm_chains`: topics, the hottest first; `ltm_facts`: what they say of things; `heat_score`:
        of the hottest. Secrets are masked, what reads like an order to a model is left out, and all of it has at most
        about 25,000 characters. What is told counts as read.
        """
        index = self._catch_up(agent_id)
        name = self._to_agent(agent_id)
        now = self._now()
        turns = self._read_newest(index, name, min(limit, MAX_EVENTS))
        hot_topics = self.list_topics(agent_id)[:N_TOPICS]
        if not turns and not hot_topics:
            return None
        shown = turns[max(0, len(turns) - limit) :] if limit > 0 else []
        earlier = turns[: len(turns) - len(shown)]
        self._note_reading([hot.topic for hot in hot_topics], now)
        context = {
            "stm_events": show_events(shown),
            "stm_earlier": [one_line(mask(turn.text), _LINE_CHARS) for turn in earlier[-MAX_EVENTS:]],
            "mtm_chains": [show_topic(hot) for hot in hot_topics],
            "ltm_facts": self._read_facts(index, hot_topics),
            "heat_score": round(hot_topics[0].heat, 3) if hot_topics else 0.0,
        }
        return {name: self._withhold_orders(value) for name, value in context.items()}

    def list_topics(self, agent_id: str, *, with_archived: bool = False) -> list[HotTopic]:
        """Return the topics of an agent, the hottest first; those that have faded only if asked for."""
        index = self._home.connections.index_with_memories()
        user, agent = self._find_numbers(index, self._to_agent(agent_id))
        if user is None or agent is None:
            return []
        read_at: dict[str, list[datetime]] = {}
        for mark in workflow_rows.list_marks(index, user):
            if not mark.turn:
                read_at.setdefault(mark.topic, []).append(to_instant(mark.at_ms))
        now, hot_topics = self._now(), []
        for row in workflow_rows.list_topics(index, user, agent, MAX_TOPICS):
            topic = decode_topic(row.body)
            base = heat.compute_base(topic.importance, topic.density)
            ended_at, readings = to_instant(topic.ended_ms), read_at.get(topic.first, [])
            value = heat.compute_heat(base, ended_at, readings, now)
            if with_archived or not heat.is_archived(value, ended_at, readings, now):
                hot_topics.append(HotTopic(row.number, topic, value))
        return sorted(hot_topics, key=lambda hot: (-hot.heat, -hot.topic.ended_ms, hot.topic.first))

    def search(self, agent_id: str, query: str, *, limit: int = 5) -> list[Hit]:
        """Return the turns of an agent that answer a question, best first; of turns that say the same, one.

        Who asks here wants an answer in whatever words: meaning counts more than words, and there is no silence
        (docs/evaluation/tiers.md). Raises UsageError for a limit below 1.
        """
        if self._home.writable:
            with suppress(Busy, NotFound, ModelFault, DiskFull):  # what has no vector yet is found by words
                self._home.upkeep.embed(limit_s=_EMBED_S)
        filters = Filters(runtimes=(WORKFLOW_RUNTIME,), workflow_agents=(self._to_agent(agent_id),))
        hits: dict[str, Hit] = {}
        scores: dict[str, float] = defaultdict(float)
        for mode, weight in (("semantic", 1.0), ("keyword", _WORDS_WEIGHT)):
            mode_hits = self._home.search(query, filters=filters, limit=max(limit, _N_RANKED), mode=mode).hits
            for rank, text in enumerate(dict.fromkeys(hit.text for hit in mode_hits), start=1):
                scores[text] += weight / (_RANK_OFFSET + rank)
            hits = {hit.text: hit for hit in reversed(mode_hits)} | hits
        best = sorted(scores, key=lambda text: (-scores[text], hits[text].turn_id))[:limit]
        return [replace(hits[text], score=scores[text]) for text in best]

    # parts ----------------------------------------------------------------------------------------------

    def _to_agent(self, agent_id: str) -> str:
        return ":".join(to_name_part(part) for part in (self._user, agent_id) if part)

    def _find_numbers(self, index: IndexConnection, name: str) -> tuple[int | None, int | None]:
        return index.find_name("user", self._home.user), index.find_name(workflow_rows.AGENT_KIND, name)

    def _catch_up(self, agent_id: str) -> IndexConnection:
        """Bring the index and the topics up to the archive, as far as that goes now."""
        index = self._home.connections.index(create=True)
        if self._home.writable:
            with suppress(Busy, DiskFull, ReadOnlyHome, ModelFault):  # what is there is told all the same
                self._home.upkeep.catch_up_for_search(index, limit_s=_CATCH_UP_S)
                deadline_s = time.monotonic() + _SORT_S
                update_topics(
                    self._home,
                    now=self._now(),
                    agent=self._to_agent(agent_id),
                    stop=lambda: time.monotonic() > deadline_s,
                )
        return index

    def _read_newest(self, index: IndexConnection, name: str, limit: int) -> list[StoredTurn]:
        """Return the newest turns of an agent, oldest first: so many, and all that are in no topic yet.

        The newest are in the files of sessions that are still open.
        """
        user, agent = self._find_numbers(index, name)
        turns: list[StoredTurn] = []
        if user is not None and agent is not None:
            n_open = len(workflow_rows.list_open(index, user, agent))
            numbers = workflow_rows.list_newest(index, user, agent, max(limit, min(n_open, MAX_EVENTS)))
            turns = workflow_rows.read_turns(index, numbers)
        known = {(turn.at_ms, turn.thought, turn.result) for turn in turns}
        for turn in turn_archive.read_open_turns(self._home, name):
            if (turn.at_ms, turn.thought, turn.result) not in known:  # one that was just archived is in both
                turns.append(turn)
        return sorted(turns, key=lambda turn: turn.at_ms)

    def _read_facts(self, index: IndexConnection, hot_topics: Sequence[HotTopic]) -> list[dict[str, Any]]:
        """Return what the turns of topics say of things: promoted by rules, or in memories that were made of them."""
        if not hot_topics:
            return []
        numbers = [hot.number for hot in hot_topics]
        rows = [row for row in workflow_rows.list_relations(index, numbers) if row[1]]
        known = {row[:3] for row in rows}
        for text, turn_id in workflow_rows.list_memory_texts(index, numbers):
            new = [relation for relation in find_relations(text) if relation.verb and relation not in known]
            rows += [(*relation, 1, turn_id) for relation in new]
            known.update(new)
        return [
            {"subject": subject, "relation": verb, "object": target, "weight": weight, "source": source}
            for subject, verb, target, weight, source in rows[:N_FACTS]
        ]

    def _withhold_orders(self, value: Any) -> Any:
        """Return a part of a context without what reads like an order to a model: a later session might obey it."""
        if isinstance(value, dict):
            return {name: self._withhold_orders(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self._withhold_orders(part) for part in value]
        find = self._home.floor.find_injections
        if not isinstance(value, str) or not find(value):
            return value
        text = "\n".join(_WITHHELD if find(line) else line for line in value.split("\n"))
        return _WITHHELD if find(text) else text

    def _note_reading(self, topics: Sequence[Topic], now: datetime) -> None:
        """Write into the journal which topics were told; a reading that would not count is not written."""
        if not topics or not self._home.writable:
            return
        index = self._home.connections.index()
        user = index.find_name("user", self._home.user)
        last_ms = {mark.topic: mark.at_ms for mark in workflow_rows.list_marks(index, user or 0) if not mark.turn}
        counting = [
            topic.first
            for topic in topics
            if topic.first not in last_ms or now - to_instant(last_ms[topic.first]) >= heat.COOLDOWN
        ]
        if counting:
            with suppress(IndexFault, Busy, DiskFull, ReadOnlyHome):  # nobody waits for it
                self._home.journal().append(workflow_rows.TOPICS_TYPE, {"read": counting}, now=now)
                self._home.connections.follow_journals()


def show_events(turns: Sequence[StoredTurn]) -> list[dict[str, Any]]:
    """Return turns as the events of a context: abridged, masked, and those marked that a later one takes back."""
    max_chars = min(_MAX_FIELD_CHARS, max(_MIN_FIELD_CHARS, MAX_EVENTS_CHARS // (3 * max(1, len(turns)))))
    retractions = find_retractions(turns)
    by_id = {turn.turn_id: turn for turn in turns}
    events = []
    for turn in turns:
        event = {
            "timestamp": to_instant(turn.at_ms).isoformat(),
            "workflow_id": turn.workflow,
            "thought": abridge_masked(turn.thought, max_chars),
            "action": abridge_masked(turn.action, max_chars),
            "result": abridge_masked(turn.result, max_chars),
        }
        if turn.turn_id in retractions:
            event["taken_back"] = one_line(mask(by_id[retractions[turn.turn_id]].text), _LINE_CHARS)
        events.append(event)
    return events


def show_topic(hot: HotTopic) -> dict[str, Any]:
    """Return a topic as a chain of a context."""
    topic = hot.topic
    return {
        "id": topic.first,
        "topic": topic.title,
        "summary": "\n".join(topic.summary),
        "taken_back": [f"“{old}” — later: “{new}”" for old, new in topic.taken_back],
        "heat": round(hot.heat, 3),
        "n_turns": topic.n_turns,
        "workflows": topic.workflows[-5:],
        "started_at": to_instant(topic.started_ms).isoformat(),
        "ended_at": to_instant(topic.ended_ms).isoformat(),
    }
