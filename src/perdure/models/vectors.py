"""Vectors as plain arrays: to length 1, shorter, smaller, and back. Pure; numpy only.

Rows are texts. A row of zeros stands for a text that says nothing to its model (an empty one): it has no direction,
stays as it is, and is close to nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]  # (n texts, dimension)

INT8_MOST = 127  # symmetric: -128 is never used, so that a product of two rows cannot overflow


class Quantised(NamedTuple):
    """Vectors in int8: row n stands for `values[n] * scales[n]`."""

    values: npt.NDArray[np.int8]  # (n, dimension), -127 to 127
    scales: Vectors  # (n,), greater than 0


def unit(vectors: npt.NDArray[Any]) -> Vectors:
    """The rows as float32 of length 1; rows of zeros stay zeros. Lengths are taken in float64: no overflow.

    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]])).round(6).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    exact = vectors.astype(np.float64)
    largest = np.abs(exact).max(axis=1, keepdims=True, initial=0.0)
    exact /= np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt((exact**2).sum(axis=1, keepdims=True))
    return (exact / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def shorten(vectors: Vectors, dimension: int) -> Vectors:
    """The first `dimension` numbers of each row, to length 1 again: what a Matryoshka model promises to be enough.

    Kusupati et al., NeurIPS 2022. Of another kind of model this loses more than it should: measure before use.
    Raises ValueError when there are fewer than `dimension`.

    >>> shorten(np.array([[3.0, 4.0, 12.0]], np.float32), 2).round(6).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    if not 1 <= dimension <= vectors.shape[1]:
        raise ValueError(f"cannot take {dimension} of {vectors.shape[1]} numbers")
    return unit(vectors[:, :dimension])


def quantise(vectors: Vectors) -> Quantised:
    """The rows in int8, each with the scale that makes its largest number 127: off by at most half a step a number.

    >>> quantise(np.array([[0.5, -1.0]], np.float32)).values.tolist()
    [[64, -127]]
    """
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    scales = (np.where(largest > 0, largest, 1.0) / INT8_MOST).astype(np.float32)
    return Quantised(np.rint(vectors / scales[:, None]).astype(np.int8), scales)


def restore(small: Quantised) -> Vectors:
    """The vectors that `quantise` was given, as nearly as int8 holds them, of length 1."""
    return unit(small.values.astype(np.float32) * small.scales[:, None])


def text_hash(text: str) -> bytes:
    """The 32 bytes that name a text in the cache: SHA-256 of its UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
