"""Show that a long turn goes on: "typing…", and a note that is edited while tools run, in a thread of its own."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from perdure.delivery.telegram import BotApi
from perdure.errors import DeliveryFault, PerdureError
from perdure.formats.perdure import CallEntry
from perdure.text import one_line

TYPING_S = 4.5  # "typing…" is shown for five seconds
NOTE_AFTER_S = 10.0  # a turn that takes longer gets a note
EDIT_S = 3.0  # between two edits: Telegram slows a bot down that edits more often
_MAX_CALL_CHARS = 120


class ProgressNote:
    """Use it as a context around a turn. What fails here fails silently: the answer is what counts."""

    def __init__(self, api: BotApi, chat: int, *, topic: int | None = None, note_after_s: float = NOTE_AFTER_S) -> None:
        self._api, self._chat, self._topic, self._note_after_s = api, chat, topic, note_after_s
        self._is_over = threading.Event()
        self._n_calls, self._last_call = 0, ""
        self._message_id, self._shown = 0, ""
        self._thread = threading.Thread(target=self._run, name="telegram-progress", daemon=True)

    def __enter__(self) -> ProgressNote:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the note."""
        self._is_over.set()
        self._thread.join(timeout=10)
        if self._message_id:
            self._call("deleteMessage", message_id=self._message_id)

    def tell_call(self, call: CallEntry) -> None:
        """Note that a tool is about to run."""
        self._n_calls += 1
        first = next((str(value) for value in call.input.values()), "")
        self._last_call = one_line(f"{call.name} {first}", _MAX_CALL_CHARS)

    def _run(self) -> None:
        began_s = typed_s = edited_s = time.monotonic()
        self._call("sendChatAction", action="typing", message_thread_id=self._topic)
        while not self._is_over.wait(0.2):
            now_s = time.monotonic()
            if now_s - typed_s >= TYPING_S:
                typed_s = now_s
                self._call("sendChatAction", action="typing", message_thread_id=self._topic)
            if now_s - began_s >= self._note_after_s and now_s - edited_s >= EDIT_S:
                edited_s = now_s
                self._show(now_s - began_s)

    def _show(self, took_s: float) -> None:
        calls = f", {self._n_calls} tool {'call' if self._n_calls == 1 else 'calls'}: {self._last_call}"
        text = f"⏳ {took_s:.0f} s{calls if self._n_calls else ''}\n/stop ends it"
        if not self._message_id:
            message = self._call("sendMessage", text=text, disable_notification=True, message_thread_id=self._topic)
            self._message_id = int(message.get("message_id", 0)) if isinstance(message, dict) else 0
        elif text != self._shown:
            self._call("editMessageText", message_id=self._message_id, text=text)
        self._shown = text

    def _call(self, method: str, **fields: object) -> object:
        try:
            return self._api.call(method, {"chat_id": self._chat, **fields}, timeout_s=10)
        except DeliveryFault as error:
            self._is_over.wait(min(error.after_s, 30))
        except PerdureError:
            pass
        return None
