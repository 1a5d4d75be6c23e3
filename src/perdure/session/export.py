"""A session as a document: every message of a path in full, the same before and after a compaction. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from perdure import text
from perdure.formats.perdure import AnyEntry, Message
from perdure.session.catalog import SessionOverview

_SPEAKERS = {"user": "You", "assistant": "Assistant", "tool": "Tool"}
_SUMMARY_CHARS = 400  # of each message that a branch's summary quotes

Mask = Callable[[str], str]


def list_messages(path: Sequence[AnyEntry], mask: Mask) -> list[dict[str, Any]]:
    """Return the messages of a path for a program, oldest first. mask: hides secrets in a text."""
    return [_to_object(entry, mask) for entry in path if isinstance(entry, Message)]


def _to_object(entry: Message, mask: Mask) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": entry.id, "role": entry.role, "at": entry.timestamp, "text": mask(entry.text)}
    if entry.thought:
        fields["thought"] = mask(entry.thought)
    if entry.images:
        fields["images"] = [{"media_type": i.media_type, "n_bytes": len(i.data) * 3 // 4} for i in entry.images]
    if entry.files:
        fields["files"] = [{"path": file.path, "text": mask(file.text)} for file in entry.files]
    if entry.calls:
        fields["calls"] = [{"id": c.id, "name": c.name, "input": mask_value(c.input, mask)} for c in entry.calls]
    if entry.role == "tool":
        fields |= {"call_id": entry.call_id, "tool": entry.tool, "is_error": entry.is_error}
    if entry.role == "assistant":
        fields |= {"provider": entry.provider, "model": entry.model, "stop": entry.stop}
    return fields


def mask_value(value: Any, mask: Mask) -> Any:
    """Return a JSON value with every secret in its texts masked."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {name: mask_value(item, mask) for name, item in value.items()}
    return [mask_value(item, mask) for item in value] if isinstance(value, list) else value


def to_markdown(overview: SessionOverview, path: Sequence[AnyEntry], mask: Mask) -> str:
    """Return the messages of a path as Markdown, oldest first. mask: hides secrets in a text."""
    heading = (
        f"# {overview.title or 'Session'}\n\nSession {overview.session}, begun {overview.created_at:%Y-%m-%d %H:%M %Z}"
    )
    sections = [_to_section(entry, mask) for entry in path if isinstance(entry, Message)]
    return "\n\n".join([heading, *sections]) + "\n"


def _to_section(entry: Message, mask: Mask) -> str:
    speaker = f"{_SPEAKERS[entry.role]} {entry.tool}".strip() + (" (error)" if entry.is_error else "")
    pieces = [f"## {speaker}, {entry.timestamp:%Y-%m-%d %H:%M %Z}"]
    if entry.role == "tool":
        pieces.append(_fence(mask(entry.text)))
    else:
        pieces.append(mask(entry.text))
    pieces += [f"*{file.path}*\n\n{_fence(mask(file.text))}" for file in entry.files]
    pieces += [f"*[{image.media_type}, {len(image.data) * 3 // 4:,} bytes]*" for image in entry.images]
    for call in entry.calls:
        value = json.dumps(mask_value(call.input, mask), ensure_ascii=False, indent=2)
        pieces.append(f"Calls {call.name}:\n\n{_fence(value)}")
    return "\n\n".join(filter(None, pieces))


def _fence(body: str) -> str:
    """Return a text as a block of code that nothing in it can end."""
    ticks = "```"
    while ticks in body:
        ticks += "`"
    return f"{ticks}\n{body}\n{ticks}"


def summarise_left_branch(entries: Sequence[AnyEntry]) -> str:
    """Return a short account of a branch that is left: what was asked, and the last answer; "" for nothing said."""
    messages = [
        entry for entry in entries if isinstance(entry, Message) and entry.role != "tool" and entry.text.strip()
    ]
    if not messages:
        return ""
    questions = [f"- {text.one_line(m.text, _SUMMARY_CHARS)}" for m in messages if m.role == "user"]
    answers = [text.one_line(m.text, _SUMMARY_CHARS) for m in messages if m.role == "assistant"]
    parts = ["[Another way was tried from here, and left.]"]
    parts += ["Asked there:\n" + "\n".join(questions)] if questions else []
    parts += [f"Its last answer: {answers[-1]}"] if answers else []
    return "\n".join(parts)
