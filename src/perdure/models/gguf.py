"""Chat with a model in a GGUF file on this machine, by llama.cpp inside this process (xllamacpp, the extra `gguf`).

Nothing leaves the process. llama.cpp opens a port of its own on loopback: it wants a key that nobody has. The file is
loaded at the first question and stays; its answers take turns. Temperature 0: the same question, the same answer.
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
from perdure.models import completions, guarded
from perdure.models.chat import Message, Reply, Tool, checked
from perdure.models.settings import Settings

CONTEXT_TOKENS = 8192  # that question and answer share
# One on a machine of two: threads wait for each other by spinning. There, with others at work (load 4 to 7), one
# thread wrote 32 to 42 tokens a second of SmolLM2-135M in Q4_1, and two wrote 2 to 17 for five times the CPU time.
THREADS = max(1, (os.cpu_count() or 1) // 2)

_loaded: dict[str, Any] = {}  # path -> the server that holds it, for this process
_loading, _turn = threading.Lock(), threading.Lock()


class GgufChat:
    """One model file."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is loaded yet."""
        self._settings = settings
        self.name = settings.name

    def reply(
        self,
        messages: Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        tools: Sequence[Tool] = (),
        on_text: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """As the socket says. Waiting for its turn is part of the time; what loading takes is not."""
        found = completions.Gathered(Path(self._settings.model).name)
        body = {**completions.body(messages, schema, tools), **self._how()}
        server = _server(Path(self._settings.model).expanduser())
        deadline = guarded.within(self._settings.timeout_s if timeout_s is None else timeout_s)
        if not _turn.acquire(timeout=deadline.left_s):
            raise deadline.late()
        try:
            _ask(server, body, _Listener(found, on_text), deadline)
        finally:
            _turn.release()
        return checked(found.reply(messages), schema)

    def _how(self) -> dict[str, Any]:
        found: dict[str, Any] = {"max_tokens": self._settings.max_output_tokens, "temperature": 0}
        if self._settings.thinking:
            found["chat_template_kwargs"] = {"enable_thinking": self._settings.thinking == "on"}
        return found


@dataclass
class _Listener:
    """Takes an answer piece by piece."""

    found: completions.Gathered
    on_text: Callable[[str], None] | None

    def take(self, chunk: dict[str, Any]) -> None:
        """Add one chunk. Raises ModelRefused for one that is an error, and whatever `on_text` raises."""
        if said := chunk.get("error"):
            raise ModelRefused(str(said.get("message", said) if isinstance(said, dict) else said))
        piece = self.found.take({**chunk, "model": None})  # its path is nobody's business
        if piece and self.on_text:
            self.on_text(piece)


def _ask(server: Any, body: dict[str, Any], listener: _Listener, deadline: guarded.Deadline) -> None:
    """Have the answer told; what goes wrong on the way ends it, and is raised when it has ended."""
    failed: list[BaseException] = []

    def take(chunk: dict[str, Any]) -> bool:
        """Whether to stop: an exception must not cross llama.cpp."""
        try:
            if deadline.is_over:
                raise deadline.late()
            listener.take(chunk)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failed.append(error)
        return bool(failed)

    try:
        server.handle_chat_completions(body, take)
    except ValueError as error:
        raise ModelRefused(str(error)) from error
    if failed:
        raise failed[0]


def _server(path: Path) -> Any:
    """The server that holds this file. Raises RuntimeMissing, ModelFileMissing, ModelFault."""
    with _loading:
        if str(path) not in _loaded:
            _loaded[str(path)] = _load(path)
        return _loaded[str(path)]


def _load(path: Path) -> Any:
    try:
        llama = importlib.import_module("xllamacpp")
    except ImportError as error:
        raise RuntimeMissing("pip install 'perdure[gguf]'") from error
    if not path.is_file():
        raise ModelFileMissing(str(path))
    try:
        return llama.Server(_parameters(llama, path))
    except (RuntimeError, ValueError) as error:
        raise ModelFault(f"{path}: {error}") from error


def _parameters(llama: Any, path: Path) -> Any:
    found = llama.CommonParams()
    found.model.path = str(path)
    found.n_ctx = CONTEXT_TOKENS
    found.n_parallel = 1
    found.cpuparams.n_threads = found.cpuparams_batch.n_threads = THREADS
    found.cpuparams.poll = found.cpuparams_batch.poll = 0  # threads that wait sleep
    found.verbosity = -1  # nothing on stderr
    found.hostnames, found.port = ["127.0.0.1"], 0
    found.api_keys = [secrets.token_hex(16)]
    found.endpoint_slots = found.endpoint_props = False
    return found
