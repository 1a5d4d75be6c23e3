"""Sort the turns of an agent into topics, in the order of time. Pure: vectors and judgements come from the caller.

A turn goes on with the topic that it is most alike, from CONTINUE_FROM on, and begins a new one below BREAK_BELOW;
between them a judge decides (`shares_subject`, or a model). Without vectors the judge decides alone. What an agent does
for two tasks at once becomes two topics, whatever the order of its turns.

Turns are sorted in blocks of FLUSH_AT, or when the agent has paused; so a rebuild makes the same topics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from perdure.formats.perdure import Message
from perdure.index.workflow_rows import PlacedTurn, StoredTurn
from perdure.recall.retractions import retracts
from perdure.session import extract
from perdure.text import one_line
from perdure.workflow.relations import find_entities

if TYPE_CHECKING:
    import numpy as np

CONTINUE_FROM, BREAK_BELOW = 0.72, 0.52  # of the likeness of a turn and a topic; seed 002
FLUSH_AT = 20  # turns that are sorted together; seed 002
PAUSE = timedelta(minutes=30)  # without a turn, after which fewer are sorted
MAX_TOPICS = 100  # newest topics that a turn may go on with
# The bounds of the seed are for models to which texts about different things are alike by 0.4. Others are shifted so
# that their own value lies there (decisions/057).
UNRELATED = 0.4
UNRELATED_OF = {"all-MiniLM-L6-v2": 0.1, "potion-base-8M": 0.2}
_MAX_STEMS, _MAX_TERMS = 200, 80  # newest words of a topic that the judge compares
_MIN_SHARED = 0.25  # of the telling words of a turn
SUMMARY_TURNS = 60  # newest turns of a topic that its summary is made of
_SUMMARY_TOKENS = 220
_TITLE_CHARS, _QUOTE_CHARS = 90, 160
_MAX_TAKEN_BACK = 3  # newest of a topic that are told
_FULL_WEIGHT = 10.0  # of a statement of the highest importance
_DENSITY = {"entities": 0.15, "deeds": 0.20, "results": 0.25, "turns": 0.05}  # and 0.15 for each workflow, two at most
_WORKFLOW_DENSITY, _MAX_WORKFLOWS = 0.15, 2


class Topic(msgspec.Struct, kw_only=True):
    """What an agent did about one thing: a chain of its turns."""

    first: str  # its first turn, which names it
    started_ms: int
    ended_ms: int = 0
    n_turns: int = 0
    model: str = ""  # that made the vectors; "" without one
    centre: bytes = b""  # sum of the vectors of its turns, float32
    stems: list[str] = []  # telling words, the newest last
    terms: list[str] = []  # names, paths, identifiers, numbers
    workflows: list[str] = []
    importance: float = 0.0
    density: float = 0.0
    title: str = ""
    summary: list[str] = []  # what still holds, in the words of the turns
    taken_back: list[tuple[str, str]] = []  # (what no longer holds, what was said instead)
    n_promoted: int = 0  # of its turns, those whose relations are written


@dataclass(frozen=True, slots=True)
class TurnSubject:
    """What a turn is about."""

    turn: StoredTurn
    stems: frozenset[str]
    terms: frozenset[str]
    vector: np.ndarray | None = None


Judge = Callable[[TurnSubject, Topic], bool]


def count_due(turns: Sequence[PlacedTurn], now_ms: int) -> int:
    """Return how many of these turns, which are in no topic yet, are to be sorted now: whole blocks, and what came
    before a pause.
    """
    n_due, n_block = 0, 0
    pause_ms = PAUSE // timedelta(milliseconds=1)
    for n, turn in enumerate(turns, start=1):
        n_block += 1
        next_ms = turns[n].at_ms if n < len(turns) else now_ms
        if n_block == FLUSH_AT or next_ms - turn.at_ms >= pause_ms:
            n_due, n_block = n, 0
    return n_due


def read_subject(turn: StoredTurn, vector: np.ndarray | None = None) -> TurnSubject:
    """Return what a turn is about."""
    terms = frozenset(term for term in extract.find_terms(turn.text) if not term.isdigit())
    return TurnSubject(turn, extract.extract_telling_stems(turn.text), terms, vector)


def choose_topic(subject: TurnSubject, topics: Sequence[Topic], model: str, judge: Judge) -> Topic | None:
    """Return the topic that a turn goes on with, or None if it begins one. topics: the newest first."""
    if subject.vector is None:
        by_words = sorted(topics, key=lambda topic: -len(subject.stems & set(topic.stems)))  # of equals, the newest
        return next((topic for topic in by_words if judge(subject, topic)), None)
    likeness = measure_likeness(subject.vector, [topic.centre for topic in topics], model)
    ranked = sorted(zip(likeness, range(len(topics)), strict=True), key=lambda row: (-row[0], row[1]))
    for value, position in ranked:
        if value < BREAK_BELOW:
            return None
        if value >= CONTINUE_FROM or judge(subject, topics[position]):
            return topics[position]
    return None


def measure_likeness(vector: np.ndarray, centres: Sequence[bytes], model: str) -> list[float]:
    """Return the cosine of a turn and of each topic, on the scale of the bounds.

    >>> import numpy as np
    >>> centres = [np.array(centre, np.float32).tobytes() for centre in ([2, 0], [0, 3])]
    >>> measure_likeness(np.array([1, 0], np.float32), centres, "another model")
    [1.0, 0.0]
    """
    import numpy as np

    if not centres:
        return []
    matrix = np.frombuffer(b"".join(centres), np.float32).reshape(len(centres), -1)
    cosines = matrix @ vector / np.maximum(np.linalg.norm(matrix, axis=1), 1e-9)
    own = UNRELATED_OF.get(model.partition("@")[0])
    if own is None:
        return [float(value) for value in cosines]
    return [float(UNRELATED + (value - own) * (1 - UNRELATED) / (1 - own)) for value in cosines]


def shares_subject(subject: TurnSubject, topic: Topic) -> bool:
    """Return True if a turn names what the topic names, or has a good part of its words: the rules in the place of a
    model. Where vectors have found the two alike, one telling word is enough.
    """
    n_shared = len(subject.stems & set(topic.stems))
    has_term = bool(subject.terms & set(topic.terms))
    if subject.vector is not None:
        return n_shared > 0 or has_term
    return n_shared >= (1 if has_term else 2) and n_shared >= (_MIN_SHARED / 2 if has_term else _MIN_SHARED) * len(
        subject.stems
    )


def begin_topic(subject: TurnSubject, model: str) -> Topic:
    """Return a topic that a turn begins, still without it."""
    return Topic(first=subject.turn.turn_id, started_ms=subject.turn.at_ms, model=model)


def add_to_topic(topic: Topic, subject: TurnSubject) -> None:
    """Let a topic go on with a turn."""
    turn = subject.turn
    topic.n_turns += 1
    topic.ended_ms = max(topic.ended_ms, turn.at_ms)
    if subject.vector is not None:
        topic.centre = _add_vectors(topic.centre, subject.vector)
    topic.stems = _keep_newest([*topic.stems, *sorted(subject.stems)], _MAX_STEMS)
    topic.terms = _keep_newest([*topic.terms, *sorted(subject.terms)], _MAX_TERMS)
    if turn.workflow not in topic.workflows:
        topic.workflows = [*topic.workflows, turn.workflow]
    topic.importance = max(topic.importance, weigh_turn(turn))
    traits = {
        "entities": bool(find_entities(turn.text)),
        "deeds": bool(turn.thought or turn.action),
        "results": bool(turn.result),
        "turns": topic.n_turns > 1,
    }
    topic.density = max(topic.density, _add_density(traits, len(topic.workflows)))


def _add_vectors(centre: bytes, vector: np.ndarray) -> bytes:
    import numpy as np

    own = np.asarray(vector, np.float32)
    return (own + np.frombuffer(centre, np.float32) if centre else own).tobytes()


def _add_density(traits: Mapping[str, bool], n_workflows: int) -> float:
    own = sum(_DENSITY[name] for name, is_there in traits.items() if is_there)
    return min(1.0, own + _WORKFLOW_DENSITY * min(_MAX_WORKFLOWS, n_workflows))


def _keep_newest(words: Sequence[str], limit: int) -> list[str]:
    newest_first = dict.fromkeys(reversed(words))
    return list(reversed(list(newest_first)[:limit]))


def weigh_turn(turn: StoredTurn) -> float:
    """Return the importance of the weightiest statement of a turn, from 0 to 1."""
    weights = (extract.weigh(statement, {}).weight for statement in extract.read_statements([to_message(turn)]))
    return min(1.0, max(weights, default=0.0) / _FULL_WEIGHT)


def to_message(turn: StoredTurn) -> Message:
    """Return a turn as something that a person said: of a workflow the agent's own words are the statements."""
    return Message(id=turn.turn_id, timestamp=to_instant(turn.at_ms), role="user", text=turn.text)


def to_instant(at_ms: int) -> datetime:
    """Return the time of a row of the index."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def summarise(topic: Topic, turns: Sequence[StoredTurn]) -> None:
    """Write the title and the summary of a topic: what its newest SUMMARY_TURNS turns say and none of them takes back.

    turns: oldest first.
    """
    retractions = find_retractions(turns)
    current = [turn for turn in turns if turn.turn_id not in retractions]
    weighed = extract.weigh_middle([to_message(turn) for turn in current])
    topic.summary = [quote.text for quote in weighed.choose_quotes(_SUMMARY_TOKENS)]
    by_id = {turn.turn_id: turn for turn in turns}
    topic.taken_back = [
        (one_line(by_id[earlier].text, _QUOTE_CHARS), one_line(by_id[later].text, _QUOTE_CHARS))
        for earlier, later in list(retractions.items())[-_MAX_TAKEN_BACK:]
    ]
    topic.title = topic.title or one_line(turns[0].thought or turns[0].text, _TITLE_CHARS)


def find_retractions(turns: Sequence[StoredTurn]) -> dict[str, str]:
    """Return turn -> the last turn after it that takes it back. turns: oldest first."""
    return {
        earlier.turn_id: later.turn_id
        for n, earlier in enumerate(turns)
        for later in turns[n + 1 :]
        if retracts(later.text, earlier.text)
    }
