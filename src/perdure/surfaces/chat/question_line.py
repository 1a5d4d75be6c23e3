"""The line in which a person answers a question in the middle of a turn: one key, or some words.

What was typed before the question was there is no answer to it: it is taken out of the terminal first, and comes back
in the next input line.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.shortcuts.prompt import PromptSession

from perdure.surfaces.chat.input_line import STYLE
from perdure.text import printable

QUIET_S = 0.3  # in which no key came: from then on a key is an answer
_POLL_S = 0.1


class QuestionLine:
    """Asks for one answer after the other. Ctrl-C raises KeyboardInterrupt, and so does a turn that is cancelled."""

    def __init__(self, make_toolbar: Callable[[], StyleAndTextTuples]) -> None:
        """make_toolbar: the line below the question."""
        self._make_toolbar = make_toolbar
        self.typed_ahead = ""  # what was typed before a question, and is no answer

    def take_typed_ahead(self) -> str:
        """Return what was typed before the questions of this turn, once."""
        typed, self.typed_ahead = self.typed_ahead, ""
        return typed

    def drain(self, cancel: threading.Event) -> None:
        """Put away the keys that came before the person can have seen a question."""
        descriptor = sys.stdin.fileno()
        pieces = []
        while not cancel.is_set() and select.select([descriptor], [], [], QUIET_S)[0]:
            if not (raw := os.read(descriptor, 65536)):
                break
            pieces.append(raw)
        self.typed_ahead += printable(b"".join(pieces).decode("utf-8", "replace"))

    def ask_key(self, label: str, choices: Mapping[str, str], cancel: threading.Event) -> str:
        """Return the choice of the key that is pressed. choices: key -> choice; other keys do nothing."""
        keys = KeyBindings()

        @keys.add(Keys.Any)
        @keys.add(Keys.BracketedPaste)
        @keys.add("enter")
        def ignore(_: KeyPressEvent) -> None:
            pass

        for key, choice in choices.items():
            keys.add(key)(_make_exit(choice))
        return self._prompt(label, keys, cancel)

    def ask_words(self, label: str, cancel: threading.Event) -> str:
        """Return the line that is typed; it may be empty."""
        return self._prompt(label, KeyBindings(), cancel).strip()

    def _prompt(self, label: str, keys: KeyBindings, cancel: threading.Event) -> str:
        @keys.add("c-c")
        @keys.add("c-d")
        def leave(event: KeyPressEvent) -> None:
            event.app.exit(exception=KeyboardInterrupt)

        prompt: PromptSession[str] = PromptSession(
            key_bindings=keys, bottom_toolbar=self._make_toolbar, style=STYLE, erase_when_done=True
        )

        async def watch() -> None:
            while not cancel.is_set():
                await asyncio.sleep(_POLL_S)
            prompt.app.exit(exception=KeyboardInterrupt)

        answer = prompt.prompt(
            [("class:prompt", label)],
            pre_run=lambda: _start(prompt.app, watch()),
            handle_sigint=False,  # the turn's own handler stays
        )
        self.typed_ahead += "".join(press.data for press in get_typeahead(prompt.input) if press.data.isprintable())
        return answer


def _start(app: Any, work: Any) -> None:
    app.create_background_task(work)


def _make_exit(choice: str) -> Callable[[KeyPressEvent], None]:
    def leave(event: KeyPressEvent) -> None:
        event.app.exit(result=choice)

    return leave
