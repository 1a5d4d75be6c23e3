"""Fakes for the models, with the protocols of the real ones: for tests of Perdure and programs built on it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perdure import text as texts
from perdure.errors import ModelLate
from perdure.models.chat import ChatMessage, ChatReply, TokenUsage, ToolSpec, check_reply
from perdure.models.embedder import ModelTag, TextKind
from perdure.models.vectors import Vectors, to_unit_length


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
        for n, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                sums[n] += self._hash_word(word)
        return to_unit_length(sums)

    def _hash_word(self, word: str) -> Vectors:
        """Return numbers between -1 and 1 from a hash of the word."""
        raw = hashlib.shake_128(word.encode("utf-8", "surrogatepass")).digest(self._tag.dimension)
        return np.frombuffer(raw, np.uint8).astype(np.float32) / np.float32(127.5) - np.float32(1)


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
    ) -> None:
        """answers: the replies to the first calls."""
        self.name = name
        self.answers = list(answers)
        self.asked: list[Question] = []

    def reply(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: dict[str, Any] | None = None,
        tools: Sequence[ToolSpec] = (),
        on_text: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
    ) -> ChatReply:
        """Return the next answer, as the protocol says. Raises ModelLate if there is no time left."""
        question = Question(tuple(messages), schema, tuple(tools))
        self.asked.append(question)
        if timeout_s is not None and timeout_s <= 0:
            raise ModelLate(self.name)
        scripted = self.answers.pop(0) if self.answers else "OK."
        answer = scripted(question) if callable(scripted) else scripted
        if isinstance(answer, Exception):
            raise answer
        reply = answer if isinstance(answer, ChatReply) else self._to_reply(messages, answer)
        if on_text and reply.text:
            on_text(reply.text)
        return check_reply(reply, schema)

    def _to_reply(self, messages: Sequence[ChatMessage], content: str | dict[str, Any] | list[Any]) -> ChatReply:
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        usage = TokenUsage(sum(texts.tokens(message.text) for message in messages), texts.tokens(text))
        return ChatReply(text, usage=usage, model=self.name)
