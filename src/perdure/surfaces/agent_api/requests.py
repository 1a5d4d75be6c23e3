"""A request to the agent: what the person says now, what was said before, and what the program wants that we cannot do.

Pure. The history of a request is the caller's: what stands in it is hashed to find the session of ours that holds the
same, and is never taken for something that this agent said.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.agent.attachments import make_image
from perdure.errors import ToolError, UsageError
from perdure.formats.perdure import ImageEntry
from perdure.surfaces.proxy.conversations import Api, Conversation, Json, find_typed_text, list_texts, read_conversation
from perdure.surfaces.proxy.senders import identify_sender

MODEL = "perdure"  # the name of the agent as a model
SESSION_HEADER = "x-perdure-session"
FOLDER_HEADER = "x-perdure-folder"
MAX_IMAGES = 10  # of one message
_NAME_CHARS = 200
_SYSTEM_CHARS = 20_000  # of what the program tells the model
_OWN_SESSION = re.compile(r"s[0-9a-z]{10}")
_DATA_URL = re.compile(r"data:image/[a-z+.-]{1,20};base64,(.*)", re.DOTALL)
_NO_TOOLS = (
    "This model is an agent with tools of its own, and does not take `tools` of a caller: leave them out. "
    "A program with tools of its own gets memory from the proxy: see `perdure proxy`."
)

Turns = tuple[tuple[str, str], ...]  # (user or assistant, what they said)


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A request that the agent can answer."""

    api: Api
    is_stream: bool
    has_stream_usage: bool  # OpenAI's chat completions: the stream ends with the usage
    text: str  # what the person says now
    images: tuple[ImageEntry, ...]
    system: str  # what the program tells the model
    earlier: Turns  # what was said before, as the caller has it
    start: str  # the id of the response that it continues; "" without one
    session: str  # our own session, if the caller names it
    client_session: str  # the caller's own name of the conversation
    folder: str
    is_side_call: bool  # a title, a summary: no turn of a conversation


def read_request(api: Api, raw: bytes, headers: Mapping[str, str]) -> AgentRequest:
    """Read a request. headers: by name in lower case. Raises UsageError, which says what to change."""
    try:
        conversation = read_conversation(api, raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is no request of this API: {error}") from error
    _check_wishes(conversation)
    if not conversation.people or not conversation.is_fresh:
        raise UsageError("the last message must be one that a person wrote, with some text in it")
    sender, newest = identify_sender(headers, conversation), conversation.people[-1]
    session = headers.get(SESSION_HEADER, "")
    if session and not _OWN_SESSION.fullmatch(session):
        raise UsageError(f"{SESSION_HEADER}: {session[:40]!r} is no id of a session (it begins with s)")
    before = [message.value for message in conversation.messages if message.start < newest.place.start]
    return AgentRequest(
        api=api,
        is_stream=conversation.get("stream") is True,
        has_stream_usage=_get(conversation.get("stream_options"), "include_usage") is True,
        text=newest.text,
        images=tuple(_list_images(newest.place.value)),
        system="\n\n".join(conversation.list_system_texts())[:_SYSTEM_CHARS],
        earlier=_join_turns(_list_turns(before)),
        start=_read_text(conversation.get("previous_response_id")),
        session=session,
        client_session=sender.session or _find_conversation_name(conversation),
        folder=headers.get(FOLDER_HEADER, ""),
        is_side_call=sender.is_side_call,
    )


def make_key(start: str, turns: Iterable[tuple[str, str]]) -> str:
    """Return the key of a conversation: of all that people and the model said in it. "" where nothing was said.

    >>> make_key("", []), make_key("", [("user", "Hi ")]) == make_key("", [("user", "Hi")])
    ('', True)
    """
    digest, is_empty = hashlib.sha256(start.encode()), True
    for role, text in turns:
        digest.update(f"\0{role}\0{text.strip()}".encode("utf-8", "surrogatepass"))
        is_empty = False
    return "" if is_empty else digest.hexdigest()


def render_earlier(turns: Turns, max_chars: int) -> str:
    """Return an earlier conversation as a text of at most so many characters: its newest part."""
    text = "\n\n".join(f"{role}: {words}" for role, words in turns)
    return text if len(text) <= max_chars else f"(what was before is left out)\n\n{text[-max_chars:]}"


def _check_wishes(conversation: Conversation) -> None:
    """Raise UsageError for what would change the form of the answer and cannot be done."""
    model = conversation.get("model")
    if model != MODEL:
        raise UsageError(f"there is no model {str(model)[:60]!r} here: the agent of this home is {MODEL!r}")
    if (conversation.get("tools") or conversation.get("functions")) and conversation.get("tool_choice") != "none":
        raise UsageError(_NO_TOOLS)
    if conversation.get("n") not in (None, 1):
        raise UsageError("n: the agent gives one answer")
    if conversation.get("background") is True:
        raise UsageError("background: the agent answers at once; ask for a stream")
    wanted_form = conversation.get("response_format") or _get(conversation.get("text"), "format")
    if _get(wanted_form, "type") not in (None, "text"):
        raise UsageError("response_format: the agent answers in text")


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _read_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _find_conversation_name(conversation: Conversation) -> str:
    """Return the name that the program has for the conversation: `conversation`, or `metadata.session_id`."""
    value, metadata = conversation.get("conversation"), conversation.get("metadata")
    names = map(_read_text, (value, _get(value, "id"), _get(metadata, "session_id")))
    return next(filter(None, names), "")[:_NAME_CHARS]


def _list_turns(messages: Sequence[Json]) -> Iterable[tuple[str, str]]:
    for message in messages:
        if text := find_typed_text(message):
            yield "user", text
        elif message.get("role") == "assistant" and (words := "".join(list_texts(message.get("content"))).strip()):
            yield "assistant", words


def _join_turns(turns: Iterable[tuple[str, str]]) -> Turns:
    """Return the turns, of which the same role never speaks twice in a row: APIs cut one answer into several."""
    joined: list[tuple[str, str]] = []
    for role, text in turns:
        if joined and joined[-1][0] == role == "assistant":
            joined[-1] = role, f"{joined[-1][1]}\n\n{text}"
        else:
            joined.append((role, text))
    return tuple(joined)


def _list_images(message: Json) -> Iterable[ImageEntry]:
    """Yield the images of a message. Raises UsageError for one that is elsewhere: nothing is fetched."""
    content = message.get("content")
    n_images = 0
    for part in content if isinstance(content, list) else []:
        kind = _get(part, "type")
        if kind in ("file", "input_file", "document", "input_audio"):
            raise UsageError(f"{kind}: the agent takes texts and images; put the text of a file into the message")
        if kind not in ("image_url", "input_image", "image"):
            continue
        n_images += 1
        if n_images > MAX_IMAGES:
            raise UsageError(f"a message has at most {MAX_IMAGES} images")
        yield _read_image(part)


def _read_image(part: Json) -> ImageEntry:
    url = part.get("image_url")
    url = _get(url, "url") if isinstance(url, dict) else url
    source = part.get("source")
    match = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    encoded = match[1] if match else _read_text(_get(source, "data"))
    if not encoded:
        raise UsageError("an image must stand in the request as base64 (`data:image/png;base64,…`): nothing is fetched")
    try:
        return make_image("an image", base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"an image is no base64 ({error})") from error
    except ToolError as error:
        raise UsageError(str(error)) from error
