"""Chat with a model in a GGUF file on this machine, by llama.cpp inside this process (xllamacpp, the extra
`gguf`).

Nothing leaves the process. llama.cpp opens a port of its own on loopback; it demands a key that nobody
has. The file is loaded at the first question and stays loaded; answers are made one at a time.
Temperature 0: the same question gives the same answer.
"""

from __future__ import annotations

import importlib
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.errors import ModelFault, ModelFileMissing, ModelRefused, RuntimeMissing
from perdure.models import openai_chat, sdk_calls
from perdure.models.chat import ChatMessage, ChatReply, ToolSpec, check_reply
from perdure.models.settings import GGUF_WINDOW_TOKENS, ModelSettings

# One thread on a machine with two cores: threads wait for each other by spinning. There, under load 4 to 7, one
# thread wrote 32 to 42 tokens a second of SmolLM2-135M in Q4_1, and two wrote 2 to 17 for five times the CPU time.
THREADS = max(1, (os.cpu_count() or 1) // 2)

_servers: dict[str, Any] = {}  # path -> the server that loaded it, in this process
_load_lock, _answer_lock = threading.Lock(), threading.Lock()


class GgufChat:
    """The model in one file."""

    def __init__(self, settings: ModelSettings) -> None:
        """Store the settings; nothing is loaded yet."""
        self._settings = settings
        self.name = settings.name
        self.window_tokens = settings.window_tokens

    def reply(
        self,
        messages: Sequence[ChatMessage],
        *,
        schema: dict[str, Any] | None = None,
        tools: Sequence[ToolSpec] = (),
        on_text: Callable[[str], None] | None = None,
        on_thought: Callable[[str], None] | None = None,  # noqa: ARG002 - follows
        timeout_s: float | None = None,
        cancel: threading.Event | None = None,  # noqa: ARG002 - follows
    ) -> ChatReply:
        """Return the model's answer; see `Chat.reply`. The time limit includes waiting for other answers, not
        loading.
        """
        completion = openai_chat.PartialCompletion(Path(self._settings.model).name)
        request = {**openai_chat.build_request(messages, schema, tools), **self._build_options()}
        server = _get_server(Path(self._settings.model).expanduser(), self.window_tokens)
        deadline = sdk_calls.start_deadline(self._settings.timeout_s if timeout_s is None else timeout_s)
        if not _answer_lock.acquire(timeout=deadline.left_s):
            raise deadline.make_fault()
        try:
            _stream_answer(server, request, _ChunkListener(completion, on_text), deadline)
        finally:
            _answer_lock.release()
        return check_reply(completion.to_reply(messages), schema)

    def _build_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"max_tokens": self._settings.max_output_tokens, "temperature": 0}
        if self._settings.thinking:
            options["chat_template_kwargs"] = {"enable_thinking": self._settings.thinking == "on"}
        return options


@dataclass
class _ChunkListener:
    """Collects an answer chunk by chunk, and passes its text on."""

    completion: openai_chat.PartialCompletion
    on_text: Callable[[str], None] | None

    def receive_chunk(self, chunk: dict[str, Any]) -> None:
        """Add one chunk. Raises ModelRefused if the chunk is an error, and any error that `on_text` raises."""
        if error := chunk.get("error"):
            raise ModelRefused(str(error.get("message", error) if isinstance(error, dict) else error))
        piece = self.completion.take({**chunk, "model": None})  # the model's path must not be shown
        if piece and self.on_text:
            self.on_text(piece)


def _stream_answer(
    server: Any, request: dict[str, Any], listener: _ChunkListener, deadline: sdk_calls.CallDeadline
) -> None:
    """Stream the answer to the listener. An error on the way stops the answer, and is raised after it has
    stopped.
    """
    errors: list[BaseException] = []

    def handle_chunk(chunk: dict[str, Any]) -> bool:
        """Handle one chunk, and return True to stop: an exception must not cross llama.cpp."""
        try:
            if deadline.is_over:
                raise deadline.make_fault()
            listener.receive_chunk(chunk)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
        return bool(errors)

    try:
        server.handle_chat_completions(request, handle_chunk)
    except ValueError as error:
        raise ModelRefused(str(error)) from error
    if errors:
        raise errors[0]


def _get_server(path: Path, window_tokens: int) -> Any:
    """Return the server that holds this file. Raises RuntimeMissing, ModelFileMissing, ModelFault."""
    with _load_lock:
        if str(path) not in _servers:
            _servers[str(path)] = _load_server(path, window_tokens)
        return _servers[str(path)]


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
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = THREADS
    parameters.cpuparams.poll = parameters.cpuparams_batch.poll = 0  # waiting threads sleep
    parameters.verbosity = -1  # nothing on stderr
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.api_keys = [secrets.token_hex(16)]
    parameters.endpoint_slots = parameters.endpoint_props = False
    return parameters
