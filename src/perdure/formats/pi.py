"""pi transcripts: `~/.pi/agent/sessions/--<folder>--/<time>_<id>.jsonl` -> turns.

One file is a tree: going back in a conversation leaves the abandoned branch between the live lines. Every
turn carries its link, and `find_abandoned` finds the entries that the last entry no longer descends from.
A fork copies entries with their ids and times, so `<id>@<time>` is the same in the copy. Files before
version 2 have no ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import PurePath
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.formats.json_text import make_session_id, read_objects
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines, make_part
from perdure.formats.parts import add_call, add_result, collect_images, join_text
from perdure.formats.prompt_text import is_machine_text, split_typed_text
from perdure.formats.values import Tokens, clean_id, make_reader, parse_instant, text_or_empty
from perdure.types import Author, Json, Origin, ParsedLines, Part, Role

_SUMMARY_TYPES = ("compaction", "branch_summary")


class _PiUsage(msgspec.Struct, gc=False, rename="camel"):
    """Tokens of one response."""

    input: Tokens = 0
    output: Tokens = 0
    cache_read: Tokens = 0
    cache_write: Tokens = 0


class _PiMessage(msgspec.Struct, gc=False, rename="camel"):
    """The message of an entry."""

    role: str = ""
    tool_call_id: str = ""
    tool_name: str = ""
    content: Any = None
    model: str = ""
    usage: _PiUsage | None = None
    is_error: bool | None = None
    summary: Any = None
    command: str = ""
    output: str = ""
    exit_code: Any = None


class _PiEntry(msgspec.Struct, gc=False, rename="camel"):
    """The fields of any entry."""

    type: str = ""
    id: str | None = None
    parent_id: str | None = None
    timestamp: Any = None  # as it is written, because it is part of the native id
    message: _PiMessage | None = None
    summary: str | None = None
    content: Any = None
    name: str | None = None


_decode_entry = make_reader(_PiEntry)


def identify(first_bytes: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session of the header; a fork names the file that it was made from."""
    header: Json = next((line for line in read_objects(first_bytes) if line.get("type") == "session"), {})
    session = clean_id(header.get("id")) or make_session_id(first_bytes)
    parent = _read_session_id(header.get("parentSession") or header.get("branchedFrom"))
    cwd = text_or_empty(header.get("cwd")) or None
    return Origin("pi", session, session, parent_session=parent, cwd=cwd, fork=parent is not None)


def _read_session_id(path: Any) -> str | None:
    """Return the session id in the name of a session file, `<time>_<id>.jsonl`; a bare id is kept."""
    if not isinstance(path, str) or not path:
        return None
    stem = PurePath(path.replace("\\", "/")).name.removesuffix(".jsonl")
    return clean_id(stem.partition("_")[2] or stem) or None


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    collector = TurnCollector()
    feed_lines(lines, partial(_read_entry, collector, spawned), collector)
    return collector.to_parsed_lines()


def _read_entry(collector: TurnCollector, spawned: bool, line: Line, raw: bytes) -> None:
    """Read one entry."""
    entry = _decode_entry(raw)
    if entry.type == "message":
        if entry.message is None:
            raise msgspec.ValidationError("a message entry without one")
        _read_message(collector, spawned, line, entry, entry.message)
    elif entry.type in _SUMMARY_TYPES:
        draft = _begin_draft(collector, line, entry, "system")
        draft.is_summary = True
        draft.parts += [Part("text", entry.summary)] if entry.summary else []
    elif entry.type == "custom_message":
        draft = _begin_draft(collector, line, entry, "system")
        draft.parts += _build_parts(entry.content)
    else:
        if entry.type == "session_info":
            collector.title = entry.name or collector.title
        collector.skip(entry.type)
    if entry.type != "session" and (link := _read_link(entry)):
        collector.links.append(link)


def _read_link(entry: _PiEntry) -> tuple[str, str | None] | None:
    """Return (entry id, parent id) of an entry; None where it has no id."""
    entry_id = clean_id(entry.id)
    return (entry_id, clean_id(entry.parent_id) or None) if entry_id else None


def _begin_draft(
    collector: TurnCollector, line: Line, entry: _PiEntry, role: Role, author: Author = "machine"
) -> TurnDraft:
    """Begin a new turn with this line."""
    draft = TurnDraft(role, author, [line.span], [], parse_instant(entry.timestamp))
    if link := _read_link(entry):
        draft.native_id = f"{link[0]}@{clean_id(entry.timestamp) or entry.timestamp}"
        draft.link = link
    collector.drafts.append(draft)
    return draft


def _build_parts(content: Any) -> list[Part]:
    """Return one text part with all the text of a content, and its images."""
    text = join_text(content)
    return [*([Part("text", text)] if text else []), *collect_images(content)]


def _read_message(collector: TurnCollector, spawned: bool, line: Line, entry: _PiEntry, message: _PiMessage) -> None:
    """Make a turn of one message."""
    role = message.role
    if role == "user":
        draft = _begin_draft(collector, line, entry, "user")
        text = join_text(message.content)
        images = collect_images(message.content)
        is_typed = not spawned and not (is_machine_text(text) if text else not images)
        draft.author = "person" if is_typed else "machine"
        draft.parts += [*split_typed_text(text), *images] if is_typed else _build_parts(message.content)
    elif role == "assistant":
        _fill_agent_draft(collector, _begin_draft(collector, line, entry, "assistant", "agent"), message)
    elif role == "toolResult":
        draft = _begin_draft(collector, line, entry, "tool", "tool")
        call_id = message.tool_call_id
        collector.tool_names.setdefault(call_id, message.tool_name)
        add_result(draft, collector.tool_names, call_id, message.content, failed=bool(message.is_error))
    elif role == "bashExecution":
        draft = _begin_draft(collector, line, entry, "user", "machine" if spawned else "person")
        failed = message.exit_code not in (None, 0)
        draft.parts.append(Part("text", f"! {message.command}"))
        draft.parts.append(Part("result", message.output, "bash", is_error=failed))
    elif role in ("system", "custom", "hookMessage", "branchSummary", "compactionSummary"):
        draft = _begin_draft(collector, line, entry, "system")
        draft.is_summary = role.endswith("Summary")
        draft.parts += _build_parts(message.content or message.summary)
    else:
        collector.skip("message", role)


def _fill_agent_draft(collector: TurnCollector, draft: TurnDraft, message: _PiMessage) -> None:
    """Fill the agent's turn."""
    draft.model = message.model
    if usage := message.usage:
        draft.n_tokens = usage.input + usage.output + usage.cache_read + usage.cache_write
    content = message.content if isinstance(message.content, list) else [{"type": "text", "text": message.content}]
    for block in content:
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind in ("text", "thinking") and (text := text_or_empty(block.get(kind))):
            draft.parts.append(make_part((kind, text, "", "", False, "")))
        elif kind == "toolCall":
            add_call(
                draft,
                collector.tool_names,
                text_or_empty(block.get("name")),
                text_or_empty(block.get("id")),
                block.get("arguments"),
            )
