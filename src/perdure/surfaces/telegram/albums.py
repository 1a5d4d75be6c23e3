"""Hold the messages of an album until all have come: Telegram sends one for each photo, and never says how many.

An album is whole when Telegram was asked again, and nothing of it came for a second. What comes behind it in its chat
waits with it, so that the order stays. What is held is on disk already (`inbox.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perdure.surfaces.telegram import incoming
from perdure.surfaces.telegram.inbox import InboxItem

ALBUM_S = 1  # after the last message of an album; also how long a poll is held meanwhile, in whole seconds


@dataclass
class _HeldChat:
    items: list[InboxItem] = field(default_factory=list)
    grown_s: float = 0.0  # when the last message of an album came


class AlbumBuffer:
    """What waits for an album, chat by chat. One thread uses it; the times are those of one clock, in seconds."""

    def __init__(self) -> None:
        self._chats: dict[int, _HeldChat] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing waits."""
        return not self._chats

    def hold(self, item: InboxItem, now_s: float) -> bool:
        """Hold a message of an album, or one behind it. Return False for one that has to wait for nothing."""
        is_growing = item.state == "new" and bool(incoming.read_album(item.message))
        if not is_growing and item.chat not in self._chats:
            return False
        held = self._chats.setdefault(item.chat, _HeldChat())
        held.items.append(item)
        if is_growing:
            held.grown_s = now_s
        return True

    def release(self, chat: int) -> list[list[InboxItem]]:
        """Return what waits in a chat, in order: each album as one list, everything else as lists of one."""
        held = self._chats.pop(chat, None)
        return group_albums(held.items) if held else []

    def release_whole(self, now_s: float) -> list[list[InboxItem]]:
        """Return what waits in the chats whose albums are whole, as `release`. It is called after a poll."""
        chats = [chat for chat, held in self._chats.items() if now_s - held.grown_s >= ALBUM_S]
        return [group for chat in chats for group in self.release(chat)]


def group_albums(items: Sequence[InboxItem]) -> list[list[InboxItem]]:
    """Return the messages of one chat, in the order of the first of each album; a person's album stays theirs."""
    groups: dict[tuple[int, str], list[InboxItem]] = {}
    for item in items:
        album = incoming.read_album(item.message) if item.state == "new" else ""
        groups.setdefault((item.user, album or f"update {item.update_id}"), []).append(item)
    return list(groups.values())
