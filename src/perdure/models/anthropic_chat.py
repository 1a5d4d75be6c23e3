"""Chat with Anthropic's API, by its official SDK, which is imported inside the call only.

What stays the same from call to call (tools and system prompt) is marked for the provider's prompt cache, and so is a
conversation that goes on. Thinking is adaptive: past thoughts need not be sent back, and are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from perdure.models import guarded
from perdure.models.chat import (
    Call,
    Message,
    Reply,
    Stop,
    Tool,
    Usage,
    arguments,
    broken_off,
    checked,
    estimated,
)
from perdure.models.openai_chat import sdk
from perdure.models.settings import Settings

_KEPT = {"cache_control": {"type": "ephemeral"}}
_THINKING = {"on": {"type": "adaptive"}, "off": {"type": "disabled"}}
_STOPS: Mapping[str, Stop] = {
    "max_tokens": "length", "model_context_window_exceeded": "length", "tool_use": "tool", "refusal": "refused",
}  # fmt: skip

Json = dict[str, Any]


class AnthropicChat:
    """One model of Anthropic's. It holds no connection between calls."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is loaded and nothing asked yet."""
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
        """As the socket says."""
        anthropic, found = sdk("anthropic"), _Gathered(self._settings.model)
        form = anthropic.transform_schema(schema) if schema is not None else None
        body = {**_body(messages, tools), **self._how(form)}
        limit_s = self._settings.timeout_s if timeout_s is None else timeout_s
        guarded.tell(self._pieces(anthropic, body, found, limit_s), on_text, lambda: found.spent(messages))
        return checked(found.reply(messages), schema)

    def _how(self, form: Json | None) -> Json:
        """The model and its limits, in the words of this API."""
        said = self._settings
        found: Json = {"model": said.model, "max_tokens": said.max_output_tokens, "stream": True}
        if said.thinking:
            found["thinking"] = _THINKING[said.thinking]
        output: Json = {"effort": said.effort} if said.effort else {}
        if form is not None:
            output["format"] = {"type": "json_schema", "schema": form}
        return {**found, "output_config": output} if output else found

    def _pieces(self, anthropic: ModuleType, body: Json, found: _Gathered, limit_s: float) -> Generator[str]:
        """The answer's text as it comes in; all of the answer goes into `found`."""
        deadline, said = guarded.within(limit_s), self._settings
        credential = {"x-api-key": said.key} if said.key else {}
        host = str(said.url.hostname)
        with (
            guarded.faults(anthropic, host, said.key, deadline),
            guarded.client(said.url, credential, deadline) as http,
        ):
            client = anthropic.Anthropic(
                api_key=said.key or "none", base_url=said.url.geturl(), http_client=http,
                max_retries=guarded.retries(limit_s), timeout=limit_s, open_telemetry=False,
            )  # fmt: skip
            with client.messages.create(**body) as events:
                found.has_begun = True
                yield from guarded.pieces(events, found.take, host)


def _body(messages: Sequence[Message], tools: Sequence[Tool]) -> Json:
    """What a request says, without the model and its limits."""
    system = "\n\n".join(message.text for message in messages if message.role == "system")
    turns = _turns([message for message in messages if message.role != "system"])
    if turns and any(message.role == "assistant" for message in messages):
        turns[-1]["content"][-1].update(_KEPT)
    found: Json = {"messages": turns}
    if system:
        found["system"] = [{"type": "text", "text": system, **_KEPT}]
    if tools:
        found["tools"] = [{"name": t.name, "description": t.description, "input_schema": t.schema} for t in tools]
        if not system:
            found["tools"][-1].update(_KEPT)
    return found


def _turns(messages: Sequence[Message]) -> list[Json]:
    """Messages as this API wants them: what tools answered is a user's, all answers to one turn in one message."""
    turns: list[Json] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += _blocks(message)
        else:
            turns.append({"role": role, "content": _blocks(message)})
    return [turn for turn in turns if turn["content"]]


def _blocks(message: Message) -> list[Json]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.call_id, "content": message.text}]
    said = [{"type": "text", "text": message.text}] if message.text.strip() else []  # an empty one is refused
    return [*said, *({"type": "tool_use", "id": c.id, "name": c.name, "input": c.input} for c in message.calls)]


@dataclass
class _Gathered:
    """An answer that is coming in."""

    model: str
    has_begun: bool = False  # whether the endpoint took the question
    _pieces: list[str] = field(default_factory=list)
    _calls: dict[int, list[str]] = field(default_factory=dict)  # index -> [id, name, JSON of the input]
    _usage: dict[str, int] = field(default_factory=dict)
    _stop: str = ""

    def take(self, event: Any) -> str:
        """Add one event, and return the text that it brought; those that say nothing here are passed over."""
        if event.type == "message_start":
            self.model = event.message.model or self.model
            self._count(event.message.usage)
        elif event.type == "content_block_start" and event.content_block.type == "tool_use":
            self._calls[event.index] = [event.content_block.id, event.content_block.name, ""]
        elif event.type == "content_block_delta":
            return self._take(event)
        elif event.type == "message_delta":
            self._stop = event.delta.stop_reason or self._stop
            self._count(event.usage)
        return ""

    def _take(self, event: Any) -> str:
        if event.delta.type == "text_delta":
            self._pieces.append(event.delta.text)
            return str(event.delta.text)
        if event.delta.type == "input_json_delta":
            self._calls[event.index][2] += event.delta.partial_json
        return ""

    def _count(self, usage: Any) -> None:
        """Keep the newest counts: those at an answer's end hold for the whole of it."""
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            if (n := getattr(usage, name, None)) is not None:
                self._usage[name] = n

    def spent(self, asked: Sequence[Message]) -> Usage | None:
        """What it has cost so far; None before it has begun."""
        return self._spent(asked) if self.has_begun else None

    def _spent(self, asked: Sequence[Message]) -> Usage:
        """What the endpoint says; before the end it says little of what was written, which counts as it came."""
        n, about = self._usage, estimated(asked, "".join((*self._pieces, *(raw for *_, raw in self._calls.values()))))
        if not n:
            return about
        n_said = n.get("output_tokens", 0)
        return Usage(
            n.get("input_tokens", 0), n_said if self._stop else max(n_said, about.n_output),
            n.get("cache_read_input_tokens", 0), n.get("cache_creation_input_tokens", 0),
        )  # fmt: skip

    def reply(self, asked: Sequence[Message]) -> Reply:
        """The whole. Raises ModelUnreachable when it broke off, BadAnswer for a tool call that is none."""
        usage = self._spent(asked)
        if not self._stop:
            raise broken_off(usage)
        calls = tuple(Call(i, name, arguments(raw, self.model, usage)) for i, name, raw in self._calls.values())
        return Reply("".join(self._pieces), None, calls, usage, self.model, _STOPS.get(self._stop, "end"))
