"""What the server keeps between two requests: `run/http.db`. Which request was answered how, the key of cursors, and
the sessions of browsers.

Of a request: the key that its sender gave it, method, path and the hash of its body; of the answer: its status and the
id of what was made. No text and no secret. A lost file costs the repetitions that are under way.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

from perdure.capture.files import make_folder
from perdure.errors import DiskFull, HomeFault
from perdure.transactions import transaction

KEPT_S = 24 * 3600
_BUSY_MS = 5_000
_MOST_SESSIONS = 100  # of one user; the oldest end first
_TABLES = """
CREATE TABLE IF NOT EXISTS request(
  user TEXT NOT NULL, key TEXT NOT NULL, at_s REAL NOT NULL, what TEXT NOT NULL, status INTEGER NOT NULL,
  made TEXT NOT NULL, PRIMARY KEY(user, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS request_at ON request(at_s);
CREATE TABLE IF NOT EXISTS session(
  hash TEXT PRIMARY KEY, user TEXT NOT NULL, machine_id TEXT NOT NULL, ends_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS secret(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Known:
    """A request that came before under the same key."""

    is_same: bool  # method, path and body
    status: int  # 0: it is not answered yet
    made: str  # the id of what it made


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that was let in."""

    user: str
    machine_id: str  # empty: by a link, at the home itself
    ends_s: float  # since the epoch


class Requests:
    """The file of one home. Several threads may use it; one process at a time."""

    def __init__(self, home: Path) -> None:
        """What another process left unanswered is forgotten: nobody answers it any more. Raises HomeFault."""
        self._path = home / "run" / "http.db"
        self._lock = threading.Lock()
        try:
            self._db = self._connected()
        except (apsw.NotADBError, apsw.CorruptError):
            self.discard(self._path)
            self._db = self._connected()
        self._db.execute("DELETE FROM request WHERE status = 0")

    def _connected(self) -> apsw.Connection:
        make_folder(self._path.parent)
        try:
            db = apsw.Connection(str(self._path))
            self._path.chmod(0o600)
            db.set_busy_timeout(_BUSY_MS)
            db.pragma("journal_mode", "wal")
            db.pragma("secure_delete", 1)
            db.execute(_TABLES)
        except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.BusyError, apsw.FullError, apsw.IOError) as error:
            raise HomeFault(str(self._path)) from error
        return db

    @staticmethod
    def discard(path: Path) -> None:
        """Throw a damaged file away."""
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def key(self) -> bytes:
        """The key of cursors, made at the first call."""
        with self._writing():
            found = self._db.execute("SELECT value FROM secret WHERE name = 'cursors'").fetchall()
            key = found[0][0] if found else secrets.token_bytes(32)
            if not found:
                self._db.execute("INSERT INTO secret VALUES('cursors', ?)", (key,))
        assert isinstance(key, bytes)
        return key

    def begin(self, user: str, key: str, what: str, *, now_s: float) -> Known | None:
        """None for a new request, which counts as begun; otherwise what is known of the one before.

        what: method, path and hash of the body.
        """
        name = _hash(key)
        with self._writing():
            self._db.execute("DELETE FROM request WHERE at_s < ?", (now_s - KEPT_S,))
            query = "SELECT what, status, made FROM request WHERE user = ? AND key = ?"
            found = self._db.execute(query, (user, name)).fetchall()
            if not found:
                self._db.execute("INSERT INTO request VALUES(?, ?, ?, ?, 0, '')", (user, name, now_s, _hash(what)))
                return None
        before, status, made = found[0]
        return Known(before == _hash(what), int(str(status)), str(made))

    def end(self, user: str, key: str, *, status: int, made: str) -> None:
        """Note how it was answered."""
        with self._writing():
            values = (status, made, user, _hash(key))
            self._db.execute("UPDATE request SET status = ?, made = ? WHERE user = ? AND key = ?", values)

    def drop(self, user: str, key: str) -> None:
        """It made nothing: the same key may be used again."""
        with self._writing():
            self._db.execute("DELETE FROM request WHERE user = ? AND key = ?", (user, _hash(key)))

    def keep_session(self, name: str, session: Session, now_s: float) -> None:
        """Keep a session under the hash of its secret."""
        with self._writing():
            self._db.execute("DELETE FROM session WHERE ends_s < ?", (now_s,))
            values = (name, session.user, session.machine_id, session.ends_s)
            self._db.execute("INSERT INTO session VALUES(?, ?, ?, ?)", values)
            older = "SELECT hash FROM session WHERE user = ? ORDER BY ends_s DESC LIMIT -1 OFFSET ?"
            self._db.execute(f"DELETE FROM session WHERE hash IN ({older})", (session.user, _MOST_SESSIONS))

    def session(self, name: str, now_s: float) -> Session | None:
        """The session of a hash; None where there is none, or it is over."""
        query = "SELECT user, machine_id, ends_s FROM session WHERE hash = ? AND ends_s > ?"
        with self._lock:
            found = self._db.execute(query, (name, now_s)).fetchall()
        if not found:
            return None
        user, machine_id, ends_s = found[0]
        return Session(str(user), str(machine_id), float(str(ends_s)))

    def drop_session(self, name: str) -> None:
        """Keep it no more."""
        with self._writing():
            self._db.execute("DELETE FROM session WHERE hash = ?", (name,))

    def drop_sessions(self, user: str) -> None:
        """Keep none of this user's any more."""
        with self._writing():
            self._db.execute("DELETE FROM session WHERE user = ?", (user,))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._lock, transaction(self._db):
                yield
        except apsw.FullError as error:
            raise DiskFull(str(self._path)) from error
        except apsw.Error as error:
            raise HomeFault(str(self._path)) from error


def _hash(said: str) -> str:
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
