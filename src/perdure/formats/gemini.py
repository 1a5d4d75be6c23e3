"""Gemini CLI transcripts: `~/.gemini/tmp/<project>/chats/session-<time>-<id8>.json` or `.jsonl` -> turns.

Old versions write one JSON document, rewritten at each message: `emit` makes lines of it. New versions
write lines; they repeat a message under the same id when its tool calls finish, and write `{"$set": ...}`
patches. In both cases the last line of an id wins, within a run here and across runs by native id. Calls
carry their results, so one turn has both. A patch restates the whole history at each resumption; its
messages have lines of their own, except the summary of a compaction. Sub-agents write to a folder named
after their session.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.capture.transcripts import SUMMARY_REPLY
from perdure.formats.json_text import (
    compact_line,
    encode_object,
    list_items,
    make_session_id,
    parse_object,
    read_document,
)
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines, to_json_text
from perdure.formats.parts import add_call, collect_images, join_text
from perdure.formats.prompt_text import is_machine_text, split_typed_text
from perdure.formats.values import clean_id, parse_instant, sum_token_counts, text_or_empty
from perdure.types import Json, Origin, ParsedLines, Part

HEADER_KEYS = ("sessionId", "projectHash", "startTime", "kind", "directories")  # keys that never change in a session
_SPEAKERS = ("user", "gemini")


class _GeminiLine(msgspec.Struct, gc=False, rename="camel"):
    """A message, a header or a patch."""

    type: Any = None
    id: Any = None
    timestamp: Any = None
    content: Any = None
    thoughts: Any = None
    tool_calls: Any = None
    tokens: Any = None
    model: Any = None
    session_id: Any = None
    kind: Any = None
    summary: Any = None
    patch: Any = msgspec.field(default=None, name="$set")


_line_decoder = msgspec.json.Decoder(_GeminiLine)


@dataclass(slots=True)
class _GeminiRunState:
    """The state while the lines of one run are read."""

    collector: TurnCollector
    spawned: bool
    drafts_by_id: dict[str, TurnDraft] = field(default_factory=dict)


def identify(first_bytes: bytes, path: str) -> Origin:
    """Return the session that the header or the document names; a sub-agent's folder names its spawner."""
    header = read_document(first_bytes)
    if header is None:
        header = read_document(first_bytes.split(b"\n", 1)[0])
    header = header if isinstance(header, dict) else {}
    session = clean_id(header.get("sessionId")) or make_session_id(first_bytes)
    spawner = clean_id(PurePath(path).parent.name) if header.get("kind") == "subagent" else ""
    return Origin("gemini-cli", session, spawner or session, parent_session=spawner or None)


def emit(data: bytes, path: str) -> list[tuple[Origin, list[bytes]]]:
    """Split a chat document into a header line, one line per message and, where it has a title, a patch line."""
    fields = parse_object(data)
    header = {key: fields[key] for key in HEADER_KEYS if key in fields}
    lines = [encode_object(header), *map(compact_line, list_items(fields.get("messages")))]
    if "summary" in fields:
        lines.append(encode_object({"$set": {"summary": fields["summary"]}}))
    return [(identify(lines[0], path), lines)]


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    run = _GeminiRunState(TurnCollector(), spawned)
    feed_lines(lines, partial(_read_line, run), run.collector)
    return run.collector.to_parsed_lines()


def _read_line(run: _GeminiRunState, line: Line, raw: bytes) -> None:
    """Read one line."""
    row = _line_decoder.decode(raw)
    if row.type in _SPEAKERS:
        _read_message(run, line, row)
    elif isinstance(row.patch, dict):
        _read_patch(run, line, row.patch)
    elif row.type is None and row.session_id is not None:
        run.spawned = run.spawned or row.kind == "subagent"
        run.collector.title = text_or_empty(row.summary) or run.collector.title
        run.collector.skip("header")
    else:
        run.collector.skip(row.type)


def _read_message(run: _GeminiRunState, line: Line, row: _GeminiLine) -> None:
    """Make a turn of a message, or replace the turn of an earlier line with this id."""
    message_id = clean_id(row.id)
    draft = run.drafts_by_id.get(message_id) if message_id else None
    if draft is None:
        draft = TurnDraft("user", "machine", [], native_id=message_id or None)
        run.collector.drafts.append(draft)
        if message_id:
            run.drafts_by_id[message_id] = draft
    draft.lines.append(line.span)
    draft.stated_at = parse_instant(row.timestamp)
    draft.parts, draft.files, draft.skills = [], (), ()
    if row.type == "user":
        _fill_user_draft(run, draft, row)
    else:
        _fill_agent_draft(run, draft, row)


def _fill_user_draft(run: _GeminiRunState, draft: TurnDraft, row: _GeminiLine) -> None:
    """Fill a turn in the user's place; hook text that the client added after the prompt counts as pasted."""
    draft.role, text = "user", join_text(row.content)
    images = collect_images(row.content)
    is_typed = not run.spawned and not (is_machine_text(text) if text else not images)
    draft.author = "person" if is_typed else "machine"
    draft.parts = [*(split_typed_text(text) if is_typed else [Part("text", text)]), *images]


def _fill_agent_draft(run: _GeminiRunState, draft: TurnDraft, row: _GeminiLine) -> None:
    """Fill the agent's turn: thoughts, text, calls with their results."""
    draft.role, draft.author, draft.model = "assistant", "agent", text_or_empty(row.model)
    draft.n_tokens = sum_token_counts(row.tokens.get("total")) if isinstance(row.tokens, dict) else 0
    for thought in _filter_objects(row.thoughts):
        text = ": ".join(
            filter(None, (text_or_empty(thought.get("subject")), text_or_empty(thought.get("description"))))
        )
        draft.parts += [Part("thinking", text)] if text else []
    if text := join_text(row.content):
        draft.parts.append(Part("text", text))
    for call in _filter_objects(row.tool_calls):
        name, call_id = text_or_empty(call.get("name")), text_or_empty(call.get("id"))
        add_call(draft, run.collector.tool_names, name, call_id, call.get("args"))
        if "result" in call or "resultDisplay" in call:
            draft.parts += _build_result_parts(call, name, call_id)


def _filter_objects(value: Any) -> list[Json]:
    """Return the objects of a list; an empty list for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _build_result_parts(call: Json, name: str, call_id: str) -> list[Part]:
    """Return a call's result as parts: the function's response, and any image with it."""
    texts, images = [], []
    result = call.get("result")
    for item in [result] if isinstance(result, str) else _filter_objects(result):
        response = item.get("functionResponse") if isinstance(item, dict) else None
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(response, dict):
            texts.append(read_response_text(response.get("response")))
        else:
            texts.append(join_text(item))
            images += collect_images([item], call_id)
    text = "\n".join(filter(None, texts)) or text_or_empty(call.get("resultDisplay"))
    failed = call.get("status") in ("error", "cancelled")
    return [Part("result", text, name, call_id, failed), *images]


def read_response_text(response: Any) -> str:
    """Return the text of a function response: its only string if there is one, else all of it as JSON."""
    if isinstance(response, dict) and len(response) == 1:
        single_value = next(iter(response.values()))
        return single_value if isinstance(single_value, str) else to_json_text(response)
    return text_or_empty(response) or ("" if response is None else to_json_text(response))


def _read_patch(run: _GeminiRunState, line: Line, patch: Json) -> None:
    """Take the title of a patch, and once, from a history that it restates, the summary of a compaction."""
    run.collector.title = text_or_empty(patch.get("summary")) or run.collector.title
    messages = [
        (clean_id(message.get("id")), join_text(message.get("content")))
        for message in _filter_objects(patch.get("messages"))
    ]
    message_id, text = next((earlier for earlier, later in pairwise(messages) if later[1] == SUMMARY_REPLY), ("", ""))
    if not text or message_id in run.drafts_by_id:
        run.collector.skip("$set")
        return
    draft = TurnDraft("system", "machine", [line.span], native_id=message_id or None, is_summary=True)
    draft.parts = [Part("text", text)]
    run.collector.drafts.append(draft)
    run.drafts_by_id[message_id] = draft  # a resumption repeats it under its id
