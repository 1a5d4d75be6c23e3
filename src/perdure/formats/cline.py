"""Cline sessions: `~/.cline/data/sessions/<session>/<session>.messages.json` -> turns.

A document, rewritten at each message: `emit` makes a header and a line per message of it. The messages have Anthropic's
shape, with Cline's own results of tools. What was typed stands in `<user_input>`. A sub-agent has a document of its own
beside, which names its session. The working folder is noted in `<session>.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.errors import FormatFault
from perdure.formats.json_text import (
    compact_line,
    encode_object,
    list_items,
    make_session_id,
    parse_object,
    read_document,
)
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines, to_json_text
from perdure.formats.parts import add_call, collect_images, is_text_block, join_text
from perdure.formats.prompt_text import is_machine_text, split_typed_text
from perdure.formats.values import clean_id, parse_instant, sum_token_counts, text_or_empty
from perdure.types import Json, Origin, ParsedLines, Part

_USER_INPUT = re.compile(r"<user_input(?: [^<>\n]{0,200})?>(.*)</user_input>", re.S)
_USAGE_KEYS = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
_HEADER_KEYS = ("sessionId", "agent", "origin")  # keys that never change in a session


class _ClineLine(msgspec.Struct, gc=False, rename="camel"):
    """A header or a message."""

    session_id: Any = None
    origin: Any = None
    id: Any = None
    role: Any = None
    content: Any = None
    ts: Any = None
    model_info: Any = None
    metrics: Any = None


_line_decoder = msgspec.json.Decoder(_ClineLine)


@dataclass(slots=True)
class _ClineRunState:
    """The state while the lines of one run are read."""

    collector: TurnCollector
    spawned: bool
    drafts_by_id: dict[str, TurnDraft] = field(default_factory=dict)


def is_document(value: Any) -> bool:
    """Return True if a JSON value, maybe cut, begins like a session of Cline."""
    return isinstance(value, dict) and "updated_at" in value and "agent" in value and "sessionId" in value


def identify(first_bytes: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session that the document or the header names; a sub-agent's names the session that spawned it."""
    fields = read_document(first_bytes)
    if fields is None:
        fields = read_document(first_bytes.split(b"\n", 1)[0])
    fields = fields if isinstance(fields, dict) else {}
    origin = fields.get("origin")
    spawner = clean_id(origin.get("parentThreadId")) if isinstance(origin, dict) else ""
    session = clean_id(fields.get("sessionId")) or make_session_id(first_bytes)
    return Origin("cline", session, spawner or session, parent_session=spawner or None)


def emit(data: bytes, path: str) -> list[tuple[Origin, list[bytes]]]:
    """Split a document into a header and one line per message."""
    fields = parse_object(data)
    if "messages" not in fields:
        raise FormatFault(f"{path}: no messages of Cline")
    header = encode_object({key: fields[key] for key in _HEADER_KEYS if key in fields})
    messages = list_items(fields["messages"])
    return [(identify(header, path), [header, *map(compact_line, messages)])]


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    run = _ClineRunState(TurnCollector(), spawned)
    feed_lines(lines, partial(_read_line, run), run.collector)
    return run.collector.to_parsed_lines()


def _read_line(run: _ClineRunState, line: Line, raw: bytes) -> None:
    """Read one line; if a message occurs twice, the later line wins."""
    row = _line_decoder.decode(raw)
    if row.role not in ("user", "assistant"):
        if row.session_id is not None:
            run.spawned = run.spawned or (isinstance(row.origin, dict) and row.origin.get("mode") == "subagent")
            run.collector.skip("header")
        else:
            run.collector.skip(row.role)
        return
    message_id = clean_id(row.id)
    draft = run.drafts_by_id.get(message_id) if message_id else None
    if draft is None:
        draft = TurnDraft("user", "machine", [], native_id=message_id or None)
        run.collector.drafts.append(draft)
        if message_id:
            run.drafts_by_id[message_id] = draft
    draft.lines.append(line.span)
    draft.stated_at = parse_instant(row.ts)
    draft.parts, draft.files, draft.skills = [], (), ()
    items = row.content if isinstance(row.content, list) else [row.content]
    blocks = [{"type": "text", "text": item} if isinstance(item, str) else item for item in items]
    blocks = [block for block in blocks if isinstance(block, dict)]
    if row.role == "assistant":
        _fill_agent_draft(run.collector, draft, row, blocks)
    elif any(block.get("type") == "tool_result" for block in blocks):
        _fill_tool_draft(run.collector, draft, blocks)
    else:
        _fill_user_draft(run, draft, blocks)


def _fill_user_draft(run: _ClineRunState, draft: TurnDraft, blocks: list[Json]) -> None:
    """Fill a turn in the user's place; the client's own words around `<user_input>` count as pasted."""
    draft.role = "user"
    pieces = [piece for block in blocks if is_text_block(block) for piece in _split_input(join_text(block))]
    images = collect_images(blocks)
    is_typed = not run.spawned and (any(kind == "text" for kind, _ in pieces) or (bool(images) and not pieces))
    draft.author = "person" if is_typed else "machine"
    for kind, text in pieces:
        if is_typed and kind == "text":
            draft.parts += split_typed_text(text)
        else:
            draft.parts.append(Part("pasted" if is_typed else "text", text))
    draft.parts += images


def _split_input(text: str) -> list[tuple[str, str]]:
    """Return the pieces of a text: typed ones as `text`, those of a program as `pasted`.

    >>> _split_input('<user_input mode="act">go on</user_input>\\n# notes')
    [('text', 'go on'), ('pasted', '\\n# notes')]
    """
    match = _USER_INPUT.search(text)
    if match is None:
        return [("pasted" if is_machine_text(text) else "text", text)] if text.strip() else []
    pieces = [("pasted", text[: match.start()]), ("text", match[1]), ("pasted", text[match.end() :])]
    return [(kind, piece) for kind, piece in pieces if piece.strip()]


def _fill_agent_draft(collector: TurnCollector, draft: TurnDraft, row: _ClineLine, blocks: list[Json]) -> None:
    """Fill the agent's turn: thoughts, text, calls."""
    draft.role, draft.author = "assistant", "agent"
    draft.model = text_or_empty(row.model_info.get("id")) if isinstance(row.model_info, dict) else ""
    draft.n_tokens = sum_token_counts(*map(row.metrics.get, _USAGE_KEYS)) if isinstance(row.metrics, dict) else 0
    for block in blocks:
        kind, text = block.get("type"), text_or_empty(block.get("text"))
        if kind == "tool_use":
            name, call_id, tool_input = (
                text_or_empty(block.get("name")),
                text_or_empty(block.get("id")),
                block.get("input"),
            )
            add_call(draft, collector.tool_names, name, call_id, tool_input)
            draft.files += _list_read_files(tool_input)
        elif kind == "thinking":
            thought = text_or_empty(block.get("thinking"))
            draft.parts += [Part("thinking", thought)] if thought else []
        elif text:
            draft.parts.append(Part("text", text))
    draft.parts += collect_images(blocks)


def _list_read_files(tool_input: Any) -> tuple[str, ...]:
    """Return the paths of `read_files`, which takes a list of objects."""
    files = tool_input.get("files") if isinstance(tool_input, dict) else None
    paths = [file.get("path") for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    return tuple(path for path in paths if isinstance(path, str) and path and path.isprintable())


def _fill_tool_draft(collector: TurnCollector, draft: TurnDraft, blocks: list[Json]) -> None:
    """Fill a tool's turn with its outputs in full; a tool reports `success` for each of its queries."""
    draft.role, draft.author = "tool", "tool"
    for block in blocks:
        if block.get("type") != "tool_result":
            text = join_text(block)
            draft.parts += [Part("text", text)] if text else []
            continue
        call_id = text_or_empty(block.get("tool_use_id"))
        name = text_or_empty(block.get("name")) or collector.tool_names.get(call_id, "")
        text, failed = _read_result(block.get("content"))
        draft.parts.append(Part("result", text, name, call_id, failed or block.get("is_error") is True))
        draft.parts += collect_images(block.get("content"), call_id)


def _read_result(content: Any) -> tuple[str, bool]:
    """Return (text, True if it failed) of a result: text, text blocks, or reports `{"query", "result", "success"}`."""
    if isinstance(content, str) and content.startswith("{"):
        report = read_document(content.encode("utf-8", "replace"))
        if isinstance(report, dict) and "success" in report and "result" in report:
            content = [report]
    if not isinstance(content, list):
        return (content if isinstance(content, str) else "" if content is None else to_json_text(content)), False
    texts, failed = [], False
    for item in content:
        if isinstance(item, dict) and "success" in item:
            failed = failed or item.get("success") is False
            result = item.get("result") or item.get("error")
            texts.append(result if isinstance(result, str) else join_text(result) or to_json_text(result or ""))
        else:
            texts.append(join_text(item))
    return "\n".join(filter(None, texts)), failed
