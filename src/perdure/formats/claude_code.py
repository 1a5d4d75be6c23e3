"""Claude Code transcripts: `~/.claude/projects/<folder>/<session>.jsonl` and its sub-agents' files -> turns.

Lines `user` and `assistant` become turns, and so do prompts that a person queued and that appear nowhere
else; every other line is counted. Assistant lines of one API response (same `message.id`) are one turn.
Versions differ widely, so only fields that are used are read. Cutting a session into runs may cut one
response into two turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import PurePath
from typing import Any

import msgspec

from perdure.capture.lines import Line
from perdure.formats.json_text import make_session_id, read_objects
from perdure.formats.parsing import TurnCollector, TurnDraft, feed_lines, make_part
from perdure.formats.parts import add_call, add_result, build_image_part, collect_images
from perdure.formats.prompt_text import BUILT_IN_COMMANDS, is_client_summary, is_machine_text, split_typed_text
from perdure.formats.values import Tokens, clean_id, make_reader, text_or_empty, to_utc
from perdure.regex import lazy_re
from perdure.types import Author, Json, Origin, ParsedLines, Part

_CALL_TYPES = ("tool_use", "server_tool_use", "mcp_tool_use")
_UUID = lazy_re(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)
_ORIGIN_FIELDS = {"cwd", "sessionId", "isSidechain"}  # what names a session; a sub-agent's has an agentId, too
_COMMAND_TAG = lazy_re(r"<command-(name|message|args)>(.*?)</command-\1>", re.S)
_TYPED_TAG = lazy_re(r"\s*<(bash-input|user-memory-input)>(.*)</\1>\s*", re.S)


class _ClaudeBlock(msgspec.Struct, gc=False):
    """One block of a message's content, of any type."""

    type: str = ""
    text: str | None = None
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    tool_use_id: str = ""
    content: Any = None
    is_error: bool | None = None
    source: Any = None


class _ClaudeUsage(msgspec.Struct, gc=False):
    """Tokens of one API response."""

    input_tokens: Tokens = 0
    cache_creation_input_tokens: Tokens = 0
    cache_read_input_tokens: Tokens = 0
    output_tokens: Tokens = 0


class _ClaudeMessage(msgspec.Struct, gc=False):
    """The API message inside a line."""

    model: str = ""
    id: str = ""
    content: str | list[_ClaudeBlock] | None = None
    usage: _ClaudeUsage | None = None


class _Attachment(msgspec.Struct, gc=False, rename="camel"):
    """An attachment: context that the client added by itself, or a prompt that waited in its queue."""

    type: str = ""
    prompt: Any = None
    command_mode: Any = None


class _ClaudeLine(msgspec.Struct, gc=False, rename="camel"):
    """The fields of any line. Other fields are skipped unread: most bytes of a transcript are.

    Fields here and above stand in the order in which clients write them, so the decoder need not search for
    each.
    """

    parent_uuid: str | None = None
    is_sidechain: bool | None = None
    agent_id: str | None = None
    type: str = ""
    subtype: str | None = None
    message: _ClaudeMessage | None = None
    attachment: _Attachment | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    uuid: str | None = None
    timestamp: datetime | None = None
    prompt_source: Any = None
    turn_origin: Any = None
    origin: Any = None
    plan_content: Any = None
    summary: str | None = None
    custom_title: str | None = None
    ai_title: str | None = None


_decode_line = make_reader(_ClaudeLine)


@dataclass(slots=True)
class _ClaudeRunState:
    """The state while the lines of one run are read."""

    collector: TurnCollector
    spawned: bool
    drafts_by_message: dict[str, TurnDraft] = field(default_factory=dict)  # message id -> its turn
    parents: dict[str, str] = field(default_factory=dict)  # uuid -> parent uuid or "", of sidechain lines
    main_uuids: set[str] = field(default_factory=set)  # uuids of the main thread
    agent_ids: set[str] = field(default_factory=set)  # "" for lines without an agent id
    sidechain_turns: list[tuple[TurnDraft, str, str]] = field(
        default_factory=list
    )  # turns of sidechains: (turn, uuid, agent id)
    queued_drafts: list[TurnDraft] = field(default_factory=list)


def identify(first_bytes: bytes, path: str) -> Origin:
    """Return the session of a transcript: the file's own session, or `<session>/<agent>` for a sub-agent's file."""
    fields: Json = {}  # the first value of each field
    for line in read_objects(first_bytes):
        fields = {**line, **fields}
        if fields.keys() >= _ORIGIN_FIELDS and (fields["isSidechain"] is not True or "agentId" in fields):
            break
    pure_path = PurePath(path.replace("\\", "/"))
    stem = pure_path.name.removesuffix(".jsonl")
    cwd = text_or_empty(fields.get("cwd")) or None
    session_id = clean_id(fields.get("sessionId"))
    if _UUID.fullmatch(stem):
        return Origin("claude-code", stem, stem, cwd=cwd)
    agent = stem.removeprefix("agent-") if stem.startswith("agent-") else ""
    agent = clean_id(agent or (fields.get("agentId") if fields.get("isSidechain") is True else ""))
    if not agent:
        session = session_id or make_session_id(first_bytes)
        return Origin("claude-code", session, session, cwd=cwd)
    folder = pure_path.parent.parent.name if pure_path.parent.name == "subagents" else ""
    session = session_id or clean_id(folder) or make_session_id(first_bytes)
    return Origin("claude-code", f"{session}/{agent}", session, parent_session=session, cwd=cwd)


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    run = _ClaudeRunState(TurnCollector(), spawned)
    feed_lines(lines, partial(_read_line, run), run.collector)
    _drop_sent_prompts(run)
    _name_threads(run)
    return run.collector.to_parsed_lines()


def _read_line(run: _ClaudeRunState, line: Line, raw: bytes) -> None:
    """Read one line."""
    entry = _decode_line(raw)
    kind = entry.type
    if kind == "assistant":
        _read_assistant(run, line, entry)
    elif kind == "user":
        _read_user(run, line, entry)
    elif kind == "attachment":
        _read_attachment(run, line, entry)
    else:
        title = entry.custom_title or entry.ai_title or entry.summary
        if title and kind in ("summary", "custom-title", "ai-title"):
            run.collector.title = title
        run.collector.skip(kind, entry.subtype)
    if entry.uuid is not None:
        if entry.is_sidechain:
            run.parents[entry.uuid] = entry.parent_uuid or ""
        else:
            run.main_uuids.add(entry.uuid)


def _begin_draft(run: _ClaudeRunState, line: Line, entry: _ClaudeLine, role: Any, author: Author) -> TurnDraft:
    """Begin a new turn with this line."""
    draft = TurnDraft(role, author, [line.span], [], to_utc(entry.timestamp), clean_id(entry.uuid) or None)
    if entry.is_sidechain:
        agent = entry.agent_id or ""
        run.agent_ids.add(agent)
        run.sidechain_turns.append((draft, entry.uuid or "", agent))
    else:
        run.agent_ids.add("")
    run.collector.drafts.append(draft)
    return draft


def _read_assistant(run: _ClaudeRunState, line: Line, entry: _ClaudeLine) -> None:
    """Begin the agent's turn, or add the next block of the same response to it."""
    message, blocks = _read_blocks(entry)
    message_id = message.id
    draft = run.drafts_by_message.get(message_id) if message_id else None
    if draft is None:
        draft = _begin_draft(run, line, entry, "assistant", "machine" if message.model == "<synthetic>" else "agent")
        draft.model = message.model
        if message_id:
            run.drafts_by_message[message_id] = draft
    else:
        draft.lines.append(line.span)
    if message.usage is not None:
        draft.n_tokens = max(draft.n_tokens, _count_tokens(message.usage))
    for block in blocks:
        block_type = block.type
        if block_type == "text" and block.text is not None:
            draft.parts.append(make_part(("text", block.text, "", "", False, "")))
        elif block_type == "thinking" and block.thinking:
            draft.parts.append(make_part(("thinking", block.thinking, "", "", False, "")))
        elif block_type in _CALL_TYPES:
            add_call(draft, run.collector.tool_names, block.name, block.id, block.input)
        elif block_type.endswith("_tool_result"):
            add_result(draft, run.collector.tool_names, block.tool_use_id, block.content)


def _read_blocks(entry: _ClaudeLine) -> tuple[_ClaudeMessage, list[_ClaudeBlock]]:
    """Return a line's message and its content as blocks; a bare string is one text block. Raises if it has none."""
    message = entry.message
    if message is None or message.content is None:
        raise msgspec.ValidationError("a message line without content")
    content = message.content
    return message, [_ClaudeBlock("text", content)] if isinstance(content, str) else content


def _count_tokens(usage: _ClaudeUsage) -> int:
    """Return input + output + cache tokens."""
    n_cached = usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    return usage.input_tokens + usage.output_tokens + n_cached


def _read_user(run: _ClaudeRunState, line: Line, entry: _ClaudeLine) -> None:
    """Make a turn of tool results, or of a text in the person's place."""
    _, blocks = _read_blocks(entry)
    if any(map(_is_tool_result, blocks)):
        draft = _begin_draft(run, line, entry, "tool", "tool")
        for block in blocks:
            _add_result_block(draft, run.collector.tool_names, block)
        return
    draft = _begin_draft(run, line, entry, "user", "machine")
    texts = [block.text for block in blocks if block.type == "text" and block.text is not None]
    images = [image for block in blocks for image in _build_images(block)]
    typed_parts = (
        [] if run.spawned or entry.is_sidechain or _is_marked_as_machine(entry) else _build_typed_parts(texts, draft)
    )
    if typed_parts or (images and not texts):
        draft.author = "person"
        draft.parts += typed_parts + images
    else:
        draft.parts += [Part("text", text) for text in texts] + images
        draft.is_summary = bool(entry.is_compact_summary) or any(map(is_client_summary, texts))


def _is_tool_result(block: _ClaudeBlock) -> bool:
    """Return True if a block is the result of a call."""
    return block.type == "tool_result"


def _add_result_block(draft: TurnDraft, tool_names: dict[str, str], block: _ClaudeBlock) -> None:
    """Add one block of a line that carries tool results."""
    if _is_tool_result(block):
        add_result(draft, tool_names, block.tool_use_id, block.content, failed=bool(block.is_error))
    elif block.type == "text" and block.text is not None:
        draft.parts.append(Part("text", block.text))
    else:
        draft.parts += _build_images(block)


def _build_images(block: _ClaudeBlock) -> list[Part]:
    """Return the image part of an image or document block."""
    if block.type not in ("image", "document"):
        return []
    if not isinstance(block.source, dict):
        return [build_image_part(block.type, "")]
    return collect_images([{"type": "image", "source": block.source}])


def _is_marked_as_machine(entry: _ClaudeLine) -> bool:
    """Return True if the line itself says that no person typed it."""
    origin = entry.origin.get("kind") if isinstance(entry.origin, dict) else None
    return (
        bool(entry.is_meta or entry.is_compact_summary)
        or entry.prompt_source not in (None, "typed", "queued", "sdk")
        or entry.turn_origin not in (None, "human", "sdk")
        or origin not in (None, "human", "sdk")
        or bool(entry.plan_content)  # a plan that the agent wrote and the client sent back
    )


def _build_typed_parts(texts: list[str], draft: TurnDraft) -> list[Part]:
    """Return text that a person typed, as parts; empty if a machine wrote it. Notes an invoked skill on the turn."""
    parts: list[Part] = []
    is_typed = False
    for text in texts:
        command = _parse_command(text)
        if command is not None:
            name, arguments = command
            if not BUILT_IN_COMMANDS.fullmatch(name):
                draft.skills += (name,)
            parts += split_typed_text(f"/{name} {arguments}") if arguments else []
            is_typed = is_typed or bool(arguments)
        elif match := _TYPED_TAG.fullmatch(text):
            parts.append(Part("text", ("! " if match[1] == "bash-input" else "# ") + match[2].strip()))
            is_typed = True
        elif is_machine_text(text):
            parts.append(Part("pasted", text))
        else:
            parts += split_typed_text(text)
            is_typed = True
    return parts if is_typed else []


def _parse_command(text: str) -> tuple[str, str] | None:
    """Return (name, arguments) of a slash command, or None.

    >>> _parse_command("<command-message>gsd:debug</command-message><command-name>/gsd:debug</command-name>")
    ('gsd:debug', '')
    """
    if not text.lstrip().startswith("<command-"):
        return None
    tags = dict(_COMMAND_TAG.findall(text))
    name = tags.get("name", "").strip().lstrip("/")
    return (name, tags.get("args", "").strip()) if name else None


def _read_attachment(run: _ClaudeRunState, line: Line, entry: _ClaudeLine) -> None:
    """Count an attachment; make a turn of a prompt that a person had queued."""
    attachment = entry.attachment
    if attachment is None:
        raise msgspec.ValidationError("an attachment line without one")
    prompt = _read_queued_text(attachment)
    if (
        attachment.type == "queued_command"
        and attachment.command_mode in (None, "prompt")
        and not is_machine_text(prompt)
    ):
        draft = _begin_draft(run, line, entry, "user", "machine")
        draft.parts = split_typed_text(prompt)
        draft.author = "machine" if run.spawned or entry.is_sidechain else "person"
        run.queued_drafts.append(draft)
    else:
        run.collector.skip("attachment", attachment.type)


def _read_queued_text(attachment: _Attachment) -> str:
    """Return the text of a queued prompt: a string, or the text of its blocks."""
    prompt = attachment.prompt
    if isinstance(prompt, list):
        return "\n".join(text_or_empty(b.get("text")) for b in prompt if isinstance(b, dict))
    return text_or_empty(prompt)


def _drop_sent_prompts(run: _ClaudeRunState) -> None:
    """Drop queued prompts that were also sent as a user line of this run, and count them."""
    if not run.queued_drafts:
        return
    queued_ids = {id(draft) for draft in run.queued_drafts}
    sent_texts = {
        _join_words(draft) for draft in run.collector.drafts if draft.role == "user" and id(draft) not in queued_ids
    }
    remaining_drafts = []
    for draft in run.collector.drafts:
        if id(draft) in queued_ids and (not draft.parts or _join_words(draft) in sent_texts):
            run.collector.skip("attachment", "queued_command")
        else:
            remaining_drafts.append(draft)
    run.collector.drafts = remaining_drafts


def _join_words(draft: TurnDraft) -> str:
    """Return the text of a turn for comparison."""
    return "\n".join(p.text for p in draft.parts).strip()


def _name_threads(run: _ClaudeRunState) -> None:
    """Name each sidechain turn after its agent, or after the root of its chain of parents.

    A file of one sub-agent alone has no threads: the source itself is the sub-agent.
    """
    if run.spawned or (len(run.agent_ids) == 1 and "" not in run.agent_ids):
        return
    roots: dict[str, str] = {}
    for draft, uuid, agent in run.sidechain_turns:
        draft.thread = clean_id(agent or _find_root(uuid, run, roots)) or "sidechain"


def _find_root(uuid: str, run: _ClaudeRunState, roots: dict[str, str]) -> str:
    """Return the first uuid of a sidechain; if that lies outside these lines, the earliest uuid that is named."""
    path = []
    while uuid in run.parents and uuid not in roots:
        path.append(uuid)
        roots[uuid] = uuid  # ends a cycle
        parent = run.parents[uuid]
        if not parent or parent in run.main_uuids:
            break
        uuid = parent
    root = roots.get(uuid, uuid)
    for step_uuid in path:
        roots[step_uuid] = root
    return root
