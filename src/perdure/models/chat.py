"""The protocol `Chat`: messages and tools go in, an answer comes out, with a JSON schema if the caller
gives one.

An answer is untrusted text. If the caller gave a schema, the answer is parsed and checked here,
whatever its provider promised. An answer that breaks the schema is a BadAnswer: none of it reaches the
caller. The schema check implements a part of JSON Schema. An unknown word in a schema is an error of
its author, because a rule that is silently ignored does not hold. Nothing here contacts a model.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

from perdure import text
from perdure.errors import BadAnswer, ModelUnreachable, UsageError

Schema = Mapping[str, Any]

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int or (type(value) is float and value.is_integer()),
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_LIMITS: Mapping[str, tuple[type | tuple[type, ...], Callable[[Any, Any], bool], str]] = {
    "minLength": (str, lambda value, limit: len(value) >= limit, "shorter than"),
    "maxLength": (str, lambda value, limit: len(value) <= limit, "longer than"),
    "minItems": (list, lambda value, limit: len(value) >= limit, "fewer items than"),
    "maxItems": (list, lambda value, limit: len(value) <= limit, "more items than"),
    "minimum": ((int, float), lambda value, limit: value >= limit, "less than"),
    "maximum": ((int, float), lambda value, limit: value <= limit, "more than"),
    "pattern": (str, lambda value, limit: re.search(limit, value) is not None, "not of the form"),
}
_ANNOTATIONS = (
    "title",
    "description",
    "default",
    "examples",
    "$schema",
)  # words that describe a value and are no rules
_RULES = {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf", *_LIMITS}


def find_violation(value: Any, schema: Schema, *, location: str = "answer") -> str:
    """Return how and in which field a value breaks a schema, or "" if it does not. Raises UsageError for an
    unknown rule.

    >>> find_violation({"port": "80"}, {"type": "object", "properties": {"port": {"type": "integer"}}})
    'answer.port is not of type integer'
    """
    unknown = sorted(set(schema) - _RULES - set(_ANNOTATIONS))
    if unknown:
        raise UsageError(f"the schema of {location} has {unknown[0]!r} (known: {', '.join(sorted(_RULES))})")
    return (
        _check_type(value, schema, location)
        or _check_choice(value, schema, location)
        or _check_limits(value, schema, location)
        or (_check_fields(value, schema, location) if isinstance(value, dict) else "")
        or (_check_items(value, schema, location) if isinstance(value, list) else "")
    )


def _check_type(value: Any, schema: Schema, location: str) -> str:
    rule = schema.get("type")
    names = [rule] if isinstance(rule, str) else rule or []
    return (
        ""
        if not names or any(_TYPES[name](value) for name in names)
        else f"{location} is not of type {' or '.join(names)}"
    )


def _check_choice(value: Any, schema: Schema, location: str) -> str:
    if "const" in schema and not _is_equal(value, schema["const"]):
        return f"{location} is not {schema['const']!r}"
    if "enum" in schema and not any(_is_equal(value, option) for option in schema["enum"]):
        return f"{location} is none of {', '.join(map(repr, schema['enum']))}"
    if "anyOf" not in schema:
        return ""
    problems = [find_violation(value, option, location=location) for option in schema["anyOf"]]
    return problems[0] if all(problems) else ""


def _is_equal(value: Any, expected: Any) -> bool:
    """Return True if two values are equal; true and 1 are not."""
    return bool(value == expected) and isinstance(value, bool) == isinstance(expected, bool)


def _check_limits(value: Any, schema: Schema, location: str) -> str:
    for name, (kind, is_within, complaint) in _LIMITS.items():
        is_limited = isinstance(value, kind) and not isinstance(value, bool)
        if name in schema and is_limited and not is_within(value, schema[name]):
            return f"{location} is {complaint} {schema[name]}"
    return ""


def _check_fields(value: dict[str, Any], schema: Schema, location: str) -> str:
    properties = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{location}.{missing[0]} is missing"
    additional = schema.get("additionalProperties", True)
    for name, item in value.items():
        if name not in properties and additional is False:
            return f"{location}.{name} was not requested"
        rule = properties.get(name, additional)
        if isinstance(rule, dict) and (problem := find_violation(item, rule, location=f"{location}.{name}")):
            return problem
    return ""


def _check_items(value: list[Any], schema: Schema, location: str) -> str:
    rule = schema.get("items")
    problems = (
        (find_violation(item, rule, location=f"{location}[{n}]") for n, item in enumerate(value))
        if isinstance(rule, dict)
        else ()
    )
    return next(filter(None, problems), "")


def is_closed(schema: Schema) -> bool:
    """Return True if every object of a schema requires exactly the fields that it lists, as "strict" decoders
    demand.
    """
    if "properties" in schema and (
        schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(schema["properties"])
    ):
        return False
    inner_schemas = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    return all(map(is_closed, [*inner_schemas, schema["items"]] if "items" in schema else inner_schemas))


# "length": the answer reached its limit, and its last tool call may be incomplete, so it has no calls
StopReason = Literal["end", "length", "tool", "refused", "empty"]


@dataclass(frozen=True)
class ToolCall:
    """A tool call that a model requests."""

    id: str  # the provider's id; the tool's answer repeats it
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True)
class NativeBlocks:
    """An answer in its provider's own form, thoughts and signatures included.

    It is sent back unchanged to the provider that wrote it, and dropped for any other.
    """

    provider: str  # differs by API and host, and by model where signatures do: "openai:api.deepseek.com"
    blocks: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class MessageImage:
    """An image in a message."""

    media_type: str  # "image/png"
    data: str  # in base64


IMAGE_TOKENS = 1600  # estimate for one image: about a megapixel in Anthropic's count of width x height / 750


@dataclass(frozen=True)
class ChatMessage:
    """One message that a model reads."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    calls: tuple[ToolCall, ...] = ()  # of an assistant's message
    call_id: str = ""  # of a tool's message: the call that it answers
    native: NativeBlocks | None = None  # of an assistant's message: `ChatReply.native`
    images: tuple[MessageImage, ...] = ()  # of a user's or a tool's message
    is_error: bool = False  # of a tool's message: the call failed

    def is_blank_for(self, provider: str) -> bool:
        """Return True if nothing of this message can be sent to a provider: no text, no call, no blocks of its own."""
        has_native = self.native is not None and self.native.provider == provider
        return not (has_native or self.text.strip() or self.calls or self.images)


@dataclass(frozen=True)
class ToolSpec:
    """The description of a tool that a model may call."""

    name: str
    description: str
    schema: Mapping[str, Any]  # of its input, which is an object


@dataclass(frozen=True)
class TokenUsage:
    """The tokens of one call. The model read n_input + n_cache_read + n_cache_write tokens."""

    n_input: int = 0  # input that was neither read from nor written to the provider's cache
    n_output: int = 0  # the model's output, thoughts included
    n_cache_read: int = 0
    n_cache_write: int = 0

    @property
    def n_tokens(self) -> int:
        """The sum of all four counts."""
        return self.n_input + self.n_output + self.n_cache_read + self.n_cache_write


@dataclass(frozen=True)
class ChatReply:
    """The answer of a model."""

    text: str  # unchanged; with a schema, the JSON
    value: Any | None = None  # with a schema: the parsed, checked answer; None if it calls tools instead
    calls: tuple[ToolCall, ...] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)
    model: str = ""  # the model's name in the provider's answer
    stop: StopReason = "end"
    is_usage_reported: bool = True  # False: the provider reported none, and `usage` is an estimate
    native: NativeBlocks | None = None  # the answer as its provider wrote it, to be sent back with it
    thought: str = ""  # the thoughts, where the provider shows them


class AnswerPiece(NamedTuple):
    """A piece of an answer that is arriving."""

    text: str
    is_thought: bool = False


@dataclass(frozen=True)
class AnswerListener:
    """The caller of a model while the answer arrives."""

    on_text: Callable[[str], None] | None = None
    on_thought: Callable[[str], None] | None = None
    cancel: threading.Event | None = None

    def receive(self, piece: AnswerPiece) -> None:
        """Pass one piece on."""
        listener = self.on_thought if piece.is_thought else self.on_text
        if listener is not None:
            listener(piece.text)


class Chat(Protocol):
    """A model that answers messages."""

    @property
    def name(self) -> str:
        """The name of the model, "provider:model"."""
        ...

    @property
    def window_tokens(self) -> int:
        """The size of the model's context window; question and answer share it."""
        ...

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
        """Return the model's answer, within timeout_s (default: the model's own limit).

        on_text receives the text piece by piece, on_thought the thoughts that the provider shows. With a schema,
        `value` satisfies it. When `cancel` is set, the connection is closed within about 100 ms, also while nothing
        arrives. Raises ModelFault: ModelUnreachable, ModelBusy, ModelLate, ModelRefused, BadAnswer, ModelCancelled.
        """
        ...


def takes_tools(chat: Chat) -> bool:
    """Return True unless it is known before the first call that a model reads no tools: `chat.takes_tools` says so."""
    return bool(getattr(chat, "takes_tools", True))


def check_reply(reply: ChatReply, schema: Mapping[str, Any] | None) -> ChatReply:
    """Return the reply in whole characters, with its parsed value if a schema is given; one that ended with nothing
    in it says so.

    Raises BadAnswer, with the usage of the call.
    """
    reply = replace(reply, text=text.join_halves(reply.text))
    if reply.stop == "end" and not reply.calls and not reply.text.strip():
        reply = replace(reply, stop="empty")
    if schema is None or reply.stop == "tool":
        return reply
    try:
        return replace(reply, value=_parse_value(reply, schema))
    except BadAnswer as error:
        error.usage = reply.usage
        raise


def estimate_usage(messages: Sequence[ChatMessage], answer_text: str) -> TokenUsage:
    """Estimate the usage of a call from its texts, for a provider that does not report it."""
    return TokenUsage(sum(map(count_message_tokens, messages)), text.tokens(answer_text))


def count_message_tokens(message: ChatMessage) -> int:
    """Estimate the tokens of one message: its text, calls, thoughts and images, without its frame."""
    if message.native is not None:
        return text.tokens(json.dumps(message.native.blocks, ensure_ascii=False))
    call_texts = (call.name + json.dumps(call.input, ensure_ascii=False) for call in message.calls)
    n_image_tokens = IMAGE_TOKENS * len(message.images)
    return text.tokens("".join((message.text, *call_texts))) + n_image_tokens


def make_broken_off_fault(usage: TokenUsage) -> ModelUnreachable:
    """Return the error for an answer that ended early, with the usage of the call."""
    error = ModelUnreachable("the answer ended early")
    error.usage = usage
    return error


_STOP_COMPLAINTS: Mapping[StopReason, str] = {
    "refused": "the model refused to answer",
    "length": "the answer reached its maximum length",
    "empty": "the answer is empty",
}
_THINKING_BLOCK = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


def _parse_value(reply: ChatReply, schema: Mapping[str, Any]) -> Any:
    if reply.stop != "end":
        error = BadAnswer(f"{reply.model}: {_STOP_COMPLAINTS[reply.stop]}")
        error.stop = reply.stop
        raise error
    try:
        value = json.loads(strip_wrapping(reply.text), parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"{reply.model}: the answer is not JSON") from error
    if problem := find_violation(value, schema):
        raise BadAnswer(f"{reply.model}: {problem}")
    return value


def _reject_constant(constant: str) -> Any:
    raise ValueError(constant)  # NaN and Infinity, which Python accepts and JSON lacks


def strip_wrapping(text: str) -> str:
    """Remove the thoughts before an answer and the code fence around it, which open models often add.

    >>> strip_wrapping('<think>hm</think> ```json\\n{"a": 1}\\n```')
    '{"a": 1}'
    """
    text = _THINKING_BLOCK.sub("", text).strip()
    match = re.fullmatch(r"```(?:json)?\s*\n(.*)\n\s*```", text, re.DOTALL)
    return match[1] if match else text


MAX_INPUT_BYTES = 200_000  # of the JSON of one call; about 50,000 tokens, which stay in the context
UNREADABLE, TOO_LARGE = "unreadable JSON", "too large JSON"  # names that no field of a tool has


def parse_arguments(raw_json: str) -> dict[str, Any]:
    """Return the input of a tool call from its JSON; of one that is no JSON object the text, as UNREADABLE, and of one
    of more than MAX_INPUT_BYTES its beginning, as TOO_LARGE.

    Such a call is refused like any other wrong input: the model reads why, and calls again.
    """
    if len(raw_json.encode("utf-8", "replace")) > MAX_INPUT_BYTES:
        return {TOO_LARGE: f"{raw_json[:200]}…"}
    try:
        parsed = json.loads(raw_json or "{}")
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {UNREADABLE: raw_json}
