"""Erase a user: write everything of theirs as a home of its own, and leave no trace of it here.

The data of one user is in folders of that name, so a copy of these is everything they have. The files that
a home keeps besides (logs, counts, caches in `run/`) are derived, and are deleted if they may contain a
user's words.
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
from perdure import disk
from perdure.access import told
from perdure.capture import credential, gemini, policy
from perdure.errors import CredentialFault, HomeFault, UsageError
from perdure.sharing import grant_cache, grants

_TRUTH_FOLDERS = ("runs", "packs", "journal")  # folders of the archive, with a folder for each user
_PERSONAL_FILES = (  # in `run/`: these hold names, paths, session ids and error messages of all users together
    "log.jsonl", "log.1.jsonl", "hook-failures.jsonl", "told.json", "mining.json", "alert", "failing",
)  # fmt: skip
_BUSY_MS = 5_000
_IGNORE_LOCKS = shutil.ignore_patterns("*.lock", "*.tmp", ".lock")


def copy_user(home: Path, user: str, target: Path, floors: Mapping[Path, str]) -> None:
    """Write all of a user's truth as a home of its own, to a folder that is empty or does not exist yet.

    floors: folder of pages -> its name below `agents/` there. The caller blocks writes to the archive. Raises
    UsageError.
    """
    if target.resolve().is_relative_to(home.resolve()):
        raise UsageError(f"{target} is inside the home; name a folder outside it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists already; name a new folder")
    disk.make_folder(target)
    target.chmod(0o700)
    archive = target / "archive"
    disk.make_folder(archive)
    shutil.copy2(home / "archive" / "FORMAT", archive / "FORMAT")
    for folder_name in _TRUTH_FOLDERS:
        _copy_folder(home / "archive" / folder_name / user, archive / folder_name / user)
    for folder, agent_name in floors.items():
        _copy_folder(folder, target / "agents" / agent_name)
    off_record = policy.read_incognito_list(home, user, is_own=user == settings.load(home).user)
    if off_record:  # sessions that must never be captured stay excluded there
        disk.write_file(target / "incognito", off_record)
    disk.write_file(target / "config.toml", f"user = {json.dumps(user)}\n".encode())
    disk.sync_files([path for path in target.rglob("*") if path.is_file()], root=target)


def _copy_folder(source: Path, target: Path) -> None:
    if source.is_dir():
        disk.make_folder(target.parent)
        shutil.copytree(source, target, ignore=_IGNORE_LOCKS)
        for path in (target, *target.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)


def delete_user_files(home: Path, user: str) -> None:
    """Delete the files of a user in this home outside of archive, index and floor."""
    grants.delete_grants_to(home, user)
    grant_cache.delete_cache(home)
    gemini.delete_pending_texts(home)
    for name in _PERSONAL_FILES:
        (home / "run" / name).unlink(missing_ok=True)
    policy.delete_incognito_lines(home, user)
    told.file_of(home, user).unlink(missing_ok=True)
    _truncate(home / "run" / "serve.log")  # a process may be writing to it
    _delete_requests(home / "run" / "http.db", user)
    for path in (home / "outbox").glob("*"):
        if path.is_file() and _read_owner(path) == user:
            path.unlink(missing_ok=True)
    _delete_credential(home, user)


def _truncate(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.truncate(path, 0)


def _delete_requests(path: Path, user: str) -> None:
    """Delete a user's rows from the server's request log, which it may have open; delete a damaged file as a whole."""
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


def _read_owner(path: Path) -> str | None:
    """Return the owner of a delta; None if the file is no delta or cannot be read."""
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline())
    except (OSError, ValueError):
        return None
    return str(header.get("user")) if isinstance(header, dict) else None


def _delete_credential(home: Path, user: str) -> None:
    """Delete the credential that this home holds for a machine of the user; leave it if it cannot be read."""
    with contextlib.suppress(CredentialFault):
        own_credential = credential.read_credential(home)
        if own_credential is not None and own_credential.user_id == user:
            (home / credential.CREDENTIAL_FILE).unlink(missing_ok=True)
