"""A user leaves: everything of theirs as a home of its own, and no trace of it here.

What is one user's lies in folders of that name, so a copy of these is all they have. What a whole home keeps beside
them (logs, counts, caches in `run/`) is derived, and goes where some of it may carry a user's words.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import apsw

from perdure import config as settings
from perdure.access import told
from perdure.authority import grants, watch
from perdure.capture import credential, files, later, privacy
from perdure.errors import CredentialFault, HomeFault, UsageError

_TRUTH = ("runs", "packs", "journal")  # folders of the archive, with a folder for each user
_MAY_CARRY = (  # in `run/`: names, paths, session ids and words of error messages, of all users together
    "log.jsonl", "log.1.jsonl", "hook-failures.jsonl", "told.json", "mining.json", "alert", "failing",
)  # fmt: skip
_BUSY_MS = 5_000
_LEFT_OUT = shutil.ignore_patterns("*.lock", "*.tmp", ".lock")


def copy(home: Path, user: str, target: Path, floors: Mapping[Path, str]) -> None:
    """Write all of a user's truth as a home of its own, to a place that is empty or not there yet.

    floors: folder of pages -> its name below `agents/` there. The caller holds the archive still. Raises UsageError.
    """
    if target.resolve().is_relative_to(home.resolve()):
        raise UsageError(f"{target} lies in the home itself; name a folder outside of it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is there already; name a new folder")
    files.make_folder(target)
    target.chmod(0o700)
    archive = target / "archive"
    files.make_folder(archive)
    shutil.copy2(home / "archive" / "FORMAT", archive / "FORMAT")
    for kind in _TRUTH:
        _copy_folder(home / "archive" / kind / user, archive / kind / user)
    for folder, name in floors.items():
        _copy_folder(folder, target / "agents" / name)
    off_record = privacy.off_record_of(home, user, is_own=user == settings.load(home).user)
    if off_record:  # sessions that are never to be captured stay so there
        files.write(target / "incognito", off_record)
    files.write(target / "config.toml", f"user = {json.dumps(user)}\n".encode())
    files.sync_all([path for path in target.rglob("*") if path.is_file()], root=target)


def _copy_folder(source: Path, target: Path) -> None:
    if source.is_dir():
        files.make_folder(target.parent)
        shutil.copytree(source, target, ignore=_LEFT_OUT)
        for path in (target, *target.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)


def wipe(home: Path, user: str) -> None:
    """Delete what this home keeps of a user beside archive, index and floor."""
    grants.forget_grantee(home, user)
    watch.drop(home)
    later.drop(home)
    for name in _MAY_CARRY:
        (home / "run" / name).unlink(missing_ok=True)
    privacy.drop_off_record(home, user)
    told.file_of(home, user).unlink(missing_ok=True)
    _empty(home / "run" / "serve.log")  # a process may be writing to it
    _drop_requests(home / "run" / "http.db", user)
    for path in (home / "outbox").glob("*"):
        if path.is_file() and _owner(path) == user:
            path.unlink(missing_ok=True)
    _drop_credential(home, user)


def _empty(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.truncate(path, 0)


def _drop_requests(path: Path, user: str) -> None:
    """Take a user out of what the server keeps of requests, which it may have open; a damaged file goes as a whole."""
    if not path.exists():
        return
    try:
        with contextlib.closing(apsw.Connection(str(path))) as db:
            db.set_busy_timeout(_BUSY_MS)
            db.pragma("secure_delete", 1)
            for table in ("request", "session"):
                db.execute(f"DELETE FROM {table} WHERE user = ?", (user,))
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError):
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    except apsw.Error as error:
        raise HomeFault(str(path)) from error


def _owner(path: Path) -> str | None:
    """Whose a delta is; None of what is none, or cannot be read."""
    try:
        with path.open("rb") as file:
            head = json.loads(file.readline())
    except (OSError, ValueError):
        return None
    return str(head.get("user")) if isinstance(head, dict) else None


def _drop_credential(home: Path, user: str) -> None:
    """Delete the credential by which this home knows a machine of theirs; what cannot be read is left alone."""
    with contextlib.suppress(CredentialFault):
        found = credential.read(home)
        if found is not None and found.user_id == user:
            (home / credential.NAME).unlink(missing_ok=True)
