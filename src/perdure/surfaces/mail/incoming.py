"""Mails in a folder: a Maildir (`new`, `cur`), or files that end in .eml. Something else brings them there.

A mail that was stored leaves `new` for `cur`; a file of the other kind goes into the folder `taken`. Only plain files
are read, and a file has to appear by a rename: one that is still being written would be read as it is.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from perdure import disk
from perdure.errors import ConfigFault, DeliveryFault
from perdure.surfaces.mail.inbox import MailItem
from perdure.surfaces.mail.sender import MAX_HEADER_BYTES

MAX_MAIL_BYTES = 10_000_000  # of a mail that are read
_LOOK_S = 1.0  # between two looks into the folder
_FLAGS = ":2,S"  # of a mail that was seen; R: it was answered


class ReceivedMail(NamedTuple):
    """A mail in its source."""

    place: str
    head: bytes  # its beginning, with the headers
    n_bytes: int
    read: Callable[[], bytes]  # at most MAX_MAIL_BYTES. Raises DeliveryFault
    fault: DeliveryFault | None = None  # why there is no head


class IncomingFolder:
    """The mails of a folder."""

    def __init__(self, folder: Path) -> None:
        """Raise ConfigFault for a folder that is not there."""
        if not folder.is_dir():
            raise ConfigFault(f"mail.incoming: {folder} is no folder")
        self._folder = folder
        self._is_maildir = (folder / "new").is_dir()
        self._taken = folder / ("cur" if self._is_maildir else "taken")

    def list_new(self) -> Iterator[ReceivedMail]:
        """Yield what is new, oldest first."""
        folder = self._folder / "new" if self._is_maildir else self._folder
        paths = [path for path in folder.iterdir() if not path.name.startswith(".") and self._is_mail(path)]
        for path in sorted(paths, key=lambda path: (path.lstat().st_mtime_ns, path.name)):
            head = _read(path, MAX_HEADER_BYTES)
            if head is None:
                continue
            yield ReceivedMail(path.name, head, path.lstat().st_size, partial(_read_whole, path))

    def _is_mail(self, path: Path) -> bool:
        return stat.S_ISREG(path.lstat().st_mode) and (self._is_maildir or path.suffix == ".eml")

    def accept(self, mail: ReceivedMail) -> None:
        """Put a mail where it is not new any more."""
        disk.make_folder(self._taken)
        path = (self._folder / "new" if self._is_maildir else self._folder) / mail.place
        with suppress(FileNotFoundError):  # it was taken before, or by somebody else
            path.rename(self._taken / (f"{mail.place.partition(':')[0]}{_FLAGS}" if self._is_maildir else mail.place))

    def put_off(self, mail: ReceivedMail, fault: DeliveryFault) -> None:
        """Do nothing: a file that was not read is new at the next look."""

    def mark_answered(self, item: MailItem) -> None:
        """Mark a mail of a Maildir as answered."""
        name = f"{item.place.partition(':')[0]}{_FLAGS}"
        if self._is_maildir:
            with suppress(FileNotFoundError):  # a mail program moved it
                (self._taken / name).rename(self._taken / name.replace(_FLAGS, ":2,RS"))

    def wait(self, stop_event: threading.Event, limit_s: float) -> None:
        """Wait a moment; the folder is cheap to look into."""
        stop_event.wait(min(_LOOK_S, limit_s))

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _read_whole(path: Path) -> bytes:
    return _read(path, MAX_MAIL_BYTES) or b""


def _read(path: Path, n_bytes: int) -> bytes | None:
    """Return the beginning of a plain file; None if it is none any more."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(n_bytes) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    return None
