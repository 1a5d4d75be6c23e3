"""Vectors as plain arrays: scale to length 1, shorten, quantise, restore. Pure; numpy only.

Rows are texts. A row of zeros stands for a text without content for its model (an empty one): it has no
direction, stays unchanged, and is close to nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

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
