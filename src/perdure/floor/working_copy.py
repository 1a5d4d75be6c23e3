"""The working copy of a page: read it, and replace it so that no edit made at the same moment is lost.

A new text replaces the old one in one step. Where the system can, the two files swap names, and the file
that came out is read again: so the last change of a person's editor is kept. An editor may still write
into that file, so it stays for a while and is read once more. A record beside each page says which file
the journal knows: so an edit can be told from a leftover without a clock. A link stays a link: its target
gets the text.
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

from perdure.disk import make_folder, map_os_errors, sync_folder, write_file
from perdure.floor.pages import MAX_BYTES

SETTLED_S = 5.0  # by then an editor has written the file that it opened
QUIET_S = 0.25  # by then an editor that writes in pieces has written the next one
_MAX_READS = 4  # reads of a file that is being written, before the journal's text is used
_SWAP = 2  # the value of both RENAME_EXCHANGE and RENAME_SWAP
_AT_CWD = -100
EMPTY = "is empty"
_BEING_WRITTEN = "is being written"


@dataclass(frozen=True, slots=True)
class WorkingCopy:
    """The text of a file, or the reason why it has none."""

    path: Path
    text: str | None  # with \n line ends
    why: str = ""  # why there is no text; "" if there is one
    is_foreign: bool = False  # a file that we cannot read; it is left alone
    changed_s: float = 0.0  # seconds since the epoch
    moved_s: float = 0.0  # the same, but a new name counts as a change
    mark: str = ""  # identifies the file and its state

    @property
    def is_fresh(self) -> bool:
        """True if an editor may still be writing it."""
        return self.why == _BEING_WRITTEN or abs(time.time() - self.changed_s) < SETTLED_S

    @property
    def is_just_displaced(self) -> bool:
        """True if an editor that had the file open may still write into it."""
        return self.is_fresh or abs(time.time() - self.moved_s) < SETTLED_S

    def is_before(self, hybrid_time: str) -> bool:
        """Return True if the file was last changed before this hybrid time."""
        return self.changed_s <= datetime.fromisoformat(hybrid_time.partition("#")[0]).timestamp() + 0.001


def read_copy(path: Path) -> WorkingCopy | None:
    """Read a file; None if there is none, or if it is a link to a file that can be created."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        is_dangling = path.is_symlink() and not _resolve_link(path).parent.is_dir()
        return (
            WorkingCopy(path, None, "is a link to a folder that does not exist", is_foreign=True)
            if is_dangling
            else None
        )
    except OSError as error:
        return WorkingCopy(path, None, f"cannot be read ({error.strerror})", is_foreign=True)
    try:
        return _read_descriptor(path, descriptor)
    finally:
        os.close(descriptor)


def _read_descriptor(path: Path, descriptor: int) -> WorkingCopy:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return WorkingCopy(
            path, None, "is a folder" if stat.S_ISDIR(status.st_mode) else "is not a file", is_foreign=True
        )
    with open(descriptor, "rb", closefd=False) as file:
        raw = file.read(MAX_BYTES + 1) if status.st_size <= MAX_BYTES else b""
    n_bytes = max(status.st_size, len(raw))
    text = None if n_bytes > MAX_BYTES else _decode(raw)
    why = "" if text is not None else f"has {n_bytes} bytes; the maximum is {MAX_BYTES}"
    if text is None and n_bytes <= MAX_BYTES:
        why = "is not text" if raw.strip() else EMPTY
    return WorkingCopy(path, text, why, False, status.st_mtime, status.st_ctime, _make_mark(status))


def _decode(raw: bytes) -> str | None:
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    return text if text.strip() and "\0" not in text else None


def read_settled_copy(path: Path) -> WorkingCopy | None:
    """Read a file once nobody is writing into it; return a copy without text if somebody keeps writing."""
    copy = read_copy(path)
    for _ in range(_MAX_READS):
        age_s = time.time() - copy.changed_s if copy is not None else QUIET_S
        if copy is None or not 0 <= age_s < QUIET_S:
            return copy
        time.sleep(QUIET_S - age_s)
        copy = read_copy(path)
    return WorkingCopy(path, None, _BEING_WRITTEN, False)


def put_text(path: Path, text: str) -> None:
    """Give a page its text, durably and in one step; the old text stays beside it for a while."""
    path = _resolve_link(path)
    make_folder(path.parent)
    aside_path = _make_aside_path(path, "displaced")
    unfinished_path = aside_path.with_suffix(".tmp")
    write_file(unfinished_path, text.encode())
    _record_next_text(path, unfinished_path)
    with map_os_errors(path):
        unfinished_path.rename(aside_path)  # the text is complete from here on
        try:
            os.link(aside_path, path)  # the page had no file
        except FileExistsError:
            if not _exchange_names(aside_path, path):
                _replace_and_keep_old(aside_path, path)
        else:
            aside_path.unlink()
    sync_folder(path.parent)


def rewrite_copy(copy: WorkingCopy, text: str, *, is_known: bool) -> None:
    """Replace the text of a file and keep nothing of the old one.

    is_known: the journal has the old text, so the new text is no edit either, wherever the process is killed.
    """
    path = _resolve_link(copy.path)
    unfinished_path = _make_aside_path(path, "displaced").with_suffix(".tmp")
    write_file(unfinished_path, text.encode())
    if is_known:
        _write_marks(path, [copy.mark, _make_mark(unfinished_path.stat())])
    with map_os_errors(path):
        unfinished_path.replace(path)
    sync_folder(path.parent)


def remove_copy(path: Path) -> None:
    """Remove a page's file; the old text is kept for a while."""
    with map_os_errors(path), contextlib.suppress(FileNotFoundError):
        path.rename(_make_aside_path(path, "displaced"))
        sync_folder(path.parent)


def read_displaced(path: Path) -> Iterator[WorkingCopy]:
    """Yield the old texts that are still kept beside a page. The caller holds the lock."""
    for unfinished_path in _list_beside(path, "*.tmp"):
        unfinished_path.unlink(missing_ok=True)  # its writer was killed; the journal has the same text
    for aside_path in _list_beside(path, "*.displaced"):
        copy = read_copy(aside_path)
        if copy is not None:
            yield copy


def has_displaced(path: Path) -> bool:
    """Return True if an old text beside a page still has to be looked at."""
    return next(_list_beside(path, "*.displaced"), None) is not None


def set_aside(copy: WorkingCopy) -> Path:
    """Keep a file that cannot be a page's text beside the page, under another name; nothing is copied."""
    aside_path = copy.path.parent / f"{_to_page_name(copy.path)}.refused-{os.urandom(4).hex()}"
    with map_os_errors(aside_path):
        os.link(_resolve_link(copy.path), aside_path)
    return aside_path


# which file the journal knows -------------------------------------------------------------------------------


def is_recorded(copy: WorkingCopy) -> bool | None:
    """Return True if the journal has the text of this file.

    None: that is unknown, as in a home that was copied.
    """
    marks = _read_marks(_resolve_link(copy.path))
    return None if marks is None else copy.mark in marks


def record_copy(copy: WorkingCopy) -> None:
    """Record that the journal has the text of this file."""
    _write_marks(_resolve_link(copy.path), [copy.mark])


def _read_marks(path: Path) -> list[str] | None:
    """Return the marks of the files that the journal has.

    These are the last one, and the one before if it may still be in place.
    """
    try:
        with _to_marks_path(path).open(encoding="ascii") as file:
            inode, *marks = file.read().split()
            return marks if int(inode) == os.fstat(file.fileno()).st_ino else None
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def _record_next_text(path: Path, unfinished_path: Path) -> None:
    """Record that the journal has the text we are about to put, and the present text if the journal has that."""
    current_copy = read_copy(path)
    marks = [current_copy.mark] if current_copy is not None and current_copy.mark in (_read_marks(path) or ()) else []
    _write_marks(path, [*marks, _make_mark(unfinished_path.stat())])


def _write_marks(path: Path, marks: list[str]) -> None:
    new_path = _to_marks_path(path).with_suffix(".tmp")
    with map_os_errors(path):
        descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(" ".join([str(os.fstat(file.fileno()).st_ino), *marks]))
        new_path.replace(_to_marks_path(path))


def _make_mark(status: os.stat_result) -> str:
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"


# names ------------------------------------------------------------------------------------------------------


def _resolve_link(path: Path) -> Path:
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _to_marks_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.noted")


def _make_aside_path(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.{ending}")


def _to_page_name(path: Path) -> str:
    """Return the name of the page to which a file belongs or belonged."""
    is_aside = path.name.startswith(".") and path.name.endswith(".displaced")
    return path.name[1:].rsplit(".", 2)[0] if is_aside else path.name


def _list_beside(path: Path, ending: str) -> Iterator[Path]:
    path = _resolve_link(path)
    return iter(sorted(path.parent.glob(f".{glob.escape(path.name)}.{ending}")))


def _exchange_names(first_path: Path, second_path: Path) -> bool:
    """Swap the names of two files in one step; return False if the system cannot."""
    import ctypes  # takes milliseconds, only needed to write a page

    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(AttributeError):  # the system library lacks it
        if sys.platform == "darwin":
            return int(libc.renamex_np(os.fsencode(first_path), os.fsencode(second_path), _SWAP)) == 0
        return int(libc.renameat2(_AT_CWD, os.fsencode(first_path), _AT_CWD, os.fsencode(second_path), _SWAP)) == 0
    return False


def _replace_and_keep_old(new_path: Path, path: Path) -> None:
    """Do the same in two steps: an edit between the two is lost."""
    old_path = new_path.with_name(new_path.name.replace(".displaced", "-old.displaced"))
    with contextlib.suppress(FileNotFoundError):
        os.link(path, old_path)
    new_path.replace(path)
