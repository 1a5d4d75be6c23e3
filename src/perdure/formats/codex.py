"""Codex transcripts: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl` -> turns.

`response_item` lines are what the model saw and said; `event_msg` lines repeat them for the interface and are
counted, not doubled. Consecutive items of the agent (reasoning, words, calls) up to an output or a user message
are one turn. Sub-agents have files of their own and what stands there in the user's place is a machine's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from perdure.formats.blocks import add_call, add_result, images_of, text_of
from perdure.formats.heads import nameless, objects
from perdure.formats.lines import UNREADABLE, Draft, Gathered, feed
from perdure.formats.shapes import Tokens, reader
from perdure.formats.speech import is_machine, spoken
from perdure.formats.stamps import clean_id, utc, words
from perdure.regex import lazy_re
from perdure.types import Author, Json, Line, Origin, ParsedLines, Part

LINE_TYPES = (
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "world_state",
    "token_usage_record",
)
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_OLD_ITEMS = (*_CALLS, *_OUTPUTS, "message", "reasoning")  # before September 2025 a line was the item itself
_MY_REQUEST = lazy_re(
    r"\s*# (?:Context from my IDE setup|Files mentioned by the user):.*?\n## My request for Codex:", re.S
)
_SKILL = lazy_re(r"\s*<skill>\s*<name>([^<\n]{1,100})</name>")
_EXIT_SIGN = "code"  # every output that states an exit code holds it
_REFUSED = "exec_command failed:"  # the client's answer to a call that it or the person refused
_EXIT = lazy_re(r"(?:Process exited with code|Exit code:) (-?\d+)")
_EXIT_WITHIN_CHARS = 300  # the status is at the start of an output, before the program's own text
_EVENTS = {"user": "event_msg:user_message", "assistant": "event_msg:agent_message"}


class _CodexUsage(msgspec.Struct, gc=False):
    """Tokens of one response, or of all so far."""

    total_tokens: Tokens = 0
    input_tokens: Tokens = 0
    output_tokens: Tokens = 0


class _Info(msgspec.Struct, gc=False):
    """What a `token_count` event tells."""

    last_token_usage: _CodexUsage | None = None
    total_token_usage: _CodexUsage | None = None


class _Item(msgspec.Struct, gc=False):
    """A payload: a response item, an event, or the context of the turns that follow."""

    type: str = ""
    id: str | None = None
    role: str = ""
    summary: Any = None
    content: Any = None
    name: str = ""
    namespace: str | None = None
    arguments: Any = None
    call_id: str | None = None
    input: Any = None
    output: Any = None
    action: Any = None
    internal_chat_message_metadata_passthrough: Any = None
    provenance: Any = None
    message: Any = None
    info: _Info | None = None
    model: str | None = None
    thread_name: str | None = None
    thread_source: Any = None
    parent_thread_id: str | None = None


class _CodexHead(msgspec.Struct, gc=False):
    """The fields of any line. What is not named here is passed over unread."""

    timestamp: datetime | None = None
    type: str = ""
    payload: _Item | None = None


_read = reader(_CodexHead)
_read_item = reader(_Item)


@dataclass(slots=True)
class _CodexRun:
    """What is known while the lines of one run go by."""

    gathered: Gathered
    spawned: bool
    model: str = ""
    agent: Draft | None = None  # the agent's turn that is still open
    latest: Draft | None = None  # the agent's last turn, which usage belongs to
    so_far: _CodexUsage | None = None  # the last total usage seen: the client repeats it
    has_items: bool = False
    events: list[Draft] = field(default_factory=list)  # text of events, used only when there are no items


def identify(head: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the thread of a rollout, with the thread that spawned it or that it was forked from."""
    meta: Json = next((line for line in objects(head) if "id" in _meta(line)), {})
    meta = _meta(meta)
    session = clean_id(meta.get("id")) or nameless(head)
    cwd = words(meta.get("cwd")) or None
    spawner = clean_id(meta.get("parent_thread_id")) or clean_id(_spawn(meta).get("parent_thread_id"))
    if spawner:
        root = clean_id(meta.get("session_id"))
        return Origin("codex", session, root if root and root != session else spawner, parent_session=spawner, cwd=cwd)
    fork = clean_id(meta.get("forked_from_id"))
    return Origin("codex", session, session, parent_session=fork or None, cwd=cwd, fork=bool(fork))


def _meta(line: Json) -> Json:
    """Return the session's metadata in a line, wherever that version put them."""
    payload = line.get("payload", line) if line.get("type") in ("session_meta", None) else None
    return payload if isinstance(payload, dict) else {}


def _spawn(meta: Json) -> Json:
    """Return `source.subagent.thread_spawn` of the metadata."""
    found: Any = meta
    for key in ("source", "subagent", "thread_spawn"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    run = _CodexRun(Gathered(), spawned)
    feed(lines, partial(_take, run), run.gathered)
    if not run.has_items and any(draft.role == "user" for draft in run.events):
        run.gathered.drafts = sorted([*run.gathered.drafts, *run.events], key=lambda draft: draft.lines[0])
        events = Counter(_EVENTS[draft.role] for draft in run.events)
        run.gathered.skipped = dict(Counter(run.gathered.skipped) - events)
    return run.gathered.parsed()


def _take(run: _CodexRun, line: Line, raw: bytes) -> None:
    """Read one line."""
    head = _read(raw)
    kind, item = head.type, head.payload
    if item is None:
        if kind in LINE_TYPES:
            raise msgspec.ValidationError("a line without a payload")
        if kind in _OLD_ITEMS:
            _response(run, line, head, _read_item(raw))
        else:
            run.gathered.skip(kind)
    elif kind == "response_item":
        _response(run, line, head, item)
    elif kind == "event_msg":
        _event(run, line, head, item)
    elif kind == "compacted":
        _compacted(run, line, head, item)
    else:
        run.model = item.model or run.model
        run.spawned = run.spawned or bool(item.parent_thread_id) or item.thread_source == "subagent"
        run.gathered.skip(kind)


def _response(run: _CodexRun, line: Line, head: _CodexHead, item: _Item) -> None:
    """Make a turn of one response item, or add it to the agent's open turn."""
    kind = item.type
    if kind in _CALLS:
        draft = _agent(run, line, head, item)
        name, given = _called(item)
        add_call(draft, run.gathered.tools, name, item.call_id or "", given)
    elif kind in _OUTPUTS:
        draft = _draft(run, line, head, item, "tool", "tool")
        text, failed = _output(item.output)
        add_result(draft, run.gathered.tools, item.call_id or "", text, failed=failed)
    elif kind == "reasoning":
        draft = _agent(run, line, head, item)
        text = "\n\n".join(filter(None, map(text_of, (item.summary, item.content))))
        if text:
            draft.parts.append(Part("thinking", text))
    elif kind == "message" and item.role == "assistant":
        draft = _agent(run, line, head, item)
        if text := text_of(item.content):
            draft.parts.append(Part("text", text))
    elif kind == "message":
        _message(run, line, head, item)
    else:
        run.gathered.skip("response_item", kind)
    run.has_items = True


def _draft(run: _CodexRun, line: Line, head: _CodexHead, item: _Item | None, role: Any, author: Author) -> Draft:
    """Return a new turn begun by this line; it closes the agent's open one."""
    draft = Draft(role, author, [line.span], [], utc(head.timestamp), clean_id(item.id) or None if item else None)
    run.gathered.drafts.append(draft)
    run.agent = None
    return draft


def _agent(run: _CodexRun, line: Line, head: _CodexHead, item: _Item) -> Draft:
    """Return the agent's open turn with this line added, or a new one."""
    draft = run.agent
    if draft is None:
        draft = run.latest = _draft(run, line, head, item, "assistant", "agent")
        draft.model = run.model
        run.agent = draft
    else:
        draft.lines.append(line.span)
        draft.native_id = draft.native_id or clean_id(item.id) or None
    return draft


def _called(item: _Item) -> tuple[str, Any]:
    """Return (tool name, decoded input) of a call of any kind."""
    if item.type == "web_search_call":
        return "web_search", item.action
    if item.type == "local_shell_call":
        return "local_shell", item.action
    name = item.name
    if item.namespace:
        name = f"{item.namespace}__{name.lstrip('_')}"
    given = item.input if item.type == "custom_tool_call" else item.arguments
    if isinstance(given, str) and item.type == "function_call":
        given = _arguments(given)
    return name, given


def _arguments(text: str) -> Any:
    """Return the arguments, which are JSON inside a string; the string itself when it is not."""
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        return text


def _output(output: Any) -> tuple[Any, bool]:
    """Return (content, failed) of a call's output: a string, blocks, or the older {"output", "metadata"}."""
    failed = False
    if isinstance(output, str) and output.startswith('{"output":'):
        output = _arguments(output)
    if isinstance(output, dict):
        metadata = output.get("metadata")
        code = metadata.get("exit_code") if isinstance(metadata, dict) else 0
        failed = output.get("success") is False or code not in (0, None)
        output = output.get("output", output.get("content"))
    if isinstance(output, str):
        failed = failed or _exit_code(output[:_EXIT_WITHIN_CHARS]) != "0" or output.startswith(_REFUSED)
    return output, failed


def _exit_code(head: str) -> str:
    """Return the exit code that the head of an output states, "0" when it states none."""
    match = _EXIT.search(head) if _EXIT_SIGN in head else None
    return match[1] if match else "0"


def _message(run: _CodexRun, line: Line, head: _CodexHead, item: _Item) -> None:
    """Make a turn of a message in the user's, the developer's or the system's place."""
    if item.role not in ("user", "developer", "system"):
        run.gathered.skip("response_item:message", item.role)
        return
    role = "user" if item.role == "user" else "system"
    draft = _draft(run, line, head, item, role, "machine")
    blocks = item.content if isinstance(item.content, list) else [item.content]
    texts = [text for text in map(text_of, blocks) if text]
    typed = role == "user" and not run.spawned and not _hooked(item) and not all(map(is_machine, texts))
    for text in texts:
        if role == "user" and (match := _SKILL.match(text)):
            draft.skills += (match[1],)
        draft.parts += _typed(text) if typed else [Part("text", text)]
    pictures = images_of(item.content)
    draft.parts += pictures
    draft.author = "person" if typed and (texts or pictures) else "machine"


def _typed(text: str) -> list[Part]:
    """Return a person's words as parts; what the client or the editor put before them counts as pasted."""
    if is_machine(text):
        return [Part("pasted", text)]
    if match := _MY_REQUEST.match(text):
        return [Part("pasted", match[0].strip()), *spoken(text[match.end() :])]
    return spoken(text)


def _hooked(item: _Item) -> bool:
    """Say whether a hook or the program itself wrote this message, by the tags that newer versions add."""
    tags = item.internal_chat_message_metadata_passthrough
    provenance = item.provenance
    if isinstance(tags, dict):
        provenance = tags.get("provenance", provenance)
        kinds = tags.get("content_item_kinds")
        if isinstance(kinds, list) and kinds and not any(isinstance(k, str) and k.startswith("user.") for k in kinds):
            return True
    return isinstance(provenance, dict) and (provenance.get("hook") is True or provenance.get("type") == "harness")


def _event(run: _CodexRun, line: Line, head: _CodexHead, item: _Item) -> None:
    """Count an event; take usage and titles from it, and keep its words in case there are no items."""
    kind = item.type
    if kind == "token_count":
        _usage(run, item.info)
    elif kind in ("user_message", "agent_message") and not run.has_items:
        run.events.append(_spoken_event(run, line, head, item))
    elif kind == "thread_name_updated":
        run.gathered.title = item.thread_name or run.gathered.title
    run.gathered.skip("event_msg", kind)


def _spoken_event(run: _CodexRun, line: Line, head: _CodexHead, item: _Item) -> Draft:
    """Return the words of an event as a turn, to be used only when the run has no response items."""
    text, user = words(item.message), item.type == "user_message"
    draft = Draft("user" if user else "assistant", "machine" if user else "agent", [line.span])
    draft.stated_at = utc(head.timestamp)
    typed = user and not run.spawned and not is_machine(text)
    draft.author = "person" if typed else draft.author
    draft.parts = _typed(text) if typed else [Part("text", text)]
    return draft


def _usage(run: _CodexRun, info: _Info | None) -> None:
    """Add the tokens of the last response to the agent's last turn, once: the client repeats the event."""
    last = info.last_token_usage if info else None
    if info is None or last is None or run.latest is None:
        return
    so_far = info.total_token_usage or last
    if so_far != run.so_far:
        run.so_far = so_far
        run.latest.n_tokens += last.total_tokens or last.input_tokens + last.output_tokens


def _compacted(run: _CodexRun, line: Line, head: _CodexHead, item: _Item) -> None:
    """Make a summary turn; newer versions keep its text encrypted, then it has no parts."""
    draft = _draft(run, line, head, None, "system", "machine")
    draft.is_summary = True
    text = words(item.message)
    draft.parts = [Part("text", text)] if text else []
