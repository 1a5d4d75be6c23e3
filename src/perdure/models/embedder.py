"""The socket for what turns texts into vectors, and the care that every implementation gets.

Vectors of two tags are never compared: the tag says which model, how long, and from which bytes. `Careful` stands
between the caller and any implementation and keeps the promises of the socket: the right shape, finite, length 1,
with another try where that helps. Who calls masks secrets first: what is passed here may leave the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from perdure.errors import DimensionMismatch, ModelBusy, ModelNonsense, TextRefused
from perdure.models.vectors import Vectors, shorten, unit

Kind = Literal["document", "query"]

RETRY_AFTER_S = (0.5, 1.5)  # three tries in all (feature row X40)
NAN_PREFIX = "passage: "  # some models answer NaN for a few texts, and no longer once these begin otherwise


@dataclass(frozen=True, slots=True)
class ModelTag:
    """Which vectors may be compared: those of one tag."""

    name: str  # of the model, e.g. all-minilm-l6-v2-int8
    dimension: int  # numbers in a stored vector
    sha: str  # SHA-256, in hex, of what decides the numbers: the weights, or a remote model's name and prefixes

    def __str__(self) -> str:
        """`<name>@<dimension>`, as it is shown."""
        return f"{self.name}@{self.dimension}"

    @property
    def key(self) -> str:
        """Its identity as one string: `<name>@<dimension>#<sha>`."""
        return f"{self}#{self.sha}"


class Embedder(Protocol):
    """Texts in, one vector each out. Used from one thread at a time."""

    @property
    def tag(self) -> ModelTag:
        """What its vectors are; known before anything is loaded."""

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:
        """One row a text, in order, each of length 1 (zeros for a text without content): (n, dimension) float32.

        A text's vector does not depend on its neighbours in the call. Raises ModelFault.
        """


class Careful:
    """An embedder whose answers are checked, and asked for again where that helps."""

    def __init__(self, inner: Embedder, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """sleep: waits so many seconds; given, so that tests need not."""
        self._inner = inner
        self._sleep = sleep

    @property
    def tag(self) -> ModelTag:
        """The tag of what it stands before."""
        return self._inner.tag

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:
        """As the socket says. Raises TextRefused when a text gets no finite vector even with another beginning."""
        if not texts:
            return np.zeros((0, self.tag.dimension), np.float32)
        found = self._ask(texts, kind)
        bad = np.flatnonzero(~np.isfinite(found).all(axis=1)).tolist()
        if bad:
            found = found.copy()
            found[bad] = self._ask([NAN_PREFIX + texts[n] for n in bad], kind)
            if not np.isfinite(found).all():
                raise TextRefused(f"{self.tag}: no finite vector for {len(bad)} of {len(texts)} texts")
        return unit(found)

    def _ask(self, texts: Sequence[str], kind: Kind) -> Vectors:
        for wait_s in RETRY_AFTER_S:
            try:
                return self._shaped(texts, kind)
            except ModelBusy:
                self._sleep(wait_s)
        return self._shaped(texts, kind)

    def _shaped(self, texts: Sequence[str], kind: Kind) -> Vectors:
        found = self._inner.embed(texts, kind)
        if found.ndim != 2 or len(found) != len(texts):
            raise ModelNonsense(f"{self.tag}: {found.shape} for {len(texts)} texts")
        if found.shape[1] != self.tag.dimension:
            raise DimensionMismatch(f"{self.tag} answered with {found.shape[1]} numbers")
        return found


class Shortened:
    """A Matryoshka model of which only the first numbers are kept."""

    def __init__(self, inner: Embedder, dimension: int) -> None:
        """dimension: how many numbers are kept, at most the inner one's. Raises DimensionMismatch."""
        if not 1 <= dimension <= inner.tag.dimension:
            raise DimensionMismatch(f"{dimension} of {inner.tag}")
        self._inner = inner
        self._tag = ModelTag(inner.tag.name, dimension, inner.tag.sha)

    @property
    def tag(self) -> ModelTag:
        """The inner one's, shorter."""
        return self._tag

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:
        """The inner one's vectors, cut and of length 1 again."""
        return shorten(self._inner.embed(texts, kind), self._tag.dimension)
