"""Copilot CLI transcripts: `~/.copilot/session-state/<session>/events.jsonl` -> turns.

An event log: four of its types carry messages, the others report hooks, permissions and progress and are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from perdure.formats.blocks import add_call, add_result
from perdure.formats.heads import nameless, objects
from perdure.formats.lines import Draft, Gathered, feed
from perdure.formats.shapes import Tokens, reader
from perdure.formats.speech import is_machine, spoken
from perdure.formats.stamps import clean_id, utc, words
from perdure.types import Json, Line, Origin, ParsedLines, Part, Role

_MESSAGES: dict[str, Role] = {
    "user.message": "user",
    "assistant.message": "assistant",
    "tool.execution_complete": "tool",
    "system.message": "system",
    "session.compaction_complete": "system",
}


class _Data(msgspec.Struct, gc=False, rename="camel"):
    """The data of the events that are used."""

    content: str | None = None
    tool_call_id: str | None = None
    model: str | None = None
    success: bool | None = None
    result: Any = None
    error: Any = None
    tool_requests: list[Any] | None = None
    reasoning_text: str | None = None
    output_tokens: Tokens = 0
    parent_tool_call_id: str | None = None
    title: str | None = None
    summary_content: str | None = None


class _Event(msgspec.Struct, gc=False):
    """The fields of any event."""

    type: str = ""
    data: _Data | None = None
    id: str | None = None
    timestamp: datetime | None = None


_read = reader(_Event)


def identify(head: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session that `session.start` names."""
    start: Json = next((line for line in objects(head) if line.get("type") == "session.start"), {})
    data = start.get("data")
    data = data if isinstance(data, dict) else {}
    context = data.get("context")
    cwd = words(context.get("cwd")) if isinstance(context, dict) else ""
    session = clean_id(data.get("sessionId")) or nameless(head)
    return Origin("copilot-cli", session, session, cwd=cwd or None)


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    gathered = Gathered()
    feed(lines, partial(_take, gathered, spawned), gathered)
    return gathered.parsed()


def _take(gathered: Gathered, spawned: bool, line: Line, raw: bytes) -> None:
    """Read one event."""
    event = _read(raw)
    kind, data = event.type, event.data
    if kind not in _MESSAGES:
        if kind == "session.title_changed" and data:
            gathered.title = data.title or gathered.title
        gathered.skip(kind)
        return
    if data is None:
        raise msgspec.ValidationError("a message event without data")
    draft = _draft(gathered, line, event, data)
    if kind == "assistant.message":
        _answer(gathered, draft, data)
    elif kind == "tool.execution_complete":
        _result(gathered, draft, data)
    elif kind == "user.message":
        _asked(draft, data.content or "", spawned)
    else:
        text = data.content or data.summary_content
        draft.parts = [Part("text", text)] if text else []
        draft.is_summary = kind == "session.compaction_complete"


def _draft(gathered: Gathered, line: Line, event: _Event, data: _Data) -> Draft:
    """Return a new turn, a machine's until more is known; a sub-agent's events name the call that spawned it."""
    draft = Draft(_MESSAGES[event.type], "machine", [line.span], [], utc(event.timestamp), clean_id(event.id) or None)
    draft.thread = clean_id(data.parent_tool_call_id)
    gathered.drafts.append(draft)
    return draft


def _asked(draft: Draft, text: str, spawned: bool) -> None:
    """Fill a turn in the user's place."""
    typed = bool(text) and not spawned and not draft.thread and not is_machine(text)
    draft.author = "person" if typed else "machine"
    draft.parts = spoken(text) if typed else [Part("text", text)]


def _answer(gathered: Gathered, draft: Draft, data: _Data) -> None:
    """Fill the agent's turn: thoughts, words, calls."""
    draft.author = "agent"
    draft.model = data.model or ""
    draft.n_tokens = data.output_tokens
    if data.reasoning_text:
        draft.parts.append(Part("thinking", data.reasoning_text))
    if data.content:
        draft.parts.append(Part("text", data.content))
    for call in data.tool_requests or ():
        if isinstance(call, dict):
            name, call_id = words(call.get("name")), words(call.get("toolCallId"))
            add_call(draft, gathered.tools, name, call_id, call.get("arguments"))


def _result(gathered: Gathered, draft: Draft, data: _Data) -> None:
    """Fill a tool's turn with its output in full, or with its error."""
    draft.author = "tool"
    content = data.result.get("content") if isinstance(data.result, dict) else data.result
    if content is None:
        content = data.error.get("message") if isinstance(data.error, dict) else data.error
    add_result(draft, gathered.tools, data.tool_call_id or "", content, failed=data.success is False)
