"""pi transcripts: `~/.pi/agent/sessions/--<folder>--/<time>_<id>.jsonl` -> turns.

One file is a tree: going back in a conversation leaves the abandoned branch between the live lines. Every turn
carries its link, and `abandoned` tells what the last entry no longer descends from. A fork copies entries with
their ids and times, so `<id>@<time>` is the same in the copy. Files before version 2 have no ids at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import PurePath
from typing import Any

import msgspec

from perdure.formats.blocks import add_call, add_result, images_of, text_of
from perdure.formats.heads import nameless, objects
from perdure.formats.lines import Draft, Gathered, feed, part
from perdure.formats.shapes import Tokens, reader
from perdure.formats.speech import is_machine, spoken
from perdure.formats.stamps import clean_id, instant, words
from perdure.types import Author, Json, Line, Origin, ParsedLines, Part, Role

_SUMMARIES = ("compaction", "branch_summary")


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


class _PiHead(msgspec.Struct, gc=False, rename="camel"):
    """The fields of any entry."""

    type: str = ""
    id: str | None = None
    parent_id: str | None = None
    timestamp: Any = None  # as it is written, because it is part of the native id
    message: _PiMessage | None = None
    summary: str | None = None
    content: Any = None
    name: str | None = None


_read = reader(_PiHead)


def identify(head: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the session of the header; a fork names the file that it was made from."""
    header: Json = next((line for line in objects(head) if line.get("type") == "session"), {})
    session = clean_id(header.get("id")) or nameless(head)
    parent = _session_of(header.get("parentSession") or header.get("branchedFrom"))
    cwd = words(header.get("cwd")) or None
    return Origin("pi", session, session, parent_session=parent, cwd=cwd, fork=parent is not None)


def _session_of(path: Any) -> str | None:
    """Return the session id in the name of a session file, `<time>_<id>.jsonl`; a bare id is kept."""
    if not isinstance(path, str) or not path:
        return None
    stem = PurePath(path.replace("\\", "/")).name.removesuffix(".jsonl")
    return clean_id(stem.partition("_")[2] or stem) or None


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    gathered = Gathered()
    feed(lines, partial(_take, gathered, spawned), gathered)
    return gathered.parsed()


def _take(gathered: Gathered, spawned: bool, line: Line, raw: bytes) -> None:
    """Read one entry."""
    head = _read(raw)
    if head.type == "message":
        if head.message is None:
            raise msgspec.ValidationError("a message entry without one")
        _said(gathered, spawned, line, head, head.message)
    elif head.type in _SUMMARIES:
        draft = _draft(gathered, line, head, "system")
        draft.is_summary = True
        draft.parts += [Part("text", head.summary)] if head.summary else []
    elif head.type == "custom_message":
        draft = _draft(gathered, line, head, "system")
        draft.parts += _texts(head.content)
    else:
        if head.type == "session_info":
            gathered.title = head.name or gathered.title
        gathered.skip(head.type)
    if head.type != "session" and (link := _link(head)):
        gathered.links.append(link)


def _link(head: _PiHead) -> tuple[str, str | None] | None:
    """Return (entry id, parent id) of an entry; None where it has no id."""
    entry = clean_id(head.id)
    return (entry, clean_id(head.parent_id) or None) if entry else None


def _draft(gathered: Gathered, line: Line, head: _PiHead, role: Role, author: Author = "machine") -> Draft:
    """Return a new turn begun by this line."""
    draft = Draft(role, author, [line.span], [], instant(head.timestamp))
    if link := _link(head):
        draft.native_id = f"{link[0]}@{clean_id(head.timestamp) or head.timestamp}"
        draft.link = link
    gathered.drafts.append(draft)
    return draft


def _texts(content: Any) -> list[Part]:
    """Return one text part of all the text of a content, and its images."""
    text = text_of(content)
    return [*([Part("text", text)] if text else []), *images_of(content)]


def _said(gathered: Gathered, spawned: bool, line: Line, head: _PiHead, message: _PiMessage) -> None:
    """Make a turn of one message."""
    role = message.role
    if role == "user":
        draft = _draft(gathered, line, head, "user")
        text = text_of(message.content)
        pictures = images_of(message.content)
        typed = not spawned and not (is_machine(text) if text else not pictures)
        draft.author = "person" if typed else "machine"
        draft.parts += [*spoken(text), *pictures] if typed else _texts(message.content)
    elif role == "assistant":
        _answer(gathered, _draft(gathered, line, head, "assistant", "agent"), message)
    elif role == "toolResult":
        draft = _draft(gathered, line, head, "tool", "tool")
        call_id = message.tool_call_id
        gathered.tools.setdefault(call_id, message.tool_name)
        add_result(draft, gathered.tools, call_id, message.content, failed=bool(message.is_error))
    elif role == "bashExecution":
        draft = _draft(gathered, line, head, "user", "machine" if spawned else "person")
        failed = message.exit_code not in (None, 0)
        draft.parts.append(Part("text", f"! {message.command}"))
        draft.parts.append(Part("result", message.output, "bash", is_error=failed))
    elif role in ("system", "custom", "hookMessage", "branchSummary", "compactionSummary"):
        draft = _draft(gathered, line, head, "system")
        draft.is_summary = role.endswith("Summary")
        draft.parts += _texts(message.content or message.summary)
    else:
        gathered.skip("message", role)


def _answer(gathered: Gathered, draft: Draft, message: _PiMessage) -> None:
    """Fill the agent's turn."""
    draft.model = message.model
    if usage := message.usage:
        draft.n_tokens = usage.input + usage.output + usage.cache_read + usage.cache_write
    content = message.content if isinstance(message.content, list) else [{"type": "text", "text": message.content}]
    for block in content:
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind in ("text", "thinking") and (text := words(block.get(kind))):
            draft.parts.append(part((kind, text, "", "", False)))
        elif kind == "toolCall":
            add_call(draft, gathered.tools, words(block.get("name")), words(block.get("id")), block.get("arguments"))
