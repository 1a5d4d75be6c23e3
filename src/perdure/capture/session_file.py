"""The open end of a session that Perdure holds itself: entries that are durable, and not yet in an archive.

One file in `outbox/sessions/` per session: a line of JSON that says what it is and where its bytes belong in the log,
then entries. An entry is durable when `append` returns. The process that holds the session holds the lock on its file,
moves the entries into the archive at the end of each turn, and empties the file; what a killed process left, the next
one that empties the outbox moves. A torn last line was never acknowledged: it is set aside and reported, and so is a
file that nobody can read. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from perdure import log
from perdure.disk import make_folder, map_os_errors, sync_folder, write_file
from perdure.errors import SessionHeld

FOLDER = "sessions"  # in the outbox
_SUFFIX, _ASIDE_SUFFIX = ".jsonl", ".unreadable"
_PAUSE_S = 0.02  # between two attempts to get a lock
_SESSION_ID = re.compile(r"s[0-9a-z]{10}")


def is_session_id(text: str) -> bool:
    """Return True if a text has the form of a session id; only such texts become paths."""
    return _SESSION_ID.fullmatch(text) is not None


def to_path(home: Path, session: str) -> Path:
    """Return the path of a session's file."""
    return home / "outbox" / FOLDER / (session + _SUFFIX)


def list_sessions(home: Path) -> list[str]:
    """Return the sessions that have a file."""
    return sorted(path.stem for path in (home / "outbox" / FOLDER).glob(f"*{_SUFFIX}") if is_session_id(path.stem))


class OpenSessions(NamedTuple):
    """The sessions that have a file."""

    n_held: int  # a process holds them
    n_left: int  # a killed process, or a full disk, left entries of them
    n_bytes: int  # of those left
    since_at: datetime | None  # when the first of those left was last written
    aside_paths: list[Path]  # torn lines and unreadable files


def measure_open(home: Path) -> OpenSessions:
    """Return how much of sessions is not archived yet, and what was set aside."""
    paths = [to_path(home, session) for session in list_sessions(home)]
    left_states = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            left_states += [] if _is_held(path) else [path.stat()]
    times = [state.st_mtime for state in left_states]
    return OpenSessions(
        len(paths) - len(left_states),
        sum(state.st_size > 0 for state in left_states),
        sum(state.st_size for state in left_states),
        datetime.fromtimestamp(min(times), UTC) if times else None,
        sorted((home / "outbox" / FOLDER).glob(f"*{_ASIDE_SUFFIX}")),
    )


def _is_held(path: Path) -> bool:
    """Return True if a process holds the session of this file. Raises FileNotFoundError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


class SessionFile:
    """The file of one session, locked for this process until it is closed."""

    def __init__(self, home: Path, session: str, *, wait_s: float = 0.0) -> None:
        """Open the file, made if there is none. Raises SessionHeld if another process has it for longer than this."""
        self._home, self._path = home, to_path(home, session)
        self._header_line = b""  # of entries to come: written with the first of them
        make_folder(self._path.parent)
        self._descriptor = self._open_locked(session, time.monotonic() + wait_s)

    def __enter__(self) -> SessionFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_locked(self, session: str, deadline_s: float) -> int:
        while True:
            with map_os_errors(self._path):
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                if time.monotonic() >= deadline_s:
                    raise SessionHeld(session) from None
                time.sleep(_PAUSE_S)
                continue
            with contextlib.suppress(FileNotFoundError):
                if self._path.stat().st_ino == os.fstat(descriptor).st_ino:
                    sync_folder(self._path.parent)
                    return descriptor
            os.close(descriptor)  # the holder before us deleted it meanwhile

    def read(self) -> tuple[dict[str, Any], bytes]:
        """Return (the header, the complete lines of entries after it); ({}, b"") for a file without entries.

        A torn last line goes into a file of its own, and is cut off; so does all of a file without a readable header.
        """
        data = self._path.read_bytes()
        n_complete = data.rfind(b"\n") + 1
        if n_complete < len(data):
            self._set_aside(data[n_complete:], n_complete)
        header_line, _, entries = data[:n_complete].partition(b"\n")
        header = _parse_header(header_line)
        if header is None and n_complete:
            self._set_aside(data[:n_complete], 0)
        return (header, entries) if header and entries else ({}, b"")

    def _set_aside(self, data: bytes, n_kept: int) -> None:
        """Move everything after the first bytes of the file into a file of its own."""
        write_file(self._path.with_suffix(f".{time.time_ns()}{_ASIDE_SUFFIX}"), data)
        sync_folder(self._path.parent)
        with map_os_errors(self._path):
            os.ftruncate(self._descriptor, n_kept)
            os.fsync(self._descriptor)
        log.append_entry(self._home, "session-torn", session=self._path.stem, n_bytes=len(data))

    def set_aside(self) -> None:
        """Move all of the file into a file of its own, because it holds up others."""
        self._set_aside(self._path.read_bytes(), 0)

    def begin(self, header: dict[str, Any]) -> None:
        """Empty the file, whose entries are in the archive; the header describes those that follow."""
        with map_os_errors(self._path):
            os.ftruncate(self._descriptor, 0)
        self._header_line = json.dumps(header).encode() + b"\n"

    def append(self, lines: bytes) -> None:
        """Append complete lines; they are durable when this returns. A full disk leaves the file as it was."""
        with map_os_errors(self._path):
            size = os.fstat(self._descriptor).st_size
            try:
                view = memoryview(lines if size else self._header_line + lines)
                while view:
                    view = view[os.write(self._descriptor, view) :]
                os.fsync(self._descriptor)
            except BaseException:  # a signal of the keyboard, too: half a line would spoil the next
                os.ftruncate(self._descriptor, size)
                raise

    def delete(self) -> None:
        """Delete the file, whose entries are in the archive, and close it."""
        self._path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Give the session up. Its entries stay."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _parse_header(line: bytes) -> dict[str, Any] | None:
    """Return the header of a file; None if the line is none."""
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        return None
    has_offset = isinstance(header, dict) and isinstance(header.get("from_offset"), int) and header["from_offset"] >= 0
    return header if has_offset and isinstance(header.get("origin"), dict) and header.get("user") else None


def read_owner(path: Path) -> str | None:
    """Return the user whose session a file holds; None if nobody can tell."""
    try:
        with path.open("rb") as file:
            header = _parse_header(file.readline())
    except OSError:
        return None
    return str(header["user"]) if header else None


def read_origin(home: Path, session: str) -> dict[str, Any] | None:
    """Return where the entries of a session's file come from; None if it holds none."""
    try:
        with to_path(home, session).open("rb") as file:
            header = _parse_header(file.readline())
    except OSError:
        return None
    return dict(header["origin"]) if header else None


def delete_files(home: Path, user: str) -> None:
    """Delete the files of a user's sessions, and what was set aside, of which nobody can tell whose it is."""
    for session in list_sessions(home):
        path = to_path(home, session)
        if read_owner(path) == user:
            path.unlink(missing_ok=True)
    for path in measure_open(home).aside_paths:
        path.unlink(missing_ok=True)


def read_unarchived(home: Path, session: str, user: str) -> Iterator[tuple[int, bytes]]:
    """Yield (offset in the log, line with its newline) of each complete entry of a user's session, whoever holds it."""
    if not is_session_id(session):
        return
    try:
        header_line, _, entries = to_path(home, session).read_bytes().partition(b"\n")
    except FileNotFoundError:
        return
    header = _parse_header(header_line)
    if header is None or header["user"] != user:
        return
    offset = header["from_offset"]
    for line in entries.split(b"\n")[:-1]:  # what follows the last newline is torn or empty
        yield offset, line + b"\n"
        offset += len(line) + 1
