"""The form of OpenAI's Chat Completions: what is asked, and what comes back piece by piece. Pure.

OpenAI, Ollama, vLLM, llama.cpp and most gateways speak it; so does a local GGUF.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.models.chat import Call, Message, Reply, Stop, Tool, Usage, arguments, broken_off, estimated
from perdure.models.schema import is_closed

Json = dict[str, Any]

_STOPS: Mapping[str, Stop] = {
    "stop": "end", "length": "length", "tool_calls": "tool", "function_call": "tool", "content_filter": "refused",
}  # fmt: skip


def body(messages: Sequence[Message], schema: Mapping[str, Any] | None, tools: Sequence[Tool]) -> Json:
    """Return what a request says, without the model and its limits."""
    found: Json = {
        "messages": [_message(one) for one in messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if schema is not None:
        form = {"name": "answer", "schema": schema, "strict": is_closed(schema)}
        found["response_format"] = {"type": "json_schema", "json_schema": form}
    if tools:
        found["tools"] = [
            {"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.schema}}
            for t in tools
        ]
    return found


def _message(message: Message) -> Json:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    found: Json = {"role": message.role, "content": message.text}
    if message.calls:
        found["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.input)}}
            for c in message.calls
        ]
    return found


@dataclass
class Gathered:
    """An answer that is coming in."""

    model: str = ""
    has_begun: bool = False  # whether the endpoint took the question
    _pieces: list[str] = field(default_factory=list)
    _calls: dict[int, Json] = field(default_factory=dict)
    _usage: Json | None = None
    _stop: str = ""
    _refused: bool = False

    def take(self, chunk: Mapping[str, Any]) -> str:
        """Add one chunk; returns the text that it brought."""
        n_before = len(self._pieces)
        self.model = chunk.get("model") or self.model
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            self._stop = choice.get("finish_reason") or self._stop
            self._take(choice.get("delta") or {})
        return "".join(self._pieces[n_before:])

    def _take(self, delta: Mapping[str, Any]) -> None:
        self._refused = self._refused or bool(delta.get("refusal"))
        if piece := delta.get("content") or delta.get("refusal"):
            self._pieces.append(piece)
        for part in delta.get("tool_calls") or ():
            call = self._calls.setdefault(part.get("index") or 0, {"id": "", "name": "", "arguments": ""})
            said = part.get("function") or {}
            call["id"] = part.get("id") or call["id"]
            call["name"] = said.get("name") or call["name"]
            call["arguments"] += said.get("arguments") or ""

    def reply(self, asked: Sequence[Message]) -> Reply:
        """The whole. Raises ModelUnreachable when it broke off, BadAnswer for a tool call that is none."""
        usage = self._spent(asked)
        if not self._stop:
            raise broken_off(usage)
        calls = tuple(
            Call(call["id"] or f"call_{n}", call["name"], arguments(call["arguments"], self.model, usage))
            for n, call in sorted(self._calls.items())
        )
        stop: Stop = "refused" if self._refused else "tool" if calls else _STOPS.get(self._stop, "end")
        return Reply("".join(self._pieces), None, calls, usage, self.model, stop)

    def spent(self, asked: Sequence[Message]) -> Usage | None:
        """What it has cost so far; None before it has begun."""
        return self._spent(asked) if self.has_begun else None

    def _spent(self, asked: Sequence[Message]) -> Usage:
        """What the endpoint says; where it says nothing, about as much as the texts hold."""
        if self._usage is None:
            called = (call["name"] + call["arguments"] for call in self._calls.values())
            return estimated(asked, "".join((*self._pieces, *called)))
        details = self._usage.get("prompt_tokens_details") or {}
        n_read, n_written = details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0
        n_prompt = self._usage.get("prompt_tokens") or 0
        return Usage(
            max(0, n_prompt - n_read - n_written), self._usage.get("completion_tokens") or 0, n_read, n_written
        )
