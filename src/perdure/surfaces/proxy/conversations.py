"""The conversation in the body of a request: which of its messages people wrote, and how a block is put beside one.

Three APIs: Anthropic's messages, OpenAI's chat completions and responses. Pure. A body is read as JSON, but never
written again from it: a block is added to the text of the body, so that unknown fields, their order, numbers and
white space stay as the client sent them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perdure.formats.prompt_text import is_client_summary, is_machine_text
from perdure.surfaces.proxy import json_spans
from perdure.surfaces.proxy.json_spans import PlacedValue

Api = Literal["messages", "chat", "responses"]
Json = dict[str, Any]

_LIST_FIELDS = {"messages": "messages", "chat": "messages", "responses": "input"}
_TEXT_TYPES = ("text", "input_text", "output_text")
_SYSTEM_ROLES = ("system", "developer")


@dataclass(frozen=True, slots=True)
class HumanMessage:
    """A message that a person wrote."""

    key: str  # of all that people and the model said, up to this message and with it
    text: str  # what they typed, without what a program put around it
    place: PlacedValue  # of the message in the body


@dataclass(frozen=True, slots=True)
class Conversation:
    """The conversation in one request."""

    api: Api
    body: str
    fields: Mapping[str, PlacedValue]
    messages: tuple[PlacedValue, ...]  # all, in order; for a bare string of `input`, a message made of it
    people: tuple[HumanMessage, ...]  # the messages that people wrote, in order
    is_fresh: bool  # the newest of them has no answer yet
    is_compacted: bool  # it begins with the client's own summary of what was there before
    start_key: str  # of what the provider holds before these messages; "" if the request holds all of it

    def get(self, name: str) -> Any:
        """Return a top-level value of the request; None without one."""
        return self.fields[name].value if name in self.fields and name != _LIST_FIELDS[self.api] else None

    def list_system_texts(self) -> Iterator[str]:
        """Yield what the program tells the model, before and among the messages."""
        for name in ("system", "instructions"):
            yield from list_texts(self.get(name))
        for message in self.messages:
            texts = list_texts(message.value.get("content"))
            is_system = message.value.get("role") in _SYSTEM_ROLES
            yield from (text for text in texts if is_system or text.lstrip().startswith("<environment_context>"))


def read_conversation(api: Api, raw: bytes) -> Conversation:
    """Read a request's body. Raises ValueError if it is no such request."""
    body, list_name = raw.decode("utf-8"), _LIST_FIELDS[api]
    fields = json_spans.read_fields(body, placed_lists=(list_name,))
    if list_name not in fields:
        raise ValueError(f"no {list_name}")
    placed = fields[list_name]
    if isinstance(placed.value, str) and api == "responses":
        messages = [PlacedValue({"role": "user", "content": placed.value}, placed.start, placed.end)]
    elif isinstance(placed.value, list):
        messages = placed.value
    else:
        raise ValueError(f"{list_name} is no list")
    if not all(isinstance(message.value, dict) for message in messages):
        raise ValueError("a message is no object")
    start_key = hash_start(*(_name_start(fields, name) for name in ("previous_response_id", "conversation")))
    people, is_fresh = _find_people(messages, start=start_key)
    is_compacted = any(
        is_client_summary(text)
        for message in messages
        if message.value.get("role") == "user"
        for text in list_texts(message.value.get("content"))
    )
    return Conversation(api, body, fields, tuple(messages), tuple(people), is_fresh, is_compacted, start_key)


def _name_start(fields: Mapping[str, PlacedValue], name: str) -> str:
    value = fields[name].value if name in fields else None
    value = value.get("id") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""


def hash_start(*ids: str) -> str:
    """Return the key of what the provider holds under an id; "" without one."""
    start = "".join(ids)
    return hashlib.sha256(b"\0start\0" + start.encode("utf-8", "surrogatepass")).hexdigest() if start else ""


def _find_people(messages: Sequence[PlacedValue], *, start: str) -> tuple[list[HumanMessage], bool]:
    """Return (what people wrote, True if nothing but the program's words follows the newest)."""
    digest, people, is_fresh = hashlib.sha256(start.encode("utf-8", "surrogatepass")), [], False
    for placed in messages:
        role = placed.value.get("role")
        if text := find_typed_text(placed.value):
            digest.update(b"\0user\0" + text.encode("utf-8", "surrogatepass"))
            people.append(HumanMessage(digest.copy().hexdigest(), text, placed))
            is_fresh = True
        elif role not in _SYSTEM_ROLES:
            is_fresh = False
            if role == "assistant" and (answer := "".join(list_texts(placed.value.get("content"))).strip()):
                digest.update(b"\0assistant\0" + answer.encode("utf-8", "surrogatepass"))
    return people, is_fresh


def find_typed_text(message: Json) -> str:
    """Return what a person typed in a message; "" if it holds a tool's result, or if a program wrote all of it."""
    content = message.get("content")
    if message.get("role") != "user" or message.get("type", "message") != "message":
        return ""
    if isinstance(content, list) and any(
        _get_type(part) in ("tool_result", "function_call_output") for part in content
    ):
        return ""
    return "\n".join(text for text in list_texts(content) if text.strip() and not is_machine_text(text)).strip()


def list_texts(content: Any) -> list[str]:
    """Return the texts of a content, which is a string or a list of parts."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if _get_type(part) in _TEXT_TYPES)
    return [text for text in texts if isinstance(text, str)]


def _get_type(part: Any) -> str:
    return str(part.get("type", "")) if isinstance(part, dict) else ""


def add_blocks(conversation: Conversation, blocks: Mapping[str, str]) -> bytes:
    """Return the body with these blocks, each behind the text of its message. blocks: key of a message -> block.

    A string of Anthropic's becomes a list of two texts: clients send the same message now as a string, now as a list
    (Claude Code does), and both must be the same for the provider's cache. For OpenAI's APIs a string stays a string,
    because servers that speak like them may know no other form.
    """
    body, pieces, end = conversation.body, [], 0
    for message in conversation.people:
        if not (block := blocks.get(message.key)):
            continue
        content = _find_content(body, message.place)
        if content is None:
            continue
        pieces += [body[end : content.start], _add_block(conversation.api, body, content, block)]
        end = content.end
    return "".join([*pieces, body[end:]]).encode("utf-8")


def _find_content(body: str, place: PlacedValue) -> PlacedValue | None:
    if body.startswith('"', place.start):  # the bare string of `input`
        return PlacedValue(place.value["content"], place.start, place.end)
    return json_spans.read_fields(body, place.start).get("content")


def _add_block(api: Api, body: str, content: PlacedValue, block: str) -> str:
    text = body[content.start : content.end]
    if isinstance(content.value, str) and api == "messages":
        return f'[{{"type":"text","text":{text}}},{_render_part("text", block)}]'
    if isinstance(content.value, str):
        return f"{text[:-1]}{json.dumps(f'{SEPARATOR}{block}')[1:]}"
    return f"{text[:-1]},{_render_part('input_text' if api == 'responses' else 'text', block)}]"


SEPARATOR = "\n\n"


def _render_part(kind: str, block: str) -> str:
    return f'{{"type":"{kind}","text":{json.dumps(block)}}}'
