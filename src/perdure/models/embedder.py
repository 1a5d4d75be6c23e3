"""The protocol `Embedder`, which turns texts into vectors, the checks of every implementation, and vector arithmetic.

Vectors of different tags are never compared: a tag names the model, the dimension, and a hash of the
weights. `ValidatingEmbedder` stands between the caller and any implementation and keeps the promises of
the protocol: the right shape, finite numbers, length 1; it retries if that helps. Quantised vectors keep
length 1 when they are restored. Vectors are neither stored nor searched here. The caller masks secrets
first, because the texts may leave the machine.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from perdure.errors import DimensionMismatch, ModelBusy, ModelFault, ModelNonsense, PerdureError, TextRefused

# vectors ------------------------------------------------------------------------------------------------------

Vectors = npt.NDArray[np.float32]  # (n texts, dimension)

INT8_MAX = 127  # symmetric: -128 is never used, so that a product of two rows cannot overflow


class QuantisedVectors(NamedTuple):
    """Vectors in int8: row n stands for `values[n] * scales[n]`."""

    values: npt.NDArray[np.int8]  # (n, dimension), -127 to 127
    scales: Vectors  # (n,), greater than 0


def to_unit_length(vectors: npt.NDArray[Any]) -> Vectors:
    """Return the rows as float32 of length 1; rows of zeros stay zeros. Lengths are computed in float64: no
    overflow.

    >>> to_unit_length(np.array([[3.0, 4.0], [0.0, 0.0]])).round(6).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    exact = vectors.astype(np.float64)
    largest = np.abs(exact).max(axis=1, keepdims=True, initial=0.0)
    exact /= np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt((exact**2).sum(axis=1, keepdims=True))
    return (exact / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def shorten(vectors: Vectors, dimension: int) -> Vectors:
    """Return the first `dimension` numbers of each row, scaled to length 1 again, as a Matryoshka model allows.

    Kusupati et al., NeurIPS 2022. With another kind of model this loses too much: measure before use.
    Raises ValueError if there are fewer than `dimension` numbers.

    >>> shorten(np.array([[3.0, 4.0, 12.0]], np.float32), 2).round(6).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    if not 1 <= dimension <= vectors.shape[1]:
        raise ValueError(f"cannot take {dimension} of {vectors.shape[1]} numbers")
    return to_unit_length(vectors[:, :dimension])


def quantise(vectors: Vectors) -> QuantisedVectors:
    """Return the rows in int8, each with the scale that makes its largest number 127; the error is at most
    half a step.

    >>> quantise(np.array([[0.5, -1.0]], np.float32)).values.tolist()
    [[64, -127]]
    """
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    scales = (np.where(largest > 0, largest, 1.0) / INT8_MAX).astype(np.float32)
    return QuantisedVectors(np.rint(vectors / scales[:, None]).astype(np.int8), scales)


def restore(quantised: QuantisedVectors) -> Vectors:
    """Return the vectors that `quantise` received, as exactly as int8 holds them, of length 1."""
    return to_unit_length(quantised.values.astype(np.float32) * quantised.scales[:, None])


def hash_text(text: str) -> bytes:
    """Return the 32 bytes that name a text in the cache: SHA-256 of its UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


# embedders ----------------------------------------------------------------------------------------------------

TextKind = Literal["document", "query"]

RETRY_AFTER_S = (0.5, 1.5)  # three tries in all (feature row X40)
NAN_PREFIX = "passage: "  # some models return NaN for a few texts, but not if these begin with other words


class ModelTag(Struct, frozen=True):
    """The identity of a vector space: only vectors of the same tag may be compared."""

    name: str  # of the model, e.g. all-minilm-l6-v2-int8
    dimension: int  # numbers in a stored vector
    sha: str  # SHA-256, in hex, of the weights, or of a remote model's name and prefixes

    def __str__(self) -> str:
        """Return `<name>@<dimension>`, the form that people see."""
        return f"{self.name}@{self.dimension}"

    @property
    def key(self) -> str:
        """The identity as one string: `<name>@<dimension>#<sha>`."""
        return f"{self}#{self.sha}"


class Embedder(Protocol):
    """Turns each text into one vector. Used from one thread at a time."""

    @property
    def tag(self) -> ModelTag:
        """The tag of its vectors; known before anything is loaded."""

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """Return one row per text, in order: (n, dimension) float32, each of length 1 (zeros for a text without
        content).

        A text's vector does not depend on the other texts of the call. Raises ModelFault.
        """


class ValidatingEmbedder:
    """An embedder that checks the vectors of another one, and retries if that helps."""

    def __init__(self, inner: Embedder, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wrap an embedder. sleep: waits for a number of seconds; tests pass their own."""
        self._inner = inner
        self._sleep = sleep

    @property
    def tag(self) -> ModelTag:
        """The tag of the wrapped embedder."""
        return self._inner.tag

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """Return the vectors, checked; see `Embedder.embed`.

        Raises TextRefused if a text gets no finite vector, not even with another beginning, and ModelFault for every
        error of the other one that is none of Perdure's.
        """
        if not texts:
            return np.zeros((0, self.tag.dimension), np.float32)
        vectors = self._embed_with_retries(texts, kind)
        bad_rows = np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()
        if bad_rows:
            vectors = vectors.copy()
            vectors[bad_rows] = self._embed_with_retries([NAN_PREFIX + texts[n] for n in bad_rows], kind)
            if not np.isfinite(vectors).all():
                raise TextRefused(f"{self.tag}: no finite vector for {len(bad_rows)} of {len(texts)} texts")
        return to_unit_length(vectors)

    def _embed_with_retries(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        for wait_s in RETRY_AFTER_S:
            try:
                return self._embed_checked(texts, kind)
            except ModelBusy:
                self._sleep(wait_s)
        return self._embed_checked(texts, kind)

    def _embed_checked(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        try:
            vectors = self._inner.embed(texts, kind)
        except PerdureError:
            raise
        except Exception as error:  # whatever a model runs into, the words are searched
            raise ModelFault(f"{self.tag}: {type(error).__name__}: {error}") from error
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ModelNonsense(f"{self.tag}: {vectors.shape} for {len(texts)} texts")
        if vectors.shape[1] != self.tag.dimension:
            raise DimensionMismatch(f"{self.tag} answered with {vectors.shape[1]} numbers")
        return vectors


class TruncatingEmbedder:
    """An embedder that keeps only the first numbers of a Matryoshka model's vectors."""

    def __init__(self, inner: Embedder, dimension: int) -> None:
        """Wrap an embedder. dimension: how many numbers to keep, at most all. Raises DimensionMismatch."""
        if not 1 <= dimension <= inner.tag.dimension:
            raise DimensionMismatch(f"{dimension} of {inner.tag}")
        self._inner = inner
        self._tag = ModelTag(inner.tag.name, dimension, inner.tag.sha)

    @property
    def tag(self) -> ModelTag:
        """The wrapped embedder's tag with the smaller dimension."""
        return self._tag

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """Return the wrapped embedder's vectors, cut and scaled to length 1 again."""
        return shorten(self._inner.embed(texts, kind), self._tag.dimension)
