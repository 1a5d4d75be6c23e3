"""A bot of a home in a thread, against a server that speaks the Bot API; and what a test waits for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import perdure
from perdure.config import load
from perdure.errors import PerdureError
from perdure.formats.perdure import Message
from perdure.session.log import read_path
from perdure.surfaces.telegram.bot import TelegramBot
from perdure.surfaces.telegram.inbox import Inbox
from perdure.testing import ScriptedChat
from rig.bot_api import BotApiServer
from rig.waiting import wait_for

LIMIT_S = 20.0


def write_settings(home: Path, server: BotApiServer, *more: str, users: Sequence[str] = ("11",)) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    names = ", ".join(f'"{user}"' for user in users)
    (home / "config.toml").write_text(
        f'[telegram]\ntoken_env = "BOT_TOKEN"\nurl = "{server.url}"\nusers = [{names}]\n'
        f'folder = "{home.parent / "work"}"\n' + "\n".join(more)
    )


class RunningBot:
    """Use it as a context: at its end the bot is stopped."""

    def __init__(self, home: Path, script: Sequence[Any] = (), **options: Any) -> None:
        self.chat = ScriptedChat(script)
        self.home, self.stop_event, self.fault = home, threading.Event(), None
        options = {"poll_s": 1, "recall_mode": "keyword", **options}
        self.bot = TelegramBot(
            home, load(home), lambda: perdure.open(home, user="ada", chats={"resident": self.chat}), **options
        )
        self.is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.bot.run(self.stop_event, on_ready=lambda _: self.is_ready.set())
        except (PerdureError, OSError) as error:
            self.fault = error
            self.is_ready.set()

    def __enter__(self) -> RunningBot:
        self._thread.start()
        assert self.is_ready.wait(LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_event.set()
        self.bot.close()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def wait_end(self) -> BaseException | None:
        """Wait until the bot ends by itself, and return why."""
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        return self.fault


def read_messages(home: Path, chat: int = 11) -> list[Message]:
    with perdure.open(home, user="ada") as opened:
        path = read_path(opened, Inbox(home).get_chat(chat).session)
    return [entry for entry in path if isinstance(entry, Message)]


def wait_text(server: BotApiServer, words: str, chat: int = 11) -> str:
    return str(wait_for(lambda: next((t for t in server.list_texts(chat) if words in t), ""), words))
