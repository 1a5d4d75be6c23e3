"""The embedders that run on this machine, and their weights.

The default is all-MiniLM-L6-v2 in int8 on onnxruntime: 384 numbers from the first 256 tokens of a text.
It runs one text at a time. The int8 graph scales its inner numbers by the largest of the run, so
neighbours in a batch change a text's vector (cosine down to 0.978), and batches save no processor time
here: docs/decisions/009-embedders.md.

potion-base-8M needs only numpy: one fixed vector per token, and a text is their mean. It is about a
hundred times faster than MiniLM and a little worse: for machines without onnxruntime, and for bulk. It
reads a text to its end: there is no token limit, and word order does not count.

The package carries the weights: `tools/build_weights.py` makes them, and `weights.json`, which is in
git, pins their hashes. A file is checked against its pinned hash before use. Nothing is downloaded.
Weights and onnxruntime are loaded with the first text, so that a process that needs no vector pays for
neither.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from perdure.errors import RuntimeMissing, WeightsDamaged, WeightsMissing
from perdure.models.embedder import ModelTag, TextKind
from perdure.models.vectors import Vectors, to_unit_length
from perdure.models.wordpiece import UNKNOWN, WordPiece

WEIGHTS_FOLDER = Path(__file__).with_name("weights")


class WeightsPin(msgspec.Struct, frozen=True):
    """The hash and the size that a weights file must have."""

    sha256: str
    bytes: int


@cache
def load_pins() -> dict[str, WeightsPin]:
    """Return the pins by file name."""
    return msgspec.json.decode(WEIGHTS_FOLDER.with_suffix(".json").read_bytes(), type=dict[str, WeightsPin])


def read_weights(name: str, *, folder: Path = WEIGHTS_FOLDER) -> bytes:
    """Return the content of a weights file. Raises WeightsMissing, and WeightsDamaged if its hash is not the
    pinned one.
    """
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise WeightsMissing(str(folder / name)) from error
    if hashlib.sha256(data).hexdigest() != load_pins()[name].sha256:
        raise WeightsDamaged(str(folder / name))
    return data


def has_weights(name: str, *, folder: Path = WEIGHTS_FOLDER) -> bool:
    """Return True if a file of the pinned length is there; `read_weights` checks the hash."""
    try:
        return (folder / name).stat().st_size == load_pins()[name].bytes
    except OSError:
        return False


def read_vocabulary(name: str, *, folder: Path = WEIGHTS_FOLDER) -> list[str]:
    """Return the tokens of a vocabulary file in the order of their ids."""
    return read_weights(name, folder=folder).decode("utf-8").removesuffix("\n").split("\n")


MINILM_MODEL, MINILM_VOCABULARY = "minilm-l6-v2-int8.onnx", "minilm-vocab.txt"
MINILM_NAME = "all-minilm-l6-v2-int8"
MINILM_DIMENSION = 384
MINILM_MAX_TOKENS = 256  # the model's trained length, with the two control tokens
_BEGIN, _END = 101, 102  # [CLS] and [SEP]


def is_minilm_available(folder: Path = WEIGHTS_FOLDER) -> bool:
    """Return True if onnxruntime and the weights are there; neither is loaded."""
    return importlib.util.find_spec("onnxruntime") is not None and has_weights(MINILM_MODEL, folder=folder)


class MiniLM:
    """The MiniLM model, loaded once. `kind` has no effect: the model was trained without prefixes."""

    def __init__(self, *, threads: int = 2, folder: Path = WEIGHTS_FOLDER) -> None:
        """Store the options. threads: of onnxruntime, within one text; they sleep between runs."""
        self._threads = threads
        self._folder = folder
        self._session: Any = None
        self._tokenizer: WordPiece | None = None
        self._tag = ModelTag(MINILM_NAME, MINILM_DIMENSION, load_pins()[MINILM_MODEL].sha256)

    @property
    def tag(self) -> ModelTag:
        """Name, 384, and the hash of the weights."""
        return self._tag

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:  # noqa: ARG002 - the socket's
        """Return the vectors; see `Embedder.embed`. Text after the first 256 tokens does not count."""
        vectors = np.zeros((len(texts), MINILM_DIMENSION), np.float32)
        for row, text in enumerate(texts):
            token_ids = self._to_token_ids(text)
            if len(token_ids) > 2:
                vectors[row] = self._run_model(token_ids)
        return vectors

    def _to_token_ids(self, text: str) -> list[int]:
        if self._tokenizer is None:
            self._tokenizer = WordPiece(read_vocabulary(MINILM_VOCABULARY, folder=self._folder))
        return [_BEGIN, *self._tokenizer.to_token_ids(text, max_pieces=MINILM_MAX_TOKENS - 2), _END]

    def _run_model(self, token_ids: list[int]) -> Vectors:
        if self._session is None:
            self._session = _open_session(read_weights(MINILM_MODEL, folder=self._folder), self._threads)
        input_row = np.array([token_ids], np.int64)
        (vector,) = self._session.run(None, {"input_ids": input_row, "attention_mask": np.ones_like(input_row)})
        numbers: Vectors = vector[0]
        return numbers


def _open_session(model: bytes, threads: int) -> Any:
    """Open an onnxruntime session that keeps no processor busy between runs and writes nothing to the terminal."""
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


STATIC_TABLE, STATIC_VOCABULARY = "potion-base-8m-int8.bin", "potion-vocab.txt"
STATIC_NAME = "potion-base-8m-int8"
STATIC_DIMENSION = 256


def is_static_available(folder: Path = WEIGHTS_FOLDER) -> bool:
    """Return True if the weights are there."""
    return has_weights(STATIC_TABLE, folder=folder)


class StaticEmbedder:
    """The table of static vectors, loaded once. `kind` has no effect."""

    def __init__(self, *, folder: Path = WEIGHTS_FOLDER) -> None:
        """Store the folder; nothing is loaded before the first text."""
        self._folder = folder
        self._table: Vectors | None = None
        self._tokenizer: WordPiece | None = None
        self._tag = ModelTag(STATIC_NAME, STATIC_DIMENSION, load_pins()[STATIC_TABLE].sha256)

    @property
    def tag(self) -> ModelTag:
        """Name, 256, and the hash of the table."""
        return self._tag

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:  # noqa: ARG002 - the socket's
        """Return the vectors; see `Embedder.embed`. Zeros for a text without a known token."""
        if self._table is None or self._tokenizer is None:
            tokens = read_vocabulary(STATIC_VOCABULARY, folder=self._folder)
            self._tokenizer = WordPiece(tokens)
            self._table = decode_table(read_weights(STATIC_TABLE, folder=self._folder))
            self._table[tokens.index(UNKNOWN)] = 0.0  # an unknown word carries no meaning
        vectors = np.zeros((len(texts), STATIC_DIMENSION), np.float32)
        for row, text in enumerate(texts):
            token_ids = self._tokenizer.to_token_ids(text)
            if token_ids:
                vectors[row] = self._table[token_ids].sum(axis=0)
        return to_unit_length(vectors)


def decode_table(data: bytes) -> Vectors:
    """Decode a table file: rows and dimension (two uint32), one float32 scale per row, then the rows in int8."""
    n_rows, dimension = np.frombuffer(data, "<u4", 2)
    scales: npt.NDArray[np.float32] = np.frombuffer(data, "<f4", n_rows, 8)
    rows = np.frombuffer(data, np.int8, n_rows * dimension, 8 + 4 * int(n_rows)).reshape(n_rows, dimension)
    return rows.astype(np.float32) * scales[:, None]
