"""Fakes for the models, with the protocols of the real ones, and checks for what replaces a part of Perdure: for tests
of Perdure and of programs built on it.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

import numpy as np
from msgspec.structs import replace

from perdure import text
from perdure.access.scan import Finding
from perdure.errors import ModelCancelled, ModelLate, PictureUnreadable
from perdure.index.fuse import Matrix, Scores, compute_rarity
from perdure.models.chat import ChatMessage, ChatReply, TokenUsage, ToolSpec, check_reply, estimate_usage
from perdure.models.embedder import ModelTag, TextKind, Vectors, to_unit_length
from perdure.recall.candidates import (
    MAX_CLOSING,
    MAX_STEPS,
    CandidateDetail,
    CandidateSource,
    Exchange,
    NameSighting,
    TurnFact,
)
from perdure.recall.judge import extract_stems
from perdure.recall.recaller import RecallContext, Recaller
from perdure.recall.truth import Beliefs
from perdure.types import Plan, Role, Window


class FakeEmbedder:
    """An embedder of fixed vectors: texts that share words are near, in every process alike.

    `asked` lists its calls; `answers` is used up first: an exception in it is raised, an array is returned as
    it is.
    """

    def __init__(self, *, dimension: int = 64, name: str = "fake", answers: Sequence[Vectors | Exception] = ()) -> None:
        """answers: returned by the first calls instead of vectors, to rehearse failures."""
        self._tag = ModelTag(name, dimension, hashlib.sha256(name.encode()).hexdigest())
        self._answers = list(answers)
        self.asked: list[tuple[tuple[str, ...], TextKind]] = []

    @property
    def tag(self) -> ModelTag:
        """The tag of the fake model."""
        return self._tag

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """Return the sum of the vectors of a text's words, of length 1."""
        self.asked.append((tuple(texts), kind))
        if self._answers:
            answer = self._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        sums = np.zeros((len(texts), self._tag.dimension))
        for n, item in enumerate(texts):
            for word in re.findall(r"\w+", item.lower()):
                sums[n] += self._hash_word(word)
        return to_unit_length(sums)

    def _hash_word(self, word: str) -> Vectors:
        """Return numbers between -1 and 1 from a hash of the word."""
        raw = hashlib.shake_128(word.encode("utf-8", "surrogatepass")).digest(self._tag.dimension)
        return np.frombuffer(raw, np.uint8).astype(np.float32) / np.float32(127.5) - np.float32(1)


class FakePictureReader:
    """A reader of pictures whose files end with "text:" and their text; any other file cannot be read.

    `n_read` counts its calls.
    """

    def __init__(self, *, tag: str = "fake/1") -> None:
        self.tag = tag
        self.n_read = 0

    def read(self, body: bytes) -> str:
        """Return what stands after "text:". Raises PictureUnreadable without that mark."""
        self.n_read += 1
        _, mark, words = body.partition(b"text:")
        if not mark:
            raise PictureUnreadable("no text mark")
        return words.decode()

    def close(self) -> None:
        """Hold nothing."""


@dataclass(frozen=True)
class Question:
    """One call of a scripted model."""

    messages: tuple[ChatMessage, ...]
    schema: dict[str, Any] | None
    tools: tuple[ToolSpec, ...]


ScriptedAnswer = (
    str | dict[str, Any] | list[Any] | ChatReply | Exception
)  # a value is said as JSON; an exception is raised


class ScriptedChat:
    """A model that replies with its script in order, then always with "OK.", which fits no schema.

    An answer may be a function of the question. `asked` lists its calls.
    """

    def __init__(
        self,
        answers: Sequence[ScriptedAnswer | Callable[[Question], ScriptedAnswer]] = (),
        *,
        name: str = "scripted:fake",
        window_tokens: int = 128_000,
    ) -> None:
        """answers: the replies to the first calls."""
        self.name = name
        self.window_tokens = window_tokens
        self.answers = list(answers)
        self.asked: list[Question] = []

    def reply(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: dict[str, Any] | None = None,
        tools: Sequence[ToolSpec] = (),
        on_text: Callable[[str], None] | None = None,
        on_thought: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
        cancel: threading.Event | None = None,
    ) -> ChatReply:
        """Return the next answer, as the protocol says. Raises ModelLate if there is no time left, and ModelCancelled
        if `cancel` is set before the answer or by a listener to it.
        """
        question = Question(tuple(messages), schema, tuple(tools))
        self.asked.append(question)
        if timeout_s is not None and timeout_s <= 0:
            raise ModelLate(self.name)
        _check_cancel(cancel, TokenUsage())
        scripted = self.answers.pop(0) if self.answers else "OK."
        answer = scripted(question) if callable(scripted) else scripted
        if isinstance(answer, Exception):
            raise answer
        reply = answer if isinstance(answer, ChatReply) else self._to_reply(messages, answer)
        if on_thought and reply.thought:
            on_thought(reply.thought)
        if on_text and reply.text:
            on_text(reply.text)
        _check_cancel(cancel, reply.usage)
        return check_reply(reply, schema)

    def _to_reply(self, messages: Sequence[ChatMessage], content: str | dict[str, Any] | list[Any]) -> ChatReply:
        answer = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        return ChatReply(answer, usage=estimate_usage(messages, answer), model=self.name)


def _check_cancel(cancel: threading.Event | None, usage: TokenUsage) -> None:
    if cancel is not None and cancel.is_set():
        error = ModelCancelled("cancelled")
        error.usage = usage
        raise error


START = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class WrittenCandidates:
    """Turns in order, a day apart, all of one thread: BM25 is the number of the query's words in a turn."""

    turns: Mapping[str, tuple[Role, str]]  # id -> (role, text)
    rows: Mapping[str, Sequence[float]] = field(default_factory=dict)  # id -> vector
    asked: list[str] = field(default_factory=list)  # every query so far

    def _get_time(self, name: str) -> datetime:
        return START + timedelta(days=list(self.turns).index(name))

    def _is_within(self, name: str, window: Window | None) -> bool:
        return window is None or window.since_at <= self._get_time(name) < window.until_at

    def search_keyword(self, queries: Sequence[str], k: int, window: Window | None = None) -> list[Scores]:
        """Return the best turns for each query by words, within the window."""
        self.asked += queries
        return [self._score_query(query, k, window) for query in queries]

    def _score_query(self, query: str, k: int, window: Window | None) -> Scores:
        words = extract_stems(" ".join(text.without_stopwords(text.query_terms(query))))
        scores = {n: float(len(words & extract_stems(t))) if query else 0.0 for n, (_, t) in self.turns.items()}
        ids = [n for n, score in scores.items() if (score or not query) and self._is_within(n, window)]
        order = sorted(ids, key=lambda n: (-scores[n], -self._get_time(n).timestamp() if not query else 0, n))
        return {name: scores[name] for name in order[:k]}

    def begin_vector_search(
        self, wait_for_queries: Callable[[], Matrix | None], k: int, windows: Sequence[Window | None]
    ) -> None:
        """Begin nothing: these few rows take no time."""

    def search_vectors(self, queries: Matrix, k: int, window: Window | None = None) -> list[Scores]:
        """Return the best turns for each query by vectors, within the window."""
        legs: list[Scores] = []
        for query in queries:
            scores = {n: float(np.dot(row, query)) for n, row in self.rows.items() if self._is_within(n, window)}
            legs.append({n: scores[n] for n in sorted(scores, key=lambda n: (-scores[n], n))[:k]})
        return legs

    def get_vectors(self, ids: Sequence[str]) -> dict[str, Matrix]:
        """Return the vectors of turns."""
        return {n: np.array([self.rows[n]], dtype=np.float32) for n in ids if n in self.rows}

    def compute_cosines(self, ids: Sequence[str], queries: Matrix) -> Scores:
        """Return the best cosine of each turn with the queries."""
        return {n: float((rows @ queries.T).max()) for n, rows in self.get_vectors(ids).items()}

    def find_neighbours(self, ids: Sequence[str], reach: int) -> dict[str, list[tuple[str, int]]]:
        """Return the turns near each turn, with their distance."""
        names = list(self.turns)
        positions = {name: names.index(name) for name in ids}
        return {
            name: [
                (names[other_position], abs(other_position - position))
                for other_position in range(position - reach, position + reach + 1)
                if other_position != position and 0 <= other_position < len(names)
            ]
            for name, position in positions.items()
        }

    def find_exchanges(self, ids: Sequence[str]) -> dict[str, Exchange]:
        """Return the places of the agent's turns in the exchanges of the one thread."""
        exchanges: dict[str, Exchange] = {}
        names, opener_id, n_steps = list(self.turns), "", 0
        for name, next_name in zip_longest(names, names[1:]):
            if self.turns[name][0] == "user":
                opener_id, n_steps = name, 0
                continue
            is_last = next_name is None or self.turns[next_name][0] == "user"
            exchanges[name] = Exchange(opener_id, min(n_steps, MAX_STEPS), is_last)
            n_steps += 1
        return {name: exchanges[name] for name in ids if name in exchanges}

    def find_closings(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the last turn of the agent for those of these turns that are near the end."""
        names = list(self.turns)
        spoken = [name for name in names if self.turns[name][0] == "assistant"]
        near = [name for name in ids if name in names and len(names) - names.index(name) - 1 <= MAX_CLOSING]
        return dict.fromkeys(near, spoken[-1]) if spoken else {}

    def get_rarities(self, words: Sequence[str]) -> dict[str, tuple[int, float]]:
        """Return how many turns hold each word, and its rarity."""
        return {word: (sighting.n_turns, sighting.rarity) for word, sighting in self.find_names(words).items()}

    def find_names(self, names: Sequence[str]) -> dict[str, NameSighting]:
        """Return where names occur, newest first."""
        ids_by_name = {
            name: [n for n, (_, t) in self.turns.items() if extract_stems(name) <= extract_stems(t)] for name in names
        }
        n_turns = len(self.turns)
        return {
            n: NameSighting(len(turn_ids), compute_rarity(len(turn_ids), n_turns), tuple(reversed(turn_ids)))
            for n, turn_ids in ids_by_name.items()
        }

    def find_beliefs(self, ids: Sequence[str]) -> Beliefs:  # noqa: ARG002 - turns only
        """Return nothing: there are turns only."""
        return {}

    def find_from_web(self, ids: Sequence[str]) -> frozenset[str]:
        """Return the turns whose ids begin with "web"."""
        return frozenset(name for name in ids if name.startswith("web"))

    def get_facts(self, ids: Sequence[str]) -> dict[str, TurnFact]:
        """Return role and time of turns."""
        return {n: TurnFact(self.turns[n][0], self._get_time(n)) for n in ids}

    def get_details(self, ids: Sequence[str]) -> dict[str, CandidateDetail]:
        """Return the details of the turns that exist."""
        return {
            n: CandidateDetail(n, "run", "conv", self.turns[n][0], self._get_time(n), "laptop", "pi", self.turns[n][1])
            for n in ids
            if n in self.turns
        }


# recallers ----------------------------------------------------------------------------------------------------


def check_recaller(recaller: Recaller, candidates: CandidateSource, plan: Plan) -> None:
    """Check on one plan what every recaller must keep to. Raises AssertionError with the rule that is broken.

    The plan must be one for which the recaller tells at least one cue.
    """
    answer = recaller(candidates, plan, RecallContext())
    ids = [cue.turn_id for cue in answer.cues]
    assert ids and not answer.silent, "a plan that it can answer gets cues and no reason for silence"
    assert len(set(ids)) == len(ids), "no cue comes twice"
    assert set(candidates.get_details(ids)) == set(ids), "cues are candidates"
    assert answer.n_tokens == sum(cue.n_tokens for cue in answer.cues), "the tokens are those of the cues"
    assert answer.n_tokens <= RecallContext().tuning.max_tokens, "the cues keep to the budget"
    assert recaller(candidates, plan, RecallContext()).cues == answer.cues, "the same input gives the same cues"
    next_answer = recaller(candidates, plan, RecallContext(session_turn_ids=ids[:1]))
    assert ids[0] not in [cue.turn_id for cue in next_answer.cues], "what the session holds is not told"
    finding = Finding("order", "test", 1.0)
    safe_answer = recaller(candidates, plan, RecallContext(scan_text=lambda _: [finding]))
    assert not safe_answer.cues, "a text that reads like an order is not told"
    assert safe_answer.silent, "silence has a reason"
    empty_plan = replace(plan, message="", queries=(), names=(), windows=())
    empty_answer = recaller(candidates, empty_plan, RecallContext())
    assert not empty_answer.cues and empty_answer.silent, "a message that asks for nothing gets silence, with a reason"
