"""Kimi Code transcripts: `~/.kimi-code/sessions/<folder>/<session>/agents/<agent>/wire.jsonl` -> turns.

An append-only event log. A person's message is a `context.append_message`; an answer is a step, whose text, calls and
end are `context.append_loop_event` lines of their own. `agent.message.appended` says the same again and is counted.
Session and agent are the names of the folders; a sub-agent has a log beside that of `main`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.capture.transcripts import KIMI_MAIN_AGENT
from perdure.formats.json_text import make_session_id
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines
from perdure.formats.parts import add_call, add_result, collect_images, join_text
from perdure.formats.prompt_text import is_machine_text, split_typed_text
from perdure.formats.values import clean_id, make_reader, parse_instant, sum_token_counts, text_or_empty
from perdure.types import Json, Origin, ParsedLines, Part

_USAGE_KEYS = ("inputOther", "output", "inputCacheRead", "inputCacheCreation")
_COMPACTION = "context.apply_compaction"


class _KimiEntry(msgspec.Struct, gc=False):
    """The fields of any line that are used."""

    type: str = ""
    time: Any = None
    message: dict[str, Any] | None = None
    event: dict[str, Any] | None = None
    model: Any = None
    kind: Any = None
    summary: Any = None


_decode_entry = make_reader(_KimiEntry)


@dataclass(slots=True)
class _KimiRunState:
    """The state while the lines of one run are read."""

    collector: TurnCollector
    spawned: bool
    model: str = ""
    drafts_by_step: dict[str, TurnDraft] = field(default_factory=dict)


def is_entry(line: Json) -> bool:
    """Return True if Kimi Code wrote this line."""
    kind = line.get("type")
    if kind == "metadata":
        return "protocol_version" in line
    return isinstance(kind, str) and "." in kind and ("agentId" in line or "time" in line) and "data" not in line


def identify(first_bytes: bytes, path: str) -> Origin:
    """Return the session and the agent that the folders name; outside of them, an id made from the first line."""
    folders = PurePath(path).parts
    if len(folders) < 4 or folders[-3] != "agents":
        session = make_session_id(first_bytes)
        return Origin("kimi-code", session, session)
    session, agent = clean_id(folders[-4]) or make_session_id(first_bytes), clean_id(folders[-2])
    if agent in ("", KIMI_MAIN_AGENT):
        return Origin("kimi-code", session, session)
    return Origin("kimi-code", f"{session}/{agent}", session, parent_session=session)


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    run = _KimiRunState(TurnCollector(), spawned)
    feed_lines(lines, partial(_read_entry, run), run.collector)
    return run.collector.to_parsed_lines()


def _read_entry(run: _KimiRunState, line: Line, raw: bytes) -> None:
    """Read one line."""
    entry = _decode_entry(raw)
    if entry.type == "context.append_message" and entry.message is not None:
        _add_message(run, line, entry, entry.message)
    elif entry.type == "context.append_loop_event" and entry.event is not None:
        _read_step_event(run, line, entry, entry.event)
    elif entry.type == _COMPACTION and (text := text_or_empty(entry.summary) or _read_message_text(entry.summary)):
        draft = _begin_draft(run, line, entry)
        draft.role, draft.is_summary, draft.parts = "system", True, [Part("text", text)]
    else:
        run.model = text_or_empty(entry.model) if entry.type == "llm.request" else run.model
        run.collector.skip(entry.type, entry.kind if entry.type == "llm.request" else None)


def _begin_draft(run: _KimiRunState, line: Line, entry: _KimiEntry) -> TurnDraft:
    """Begin a new turn, a machine's in the user's place until more is known."""
    draft = TurnDraft("user", "machine", [line.span], [], parse_instant(entry.time))
    run.collector.drafts.append(draft)
    return draft


def _read_message_text(message: Any) -> str:
    return join_text(message.get("content")) if isinstance(message, dict) else ""


def _add_message(run: _KimiRunState, line: Line, entry: _KimiEntry, message: Json) -> None:
    """Add a message: typed if its origin is the user, else put in by the client (reminders, hooks, skills, tasks)."""
    draft = _begin_draft(run, line, entry)
    draft.native_id = clean_id(message.get("id")) or None
    origin = message.get("origin")
    text, images = _read_message_text(message), collect_images(message.get("content"))
    from_user = not isinstance(origin, dict) or origin.get("kind") == "user"
    is_typed = from_user and not run.spawned and message.get("role") == "user"
    is_typed = is_typed and not (is_machine_text(text) if text else not images)
    draft.role = "user" if message.get("role") == "user" else "system"
    draft.author = "person" if is_typed else "machine"
    draft.parts = [*(split_typed_text(text) if is_typed else [Part("text", text)] if text else []), *images]


def _read_step_event(run: _KimiRunState, line: Line, entry: _KimiEntry, event: Json) -> None:
    """Read a part of an answer: its text and calls are one turn, each result is a turn of its tool."""
    kind, step = event.get("type"), text_or_empty(event.get("stepUuid"))
    if kind in ("content.part", "tool.call"):
        draft = run.drafts_by_step.get(step)
        if draft is None:
            draft = _begin_draft(run, line, entry)
            draft.role, draft.author, draft.model = "assistant", "agent", run.model
            draft.native_id = clean_id(event.get("uuid")) or None
            if step:
                run.drafts_by_step[step] = draft
        else:
            draft.lines.append(line.span)
        _add_step_part(run, draft, event)
    elif kind == "tool.result":
        draft = _begin_draft(run, line, entry)
        draft.role, draft.author = "tool", "tool"
        result = event.get("result")
        result = result if isinstance(result, dict) else {"output": result}
        draft.native_id = f"{parent}.result" if (parent := clean_id(event.get("parentUuid"))) else None
        call_id, failed = text_or_empty(event.get("toolCallId")), result.get("isError") is True
        add_result(draft, run.collector.tool_names, call_id, result.get("output"), failed=failed)
    elif kind == "step.end" and (finished := run.drafts_by_step.get(text_or_empty(event.get("uuid")))):
        finished.lines.append(line.span)
        usage = event.get("usage")
        finished.n_tokens = sum_token_counts(*map(usage.get, _USAGE_KEYS)) if isinstance(usage, dict) else 0
    else:
        run.collector.skip(entry.type, kind)


def _add_step_part(run: _KimiRunState, draft: TurnDraft, event: Json) -> None:
    """Add a text, a thought, an image or a call to the agent's turn."""
    if event.get("type") == "tool.call":
        name, call_id = text_or_empty(event.get("name")), text_or_empty(event.get("toolCallId"))
        add_call(draft, run.collector.tool_names, name, call_id, event.get("args"))
        return
    part = event.get("part")
    if not isinstance(part, dict):
        return
    thought = text_or_empty(part.get("think"))
    draft.parts += [Part("thinking", thought)] if thought else []
    text = text_or_empty(part.get("text"))
    draft.parts += [Part("text", text)] if text else []
    draft.parts += collect_images([part])
