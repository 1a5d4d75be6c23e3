"""Chat with a model in a GGUF file on this machine, by llama.cpp inside this process (xllamacpp, the extra
`gguf`).

Nothing leaves the process. llama.cpp opens a port of its own on loopback; it demands a key that nobody
has. The file is loaded at the first question and stays loaded; answers are made one at a time.
Temperature 0: the same question gives the same answer.
"""

from __future__ import annotations

import functools
import importlib
import os
import secrets
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from perdure.errors import ModelFault, ModelFileMissing, ModelRefused, RuntimeMissing
from perdure.models import openai_chat, sdk_calls
from perdure.models.cancel import deliver
from perdure.models.chat import AnswerListener, AnswerPiece, ChatMessage, ChatReply, ToolSpec, check_reply
from perdure.models.known_models import GGUF_WINDOW_TOKENS
from perdure.models.settings import ModelSettings

BATCH_TOKENS = (
    512  # of a question between two looks whether it was cancelled; llama.cpp computes no more at once anyway
)
# One thread on a machine with two cores: threads wait for each other by spinning. There, under load 4 to 7, one
# thread wrote 32 to 42 tokens a second of SmolLM2-135M in Q4_1, and two wrote 2 to 17 for five times the CPU time.
THREADS = max(1, (os.cpu_count() or 1) // 2)

_servers: dict[tuple[Path, int], Any] = {}  # (path, window) -> the server that loaded it, in this process
_load_lock, _answer_lock = threading.Lock(), threading.Lock()


class GgufChat:
    """The model in one file."""

    def __init__(self, settings: ModelSettings) -> None:
        """Store the settings; nothing is loaded yet."""
        self._settings = settings
        self.name = settings.name

    @functools.cached_property
    def window_tokens(self) -> int:
        """The size of the context: that of the settings, but at most what the model was trained for."""
        trained_tokens = read_trained_window(Path(self._settings.model).expanduser())
        return min(self._settings.window_tokens, trained_tokens or self._settings.window_tokens)

    @functools.cached_property
    def takes_tools(self) -> bool:
        """False for a model whose chat template names no tools: llama.cpp leaves them out without a word."""
        return "tool" in read_chat_template(Path(self._settings.model).expanduser())

    def reply(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: dict[str, Any] | None = None,
        tools: Sequence[ToolSpec] = (),
        on_text: Callable[[str], None] | None = None,
        on_thought: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
        cancel: threading.Event | None = None,
    ) -> ChatReply:
        """Return the model's answer; see `Chat.reply`. The time limit includes waiting for other answers, not
        loading. A cancelled answer ends in the background, with the batch of the question that is being read.
        """
        completion = openai_chat.PartialCompletion(Path(self._settings.model).name)
        request = openai_chat.build_request(messages, schema, tools, self._settings.endpoint) | self._build_options()
        limit_s = self._settings.timeout_s if timeout_s is None else timeout_s
        abandoned = threading.Event()

        def produce(give: Callable[[AnswerPiece], None]) -> None:
            server = _get_server(Path(self._settings.model).expanduser(), self.window_tokens)
            _stream_answer(server, request, _AnswerStream(completion, give, abandoned), limit_s)

        try:
            deliver(produce, AnswerListener(on_text, on_thought).receive, cancel, abandoned.set)
        except ModelFault as error:
            if not isinstance(error, ModelRefused):
                error.usage = error.usage or completion.count_usage(messages)
            raise
        return check_reply(completion.to_reply(messages, self._settings.endpoint), schema)

    def _build_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"max_tokens": self._settings.max_output_tokens, "temperature": 0}
        options["return_progress"] = True  # a chunk for each batch of the question: a moment to stop at
        if self._settings.thinking:
            options["chat_template_kwargs"] = {"enable_thinking": self._settings.thinking == "on"}
        return options


@dataclass
class _AnswerStream:
    """An answer that llama.cpp is writing."""

    completion: openai_chat.PartialCompletion
    give: Callable[[AnswerPiece], None]
    abandoned: threading.Event  # set when nobody waits for it any more

    def receive_chunk(self, chunk: dict[str, Any]) -> None:
        """Add one chunk. Raises ModelRefused if the chunk is an error, and any error that `give` raises."""
        if error := chunk.get("error"):
            raise ModelRefused(str(error.get("message", error) if isinstance(error, dict) else error))
        for piece in self.completion.take({**chunk, "model": None}):  # the model's path must not be shown
            self.give(piece)


def _stream_answer(server: Any, request: dict[str, Any], stream: _AnswerStream, limit_s: float) -> None:
    """Stream the answer when the model is free. An error on the way stops the answer, and is raised after it has
    stopped.
    """
    errors: list[BaseException] = []
    deadline = sdk_calls.start_deadline(limit_s)

    def handle_chunk(chunk: dict[str, Any]) -> bool:
        """Handle one chunk, and return True to stop: an exception must not cross llama.cpp."""
        try:
            if deadline.is_over:
                raise deadline.make_fault()
            stream.receive_chunk(chunk)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
        return bool(errors) or stream.abandoned.is_set()

    if not _answer_lock.acquire(timeout=deadline.left_s):
        raise deadline.make_fault()
    try:
        if not stream.abandoned.is_set():
            stream.completion.has_begun = True
            server.handle_chat_completions(request, handle_chunk)
    except (ValueError, RuntimeError) as error:
        raise ModelRefused(str(error)) from error
    finally:
        _answer_lock.release()
    if errors:
        raise errors[0]


def _get_server(path: Path, window_tokens: int) -> Any:
    """Return the server that holds this file. Raises RuntimeMissing, ModelFileMissing, ModelFault."""
    with _load_lock:
        if (path, window_tokens) not in _servers:
            _servers[path, window_tokens] = _load_server(path, window_tokens)
        return _servers[path, window_tokens]


def _load_server(path: Path, window_tokens: int) -> Any:
    try:
        llama = importlib.import_module("xllamacpp")
    except ImportError as error:
        raise RuntimeMissing("pip install 'perdure[gguf]'") from error
    if not path.is_file():
        raise ModelFileMissing(str(path))
    try:
        return llama.Server(_build_parameters(llama, path, window_tokens))
    except (RuntimeError, ValueError) as error:
        raise ModelFault(f"{path}: {error}") from error


def _build_parameters(llama: Any, path: Path, window_tokens: int = GGUF_WINDOW_TOKENS) -> Any:
    parameters = llama.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = window_tokens
    parameters.n_parallel = 1
    parameters.n_batch = BATCH_TOKENS
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = THREADS
    parameters.cpuparams.poll = parameters.cpuparams_batch.poll = 0  # waiting threads sleep
    parameters.verbosity = -1  # nothing on stderr
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.api_keys = [secrets.token_hex(16)]
    parameters.endpoint_slots = parameters.endpoint_props = False
    return parameters


_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))  # type -> its form in `struct`
_STRING, _ARRAY = 8, 9
_TEMPLATE_KEY = b"tokenizer.chat_template"
MAX_HEADER_BYTES = 32_000_000  # a vocabulary of 260,000 tokens takes 15 MB


def read_trained_window(path: Path) -> int:
    """Return the context for which a GGUF model was trained, from the header of its file; 0 if it does not say.

    The form is that of ggml's docs/gguf.md, version 2 and later: little-endian counts, then keys with typed values.
    """
    try:
        with path.open("rb") as file:
            magic, version, _, n_keys = struct.unpack("<4sIQQ", file.read(24))
            if magic != b"GGUF" or version < 2:
                return 0
            for _ in range(n_keys):
                key, kind = _read_string(file), _read_number(file, "I")
                value = _read_value(file, kind)
                if key.endswith(b".context_length"):
                    return int(value)
    except (OSError, struct.error, KeyError, TypeError, ValueError, OverflowError, MemoryError):
        pass
    return 0


def read_chat_template(path: Path) -> str:
    """Return the template by which a GGUF model reads a conversation, from the header of its file; "" if it has none.

    Its key is searched: reading everything before it, tokens among it, takes half a second for a large model.
    """
    try:
        with path.open("rb") as file:
            header = file.read(MAX_HEADER_BYTES)
        start = header.index(_TEMPLATE_KEY) + len(_TEMPLATE_KEY)
        kind, n_bytes = struct.unpack_from("<IQ", header, start)
    except (OSError, ValueError, struct.error):
        return ""
    start += struct.calcsize("<IQ")
    return header[start : start + n_bytes].decode("utf-8", "replace") if kind == _STRING else ""


def _read_number(file: IO[bytes], form: str) -> Any:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]


def _read_string(file: IO[bytes]) -> bytes:
    return file.read(_read_number(file, "Q"))


def _read_value(file: IO[bytes], kind: int) -> Any:
    """Return a number or a string; skip a list."""
    if kind == _STRING:
        return _read_string(file)
    if kind != _ARRAY:
        return _read_number(file, _SCALARS[kind])
    item_kind, n_items = _read_number(file, "I"), _read_number(file, "Q")
    if item_kind in _SCALARS:
        file.seek(n_items * struct.calcsize(f"<{_SCALARS[item_kind]}"), os.SEEK_CUR)
    else:
        for _ in range(n_items):
            _read_value(file, item_kind)
    return None
