"""Durable writes: whole or not at all, private, and errors that say what to do."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.capture import files
from perdure.errors import Busy, DiskFull, ReadOnlyHome


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        files.make_folder(tmp_path / "a" / "b")
        files.replace(tmp_path / "a" / "b" / "f", b"x")
        files.write(tmp_path / "a" / "g", b"x")
        files.append_line(tmp_path / "a" / "h", b"x")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700
    assert mode(tmp_path / "a" / "b" / "f") == mode(tmp_path / "a" / "g") == mode(tmp_path / "a" / "h") == 0o600


def test_replace_leaves_no_debris(tmp_path):
    files.replace(tmp_path / "f", b"old")
    files.replace(tmp_path / "f", b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("f", b"new")]


_APPEND_TOO_MUCH = """
import resource, signal, sys
from pathlib import Path
from perdure.capture import files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # as if the disk were full behind byte 4096
try:
    files.append_line(Path(sys.argv[1]), b"y" * 8000)
except OSError as error:
    print("refused", error.errno)
"""


def test_a_torn_append_is_taken_back(tmp_path):
    """The write stops after 4096 - 6 of its 8001 bytes; they must go, and the old line of 6 bytes must stay."""
    path = tmp_path / "log"
    files.append_line(path, b"first")
    ran = subprocess.run([sys.executable, "-c", _APPEND_TOO_MUCH, path], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("refused")
    assert path.read_bytes() == b"first\n"
    files.append_line(path, b"second")
    assert path.read_bytes() == b"first\nsecond\n"


def test_sync_all(tmp_path):
    paths = [tmp_path / f"{n}" for n in range(6)]
    for path in paths:
        files.write(path, b"x", sync=False)
    files.sync_all(paths[:2], root=tmp_path)
    files.sync_all(iter(paths), root=tmp_path)


def test_locked_excludes_and_says_busy(tmp_path):
    with files.locked(tmp_path / ".lock"), pytest.raises(Busy), files.locked(tmp_path / ".lock", wait_s=0):
        pass
    with files.locked(tmp_path / ".lock", wait_s=0):
        pass


def test_a_refusal_names_the_place():
    with pytest.raises(ReadOnlyHome, match="/x/y"), files.faults(Path("/x/y")):
        raise OSError(errno.EROFS, "Read-only file system")
    with pytest.raises(DiskFull, match="free some space"), files.faults(Path("/x/y")):
        raise OSError(errno.EDQUOT, "Quota exceeded")
    with pytest.raises(OSError, match="something else"), files.faults(Path("/x/y")):
        raise OSError(errno.EIO, "something else")
