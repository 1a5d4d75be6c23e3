"""Codex transcripts: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl` -> turns.

`response_item` lines are the model's input and output; `event_msg` lines repeat them for the interface
and are counted, not doubled. Consecutive items of the agent (reasoning, text, calls) up to an output or a
user message are one turn. Sub-agents have files of their own, and text in the user's place there is a
machine's.
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

from perdure.capture.lines import Line
from perdure.formats.json_text import make_session_id, read_objects
from perdure.formats.parsing import UNREADABLE_ERRORS, TurnCollector, TurnDraft, feed_lines
from perdure.formats.parts import add_call, add_result, collect_images, join_text
from perdure.formats.prompt_text import is_machine_text, split_typed_text
from perdure.formats.values import Tokens, clean_id, make_reader, text_or_empty, to_utc
from perdure.regex import lazy_re
from perdure.types import Author, Json, Origin, ParsedLines, Part

LINE_TYPES = (
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "world_state",
    "token_usage_record",
)
_CALL_TYPES = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_OUTPUT_TYPES = ("function_call_output", "custom_tool_call_output")
_OLD_LINE_TYPES = (
    *_CALL_TYPES,
    *_OUTPUT_TYPES,
    "message",
    "reasoning",
)  # before September 2025 a line was the item itself
_MY_REQUEST = lazy_re(
    r"\s*# (?:Context from my IDE setup|Files mentioned by the user):.*?\n## My request for Codex:", re.S
)
_SKILL = lazy_re(r"\s*<skill>\s*<name>([^<\n]{1,100})</name>")
_EXIT_SIGN = "code"  # every output that states an exit code holds it
_REFUSAL_START = "exec_command failed:"  # the client's answer to a call that it or the person refused
_EXIT_CODE = lazy_re(r"(?:Process exited with code|Exit code:) (-?\d+)")
_EXIT_WITHIN_CHARS = 300  # the status is at the start of an output, before the program's own text
_EVENT_LABELS = {"user": "event_msg:user_message", "assistant": "event_msg:agent_message"}


class _CodexUsage(msgspec.Struct, gc=False):
    """Tokens of one response, or of all so far."""

    total_tokens: Tokens = 0
    input_tokens: Tokens = 0
    output_tokens: Tokens = 0


class _CodexTokenCount(msgspec.Struct, gc=False):
    """The token counts of a `token_count` event."""

    last_token_usage: _CodexUsage | None = None
    total_token_usage: _CodexUsage | None = None


class _CodexItem(msgspec.Struct, gc=False):
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
    info: _CodexTokenCount | None = None
    model: str | None = None
    thread_name: str | None = None
    thread_source: Any = None
    parent_thread_id: str | None = None


class _CodexLine(msgspec.Struct, gc=False):
    """The fields of any line. Other fields are skipped unread."""

    timestamp: datetime | None = None
    type: str = ""
    payload: _CodexItem | None = None


_decode_line = make_reader(_CodexLine)
_decode_item = make_reader(_CodexItem)


@dataclass(slots=True)
class _CodexRunState:
    """The state while the lines of one run are read."""

    collector: TurnCollector
    spawned: bool
    model: str = ""
    open_draft: TurnDraft | None = None  # the agent's turn that is still open
    latest_draft: TurnDraft | None = None  # the agent's last turn, which usage belongs to
    total_usage: _CodexUsage | None = None  # the last total usage seen: the client repeats it
    has_items: bool = False
    event_drafts: list[TurnDraft] = field(default_factory=list)  # text of events, used only when there are no items


def identify(first_bytes: bytes, path: str) -> Origin:  # noqa: ARG001 - every format is asked alike
    """Return the thread of a rollout, with the thread that spawned it or that it was forked from."""
    metadata: Json = next((line for line in read_objects(first_bytes) if "id" in _read_metadata(line)), {})
    metadata = _read_metadata(metadata)
    session = clean_id(metadata.get("id")) or make_session_id(first_bytes)
    cwd = text_or_empty(metadata.get("cwd")) or None
    spawner = clean_id(metadata.get("parent_thread_id")) or clean_id(_read_spawn(metadata).get("parent_thread_id"))
    if spawner:
        root = clean_id(metadata.get("session_id"))
        return Origin("codex", session, root if root and root != session else spawner, parent_session=spawner, cwd=cwd)
    fork_origin = clean_id(metadata.get("forked_from_id"))
    return Origin("codex", session, session, parent_session=fork_origin or None, cwd=cwd, fork=bool(fork_origin))


def _read_metadata(line: Json) -> Json:
    """Return the session's metadata in a line, wherever that version put it."""
    payload = line.get("payload", line) if line.get("type") in ("session_meta", None) else None
    return payload if isinstance(payload, dict) else {}


def _read_spawn(metadata: Json) -> Json:
    """Return `source.subagent.thread_spawn` of the metadata."""
    nested: Any = metadata
    for key in ("source", "subagent", "thread_spawn"):
        nested = nested.get(key) if isinstance(nested, dict) else None
    return nested if isinstance(nested, dict) else {}


def parse(lines: Iterable[Line], *, spawned: bool = False) -> ParsedLines:
    """Return the turns of one run. spawned: the source is a sub-agent's, so nobody typed into it."""
    run = _CodexRunState(TurnCollector(), spawned)
    feed_lines(lines, partial(_read_line, run), run.collector)
    if not run.has_items and any(draft.role == "user" for draft in run.event_drafts):
        run.collector.drafts = sorted([*run.collector.drafts, *run.event_drafts], key=lambda draft: draft.lines[0])
        n_by_label = Counter(_EVENT_LABELS[draft.role] for draft in run.event_drafts)
        run.collector.skipped = dict(Counter(run.collector.skipped) - n_by_label)
    return run.collector.to_parsed_lines()


def _read_line(run: _CodexRunState, line: Line, raw: bytes) -> None:
    """Read one line."""
    entry = _decode_line(raw)
    kind, item = entry.type, entry.payload
    if item is None:
        if kind in LINE_TYPES:
            raise msgspec.ValidationError("a line without a payload")
        if kind in _OLD_LINE_TYPES:
            _read_response_item(run, line, entry, _decode_item(raw))
        else:
            run.collector.skip(kind)
    elif kind == "response_item":
        _read_response_item(run, line, entry, item)
    elif kind == "event_msg":
        _read_event(run, line, entry, item)
    elif kind == "compacted":
        _add_summary(run, line, entry, item)
    else:
        run.model = item.model or run.model
        run.spawned = run.spawned or bool(item.parent_thread_id) or item.thread_source == "subagent"
        run.collector.skip(kind)


def _read_response_item(run: _CodexRunState, line: Line, entry: _CodexLine, item: _CodexItem) -> None:
    """Make a turn of one response item, or add it to the agent's open turn."""
    item_type = item.type
    if item_type in _CALL_TYPES:
        draft = _continue_agent_draft(run, line, entry, item)
        name, tool_input = _read_call(item)
        add_call(draft, run.collector.tool_names, name, item.call_id or "", tool_input)
    elif item_type in _OUTPUT_TYPES:
        draft = _begin_draft(run, line, entry, item, "tool", "tool")
        text, failed = _read_output(item.output)
        add_result(draft, run.collector.tool_names, item.call_id or "", text, failed=failed)
    elif item_type == "reasoning":
        draft = _continue_agent_draft(run, line, entry, item)
        text = "\n\n".join(filter(None, map(join_text, (item.summary, item.content))))
        if text:
            draft.parts.append(Part("thinking", text))
    elif item_type == "message" and item.role == "assistant":
        draft = _continue_agent_draft(run, line, entry, item)
        if text := join_text(item.content):
            draft.parts.append(Part("text", text))
    elif item_type == "message":
        _read_message(run, line, entry, item)
    else:
        run.collector.skip("response_item", item_type)
    run.has_items = True


def _begin_draft(
    run: _CodexRunState, line: Line, entry: _CodexLine, item: _CodexItem | None, role: Any, author: Author
) -> TurnDraft:
    """Begin a new turn with this line; it closes the agent's open turn."""
    draft = TurnDraft(
        role, author, [line.span], [], to_utc(entry.timestamp), clean_id(item.id) or None if item else None
    )
    run.collector.drafts.append(draft)
    run.open_draft = None
    return draft


def _continue_agent_draft(run: _CodexRunState, line: Line, entry: _CodexLine, item: _CodexItem) -> TurnDraft:
    """Return the agent's open turn with this line added, or begin a new one."""
    draft = run.open_draft
    if draft is None:
        draft = run.latest_draft = _begin_draft(run, line, entry, item, "assistant", "agent")
        draft.model = run.model
        run.open_draft = draft
    else:
        draft.lines.append(line.span)
        draft.native_id = draft.native_id or clean_id(item.id) or None
    return draft


def _read_call(item: _CodexItem) -> tuple[str, Any]:
    """Return (tool name, decoded input) of a call of any kind."""
    if item.type == "web_search_call":
        return "web_search", item.action
    if item.type == "local_shell_call":
        return "local_shell", item.action
    name = item.name
    if item.namespace:
        name = f"{item.namespace}__{name.lstrip('_')}"
    tool_input = item.input if item.type == "custom_tool_call" else item.arguments
    if isinstance(tool_input, str) and item.type == "function_call":
        tool_input = _decode_arguments(tool_input)
    return name, tool_input


def _decode_arguments(text: str) -> Any:
    """Decode arguments, which are JSON inside a string; return the string itself when it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except UNREADABLE_ERRORS:
        return text


def _read_output(output: Any) -> tuple[Any, bool]:
    """Return (content, failed) of a call's output: a string, blocks, or the older {"output", "metadata"}."""
    failed = False
    if isinstance(output, str) and output.startswith('{"output":'):
        output = _decode_arguments(output)
    if isinstance(output, dict):
        metadata = output.get("metadata")
        code = metadata.get("exit_code") if isinstance(metadata, dict) else 0
        failed = output.get("success") is False or code not in (0, None)
        output = output.get("output", output.get("content"))
    if isinstance(output, str):
        failed = failed or _find_exit_code(output[:_EXIT_WITHIN_CHARS]) != "0" or output.startswith(_REFUSAL_START)
    return output, failed


def _find_exit_code(start: str) -> str:
    """Return the exit code that the start of an output states, "0" when it states none."""
    match = _EXIT_CODE.search(start) if _EXIT_SIGN in start else None
    return match[1] if match else "0"


def _read_message(run: _CodexRunState, line: Line, entry: _CodexLine, item: _CodexItem) -> None:
    """Make a turn of a message in the user's, the developer's or the system's place."""
    if item.role not in ("user", "developer", "system"):
        run.collector.skip("response_item:message", item.role)
        return
    role = "user" if item.role == "user" else "system"
    draft = _begin_draft(run, line, entry, item, role, "machine")
    blocks = item.content if isinstance(item.content, list) else [item.content]
    texts = [text for text in map(join_text, blocks) if text]
    is_typed = role == "user" and not run.spawned and not _is_by_program(item) and not all(map(is_machine_text, texts))
    for text in texts:
        if role == "user" and (match := _SKILL.match(text)):
            draft.skills += (match[1],)
        draft.parts += _split_user_text(text) if is_typed else [Part("text", text)]
    images = collect_images(item.content)
    draft.parts += images
    draft.author = "person" if is_typed and (texts or images) else "machine"


def _split_user_text(text: str) -> list[Part]:
    """Return a person's text as parts; text that the client or the editor put before it counts as pasted."""
    if is_machine_text(text):
        return [Part("pasted", text)]
    if match := _MY_REQUEST.match(text):
        return [Part("pasted", match[0].strip()), *split_typed_text(text[match.end() :])]
    return split_typed_text(text)


def _is_by_program(item: _CodexItem) -> bool:
    """Return True if a hook or the program itself wrote this message, by the tags that newer versions add."""
    metadata = item.internal_chat_message_metadata_passthrough
    provenance = item.provenance
    if isinstance(metadata, dict):
        provenance = metadata.get("provenance", provenance)
        kinds = metadata.get("content_item_kinds")
        if isinstance(kinds, list) and kinds and not any(isinstance(k, str) and k.startswith("user.") for k in kinds):
            return True
    return isinstance(provenance, dict) and (provenance.get("hook") is True or provenance.get("type") == "harness")


def _read_event(run: _CodexRunState, line: Line, entry: _CodexLine, item: _CodexItem) -> None:
    """Count an event; take usage and titles from it, and keep its text in case there are no items."""
    kind = item.type
    if kind == "token_count":
        _add_usage(run, item.info)
    elif kind in ("user_message", "agent_message") and not run.has_items:
        run.event_drafts.append(_make_event_draft(run, line, entry, item))
    elif kind == "thread_name_updated":
        run.collector.title = item.thread_name or run.collector.title
    run.collector.skip("event_msg", kind)


def _make_event_draft(run: _CodexRunState, line: Line, entry: _CodexLine, item: _CodexItem) -> TurnDraft:
    """Return the text of an event as a turn, used only when the run has no response items."""
    text, is_user = text_or_empty(item.message), item.type == "user_message"
    draft = TurnDraft("user" if is_user else "assistant", "machine" if is_user else "agent", [line.span])
    draft.stated_at = to_utc(entry.timestamp)
    is_typed = is_user and not run.spawned and not is_machine_text(text)
    draft.author = "person" if is_typed else draft.author
    draft.parts = _split_user_text(text) if is_typed else [Part("text", text)]
    return draft


def _add_usage(run: _CodexRunState, token_count: _CodexTokenCount | None) -> None:
    """Add the tokens of the last response to the agent's last turn, once: the client repeats the event."""
    last_usage = token_count.last_token_usage if token_count else None
    if token_count is None or last_usage is None or run.latest_draft is None:
        return
    total_usage = token_count.total_token_usage or last_usage
    if total_usage != run.total_usage:
        run.total_usage = total_usage
        run.latest_draft.n_tokens += last_usage.total_tokens or last_usage.input_tokens + last_usage.output_tokens


def _add_summary(run: _CodexRunState, line: Line, entry: _CodexLine, item: _CodexItem) -> None:
    """Make a summary turn; newer versions encrypt its text, and then it has no parts."""
    draft = _begin_draft(run, line, entry, None, "system", "machine")
    draft.is_summary = True
    text = text_or_empty(item.message)
    draft.parts = [Part("text", text)] if text else []
