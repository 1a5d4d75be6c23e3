"""What happens in a session as updates of the protocol: calls, their outputs, and the history of a session. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from acp import helpers
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolKind,
    UserMessageChunk,
)

from perdure.agent.folders import ProjectFolders
from perdure.agent.tools.files import FileChange
from perdure.errors import ToolError
from perdure.formats.perdure import AnyEntry, CallEntry, ImageEntry, Message
from perdure.surfaces.acp.prompts import fence_text
from perdure.text import one_line, spell_out

Update = UserMessageChunk | AgentMessageChunk | AgentThoughtChunk | ToolCallStart | ToolCallProgress
Content = helpers.ToolCallContentVariant

_KINDS: Mapping[str, ToolKind] = {
    "read_file": "read", "view_image": "read", "write_file": "edit", "edit_file": "edit", "glob": "search",
    "grep": "search", "recall": "search", "shell": "execute", "activate_skill": "read",
}  # fmt: skip
_VERBS = {
    "read_file": "Read", "view_image": "Look at", "write_file": "Write", "edit_file": "Edit", "glob": "Find",
    "grep": "Search for", "recall": "Recall", "shell": "Run", "remember": "Remember", "ask_user": "Ask",
    "image_generate": "Make an image", "activate_skill": "Read the skill",
}  # fmt: skip
_SUBJECTS = (
    "path",
    "pattern",
    "command",
    "question",
    "query",
    "text",
    "prompt",
    "name",
)  # the input that names the call
_TITLE_CHARS = 120


def make_title(call: CallEntry) -> str:
    """Return a call on one line.

    >>> make_title(CallEntry(id="c1", name="read_file", input={"path": "src/a.py"}))
    'Read `src/a.py`'
    """
    verb = _VERBS.get(call.name, call.name)
    subject = next((call.input[key] for key in _SUBJECTS if isinstance(call.input.get(key), str)), "")
    shown = one_line(subject, _TITLE_CHARS).replace("`", "'")
    return f"{verb} `{shown}`" if shown else verb


def start_call(
    call: CallEntry, folders: ProjectFolders, change: FileChange | None, *, is_running: bool, reason: str = ""
) -> ToolCallStart:
    """Return the update that shows a call before it has run. change: what it would do to a file. reason: it asks."""
    return helpers.start_tool_call(
        call.id,
        make_title(call),
        kind=_KINDS.get(call.name, "other"),
        status="in_progress" if is_running else "pending",
        content=[*_show_input(call, change, is_asked=bool(reason)), *_show_text(spell_out(reason))] or None,
        locations=_list_locations(call, folders, change) or None,
        raw_input=dict(call.input),
    )


def _show_input(call: CallEntry, change: FileChange | None, *, is_asked: bool) -> list[Content]:
    """Return what a person must see of a call: all of it where they are asked, since an end that is hidden may harm."""
    if change is not None:
        return [_to_diff(change)]
    if call.name == "shell":
        return _show_text(fence_text(spell_out(str(call.input.get("command", ""))), "sh"))
    if is_asked:
        return _show_text(fence_text(spell_out(json.dumps(call.input, ensure_ascii=False, indent=2)), "json"))
    return []


def _to_diff(change: FileChange) -> Content:
    return helpers.tool_diff_content(str(change.path), change.new, change.old)


def _list_locations(call: CallEntry, folders: ProjectFolders, change: FileChange | None) -> list[ToolCallLocation]:
    if change is not None:
        return [ToolCallLocation(path=str(change.path), line=_find_first_change(change))]
    path = call.input.get("path")
    if not isinstance(path, str) or call.name not in _KINDS:
        return []
    try:
        resolved = str(folders.resolve(path))
    except ToolError:
        return []
    offset = call.input.get("offset")
    return [ToolCallLocation(path=resolved, line=offset if isinstance(offset, int) else None)]


def _find_first_change(change: FileChange) -> int:
    """Return the number of the first line that differs, from 1."""
    pairs = zip((change.old or "").splitlines(), change.new.splitlines(), strict=False)
    return 1 + next((n for n, (old, new) in enumerate(pairs) if old != new), 0)


def run_call(call_id: str) -> ToolCallProgress:
    """Return the update for a call that begins to run after it was shown."""
    return helpers.update_tool_call(call_id, status="in_progress")


def finish_call(output: Message, change: FileChange | None = None) -> ToolCallProgress:
    """Return the update for a call that has ended. change: the one that it made, shown instead of its words."""
    content: list[Content] = [*map(_show_image, output.images)]
    if change is not None and not output.is_error:
        content.append(_to_diff(change))
    else:
        content += _show_text(fence_text(output.text)) if output.text else []
    return helpers.update_tool_call(
        output.call_id, status="failed" if output.is_error else "completed", content=content
    )


def _show_text(text: str) -> list[Content]:
    return [helpers.tool_content(helpers.text_block(text))] if text else []


def _show_image(image: ImageEntry) -> Content:
    return helpers.tool_content(helpers.image_block(image.data, image.media_type))


def replay(path: Iterable[AnyEntry], folders: ProjectFolders) -> Iterator[Update]:
    """Yield what was said in a session. Of an edit the words of its output: the file may be another one by now."""
    for entry in path:
        if isinstance(entry, Message):
            yield from _replay_message(entry, folders)


def _replay_message(entry: Message, folders: ProjectFolders) -> Sequence[Update]:
    if entry.role == "tool":
        return [finish_call(entry)]
    if entry.role == "user":
        images = [helpers.image_block(image.data, image.media_type) for image in entry.images]
        blocks: list[Any] = [helpers.text_block(entry.text), *images]
        return [UserMessageChunk(session_update="user_message_chunk", content=b, message_id=entry.id) for b in blocks]
    updates: list[Update] = []
    if entry.thought:
        updates.append(helpers.update_agent_thought_text(entry.thought))
    if entry.text:
        block = helpers.text_block(entry.text)
        updates.append(AgentMessageChunk(session_update="agent_message_chunk", content=block, message_id=entry.id))
    return updates + [start_call(call, folders, None, is_running=False) for call in entry.calls]
