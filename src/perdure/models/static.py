"""The embedder that needs numpy alone: potion-base-8M, one fixed vector a token, a text is their mean.

About a hundred times faster than MiniLM and a little worse: for machines without onnxruntime, and for bulk.
It reads a text to its end: no token limit, and word order does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from perdure.models import weights
from perdure.models.embedder import Kind, ModelTag
from perdure.models.vectors import Vectors, unit
from perdure.models.wordpiece import UNKNOWN, WordPiece

TABLE, VOCABULARY = "potion-base-8m-int8.bin", "potion-vocab.txt"
NAME = "potion-base-8m-int8"
DIMENSION = 256


def is_available(folder: Path = weights.FOLDER) -> bool:
    """Whether the weights are there."""
    return weights.is_there(TABLE, folder=folder)


class Static:
    """One loaded table. `kind` makes no difference to it."""

    def __init__(self, *, folder: Path = weights.FOLDER) -> None:
        """Nothing is loaded before the first text."""
        self._folder = folder
        self._table: Vectors | None = None
        self._cutter: WordPiece | None = None
        self._tag = ModelTag(NAME, DIMENSION, weights.pins()[TABLE].sha256)

    @property
    def tag(self) -> ModelTag:
        """Name, 256, and the hash of the table."""
        return self._tag

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:  # noqa: ARG002 - the socket's
        """As the socket says; zeros for a text of which no token is known."""
        if self._table is None or self._cutter is None:
            tokens = weights.vocabulary(VOCABULARY, folder=self._folder)
            self._cutter = WordPiece(tokens)
            self._table = table(weights.read(TABLE, folder=self._folder))
            self._table[tokens.index(UNKNOWN)] = 0.0  # an unknown word says nothing
        found = np.zeros((len(texts), DIMENSION), np.float32)
        for n, text in enumerate(texts):
            ids = self._cutter.ids(text)
            if ids:
                found[n] = self._table[ids].sum(axis=0)
        return unit(found)


def table(data: bytes) -> Vectors:
    """The vectors of a table file: rows and dimension (two uint32), a float32 scale a row, then the rows in int8."""
    n_rows, dimension = np.frombuffer(data, "<u4", 2)
    scales: npt.NDArray[np.float32] = np.frombuffer(data, "<f4", n_rows, 8)
    rows = np.frombuffer(data, np.int8, n_rows * dimension, 8 + 4 * int(n_rows)).reshape(n_rows, dimension)
    return rows.astype(np.float32) * scales[:, None]
