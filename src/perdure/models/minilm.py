"""The default embedder: all-MiniLM-L6-v2 in int8 on onnxruntime, 384 numbers from the first 256 tokens of a text.

One text a run. The int8 graph scales its inner numbers by the largest of the run, so neighbours in a batch change a
text's vector (cosine down to 0.978), and batches save no processor time here: docs/decisions/009-embedders.md.
Weights and onnxruntime are loaded with the first text, so that a process that needs no vector pays for neither.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perdure.errors import RuntimeMissing
from perdure.models import weights
from perdure.models.embedder import Kind, ModelTag
from perdure.models.vectors import Vectors
from perdure.models.wordpiece import WordPiece

MODEL, VOCABULARY = "minilm-l6-v2-int8.onnx", "minilm-vocab.txt"
NAME = "all-minilm-l6-v2-int8"
DIMENSION = 384
MAX_TOKENS = 256  # what the model was trained for, the two control tokens included
_BEGIN, _END = 101, 102  # [CLS] and [SEP]


def is_available(folder: Path = weights.FOLDER) -> bool:
    """Whether onnxruntime and the weights are there, without loading either."""
    return importlib.util.find_spec("onnxruntime") is not None and weights.is_there(MODEL, folder=folder)


class MiniLM:
    """One loaded model. `kind` makes no difference to it: it was trained without prefixes."""

    def __init__(self, *, threads: int = 2, folder: Path = weights.FOLDER) -> None:
        """threads: of onnxruntime, within a text; they sleep between runs."""
        self._threads = threads
        self._folder = folder
        self._session: Any = None
        self._cutter: WordPiece | None = None
        self._tag = ModelTag(NAME, DIMENSION, weights.pins()[MODEL].sha256)

    @property
    def tag(self) -> ModelTag:
        """Name, 384, and the hash of the weights."""
        return self._tag

    def embed(self, texts: Sequence[str], kind: Kind) -> Vectors:  # noqa: ARG002 - the socket's
        """As the socket says; what a text holds behind 256 tokens does not count."""
        found = np.zeros((len(texts), DIMENSION), np.float32)
        for n, text in enumerate(texts):
            ids = self._ids(text)
            if len(ids) > 2:
                found[n] = self._run(ids)
        return found

    def _ids(self, text: str) -> list[int]:
        if self._cutter is None:
            self._cutter = WordPiece(weights.vocabulary(VOCABULARY, folder=self._folder))
        return [_BEGIN, *self._cutter.ids(text, most=MAX_TOKENS - 2), _END]

    def _run(self, ids: list[int]) -> Vectors:
        if self._session is None:
            self._session = _session(weights.read(MODEL, folder=self._folder), self._threads)
        row = np.array([ids], np.int64)
        (vector,) = self._session.run(None, {"input_ids": row, "attention_mask": np.ones_like(row)})
        found: Vectors = vector[0]
        return found


def _session(model: bytes, threads: int) -> Any:
    """An onnxruntime session that keeps no processor busy between runs and writes nothing to the terminal."""
    try:
        import onnxruntime  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise RuntimeMissing("onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, threads)
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
