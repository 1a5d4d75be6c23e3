"""Chat with Anthropic's API through its official SDK, which is imported only inside the call.

Tools and system prompt, which stay the same from call to call, are marked for the provider's prompt cache. In a
conversation that continues, the last two messages of the user's side are marked too, so the marks move along: the
newest writes, and the one before reads even if more than the twenty blocks lie between them in which the provider
looks back. Answers go back as they came, thoughts and signatures included, to the model that wrote them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from perdure.errors import ModelRefused
from perdure.models import sdk_calls
from perdure.models.cancel import CallSockets
from perdure.models.chat import (
    AnswerListener,
    AnswerPiece,
    ChatMessage,
    ChatReply,
    NativeBlocks,
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
        self._provider = f"{settings.endpoint}/{settings.model}"  # a model reads only thoughts that it signed
        self.name = settings.name
        self.window_tokens = settings.window_tokens

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
        """Return the model's answer; see `Chat.reply`.

        If the provider refuses thoughts that it wrote itself, because something before them changed, it is asked again
        without them.
        """
        listener, question = AnswerListener(on_text, on_thought, cancel), _Question(messages, schema, tools, timeout_s)
        try:
            return self._ask(question, listener)
        except ModelRefused as error:
            if "thinking" not in error.detail or not any(message.native for message in messages):
                raise
        plain_messages = [replace(message, native=None) for message in messages]
        return self._ask(replace(question, messages=plain_messages), listener)

    def _ask(self, question: _Question, listener: AnswerListener) -> ChatReply:
        anthropic, partial = import_sdk("anthropic"), _PartialMessage(self._settings.model)
        answer_format = anthropic.transform_schema(question.schema) if question.schema is not None else None
        request = {
            **_build_request(question.messages, question.tools, self._provider),
            **self._build_options(answer_format, shows_thoughts=listener.on_thought is not None),
        }
        limit_s = self._settings.timeout_s if question.timeout_s is None else question.timeout_s
        sdk_calls.deliver_answer(
            lambda sockets: self._stream_pieces(anthropic, request, partial, (limit_s, sockets)),
            listener,
            lambda: partial.count_usage(question.messages),
        )
        return check_reply(partial.to_reply(question.messages, self._provider), question.schema)

    def _build_options(self, answer_format: Json | None, *, shows_thoughts: bool) -> Json:
        """Return the model and its limits in the terms of this API."""
        settings = self._settings
        options: Json = {"model": settings.model, "max_tokens": settings.max_output_tokens, "stream": True}
        if settings.thinking:
            options["thinking"] = dict(_THINKING[settings.thinking])
        if settings.thinking == "on" and shows_thoughts:
            options["thinking"]["display"] = "summarized"  # newer models show none unless they are asked to
        output: Json = {"effort": settings.effort} if settings.effort else {}
        if answer_format is not None:
            output["format"] = {"type": "json_schema", "schema": answer_format}
        return {**options, "output_config": output} if output else options

    def _stream_pieces(
        self,
        anthropic: ModuleType,
        request: Json,
        partial: _PartialMessage,
        limits: tuple[float, CallSockets | None],
    ) -> Generator[AnswerPiece]:
        """Yield the pieces of the answer as they arrive, and add every event to `partial`."""
        limit_s, sockets = limits
        deadline, settings = sdk_calls.start_deadline(limit_s), self._settings
        credential = {"x-api-key": settings.key} if settings.key else {}
        host = str(settings.url.hostname)
        with (
            sdk_calls.map_faults(anthropic, host, settings.key, deadline),
            sdk_calls.open_client(settings.url, credential, deadline, sockets) as http,
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


@dataclass(frozen=True)
class _Question:
    messages: Sequence[ChatMessage]
    schema: Json | None
    tools: Sequence[ToolSpec]
    timeout_s: float | None


def _build_request(messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], provider: str) -> Json:
    """Return the content of a request, without the model and its limits. provider: whose native blocks are sent."""
    system = "\n\n".join(message.text for message in messages if message.role == "system")
    turns = _to_turns([message for message in messages if message.role != "system"], provider)
    if any(turn["role"] == "assistant" for turn in turns):
        for turn in [turn for turn in turns if turn["role"] == "user"][-2:]:
            turn["content"][-1] = {**turn["content"][-1], **_CACHE_MARK}
    request: Json = {"messages": turns}
    if system:
        request["system"] = [{"type": "text", "text": system, **_CACHE_MARK}]
    if tools:
        request["tools"] = [{"name": t.name, "description": t.description, "input_schema": t.schema} for t in tools]
        if not system:
            request["tools"][-1].update(_CACHE_MARK)
    return request


def _to_turns(messages: Sequence[ChatMessage], provider: str) -> list[Json]:
    """Convert messages to the turns of this API, in which users and assistants alternate.

    A tool's result belongs to a user turn; all results for one turn go into one message.
    """
    turns: list[Json] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _to_blocks(message, provider)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _to_blocks(message: ChatMessage, provider: str) -> list[Json]:
    """Return the blocks of a message, which are new; the API refuses a text without a visible character."""
    if message.native is not None and message.native.provider == provider:
        return [dict(block) for block in message.native.blocks]
    images = [
        {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}
        for image in message.images
    ]
    text_blocks = [{"type": "text", "text": message.text}] if message.text.strip() else []
    if message.role != "tool":
        calls = ({"type": "tool_use", "id": _clean_id(c.id), "name": c.name, "input": c.input} for c in message.calls)
        return [*text_blocks, *images, *calls]
    result: Json = {"type": "tool_result", "tool_use_id": _clean_id(message.call_id)}
    result["content"] = [*text_blocks, *images] if images else message.text
    return [{**result, "is_error": True} if message.is_error else result]


def _clean_id(call_id: str) -> str:
    """Return the id of a call in the letters that this API takes: other providers use more."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call_id)


@dataclass
class _PartialMessage:
    """An answer that is still arriving."""

    model: str
    has_begun: bool = False  # True after the endpoint took the question
    _blocks: dict[int, Json] = field(default_factory=dict)  # index -> the block as it came
    _raw_inputs: dict[int, str] = field(default_factory=dict)  # index of a call -> JSON of its input
    _usage: dict[str, int] = field(default_factory=dict)
    _stop: str = ""

    def take(self, event: Any) -> list[AnswerPiece]:
        """Add one event, and return the pieces in it; skip the events that carry nothing we need."""
        if event.type == "message_start":
            self.model = event.message.model or self.model
            self._add_counts(event.message.usage)
        elif event.type == "content_block_start":
            self._blocks[event.index] = event.content_block.to_dict()
        elif event.type == "content_block_delta":
            return self._add_delta(event)
        elif event.type == "message_delta":
            self._stop = event.delta.stop_reason or self._stop
            self._add_counts(event.usage)
        return []

    def _add_delta(self, event: Any) -> list[AnswerPiece]:
        block, delta = self._blocks[event.index], event.delta
        if delta.type == "text_delta":
            block["text"] += delta.text
            return [AnswerPiece(delta.text)]
        if delta.type == "thinking_delta":
            block["thinking"] += delta.thinking
            return [AnswerPiece(delta.thinking, is_thought=True)]
        if delta.type == "signature_delta":
            block["signature"] = delta.signature
        elif delta.type == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.citation.to_dict()]
        elif delta.type == "input_json_delta":
            self._raw_inputs[event.index] = self._raw_inputs.get(event.index, "") + delta.partial_json
        return []

    def _add_counts(self, usage: Any) -> None:
        """Keep the newest counts: those at the end of an answer cover all of it."""
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            if (n := getattr(usage, name, None)) is not None:
                self._usage[name] = n

    def _join(self, kind: str) -> str:
        """Return the text of all blocks of a kind, "text" or "thinking"."""
        return "".join(block[kind] for block in self._blocks.values() if block["type"] == kind)

    def count_usage(self, messages: Sequence[ChatMessage]) -> TokenUsage | None:
        """Return the usage so far; None before the endpoint took the question."""
        return self._count_usage(messages) if self.has_begun else None

    def _count_usage(self, messages: Sequence[ChatMessage]) -> TokenUsage:
        """Return the usage that the endpoint reports.

        Before its end it reports little of the output, so the text that arrived is counted instead.
        """
        counts = self._usage
        answer_text = "".join((self._join("thinking"), self._join("text"), *self._raw_inputs.values()))
        estimate = estimate_usage(messages, answer_text)
        if not counts:
            return estimate
        n_output = counts.get("output_tokens", 0)
        return TokenUsage(
            counts.get("input_tokens", 0),
            n_output if self._stop else max(n_output, estimate.n_output),
            counts.get("cache_read_input_tokens", 0),
            counts.get("cache_creation_input_tokens", 0),
        )

    def to_reply(self, messages: Sequence[ChatMessage], provider: str) -> ChatReply:
        """Return the whole answer. Raises ModelUnreachable if it ended early."""
        usage = self._count_usage(messages)
        if not self._stop:
            raise make_broken_off_fault(usage)
        stop = _STOPS.get(self._stop, "end")
        blocks = self._list_sendable_blocks(is_cut=stop == "length")
        calls = tuple(ToolCall(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use")
        text = self._join("text")
        is_plain = blocks == _to_blocks(ChatMessage("assistant", text, calls), provider)
        return ChatReply(
            text,
            None,
            calls,
            usage,
            self.model,
            stop,
            is_usage_reported=bool(self._usage),
            native=None if is_plain else NativeBlocks(provider, tuple(blocks)),
            thought=self._join("thinking"),
        )

    def _list_sendable_blocks(self, *, is_cut: bool) -> list[Json]:
        """Return the blocks that can be sent back, with the inputs of their calls.

        Without blank texts, which the API refuses, and of an answer that was cut off without its calls, the last of
        which may be incomplete, and without the thought that has no signature yet.
        """
        blocks = []
        for index, block in sorted(self._blocks.items()):
            is_blank = block["type"] == "text" and not block["text"].strip()
            is_unsigned = block["type"] == "thinking" and not block.get("signature")
            if is_blank or (is_cut and (is_unsigned or block["type"] == "tool_use")):
                continue
            if block["type"] == "tool_use" and index in self._raw_inputs:
                block = {**block, "input": parse_arguments(self._raw_inputs[index])}
            blocks.append(block)
        return blocks
