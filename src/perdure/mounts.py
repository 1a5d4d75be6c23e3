"""Which file system a path lies on: a home on a network share would lose locks and fsync without a word."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from perdure.errors import NetworkFileSystem

_NETWORK = {
    "9p", "afs", "afpfs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.davfs", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs", "nfs3", "nfs4", "ocfs2",
    "smb2", "smb3", "smbfs", "webdav",
}  # fmt: skip


def refuse_network(path: Path, table: list[tuple[str, str]] | None = None) -> None:
    """Raise NetworkFileSystem when the path, or where it would be made, lies on a network share."""
    found = kind(path.resolve(), mount_table() if table is None else table)
    if found in _NETWORK:
        raise NetworkFileSystem(f"{path} ({found})")


def mount_table() -> list[tuple[str, str]]:
    """(mount point, file system type) of everything mounted; empty where that cannot be known."""
    if sys.platform == "darwin":
        return _mac_mounts()
    try:
        return parse_linux(Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def _mac_mounts() -> list[tuple[str, str]]:
    import subprocess  # 5 ms that no other system needs

    try:
        return parse_mac(subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=False, timeout=5).stdout)
    except (OSError, subprocess.TimeoutExpired):
        return []


def parse_mac(listed: str) -> list[tuple[str, str]]:
    """What `mount` prints on macOS."""
    return re.findall(r"^.+? on (.+) \(([a-z0-9]+)[,)]", listed, re.MULTILINE)


def parse_linux(listed: str) -> list[tuple[str, str]]:
    """What /proc/self/mounts holds."""
    fields = [line.split(" ") for line in listed.splitlines()]
    return [(_unescaped(f[1]), f[2]) for f in fields if len(f) > 2]


def _unescaped(name: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), name)


def kind(place: Path, table: list[tuple[str, str]]) -> str:
    """The type of the file system that holds a path: that of the deepest mount point above it.

    >>> kind(Path("/mnt/nas/x"), [("/", "ext4"), ("/mnt/nas", "nfs4")])
    'nfs4'
    """
    above = [(len(point), number, name) for number, (point, name) in enumerate(table) if place.is_relative_to(point)]
    return max(above)[2] if above else ""
