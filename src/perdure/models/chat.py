"""The socket `Chat`: messages and tools in, an answer out, bound to a schema where one is given.

An answer is somebody else's text. Where a schema was given it is parsed and checked here, whatever its provider
promised, and one that does not keep the schema is a BadAnswer: nothing of it reaches the caller. Nothing here asks
anybody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from perdure import text as texts
from perdure.errors import BadAnswer, ModelUnreachable
from perdure.models.schema import violation

Stop = Literal["end", "length", "tool", "refused"]


@dataclass(frozen=True)
class Call:
    """A tool call that a model asks for."""

    id: str  # the provider's; the tool's answer names it
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True)
class Message:
    """One message of what a model is to read."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    calls: tuple[Call, ...] = ()  # of an assistant
    call_id: str = ""  # of a tool: which call this answers


@dataclass(frozen=True)
class Tool:
    """What a model may ask to be done."""

    name: str
    description: str
    schema: Mapping[str, Any]  # of its input, an object


@dataclass(frozen=True)
class Usage:
    """Tokens of one call. What was read of it: n_input + n_cache_read + n_cache_write."""

    n_input: int = 0  # read anew, neither from the provider's cache nor into it
    n_output: int = 0  # written, thoughts included
    n_cache_read: int = 0
    n_cache_write: int = 0

    @property
    def n_tokens(self) -> int:
        """All of them."""
        return self.n_input + self.n_output + self.n_cache_read + self.n_cache_write


@dataclass(frozen=True)
class Reply:
    """What a model answered."""

    text: str  # as it came; with a schema, the JSON
    value: Any | None = None  # with a schema: the answer, parsed and checked; None when it asks for tools instead
    calls: tuple[Call, ...] = ()
    usage: Usage = field(default_factory=Usage)
    model: str = ""  # the name that the provider says
    stop: Stop = "end"


class Chat(Protocol):
    """A model that answers messages."""

    @property
    def name(self) -> str:
        """The model, "provider:model"."""
        ...

    def reply(
        self,
        messages: Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        tools: Sequence[Tool] = (),
        on_text: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """The answer, within timeout_s (the model's own limit unless given). on_text gets its text piece by piece.

        With a schema, `value` keeps it. Raises ModelFault: ModelUnreachable, ModelBusy, ModelLate, ModelRefused,
        BadAnswer.
        """
        ...


def checked(reply: Reply, schema: Mapping[str, Any] | None) -> Reply:
    """Return the reply with its value, where a schema was given. Raises BadAnswer, with what the call cost."""
    if schema is None or reply.stop == "tool":
        return reply
    try:
        return Reply(reply.text, _value(reply, schema), reply.calls, reply.usage, reply.model, reply.stop)
    except BadAnswer as error:
        error.usage = reply.usage
        raise


def estimated(asked: Sequence[Message], written: str) -> Usage:
    """Return about what a call cost, from its texts: where the provider does not say."""
    return Usage(sum(texts.tokens(message.text) for message in asked), texts.tokens(written))


def broken_off(usage: Usage) -> ModelUnreachable:
    """Return what to raise for an answer without an end, with what it cost all the same."""
    error = ModelUnreachable("the answer broke off")
    error.usage = usage
    return error


_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


def _value(reply: Reply, schema: Mapping[str, Any]) -> Any:
    if reply.stop != "end":
        why = "it would not answer" if reply.stop == "refused" else "the answer was cut off at its greatest length"
        raise BadAnswer(f"{reply.model}: {why}")
    try:
        value = json.loads(bare(reply.text), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"{reply.model}: the answer is no JSON") from error
    if broken := violation(value, schema):
        raise BadAnswer(f"{reply.model}: {broken}")
    return value


def _no_number(word: str) -> Any:
    raise ValueError(word)  # NaN and Infinity, which Python takes and JSON does not have


def bare(text: str) -> str:
    """Return an answer without the thoughts before it and the code fence around it, which open models often add.

    >>> bare('<think>hm</think> ```json\\n{"a": 1}\\n```')
    '{"a": 1}'
    """
    text = _THOUGHT.sub("", text).strip()
    fenced = re.fullmatch(r"```(?:json)?\s*\n(.*)\n\s*```", text, re.DOTALL)
    return fenced[1] if fenced else text


def arguments(raw: str, model: str, usage: Usage) -> dict[str, Any]:
    """Return the input of a tool call from its JSON. Raises BadAnswer, with what the call cost."""
    try:
        found = json.loads(raw or "{}")
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    error = BadAnswer(f"{model}: a tool call whose input is no JSON object")
    error.usage = usage
    raise error
