"""The messages that a model reads for the next answer: the floor, the session, and the text beside each message.

Computed anew for every call from the log and from what stood beside each message, so that the same log gives the same
messages, byte for byte, and each call's messages begin with those of the call before. After a compaction the first
exchange (HEAD) stands first, then the summary of the middle, then what was kept (TAIL). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.formats.perdure import AnyEntry, Boundary, Mask, Message
from perdure.models.chat import ChatMessage, MessageImage, NativeBlocks, ToolCall
from perdure.session.blocks import FLOOR

SUMMARY_OPENING = "[Summary of the conversation until here. The full text is in the archive: search finds it.]"
SUMMARY_ANSWER = "I have read the summary and go on from there."
MASKED_OUTPUT = "[output of {tool} left out: {n_chars:,} characters. The log keeps it.]"


def find_boundary(path: Sequence[AnyEntry]) -> Boundary | None:
    """Return the newest compaction on a path, or None."""
    return next((entry for entry in reversed(path) if isinstance(entry, Boundary)), None)


def list_messages(path: Sequence[AnyEntry]) -> list[Message]:
    """Return the messages of a path, oldest first."""
    return [entry for entry in path if isinstance(entry, Message)]


def count_head(messages: Sequence[Message]) -> int:
    """Return how many messages the first exchange has: a person's first message and all up to the next one."""
    later_users = (n for n, message in enumerate(messages) if n and message.role == "user")
    return next(later_users, len(messages))


def list_masked(path: Sequence[AnyEntry]) -> frozenset[str]:
    """Return the ids of the tool messages whose output is left out."""
    return frozenset(entry_id for entry in path if isinstance(entry, Mask) for entry_id in entry.entries)


def assemble_messages(path: Sequence[AnyEntry], texts: Mapping[str, str]) -> list[ChatMessage]:
    """Return the messages for the next answer.

    texts: entry id -> the text beside that message; and FLOOR -> the floor.
    """
    masked_ids, boundary, messages = list_masked(path), find_boundary(path), list_messages(path)
    floor = texts.get(FLOOR, "")
    shown = [ChatMessage("system", floor)] if floor else []

    def show(entries: Sequence[Message]) -> list[ChatMessage]:
        return [to_chat_message(entry, texts.get(entry.id, ""), is_masked=entry.id in masked_ids) for entry in entries]

    if boundary is None:
        return shown + show(messages)
    n_head = count_head(messages)
    first_kept = next((n for n, entry in enumerate(messages) if entry.id == boundary.first_kept), len(messages))
    kept = messages[max(first_kept, n_head) :]
    summary = [ChatMessage("user", f"{SUMMARY_OPENING}\n\n{boundary.summary}")]
    if not kept or kept[0].role == "user":  # strict providers refuse two messages of the same role in a row
        summary.append(ChatMessage("assistant", SUMMARY_ANSWER))
    return [*shown, *show(messages[:n_head]), *summary, *show(kept)]


def to_chat_message(entry: Message, beside: str = "", *, is_masked: bool = False) -> ChatMessage:
    """Return an entry as a model reads it. beside: the text that stands after a person's words."""
    text = entry.text
    if is_masked:
        text = MASKED_OUTPUT.format(tool=entry.tool or "a tool", n_chars=len(entry.text))
    native = NativeBlocks(entry.native.provider, entry.native.blocks) if entry.native else None
    return ChatMessage(
        entry.role,
        "\n\n".join(filter(None, (text, beside))),
        calls=tuple(ToolCall(call.id, call.name, call.input) for call in entry.calls),
        call_id=entry.call_id,
        native=native,
        images=tuple(MessageImage(image.media_type, image.data) for image in entry.images),
        is_error=entry.is_error,
    )
