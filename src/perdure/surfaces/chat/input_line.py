"""The line in which a person types: history, several rows, completion of commands and files, large pastes.

A paste of many characters stands as one word in the line, so that editing stays quick; the message gets its text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import completion_is_selected
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts.prompt import PromptSession
from prompt_toolkit.styles import Style

from perdure.access.redact import mask
from perdure.surfaces.chat.slash_commands import COMMANDS

MAX_PASTE_CHARS = 2_000  # a longer paste, or one of more rows, is shown as one word
MAX_PASTE_ROWS = 20
MAX_HISTORY_CHARS = 10_000  # a longer message is not kept in the history
_PASTE_WORD = re.compile(r"\[paste \d+: [\d,]+ characters, [\d,]+ rows\]")
MAX_FILES = 200  # of a folder, that are offered
STYLE = Style.from_dict({"bottom-toolbar": "noreverse", "prompt": "bold ansigreen"})


class LineHistory(FileHistory):
    """Messages of earlier chats, secrets masked, in a file that only its owner reads."""

    def __init__(self, path: Path, may_keep: Callable[[], bool]) -> None:
        """may_keep: asked for each message; nothing is stored of a session of which nothing may be kept."""
        self._may_keep = may_keep
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        """Store a message; a very long one, or one with a paste that this process alone knows, is left out."""
        if len(string) <= MAX_HISTORY_CHARS and not _PASTE_WORD.search(string) and self._may_keep():
            _create_private(Path(os.fsdecode(self.filename)))  # forgetting anything deletes the file
            super().store_string(mask(string))


def _create_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDONLY, 0o600))


class InputCompleter(Completer):
    """Completes commands after `/`, files after `@`, and paths when Tab asks for them."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield what may follow the cursor."""
        line = document.text_before_cursor
        if line.startswith("/") and " " not in line and "/" not in line[1:]:
            for command in COMMANDS:
                if command.name.startswith(line[1:]):
                    yield Completion(f"/{command.name}", -len(line), display_meta=command.help)
            return
        word = document.get_word_before_cursor(WORD=True)
        if word.startswith("@"):
            yield from self._list_files(word[1:], is_mention=True)
        elif complete_event.completion_requested and ("/" in word or word.startswith(("~", "."))):
            yield from self._list_files(word)

    def _list_files(self, beginning: str, *, is_mention: bool = False) -> Iterator[Completion]:
        folder_name, slash, name = beginning.rpartition("/")
        folder = self._cwd / Path(folder_name + slash).expanduser()
        try:
            with os.scandir(folder) as entries:
                matches = [
                    (entry.name, entry.is_dir())
                    for entry in entries
                    if entry.name.startswith(name) and (name or not entry.name.startswith("."))
                ]
        except (OSError, ValueError):
            return
        for file_name, is_folder in sorted(matches)[:MAX_FILES]:
            if is_mention and " " in file_name and not is_folder:
                yield Completion(f'"{folder_name}{slash}{file_name}"', -len(beginning), display=file_name)
            else:
                yield Completion(file_name + "/" * is_folder, -len(name))


class TypedMessage(NamedTuple):
    """One message."""

    text: str
    typed: str  # the same without the text of large pastes


class InputLine:
    """Reads one message after the other."""

    def __init__(self, history: History, cwd: Path, make_toolbar: Callable[[], StyleAndTextTuples]) -> None:
        """make_toolbar: the line below the input."""
        self._pastes: dict[str, str] = {}
        self._wants_to_leave = False  # Ctrl-C was the last key, and there was nothing to clear
        self._make_toolbar = make_toolbar
        self._prompt: PromptSession[str] = PromptSession(
            history=history,
            completer=InputCompleter(cwd),
            complete_while_typing=True,
            multiline=True,
            key_bindings=self._bind_keys(),
            bottom_toolbar=self._get_toolbar,
            style=STYLE,
            prompt_continuation="  ",
            reserve_space_for_menu=4,
            enable_suspend=True,
        )
        self._prompt.default_buffer.on_text_changed += self._stay

    def read(self, start_work: Callable[[], Future[Any]] | None = None, *, typed_ahead: str = "") -> TypedMessage:
        """Return the next message. Raises EOFError when the person leaves.

        start_work: begins work in another thread when the line is on the screen; if the work fails, its error is raised
        here. typed_ahead: stands in the line already.
        """
        self._wants_to_leave = False
        if start_work:
            self._start_when_shown(start_work)
        typed = text = self._prompt.prompt([("class:prompt", "› ")], default=typed_ahead)
        for word, pasted in self._pastes.items():
            text = text.replace(word, pasted)
        return TypedMessage(text, typed)

    def redraw(self) -> None:
        """Draw the line below the input anew, if a message is being typed; from any thread."""
        self._prompt.app.invalidate()

    def _start_when_shown(self, start_work: Callable[[], Future[Any]]) -> None:
        app = self._prompt.app

        def end(work: Future[Any]) -> None:
            error = work.exception()
            if error is not None and app.loop is not None:
                app.loop.call_soon_threadsafe(leave, error)

        def leave(error: BaseException) -> None:
            if app.is_running and not app.is_done:
                app.exit(exception=error)

        def start(_: object) -> None:
            app.after_render -= start
            start_work().add_done_callback(end)

        app.after_render += start

    def _stay(self, _: object) -> None:
        self._wants_to_leave = False

    def _get_toolbar(self) -> StyleAndTextTuples:
        return [("", "Ctrl-C again leaves")] if self._wants_to_leave else self._make_toolbar()

    def _bind_keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter", filter=~completion_is_selected)
        def send(event: KeyPressEvent) -> None:
            if event.current_buffer.text.strip():
                event.current_buffer.validate_and_handle()

        @keys.add("enter", filter=completion_is_selected)
        def take_completion(event: KeyPressEvent) -> None:
            event.current_buffer.complete_state = None

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def add_row(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("<bracketed-paste>")
        def paste(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(self._shorten_paste(event.data.replace("\r\n", "\n").replace("\r", "\n")))

        @keys.add("c-c")
        def clear_or_leave(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            elif self._wants_to_leave:
                event.app.exit(exception=EOFError)
            else:
                self._wants_to_leave = True

        return keys

    def _shorten_paste(self, pasted: str) -> str:
        n_rows = pasted.count("\n") + 1
        if len(pasted) <= MAX_PASTE_CHARS and n_rows <= MAX_PASTE_ROWS:
            return pasted
        word = f"[paste {len(self._pastes) + 1}: {len(pasted):,} characters, {n_rows:,} rows]"
        self._pastes[word] = pasted
        return word
