"""Chat with any endpoint that follows OpenAI's API, through OpenAI's official SDK, imported only inside
the call.

Requests and answers have the form of Chat Completions. OpenAI, Ollama, vLLM, llama.cpp and most
gateways use it, and so does a local GGUF file. Building a request and collecting an answer are pure.
"""

from __future__ import annotations

import importlib
import json
import secrets
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from perdure.errors import RuntimeMissing
from perdure.models import sdk_calls
from perdure.models.cancel import CallSockets
from perdure.models.chat import (
    TOO_LARGE,
    UNREADABLE,
    AnswerListener,
    AnswerPiece,
    ChatMessage,
    ChatReply,
    MessageImage,
    NativeBlocks,
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


def build_request(
    messages: Sequence[ChatMessage], schema: Mapping[str, Any] | None, tools: Sequence[ToolSpec], provider: str
) -> Json:
    """Return the content of a request, without the model and its limits. provider: whose native blocks are sent."""
    request: Json = {
        "messages": [_to_openai_message(message, provider) for message in _order_messages(messages, provider)],
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


def _order_messages(messages: Sequence[ChatMessage], provider: str) -> list[ChatMessage]:
    """Return the messages in an order that strict chat templates take: users and assistants alternate.

    Two messages of a user become one, an empty answer is left out. The images of tools follow their results in a
    user's message, because a tool's message takes text only in this API.
    """
    ordered: list[ChatMessage] = []
    tool_images: list[MessageImage] = []
    for message in messages:
        if message.role == "assistant" and message.is_blank_for(provider):
            continue
        if message.role != "tool" and tool_images:
            _append_message(ordered, _make_image_message(tool_images))
            tool_images.clear()
        if message.role == "tool":
            tool_images += message.images
        _append_message(ordered, message)
    if tool_images:
        _append_message(ordered, _make_image_message(tool_images))
    return ordered


def _make_image_message(images: Sequence[MessageImage]) -> ChatMessage:
    return ChatMessage("user", "Images of the tool results above:", images=tuple(images))


def _append_message(ordered: list[ChatMessage], message: ChatMessage) -> None:
    previous = ordered[-1] if ordered else None
    if message.role == "user" and previous is not None and previous.role == "user":
        texts = [text for text in (previous.text, message.text) if text.strip()]
        ordered[-1] = replace(previous, text="\n\n".join(texts), images=previous.images + message.images)
    else:
        ordered.append(message)


def _to_openai_message(message: ChatMessage, provider: str) -> Json:
    if message.native is not None and message.native.provider == provider:
        return dict(message.native.blocks[0])
    if message.role == "tool":
        content = f"Error: {message.text}" if message.is_error else message.text
        return {"role": "tool", "tool_call_id": message.call_id, "content": content}
    json_message: Json = {"role": message.role, "content": message.text}
    if message.images:
        text_parts = [{"type": "text", "text": message.text}] if message.text.strip() else []
        urls = [f"data:{image.media_type};base64,{image.data}" for image in message.images]
        json_message["content"] = [*text_parts, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]
    if message.calls:
        if provider.endswith("deepseek.com"):
            json_message["reasoning_content"] = ""  # demanded with each call, also with one of another model
        json_message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.input)}}
            for c in message.calls
        ]
    return json_message


_PART_THOUGHT = "content_thought"  # our own name: Mistral puts thoughts among the parts of the content
_THOUGHT_FIELDS = ("reasoning_content", "reasoning", _PART_THOUGHT)  # the same in the words of different endpoints
_CALL_FIELDS = {"index", "id", "type", "function"}


@dataclass
class PartialCompletion:
    """An answer that is still arriving."""

    model: str = ""
    has_begun: bool = False  # True after the endpoint took the question
    _pieces: list[str] = field(default_factory=list)
    _thoughts: dict[str, str] = field(default_factory=dict)  # name of the field -> its text
    _thought_details: list[Json] = field(default_factory=list)  # `reasoning_details` of OpenRouter
    _calls: list[Json] = field(default_factory=list)
    _calls_by_index: dict[int, Json] = field(default_factory=dict)  # the newest call of each index
    _usage: Json | None = None
    _stop: str = ""
    _is_refused: bool = False

    def take(self, chunk: Mapping[str, Any]) -> list[AnswerPiece]:
        """Add one chunk, and return the pieces in it."""
        self.model = chunk.get("model") or self.model
        self._usage = chunk.get("usage") or self._usage
        pieces: list[AnswerPiece] = []
        for choice in chunk.get("choices") or ():
            self._stop = choice.get("finish_reason") or self._stop
            delta = _split_content(choice.get("delta") or {})
            thought = self._add_thought(delta)
            text = self._add_delta(delta)
            pieces += [AnswerPiece(thought, is_thought=True)] * bool(thought) + [AnswerPiece(text)] * bool(text)
        return pieces

    def _add_thought(self, delta: Mapping[str, Any]) -> str:
        """Add the thought in a delta, and return its text. A field that is there but empty must be sent back too."""
        details = delta.get("reasoning_details") or ()
        for detail in details:
            _add_detail(self._thought_details, detail)
        thought = ""
        for name in _THOUGHT_FIELDS:
            if name in delta:
                self._thoughts[name] = self._thoughts.get(name, "") + (delta[name] or "")
                thought = thought or delta[name] or ""
        return thought or "".join(detail.get("text") or detail.get("summary") or "" for detail in details)

    def _add_delta(self, delta: Mapping[str, Any]) -> str:
        """Add text and calls of a delta, and return its text."""
        self._is_refused = self._is_refused or bool(delta.get("refusal"))
        piece = str(delta.get("content") or delta.get("refusal") or "")
        self._pieces.append(piece)
        for call_part in delta.get("tool_calls") or ():
            function = call_part.get("function") or {}
            call = self._find_call(call_part, function.get("name") or "")
            call["id"] = call_part.get("id") or call["id"]
            call["name"] = function.get("name") or call["name"]
            call["arguments"] += function.get("arguments") or ""
            extras = {name: value for name, value in call_part.items() if name not in _CALL_FIELDS and value}
            call["extras"] = {**call.get("extras", {}), **extras}  # Gemini keeps the signature of its thought there
        return piece

    def _find_call(self, call_part: Mapping[str, Any], name: str) -> Json:
        """Return the call to which a part belongs. Another id with a name begins a new one: some endpoints give all
        calls the index 0.
        """
        index, call_id = call_part.get("index") or 0, call_part.get("id")
        call = self._calls_by_index.get(index)
        if call is None or (name and call["name"] and call_id and call["id"] not in ("", call_id)):
            call = self._calls_by_index[index] = {"id": "", "name": "", "arguments": ""}
            self._calls.append(call)
        return call

    def to_reply(self, messages: Sequence[ChatMessage], provider: str) -> ChatReply:
        """Return the whole answer.

        messages: the question, to estimate the usage. Raises ModelUnreachable if the answer ended early.
        """
        usage = self._count_usage(messages)
        if not self._stop:
            raise make_broken_off_fault(usage)
        if self._stop == "length":
            self._calls.clear()  # the last one may be incomplete
        calls = tuple(
            ToolCall(self._name_call(n), call["name"], self._read_input(call)) for n, call in enumerate(self._calls)
        )
        stop: StopReason = "refused" if self._is_refused else "tool" if calls else _STOPS.get(self._stop, "end")
        reply = ChatReply("".join(self._pieces), None, calls, usage, self.model, stop)
        return replace(
            reply,
            is_usage_reported=self._usage is not None,
            native=self._make_native(reply, provider),
            thought=self._read_thought(),
        )

    def _name_call(self, n: int) -> str:
        """Return the id of a call; one of our own if the endpoint gave none, or that of an earlier call."""
        call = self._calls[n]
        if call["id"] in ("", *(earlier["id"] for earlier in self._calls[:n])):
            call["id"] = f"call_{secrets.token_hex(8)}"
        return str(call["id"])

    def _read_input(self, call: Json) -> Json:
        """Return the input of a call. One that is not taken is sent back in JSON, which endpoints read again."""
        given = parse_arguments(call["arguments"])
        if UNREADABLE in given or TOO_LARGE in given:
            call["arguments"] = json.dumps(given)
        return given

    def _read_thought(self) -> str:
        thought = next((self._thoughts[name] for name in _THOUGHT_FIELDS if self._thoughts.get(name)), "")
        return thought or "".join(detail.get("text") or detail.get("summary") or "" for detail in self._thought_details)

    def _make_native(self, reply: ChatReply, provider: str) -> NativeBlocks | None:
        """Return the answer as the endpoint wrote it; None if text and calls say all of it, or if there are none."""
        if not (reply.text.strip() or reply.calls):
            return None
        native: Json = {"role": "assistant", "content": reply.text, **self._thoughts}
        if thought := native.pop(_PART_THOUGHT, ""):
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
            native["content"] = [thinking, *([{"type": "text", "text": reply.text}] if reply.text else [])]
        if self._thought_details:
            native["reasoning_details"] = self._thought_details
        if self._calls:
            native["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                    **call["extras"],
                }
                for call in self._calls
            ]
        plain = _to_openai_message(ChatMessage("assistant", reply.text, reply.calls), provider)
        return None if native == plain else NativeBlocks(provider, (native,))

    def count_usage(self, messages: Sequence[ChatMessage]) -> TokenUsage | None:
        """Return the usage so far; None before the endpoint took the question."""
        return self._count_usage(messages) if self.has_begun else None

    def _count_usage(self, messages: Sequence[ChatMessage]) -> TokenUsage:
        """Return the usage that the endpoint reports; without a report, an estimate from the texts."""
        if self._usage is None:
            call_texts = (call["name"] + call["arguments"] for call in self._calls)
            return estimate_usage(messages, "".join((self._read_thought(), *self._pieces, *call_texts)))
        details = self._usage.get("prompt_tokens_details") or {}
        n_read = details.get("cached_tokens") or self._usage.get("prompt_cache_hit_tokens") or 0  # the second: DeepSeek
        n_written = details.get("cache_write_tokens") or 0
        n_prompt = self._usage.get("prompt_tokens") or 0
        return TokenUsage(
            max(0, n_prompt - n_read - n_written), self._usage.get("completion_tokens") or 0, n_read, n_written
        )


def _split_content(delta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a delta whose content is text, with the thoughts among its parts in a field of their own."""
    if not isinstance(delta.get("content"), list):
        return delta
    texts, thoughts = [], []
    for part in delta["content"]:
        if part.get("type") == "thinking":
            thoughts += [inner.get("text") or "" for inner in part.get("thinking") or ()]
        else:
            texts.append(part.get("text") or "")
    return {**delta, "content": "".join(texts), _PART_THOUGHT: "".join(thoughts)}


def _add_detail(details: list[Json], detail: Mapping[str, Any]) -> None:
    """Add one part of `reasoning_details`: a readable text arrives in pieces, an encrypted one whole."""
    last = details[-1] if details else {}
    is_same = all(last.get(name) == detail.get(name) for name in ("type", "index"))
    if not (last and is_same and ("text" in detail or "summary" in detail)):
        details.append(dict(detail))
        return
    for name, value in detail.items():
        if name in ("text", "summary"):
            last[name] = (last.get(name) or "") + (value or "")
        elif value is not None:
            last[name] = value


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
        on_thought: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
        cancel: threading.Event | None = None,
    ) -> ChatReply:
        """Return the model's answer; see `Chat.reply`."""
        completion, settings = PartialCompletion(self._settings.model), self._settings
        request = {**build_request(messages, schema, tools, settings.endpoint), **self._build_options()}
        limit_s = settings.timeout_s if timeout_s is None else timeout_s
        sdk_calls.deliver_answer(
            lambda sockets: self._stream_pieces(request, completion, limit_s, sockets),
            AnswerListener(on_text, on_thought, cancel),
            lambda: completion.count_usage(messages),
        )
        return check_reply(completion.to_reply(messages, settings.endpoint), schema)

    def _build_options(self) -> dict[str, Any]:
        """Return the model and its limits in the terms of this API."""
        settings, effort = self._settings, self._settings.effort
        if settings.thinking == "off":
            effort = "none"
        # OpenAI refuses the old word for its newer models; many others know only that one.
        limit_name = "max_completion_tokens" if settings.url.hostname == "api.openai.com" else "max_tokens"
        options: dict[str, Any] = {"model": settings.model, limit_name: settings.max_output_tokens}
        return {**options, "reasoning_effort": effort} if effort else options

    def _stream_pieces(
        self, request: Json, completion: PartialCompletion, limit_s: float, sockets: CallSockets | None
    ) -> Generator[AnswerPiece]:
        """Yield the pieces of the answer as they arrive, and add every chunk to `completion`."""
        openai, deadline, settings = import_sdk("openai"), sdk_calls.start_deadline(limit_s), self._settings
        credential = {"authorization": f"Bearer {settings.key}"} if settings.key else {}
        host = str(settings.url.hostname)
        with (
            sdk_calls.map_faults(openai, host, settings.key, deadline),
            sdk_calls.open_client(settings.url, credential, deadline, sockets) as http,
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
