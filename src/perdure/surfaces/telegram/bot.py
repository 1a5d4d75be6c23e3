"""Read the updates of one bot, and give each to the chat that it belongs to. One process at a time does so for a home.

Buttons and /stop count at once; everything else is stored first (`inbox.py`) and answered in order. A message of
somebody who is not on the allow list is counted, and gets nothing.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure import disk, log
from perdure.agent.permission import MODES
from perdure.config import Config, TelegramConfig, find_user_home
from perdure.delivery.telegram import BotApi, is_token_refused
from perdure.delivery.webhook import read_secret
from perdure.errors import BotTaken, ConfigFault, DeliveryFault, TokenRefused
from perdure.surfaces.telegram import incoming
from perdure.surfaces.telegram.albums import ALBUM_S, AlbumBuffer
from perdure.surfaces.telegram.conversation import HELP, BotContext, ChatConversation
from perdure.surfaces.telegram.inbox import Inbox, InboxItem
from perdure.surfaces.telegram.progress import NOTE_AFTER_S
from perdure.surfaces.telegram.report import write_report

if TYPE_CHECKING:
    from perdure.home import Home

POLL_S = 50  # Telegram holds a poll without updates so long
_ANSWER_S = 15  # more, for its answer to arrive
_MAX_AWAY_S = 60.0  # between two tries while the network is away
_CONFLICT_WAIT_S = 3.0  # after a first conflict: perhaps a poll of our own, before a restart
_CONFLICT_WINDOW_S = 120.0  # a second one within this time is another process
_BATCH = 50


class ChatToStop(NamedTuple):
    """The chat in which somebody said /stop, after the messages before it."""

    chat: int
    topic: int | None


class TelegramBot:
    """The bot of one home. `run` polls until it is stopped."""

    def __init__(
        self, home: Path, config: Config, open_home: Callable[[], Home], *, poll_s: int = POLL_S,
        note_after_s: float = NOTE_AFTER_S, recall_mode: str | None = None,
    ) -> None:  # fmt: skip
        """open_home: opens the home in a thread that uses it. Raises ConfigFault."""
        settings = config.telegram
        check_settings(settings)
        self._home, self._settings, self._open_home = home, settings, open_home
        self._poll_s, self._note_after_s, self._recall_mode = poll_s, note_after_s, recall_mode
        self._api = BotApi(read_secret(settings.token_env, "telegram.token_env"), url=settings.url)
        self._allowed = incoming.make_allow_list(settings.users, settings.groups)
        self._inbox: Inbox
        self._context: BotContext
        self._chats: dict[int, ChatConversation] = {}
        self._albums = AlbumBuffer()
        self._name = ""

    def run(self, stop_event: threading.Event, *, on_ready: Callable[[str], None] = lambda _: None) -> None:
        """Poll until stopped. on_ready: is told the name of the bot, when its token is known to be good.

        Raises BotTaken if another process reads this bot, TokenRefused.
        """
        try:
            with disk.hold_alone(self._home / "run" / "telegram.lock", lambda: BotTaken("a process of this home")):
                self._inbox = Inbox(self._home)
                self._name = self._ask_name(stop_event)
                if stop_event.is_set():
                    return
                self._context = self._make_context(stop_event)
                self._announce()
                on_ready(self._name)
                for item in self._inbox.resume():
                    self._hold_or_submit(item)
                self._poll(stop_event)
        except (BotTaken, TokenRefused) as error:
            write_report(self._home, self._name, str(error))
            raise
        finally:
            stop_event.set()
            self.close()

    def close(self) -> None:
        """End the turns that run, after the event of `run` was set; what waits is answered after the next start."""
        for conversation in list(self._chats.values()):
            conversation.close()

    def _make_context(self, stop_event: threading.Event) -> BotContext:
        folder = self._settings.folder or str(find_user_home() / "perdure-telegram")
        return BotContext(
            self._api, self._inbox, self._settings, Path(folder).expanduser(), self._name, self._home,
            self._open_home, stop_event,
            note_after_s=self._note_after_s, recall_mode=self._recall_mode,
        )  # fmt: skip

    def _ask_name(self, stop_event: threading.Event) -> str:
        """Return the name of the bot, however long the network is away. Raises TokenRefused."""
        wait_s = 1.0
        while True:
            try:
                return str(self._api.call("getMe", {}).get("username") or "")
            except DeliveryFault as error:
                _check_token(error)
                write_report(self._home, "", error.detail)
                if stop_event.wait(wait_s):
                    return ""
                wait_s = min(_MAX_AWAY_S, 2 * wait_s)

    def _announce(self) -> None:
        """Tell Telegram the commands, which its app offers; a webhook of the bot would keep polls from working."""
        commands = [{"command": name, "description": words} for name, words in HELP]
        for method, fields in (("deleteWebhook", {}), ("setMyCommands", {"commands": commands})):
            with contextlib.suppress(DeliveryFault):
                self._api.call(method, fields)

    # polling ----------------------------------------------------------------------------------------------

    def _poll(self, stop_event: threading.Event) -> None:
        wait_s, conflict_s = 1.0, -_CONFLICT_WINDOW_S
        while not stop_event.is_set():
            try:
                updates = self._get_updates()
            except DeliveryFault as error:
                _check_token(error)
                pause_s = max(error.after_s, wait_s)
                if error.status == 409:
                    if time.monotonic() - conflict_s < _CONFLICT_WINDOW_S:
                        raise BotTaken("another process, perhaps on another machine") from error
                    conflict_s, pause_s = time.monotonic(), _CONFLICT_WAIT_S
                write_report(self._home, self._name, error.detail)
                stop_event.wait(min(_MAX_AWAY_S, pause_s))
                wait_s = min(_MAX_AWAY_S, 2 * wait_s)
                continue
            if stop_event.is_set():
                return  # they come again
            wait_s = 1.0
            write_report(self._home, self._name)
            self._take(updates)
            for group in self._albums.release_whole(time.monotonic()):
                self._submit(group)

    def _get_updates(self) -> list[Mapping[str, Any]]:
        """Return the updates that are not stored yet; asking for them tells Telegram to forget those before."""
        poll_s = self._poll_s if self._albums.is_empty else min(self._poll_s, ALBUM_S)
        fields = {"offset": self._inbox.state.offset, "timeout": poll_s, "limit": _BATCH,
                  "allowed_updates": ["message", "callback_query"]}  # fmt: skip
        updates = self._api.call("getUpdates", fields, timeout_s=self._poll_s + _ANSWER_S)
        return [
            update
            for update in (updates if isinstance(updates, list) else ())
            if isinstance(update, Mapping) and isinstance(update.get("update_id"), int)
        ]

    def _take(self, updates: list[Mapping[str, Any]]) -> None:
        """Store a batch, and then give each message to its chat."""
        if not updates:
            return
        steps: list[InboxItem | ChatToStop] = []
        for update in self._inbox.list_unknown(updates):
            try:
                steps += self._take_update(update)
            except (AttributeError, TypeError, ValueError, LookupError) as error:  # no form that the Bot API describes
                log.append_entry(self._home, "failed", client="telegram", kind="update", code=type(error).__name__)
        items = [step for step in steps if isinstance(step, InboxItem)]
        self._inbox.store(items, [update["update_id"] for update in updates])
        for n, step in enumerate(steps):
            if isinstance(step, InboxItem):
                is_stopped = any(isinstance(later, ChatToStop) and later.chat == step.chat for later in steps[n:])
                self._hold_or_submit(step, is_stopped=is_stopped)
            else:
                for group in self._albums.release(step.chat):
                    self._submit(group, is_stopped=True)
                is_stopped = self._find_chat(step.chat).stop_turns()
                self._say(step, "I stop." if is_stopped else "Nothing runs.")

    def _hold_or_submit(self, item: InboxItem, *, is_stopped: bool = False) -> None:
        if not self._albums.hold(item, time.monotonic()):
            self._submit([item], is_stopped=is_stopped)

    def _submit(self, group: Sequence[InboxItem], *, is_stopped: bool = False) -> None:
        """Give a message, or an album that is whole, to its chat."""
        item = self._inbox.join_album(group) if len(group) > 1 else group[0]
        self._find_chat(item.chat).submit(item, is_stopped=is_stopped)

    def _take_update(self, update: Mapping[str, Any]) -> list[InboxItem | ChatToStop]:
        """Give a button to its chat; return what of a message waits for an answer, and the chat of /stop."""
        if isinstance(query := update.get("callback_query"), Mapping):
            self._take_button(query)
        elif isinstance(message := update.get("message"), Mapping):
            return self._take_message(update["update_id"], message)
        return []

    def _take_message(self, update_id: int, message: Mapping[str, Any]) -> list[InboxItem | ChatToStop]:
        """Return what of a message waits for an answer: nothing of a stranger's, of an answer, and of an event."""
        ids = incoming.read_ids(message)
        if ids is None or incoming.is_event(message):
            return []
        user, chat = ids
        if not self._allowed.allows(user, chat):
            self._inbox.count_stranger(user)
            log.append_entry(self._home, "telegram", result="ignored", user_id=user)
            return []
        typed = incoming.read_text(message).typed
        conversation = self._chats.get(chat)
        command = incoming.read_command(typed, self._name)
        if command is not None and command[0] == "stop":
            return [ChatToStop(chat, incoming.read_topic(message))]
        is_answer = command is None and bool(typed) and not incoming.read_album(message)  # it would lose its photo
        if is_answer and conversation is not None and conversation.take_text(typed, user):
            return []
        valid = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))  # no half characters
        return [InboxItem(update_id=update_id, chat=chat, user=user, message=valid)]

    def _take_button(self, query: Mapping[str, Any]) -> None:
        """Give a pressed button to its chat, and tell the app that it was taken."""
        user, chat = (query.get("from") or {}).get("id"), ((query.get("message") or {}).get("chat") or {}).get("id")
        if not self._allowed.allows(user, chat):
            self._inbox.count_stranger(user if isinstance(user, int) else 0)
            return
        conversation = self._chats.get(chat) if isinstance(chat, int) else None
        is_taken = conversation is not None and conversation.press(str(query.get("data") or ""), int(user or 0))
        words = "" if is_taken else "This question does not wait any more, or not for you."
        with contextlib.suppress(DeliveryFault):
            self._api.call("answerCallbackQuery", {"callback_query_id": query.get("id"), "text": words or None})

    def _say(self, place: ChatToStop, text: str) -> None:
        with contextlib.suppress(DeliveryFault):
            fields = {"chat_id": place.chat, "message_thread_id": place.topic, "text": text}
            self._api.call("sendMessage", fields)

    def _find_chat(self, chat: int) -> ChatConversation:
        if chat not in self._chats:
            self._chats[chat] = ChatConversation(self._context, chat)
        return self._chats[chat]


def check_settings(settings: TelegramConfig) -> None:
    """Raise ConfigFault if there is no bot, or its settings make no sense."""
    if not settings.token_env:
        raise ConfigFault("telegram.token_env: name the variable with the token of your bot (docs/telegram.md)")
    if settings.mode not in ("", *MODES):
        raise ConfigFault(f"telegram.mode = {settings.mode!r} (known: {', '.join(MODES)})")
    for name, numbers in (("users", settings.users), ("groups", settings.groups)):
        if wrong := [number for number in numbers if not number.removeprefix("-").isdigit()]:
            raise ConfigFault(f"telegram.{name}: {wrong[0]!r} is no number; `perdure telegram --check` shows who wrote")


def _check_token(error: DeliveryFault) -> None:
    """Raise TokenRefused if an error means that the token is not accepted."""
    if is_token_refused(error):
        raise TokenRefused(error.detail) from error
