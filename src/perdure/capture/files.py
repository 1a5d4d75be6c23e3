"""Durable file writes, standard library only: a write that returned survives kill -9 and a power cut.

A new file appears whole or not at all; a full disk leaves the old content and no debris, and says so.
Files are 0600 and folders 0700, whatever the umask.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from perdure.errors import Busy, DiskFull, PerdureError, ReadOnlyHome

_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextlib.contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into errors that say what to do."""
    try:
        yield
    except OSError as error:
        found = fault(error, path)
        if found is None:
            raise
        raise found from error


def fault(error: OSError, path: Path) -> PerdureError | None:
    """What a refusal of the operating system means here, or None when it means nothing in particular."""
    if error.errno in _FULL:
        return DiskFull(str(path))
    return ReadOnlyHome(str(path)) if error.errno in _READ_ONLY else None


def make_folder(path: Path) -> None:
    """Create a folder and its parents, private, and make their names durable."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with faults(folder), contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a whole file in place. For names that nothing reads until a second, atomic write names them."""
    with faults(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(descriptor, data)
            if sync:
                _sync(descriptor)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        os.close(descriptor)


def replace(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Put new content under a name in one step: readers see the old or the new, never a mixture."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    write(temporary, data, sync=sync)
    with faults(path):
        temporary.replace(path)
    if sync:
        sync_folder(path.parent)


def append_line(path: Path, line: bytes) -> None:
    """Append one line and make it durable. A torn write is taken back. The caller holds the lock."""
    with faults(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, line + b"\n")
                _sync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
    if size == 0:
        sync_folder(path.parent)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":  # there, fsync leaves the data in the drive's cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_all(paths: Iterable[Path], *, root: Path) -> None:
    """Make many files and their folders durable at once: one syncfs where the system has it."""
    paths = list(paths)
    if len(paths) > 4 and _syncfs(root):
        return
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)
    for folder in {path.parent for path in paths}:
        sync_folder(folder)


def _syncfs(root: Path) -> bool:
    """Flush the whole file system that holds `root` (Linux). False where that cannot be had."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # many files at once are no hook's work, and this costs it milliseconds

    descriptor = os.open(root, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(descriptor) == 0:
            return True
        with faults(root):
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, wait_s: float = 60.0) -> Iterator[int]:
    """Hold an exclusive lock on a file, across processes, for the block; the kernel frees it if we die.

    Yields the open descriptor. Raises Busy when another process holds it for longer than `wait_s`.
    """
    with faults(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, path, wait_s)
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    pause_s = 0.0005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Busy(str(path)) from None
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.02)
        else:
            return
