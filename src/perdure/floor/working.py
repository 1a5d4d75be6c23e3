"""The working copy of a page: read as it stands, and put in place so that no edit made beside us is lost.

A new text takes the place of the old in one step. Where the system can, the two files change names, and what came out
is looked at: what a person's editor wrote in the last moment is then in our hands and not gone. An editor may still be
writing into the file that came out, so that is kept for a while and looked at again. Beside each page stands which file
the journal knows: so an edit is told from what was left behind without a clock. A link stays a link: its target gets
the text.
"""

from __future__ import annotations

import contextlib
import glob
import os
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from perdure.capture.files import faults, make_folder, sync_folder, write
from perdure.floor.pages import MAX_BYTES

SETTLED_S = 5.0  # an editor that opened a file has written it by then
QUIET_S = 0.25  # an editor that writes in pieces has written the next by then
_LOOKS = 4  # at a file that is being written, before what the journal says counts for now
_SWAP = 2  # RENAME_EXCHANGE and RENAME_SWAP alike
_AT_CWD = -100
EMPTY = "is empty"
_BEING_WRITTEN = "is being written"


@dataclass(frozen=True, slots=True)
class Copy:
    """What stands in a file, or why that is no text."""

    path: Path
    text: str | None  # with plain line ends
    why: str = ""  # there is no text, in words; "" where there is one
    is_foreign: bool = False  # it is no file that we could read, and is left as it is
    changed_s: float = 0.0  # seconds since the epoch
    moved_s: float = 0.0  # the same, also when it only got another name
    mark: str = ""  # which file it is, in which state

    @property
    def is_fresh(self) -> bool:
        """Whether an editor may still be at it."""
        return self.why == _BEING_WRITTEN or abs(time.time() - self.changed_s) < SETTLED_S

    @property
    def is_just_displaced(self) -> bool:
        """Whether an editor that had it open may still write into it."""
        return self.is_fresh or abs(time.time() - self.moved_s) < SETTLED_S

    def is_before(self, hybrid_time: str) -> bool:
        """Whether it was last changed before that."""
        return self.changed_s <= datetime.fromisoformat(hybrid_time.partition("#")[0]).timestamp() + 0.001


def read(path: Path) -> Copy | None:
    """What stands in a file; None where there is none, or a link to one that can be made."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        lost = path.is_symlink() and not _target(path).parent.is_dir()
        return Copy(path, None, "is a link into a folder that is not there", is_foreign=True) if lost else None
    except OSError as error:
        return Copy(path, None, f"cannot be read ({error.strerror})", is_foreign=True)
    try:
        return _read(path, descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, descriptor: int) -> Copy:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return Copy(path, None, "is a folder" if stat.S_ISDIR(found.st_mode) else "is no file", is_foreign=True)
    with open(descriptor, "rb", closefd=False) as file:
        raw = file.read(MAX_BYTES + 1) if found.st_size <= MAX_BYTES else b""
    n_bytes = max(found.st_size, len(raw))
    text = None if n_bytes > MAX_BYTES else _decoded(raw)
    why = "" if text is not None else f"has {n_bytes} bytes, and {MAX_BYTES} are the most"
    if text is None and n_bytes <= MAX_BYTES:
        why = "is no text" if raw.strip() else EMPTY
    return Copy(path, text, why, False, found.st_mtime, found.st_ctime, _mark(found))


def _decoded(raw: bytes) -> str | None:
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    return text if text.strip() and "\0" not in text else None


def quiet(path: Path) -> Copy | None:
    """What stands in a file once nobody is writing into it; without a text when somebody keeps on doing so."""
    copy = read(path)
    for _ in range(_LOOKS):
        age_s = time.time() - copy.changed_s if copy is not None else QUIET_S
        if copy is None or not 0 <= age_s < QUIET_S:
            return copy
        time.sleep(QUIET_S - age_s)
        copy = read(path)
    return Copy(path, None, _BEING_WRITTEN, False)


def put(path: Path, text: str) -> None:
    """Give a page its text, durably and in one step; what stood there is kept for a while beside it."""
    path = _target(path)
    make_folder(path.parent)
    aside = _aside(path, "displaced")
    unfinished = aside.with_suffix(".tmp")
    write(unfinished, text.encode())
    _note_before(path, unfinished)
    with faults(path):
        unfinished.rename(aside)  # whole from here on
        try:
            os.link(aside, path)  # there was none
        except FileExistsError:
            if not _exchanged(aside, path):
                _linked_over(aside, path)
        else:
            aside.unlink()
    sync_folder(path.parent)


def rewrite(copy: Copy, text: str, *, is_known: bool) -> None:
    """Give a file another text in its place, and keep nothing of the old. is_known: the journal has what it said, so
    what it says now is no edit either, wherever we are killed.
    """
    path = _target(copy.path)
    unfinished = _aside(path, "displaced").with_suffix(".tmp")
    write(unfinished, text.encode())
    if is_known:
        _keep_noted(path, [copy.mark, _mark(unfinished.stat())])
    with faults(path):
        unfinished.replace(path)
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Take a page away; what stood there is kept for a while."""
    with faults(path), contextlib.suppress(FileNotFoundError):
        path.rename(_aside(path, "displaced"))
        sync_folder(path.parent)


def displaced(path: Path) -> Iterator[Copy]:
    """What stood in a page before it was put, as far as it is still kept. The caller holds the lock."""
    for found in _beside(path, "*.tmp"):
        found.unlink(missing_ok=True)  # whoever wrote it was killed: it says what the journal says
    for aside in _beside(path, "*.displaced"):
        found_there = read(aside)
        if found_there is not None:
            yield found_there


def has_displaced(path: Path) -> bool:
    """Whether anything stands beside a page that has to be looked at."""
    return next(_beside(path, "*.displaced"), None) is not None


def set_aside(copy: Copy) -> Path:
    """Keep what cannot be a page's text beside it, under a name of its own; nothing is copied."""
    aside = copy.path.parent / f"{_page_name(copy.path)}.refused-{os.urandom(4).hex()}"
    with faults(aside):
        os.link(_target(copy.path), aside)
    return aside


# which file the journal knows -------------------------------------------------------------------------------


def is_noted(copy: Copy) -> bool | None:
    """Whether the journal has what this file says; None when that is not known, as in a home that was copied."""
    noted = _noted(_target(copy.path))
    return None if noted is None else copy.mark in noted


def note(copy: Copy) -> None:
    """Keep that the journal has what this file says."""
    _keep_noted(_target(copy.path), [copy.mark])


def _noted(path: Path) -> list[str] | None:
    """The marks of what the journal has: of the last file, and of the one before where that may still stand there."""
    try:
        with _record(path).open(encoding="ascii") as file:
            inode, *marks = file.read().split()
            return marks if int(inode) == os.fstat(file.fileno()).st_ino else None
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def _note_before(path: Path, unfinished: Path) -> None:
    """Keep that the journal has what we are about to put, beside what stands there if it has that."""
    now = read(path)
    marks = [now.mark] if now is not None and now.mark in (_noted(path) or ()) else []
    _keep_noted(path, [*marks, _mark(unfinished.stat())])


def _keep_noted(path: Path, marks: list[str]) -> None:
    fresh = _record(path).with_suffix(".tmp")
    with faults(path):
        with fresh.open("w", encoding="ascii") as file:
            file.write(" ".join([str(os.fstat(file.fileno()).st_ino), *marks]))
        fresh.replace(_record(path))


def _mark(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"


# names ------------------------------------------------------------------------------------------------------


def _target(path: Path) -> Path:
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _record(path: Path) -> Path:
    return path.with_name(f".{path.name}.noted")


def _aside(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.{ending}")


def _page_name(path: Path) -> str:
    """The name of the page of which a file is, or was."""
    is_aside = path.name.startswith(".") and path.name.endswith(".displaced")
    return path.name[1:].rsplit(".", 2)[0] if is_aside else path.name


def _beside(path: Path, ending: str) -> Iterator[Path]:
    path = _target(path)
    return iter(sorted(path.parent.glob(f".{glob.escape(path.name)}.{ending}")))


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
