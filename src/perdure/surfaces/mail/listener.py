"""Answer mail in a resident home whose settings want it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from perdure import log
from perdure.config import Config
from perdure.errors import ConfigFault, PerdureError
from perdure.surfaces.mail.report import write_report

if TYPE_CHECKING:
    from perdure.home import Home
    from perdure.surfaces.mail.responder import MailResponder

_CLOSE_S = 2.0


class MailListener:
    """Hold at most one responder. Without it the home is served all the same: `doctor` says why."""

    def __init__(self, home: Path, config: Config, open_home: Callable[[], Home]) -> None:
        self._home, self._config, self._open_home = home, config, open_home
        self._stop_event = threading.Event()
        self._thread: threading.Thread | None = None
        self._responder: MailResponder | None = None

    def start(self) -> str:
        """Answer mail in a thread, if the settings name an address. Return what a person should know, or ""."""
        if not self._config.mail.address:
            return ""
        from perdure.surfaces.mail.responder import MailResponder

        try:
            self._responder = MailResponder(self._home, self._config, self._open_home)
        except ConfigFault as error:
            self._record(error)
            return f"its mail is not answered: {error}"
        self._thread = threading.Thread(
            target=self._run, args=(self._responder,), name="perdure-mail", daemon=True
        )  # fmt: skip
        self._thread.start()
        return "its mail: see `perdure mail --check`"

    def _run(self, responder: MailResponder) -> None:
        try:
            responder.run(self._stop_event)
        except (PerdureError, OSError) as error:
            self._record(error)

    def _record(self, error: Exception) -> None:
        log.append_entry(self._home, "failed", client="mail", code=str(getattr(error, "code", type(error).__name__)))
        write_report(self._home, str(error))

    def close(self) -> None:
        """Stop answering; what waits is answered after the next start."""
        self._stop_event.set()
        if self._responder is not None and self._thread is not None:
            self._responder.close()
            self._thread.join(timeout=_CLOSE_S)
