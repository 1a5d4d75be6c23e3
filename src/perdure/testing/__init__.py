"""Fakes for every socket, on the same socket as the real thing: for the tests of Perdure and of what is built on it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

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
