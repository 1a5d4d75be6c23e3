"""Read what an update of Telegram says: who wrote, the words, the command, the files. Pure.

Only what an allowed person typed is theirs. A forwarded message and a file are data: they stand beside the message,
between two lines with a code that they cannot know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_FILE_BYTES = 10_000_000  # of one file that is taken in
MAX_SHOWN_CHARS = 30_000  # of a text file that stands beside the message; the whole file is in the folder
_OTHER_KINDS = ("voice", "audio", "video", "video_note", "sticker", "animation", "location", "contact", "poll")
_EVENTS = (  # beginnings of the fields of a service message
    "new_chat_", "left_chat_", "delete_chat_photo", "group_chat_created", "supergroup_chat_created",
    "channel_chat_created", "migrate_", "pinned_message", "message_auto_delete_timer", "forum_topic_",
    "general_forum_topic_", "video_chat_", "chat_background_set", "boost_added", "write_access_allowed",
    "users_shared", "chat_shared", "proximity_alert_triggered",
)  # fmt: skip


@dataclass(frozen=True)
class AllowList:
    """Who may talk to the agent, and in which groups."""

    users: frozenset[str]  # ids
    groups: frozenset[str]

    def allows(self, user: Any, chat: Any) -> bool:
        """Return True for an allowed person, alone with the bot or in an allowed group."""
        return str(user) in self.users and (str(chat) == str(user) or str(chat) in self.groups)


class IncomingFile(NamedTuple):
    """A photo or a file of a message, not downloaded yet."""

    file_id: str
    name: str
    n_bytes: int  # as Telegram says; 0 if it does not


class IncomingText(NamedTuple):
    """The words of a message."""

    typed: str  # by the person
    quoted: str  # forwarded: somebody else's words, or the person's from elsewhere


def read_ids(message: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return (user, chat) of a message; None if it names none, as a post of a channel."""
    user, chat = (message.get("from") or {}).get("id"), (message.get("chat") or {}).get("id")
    return (user, chat) if isinstance(user, int) and isinstance(chat, int) else None


def read_text(message: Mapping[str, Any]) -> IncomingText:
    """Return the words of a message, or the caption of its file."""
    words = str(message.get("text") or message.get("caption") or "").strip()
    is_forwarded = bool(message.get("forward_origin") or message.get("forward_from") or message.get("forward_date"))
    return IncomingText("", words) if is_forwarded else IncomingText(words, "")


def read_texts(messages: Iterable[Mapping[str, Any]]) -> IncomingText:
    """Return the words of an album, of whose messages mostly one has a caption."""
    texts = [read_text(message) for message in messages]
    return IncomingText(*("\n\n".join(filter(None, words)) for words in zip(*texts, strict=True)))


def read_album(message: Mapping[str, Any]) -> str:
    """Return the id of the album that a message belongs to; "" for none."""
    return str(message.get("media_group_id") or "")


def read_command(text: str, bot_name: str) -> tuple[str, str] | None:
    """Return (name, argument) of a command; None for other words, and for a command to another bot.

    >>> read_command("/mode@perdure_bot  edits", "perdure_bot"), read_command("/mode@other", "perdure_bot")
    (('mode', 'edits'), None)
    """
    word, argument = (*text.split(maxsplit=1), "", "")[:2]
    name, _, to_bot = word.removeprefix("/").partition("@")
    if not word.startswith("/") or not name.isidentifier() or to_bot.lower() not in ("", bot_name.lower()):
        return None
    return name.lower(), argument.strip()


def list_files(message: Mapping[str, Any]) -> list[IncomingFile]:
    """Return the file of a message: the largest size of a photo that is not too large, or a document."""
    sizes = [size for size in message.get("photo") or () if isinstance(size, Mapping)]
    fitting = [size for size in sizes if int(size.get("file_size") or 0) <= MAX_FILE_BYTES]
    files = []
    if fitting:
        best = max(fitting, key=lambda size: int(size.get("width") or 0) * int(size.get("height") or 0))
        files.append(IncomingFile(str(best.get("file_id")), "photo.jpg", int(best.get("file_size") or 0)))
    document = message.get("document")
    if isinstance(document, Mapping):
        name = str(document.get("file_name") or "file")
        files.append(IncomingFile(str(document.get("file_id")), name, int(document.get("file_size") or 0)))
    return files


def is_event(message: Mapping[str, Any]) -> bool:
    """Return True for what Telegram writes into a chat by itself: a pinned message, a new member, another title."""
    return any(key.startswith(_EVENTS) for key in message)


def read_replied(message: Mapping[str, Any]) -> str:
    """Return the words that a message replies to: the part that the person chose, or the whole message."""
    replied = message.get("reply_to_message") or {}
    return str((message.get("quote") or {}).get("text") or replied.get("text") or replied.get("caption") or "").strip()


def read_topic(message: Mapping[str, Any]) -> int | None:
    """Return the topic in which a message stands, in a group that has topics."""
    topic = message.get("message_thread_id")
    return topic if isinstance(topic, int) and message.get("is_topic_message") else None


def find_unread_kind(message: Mapping[str, Any]) -> str:
    """Return the kind of content that is not taken in (a voice message, a sticker); "" for none."""
    return next((kind.replace("_", " ") for kind in _OTHER_KINDS if kind in message), "")


def make_allow_list(users: Collection[str], groups: Collection[str]) -> AllowList:
    """Return the allow list of the settings."""
    return AllowList(frozenset(map(str, users)), frozenset(map(str, groups)))
