"""Reading the SQLite databases in which clients keep their sessions. Never writes; the client may be running.

The only SQL of the formats. Databases are opened read-only and read in one transaction, so that a session is
seen whole; their write-ahead log is honoured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from perdure.errors import FormatFault

SQLITE_MAGIC = b"SQLite format 3\0"
_BUSY_MS = 2_000  # a client's write takes milliseconds; after that its lock is its own trouble

Row = tuple[Any, ...]


@contextmanager
def opened(data: bytes | Path) -> Iterator[apsw.Connection]:
    """Give a read-only connection to a database file, or to the bytes of one."""
    try:
        connection = _connected(data)
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()
    except apsw.Error as error:
        raise FormatFault(f"{data if isinstance(data, Path) else 'database'} ({error})") from error


def _connected(data: bytes | Path) -> apsw.Connection:
    """Open a file without creating anything; bytes become a database in memory."""
    if isinstance(data, Path):
        connection = apsw.Connection(str(data), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(_BUSY_MS)
        return connection
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", data[:18] + b"\x01\x01" + data[20:])  # no log beside bytes: not in WAL mode
    return connection


def opencode_sessions(connection: apsw.Connection) -> list[dict[str, Any]]:
    """Return the sessions of an OpenCode database, oldest first, whatever columns this version has."""
    cursor = connection.execute("SELECT * FROM session ORDER BY time_created, id")
    return [dict(zip(_names(cursor), row, strict=True)) for row in cursor]


def opencode_tree(connection: apsw.Connection, session: str) -> list[dict[str, Any]]:
    """Return one session and those that were spawned below it, oldest first."""
    below = """WITH RECURSIVE tree(id) AS (SELECT id FROM session WHERE id = ?
        UNION SELECT session.id FROM session JOIN tree ON parent_id = tree.id)
        SELECT * FROM session WHERE id IN (SELECT id FROM tree) ORDER BY time_created, id"""
    cursor = connection.execute(below, (session,))
    return [dict(zip(_names(cursor), row, strict=True)) for row in cursor]


def opencode_originals(connection: apsw.Connection, session: Any) -> dict[Any, Any]:
    """Return, for the messages that a fork copied into a session, message id -> id of the first one.

    A fork names no origin: its messages have new ids. What is older than its session, of the same millisecond as a
    message of an older session, with the same parts, is a copy of that one.
    """
    copies = """SELECT copy.id, first.id FROM session JOIN message AS copy ON copy.session_id = session.id
        JOIN message AS first ON first.time_created = copy.time_created AND first.session_id <> copy.session_id
        JOIN session AS older ON older.id = first.session_id AND older.time_created < session.time_created
        WHERE session.id = ?1 AND copy.time_created < session.time_created
          AND (SELECT group_concat(data) FROM (SELECT data FROM part WHERE message_id = copy.id ORDER BY id))
            = (SELECT group_concat(data) FROM (SELECT data FROM part WHERE message_id = first.id ORDER BY id))
        ORDER BY older.time_created DESC, first.id DESC"""  # the last row of a copy is that of the oldest session
    return dict(connection.execute(copies, (session,)))


def _names(cursor: apsw.Cursor) -> list[str]:
    """Return the names of the columns of a running query."""
    return [column[0] for column in cursor.get_description()]


def opencode_messages(connection: apsw.Connection, session: Any) -> list[Row]:
    """Return (id, data) of each message of a session, in order."""
    query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    return list(connection.execute(query, (session,)))


def opencode_parts(connection: apsw.Connection, session: Any) -> list[Row]:
    """Return (message_id, id, data) of each part of a session, in order."""
    query = "SELECT message_id, id, data FROM part WHERE session_id = ? ORDER BY message_id, id"
    return list(connection.execute(query, (session,)))
