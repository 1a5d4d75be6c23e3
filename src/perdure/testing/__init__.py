"""Fakes for every socket, on the same socket as the real thing: for the tests of Perdure and of what is built on it."""

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
from perdure.models.chat import Message, Reply, Tool, Usage, checked
from perdure.models.embedder import Kind, ModelTag
from perdure.models.vectors import Vectors, unit


class FakeEmbedder:
    """Vectors that follow from the words alone: texts that share words are near each other, in every process alike.

    `asked` lists its calls; `answers` is taken first: an exception in it is raised, an array returned as it is.
    """

    def __init__(self, *, dimension: int = 64, name: str = "fake", answers: Sequence[Vectors | Exception] = ()) -> None:
        """answers: what the first calls get instead of vectors, to rehearse failure."""
        self._tag = ModelTag(name, dimension, hashlib.sha256(name.encode()).hexdigest())
        self._answers = list(answers)
        self.asked: list[tuple[tuple[str, ...], Kind]] = []

    @property
    def tag(self) -> ModelTag:
        """As named."""
        return self._tag

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:
        """The sum of the vectors of a text's words, of length 1."""
        self.asked.append((tuple(texts), kind))
        if self._answers:
            answer = self._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        found = np.zeros((len(texts), self._tag.dimension))
        for n, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                found[n] += self._word(word)
        return unit(found)

    def _word(self, word: str) -> Vectors:
        """Numbers between -1 and 1 from a hash of the word."""
        raw = hashlib.shake_128(word.encode("utf-8", "surrogatepass")).digest(self._tag.dimension)
        return np.frombuffer(raw, np.uint8).astype(np.float32) / np.float32(127.5) - np.float32(1)


@dataclass(frozen=True)
class Question:
    """What a scripted model was asked."""

    messages: tuple[Message, ...]
    schema: dict[str, Any] | None
    tools: tuple[Tool, ...]


Said = str | dict[str, Any] | list[Any] | Reply | Exception  # a value is said as JSON; an exception is raised


class ScriptedChat:
    """A model that says what it is told to, in order, and then "OK." for ever, which keeps no schema.

    An answer may be a function of the question. `asked` lists its calls.
    """

    def __init__(
        self, answers: Sequence[Said | Callable[[Question], Said]] = (), *, name: str = "scripted:fake"
    ) -> None:
        """answers: what the first calls get."""
        self.name = name
        self.answers = list(answers)
        self.asked: list[Question] = []

    def reply(
        self,
        messages: Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        tools: Sequence[Tool] = (),
        on_text: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """The next answer, as the socket says; without any time, ModelLate."""
        question = Question(tuple(messages), schema, tuple(tools))
        self.asked.append(question)
        if timeout_s is not None and timeout_s <= 0:
            raise ModelLate(self.name)
        said = self.answers.pop(0) if self.answers else "OK."
        found = said(question) if callable(said) else said
        if isinstance(found, Exception):
            raise found
        reply = found if isinstance(found, Reply) else self._reply(messages, found)
        if on_text and reply.text:
            on_text(reply.text)
        return checked(reply, schema)

    def _reply(self, messages: Sequence[Message], said: str | dict[str, Any] | list[Any]) -> Reply:
        text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
        usage = Usage(sum(texts.tokens(message.text) for message in messages), texts.tokens(text))
        return Reply(text, usage=usage, model=self.name)
