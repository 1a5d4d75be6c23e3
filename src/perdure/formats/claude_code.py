"""Claude Code transcripts: `~/.claude/projects/<folder>/<session>.jsonl` and its sub-agents' files -> turns.

Lines `user` and `assistant` become turns, and words that a person queued and that appear nowhere else; every
other line is counted. Assistant lines of one API response (same `message.id`) are one turn. Versions differ
widely, so only what is used is looked at. Cutting a session into runs may cut one response in two turns.
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

from perdure.formats.blocks import add_call, add_result, image, images_of
from perdure.formats.heads import nameless, objects
from perdure.formats.lines import Draft, Gathered, feed, part
from perdure.formats.shapes import Tokens, reader
from perdure.formats.speech import is_machine, is_summary, spoken
from perdure.formats.stamps import clean_id, utc, words
from perdure.regex import lazy_re
from perdure.types import Author, Json, Line, Origin, ParsedLines, Part

_BUILT_IN = lazy_re(  # slash commands of the client itself; any other is a skill
    r"add-dir|agents|bashes|bug|clear|compact|config|context|copy|cost|doctor|effort|exit|export|fast|help|hooks|ide|"
    r"install-github-app|login|logout|mcp|memory|model|output-style|permissions|plugin|quit|release-notes|rename|resume|"
    r"rewind|sandbox|settings|skills|status|statusline|tasks|terminal-setup|theme|todos|upgrade|usage|vim"
)
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_UUID = lazy_re(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)
_COMMAND = lazy_re(r"<command-(name|message|args)>(.*?)</command-\1>", re.S)
_TYPED_TAG = lazy_re(r"\s*<(bash-input|user-memory-input)>(.*)</\1>\s*", re.S)


class _Block(msgspec.Struct, gc=False):
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
    content: str | list[_Block] | None = None
    usage: _ClaudeUsage | None = None


class _Attachment(msgspec.Struct, gc=False, rename="camel"):
    """An attachment: context that the client added by itself, or a prompt that waited in its queue."""

    type: str = ""
    prompt: Any = None
    command_mode: Any = None


class _ClaudeHead(msgspec.Struct, gc=False, rename="camel"):
    """The fields of any line. What is not named here is passed over unread: most bytes of a transcript are.

    Here and above in the order in which clients write them, which saves the decoder from looking for each.
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


_read = reader(_ClaudeHead)


@dataclass(slots=True)
class _ClaudeRun:
    """What is known while the lines of one run go by."""

    gathered: Gathered
    spawned: bool
    by_message: dict[str, Draft] = field(default_factory=dict)  # message id -> its turn
    parents: dict[str, str] = field(default_factory=dict)  # uuid -> parent uuid or "", of sidechain lines
    main: set[str] = field(default_factory=set)  # uuids of the main thread
    agents: set[str] = field(default_factory=set)  # "" for lines without an agent id
    aside: list[tuple[Draft, str, str]] = field(default_factory=list)  # turns of sidechains: (turn, uuid, agent id)
    queued: list[Draft] = field(default_factory=list)


def identify(head: bytes, path: str) -> Origin:
    """Return whose transcript this is: the file's own session, or `<session>/<agent>` for a sub-agent's file."""
    first: Json = {}  # the first value of each field
    for line in objects(head):
        first = {**line, **first}
    pure = PurePath(path.replace("\\", "/"))
    stem = pure.name.removesuffix(".jsonl")
    cwd = words(first.get("cwd")) or None
    named = clean_id(first.get("sessionId"))
    if _UUID.fullmatch(stem):
        return Origin("claude-code", stem, stem, cwd=cwd)
    agent = stem.removeprefix("agent-") if stem.startswith("agent-") else ""
    agent = clean_id(agent or (first.get("agentId") if first.get("isSidechain") is True else ""))
    if not agent:
        session = named or nameless(head)
        return Origin("claude-code", session, session, cwd=cwd)
    folder = pure.parent.parent.name if pure.parent.name == "subagents" else ""
    session = named or clean_id(folder) or nameless(head)
    return Origin("claude-code", f"{session}/{agent}", session, parent_session=session, cwd=cwd)


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    run = _ClaudeRun(Gathered(), spawned)
    feed(lines, partial(_take, run), run.gathered)
    _keep_queued(run)
    _name_threads(run)
    return run.gathered.parsed()


def _take(run: _ClaudeRun, line: Line, raw: bytes) -> None:
    """Read one line."""
    head = _read(raw)
    kind = head.type
    if kind == "assistant":
        _assistant(run, line, head)
    elif kind == "user":
        _user(run, line, head)
    elif kind == "attachment":
        _attachment(run, line, head)
    else:
        title = head.custom_title or head.ai_title or head.summary
        if title and kind in ("summary", "custom-title", "ai-title"):
            run.gathered.title = title
        run.gathered.skip(kind, head.subtype)
    if head.uuid is not None:
        if head.is_sidechain:
            run.parents[head.uuid] = head.parent_uuid or ""
        else:
            run.main.add(head.uuid)


def _draft(run: _ClaudeRun, line: Line, head: _ClaudeHead, role: Any, author: Author) -> Draft:
    """Return a new turn begun by this line, in its place among the others."""
    draft = Draft(role, author, [line.span], [], utc(head.timestamp), clean_id(head.uuid) or None)
    if head.is_sidechain:
        agent = head.agent_id or ""
        run.agents.add(agent)
        run.aside.append((draft, head.uuid or "", agent))
    else:
        run.agents.add("")
    run.gathered.drafts.append(draft)
    return draft


def _assistant(run: _ClaudeRun, line: Line, head: _ClaudeHead) -> None:
    """Begin the agent's turn, or add the next block of the same response to it."""
    message, blocks = _said_in(head)
    key = message.id
    draft = run.by_message.get(key) if key else None
    if draft is None:
        draft = _draft(run, line, head, "assistant", "machine" if message.model == "<synthetic>" else "agent")
        draft.model = message.model
        if key:
            run.by_message[key] = draft
    else:
        draft.lines.append(line.span)
    if message.usage is not None:
        draft.n_tokens = max(draft.n_tokens, _tokens(message.usage))
    for block in blocks:
        kind = block.type
        if kind == "text" and block.text is not None:
            draft.parts.append(part(("text", block.text, "", "", False)))
        elif kind == "thinking" and block.thinking:
            draft.parts.append(part(("thinking", block.thinking, "", "", False)))
        elif kind in _CALLS:
            add_call(draft, run.gathered.tools, block.name, block.id, block.input)
        elif kind.endswith("_tool_result"):
            add_result(draft, run.gathered.tools, block.tool_use_id, block.content)


def _said_in(head: _ClaudeHead) -> tuple[_ClaudeMessage, list[_Block]]:
    """Return the message of a line that must have one, and its content as blocks, a bare string as one text block."""
    message = head.message
    if message is None or message.content is None:
        raise msgspec.ValidationError("a message line without content")
    content = message.content
    return message, [_Block("text", content)] if isinstance(content, str) else content


def _tokens(usage: _ClaudeUsage) -> int:
    """Return input + output + cache tokens."""
    cached = usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    return usage.input_tokens + usage.output_tokens + cached


def _user(run: _ClaudeRun, line: Line, head: _ClaudeHead) -> None:
    """Make a turn of tool results, or of words in the person's place."""
    _, blocks = _said_in(head)
    if any(map(_is_result, blocks)):
        draft = _draft(run, line, head, "tool", "tool")
        for block in blocks:
            _add_output(draft, run.gathered.tools, block)
        return
    draft = _draft(run, line, head, "user", "machine")
    texts = [block.text for block in blocks if block.type == "text" and block.text is not None]
    pictures = [picture for block in blocks for picture in _picture(block)]
    said = [] if run.spawned or head.is_sidechain or _by_machine(head) else _said(texts, draft)
    if said or (pictures and not texts):
        draft.author = "person"
        draft.parts += said + pictures
    else:
        draft.parts += [Part("text", text) for text in texts] + pictures
        draft.is_summary = bool(head.is_compact_summary) or any(map(is_summary, texts))


def _is_result(block: _Block) -> bool:
    """Say whether a block is the result of a call."""
    return block.type == "tool_result"


def _add_output(draft: Draft, tools: dict[str, str], block: _Block) -> None:
    """Add one block of a line that carries tool results."""
    if _is_result(block):
        add_result(draft, tools, block.tool_use_id, block.content, failed=bool(block.is_error))
    elif block.type == "text" and block.text is not None:
        draft.parts.append(Part("text", block.text))
    else:
        draft.parts += _picture(block)


def _picture(block: _Block) -> list[Part]:
    """Return the image part of an image or document block."""
    if block.type not in ("image", "document"):
        return []
    if not isinstance(block.source, dict):
        return [image(block.type, "")]
    return images_of([{"type": "image", "source": block.source}])


def _by_machine(head: _ClaudeHead) -> bool:
    """Say whether the line itself states that no person typed it."""
    origin = head.origin.get("kind") if isinstance(head.origin, dict) else None
    return (
        bool(head.is_meta or head.is_compact_summary)
        or head.prompt_source not in (None, "typed", "queued", "sdk")
        or head.turn_origin not in (None, "human", "sdk")
        or origin not in (None, "human", "sdk")
        or bool(head.plan_content)  # a plan that the agent wrote and the client sent back
    )


def _said(texts: list[str], draft: Draft) -> list[Part]:
    """Return what a person typed, as parts; nothing when it was a machine's. Notes an invoked skill on the turn."""
    parts: list[Part] = []
    typed = False
    for text in texts:
        command = _command(text)
        if command is not None:
            name, arguments = command
            if not _BUILT_IN.fullmatch(name):
                draft.skills += (name,)
            parts += spoken(f"/{name} {arguments}") if arguments else []
            typed = typed or bool(arguments)
        elif match := _TYPED_TAG.fullmatch(text):
            parts.append(Part("text", ("! " if match[1] == "bash-input" else "# ") + match[2].strip()))
            typed = True
        elif is_machine(text):
            parts.append(Part("pasted", text))
        else:
            parts += spoken(text)
            typed = True
    return parts if typed else []


def _command(text: str) -> tuple[str, str] | None:
    """Return (name, arguments) of a slash command, or None.

    >>> _command("<command-message>gsd:debug</command-message><command-name>/gsd:debug</command-name>")
    ('gsd:debug', '')
    """
    if not text.lstrip().startswith("<command-"):
        return None
    found = dict(_COMMAND.findall(text))
    name = found.get("name", "").strip().lstrip("/")
    return (name, found.get("args", "").strip()) if name else None


def _attachment(run: _ClaudeRun, line: Line, head: _ClaudeHead) -> None:
    """Count an attachment; keep aside a prompt that a person had queued."""
    attached = head.attachment
    if attached is None:
        raise msgspec.ValidationError("an attachment line without one")
    prompt = _queued_text(attached)
    if attached.type == "queued_command" and attached.command_mode in (None, "prompt") and not is_machine(prompt):
        draft = _draft(run, line, head, "user", "machine")
        draft.parts = spoken(prompt)
        draft.author = "machine" if run.spawned or head.is_sidechain else "person"
        run.queued.append(draft)
    else:
        run.gathered.skip("attachment", attached.type)


def _queued_text(attached: _Attachment) -> str:
    """Return the words of a queued prompt: a string, or blocks of which the text counts."""
    prompt = attached.prompt
    if isinstance(prompt, list):
        return "\n".join(words(b.get("text")) for b in prompt if isinstance(b, dict))
    return words(prompt)


def _keep_queued(run: _ClaudeRun) -> None:
    """Drop queued prompts that were also sent as a user line of this run, counting them."""
    if not run.queued:
        return
    queued = {id(draft) for draft in run.queued}
    sent = {_key(draft) for draft in run.gathered.drafts if draft.role == "user" and id(draft) not in queued}
    kept = []
    for draft in run.gathered.drafts:
        if id(draft) in queued and (not draft.parts or _key(draft) in sent):
            run.gathered.skip("attachment", "queued_command")
        else:
            kept.append(draft)
    run.gathered.drafts = kept


def _key(draft: Draft) -> str:
    """Return the words of a turn for comparison."""
    return "\n".join(p.text for p in draft.parts).strip()


def _name_threads(run: _ClaudeRun) -> None:
    """Name each sidechain turn after its agent, or after the root of its chain of parents.

    A file that is one sub-agent's alone has no threads: the source itself is the sub-agent.
    """
    if run.spawned or (len(run.agents) == 1 and "" not in run.agents):
        return
    roots: dict[str, str] = {}
    for draft, uuid, agent in run.aside:
        draft.thread = clean_id(agent or _root(uuid, run, roots)) or "sidechain"


def _root(uuid: str, run: _ClaudeRun, roots: dict[str, str]) -> str:
    """Return the first uuid of a sidechain; if that lies outside these lines, the earliest that is named."""
    path = []
    while uuid in run.parents and uuid not in roots:
        path.append(uuid)
        roots[uuid] = uuid  # ends a cycle
        parent = run.parents[uuid]
        if not parent or parent in run.main:
            break
        uuid = parent
    root = roots.get(uuid, uuid)
    for step in path:
        roots[step] = root
    return root
