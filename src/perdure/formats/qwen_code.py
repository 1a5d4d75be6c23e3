"""Qwen Code transcripts: `~/.qwen/projects/<folder>/chats/<session>.jsonl` -> turns.

Append-only; a line holds one record, and its message is in Gemini's shape. Results have lines of their own. Records
form a tree by `parentUuid`: a rewind goes on from an earlier record. Since 0.24 a sub-agent has a transcript,
`subagents/<session>/agent-<id>.jsonl`; before, there is only its report, the result of the call `agent`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from pathlib import PurePath
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.capture.transcripts import QWEN_AGENTS_FOLDER
from perdure.formats.gemini import read_response_text
from perdure.formats.json_text import make_session_id, read_objects
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines
from perdure.formats.parts import add_call, collect_images, join_text
from perdure.formats.prompt_text import is_machine_text, split_typed_text
from perdure.formats.values import clean_id, make_reader, sum_token_counts, text_or_empty, to_utc
from perdure.regex import lazy_re
from perdure.types import Json, Origin, ParsedLines, Part

_FAILED_SHELL = lazy_re(r"^(?:Exit Code: (?!0$|\(none\))|Error: (?!\(none\)$))", 8)  # 8: re.M
_ROLES = ("user", "assistant", "tool_result")


class _QwenMessage(msgspec.Struct, gc=False):
    """A message in Gemini's shape."""

    parts: list[Any] | None = None


class _QwenRecord(msgspec.Struct, gc=False, rename="camel"):
    """The fields of any record."""

    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    timestamp: datetime | None = None
    message: _QwenMessage | None = None
    model: str | None = None
    usage_metadata: dict[str, Any] | None = None
    tool_call_result: dict[str, Any] | None = None
    system_payload: dict[str, Any] | None = None


_decode_record = make_reader(_QwenRecord)


def is_record(line: Json) -> bool:
    """Return True if Qwen Code wrote this line."""
    if "sessionId" not in line or "uuid" not in line:
        return False
    message = line.get("message")
    return "systemPayload" in line or "toolCallResult" in line or (isinstance(message, dict) and "parts" in message)


def identify(first_bytes: bytes, path: str) -> Origin:
    """Return the session and the folder that the first records name; a sub-agent's is in the name of its file."""
    first = next((line for line in read_objects(first_bytes) if "sessionId" in line), {})
    session, cwd = (
        clean_id(first.get("sessionId")) or make_session_id(first_bytes),
        text_or_empty(first.get("cwd")) or None,
    )
    file = PurePath(path)
    if file.parent.parent.name != QWEN_AGENTS_FOLDER:
        origin = first.get("forkedFrom")
        fork = clean_id(origin.get("sessionId")) if isinstance(origin, dict) else ""
        return Origin("qwen-code", session, session, parent_session=fork or None, fork=bool(fork), cwd=cwd)
    agent = clean_id(file.stem.removeprefix("agent-"))
    return Origin("qwen-code", f"{session}/{agent}", session, parent_session=session, cwd=cwd)


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    collector = TurnCollector()
    feed_lines(lines, partial(_read_record, collector, spawned), collector)
    return collector.to_parsed_lines()


def _read_record(collector: TurnCollector, spawned: bool, line: Line, raw: bytes) -> None:
    """Read one record."""
    record = _decode_record(raw)
    record_id = clean_id(record.uuid)
    link = (record_id, clean_id(record.parent_uuid) or None) if record_id else None
    collector.links += [link] if link else []
    if record.type not in _ROLES or record.message is None:
        payload = record.system_payload or {}
        if record.subtype == "custom_title":
            collector.title = text_or_empty(payload.get("customTitle")) or collector.title
        collector.skip(record.type, record.subtype)
        return
    draft = TurnDraft("user", "machine", [line.span], [], to_utc(record.timestamp), record_id or None, link=link)
    collector.drafts.append(draft)
    parts = [part for part in record.message.parts or () if isinstance(part, dict)]
    if record.type == "assistant":
        _fill_agent_draft(collector, draft, record, parts)
    elif record.type == "tool_result":
        _fill_tool_draft(collector, draft, record, parts)
    else:
        _fill_user_draft(draft, parts, spawned)


def _fill_user_draft(draft: TurnDraft, parts: list[Json], spawned: bool) -> None:
    """Fill a turn in the user's place; a part that a program wrote is pasted, unless nothing was typed."""
    texts = [text for part in parts if (text := text_or_empty(part.get("text")))]
    images = collect_images(parts)
    is_typed = not spawned and (not all(map(is_machine_text, texts)) if texts else bool(images))
    draft.author = "person" if is_typed else "machine"
    for text in texts:
        if is_typed and not is_machine_text(text):
            draft.parts += split_typed_text(text)
        else:
            draft.parts.append(Part("pasted" if is_typed else "text", text))
    draft.parts += images


def _fill_agent_draft(collector: TurnCollector, draft: TurnDraft, record: _QwenRecord, parts: list[Json]) -> None:
    """Fill the agent's turn: thoughts, text, calls."""
    draft.role, draft.author, draft.model = "assistant", "agent", record.model or ""
    draft.n_tokens = sum_token_counts((record.usage_metadata or {}).get("totalTokenCount"))
    for part in parts:
        call = part.get("functionCall")
        if isinstance(call, dict):
            name, call_id = text_or_empty(call.get("name")), text_or_empty(call.get("id"))
            add_call(draft, collector.tool_names, name, call_id, call.get("args"))
        elif text := text_or_empty(part.get("text")):
            draft.parts.append(Part("thinking" if part.get("thought") is True else "text", text))
    draft.parts += collect_images(parts)


def _fill_tool_draft(collector: TurnCollector, draft: TurnDraft, record: _QwenRecord, parts: list[Json]) -> None:
    """Fill a tool's turn with its output in full; a shell tells its exit code only there."""
    draft.role, draft.author = "tool", "tool"
    result = record.tool_call_result or {}
    call_id = text_or_empty(result.get("callId"))
    for part in parts:
        response = part.get("functionResponse")
        if not isinstance(response, dict):
            text = join_text(part)
            draft.parts += [Part("result", text, collector.tool_names.get(call_id, ""), call_id)] if text else []
            continue
        response_id = text_or_empty(response.get("id")) or call_id
        name = text_or_empty(response.get("name")) or collector.tool_names.get(response_id, "")
        text = read_response_text(response.get("response"))
        is_failed_shell = name == "run_shell_command" and _FAILED_SHELL.search(text) is not None
        failed = result.get("status") in ("error", "cancelled") or is_failed_shell
        draft.parts.append(Part("result", text, name, response_id, failed))
    draft.parts += collect_images(parts, call_id)
