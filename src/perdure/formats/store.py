"""Reading the SQLite databases in which clients keep their sessions. Never writes; the client may be running.

The only SQL of the formats. Databases are opened read-only and read in one transaction, so that a session is
seen whole; their write-ahead log is honoured. Text is read as the bytes that it is: what is not UTF-8 costs at most
the characters that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from perdure.errors import FormatFault

SQLITE_MAGIC = b"SQLite format 3\0"
_BUSY_MS = 2_000  # a client's write takes milliseconds; do not wait longer for its lock

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
    connection.deserialize("main", data[:18] + b"\x01\x01" + data[20:])  # bytes have no log file: leave WAL mode
    return connection


class Session(NamedTuple):
    """A session of an OpenCode database; what this version has no column for is None."""

    key: bytes  # its id as stored
    fields: dict[str, str]  # `id`, `parentID`, `directory` and `title`, if it has them


_FIELDS = {"id": "id", "parentID": "parent_id", "directory": "directory", "title": "title"}


def opencode_sessions(connection: apsw.Connection) -> list[Session]:
    """Return the sessions of an OpenCode database, oldest first, whatever columns this version has."""
    return _sessions(connection, "", "", ())


def opencode_tree(connection: apsw.Connection, session: str) -> list[Session]:
    """Return one session and those that were spawned below it, oldest first."""
    below = """WITH RECURSIVE tree(id) AS (SELECT id FROM session WHERE id = ?
        UNION SELECT session.id FROM session JOIN tree ON parent_id = tree.id)"""
    return _sessions(connection, below, "WHERE id IN (SELECT id FROM tree)", (session,))


def _sessions(connection: apsw.Connection, before: str, where: str, given: Row) -> list[Session]:
    """Return the sessions that a condition picks, oldest first."""
    there = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info('session')")}
    fields = {name: column for name, column in _FIELDS.items() if column in there}
    columns = ", ".join(f"CAST({column} AS BLOB)" for column in fields.values())
    query = f"{before} SELECT CAST(id AS BLOB), {columns} FROM session {where} ORDER BY time_created, id"
    return [
        Session(row[0], {name: decoded(raw) for name, raw in zip(fields, row[1:], strict=True) if raw is not None})
        for row in connection.execute(query, given)
    ]


def decoded(raw: bytes | None) -> str:
    r"""Return stored text, as far as it can be read.

    >>> decoded(b"quay \xff four") == "quay \ufffd four"
    True
    """
    return (raw or b"").decode("utf-8", "replace")


def opencode_originals(connection: apsw.Connection, session: bytes) -> dict[bytes, bytes]:
    """Return, for the messages that a fork copied into a session, message id -> id of the first one.

    A fork names no origin: its messages have new ids. What is older than its session, of the same millisecond as a
    message of an older session, with the same parts, is a copy of that one.
    """
    copies = """SELECT CAST(copy.id AS BLOB), CAST(first.id AS BLOB) FROM session
        JOIN message AS copy ON copy.session_id = session.id
        JOIN message AS first ON first.time_created = copy.time_created AND first.session_id <> copy.session_id
        JOIN session AS older ON older.id = first.session_id AND older.time_created < session.time_created
        WHERE session.id = CAST(?1 AS TEXT) AND copy.time_created < session.time_created
          AND (SELECT group_concat(data) FROM (SELECT data FROM part WHERE message_id = copy.id ORDER BY id))
            = (SELECT group_concat(data) FROM (SELECT data FROM part WHERE message_id = first.id ORDER BY id))
        ORDER BY older.time_created DESC, first.id DESC"""  # the last row of a copy is that of the oldest session
    return dict(connection.execute(copies, (session,)))


def opencode_messages(connection: apsw.Connection, session: bytes) -> list[Row]:
    """Return (id, data) of each message of a session, in order."""
    query = """SELECT CAST(id AS BLOB), CAST(data AS BLOB) FROM message
        WHERE session_id = CAST(? AS TEXT) ORDER BY time_created, id"""
    return list(connection.execute(query, (session,)))


def opencode_parts(connection: apsw.Connection, session: bytes) -> list[Row]:
    """Return (message_id, id, data) of each part of a session, in order."""
    query = """SELECT CAST(message_id AS BLOB), CAST(id AS BLOB), CAST(data AS BLOB) FROM part
        WHERE session_id = CAST(? AS TEXT) ORDER BY message_id, id"""
    return list(connection.execute(query, (session,)))
