"""Chat with Anthropic's API through its official SDK, which is imported only inside the call.

Tools and system prompt, which stay the same from call to call, are marked for the provider's prompt
cache, and so is a conversation that continues. Thinking is adaptive: past thoughts need not be sent
back, and are not kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

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
    make_broken_off_fault,
    parse_arguments,
)
from perdure.models.openai_chat import import_sdk
from perdure.models.settings import ModelSettings

_CACHE_MARK = {"cache_control": {"type": "ephemeral"}}
_THINKING = {"on": {"type": "adaptive"}, "off": {"type": "disabled"}}
_STOPS: Mapping[str, StopReason] = {
    "max_tokens": "length", "model_context_window_exceeded": "length", "tool_use": "tool", "refusal": "refused",
}  # fmt: skip

Json = dict[str, Any]


class AnthropicChat:
    """One of Anthropic's models. It holds no connection between calls."""

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
        anthropic, partial = import_sdk("anthropic"), _PartialMessage(self._settings.model)
        answer_format = anthropic.transform_schema(schema) if schema is not None else None
        request = {**_build_request(messages, tools), **self._build_options(answer_format)}
        limit_s = self._settings.timeout_s if timeout_s is None else timeout_s
        sdk_calls.deliver_text(
            self._stream_text(anthropic, request, partial, limit_s), on_text, lambda: partial.count_usage(messages)
        )
        return check_reply(partial.to_reply(messages), schema)

    def _build_options(self, answer_format: Json | None) -> Json:
        """Return the model and its limits in the terms of this API."""
        settings = self._settings
        options: Json = {"model": settings.model, "max_tokens": settings.max_output_tokens, "stream": True}
        if settings.thinking:
            options["thinking"] = _THINKING[settings.thinking]
        output: Json = {"effort": settings.effort} if settings.effort else {}
        if answer_format is not None:
            output["format"] = {"type": "json_schema", "schema": answer_format}
        return {**options, "output_config": output} if output else options

    def _stream_text(
        self, anthropic: ModuleType, request: Json, partial: _PartialMessage, limit_s: float
    ) -> Generator[str]:
        """Yield the answer's text as it arrives, and add every event to `partial`."""
        deadline, settings = sdk_calls.start_deadline(limit_s), self._settings
        credential = {"x-api-key": settings.key} if settings.key else {}
        host = str(settings.url.hostname)
        with (
            sdk_calls.map_faults(anthropic, host, settings.key, deadline),
            sdk_calls.open_client(settings.url, credential, deadline) as http,
        ):
            client = anthropic.Anthropic(
                api_key=settings.key or "none",
                base_url=settings.url.geturl(),
                http_client=http,
                max_retries=sdk_calls.count_retries(limit_s),
                timeout=limit_s,
                open_telemetry=False,
            )
            with client.messages.create(**request) as events:
                partial.has_begun = True
                yield from sdk_calls.read_pieces(events, partial.take, host)


def _build_request(messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Json:
    """Return the content of a request, without the model and its limits."""
    system = "\n\n".join(message.text for message in messages if message.role == "system")
    turns = _to_turns([message for message in messages if message.role != "system"])
    if turns and any(message.role == "assistant" for message in messages):
        turns[-1]["content"][-1].update(_CACHE_MARK)
    request: Json = {"messages": turns}
    if system:
        request["system"] = [{"type": "text", "text": system, **_CACHE_MARK}]
    if tools:
        request["tools"] = [{"name": t.name, "description": t.description, "input_schema": t.schema} for t in tools]
        if not system:
            request["tools"][-1].update(_CACHE_MARK)
    return request


def _to_turns(messages: Sequence[ChatMessage]) -> list[Json]:
    """Convert messages to the turns of this API.

    A tool's result belongs to a user turn; all results for one turn go into one message.
    """
    turns: list[Json] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += _to_blocks(message)
        else:
            turns.append({"role": role, "content": _to_blocks(message)})
    return [turn for turn in turns if turn["content"]]


def _to_blocks(message: ChatMessage) -> list[Json]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}]
    text_blocks = (
        [{"type": "text", "text": message.text}] if message.text.strip() else []
    )  # the API refuses an empty block
    return [*text_blocks, *({"type": "tool_use", "id": c.id, "name": c.name, "input": c.input} for c in message.calls)]


@dataclass
class _PartialMessage:
    """An answer that is still arriving."""

    model: str
    has_begun: bool = False  # True after the endpoint took the question
    _pieces: list[str] = field(default_factory=list)
    _calls: dict[int, list[str]] = field(default_factory=dict)  # index -> [id, name, JSON of the input]
    _usage: dict[str, int] = field(default_factory=dict)
    _stop: str = ""

    def take(self, event: Any) -> str:
        """Add one event, and return the text in it; skip the events that carry nothing we need."""
        if event.type == "message_start":
            self.model = event.message.model or self.model
            self._add_counts(event.message.usage)
        elif event.type == "content_block_start" and event.content_block.type == "tool_use":
            self._calls[event.index] = [event.content_block.id, event.content_block.name, ""]
        elif event.type == "content_block_delta":
            return self._add_delta(event)
        elif event.type == "message_delta":
            self._stop = event.delta.stop_reason or self._stop
            self._add_counts(event.usage)
        return ""

    def _add_delta(self, event: Any) -> str:
        if event.delta.type == "text_delta":
            self._pieces.append(event.delta.text)
            return str(event.delta.text)
        if event.delta.type == "input_json_delta":
            self._calls[event.index][2] += event.delta.partial_json
        return ""

    def _add_counts(self, usage: Any) -> None:
        """Keep the newest counts: those at the end of an answer cover all of it."""
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            if (n := getattr(usage, name, None)) is not None:
                self._usage[name] = n

    def count_usage(self, messages: Sequence[ChatMessage]) -> TokenUsage | None:
        """Return the usage so far; None before the endpoint took the question."""
        return self._count_usage(messages) if self.has_begun else None

    def _count_usage(self, messages: Sequence[ChatMessage]) -> TokenUsage:
        """Return the usage that the endpoint reports.

        Before its end it reports little of the output, so the text that arrived is counted instead.
        """
        counts, estimate = (
            self._usage,
            estimate_usage(messages, "".join((*self._pieces, *(raw_json for *_, raw_json in self._calls.values())))),
        )
        if not counts:
            return estimate
        n_output = counts.get("output_tokens", 0)
        return TokenUsage(
            counts.get("input_tokens", 0),
            n_output if self._stop else max(n_output, estimate.n_output),
            counts.get("cache_read_input_tokens", 0),
            counts.get("cache_creation_input_tokens", 0),
        )

    def to_reply(self, messages: Sequence[ChatMessage]) -> ChatReply:
        """Return the whole answer. Raises ModelUnreachable if it ended early, BadAnswer for a malformed tool call."""
        usage = self._count_usage(messages)
        if not self._stop:
            raise make_broken_off_fault(usage)
        calls = tuple(
            ToolCall(call_id, name, parse_arguments(raw_json, self.model, usage))
            for call_id, name, raw_json in self._calls.values()
        )
        text, stop = "".join(self._pieces), _STOPS.get(self._stop, "end")
        return ChatReply(text, None, calls, usage, self.model, stop, is_usage_reported=bool(self._usage))
