"""Run the bot in a resident home whose settings want one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from perdure import log
from perdure.config import Config
from perdure.errors import ConfigFault, PerdureError
from perdure.surfaces.telegram.report import write_report

if TYPE_CHECKING:
    from perdure.home import Home
    from perdure.surfaces.telegram.bot import TelegramBot

_CLOSE_S = 1.0


class TelegramListener:
    """Hold at most one bot. A bot that cannot run does not keep the home from being served: `doctor` says why."""

    def __init__(self, home: Path, config: Config, open_home: Callable[[], Home]) -> None:
        self._home, self._config, self._open_home = home, config, open_home
        self._stop_event = threading.Event()
        self._thread: threading.Thread | None = None
        self._bot: TelegramBot | None = None

    def start(self) -> str:
        """Start the bot in a thread, if the settings name one. Return what a person should know; "" without a bot."""
        if not self._config.telegram.token_env:
            return ""
        from perdure.surfaces.telegram.bot import TelegramBot

        try:
            self._bot = TelegramBot(self._home, self._config, self._open_home)
        except ConfigFault as error:
            self._record(error)
            return f"its bot does not run: {error}"
        self._thread = threading.Thread(target=self._run, args=(self._bot,), name="perdure-telegram", daemon=True)
        self._thread.start()
        return "its bot: see `perdure telegram --check`"

    def _run(self, bot: TelegramBot) -> None:
        try:
            bot.run(self._stop_event)
        except (PerdureError, OSError) as error:
            self._record(error)

    def _record(self, error: Exception) -> None:
        log.append_entry(
            self._home, "failed", client="telegram", code=str(getattr(error, "code", type(error).__name__))
        )
        write_report(self._home, "", str(error))

    def close(self) -> None:
        """Stop answering; a poll that waits ends with the process."""
        self._stop_event.set()
        if self._bot is not None and self._thread is not None:
            self._bot.close()
            self._thread.join(timeout=_CLOSE_S)
