"""Durable writes: whole or not at all, private, and errors that say what to do."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import disk
from perdure.errors import Busy, DiskFull, ReadOnlyHome


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_private_with_any_umask(tmp_path):
    before = os.umask(0)
    try:
        disk.make_folder(tmp_path / "a" / "b")
        disk.replace_file(tmp_path / "a" / "b" / "f", b"x")
        disk.write_file(tmp_path / "a" / "g", b"x")
        disk.append_line(tmp_path / "a" / "h", b"x")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700
    assert mode(tmp_path / "a" / "b" / "f") == mode(tmp_path / "a" / "g") == mode(tmp_path / "a" / "h") == 0o600


def test_replace_leaves_no_debris(tmp_path):
    disk.replace_file(tmp_path / "f", b"old")
    disk.replace_file(tmp_path / "f", b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("f", b"new")]


_APPEND_TOO_MUCH = """
import resource, signal, sys
from pathlib import Path
from perdure import disk
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # as if the disk were full behind byte 4096
try:
    disk.append_line(Path(sys.argv[1]), b"y" * 8000)
except OSError as error:
    print("refused", error.errno)
"""


def test_torn_append_is_undone(tmp_path):
    """The write stops after 4096 - 6 of its 8001 bytes; they must go, and the old line of 6 bytes must stay."""
    path = tmp_path / "log"
    disk.append_line(path, b"first")
    ran = subprocess.run([sys.executable, "-c", _APPEND_TOO_MUCH, path], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("refused")
    assert path.read_bytes() == b"first\n"
    disk.append_line(path, b"second")
    assert path.read_bytes() == b"first\nsecond\n"


def test_sync_all(tmp_path):
    paths = [tmp_path / f"{n}" for n in range(6)]
    for path in paths:
        disk.write_file(path, b"x", sync=False)
    disk.sync_files(paths[:2], root=tmp_path)
    disk.sync_files(iter(paths), root=tmp_path)


def test_lock_excludes_a_second_holder_and_raises_busy(tmp_path):
    with disk.lock_file(tmp_path / ".lock"), pytest.raises(Busy), disk.lock_file(tmp_path / ".lock", wait_s=0):
        pass
    with disk.lock_file(tmp_path / ".lock", wait_s=0):
        pass


def test_a_refusal_names_the_place():
    with pytest.raises(ReadOnlyHome, match="/x/y"), disk.map_os_errors(Path("/x/y")):
        raise OSError(errno.EROFS, "Read-only file system")
    with pytest.raises(DiskFull, match="free some space"), disk.map_os_errors(Path("/x/y")):
        raise OSError(errno.EDQUOT, "Quota exceeded")
    with pytest.raises(OSError, match="something else"), disk.map_os_errors(Path("/x/y")):
        raise OSError(errno.EIO, "something else")
