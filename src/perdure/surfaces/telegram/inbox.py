"""What came from Telegram and is not answered yet, and how far the updates are read: durable, in the home.

    telegram/state.json          the next update to ask for; the session of each chat; strangers, as numbers
    telegram/inbox/UPDATE.json   a message, how far its answer is; gone when it was answered

A batch of updates is stored, then the offset, then the work begins: an update that comes again is already there, or its
offset is already behind. An item says before the message goes into a session where that session stood, so that after
kill -9 it is known whether the message is in its log; no message is put there twice, and no tool runs twice by itself.
An album that is whole becomes one item: the file of its first message holds the others, then their files go.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from perdure import disk

MAX_STRANGERS = 50  # whose numbers are kept; of the others only the count
MAX_KNOWN = 200  # ids of updates that are known when they come again: the newest
ItemState = Literal["new", "asked", "answered"]


class InboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """One message of an allowed person."""

    update_id: int
    chat: int
    user: int
    message: Mapping[str, Any]  # as the Bot API gives it
    state: ItemState = "new"
    session: str = ""  # into which it goes, from "asked" on
    leaf: str = ""  # the last entry of that session before it
    answer: str = ""  # Markdown, from "answered" on
    n_sent: int = 0  # parts of the answer that Telegram has taken
    album: tuple[InboxItem, ...] = ()  # the messages that came after it in the same album, and are answered with it
    told: tuple[str, ...] = ()  # ids of the proposals that wait: with its answer the chat knows of them

    @property
    def parts(self) -> tuple[InboxItem, ...]:
        """The messages of its album, in order; of another message itself alone."""
        return (self, *self.album)


class ChatState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a chat."""

    session: str = ""  # "": the next message begins one
    mode: str = ""  # of permissions; "": that of agent.yaml
    told: tuple[str, ...] = ()  # ids of the proposals that it was told of


class InboxState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part that outlives every message."""

    offset: int = 0  # id of the first update that is not stored yet
    known: Sequence[int] = ()  # ids of the last updates; a week without one lets Telegram begin at any number
    chats: Mapping[str, ChatState] = {}
    strangers: Mapping[str, int] = {}  # user id → messages that were ignored
    n_ignored: int = 0  # messages of all strangers


class Inbox:
    """The inbox of one bot. Any thread of the process that polls may use it."""

    def __init__(self, home: Path) -> None:
        """Read the state; make nothing before the first update."""
        self._folder = home / "telegram"
        self._lock = threading.Lock()
        try:
            self._state = msgspec.json.decode((self._folder / "state.json").read_bytes(), type=InboxState)
        except (OSError, msgspec.MsgspecError):
            self._state = InboxState()

    @property
    def state(self) -> InboxState:
        """The state as it is on disk."""
        return self._state

    def list_unknown(self, updates: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the updates that did not come before, each once."""
        known = set(self._state.known)
        return list({update["update_id"]: update for update in updates if update["update_id"] not in known}.values())

    def store(self, items: Sequence[InboxItem], update_ids: Sequence[int]) -> None:
        """Store the items of a batch, then the offset behind its updates; what was stored before is left as it is."""
        disk.make_folder(self._folder / "inbox")
        for item in items:
            if not self._get_path(item).exists():
                self.save(item)
        known = list(dict.fromkeys([*self._state.known, *update_ids]))[-MAX_KNOWN:]
        self._write(offset=max(update_ids) + 1, known=known)

    def resume(self) -> list[InboxItem]:
        """Return what waits, for a process that begins; what is stored is not asked for again."""
        items = self._drop_joined(self.list_items())
        if items and items[-1].update_id >= self._state.offset:  # killed between the batch and its offset
            self._write(offset=items[-1].update_id + 1)
        return items

    def save(self, item: InboxItem) -> InboxItem:
        """Store how far an item is, and return it."""
        disk.replace_file(self._get_path(item), msgspec.json.encode(item))
        return item

    def join_album(self, items: Sequence[InboxItem]) -> InboxItem:
        """Make the messages of an album one item, durably, and return it."""
        first, *later = (part for item in items for part in item.parts)
        first = self.save(msgspec.structs.replace(first, album=tuple(later)))
        self._drop_joined([first, *later])
        return first

    def _drop_joined(self, items: Sequence[InboxItem]) -> list[InboxItem]:
        """Delete the files of messages that another item holds, and return the other items."""
        joined_ids = {part.update_id for item in items for part in item.album}
        for item in items:
            if item.update_id in joined_ids:
                self._get_path(item).unlink(missing_ok=True)
        if joined_ids:
            disk.sync_folder(self._folder / "inbox")
        return [item for item in items if item.update_id not in joined_ids]

    def finish(self, item: InboxItem) -> None:
        """Delete an item that was answered."""
        self._get_path(item).unlink(missing_ok=True)
        disk.sync_folder(self._folder / "inbox")

    def list_items(self) -> list[InboxItem]:
        """List what waits, in the order in which it came. A damaged file is left out."""
        items = []
        for path in (self._folder / "inbox").glob("*.json"):
            try:
                items.append(msgspec.json.decode(path.read_bytes(), type=InboxItem))
            except (OSError, msgspec.MsgspecError):
                continue
        return sorted(items, key=lambda item: item.update_id)

    def get_chat(self, chat: int) -> ChatState:
        """Return what is kept of a chat."""
        return self._state.chats.get(str(chat), ChatState())

    def set_chat(self, chat: int, **fields: Any) -> None:
        """Change what is kept of a chat, durably."""
        with self._lock:
            chat_state = msgspec.structs.replace(self.get_chat(chat), **fields)
            self._write_locked(chats={**self._state.chats, str(chat): chat_state})

    def count_stranger(self, user: int) -> None:
        """Count a message that is ignored. Written with the next offset."""
        with self._lock:
            strangers = dict(self._state.strangers)
            if str(user) in strangers or len(strangers) < MAX_STRANGERS:
                strangers[str(user)] = strangers.get(str(user), 0) + 1
            self._state = msgspec.structs.replace(self._state, strangers=strangers, n_ignored=self._state.n_ignored + 1)

    def _write(self, **fields: Any) -> None:
        with self._lock:
            self._write_locked(**fields)

    def _write_locked(self, **fields: Any) -> None:
        disk.make_folder(self._folder)
        state = msgspec.structs.replace(self._state, **fields)
        disk.replace_file(self._folder / "state.json", msgspec.json.encode(state))
        self._state = state

    def _get_path(self, item: InboxItem) -> Path:
        return self._folder / "inbox" / f"{item.update_id}.json"
