"""The files of an agent's memory tool: texts in the journal, under names that are never paths on a disk.

Every change is one event, and the content of the files follows from the events in their order. A text
that holds a secret, or reads like an instruction to a model, is refused before it becomes an event. A
caller that changes a file by its content holds the lock from before it reads the file until it has
written: no concurrent change is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perdure.access import redact
from perdure.disk import lock_file, make_folder
from perdure.errors import EditRefused, ReadOnlyHome
from perdure.floor import state
from perdure.floor.floor import Floor
from perdure.floor.pages import MAX_BYTES
from perdure.floor.state import AgentFloor


@dataclass(frozen=True)
class MemoryFiles:
    """The files of one agent."""

    floor: Floor

    @contextlib.contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold the lock under which the files change. Raises ReadOnlyHome."""
        if not self.floor.writable:
            raise ReadOnlyHome(str(self.floor.folder))
        make_folder(self.floor.folder)
        with lock_file(self.floor.folder / ".files.lock"):
            yield

    def load_state(self) -> AgentFloor:
        """Return the agent's floor, with `files` and `folders`."""
        return self.floor.load_state()

    def check_text(self, path: str, text: str = "") -> None:
        """Raise EditRefused for a name or a text that may not be stored."""
        for checked_text in (path, text):
            for why in filter(None, (_find_text_problem(checked_text), _find_secret_problem(checked_text))):
                raise EditRefused(f"{path}: {why}")
            self.floor.refuse_suspect(checked_text, path)

    def write(self, path: str, text: str) -> None:
        """Write a file's text, durably. Raises EditRefused."""
        self.check_text(path, text)
        self._record_event(
            state.build_file_event(self.floor.agent, path, text, previous_event=self._find_last_event(path))
        )

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with everything in it."""
        self._record_event(
            state.build_file_event(self.floor.agent, path, None, previous_event=self._find_last_event(path))
        )

    def move(self, path: str, new_path: str) -> None:
        """Move a file, or a folder with everything in it, to another path. Raises EditRefused."""
        self.check_text(new_path)
        self._record_event(
            state.build_move_event(self.floor.agent, path, new_path, previous_event=self._find_last_event(path))
        )

    def _find_last_event(self, path: str) -> str:
        """Return the key of the event that made a file's text; "" for a new file or a folder."""
        file = self.load_state().files.get(path)
        return file.event if file else ""

    def _record_event(self, data: dict[str, Any]) -> None:
        self.floor.journal.append(state.EVENT_TYPE, data, now=self.floor.now())


def _find_text_problem(text: str) -> str:
    try:
        n_bytes = len(text.encode())
    except UnicodeEncodeError:
        return "it is not UTF-8"
    return f"it has {n_bytes} bytes; the maximum is {MAX_BYTES}" if n_bytes > MAX_BYTES else ""


def _find_secret_problem(text: str) -> str:
    kinds = sorted({secret.kind for secret in redact.find_secrets(text)})
    return f"it contains text that looks like a secret ({', '.join(kinds)}); remove it" if kinds else ""
