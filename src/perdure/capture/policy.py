"""Who captures here, where to, and what is never captured. Standard library only.

`config` reads config.toml. Its values are kept as a line of JSON in the home's cache, with marks by which
a change is noticed, so that a hook does not parse the settings in every process. Derived: delete it at
will.

Never captured: anything while the home is paused, excluded projects, incognito sessions. They are checked
before a byte is copied. The switches are small files in the home, so that a hook can read them without an
index or a
library: `paused` (until when, and why) and `incognito` (a user and a keyed hash of one of their sessions
on each line, so that the list itself tells nobody which sessions were kept off the record).
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.disk import lock_file, make_folder, replace_file
from perdure.environ import find_user_home, read_variable
from perdure.errors import DiskFull, ReadOnlyHome

if TYPE_CHECKING:
    from perdure.config import Config

_CACHE_FORMAT = 6
_USER_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")  # variables that name the operating-system user


class RemoteSettings(NamedTuple):
    """The home to which a thin machine, which keeps nothing itself, sends its captures."""

    url: str = ""  # "" on a machine with its own home
    ca: str = ""  # path of a certificate authority
    plain: bool = False  # allow http:// beyond this machine


class CaptureRules(NamedTuple):
    """Who captures here, and what is never captured."""

    home: Path
    user: str
    machine: str
    exclude: tuple[str, ...]  # glob patterns of folders
    user_home: Path
    limit_ms: int  # after which a hook ends
    recall_for: tuple[str, ...] = ("person",)  # senders whose prompts get recall: person, agent (a sub-agent), machine
    remote: RemoteSettings = RemoteSettings()
    agent: str = "default"  # the agent that the runtimes here belong to
    alarm_bytes: int = 256_000_000  # a larger outbox is reported
    alarm_age_s: int = 24 * 3600  # as is a delta that waited longer
    host_memories: bool = True  # also capture what hosts keep in files
    tool_facts: bool = True  # tell facts of action at tool calls


def read_rules(home: Path) -> CaptureRules:
    """Return the rules of a home: from the cache, unless config.toml or our identity has changed since.

    Raises ConfigFault.
    """
    cache_path, marks = home / "cache" / "hooks.json", _read_marks(home)
    try:
        cached = json.loads(cache_path.read_bytes())
        if cached["marks"] == marks:
            return _decode_rules(home, cached)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no cache yet, or not a valid one: it is written again
    rules = _load_rules(home)
    cached = {"marks": marks, "user": rules.user, "machine": rules.machine, "limit_ms": rules.limit_ms}
    cached |= {"exclude": list(rules.exclude), "asked_for": list(rules.recall_for), "remote": list(rules.remote)}
    cached |= {"host_memories": rules.host_memories, "tool_facts": rules.tool_facts}
    cached |= {"agent": rules.agent, "alarm_bytes": rules.alarm_bytes, "alarm_age_s": rules.alarm_age_s}
    make_folder(cache_path.parent)
    replace_file(cache_path, json.dumps(cached).encode(), sync=False)
    return rules


def load_rules(home: Path) -> CaptureRules:
    """Return the same rules, also of a home that does not exist or cannot be written. Raises ConfigFault."""
    if home.is_dir():
        with contextlib.suppress(OSError, ReadOnlyHome, DiskFull):
            return read_rules(home)
    return _load_rules(home)


def make_rules(home: Path, config: Config, *, user: str, user_home: Path) -> CaptureRules:
    """Return the rules that these settings make."""
    live = config.live
    senders = (("person", True), ("agent", live.subagents), ("machine", live.machine_turns))
    recall_for = tuple(name for name, is_on in senders if is_on and (live.recall or live.floor))
    capture, remote = config.capture, RemoteSettings(config.remote.url, config.remote.ca, config.remote.plain)
    return CaptureRules(
        home,
        user,
        config.machine,
        capture.exclude,
        user_home,
        config.hooks.limit_ms,
        recall_for,
        remote,
        config.agent,
        capture.outbox_alarm_bytes,
        capture.outbox_alarm_age_s,
        capture.host_memories,
        live.tool_facts and not live.shadow,
    )


def _decode_rules(home: Path, cached: dict[str, Any]) -> CaptureRules:
    exclude, recall_for = tuple(cached["exclude"]), tuple(cached["asked_for"])
    other_fields = RemoteSettings(*cached["remote"]), cached["agent"], cached["alarm_bytes"], cached["alarm_age_s"]
    return CaptureRules(
        home,
        cached["user"],
        cached["machine"],
        exclude,
        find_user_home(),
        cached["limit_ms"],
        recall_for,
        *other_fields,
        cached["host_memories"],
        cached["tool_facts"],
    )


def _read_marks(home: Path) -> list[Any]:
    """Return the values that must not change while the cached rules are valid."""
    try:
        file_stat = (home / "config.toml").stat()
        file_marks = [file_stat.st_mtime_ns, file_stat.st_size, file_stat.st_ino]
    except FileNotFoundError:
        file_marks = []
    return [_CACHE_FORMAT, file_marks, os.uname().nodename, os.getuid(), *map(read_variable, _USER_VARIABLES)]


def _load_rules(home: Path) -> CaptureRules:
    from perdure import config  # tomllib and the settings: a hook pays for them once, not each time

    settings = config.load(home)
    return make_rules(home, settings, user=settings.user, user_home=find_user_home())


class CapturePause(NamedTuple):
    """A period in which capture is switched off."""

    since_at: datetime
    until_at: datetime | None  # None: until `perdure resume`
    reason: str = ""


def pause_capture(home: Path, capture_pause: CapturePause) -> None:
    """Switch capture off, for every process of this home, from the next capture on."""
    fields = {
        "since_at": capture_pause.since_at.isoformat(),
        "until_at": capture_pause.until_at.isoformat() if capture_pause.until_at else None,
        "reason": capture_pause.reason,
    }
    replace_file(home / "paused", (json.dumps(fields) + "\n").encode())


def resume_capture(home: Path) -> bool:
    """Switch capture on again. Return True if it had been off."""
    try:
        (home / "paused").unlink()
    except FileNotFoundError:
        return False
    return True


def read_pause(home: Path, now: datetime) -> CapturePause | None:
    """Return the pause in force, or None. An unreadable switch counts as a pause: in doubt nothing is captured."""
    try:
        fields = json.loads((home / "paused").read_bytes())
        until_at = datetime.fromisoformat(fields["until_at"]) if fields["until_at"] else None
        capture_pause = CapturePause(
            datetime.fromisoformat(fields["since_at"]), until_at, str(fields.get("reason", ""))
        )
        return None if until_at and until_at <= now else capture_pause
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):  # TypeError: also a time without a zone
        return CapturePause(now, None, "the switch file `paused` cannot be read")


def find_excluding_pattern(
    cwd: str | None, project: str | None, patterns: tuple[str, ...], user_home: Path
) -> str | None:
    """Return the first pattern that excludes this folder or any folder above it, or None.

    Every form of the path is tried: as written, without `..` and `.`, and with its links followed.

    >>> find_excluding_pattern("/home/a/secret/x", None, ("/home/a/secret",), Path("/home/a"))
    '/home/a/secret'
    """
    start_paths = [Path(name) for path in (cwd, project) if path for name in _expand_path(path)]
    folders = {str(ancestor) for start in start_paths for ancestor in (start, *start.parents)}
    for pattern in patterns:
        full_pattern = pattern.rstrip("/").removesuffix("/**")
        if full_pattern.startswith("~"):
            full_pattern = str(user_home) + full_pattern[1:]
        if any(fnmatch.fnmatchcase(folder, name) for folder in folders for name in _expand_path(full_pattern)):
            return pattern
    return None


def _expand_path(path: str) -> set[str]:
    """Return a path as written, without `..` and `.`, and with its links followed."""
    if "\0" in path:
        return {path}
    return {path, os.path.normpath(path), os.path.realpath(path)}


def mark_incognito(home: Path, user: str, runtime: str, session: str) -> None:
    """Never capture this session of a user: not now, not by a later import of the same transcript."""
    path = home / "incognito"
    with lock_file(home / ".incognito.lock"):
        if not path.exists():
            replace_file(path, (os.urandom(16).hex() + "\n").encode())
        if not is_incognito(home, user, runtime, session):
            lines = path.read_bytes().split()
            new_line = f"{user}:{_hash_session(lines[0], user, runtime, session)}".encode()
            replace_file(path, b"".join(line + b"\n" for line in (*lines, new_line)))


def is_incognito(home: Path, user: str, runtime: str, session: str) -> bool:
    """Return True if its user declared this session incognito; or anybody, in a line that names no user."""
    try:
        lines = (home / "incognito").read_bytes().split()
    except FileNotFoundError:
        return False
    session_line = f"{user}:{_hash_session(lines[0], user, runtime, session)}".encode()
    return session_line in lines[1:] or _hash_name(lines[0], f"{runtime}\0{session}").encode() in lines[1:]


def read_incognito_list(home: Path, user: str, *, is_own: bool) -> bytes:
    """Return the list of incognito sessions with the lines of one user only; b"" without a list.

    is_own: this is the home's own user, who also owns the lines without a user, as earlier versions wrote
    them.
    """
    try:
        key, *lines = (home / "incognito").read_bytes().split()
    except (FileNotFoundError, ValueError):
        return b""
    user_lines = [line for line in lines if line.startswith(f"{user}:".encode()) or (is_own and b":" not in line)]
    return b"".join(line + b"\n" for line in (key, *user_lines))


def delete_incognito_lines(home: Path, user: str) -> None:
    """Delete the lines of a user from the list: nothing of this user may stay."""
    path = home / "incognito"
    with lock_file(home / ".incognito.lock"):
        lines = path.read_bytes().split() if path.exists() else []
        remaining = [line for line in lines if not line.startswith(f"{user}:".encode())]
        if remaining != lines:
            replace_file(path, b"".join(line + b"\n" for line in remaining))


def _hash_session(key: bytes, user: str, runtime: str, session: str) -> str:
    return _hash_name(key, f"{user}\0{runtime}\0{session}")


def _hash_name(key: bytes, name: str) -> str:
    import hashlib  # 3 ms, which few homes need here

    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), key=key, digest_size=16).hexdigest()
