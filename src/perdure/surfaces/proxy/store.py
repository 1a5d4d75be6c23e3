"""What the proxy must know again at a later request, in `cache/proxy.db`: a cache, and the only file with its words.

The client sends its own history, without our blocks; each must stand beside its old message again, or the provider's
cache ends there. A row holds the block that one message got, under a hash of the conversation up to that message.
Losing the file costs cache misses and no data. Forgetting anything deletes the whole file, also under a running
proxy, which notices: what it read or recalled before counts no longer (`is_current`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from perdure.access import block_cache
from perdure.disk import make_folder
from perdure.errors import HomeFault
from perdure.sqlite import apsw, transaction, use_wal

KEEP_S = 60 * 24 * 3600.0  # a conversation that went on within this time still finds its blocks
_BUSY_MS = 50
_TABLES = """
CREATE TABLE IF NOT EXISTS block(
  key TEXT NOT NULL, session TEXT NOT NULL, block TEXT NOT NULL, at_s REAL NOT NULL,
  PRIMARY KEY(key, session)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS block_at ON block(at_s);
CREATE TABLE IF NOT EXISTS captured(
  session TEXT NOT NULL, line TEXT NOT NULL, at_s REAL NOT NULL, PRIMARY KEY(session, line)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS captured_at ON captured(at_s);
"""


class StoredBlock(NamedTuple):
    """What a message got."""

    session: str
    block: str  # "": nothing, which is a decision, too


class BlockStore:
    """The file of one home. Several threads may use it."""

    def __init__(self, home: Path) -> None:
        self._home, self._path = home, block_cache.get_path(home)
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._file_id = 0
        self._n_opened = 0

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._drop_connection()

    def read_generation(self) -> int:
        """Return a number that is another one as soon as the file was deleted. Raises HomeFault."""
        with self._use():
            return self._n_opened

    def is_current(self, generation: int) -> bool:
        """Return True if the file was not deleted since `read_generation` gave this number: nothing was forgotten."""
        with self._lock:
            return self._n_opened == generation and self._is_open_file_there()

    def read_blocks(self, keys: Sequence[str], session: str) -> dict[str, StoredBlock]:
        """Return key -> what that message got in this session; or, without the session's own, in the newest one."""
        if not keys:
            return {}
        query = (
            f"SELECT key, session, block FROM block WHERE key IN ({','.join('?' * len(keys))}) "
            "ORDER BY session = ?, at_s"
        )
        with self._use() as connection:
            rows = connection.execute(query, (*keys, session)).fetchall()
        return {str(key): StoredBlock(str(row_session), str(block)) for key, row_session, block in rows}

    def write_block(self, key: str, stored: StoredBlock, *, generation: int, now_s: float) -> None:
        """Store what a message got, and delete what is too old to be asked for.

        generation: from before the block was recalled. Nothing is stored if the file was deleted since: the block may
        hold what was forgotten. A file that is deleted right now takes the block with it.
        """
        with self._use() as connection, transaction(connection):
            if self._n_opened != generation:
                return
            connection.execute("INSERT OR REPLACE INTO block VALUES(?, ?, ?, ?)", (key, *stored, now_s))
            for table in ("block", "captured"):
                connection.execute(f"DELETE FROM {table} WHERE at_s < ?", (now_s - KEEP_S,))

    def select_new(self, session: str, lines: Collection[str]) -> set[str]:
        """Return those ids of lines that were not captured yet in this session."""
        query = "SELECT line FROM captured WHERE session = ?"
        with self._use() as connection:
            return set(lines) - {str(row[0]) for row in connection.execute(query, (session,))}

    def mark_captured(self, session: str, lines: Collection[str], *, now_s: float) -> None:
        """Note that these lines are captured. Call it after they are durable."""
        with self._use() as connection, transaction(connection):
            rows = [(session, line, now_s) for line in lines]
            connection.executemany("INSERT OR REPLACE INTO captured VALUES(?, ?, ?)", rows)

    @contextlib.contextmanager
    def _use(self) -> Iterator[apsw.Connection]:
        """Yield the connection to the file that is there now. A damaged file is replaced. Raises HomeFault."""
        with self._lock:
            try:
                yield self._open_current()
            except (apsw.NotADBError, apsw.CorruptError) as error:
                self._drop_connection()
                block_cache.delete_proxy_file(self._home)
                raise HomeFault(str(self._path)) from error
            except apsw.Error as error:
                self._drop_connection()
                raise HomeFault(str(self._path)) from error

    def _open_current(self) -> apsw.Connection:
        if self._connection is None or not self._is_open_file_there():
            self._drop_connection()
            make_folder(self._path.parent)
            connection = apsw.Connection(str(self._path))
            self._path.chmod(0o600)
            connection.set_busy_timeout(_BUSY_MS)
            use_wal(connection)
            connection.pragma("synchronous", "normal")  # a crash of the machine may cost cache misses
            connection.pragma("secure_delete", 1)
            connection.execute(_TABLES)
            self._connection, self._file_id = connection, self._read_file_id()
            self._n_opened += 1
        return self._connection

    def _is_open_file_there(self) -> bool:
        return self._connection is not None and self._read_file_id() == self._file_id

    def _read_file_id(self) -> int:
        try:
            return self._path.stat().st_ino
        except OSError:
            return -1

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
