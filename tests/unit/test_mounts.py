"""Network file systems are recognised by the mount table."""

from pathlib import Path

import pytest

from perdure import disk
from perdure.errors import NetworkFileSystem

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
