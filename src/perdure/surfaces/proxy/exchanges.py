"""Capture an exchange: what went to the model, without our blocks, and what it answered, as lines of messages.

A client sends its whole history each time. A line is named by what its message says, so that each message becomes one
line of its session, however often it is sent and whatever marks of a cache stand at it. Only what is new in the request
has the time of now: a history that was said before the proxy knew of it has none.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perdure.capture import enqueue, events, policy
from perdure.capture.transcripts import OriginFields
from perdure.errors import UsageError
from perdure.surfaces.proxy.answers import ModelAnswer
from perdure.surfaces.proxy.conversations import Api, Conversation, Json, list_texts
from perdure.surfaces.proxy.edits import RUNTIME, EditedRequest
from perdure.surfaces.proxy.store import BlockStore

TAG = "proxy"
_WAKE_LIMIT_S = 1.0
_DIGEST_CHARS = 24
_OUTPUT_TYPES = ("reasoning", "function_call", "custom_tool_call")
_SKIPPED_ROLES = ("system", "developer")


def capture_exchange(home: Path, store: BlockStore, edited: EditedRequest, answer: ModelAnswer) -> int:
    """Capture what is new of an exchange; return how many messages it were. Nothing while capture is refused.

    Raises OSError, PerdureError.
    """
    conversation, sender = edited.conversation, edited.sender
    if conversation is None or sender is None:
        return 0
    session = f"{edited.session}/{sender.agent}" if sender.agent else edited.session
    messages = [*(m.value for m in conversation.messages), *answer.messages]
    n_old = _count_history(conversation)
    lines = dict(build_lines(session, conversation.api, messages, n_old=n_old, now=datetime.now(UTC)))
    new_ids = store.select_new(session, lines.keys())
    if not new_ids:
        return 0
    origin: OriginFields = {
        "runtime": RUNTIME,
        "session": session,
        "conversation": edited.session,
        "parent_session": edited.session if sender.agent else None,
        "cwd": edited.folder or None,
        "fork": False,
    }
    data = b"".join(line for line_id, line in lines.items() if line_id in new_ids)
    tags = (TAG, sender.client) if sender.client else (TAG,)
    try:
        enqueue.enqueue_bytes(policy.load_rules(home), origin, data, from_offset=None, path=None, tags=tags)
    except UsageError:  # paused, excluded or incognito: nothing is copied, and that is as it should be
        return 0
    store.mark_captured(session, new_ids, now_s=time.time())
    try:
        events.ask_resident(home, {"op": "wake"}, timeout_s=_WAKE_LIMIT_S)
    except (OSError, ValueError):  # the next process reads the outbox
        pass
    return len(new_ids)


def _count_history(conversation: Conversation) -> int:
    """Return how many messages of a request lead up to the model's last answer, and with it."""
    is_answer = [
        m.value.get("role") == "assistant" or m.value.get("type") in _OUTPUT_TYPES for m in conversation.messages
    ]
    return max((n for n, is_last in enumerate(is_answer, start=1) if is_last), default=0)


def build_lines(
    session: str, api: Api, messages: Iterable[Json], *, n_old: int = 0, now: datetime
) -> Iterator[tuple[str, bytes]]:
    """Yield (id, line) for each message of people, the model and tools, in order. The first `n_old` have no time: when
    they were said is not known, and a forgotten message among them is known by its words alone.
    """
    counts: Counter[str] = Counter()
    for n, raw_message in enumerate(messages):
        message = _to_message(raw_message) if api == "responses" else raw_message
        if message is None or message.get("role") in (*_SKIPPED_ROLES, None):
            continue
        digest = hash_message(message)
        counts[digest] += 1
        line_id = f"{session}#{digest}-{counts[digest]}"
        stamp = {"timestamp": now.isoformat()} if n >= n_old else {}
        line = {"id": line_id, "message": {**_strip_marks(message), **stamp}}
        yield line_id, msgspec.json.encode(line) + b"\n"


def hash_message(message: Json) -> str:
    """Return a hash of what a message says: its role, texts, calls and results. Thoughts do not count: clients and
    providers leave them out later.
    """
    content = message.get("content")
    said = [str(message.get("role")), "".join(list_texts(content)).strip(), str(message.get("tool_call_id") or "")]
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in ("tool_use", "tool_result"):
            said.append(str(part.get("id") or part.get("tool_use_id")))
    said += [str(call.get("id")) for call in message.get("tool_calls") or () if isinstance(call, dict)]
    return hashlib.sha256("\0".join(said).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]


def _to_message(item: Json) -> Json | None:
    """Return an item of a response as a message of a chat; None for items that say nothing, such as sealed thoughts."""
    kind = item.get("type", "message")
    if kind == "message":
        content = item.get("content")
        texts = [{"type": "text", "text": text} for text in list_texts(content)]
        return {"role": item.get("role"), "content": texts} if texts else None
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        output = item.get("output")
        text = output if isinstance(output, str) else "\n".join(list_texts(output))
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": text}
    return None


def _strip_marks(message: Json) -> Json:
    """Return a message without the marks of where a cache ends."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = [
        {name: value for name, value in part.items() if name != "cache_control"} if isinstance(part, dict) else part
        for part in content
    ]
    return {**message, "content": parts}
