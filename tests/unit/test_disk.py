"""Durable writes: whole or not at all, private; errors that say what to do; network file systems."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import disk
from perdure.errors import Busy, DiskFull, NetworkFileSystem, ReadOnlyHome


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
    with pytest.raises(DiskFull, match="Free some space"), disk.map_os_errors(Path("/x/y")):
        raise OSError(errno.EDQUOT, "Quota exceeded")
    with pytest.raises(OSError, match="something else"), disk.map_os_errors(Path("/x/y")):
        raise OSError(errno.EIO, "something else")


TABLE = [("/", "ext4"), ("/mnt/nas", "nfs4"), ("/mnt/nas/local", "xfs"), ("/mnt/na", "tmpfs"), ("/over", "nfs"),
         ("/over", "ext4"), ("/a b", "cifs")]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/home/ada", "ext4"),
        ("/mnt/nas", "nfs4"),
        ("/mnt/nas/x/y", "nfs4"),
        ("/mnt/nas/local/x", "xfs"),
        ("/mnt/nasty", "ext4"),
        ("/mnt/na/x", "tmpfs"),
        ("/over/x", "ext4"),  # mounted later over the same point
        ("/a b/c", "cifs"),
    ],
)
def test_the_deepest_mount_decides(place, kind):
    assert disk.get_file_system_type(Path(place), TABLE) == kind


def test_unknown_mount_is_not_refused():
    assert disk.get_file_system_type(Path("/x"), []) == ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "afpfs", "webdav"])
def test_network_kinds_are_refused(kind):
    with pytest.raises(NetworkFileSystem, match=kind):
        disk.refuse_network_share(Path("/mnt/share/home"), [("/", "ext4"), ("/mnt/share", kind)])


def test_local_kinds_are_not(tmp_path):
    disk.refuse_network_share(tmp_path, [("/", "ext4")])
    disk.refuse_network_share(tmp_path)


def test_linux_mount_table_is_parsed():
    """`\\040` is how the kernel writes a blank, `\\011` a tab; a line of fewer fields is passed over."""
    text = "/dev/sda1 / ext4 rw 0 0\nnas:/x /mnt/a\\040b\\011c nfs4 rw 0 0\nbroken\n"
    assert disk.parse_linux_mounts(text) == [("/", "ext4"), ("/mnt/a b\tc", "nfs4")]


def test_mac_mount_table_is_parsed():
    text = """/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
//ada@nas._smb._tcp.local/home on /Volumes/home share (smbfs, nodev, nosuid, mounted by ada)
map auto_home on /System/Volumes/Data/home (autofs)
"""
    assert disk.parse_mac_mounts(text) == [
        ("/", "apfs"), ("/Volumes/home share", "smbfs"), ("/System/Volumes/Data/home", "autofs"),
    ]  # fmt: skip


def test_the_real_table_has_a_root():
    assert any(point == "/" for point, _ in disk.read_mount_table())
