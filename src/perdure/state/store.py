"""The state file of one user, `state/<user>.db`: items of a key-value store, checkpoints of threads, items of sessions.

State is no memory: a program reads back exactly the bytes that it wrote, and Perdure does not look into them. It is
no cache either: nothing can rebuild it, so every write is one transaction, on disk before the call returns. What is to
be found by search and recall is kept as memories and captured turns beside it. Deleted rows are overwritten.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perdure.disk import make_folder
from perdure.errors import DiskFull, HomeFault, NewerFormat
from perdure.sqlite import apsw, transaction, use_wal

_VERSION = 1
_BUSY_MS = 60_000
MIN_SEARCHED_CHARS = 24  # a shorter text stands in many threads: it is looked for only in the one where it was said
_TABLES = """
CREATE TABLE IF NOT EXISTS item(
  number INTEGER PRIMARY KEY, namespace BLOB NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
  created_s REAL NOT NULL, updated_s REAL NOT NULL, ttl_s REAL, expires_s REAL,
  path TEXT NOT NULL, is_kept INTEGER NOT NULL, UNIQUE(namespace, key));
CREATE INDEX IF NOT EXISTS item_expires ON item(expires_s) WHERE expires_s IS NOT NULL;
CREATE INDEX IF NOT EXISTS item_to_keep ON item(number) WHERE NOT is_kept;
CREATE TABLE IF NOT EXISTS checkpoint(
  thread TEXT NOT NULL, namespace TEXT NOT NULL, id TEXT NOT NULL, parent TEXT NOT NULL, run TEXT NOT NULL,
  type TEXT NOT NULL, body BLOB NOT NULL, metadata_type TEXT NOT NULL, metadata BLOB NOT NULL,
  PRIMARY KEY(thread, namespace, id));
CREATE INDEX IF NOT EXISTS checkpoint_run ON checkpoint(run);
CREATE TABLE IF NOT EXISTS pending_write(
  thread TEXT NOT NULL, namespace TEXT NOT NULL, id TEXT NOT NULL, task TEXT NOT NULL, number INTEGER NOT NULL,
  channel TEXT NOT NULL, type TEXT NOT NULL, body BLOB NOT NULL, task_path TEXT NOT NULL,
  PRIMARY KEY(thread, namespace, id, task, number));
CREATE TABLE IF NOT EXISTS session_item(
  number INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,
  is_captured INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS session_item_session ON session_item(session, number);
"""


@dataclass(frozen=True, slots=True)
class StoreItem:
    """One value of a key-value store."""

    namespace: tuple[str, ...]
    key: str
    value: bytes  # JSON
    created_s: float  # since the epoch
    updated_s: float
    path: str  # of the memory by which it is found; "" if it has none


@dataclass(frozen=True, slots=True)
class ItemPut:
    """A value to write. ttl_s: it expires so long after it was last written or read; None: never."""

    namespace: tuple[str, ...]
    key: str
    value: bytes
    path: str = ""
    ttl_s: float | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of one thread after one step. body, metadata: serialised by the framework, each with its type."""

    thread: str
    namespace: str
    id: str
    parent: str  # "" for the first
    run: str
    type: str
    body: bytes
    metadata_type: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """What one task of a step wrote. number: its place among the task's writes; special ones are below zero."""

    task: str
    number: int
    channel: str
    type: str
    body: bytes
    task_path: str


@dataclass(frozen=True, slots=True)
class SessionItem:
    """One item of a session. id: that of the turn that is captured from it."""

    id: str
    body: bytes  # JSON
    is_captured: bool


def get_path(home: Path, user: str) -> Path:
    """Return the state file of a user."""
    return home / "state" / f"{user}.db"


class StateFile:
    """The open state file of one user. Use it from one thread; several processes may have it open."""

    def __init__(self, home: Path, user: str) -> None:
        """Make it where there is none. Raises HomeFault, NewerFormat."""
        self.path = get_path(home, user)
        make_folder(self.path.parent)
        try:
            self._db = apsw.Connection(str(self.path))
            self.path.chmod(0o600)
            self._db.set_busy_timeout(_BUSY_MS)
            use_wal(self._db)
            self._db.pragma("synchronous", "full")  # what is acknowledged is on disk
            self._db.pragma("secure_delete", 1)
            if (version := self._db.pragma("user_version")) not in (0, _VERSION):
                raise NewerFormat(f"{self.path}: format {version}, this Perdure knows {_VERSION}")
            with self._write():
                self._db.execute(_TABLES)
                self._db.pragma("user_version", _VERSION)
        except (apsw.NotADBError, apsw.CorruptError, apsw.CantOpenError) as error:
            raise HomeFault(str(self.path)) from error

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    @contextlib.contextmanager
    def _write(self) -> Iterator[None]:
        try:
            with transaction(self._db):
                yield
        except apsw.FullError as error:
            raise DiskFull(str(self.path)) from error

    def copy_to(self, target: Path) -> None:
        """Write all of it into a new file."""
        self._db.execute("VACUUM INTO ?", (str(target),))
        target.chmod(0o600)

    # items ------------------------------------------------------------------------------------------------

    def get_item(self, namespace: tuple[str, ...], key: str, *, now_s: float) -> StoreItem | None:
        """Return an item that has not expired, or None."""
        rows = self._list_items("namespace = ? AND key = ?", (encode_namespace(namespace), key), now_s)
        return rows[0] if rows else None

    def list_items(self, prefix: tuple[str, ...], *, now_s: float) -> list[StoreItem]:
        """Return the items in a namespace and those below it, in the order in which they were first put."""
        return self._list_items(*_below(prefix), now_s)

    def list_unkept(self) -> list[StoreItem]:
        """Return the items whose memories a killed process did not make any more."""
        return self._list_items("NOT is_kept", (), 0.0)

    def _list_items(self, condition: str, values: tuple[bytes | str, ...], now_s: float) -> list[StoreItem]:
        rows = self._db.execute(
            "SELECT namespace, key, value, created_s, updated_s, path FROM item"
            f" WHERE ({condition}) AND (expires_s IS NULL OR expires_s > ?) ORDER BY number",
            (*values, now_s),
        )
        return [StoreItem(decode_namespace(row[0]), *row[1:]) for row in rows]

    def list_namespaces(self, *, now_s: float) -> list[tuple[str, ...]]:
        """Return every namespace that holds an item, sorted."""
        rows = self._db.execute(
            "SELECT DISTINCT namespace FROM item WHERE expires_s IS NULL OR expires_s > ?", (now_s,)
        )
        return sorted(decode_namespace(row[0]) for row in rows)

    def write_items(
        self, puts: Sequence[ItemPut], deleted: Iterable[tuple[tuple[str, ...], str]], *, now_s: float
    ) -> None:
        """Write and delete items in one transaction; a new value of an item keeps its place and its first time."""
        with self._write():
            for namespace, key in deleted:
                self._db.execute("DELETE FROM item WHERE namespace = ? AND key = ?", (encode_namespace(namespace), key))
            for put in puts:
                expires_s = None if put.ttl_s is None else now_s + put.ttl_s
                self._db.execute(
                    "INSERT INTO item(namespace, key, value, created_s, updated_s, ttl_s, expires_s, path, is_kept)"
                    " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(namespace, key) DO UPDATE SET"
                    " value = excluded.value, updated_s = excluded.updated_s, ttl_s = excluded.ttl_s,"
                    " expires_s = excluded.expires_s, path = excluded.path, is_kept = excluded.is_kept",
                    (
                        encode_namespace(put.namespace), put.key, put.value, now_s, now_s, put.ttl_s, expires_s,
                        put.path, not put.path,
                    ),
                )  # fmt: skip

    def set_kept(self, paths: Iterable[str]) -> None:
        """Note that the memories of these items are made, or refused for good."""
        with self._write():
            self._db.executemany("UPDATE item SET is_kept = 1 WHERE path = ?", [(path,) for path in paths])

    def renew(self, items: Iterable[StoreItem], *, now_s: float) -> None:
        """Begin the time of items that expire anew."""
        keys = [(now_s, encode_namespace(item.namespace), item.key) for item in items]
        if self._db.execute("SELECT 1 FROM item WHERE ttl_s IS NOT NULL LIMIT 1").fetchone():
            with self._write():
                self._db.executemany(
                    "UPDATE item SET expires_s = ? + ttl_s WHERE namespace = ? AND key = ? AND ttl_s IS NOT NULL", keys
                )

    def delete_expired(self, *, now_s: float) -> list[str]:
        """Delete what has expired; return the paths of its memories."""
        condition = "expires_s <= ?"
        if not self._db.execute(f"SELECT 1 FROM item WHERE {condition} LIMIT 1", (now_s,)).fetchone():
            return []
        with self._write():
            rows = list(self._db.execute(f"DELETE FROM item WHERE {condition} RETURNING path", (now_s,)))
        return [path for (path,) in rows if path]

    # checkpoints ------------------------------------------------------------------------------------------

    def put_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; one with the same id is replaced."""
        with self._write():
            self._insert_checkpoint(checkpoint)

    def _insert_checkpoint(self, checkpoint: Checkpoint) -> None:
        values = [getattr(checkpoint, name) for name in Checkpoint.__slots__]
        self._db.execute("INSERT OR REPLACE INTO checkpoint VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def put_writes(self, place: tuple[str, str, str], writes: Iterable[PendingWrite]) -> None:
        """Write what a task wrote after a checkpoint. place: thread, namespace and id. Special writes are replaced."""
        with self._write():
            for write in writes:
                verb = "REPLACE" if write.number < 0 else "IGNORE"
                values = (*place, *(getattr(write, name) for name in PendingWrite.__slots__))
                self._db.execute(f"INSERT OR {verb} INTO pending_write VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def list_checkpoints(
        self, *, thread: str | None, namespace: str | None = None, id: str | None = None, before: str | None = None,
        limit: int | None = None,
    ) -> list[Checkpoint]:  # fmt: skip
        """Return checkpoints, the newest first. Ids sort by time. thread: None for all."""
        terms = {"thread = ?": thread, "namespace = ?": namespace, "id = ?": id, "id < ?": before}
        given = {term: value for term, value in terms.items() if value is not None}
        rows = self._db.execute(
            f"SELECT * FROM checkpoint WHERE {' AND '.join(given) or '1'} ORDER BY id DESC, thread, namespace LIMIT ?",
            (*given.values(), -1 if limit is None else limit),
        )
        return [Checkpoint(*row) for row in rows]

    def list_writes(self, place: tuple[str, str, str]) -> list[PendingWrite]:
        """Return what tasks wrote after a checkpoint, in the order of their paths, ids and places."""
        rows = self._db.execute(
            "SELECT task, number, channel, type, body, task_path FROM pending_write"
            " WHERE thread = ? AND namespace = ? AND id = ? ORDER BY task_path, task, number",
            place,
        )
        return [PendingWrite(*row) for row in rows]

    def delete_threads(self, threads: Iterable[str]) -> None:
        """Delete threads with everything in them."""
        with self._write():
            for thread in threads:
                for table in ("checkpoint", "pending_write"):
                    self._db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))

    def delete_runs(self, runs: Iterable[str]) -> None:
        """Delete the checkpoints that these runs of the framework made."""
        with self._write():
            for run in runs:
                places = list(self._db.execute("SELECT thread, namespace, id FROM checkpoint WHERE run = ?", (run,)))
                self._delete_places(places)

    def delete_checkpoints(self, places: Iterable[tuple[str, str, str]]) -> None:
        """Delete checkpoints. places: thread, namespace and id of each."""
        with self._write():
            self._delete_places(places)

    def _delete_places(self, places: Iterable[tuple[str, str, str]]) -> None:
        for place in places:
            for table in ("checkpoint", "pending_write"):
                self._db.execute(f"DELETE FROM {table} WHERE thread = ? AND namespace = ? AND id = ?", place)

    def copy_thread(self, source: str, target: str) -> None:
        """Write everything of a thread under the name of another one, too."""
        with self._write():
            for table, columns in (
                ("checkpoint", "namespace, id, parent, run, type, body, metadata_type, metadata"),
                ("pending_write", "namespace, id, task, number, channel, type, body, task_path"),
            ):
                self._db.execute(
                    f"INSERT OR REPLACE INTO {table} SELECT ?, {columns} FROM {table} WHERE thread = ?",
                    (target, source),
                )

    # sessions ---------------------------------------------------------------------------------------------

    def add_session_items(self, session: str, items: Iterable[SessionItem]) -> None:
        """Append items to a session, in one transaction."""
        with self._write():
            self._db.executemany(
                "INSERT INTO session_item(session, id, body, is_captured) VALUES(?, ?, ?, ?)",
                [(session, item.id, item.body, item.is_captured) for item in items],
            )

    def list_session_items(self, session: str, *, limit: int | None = None) -> list[SessionItem]:
        """Return the items of a session, oldest first. limit: the newest so many."""
        rows = self._db.execute(
            "SELECT id, body, is_captured FROM session_item WHERE session = ? ORDER BY number DESC LIMIT ?",
            (session, -1 if limit is None else limit),
        ).fetchall()
        return [SessionItem(name, body, bool(is_captured)) for name, body, is_captured in reversed(rows)]

    def set_captured(self, ids: Iterable[str]) -> None:
        """Note that these items are in the archive."""
        with self._write():
            self._db.executemany("UPDATE session_item SET is_captured = 1 WHERE id = ?", [(name,) for name in ids])

    def pop_session_item(self, session: str) -> SessionItem | None:
        """Delete the newest item of a session, and return it; None if there is none."""
        with self._write():
            rows = list(
                self._db.execute(
                    "DELETE FROM session_item WHERE number = (SELECT max(number) FROM session_item WHERE session = ?)"
                    " RETURNING id, body, is_captured",
                    (session,),
                )
            )
        return SessionItem(rows[0][0], rows[0][1], bool(rows[0][2])) if rows else None

    def clear_session(self, session: str) -> None:
        """Delete all items of a session."""
        with self._write():
            self._db.execute("DELETE FROM session_item WHERE session = ?", (session,))

    # forgetting -------------------------------------------------------------------------------------------

    def forget(self, texts: Iterable[str], *, paths: Iterable[str] = (), sessions: Iterable[str] = ()) -> None:
        """Delete what holds one of these texts: items, items of sessions, and whole threads; and the items at paths.

        A thread goes as a whole, because each checkpoint repeats what the earlier ones hold. A short text is looked for
        only in the threads and sessions where it was said.
        """
        names = list(dict.fromkeys(sessions))
        with self._write():
            for path in paths:
                self._db.execute("DELETE FROM item WHERE path = ?", (path,))
            for forms in dict.fromkeys(filter(None, map(_list_forms, texts))):
                is_told_apart = max(map(len, forms)) >= MIN_SEARCHED_CHARS
                for form in forms:
                    if is_told_apart:
                        self._db.execute("DELETE FROM item WHERE instr(value, ?)", (form,))
                    self._forget_in_sessions(form, None if is_told_apart else names)
        with contextlib.suppress(apsw.BusyError):  # a reader keeps old pages in the log until it ends
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _forget_in_sessions(self, form: bytes, names: Sequence[str] | None) -> None:
        """names: the threads and sessions to look in; None for all."""
        threads: set[str] = set()
        for thread_column, table, bodies in (
            ("thread", "checkpoint", ("body", "metadata")),
            ("thread", "pending_write", ("body",)),
            ("session", "session_item", ("body",)),
        ):
            condition = " OR ".join(f"instr({body}, ?)" for body in bodies)
            scope = "1" if names is None else f"{thread_column} IN ({', '.join('?' * len(names))})"
            values = (*(names or ()), *[form] * len(bodies))
            if table == "session_item":
                self._db.execute(f"DELETE FROM session_item WHERE {scope} AND ({condition})", values)
            else:
                found = self._db.execute(f"SELECT DISTINCT thread FROM {table} WHERE {scope} AND ({condition})", values)
                threads |= {thread for (thread,) in found}
        for thread in threads:
            for table in ("checkpoint", "pending_write"):
                self._db.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))


def _list_forms(text: str) -> tuple[bytes, ...]:
    """Return the bytes by which a text stands in a value: as it is, and as in a JSON string."""
    plain = text.strip()
    try:
        escaped = msgspec.json.encode(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1].encode()
        return tuple(dict.fromkeys((plain.encode(), *escaped))) if plain else ()
    except UnicodeEncodeError:  # half a surrogate pair: it stands in no file
        return ()


def encode_namespace(namespace: Sequence[str]) -> bytes:
    """Return the labels with an end mark behind each: what lies below a namespace begins with its bytes.

    >>> encode_namespace(("a", "bc"))
    b'a\\x00bc\\x00'
    """
    return b"".join(label.encode() + b"\0" for label in namespace)


def decode_namespace(raw: bytes) -> tuple[str, ...]:
    """Return the labels of an encoded namespace."""
    return tuple(label.decode() for label in raw.split(b"\0")[:-1])


def _below(prefix: Sequence[str]) -> tuple[str, tuple[bytes, ...]]:
    """Return the condition for a namespace and all below it, and its values."""
    raw = encode_namespace(prefix)
    return ("namespace >= ? AND namespace < ?", (raw, raw[:-1] + b"\1")) if raw else ("1", ())


def delete(home: Path, user: str) -> None:
    """Delete the state of a user."""
    path = get_path(home, user)
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def copy(home: Path, user: str, target: Path) -> None:
    """Write the state of a user into another home."""
    if get_path(home, user).exists():
        make_folder(get_path(target, user).parent)
        with contextlib.closing(StateFile(home, user)) as state:
            state.copy_to(get_path(target, user))


def copy_all(home: Path, target: Path) -> None:
    """Write the state of every user into another home."""
    for path in sorted((home / "state").glob("*.db")):
        copy(home, path.stem, target)
