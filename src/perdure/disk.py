"""Durable file writes, file locks, and the file systems that cannot hold a home. Standard library only.

A write that returned survives kill -9 and a power cut. A new file appears whole or not at all; a full
disk leaves the old content and no debris, and the error says so. Files are 0600 and folders 0700,
whatever the umask. A home on a network share is refused: it would lose locks and fsync without any error.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from perdure.errors import Busy, DiskFull, NetworkFileSystem, PerdureError, ReadOnlyHome

_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY_ERRNOS = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextlib.contextmanager
def map_os_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusals into errors that say what to do."""
    try:
        yield
    except OSError as error:
        mapped_error = to_perdure_error(error, path)
        if mapped_error is None:
            raise
        raise mapped_error from error


def to_perdure_error(error: OSError, path: Path) -> PerdureError | None:
    """Return the error for a refusal of the operating system, or None if it means nothing in particular."""
    if error.errno in _FULL_ERRNOS:
        return DiskFull(str(path))
    return ReadOnlyHome(str(path)) if error.errno in _READ_ONLY_ERRNOS else None


@contextlib.contextmanager
def hold_alone(path: Path, refuse: Callable[[], PerdureError]) -> Iterator[None]:
    """Hold the lock of work that one process does at a time, for the block. refuse: makes the error for others."""
    make_folder(path.parent)
    try:
        with lock_file(path, wait_s=0.3):  # another process may only be checking who holds it
            yield
    except Busy as error:
        if error.detail != str(path):
            raise
        raise refuse() from error


def make_folder(path: Path) -> None:
    """Create a folder and its parents, private, and make their names durable."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with map_os_errors(folder), contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a whole file in place. For files that nobody reads until a second, atomic write refers to them."""
    with map_os_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(descriptor, data)
            if sync:
                _sync_file(descriptor)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        os.close(descriptor)


def replace_file(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace the content of a file in one step: readers see the old or the new, never a mixture."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    write_file(temporary, data, sync=sync)
    with map_os_errors(path):
        temporary.replace(path)
    if sync:
        sync_folder(path.parent)


def create_file(path: Path, data: bytes) -> bool:
    """Write a whole file, and give it its name only if that is free; return False if it is not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    write_file(temporary, data)
    try:
        with map_os_errors(path):
            os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_folder(path.parent)
    return True


def append_line(path: Path, line: bytes) -> None:
    """Append one line and make it durable; undo a torn write. The caller holds the lock."""
    with map_os_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, line + b"\n")
                _sync_file(descriptor)
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


def _sync_file(descriptor: int) -> None:
    if sys.platform == "darwin":  # its fsync leaves the data in the drive's cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_files(paths: Iterable[Path], *, root: Path) -> None:
    """Make many files and their folders durable at once: with one syncfs where the system has it."""
    paths = list(paths)
    if len(paths) > 4 and _sync_file_system(root):
        return
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            _sync_file(descriptor)
        finally:
            os.close(descriptor)
    for folder in {path.parent for path in paths}:
        sync_folder(folder)


def _sync_file_system(root: Path) -> bool:
    """Flush the whole file system that holds `root` (Linux). Return False where that is not possible."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes  # costs milliseconds, and no hook writes many files at once

    descriptor = os.open(root, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(descriptor) == 0:
            return True
        with map_os_errors(root):
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def lock_file(path: Path, *, wait_s: float = 60.0) -> Iterator[int]:
    """Hold an exclusive lock on a file, across processes, for the block; the kernel frees it if we die.

    Yields the open descriptor. Raises Busy when another process holds it for longer than `wait_s`.
    """
    with map_os_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire_lock(descriptor, path, wait_s)
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire_lock(descriptor: int, path: Path, wait_s: float) -> None:
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


_NETWORK_TYPES = {
    "9p", "afs", "afpfs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.davfs", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2",
    "smb2", "smb3", "smbfs", "webdav",
}  # fmt: skip


def refuse_network_share(path: Path, table: list[tuple[str, str]] | None = None) -> None:
    """Raise NetworkFileSystem if the path, or the place where it would be created, is on a network share."""
    type_name = get_file_system_type(path.resolve(), read_mount_table() if table is None else table)
    if type_name in _NETWORK_TYPES:
        raise NetworkFileSystem(f"{path} ({type_name})")


def read_mount_table() -> list[tuple[str, str]]:
    """Return (mount point, file system type) of everything mounted; empty where that cannot be known."""
    if sys.platform == "darwin":
        return _read_mac_mounts()
    try:
        return parse_linux_mounts(Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def _read_mac_mounts() -> list[tuple[str, str]]:
    import subprocess  # 5 ms, only spent on macOS

    try:
        return parse_mac_mounts(
            subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=False, timeout=5).stdout
        )
    except (OSError, subprocess.TimeoutExpired):
        return []


def parse_mac_mounts(text: str) -> list[tuple[str, str]]:
    """Parse the output of `mount` on macOS."""
    return re.findall(r"^.+? on (.+) \(([a-z0-9]+)[,)]", text, re.MULTILINE)


def parse_linux_mounts(text: str) -> list[tuple[str, str]]:
    """Parse the content of /proc/self/mounts."""
    fields = [line.split(" ") for line in text.splitlines()]
    return [(_unescape_name(f[1]), f[2]) for f in fields if len(f) > 2]


def _unescape_name(name: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), name)


def get_file_system_type(path: Path, table: list[tuple[str, str]]) -> str:
    """Return the type of the file system that holds a path: that of the deepest mount point above it.

    >>> get_file_system_type(Path("/mnt/nas/x"), [("/", "ext4"), ("/mnt/nas", "nfs4")])
    'nfs4'
    """
    mounts = [(len(point), number, name) for number, (point, name) in enumerate(table) if path.is_relative_to(point)]
    return max(mounts)[2] if mounts else ""
