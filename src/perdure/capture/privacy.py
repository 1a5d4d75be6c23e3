"""What is never captured: a paused home, excluded projects, incognito sessions. Asked before a byte is copied.

The switches are small files in the home, so that a hook can read them without an index or a library:
`paused` (until when, and why) and `incognito` (a user and a keyed hash of a session of theirs, one a line, so that the
list itself tells nobody which sessions were kept off the record).
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from perdure.capture.files import locked, replace


class Pause(NamedTuple):
    """Capture is switched off."""

    since_at: datetime
    until_at: datetime | None  # None: until `perdure resume`
    reason: str = ""


def pause(home: Path, pause_: Pause) -> None:
    """Switch capture off, for every process of this home, from the next capture on."""
    body = {
        "since_at": pause_.since_at.isoformat(),
        "until_at": pause_.until_at.isoformat() if pause_.until_at else None,
        "reason": pause_.reason,
    }
    replace(home / "paused", (json.dumps(body) + "\n").encode())


def resume(home: Path) -> bool:
    """Switch capture on again. Returns whether it had been off."""
    try:
        (home / "paused").unlink()
    except FileNotFoundError:
        return False
    return True


def paused(home: Path, now: datetime) -> Pause | None:
    """The pause in force, or None. An unreadable switch counts as a pause: doubt never captures."""
    try:
        body = json.loads((home / "paused").read_bytes())
        until = datetime.fromisoformat(body["until_at"]) if body["until_at"] else None
        found = Pause(datetime.fromisoformat(body["since_at"]), until, str(body.get("reason", "")))
        return None if until and until <= now else found
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):  # TypeError: also for a time without its zone
        return Pause(now, None, "the switch file `paused` cannot be read")


def excluded(cwd: str | None, project: str | None, patterns: tuple[str, ...], user_home: Path) -> str | None:
    """The first pattern that excludes this folder or any folder above it, by whatever path it is reached, or None.

    >>> excluded("/home/a/secret/x", None, ("/home/a/secret",), Path("/home/a"))
    '/home/a/secret'
    """
    places = [Path(name) for path in (cwd, project) if path for name in _names(path)]
    folders = {str(p) for place in places for p in (place, *place.parents)}
    for pattern in patterns:
        whole = pattern.rstrip("/").removesuffix("/**")
        if whole.startswith("~"):
            whole = str(user_home) + whole[1:]
        if any(fnmatch.fnmatchcase(folder, name) for folder in folders for name in _names(whole)):
            return pattern
    return None


def _names(path: str) -> set[str]:
    """A path as written, without `..` and `.`, and with its links followed."""
    if "\0" in path:
        return {path}
    return {path, os.path.normpath(path), os.path.realpath(path)}


def keep_off_record(home: Path, user: str, runtime: str, session: str) -> None:
    """Never capture this session of a user: not now, not by a later import of the same transcript."""
    path = home / "incognito"
    with locked(home / ".incognito.lock"):
        if not path.exists():
            replace(path, (os.urandom(16).hex() + "\n").encode())
        if not off_record(home, user, runtime, session):
            known = path.read_bytes().split()
            fresh = f"{user}:{_session_hash(known[0], user, runtime, session)}".encode()
            replace(path, b"".join(line + b"\n" for line in (*known, fresh)))


def off_record(home: Path, user: str, runtime: str, session: str) -> bool:
    """Whether this session was declared incognito by its user; or by anybody, where that was not noted yet."""
    try:
        known = (home / "incognito").read_bytes().split()
    except FileNotFoundError:
        return False
    own = f"{user}:{_session_hash(known[0], user, runtime, session)}".encode()
    return own in known[1:] or _hash(known[0], f"{runtime}\0{session}").encode() in known[1:]


def off_record_of(home: Path, user: str, *, is_own: bool) -> bytes:
    """The list of what is incognito with the lines of one user alone; b"" without a list.

    is_own: it is the home's own user, whose are those lines that name nobody, as earlier versions wrote them.
    """
    try:
        key, *known = (home / "incognito").read_bytes().split()
    except (FileNotFoundError, ValueError):
        return b""
    kept = [line for line in known if line.startswith(f"{user}:".encode()) or (is_own and b":" not in line)]
    return b"".join(line + b"\n" for line in (key, *kept))


def drop_off_record(home: Path, user: str) -> None:
    """Take the lines of a user out of the list: nothing of them is to stay."""
    path = home / "incognito"
    with locked(home / ".incognito.lock"):
        known = path.read_bytes().split() if path.exists() else []
        kept = [line for line in known if not line.startswith(f"{user}:".encode())]
        if kept != known:
            replace(path, b"".join(line + b"\n" for line in kept))


def _session_hash(key: bytes, user: str, runtime: str, session: str) -> str:
    return _hash(key, f"{user}\0{runtime}\0{session}")


def _hash(key: bytes, name: str) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=key, digest_size=16).hexdigest()
