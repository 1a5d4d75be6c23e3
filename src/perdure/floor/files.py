"""The files of an agent's memory tool: texts in the journal, under names that are never places on a disk.

Every change is one event, and what the files say is what the events say, in their order. A text that holds a secret, or
reads like an instruction to a model, is refused before it is an event. Whoever changes a file by what it says holds the
lock from before it is read until it is written: of two at once, none is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perdure.access import redact
from perdure.capture.files import locked, make_folder
from perdure.errors import EditRefused, ReadOnlyHome
from perdure.floor import events
from perdure.floor.floor import Floor
from perdure.floor.pages import MAX_BYTES
from perdure.floor.state import Known


@dataclass(frozen=True)
class Files:
    """The files of one agent."""

    floor: Floor

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The lock under which they change. Raises ReadOnlyHome."""
        if not self.floor.writable:
            raise ReadOnlyHome(str(self.floor.folder))
        make_folder(self.floor.folder)
        with locked(self.floor.folder / ".files.lock"):
            yield

    def known(self) -> Known:
        """What there is: `files` and `folders`."""
        return self.floor.known()

    def check(self, path: str, text: str = "") -> None:
        """Raise EditRefused for a name or a text that may not be kept."""
        for said in (path, text):
            for why in filter(None, (_unfit(said), _secret(said))):
                raise EditRefused(f"{path}: {why}")
            self.floor.refuse_suspect(said, path)

    def write(self, path: str, text: str) -> None:
        """Let a file say this, durably. Raises EditRefused."""
        self.check(path, text)
        self._note(events.filed(self.floor.agent, path, text, was=self._was(path)))

    def remove(self, path: str) -> None:
        """Take a file away, or a folder with all that is in it."""
        self._note(events.filed(self.floor.agent, path, None, was=self._was(path)))

    def move(self, path: str, to: str) -> None:
        """Give a file, or a folder with all that is in it, another path. Raises EditRefused."""
        self.check(to)
        self._note(events.moved(self.floor.agent, path, to, was=self._was(path)))

    def _was(self, path: str) -> str:
        """The event that made what a file says; "" for a new one, and for a folder."""
        known = self.known().files.get(path)
        return known.event if known else ""

    def _note(self, data: dict[str, Any]) -> None:
        self.floor.journal.append(events.TYPE, data, now=self.floor.now())


def _unfit(said: str) -> str:
    try:
        n_bytes = len(said.encode())
    except UnicodeEncodeError:
        return "it is not UTF-8"
    return f"it has {n_bytes} bytes, and {MAX_BYTES} are the most" if n_bytes > MAX_BYTES else ""


def _secret(said: str) -> str:
    kinds = sorted({secret.kind for secret in redact.find(said)})
    return f"it holds what looks like a secret ({', '.join(kinds)}); leave that out" if kinds else ""
