"""Plain message lists in the shapes of the OpenAI and Anthropic APIs -> turns.

A file with one message per line (`{"role", "content"}`) is append-only and captured as it is. A document
(a list of messages, or `{"messages": [...]}`) and lines that hold a whole conversation each are not:
`emit` makes lines `{"id", "message"}` of them, numbered within the conversation, so a message that
changed keeps its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.errors import FormatFault
from perdure.formats.json_text import (
    RawObject,
    compact_line,
    decode_raw,
    encode_object,
    list_fields,
    list_items,
    make_session_id,
    parse_object,
    read_document,
    read_objects,
)
from perdure.formats.parsing import UNREADABLE_ERRORS, TurnCollector, TurnDraft, feed_lines
from perdure.formats.parts import add_call, add_result, collect_images, is_text_block
from perdure.formats.prompt_text import is_machine_text, split_typed_text
from perdure.formats.values import clean_id, hash_to_id, parse_instant, sum_token_counts, text_or_empty
from perdure.types import Json, Origin, ParsedLines, Part

_UNIQUE_CHARS = 16  # a shorter id of a message is taken for a number within its conversation
_SESSION_KEYS = ("session_id", "sessionId", "conversation_id", "conversationId", "id")
_TIME_KEYS = ("timestamp", "created_at", "createdAt", "created", "time", "ts")
_USAGE_KEYS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_ROLES = ("user", "human", "assistant", "ai", "model", "tool", "function", "system", "developer")


class _ApiMessage(msgspec.Struct, gc=False):
    """A message of either API."""

    role: Any = None
    content: Any = None
    tool_calls: Any = None
    function_call: Any = None
    tool_call_id: Any = None
    name: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    model: Any = None
    usage: Any = None
    id: Any = None


class _ApiLine(msgspec.Struct, gc=False):
    """A line: a message itself, an emitted message, or a header."""

    role: Any = None
    message: msgspec.Raw = msgspec.Raw()
    id: Any = None
    session: Any = None
    title: Any = None


_line_decoder = msgspec.json.Decoder(_ApiLine)
_message_decoder = msgspec.json.Decoder(_ApiMessage)


def is_message(item: Any) -> bool:
    """Return True if a JSON value is one message of a chat; a cut message may have only its role left."""
    if not isinstance(item, dict) or item.get("role") not in _ROLES:
        return False
    return "content" in item or "tool_calls" in item or len(item) == 1


def is_conversation(item: Any) -> bool:
    """Return True if a JSON value is a list of messages, bare or under `messages`."""
    rows = item.get("messages") if isinstance(item, dict) else item
    return isinstance(rows, list) and bool(rows) and is_message(rows[0])


def is_message_line(item: Any) -> bool:
    """Return True if a JSON object is a line of messages, written by a client or made by `emit`."""
    return is_message(item) or (isinstance(item, dict) and is_message(item.get("message")) and "id" in item)


def identify(first_bytes: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session that the first line or the document names; else an id made from the first line."""
    first_value = next(read_objects(first_bytes), None)
    if first_value is None:
        first_value = read_document(first_bytes)
    fields = first_value if isinstance(first_value, dict) else {}
    if is_message(fields):
        fields = {key: fields[key] for key in _SESSION_KEYS[:-1] if key in fields}
    session = _find_session_id(fields.get("session")) or _find_session_id(fields) or make_session_id(first_bytes)
    cwd = text_or_empty(fields.get("cwd")) or None
    return Origin("messages", session, session, cwd=cwd)


def _find_session_id(fields: Any) -> str:
    """Return the session id among these fields, or ""."""
    if not isinstance(fields, dict):
        return ""
    return next(filter(None, (clean_id(fields.get(key)) for key in _SESSION_KEYS)), "")


def emit(data: bytes, path: str) -> list[tuple[Origin, list[bytes]]]:  # noqa: ARG001 - every format is asked alike
    """Split a document, or lines of conversations, into sessions of lines."""
    sessions: dict[str, tuple[Origin, list[bytes]]] = {}
    for fields in _split_conversations(data):
        messages = _list_messages(fields)
        session = _find_session_id({key: decode_raw(raw) for key, raw in fields.items() if key in _SESSION_KEYS})
        session = session or _make_conversation_id(messages)
        n_same_id = sum(1 for other_id in sessions if other_id == session or other_id.startswith(session + "~"))
        session = f"{session}~{n_same_id + 1}" if n_same_id else session
        header = {"session": {"id": session}}
        lines = [encode_object(header), *_number_messages(session, messages)]
        if isinstance(title := decode_raw(fields.get("title")), str):
            lines.append(encode_object({"title": title}))
        sessions[session] = (Origin("messages", session, session), lines)
    return list(sessions.values())


def _split_conversations(data: bytes) -> Iterator[RawObject]:
    """Yield the fields of each conversation in the data; a bare list is a conversation with only messages."""
    body = data.removeprefix(b"\xef\xbb\xbf").strip()
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
        documents = [body]
    except UNREADABLE_ERRORS:
        documents = [document for document in body.split(b"\n") if document.strip()]
    has_messages = False
    for document in documents:
        if document.lstrip().startswith(b"["):
            has_messages = True
            yield {"messages": msgspec.Raw(document)}
        elif fields := parse_object(document):
            has_messages = True
            yield fields
    if not has_messages:
        raise FormatFault("no messages")


def _list_messages(fields: RawObject) -> list[msgspec.Raw]:
    """Return the messages, with Anthropic's separate system prompt first."""
    messages = list_items(fields.get("messages"))
    if "system" in fields:
        messages.insert(0, msgspec.Raw(encode_object({"role": "system", "content": fields["system"]})))
    return messages


def _make_conversation_id(messages: list[msgspec.Raw]) -> str:
    """Make an id for a conversation without one, from its messages up to the first answer, which do not change."""
    opening_messages = []
    for message in messages:
        opening_messages.append(compact_line(message))
        if decode_raw(list_fields(message).get("role")) == "assistant":
            break
    return hash_to_id(b"\n".join(opening_messages))


def _number_messages(session: str, messages: list[msgspec.Raw]) -> Iterator[bytes]:
    """Yield each message with its own id, or with its number in the conversation."""
    for index, message in enumerate(messages):
        own_id = clean_id(decode_raw(list_fields(message).get("id")))
        yield encode_object({"id": f"{session}#{own_id or index}", "message": msgspec.Raw(compact_line(message))})


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    collector = TurnCollector()
    feed_lines(lines, partial(_read_line, collector, {}, spawned), collector)
    return collector.to_parsed_lines()


def _read_line(
    collector: TurnCollector, drafts_by_id: dict[str, TurnDraft], spawned: bool, line: Line, raw: bytes
) -> None:
    """Read one line; if a message occurs twice, the later line wins."""
    row = _line_decoder.decode(raw)
    is_emitted = len(bytes(row.message)) > 0
    body = bytes(row.message) if is_emitted else raw
    message = _message_decoder.decode(body)
    if message.role not in _ROLES:
        collector.title = text_or_empty(row.title) or collector.title
        collector.skip("header" if row.session is not None else "title" if row.title else text_or_empty(message.role))
        return
    message_id = text_or_empty(row.id if is_emitted else message.id).replace("\0", "")
    draft = drafts_by_id.get(message_id)
    if draft is None:
        is_unique = (
            is_emitted or len(message_id) >= _UNIQUE_CHARS
        )  # "1" and "2" number the messages of many conversations
        draft = TurnDraft("user", "machine", [], native_id=message_id if message_id and is_unique else None)
        collector.drafts.append(draft)
        if message_id:
            drafts_by_id[message_id] = draft
    draft.lines.append(line.span)
    draft.parts, draft.files, draft.skills = [], (), ()
    draft.stated_at = _find_time(body)
    _fill_draft(collector, draft, message, spawned)


def _find_time(body: bytes) -> Any:
    """Return the time of a message under any of the usual keys."""
    fields = list_fields(body)
    return next((moment for key in _TIME_KEYS if (moment := parse_instant(decode_raw(fields.get(key))))), None)


def _fill_draft(collector: TurnCollector, draft: TurnDraft, message: _ApiMessage, spawned: bool) -> None:
    """Fill a turn from a message of either API."""
    role, blocks = message.role, _list_blocks(message.content)
    if role in ("assistant", "ai", "model"):
        draft.role, draft.author, draft.model = "assistant", "agent", text_or_empty(message.model)
        _fill_agent_draft(collector, draft, message, blocks)
    elif role in ("tool", "function"):
        draft.role, draft.author = "tool", "tool"
        call_id = text_or_empty(message.tool_call_id)
        collector.tool_names.setdefault(call_id, text_or_empty(message.name))
        add_result(draft, collector.tool_names, call_id, message.content)
    elif role in ("system", "developer"):
        draft.role, draft.author = "system", "machine"
        draft.parts += [Part("text", text_or_empty(b.get("text"))) for b in blocks if is_text_block(b)]
    elif any(b.get("type") == "tool_result" for b in blocks):
        draft.role, draft.author = "tool", "tool"
        _fill_tool_draft(collector, draft, blocks)
    else:
        _fill_user_draft(draft, blocks, spawned)


def _list_blocks(content: Any) -> list[Json]:
    """Return the content as a list of blocks, bare strings as text blocks."""
    items = content if isinstance(content, list) else [content]
    blocks = [{"type": "text", "text": item} if isinstance(item, str) else item for item in items]
    return [block for block in blocks if isinstance(block, dict)]


def _fill_user_draft(draft: TurnDraft, blocks: list[Json], spawned: bool) -> None:
    """Fill a turn in the user's place."""
    texts = [text for b in blocks if is_text_block(b) and (text := text_or_empty(b.get("text")))]
    images = collect_images(blocks)
    is_typed = not spawned and (not all(map(is_machine_text, texts)) if texts else bool(images))
    draft.role, draft.author = "user", "person" if is_typed else "machine"
    for text in texts:
        if is_typed and not is_machine_text(text):
            draft.parts += split_typed_text(text)
        else:
            draft.parts.append(Part("pasted" if is_typed else "text", text))
    draft.parts += images


def _fill_tool_draft(collector: TurnCollector, draft: TurnDraft, blocks: list[Json]) -> None:
    """Fill a tool's turn from Anthropic's result blocks."""
    for block in blocks:
        if block.get("type") == "tool_result":
            failed = block.get("is_error") is True
            add_result(
                draft,
                collector.tool_names,
                text_or_empty(block.get("tool_use_id")),
                block.get("content"),
                failed=failed,
            )
        elif is_text_block(block):
            draft.parts.append(Part("text", text_or_empty(block.get("text"))))


def _fill_agent_draft(collector: TurnCollector, draft: TurnDraft, message: _ApiMessage, blocks: list[Json]) -> None:
    """Fill the agent's turn from text, thinking and calls of either API."""
    if isinstance(message.usage, dict):
        n_total = sum_token_counts(message.usage.get("total_tokens"))
        draft.n_tokens = n_total or sum_token_counts(*map(message.usage.get, _USAGE_KEYS))
    for thought in (message.reasoning_content, message.reasoning):
        draft.parts += [Part("thinking", thought)] if isinstance(thought, str) and thought else []
    for block in blocks:
        kind = block.get("type")
        if is_text_block(block) and (text := text_or_empty(block.get("text"))):
            draft.parts.append(Part("text", text))
        elif kind == "thinking" and (text := text_or_empty(block.get("thinking"))):
            draft.parts.append(Part("thinking", text))
        elif kind == "tool_use":
            add_call(
                draft,
                collector.tool_names,
                text_or_empty(block.get("name")),
                text_or_empty(block.get("id")),
                block.get("input"),
            )
    draft.parts += collect_images(blocks)
    if text := text_or_empty(message.refusal):
        draft.parts.append(Part("text", text))
    calls = message.tool_calls if isinstance(message.tool_calls, list) else []
    for call in [*calls, {"function": message.function_call}] if message.function_call else calls:
        _add_function_call(collector, draft, call)


def _add_function_call(collector: TurnCollector, draft: TurnDraft, call: Any) -> None:
    """Add one of OpenAI's calls; its arguments are decoded from a string."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except UNREADABLE_ERRORS:
            pass
    add_call(draft, collector.tool_names, text_or_empty(function.get("name")), text_or_empty(call.get("id")), arguments)
