"""The open end of a session that Perdure holds itself: entries that are durable, and not yet in an archive.

One file in `outbox/sessions/` per session: a line of JSON that says what it is and where its bytes belong in the log,
then entries. An entry is durable when `append` returns. The process that holds the session holds the lock on its file,
moves the entries into the archive at the end of each turn, and empties the file; what a killed process left, the next
one that empties the outbox moves. A torn last line was never acknowledged: it is set aside and reported. Standard
library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from perdure import log
from perdure.disk import make_folder, map_os_errors, sync_folder, write_file
from perdure.errors import SessionHeld

FOLDER = "sessions"  # in the outbox
_SUFFIX, _TORN_SUFFIX = ".jsonl", ".torn"


def to_path(home: Path, session: str) -> Path:
    """Return the path of a session's file."""
    return home / "outbox" / FOLDER / (session + _SUFFIX)


def list_sessions(home: Path) -> list[str]:
    """Return the sessions that have a file."""
    return sorted(path.stem for path in (home / "outbox" / FOLDER).glob(f"*{_SUFFIX}"))


class SessionFile:
    """The file of one session, locked for this process until it is closed."""

    def __init__(self, home: Path, session: str) -> None:
        """Open the file, made if there is none. Raises SessionHeld while another process has it."""
        self._home, self._path = home, to_path(home, session)
        make_folder(self._path.parent)
        self._descriptor = self._open_locked(session)

    def __enter__(self) -> SessionFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_locked(self, session: str) -> int:
        while True:
            with map_os_errors(self._path):
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise SessionHeld(session) from None
            with contextlib.suppress(FileNotFoundError):
                if self._path.stat().st_ino == os.fstat(descriptor).st_ino:
                    sync_folder(self._path.parent)
                    return descriptor
            os.close(descriptor)  # the holder before us deleted it meanwhile

    def read(self) -> tuple[dict[str, Any], bytes]:
        """Return (the header, the complete lines of entries after it); ({}, b"") for a file without a header.

        A torn last line goes into a file of its own, and is cut off.
        """
        data = self._path.read_bytes()
        n_complete = data.rfind(b"\n") + 1
        if n_complete < len(data):
            self._set_torn_line_aside(data[n_complete:], n_complete)
        header_line, _, entries = data[:n_complete].partition(b"\n")
        return (json.loads(header_line), entries) if header_line else ({}, b"")

    def _set_torn_line_aside(self, torn: bytes, n_complete: int) -> None:
        write_file(self._path.with_suffix(f".{time.time_ns()}{_TORN_SUFFIX}"), torn)
        with map_os_errors(self._path):
            os.ftruncate(self._descriptor, n_complete)
            os.fsync(self._descriptor)
        log.append_entry(self._home, "torn-line", session=self._path.stem, n_bytes=len(torn))

    def begin(self, header: dict[str, Any]) -> None:
        """Empty the file, whose entries are in the archive, and write the header for those that follow."""
        with map_os_errors(self._path):
            os.ftruncate(self._descriptor, 0)
        self.append(json.dumps(header).encode() + b"\n")

    def append(self, lines: bytes) -> None:
        """Append complete lines; they are durable when this returns. A full disk leaves the file as it was."""
        with map_os_errors(self._path):
            size = os.fstat(self._descriptor).st_size
            try:
                view = memoryview(lines)
                while view:
                    view = view[os.write(self._descriptor, view) :]
                os.fsync(self._descriptor)
            except OSError:
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


def read_unarchived(home: Path, session: str) -> Iterator[tuple[int, bytes]]:
    """Yield (offset in the log, line with its newline) of each complete entry in a file that anybody may hold."""
    try:
        header_line, _, entries = to_path(home, session).read_bytes().partition(b"\n")
        offset = int(json.loads(header_line)["from_offset"])
    except (FileNotFoundError, ValueError):
        return
    for line in entries.splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield offset, line
            offset += len(line)
