"""Backup and restore: one compressed file that holds everything that cannot be derived; reading it back proves it.

It contains the archive, the floor's files, config.toml, the privacy switches and the list of writers. It
does not contain the index, caches, locks and the outbox (which is emptied into the archive first).
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from perdure.disk import make_folder, sync_folder, to_perdure_error
from perdure.errors import ArchiveFault, UsageError

if sys.version_info >= (3, 14):  # pragma: no cover - the same module, under its new name
    from compression import zstd
else:
    from backports import zstd

_KEPT = ("archive", "agents", "config.toml", "incognito", "paused", "writers")
_LEVEL = 6
_NOTE = "perdure-backup.txt"


def write(home: Path, target: Path, digest: str, *, progress: Callable[[int], None] | None = None) -> int:
    """Write a backup of a home; return its size in bytes. Never overwrites an existing file."""
    if target.exists():
        raise UsageError(f"{target} exists already")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    n_files = 0
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            with (
                zstd.ZstdFile(file, "wb", level=_LEVEL) as compressed,
                tarfile.open(fileobj=compressed, mode="w|") as tar,
            ):
                _add_text(tar, f"Perdure backup\ndigest {digest}\n")
                for path in _list_files(home):
                    tar.add(path, arcname=str(path.relative_to(home)), recursive=False)
                    n_files += 1
                    if progress:
                        progress(n_files)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise to_perdure_error(error, target) or UsageError(f"{target} ({error.strerror})") from error
    return target.stat().st_size


def _add_text(tar: tarfile.TarFile, text: str) -> None:
    info = tarfile.TarInfo(_NOTE)
    info.size, info.mode = len(text), 0o600
    tar.addfile(info, io.BytesIO(text.encode()))


def _list_files(home: Path) -> Iterator[Path]:
    for top_name in _KEPT:
        top_path = home / top_name
        inside = sorted(top_path.rglob("*")) if top_path.is_dir() else [top_path] if top_path.exists() else []
        yield from (p for p in inside if p.is_file() and not p.name.endswith((".lock", ".tmp")))


def restore(backup_path: Path, home: Path) -> str:
    """Unpack a backup into a home that does not exist yet; return the digest that its archive must have."""
    if home.exists() and any(home.iterdir()):
        raise UsageError(f"{home} is not empty: restore into a new place, then move it")
    make_folder(home)
    digest = ""
    try:
        with zstd.ZstdFile(backup_path, "rb") as compressed, tarfile.open(fileobj=compressed, mode="r|") as tar:
            for member in tar:
                if member.name == _NOTE:
                    digest = _read_digest(tar, member)
                elif member.isfile():
                    if not _is_backup_name(home, member.name):
                        raise ArchiveFault(f"{backup_path} is not a Perdure backup ({member.name!r} is in it)")
                    member.mode = 0o600
                    make_folder((home / member.name).parent)
                    tar.extract(member, home, filter="data")
    except (tarfile.TarError, zstd.ZstdError, EOFError) as error:
        raise ArchiveFault(f"{backup_path} is not a whole backup ({error})") from error
    if not digest:
        raise ArchiveFault(f"{backup_path} is not a Perdure backup")
    return digest


def _is_backup_name(home: Path, name: str) -> bool:
    """Return True if `write` puts files with this name into a backup, and the name stays inside the home."""
    return name.split("/", 1)[0] in _KEPT and (home / name).resolve().is_relative_to(home.resolve())


def _read_digest(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    stream = tar.extractfile(member)
    words = stream.read(4096).decode("utf-8", "replace").split() if stream else []
    return words[-1] if words[:2] == ["Perdure", "backup"] else ""
