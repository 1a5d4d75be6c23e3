"""Copilot CLI transcripts: `~/.copilot/session-state/<session>/events.jsonl` -> turns.

An event log: four of its types carry messages, the others report hooks, permissions and progress and are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.formats.json_text import make_session_id, read_objects
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines
from perdure.formats.parts import add_call, add_result
from perdure.formats.prompt_text import is_machine_text, split_typed_text
from perdure.formats.values import Tokens, clean_id, make_reader, text_or_empty, to_utc
from perdure.types import Json, Origin, ParsedLines, Part, Role

_MESSAGE_ROLES: dict[str, Role] = {
    "user.message": "user",
    "assistant.message": "assistant",
    "tool.execution_complete": "tool",
    "system.message": "system",
    "session.compaction_complete": "system",
}


class _CopilotEventData(msgspec.Struct, gc=False, rename="camel"):
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


class _CopilotEvent(msgspec.Struct, gc=False):
    """The fields of any event."""

    type: str = ""
    data: _CopilotEventData | None = None
    id: str | None = None
    timestamp: datetime | None = None


_decode_event = make_reader(_CopilotEvent)


def identify(first_bytes: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session that `session.start` names."""
    start: Json = next((line for line in read_objects(first_bytes) if line.get("type") == "session.start"), {})
    data = start.get("data")
    data = data if isinstance(data, dict) else {}
    context = data.get("context")
    cwd = text_or_empty(context.get("cwd")) if isinstance(context, dict) else ""
    session = clean_id(data.get("sessionId")) or make_session_id(first_bytes)
    return Origin("copilot-cli", session, session, cwd=cwd or None)


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    collector = TurnCollector()
    feed_lines(lines, partial(_read_event, collector, spawned), collector)
    return collector.to_parsed_lines()


def _read_event(collector: TurnCollector, spawned: bool, line: Line, raw: bytes) -> None:
    """Read one event."""
    event = _decode_event(raw)
    kind, data = event.type, event.data
    if kind not in _MESSAGE_ROLES:
        if kind == "session.title_changed" and data:
            collector.title = data.title or collector.title
        collector.skip(kind)
        return
    if data is None:
        raise msgspec.ValidationError("a message event without data")
    draft = _begin_draft(collector, line, event, data)
    if kind == "assistant.message":
        _fill_agent_draft(collector, draft, data)
    elif kind == "tool.execution_complete":
        _fill_tool_draft(collector, draft, data)
    elif kind == "user.message":
        _fill_user_draft(draft, data.content or "", spawned)
    else:
        text = data.content or data.summary_content
        draft.parts = [Part("text", text)] if text else []
        draft.is_summary = kind == "session.compaction_complete"


def _begin_draft(collector: TurnCollector, line: Line, event: _CopilotEvent, data: _CopilotEventData) -> TurnDraft:
    """Begin a new turn, a machine's until more is known; a sub-agent's events name the call that spawned it."""
    draft = TurnDraft(
        _MESSAGE_ROLES[event.type], "machine", [line.span], [], to_utc(event.timestamp), clean_id(event.id) or None
    )
    draft.thread = clean_id(data.parent_tool_call_id)
    collector.drafts.append(draft)
    return draft


def _fill_user_draft(draft: TurnDraft, text: str, spawned: bool) -> None:
    """Fill a turn in the user's place."""
    is_typed = bool(text) and not spawned and not draft.thread and not is_machine_text(text)
    draft.author = "person" if is_typed else "machine"
    draft.parts = split_typed_text(text) if is_typed else [Part("text", text)]


def _fill_agent_draft(collector: TurnCollector, draft: TurnDraft, data: _CopilotEventData) -> None:
    """Fill the agent's turn: thoughts, text, calls."""
    draft.author = "agent"
    draft.model = data.model or ""
    draft.n_tokens = data.output_tokens
    if data.reasoning_text:
        draft.parts.append(Part("thinking", data.reasoning_text))
    if data.content:
        draft.parts.append(Part("text", data.content))
    for call in data.tool_requests or ():
        if isinstance(call, dict):
            name, call_id = text_or_empty(call.get("name")), text_or_empty(call.get("toolCallId"))
            add_call(draft, collector.tool_names, name, call_id, call.get("arguments"))


def _fill_tool_draft(collector: TurnCollector, draft: TurnDraft, data: _CopilotEventData) -> None:
    """Fill a tool's turn with its output in full, or with its error."""
    draft.author = "tool"
    content = data.result.get("content") if isinstance(data.result, dict) else data.result
    if content is None:
        content = data.error.get("message") if isinstance(data.error, dict) else data.error
    add_result(draft, collector.tool_names, data.tool_call_id or "", content, failed=data.success is False)
