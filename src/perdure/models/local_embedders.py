"""The embedders that run on this machine, their tokenizer and weights, and the choice of one for the settings.

The default is all-MiniLM-L6-v2 in int8 on onnxruntime: 384 numbers from the first 256 tokens of a text.
It never runs a batch. The int8 graph scales its inner numbers by the largest of the run, so
neighbours in a batch change a text's vector (cosine down to 0.978), and batches save no processor time
here: docs/decisions/009-embedders.md. Several texts run beside each other, a core each, with the same vectors:
two cores that share one text spend a third of their time on waiting for each other.

potion-base-8M needs only numpy: one fixed vector per token, and a text is their mean. It is about a
hundred times faster than MiniLM and a little worse: for machines without onnxruntime, and for bulk. It
reads a text to its end: there is no token limit, and word order does not count.

The package carries the weights: `tools/build_weights.py` makes them, and `weights.json`, which is in
git, pins their hashes. A file is checked against its pinned hash before use. Nothing is downloaded.
Weights and onnxruntime are loaded with the first text, so that a process that needs no vector pays for
neither. A command that will embed one text can begin that early, beside its other work: `begin_loading`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import unicodedata
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from perdure.config import EmbedderConfig, read_variable
from perdure.environ import forbid_reports
from perdure.errors import ConfigFault, RuntimeMissing, VariableMissing, WeightsDamaged, WeightsMissing
from perdure.models.embedder import (
    Embedder,
    ModelTag,
    TextKind,
    TruncatingEmbedder,
    ValidatingEmbedder,
    Vectors,
    to_unit_length,
)

# the tokenizer ------------------------------------------------------------------------------------------------

MAX_WORD_CHARS = 100  # a longer word is unknown, as in the reference
MAX_REMEMBERED = 200_000  # words; about 30 MB
UNKNOWN = "[UNK]"

_CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_DROPPED_CATEGORIES = frozenset(("Cc", "Cf", "Co", "Cs", "Mn"))


def _to_plain(char: str) -> str:
    """Return the plain form of one character of decomposed text: lower case, a blank, a word of its own, or
    nothing.
    """
    code, category = ord(char), unicodedata.category(char)
    if char in "\t\n\r" or category[0] == "Z":
        return " "
    if code == 0xFFFD or category in _DROPPED_CATEGORIES:
        return ""
    if category[0] == "P" or (char.isascii() and not char.isalnum()):
        return f" {char} "
    return f" {char} " if any(low <= code <= high for low, high in _CHINESE) else char.lower()


class _CharacterTable(dict[int, str]):
    """Code point -> its plain form, computed at first use; `str.translate` reads it for every character."""

    def __missing__(self, code: int) -> str:
        self[code] = plain = _to_plain(chr(code))
        return plain


class WordPiece:
    """A tokenizer: a vocabulary, and a cache of the words already cut. Threads that encode at once must not
    share one.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Build the tokenizer. vocabulary: tokens in the order of their ids."""
        self._ids = {token: n for n, token in enumerate(vocabulary)}
        self._unknown = [self._ids[UNKNOWN]]
        self._known_words: dict[str, list[int]] = {}
        self._characters = _CharacterTable()

    def split_words(self, text: str) -> list[str]:
        """Split a text into its words and signs, in plain form.

        >>> WordPiece([UNKNOWN]).split_words("Où est-il?")
        ['ou', 'est', '-', 'il', '?']
        """
        decomposed = text if text.isascii() else unicodedata.normalize("NFD", text)
        return decomposed.translate(self._characters).split()

    def to_token_ids(self, text: str, *, max_pieces: int | None = None) -> list[int]:
        """Return the ids of a text's pieces, without control tokens, at most `max_pieces`.

        >>> WordPiece([UNKNOWN, "per", "##dure"]).to_token_ids("Perdure perdu")
        [1, 2, 0]
        """
        words: Iterable[str] = self.split_words(text if max_pieces is None else text[: max_pieces * _CHARS_PER_PIECE])
        piece_ids = list(chain.from_iterable(map(self._to_piece_ids, words)))
        return piece_ids if max_pieces is None else piece_ids[:max_pieces]

    def _to_piece_ids(self, word: str) -> list[int]:
        piece_ids = self._known_words.get(word)
        if piece_ids is None:
            piece_ids = self._cut_word(word)
            if len(self._known_words) < MAX_REMEMBERED:
                self._known_words[word] = piece_ids
        return piece_ids

    def _cut_word(self, word: str) -> list[int]:
        """Cut a word: the longest known piece at its start, then of the remainder; unknown if no piece fits."""
        if len(word) > MAX_WORD_CHARS:
            return self._unknown
        piece_ids: list[int] = []
        start = 0
        while start < len(word):
            piece = self._find_longest_piece(word, start)
            if piece is None:
                return self._unknown
            piece_ids.append(self._ids[piece])
            start += len(piece) - (2 if start else 0)
        return piece_ids

    def _find_longest_piece(self, word: str, start: int) -> str | None:
        prefix = "##" if start else ""
        pieces = (prefix + word[start:end] for end in range(len(word), start, -1))
        return next((piece for piece in pieces if piece in self._ids), None)


_CHARS_PER_PIECE = 64  # far more than text needs; limits how much of a huge text is read


# weights ------------------------------------------------------------------------------------------------------

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


def check_weights(name: str, *, folder: Path = WEIGHTS_FOLDER) -> Path:
    """Return the path of a weights file, for a library that reads it itself. Raises as `read_weights`."""
    path = folder / name
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise WeightsMissing(str(path)) from error
    if digest != load_pins()[name].sha256:
        raise WeightsDamaged(str(path))
    return path


def has_weights(name: str, *, folder: Path = WEIGHTS_FOLDER) -> bool:
    """Return True if a file of the pinned length is there; `read_weights` checks the hash."""
    try:
        return (folder / name).stat().st_size == load_pins()[name].bytes
    except OSError:
        return False


def read_vocabulary(name: str, *, folder: Path = WEIGHTS_FOLDER) -> list[str]:
    """Return the tokens of a vocabulary file in the order of their ids."""
    return read_weights(name, folder=folder).decode("utf-8").removesuffix("\n").split("\n")


# MiniLM -------------------------------------------------------------------------------------------------------

MINILM_MODEL, MINILM_VOCABULARY = "minilm-l6-v2-int8.onnx", "minilm-vocab.txt"
MINILM_GRAPH = "minilm-l6-v2-int8.graph.onnx"  # the model with its matrices by reference to MINILM_MODEL
MINILM_NAME = "all-minilm-l6-v2-int8"
MINILM_DIMENSION = 384
MINILM_MAX_TOKENS = 256  # the model's trained length, with the two control tokens
MINILM_QUERY_TOKENS = 48  # of a query: more cost time, and find nothing more (docs/evaluation/recall.md)
_BEGIN, _END = 101, 102  # [CLS] and [SEP]


def is_minilm_available(folder: Path = WEIGHTS_FOLDER) -> bool:
    """Return True if onnxruntime and the weights are there; neither is loaded."""
    has_both = has_weights(MINILM_MODEL, folder=folder) and has_weights(MINILM_GRAPH, folder=folder)
    return has_both and importlib.util.find_spec("onnxruntime") is not None


class MiniLM:
    """The MiniLM model, loaded once. It was trained without prefixes, so a query is embedded like a document."""

    def __init__(self, *, threads: int = 2, folder: Path = WEIGHTS_FOLDER) -> None:
        """Store the options. threads: for one text that is alone, or texts at once; they sleep between runs."""
        self._threads = threads
        self._folder = folder
        self._session: Any = None
        self._tokenizer: WordPiece | None = None
        self._runners: ThreadPoolExecutor | None = None
        self._tag = ModelTag(MINILM_NAME, MINILM_DIMENSION, load_pins()[MINILM_MODEL].sha256)

    @property
    def tag(self) -> ModelTag:
        """Name, 384, and the hash of the weights."""
        return self._tag

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """Return the vectors; see `Embedder.embed`. Text after the first 256 tokens, 48 of a query, does not count."""
        vectors = np.zeros((len(texts), MINILM_DIMENSION), np.float32)
        max_tokens = MINILM_QUERY_TOKENS if kind == "query" else MINILM_MAX_TOKENS
        token_ids_by_row = {row: self._to_token_ids(text, max_tokens) for row, text in enumerate(texts)}
        rows = [row for row, token_ids in token_ids_by_row.items() if len(token_ids) > 2]
        rows.sort(key=lambda row: len(token_ids_by_row[row]), reverse=True)  # so that all cores end together
        for row, vector in zip(rows, self._run_all([token_ids_by_row[row] for row in rows]), strict=True):
            vectors[row] = vector
        return vectors

    def _run_all(self, token_ids_of_texts: Sequence[list[int]]) -> Iterable[Vectors]:
        """Return the vector of each text, several at once where there are several."""
        if not token_ids_of_texts:
            return ()
        run_model = partial(_run_model, self._get_session())
        if len(token_ids_of_texts) == 1 or self._threads < 2:
            return map(run_model, token_ids_of_texts)
        if self._runners is None:
            self._runners = ThreadPoolExecutor(self._threads, thread_name_prefix="perdure-minilm")
        return self._runners.map(run_model, token_ids_of_texts)

    def _to_token_ids(self, text: str, max_tokens: int = MINILM_MAX_TOKENS) -> list[int]:
        if self._tokenizer is None:
            self._tokenizer = WordPiece(read_vocabulary(MINILM_VOCABULARY, folder=self._folder))
        return [_BEGIN, *self._tokenizer.to_token_ids(text, max_pieces=max_tokens - 2), _END]

    def _get_session(self) -> Any:
        if self._session is None:
            early = _early_sessions.pop(self._folder, None)
            self._session = early.result() if early else _open_session(self._folder, self._threads)
        return self._session


def _run_model(session: Any, token_ids: list[int]) -> Vectors:
    input_row = np.array([token_ids], np.int64)
    (vector,) = session.run(None, {"input_ids": input_row, "attention_mask": np.ones_like(input_row)})
    numbers: Vectors = vector[0]
    return numbers


_early_sessions: dict[Path, Future[Any]] = {}  # folder of weights -> what the first MiniLM of the process takes


def begin_loading(config: EmbedderConfig, *, folder: Path = WEIGHTS_FOLDER) -> None:
    """Begin to load MiniLM in a thread, if these settings choose it: for a process that embeds one text.

    onnxruntime gives up the interpreter's lock while it reads a model, so that the process imports and opens the rest
    meanwhile. It does not pack the weights anew for speed, which takes longer than one text gains; the vectors are the
    same to the last bit.
    """
    if config.kind != "minilm" or not is_minilm_available(folder):
        return
    _import_runtime()  # here, because two threads that import delay each other
    future: Future[Any] = Future()
    _early_sessions[folder] = future
    Thread(target=_load_early, args=(future, folder, config.threads), name="perdure-load", daemon=True).start()


def _load_early(future: Future[Any], folder: Path, threads: int) -> None:
    try:
        future.set_result(_open_session(folder, threads, is_for_one_text=True))
    except Exception as error:  # noqa: BLE001 - whoever needs the session gets it
        future.set_exception(error)


def _open_session(folder: Path, threads: int, *, is_for_one_text: bool = False) -> Any:
    """Open an onnxruntime session that keeps no processor busy between runs and writes nothing to the terminal.

    It gets the path of the graph, whose matrices it maps from the model's file instead of copying them.
    """
    check_weights(MINILM_MODEL, folder=folder)
    graph = check_weights(MINILM_GRAPH, folder=folder)
    onnxruntime = _import_runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, threads)
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )  # it would fuse what is slower
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if is_for_one_text:
        options.add_session_config_entry("session.disable_prepacking", "1")
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


def _import_runtime() -> Any:
    forbid_reports()
    try:
        import onnxruntime  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise RuntimeMissing("onnxruntime") from error
    return onnxruntime


# static vectors -----------------------------------------------------------------------------------------------

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


# the choice ---------------------------------------------------------------------------------------------------

LOCAL_ITEM_CHARS = 1_000  # about 250 tokens, the most that MiniLM reads: 75 ms of one core
STATIC_ITEM_CHARS = 50_000  # 10 ms
REMOTE_ITEM_CHARS = 32_000  # one request

NOTICE_OFF = "vectors are off: only keyword search works"
NOTICE_NO_RUNTIME = "onnxruntime or its model is missing: vectors come from the smaller static model"
NOTICE_NO_WEIGHTS = "the weights of the model are missing (in a checkout: `make weights`): only keyword search works"


class EmbedderChoice(NamedTuple):
    """An embedder or None, and a sentence if it is not the one in the settings."""

    embedder: Embedder | None  # validating: its vectors are finite and of length 1
    item_chars: int = 0  # most text that the lanes give it at once: a query may have to wait for that
    notice: str = ""  # for `status` and `doctor`; "" if it is the one in the settings


def choose_embedder(config: EmbedderConfig, *, folder: Path = WEIGHTS_FOLDER) -> EmbedderChoice:
    """Return the embedder for these settings. Nothing is loaded and nothing is sent yet. Raises ConfigFault."""
    if config.kind == "off":
        return EmbedderChoice(None, notice=NOTICE_OFF)
    if config.kind in ("openai", "ollama"):
        return EmbedderChoice(_wrap_embedder(_make_remote_embedder(config), config), REMOTE_ITEM_CHARS)
    if config.kind not in ("minilm", "static"):
        raise ConfigFault(f"models.embedder.kind = {config.kind!r} (known: minilm, static, openai, ollama, off)")
    if config.kind == "minilm" and is_minilm_available(folder):
        return EmbedderChoice(_wrap_embedder(MiniLM(threads=config.threads, folder=folder), config), LOCAL_ITEM_CHARS)
    if is_static_available(folder):
        notice = NOTICE_NO_RUNTIME if config.kind == "minilm" else ""
        return EmbedderChoice(_wrap_embedder(StaticEmbedder(folder=folder), config), STATIC_ITEM_CHARS, notice)
    return EmbedderChoice(None, notice=NOTICE_NO_WEIGHTS)


def _wrap_embedder(embedder: Embedder, config: EmbedderConfig) -> Embedder:
    validating = ValidatingEmbedder(embedder)
    if not config.shorten_to:
        return validating
    if config.shorten_to > embedder.tag.dimension:
        raise ConfigFault(f"models.embedder.shorten_to = {config.shorten_to} (the model has {embedder.tag.dimension})")
    return TruncatingEmbedder(validating, config.shorten_to)


def _make_remote_embedder(config: EmbedderConfig) -> Embedder:
    from perdure.models.remote_embedder import (  # it loads http and ssl: 30 ms that only its users pay
        EmbeddingEndpoint,
        RemoteEmbedder,
    )

    for name in ("url", "model", "dimension"):
        if not getattr(config, name):
            raise ConfigFault(f"models.embedder.{name} must be set for kind = {config.kind!r}")
    key = read_variable(config.key_env) if config.key_env else None
    if config.key_env and not key:
        raise VariableMissing(f"models.embedder.key_env: the environment has no {config.key_env}")
    endpoint = EmbeddingEndpoint(
        dialect=config.kind,
        url=config.url,
        model=config.model,
        dimension=config.dimension,
        key=key,
        query_prefix=config.query_prefix,
        document_prefix=config.document_prefix,
        timeout_s=float(config.timeout_s),
    )
    return RemoteEmbedder(endpoint)
