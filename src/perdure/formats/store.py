"""Read OpenCode's SQLite database. Never writes; the client may be running.

The only SQL of the formats. A database is opened read-only and read in one transaction, so a session is
seen whole; its write-ahead log is used. Text is read as bytes: if it is not UTF-8, only the unreadable
characters are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from perdure.errors import FormatFault
from perdure.sqlite import apsw

SQLITE_MAGIC = b"SQLite format 3\0"
_BUSY_MS = 2_000  # a client's write takes milliseconds; do not wait longer for its lock

SqlRow = tuple[Any, ...]


@contextmanager
def open_database(data: bytes | Path) -> Iterator[apsw.Connection]:
    """Open a read-only connection to a database file, or to its bytes. Raises FormatFault if it is unreadable."""
    try:
        connection = _connect(data)
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()
    except apsw.Error as error:
        raise FormatFault(f"{data if isinstance(data, Path) else 'database'} ({error})") from error


def _connect(data: bytes | Path) -> apsw.Connection:
    """Open a file without creating anything; bytes become a database in memory."""
    if isinstance(data, Path):
        connection = apsw.Connection(str(data), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(_BUSY_MS)
        return connection
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", data[:18] + b"\x01\x01" + data[20:])  # bytes have no log file: leave WAL mode
    return connection


class OpenCodeSession(NamedTuple):
    """A session of an OpenCode database; a column that this version lacks is None."""

    key: bytes  # its id as stored
    fields: dict[str, str]  # `id`, `parentID`, `directory` and `title`, if it has them


_SESSION_COLUMNS = {"id": "id", "parentID": "parent_id", "directory": "directory", "title": "title"}


def list_sessions(connection: apsw.Connection) -> list[OpenCodeSession]:
    """Return the sessions of a database, oldest first, whatever columns this version has."""
    return _select_sessions(connection, "", "", ())


def list_session_tree(connection: apsw.Connection, session: str) -> list[OpenCodeSession]:
    """Return one session and the sessions spawned below it, oldest first."""
    recursive_query = """WITH RECURSIVE tree(id) AS (SELECT id FROM session WHERE id = ?
        UNION SELECT session.id FROM session JOIN tree ON parent_id = tree.id)"""
    return _select_sessions(connection, recursive_query, "WHERE id IN (SELECT id FROM tree)", (session,))


def _select_sessions(
    connection: apsw.Connection, prefix: str, condition: str, parameters: SqlRow
) -> list[OpenCodeSession]:
    """Return the sessions that meet a condition, oldest first."""
    existing_columns = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info('session')")}
    fields = {name: column for name, column in _SESSION_COLUMNS.items() if column in existing_columns}
    columns = ", ".join(f"CAST({column} AS BLOB)" for column in fields.values())
    query = f"{prefix} SELECT CAST(id AS BLOB), {columns} FROM session {condition} ORDER BY time_created, id"
    return [
        OpenCodeSession(
            row[0], {name: decode_text(raw) for name, raw in zip(fields, row[1:], strict=True) if raw is not None}
        )
        for row in connection.execute(query, parameters)
    ]


def decode_text(raw: bytes | None) -> str:
    r"""Return stored text, with U+FFFD for the bytes that cannot be read.

    >>> decode_text(b"quay \xff four") == "quay \ufffd four"
    True
    """
    return (raw or b"").decode("utf-8", "replace")


def find_copied_messages(connection: apsw.Connection, session: bytes) -> dict[bytes, bytes]:
    """Return, for the messages that a fork copied into a session, message id -> id of the first original.

    A fork names no origin: its messages have new ids. A message that is older than its session, and has the
    same millisecond and the same parts as a message of an older session, is a copy of that message.
    """
    query = """SELECT CAST(copy.id AS BLOB), CAST(first.id AS BLOB) FROM session
        JOIN message AS copy ON copy.session_id = session.id
        JOIN message AS first ON first.time_created = copy.time_created AND first.session_id <> copy.session_id
        JOIN session AS older ON older.id = first.session_id AND older.time_created < session.time_created
        WHERE session.id = CAST(?1 AS TEXT) AND copy.time_created < session.time_created
          AND (SELECT group_concat(data) FROM (SELECT data FROM part WHERE message_id = copy.id ORDER BY id))
            = (SELECT group_concat(data) FROM (SELECT data FROM part WHERE message_id = first.id ORDER BY id))
        ORDER BY older.time_created DESC, first.id DESC"""  # the last row of a copy is that of the oldest session
    return dict(connection.execute(query, (session,)))


def list_messages(connection: apsw.Connection, session: bytes) -> list[SqlRow]:
    """Return (id, data) of each message of a session, in order."""
    query = """SELECT CAST(id AS BLOB), CAST(data AS BLOB) FROM message
        WHERE session_id = CAST(? AS TEXT) ORDER BY time_created, id"""
    return list(connection.execute(query, (session,)))


def list_parts(connection: apsw.Connection, session: bytes) -> list[SqlRow]:
    """Return (message_id, id, data) of each part of a session, in order."""
    query = """SELECT CAST(message_id AS BLOB), CAST(id AS BLOB), CAST(data AS BLOB) FROM part
        WHERE session_id = CAST(? AS TEXT) ORDER BY message_id, id"""
    return list(connection.execute(query, (session,)))
