"""Plain message lists in the shapes of the OpenAI and Anthropic APIs -> turns.

One message per line (`{"role", "content"}`) is append-only and read as it is. A document (a list of messages, or
`{"messages": [...]}`) and lines that hold a whole conversation each are not: `emit` makes lines
`{"id", "message"}` of them, numbered within the conversation, so that a message that changed keeps its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from perdure.errors import FormatFault
from perdure.formats.blocks import add_call, add_result, images_of, is_text
from perdure.formats.documents import RawObject, compacted, encoded, parsed_object, raw_list, raw_object, value
from perdure.formats.heads import document, nameless, objects
from perdure.formats.lines import UNREADABLE, Draft, Gathered, feed
from perdure.formats.speech import is_machine, spoken
from perdure.formats.stamps import clean_id, hash_to_id, instant, total, words
from perdure.types import Json, Line, Origin, ParsedLines, Part

_UNIQUE_CHARS = 16  # a shorter id of a message is taken for a number within its conversation
_SESSION_KEYS = ("session_id", "sessionId", "conversation_id", "conversationId", "id")
_TIME_KEYS = ("timestamp", "created_at", "createdAt", "created", "time", "ts")
_USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
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


class _ApiRow(msgspec.Struct, gc=False):
    """A line: a message itself, an emitted message, or a header."""

    role: Any = None
    message: msgspec.Raw = msgspec.Raw()
    id: Any = None
    session: Any = None
    title: Any = None


_row = msgspec.json.Decoder(_ApiRow)
_message = msgspec.json.Decoder(_ApiMessage)


def is_message(item: Any) -> bool:
    """Say whether a JSON value is one message of a chat; of a cut one only the role may be left."""
    if not isinstance(item, dict) or item.get("role") not in _ROLES:
        return False
    return "content" in item or "tool_calls" in item or len(item) == 1


def is_conversation(item: Any) -> bool:
    """Say whether a JSON value is a list of messages, bare or under `messages`."""
    rows = item.get("messages") if isinstance(item, dict) else item
    return isinstance(rows, list) and bool(rows) and is_message(rows[0])


def is_line(item: Any) -> bool:
    """Say whether a JSON object is a line of messages, as a client wrote or as `emit` makes it."""
    return is_message(item) or (isinstance(item, dict) and is_message(item.get("message")) and "id" in item)


def identify(head: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session that the first line or the document names; else one made from the first line."""
    first = next(objects(head), None)
    if first is None:
        first = document(head)
    fields = first if isinstance(first, dict) else {}
    if is_message(fields):
        fields = {key: fields[key] for key in _SESSION_KEYS[:-1] if key in fields}
    session = _named(fields.get("session")) or _named(fields) or nameless(head)
    cwd = words(fields.get("cwd")) or None
    return Origin("messages", session, session, cwd=cwd)


def _named(fields: Any) -> str:
    """Return the session id among these fields, or ""."""
    if not isinstance(fields, dict):
        return ""
    return next(filter(None, (clean_id(fields.get(key)) for key in _SESSION_KEYS)), "")


def emit(data: bytes, path: str) -> list[tuple[Origin, list[bytes]]]:  # noqa: ARG001 - every format is asked alike
    """Split a document, or lines of conversations, into sessions of lines."""
    sessions: dict[str, tuple[Origin, list[bytes]]] = {}
    for fields in _conversations(data):
        messages = _with_system(fields)
        session = _named({key: value(raw) for key, raw in fields.items() if key in _SESSION_KEYS})
        session = session or _made(messages)
        again = sum(1 for known in sessions if known == session or known.startswith(session + "~"))
        session = f"{session}~{again + 1}" if again else session
        header = {"session": {"id": session}}
        lines = [encoded(header), *_numbered(session, messages)]
        if isinstance(title := value(fields.get("title")), str):
            lines.append(encoded({"title": title}))
        sessions[session] = (Origin("messages", session, session), lines)
    return list(sessions.values())


def _conversations(data: bytes) -> Iterator[RawObject]:
    """Yield the fields of each conversation in the data; a bare list is one with only messages."""
    body = data.removeprefix(b"\xef\xbb\xbf").strip()
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
        whole = [body]
    except UNREADABLE:
        whole = [row for row in body.split(b"\n") if row.strip()]
    found = False
    for row in whole:
        if row.lstrip().startswith(b"["):
            found = True
            yield {"messages": msgspec.Raw(row)}
        elif fields := parsed_object(row):
            found = True
            yield fields
    if not found:
        raise FormatFault("no messages")


def _with_system(fields: RawObject) -> list[msgspec.Raw]:
    """Return the messages, Anthropic's separate system prompt first."""
    messages = raw_list(fields.get("messages"))
    if "system" in fields:
        messages.insert(0, msgspec.Raw(encoded({"role": "system", "content": fields["system"]})))
    return messages


def _made(messages: list[msgspec.Raw]) -> str:
    """Return an id for a conversation that has none: of its messages up to the first answer, which stay as they are."""
    seen = []
    for message in messages:
        seen.append(compacted(message))
        if value(raw_object(message).get("role")) == "assistant":
            break
    return hash_to_id(b"\n".join(seen))


def _numbered(session: str, messages: list[msgspec.Raw]) -> Iterator[bytes]:
    """Yield each message with its own id, or with its place in the conversation."""
    for n, message in enumerate(messages):
        own = clean_id(value(raw_object(message).get("id")))
        yield encoded({"id": f"{session}#{own or n}", "message": msgspec.Raw(compacted(message))})


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    gathered = Gathered()
    feed(lines, partial(_take, gathered, {}, spawned), gathered)
    return gathered.parsed()


def _take(gathered: Gathered, by_id: dict[str, Draft], spawned: bool, line: Line, raw: bytes) -> None:
    """Read one line; of a message that occurs twice the later line wins."""
    row = _row.decode(raw)
    emitted = len(bytes(row.message)) > 0
    body = bytes(row.message) if emitted else raw
    message = _message.decode(body)
    if message.role not in _ROLES:
        gathered.title = words(row.title) or gathered.title
        gathered.skip("header" if row.session is not None else "title" if row.title else words(message.role))
        return
    key = words(row.id if emitted else message.id).replace("\0", "")
    draft = by_id.get(key)
    if draft is None:
        unique = emitted or len(key) >= _UNIQUE_CHARS  # "1" and "2" number the messages of many conversations
        draft = Draft("user", "machine", [], native_id=key if key and unique else None)
        gathered.drafts.append(draft)
        if key:
            by_id[key] = draft
    draft.lines.append(line.span)
    draft.parts, draft.files, draft.skills = [], (), ()
    draft.stated_at = _stated_at(body)
    _fill(gathered, draft, message, spawned)


def _stated_at(body: bytes) -> Any:
    """Return the time of a message under any of the usual keys."""
    fields = raw_object(body)
    return next((at for key in _TIME_KEYS if (at := instant(value(fields.get(key))))), None)


def _fill(gathered: Gathered, draft: Draft, message: _ApiMessage, spawned: bool) -> None:
    """Fill a turn from a message of either API."""
    role, blocks = message.role, _blocks(message.content)
    if role in ("assistant", "ai", "model"):
        draft.role, draft.author, draft.model = "assistant", "agent", words(message.model)
        _answer(gathered, draft, message, blocks)
    elif role in ("tool", "function"):
        draft.role, draft.author = "tool", "tool"
        call_id = words(message.tool_call_id)
        gathered.tools.setdefault(call_id, words(message.name))
        add_result(draft, gathered.tools, call_id, message.content)
    elif role in ("system", "developer"):
        draft.role, draft.author = "system", "machine"
        draft.parts += [Part("text", words(b.get("text"))) for b in blocks if is_text(b)]
    elif any(b.get("type") == "tool_result" for b in blocks):
        draft.role, draft.author = "tool", "tool"
        _results(gathered, draft, blocks)
    else:
        _asked(draft, blocks, spawned)


def _blocks(content: Any) -> list[Json]:
    """Return the content as a list of blocks, bare strings as text blocks."""
    items = content if isinstance(content, list) else [content]
    blocks = [{"type": "text", "text": item} if isinstance(item, str) else item for item in items]
    return [block for block in blocks if isinstance(block, dict)]


def _asked(draft: Draft, blocks: list[Json], spawned: bool) -> None:
    """Fill a turn in the user's place."""
    texts = [text for b in blocks if is_text(b) and (text := words(b.get("text")))]
    pictures = images_of(blocks)
    typed = not spawned and (not all(map(is_machine, texts)) if texts else bool(pictures))
    draft.role, draft.author = "user", "person" if typed else "machine"
    for text in texts:
        if typed and not is_machine(text):
            draft.parts += spoken(text)
        else:
            draft.parts.append(Part("pasted" if typed else "text", text))
    draft.parts += pictures


def _results(gathered: Gathered, draft: Draft, blocks: list[Json]) -> None:
    """Fill a tool's turn from Anthropic's result blocks."""
    for block in blocks:
        if block.get("type") == "tool_result":
            failed = block.get("is_error") is True
            add_result(draft, gathered.tools, words(block.get("tool_use_id")), block.get("content"), failed=failed)
        elif is_text(block):
            draft.parts.append(Part("text", words(block.get("text"))))


def _answer(gathered: Gathered, draft: Draft, message: _ApiMessage, blocks: list[Json]) -> None:
    """Fill the agent's turn from text, thinking and calls of either API."""
    if isinstance(message.usage, dict):
        whole = total(message.usage.get("total_tokens"))
        draft.n_tokens = whole or total(*map(message.usage.get, _USAGE))
    for thought in (message.reasoning_content, message.reasoning):
        draft.parts += [Part("thinking", thought)] if isinstance(thought, str) and thought else []
    for block in blocks:
        kind = block.get("type")
        if is_text(block) and (text := words(block.get("text"))):
            draft.parts.append(Part("text", text))
        elif kind == "thinking" and (text := words(block.get("thinking"))):
            draft.parts.append(Part("thinking", text))
        elif kind == "tool_use":
            add_call(draft, gathered.tools, words(block.get("name")), words(block.get("id")), block.get("input"))
    draft.parts += images_of(blocks)
    if text := words(message.refusal):
        draft.parts.append(Part("text", text))
    calls = message.tool_calls if isinstance(message.tool_calls, list) else []
    for call in [*calls, {"function": message.function_call}] if message.function_call else calls:
        _call(gathered, draft, call)


def _call(gathered: Gathered, draft: Draft, call: Any) -> None:
    """Add one of OpenAI's calls, its arguments decoded from the string they come in."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return
    given = function.get("arguments")
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except UNREADABLE:
            pass
    add_call(draft, gathered.tools, words(function.get("name")), words(call.get("id")), given)
