"""Chat with any endpoint that follows OpenAI's API, through OpenAI's official SDK, imported only inside
the call.

Requests and answers have the form of Chat Completions. OpenAI, Ollama, vLLM, llama.cpp and most
gateways use it, and so does a local GGUF file. Building a request and collecting an answer are pure.
"""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from perdure.errors import RuntimeMissing
from perdure.models import sdk_calls
from perdure.models.chat import (
    ChatMessage,
    ChatReply,
    StopReason,
    TokenUsage,
    ToolCall,
    ToolSpec,
    check_reply,
    estimate_usage,
    is_closed,
    make_broken_off_fault,
    parse_arguments,
)
from perdure.models.settings import ModelSettings

Json = dict[str, Any]

_STOPS: Mapping[str, StopReason] = {
    "stop": "end", "length": "length", "tool_calls": "tool", "function_call": "tool", "content_filter": "refused",
}  # fmt: skip


def build_request(messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None, tools: Sequence[ToolSpec]) -> Json:
    """Return the content of a request, without the model and its limits."""
    request: Json = {
        "messages": [_to_openai_message(message) for message in messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if schema is not None:
        answer_format = {"name": "answer", "schema": schema, "strict": is_closed(schema)}
        request["response_format"] = {"type": "json_schema", "json_schema": answer_format}
    if tools:
        request["tools"] = [
            {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.schema}}
            for t in tools
        ]
    return request


def _to_openai_message(message: ChatMessage) -> Json:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    json_message: Json = {"role": message.role, "content": message.text}
    if message.calls:
        json_message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.input)}}
            for c in message.calls
        ]
    return json_message


@dataclass
class PartialCompletion:
    """An answer that is still arriving."""

    model: str = ""
    has_begun: bool = False  # True after the endpoint took the question
    _pieces: list[str] = field(default_factory=list)
    _calls: dict[int, Json] = field(default_factory=dict)
    _usage: Json | None = None
    _stop: str = ""
    _is_refused: bool = False

    def take(self, chunk: Mapping[str, Any]) -> str:
        """Add one chunk, and return the text in it."""
        n_before = len(self._pieces)
        self.model = chunk.get("model") or self.model
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            self._stop = choice.get("finish_reason") or self._stop
            self._add_delta(choice.get("delta") or {})
        return "".join(self._pieces[n_before:])

    def _add_delta(self, delta: Mapping[str, Any]) -> None:
        self._is_refused = self._is_refused or bool(delta.get("refusal"))
        if piece := delta.get("content") or delta.get("refusal"):
            self._pieces.append(piece)
        for call_part in delta.get("tool_calls") or ():
            call = self._calls.setdefault(call_part.get("index") or 0, {"id": "", "name": "", "arguments": ""})
            function = call_part.get("function") or {}
            call["id"] = call_part.get("id") or call["id"]
            call["name"] = function.get("name") or call["name"]
            call["arguments"] += function.get("arguments") or ""

    def to_reply(self, messages: Sequence[ChatMessage]) -> ChatReply:
        """Return the whole answer.

        messages: the question, to estimate the usage. Raises ModelUnreachable if the answer ended early,
        BadAnswer for a malformed tool call.
        """
        usage = self._count_usage(messages)
        if not self._stop:
            raise make_broken_off_fault(usage)
        calls = tuple(
            ToolCall(call["id"] or f"call_{n}", call["name"], parse_arguments(call["arguments"], self.model, usage))
            for n, call in sorted(self._calls.items())
        )
        stop: StopReason = "refused" if self._is_refused else "tool" if calls else _STOPS.get(self._stop, "end")
        is_reported = self._usage is not None
        return ChatReply("".join(self._pieces), None, calls, usage, self.model, stop, is_usage_reported=is_reported)

    def count_usage(self, messages: Sequence[ChatMessage]) -> TokenUsage | None:
        """Return the usage so far; None before the endpoint took the question."""
        return self._count_usage(messages) if self.has_begun else None

    def _count_usage(self, messages: Sequence[ChatMessage]) -> TokenUsage:
        """Return the usage that the endpoint reports; without a report, an estimate from the texts."""
        if self._usage is None:
            call_texts = (call["name"] + call["arguments"] for call in self._calls.values())
            return estimate_usage(messages, "".join((*self._pieces, *call_texts)))
        details = self._usage.get("prompt_tokens_details") or {}
        n_read, n_written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
        n_prompt = self._usage.get("prompt_tokens") or 0
        return TokenUsage(
            max(0, n_prompt - n_read - n_written), self._usage.get("completion_tokens") or 0, n_read, n_written
        )


def import_sdk(name: str) -> ModuleType:
    """Import a provider's SDK now. Raises RuntimeMissing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RuntimeMissing(f"pip install 'perdure[{name}]'") from error


class OpenAIChat:
    """One model at one endpoint. It holds no connection between calls."""

    def __init__(self, settings: ModelSettings) -> None:
        """Store the settings; nothing is loaded and nothing is sent yet."""
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
        """Return the model's answer; see `Chat.reply`."""
        completion = PartialCompletion(self._settings.model)
        request = {**build_request(messages, schema, tools), **self._build_options()}
        limit_s = self._settings.timeout_s if timeout_s is None else timeout_s
        sdk_calls.deliver_text(
            self._stream_text(request, completion, limit_s), on_text, lambda: completion.count_usage(messages)
        )
        return check_reply(completion.to_reply(messages), schema)

    def _build_options(self) -> dict[str, Any]:
        """Return the model and its limits in the terms of this API."""
        settings, effort = self._settings, self._settings.effort
        if settings.thinking == "off":
            effort = "none"
        # OpenAI refuses the old word for its newer models; many others know only that one.
        limit_name = "max_completion_tokens" if settings.url.hostname == "api.openai.com" else "max_tokens"
        options: dict[str, Any] = {"model": settings.model, limit_name: settings.max_output_tokens}
        return {**options, "reasoning_effort": effort} if effort else options

    def _stream_text(self, request: dict[str, Any], completion: PartialCompletion, limit_s: float) -> Generator[str]:
        """Yield the answer's text as it arrives, and add every chunk to `completion`."""
        openai, deadline, settings = import_sdk("openai"), sdk_calls.start_deadline(limit_s), self._settings
        credential = {"authorization": f"Bearer {settings.key}"} if settings.key else {}
        host = str(settings.url.hostname)
        with (
            sdk_calls.map_faults(openai, host, settings.key, deadline),
            sdk_calls.open_client(settings.url, credential, deadline) as http,
        ):
            client = openai.OpenAI(
                api_key=settings.key or "none",
                base_url=settings.url.geturl(),
                http_client=http,
                max_retries=sdk_calls.count_retries(limit_s),
                timeout=limit_s,
            )
            with client.chat.completions.create(**request) as chunks:
                completion.has_begun = True
                yield from sdk_calls.read_pieces(chunks, lambda c: completion.take(c.model_dump(warnings=False)), host)
