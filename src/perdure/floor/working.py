"""The working copy of a page: read as it stands, and put in place so that no edit made beside us is lost.

A new text takes the place of the old in one step. Where the system can, the two files change names, and what came out
is looked at: what a person's editor wrote in the last moment is then in our hands and not gone. An editor may still be
writing into the file that came out, so that is kept for a while and looked at again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from perdure.capture.files import faults, make_folder, sync_folder, write

SETTLED_S = 5.0  # an editor that opened a file has written it by then
_SWAP = 2  # RENAME_EXCHANGE and RENAME_SWAP alike
_AT_CWD = -100


@dataclass(frozen=True, slots=True)
class Copy:
    """What stands in a file."""

    raw: bytes
    changed_s: float  # seconds since the epoch
    path: Path

    @property
    def text(self) -> str | None:
        """Its text with plain line ends; None for what is none, or says nothing."""
        try:
            text = self.raw.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError:
            return None
        return text if text.strip() and "\0" not in text else None

    @property
    def is_fresh(self) -> bool:
        """Whether an editor may still be at it."""
        return abs(time.time() - self.changed_s) < SETTLED_S

    def is_before(self, hybrid_time: str) -> bool:
        """Whether it was last changed before that."""
        return self.changed_s <= datetime.fromisoformat(hybrid_time.partition("#")[0]).timestamp() + 0.001


def read(path: Path) -> Copy | None:
    """What stands in a file; None where there is none. A link is followed only to a file."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            return Copy(file.read(), found.st_mtime, path)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def put(path: Path, text: str) -> None:
    """Give a page its text, durably and in one step; what stood there is kept for a while beside it."""
    make_folder(path.parent)
    aside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.displaced")
    write(aside, text.encode())
    with faults(path):
        try:
            os.link(aside, path)  # there was none
        except FileExistsError:
            if not _exchanged(aside, path):
                _linked_over(aside, path)
        else:
            aside.unlink()
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Take a page away; what stood there is kept for a while."""
    with faults(path), contextlib.suppress(FileNotFoundError):
        path.rename(path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.displaced"))
        sync_folder(path.parent)


def displaced(path: Path) -> Iterator[Copy]:
    """What stood in a page before it was put, as far as it is still kept."""
    for aside in sorted(path.parent.glob(f".{path.name}.*.displaced")):
        found = read(aside)
        if found is not None:
            yield found


def set_aside(copy: Copy) -> Path:
    """Keep what cannot be a page's text beside it, under a name of its own."""
    aside = copy.path.with_name(f"{copy.path.name}.refused-{os.urandom(4).hex()}")
    write(aside, copy.raw)
    return aside


def _exchanged(a: Path, b: Path) -> bool:
    """Let two files change names in one step; False where the system cannot."""
    import ctypes  # milliseconds, for those who write a page

    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(AttributeError):  # a system library without it
        if sys.platform == "darwin":
            return int(libc.renamex_np(os.fsencode(a), os.fsencode(b), _SWAP)) == 0
        return int(libc.renameat2(_AT_CWD, os.fsencode(a), _AT_CWD, os.fsencode(b), _SWAP)) == 0
    return False


def _linked_over(new: Path, path: Path) -> None:
    """The same in two steps: an edit between them is lost."""
    old = new.with_name(new.name.replace(".displaced", "-old.displaced"))
    with contextlib.suppress(FileNotFoundError):
        os.link(path, old)
    new.replace(path)
