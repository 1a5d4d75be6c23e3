"""A question in the middle of a turn: buttons below a message, answered by the person who asked, or nobody."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class WaitingQuestion:
    """A question that waits. One thread waits, another one answers."""

    user: int  # only they may answer
    choices: tuple[str, ...]  # labels of the buttons
    takes_text: bool = False  # the next message is an answer, too
    code: str = field(default_factory=lambda: secrets.token_hex(4))  # tells its buttons from those of an earlier one
    answer: str | None = None  # None: there was none
    _is_done: threading.Event = field(default_factory=threading.Event)

    def build_keyboard(self) -> dict[str, Any]:
        """Return the buttons as the Bot API takes them: a row each, at most 64 bytes of data."""
        rows = [
            [{"text": label, "callback_data": f"{self.code}:{number}"}] for number, label in enumerate(self.choices)
        ]
        return {"inline_keyboard": rows}

    def press(self, data: str, user: int) -> bool:
        """Answer by a button. Return False if it is another's, or of another question."""
        code, _, number = data.partition(":")
        if user != self.user or code != self.code or not number.isdigit() or int(number) >= len(self.choices):
            return False
        return self.set_answer(self.choices[int(number)])

    def set_answer(self, answer: str | None) -> bool:
        """Answer, unless there is an answer already. None: there will be none."""
        if self._is_done.is_set():
            return False
        self.answer = answer
        self._is_done.set()
        return True

    def wait(self, limit_s: float) -> str | None:
        """Return the answer; None after so many seconds, or if the person stopped the turn."""
        if not self._is_done.wait(limit_s):
            self.set_answer(None)
        return self.answer


def shorten_labels(choices: Sequence[str], max_chars: int = 60) -> tuple[str, ...]:
    """Return labels for buttons, each of another text than the others.

    >>> shorten_labels(["a", "b" * 80, "b" * 80])[1:] == ("b" * 57 + "… 2", "b" * 57 + "… 3")
    True
    """
    return tuple(
        choice if len(choice) <= max_chars else f"{choice[: max_chars - 3]}… {number}"
        for number, choice in enumerate(choices, start=1)
    )
