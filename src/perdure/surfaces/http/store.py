"""The state of the server between requests, in `run/http.db`: requests, the cursor key, browser sessions.

Of a request it keeps the key that its sender gave it, and a hash of method, path and body; of the answer
the status and the id of what was made. Of a conversation of a chat program it keeps a hash of what was said and the
session of ours that holds it. No text and no secret of a user. If the file is lost, only repetitions of recent requests
are not recognised, and a conversation that goes on gets a new session.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.disk import make_folder
from perdure.errors import DiskFull, HomeFault
from perdure.sqlite import apsw, transaction, use_wal

REQUEST_KEEP_S = 24 * 3600
_UNANSWERED_S = 600
_BUSY_MS = 5_000
_MAX_SESSIONS = 100  # of one user; the oldest are deleted first
_MAX_CONVERSATION_KEYS = 20_000  # two or three for each answer; the oldest are deleted first
_TABLES = """
CREATE TABLE IF NOT EXISTS request(
  user TEXT NOT NULL, key TEXT NOT NULL, at_s REAL NOT NULL, what TEXT NOT NULL, status INTEGER NOT NULL,
  made TEXT NOT NULL, PRIMARY KEY(user, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS request_at ON request(at_s);
CREATE TABLE IF NOT EXISTS session(
  hash TEXT PRIMARY KEY, user TEXT NOT NULL, machine_id TEXT NOT NULL, ends_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS conversation(
  key TEXT PRIMARY KEY, session TEXT NOT NULL, entry TEXT NOT NULL, at_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS secret(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class EarlierRequest:
    """An earlier request with the same key."""

    is_same: bool  # method, path and body
    status: int  # 0: not answered yet
    created_id: str  # the id of what it created


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """The session of a browser that has signed in."""

    user: str
    machine_id: str  # empty: signed in by a link, at the home itself
    ends_s: float  # since the epoch


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Where a conversation goes on."""

    session: str
    entry: str = ""  # after which; "": after the newest


class RequestStore:
    """The file of one home. Several threads and processes may use it."""

    def __init__(self, home: Path, *, is_shared: bool = False) -> None:
        """Delete the requests that another process left unanswered: nobody answers them any more. Raises HomeFault.

        is_shared: other processes serve this home, too; then only requests that are too old to be answered still.
        """
        self._path = home / "run" / "http.db"
        self._lock = threading.Lock()
        try:
            self._connection = self._connect()
        except (apsw.NotADBError, apsw.CorruptError):
            self.discard(self._path)
            self._connection = self._connect()
        newest_s = time.time() - _UNANSWERED_S if is_shared else math.inf
        self._connection.execute("DELETE FROM request WHERE status = 0 AND at_s <= ?", (newest_s,))

    def _connect(self) -> apsw.Connection:
        make_folder(self._path.parent)
        try:
            connection = apsw.Connection(str(self._path))
            self._path.chmod(0o600)
            connection.set_busy_timeout(_BUSY_MS)
            use_wal(connection)
            connection.pragma("secure_delete", 1)
            connection.execute(_TABLES)
        except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.BusyError, apsw.FullError, apsw.IOError) as error:
            raise HomeFault(str(self._path)) from error
        return connection

    @staticmethod
    def discard(path: Path) -> None:
        """Delete a damaged file."""
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def read_cursor_key(self) -> bytes:
        """Return the key of cursors; make it at the first call."""
        with self._transact():
            rows = self._connection.execute("SELECT value FROM secret WHERE name = 'cursors'").fetchall()
            key = rows[0][0] if rows else secrets.token_bytes(32)
            if not rows:
                self._connection.execute("INSERT INTO secret VALUES('cursors', ?)", (key,))
        assert isinstance(key, bytes)
        return key

    def begin_request(self, user: str, key: str, request_line: str, *, now_s: float) -> EarlierRequest | None:
        """Note a new request and return None; for a repeated key return what is known of the earlier request.

        request_line: method, path and hash of the body.
        """
        key_hash = _hash_text(key)
        with self._transact():
            self._connection.execute("DELETE FROM request WHERE at_s < ?", (now_s - REQUEST_KEEP_S,))
            query = "SELECT what, status, made FROM request WHERE user = ? AND key = ?"
            rows = self._connection.execute(query, (user, key_hash)).fetchall()
            if not rows:
                self._connection.execute(
                    "INSERT INTO request VALUES(?, ?, ?, ?, 0, '')", (user, key_hash, now_s, _hash_text(request_line))
                )
                return None
        earlier_hash, status, created_id = rows[0]
        return EarlierRequest(earlier_hash == _hash_text(request_line), int(str(status)), str(created_id))

    def end_request(self, user: str, key: str, *, status: int, created_id: str) -> None:
        """Note how the request was answered."""
        with self._transact():
            values = (status, created_id, user, _hash_text(key))
            self._connection.execute("UPDATE request SET status = ?, made = ? WHERE user = ? AND key = ?", values)

    def drop_request(self, user: str, key: str) -> None:
        """Delete a request that made nothing, so that its key may be used again."""
        with self._transact():
            self._connection.execute("DELETE FROM request WHERE user = ? AND key = ?", (user, _hash_text(key)))

    def save_conversation(self, keys: Iterable[str], place: SessionPlace, *, now_s: float) -> None:
        """Store where the conversation goes on that these keys stand for; the oldest keys are deleted."""
        with self._transact():
            rows = [(_hash_text(key), place.session, place.entry, now_s) for key in keys]
            self._connection.executemany("INSERT OR REPLACE INTO conversation VALUES(?, ?, ?, ?)", rows)
            older = "SELECT key FROM conversation ORDER BY at_s DESC, key LIMIT -1 OFFSET ?"
            self._connection.execute(f"DELETE FROM conversation WHERE key IN ({older})", (_MAX_CONVERSATION_KEYS,))

    def read_conversation(self, key: str) -> SessionPlace | None:
        """Return where the conversation of a key goes on; None if nobody knows."""
        query = "SELECT session, entry FROM conversation WHERE key = ?"
        with self._lock:
            rows = self._connection.execute(query, (_hash_text(key),)).fetchall()
        return SessionPlace(str(rows[0][0]), str(rows[0][1])) if rows else None

    def save_session(self, secret_hash: str, session: BrowserSession, now_s: float) -> None:
        """Store a session under the hash of its secret."""
        with self._transact():
            self._connection.execute("DELETE FROM session WHERE ends_s < ?", (now_s,))
            values = (secret_hash, session.user, session.machine_id, session.ends_s)
            self._connection.execute("INSERT INTO session VALUES(?, ?, ?, ?)", values)
            older = "SELECT hash FROM session WHERE user = ? ORDER BY ends_s DESC LIMIT -1 OFFSET ?"
            self._connection.execute(f"DELETE FROM session WHERE hash IN ({older})", (session.user, _MAX_SESSIONS))

    def read_session(self, secret_hash: str, now_s: float) -> BrowserSession | None:
        """Return the session of a hash; None if there is none or it has ended."""
        query = "SELECT user, machine_id, ends_s FROM session WHERE hash = ? AND ends_s > ?"
        with self._lock:
            rows = self._connection.execute(query, (secret_hash, now_s)).fetchall()
        if not rows:
            return None
        user, machine_id, ends_s = rows[0]
        return BrowserSession(str(user), str(machine_id), float(str(ends_s)))

    def drop_session(self, secret_hash: str) -> None:
        """Delete a session."""
        with self._transact():
            self._connection.execute("DELETE FROM session WHERE hash = ?", (secret_hash,))

    def drop_sessions(self, user: str) -> None:
        """Delete all sessions of a user."""
        with self._transact():
            self._connection.execute("DELETE FROM session WHERE user = ?", (user,))

    @contextlib.contextmanager
    def _transact(self) -> Iterator[None]:
        try:
            with self._lock, transaction(self._connection):
                yield
        except apsw.FullError as error:
            raise DiskFull(str(self._path)) from error
        except apsw.Error as error:
            raise HomeFault(str(self._path)) from error


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
