"""Read SQLite databases of other products. Never writes to them: what is read is a private copy.

A database that is in use has a write-ahead log or a journal beside it; reading it in place would make files there. The
copy is taken again if the files changed meanwhile. All values are text, cut at a length, whatever type the file says.
"""

from __future__ import annotations

import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perdure.errors import UsageError
from perdure.sqlite import apsw

_MAX_BYTES = 1 << 32  # of a database that is copied
_MAX_VALUE_CHARS = 20_000  # a memory is far shorter
_COPY_TRIES = 3
_LIMIT_S = 120.0  # for reading one database; a hostile view could take for ever
_STEPS_BETWEEN_CHECKS = 100_000  # of SQLite's virtual machine

Row = dict[str, str]  # column -> its value as text; a column that is absent or NULL is ""


@contextmanager
def open_copy(path: Path) -> Iterator[apsw.Connection]:
    """Open a private copy of a database. Raises UsageError for another file, or one that cannot be copied whole."""
    with tempfile.TemporaryDirectory(prefix="perdure-") as folder:
        try:
            connection = apsw.Connection(str(_copy_database(path, Path(folder))))
        except (apsw.Error, OSError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from error
        ends_s = time.monotonic() + _LIMIT_S
        connection.set_progress_handler(lambda: time.monotonic() > ends_s, _STEPS_BETWEEN_CHECKS)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection
        except apsw.Error as error:
            raise UsageError(f"{path} is no readable database: {error}") from error
        finally:
            connection.close()


def _copy_database(path: Path, folder: Path) -> Path:
    """Copy a database with its log; return the copy."""
    files = [path, *(path.with_name(path.name + ending) for ending in ("-wal", "-journal"))]
    for _ in range(_COPY_TRIES):
        before = _read_signatures(files)
        if sum(size for size, _ in before.values()) > _MAX_BYTES:
            raise UsageError(f"{path} is larger than {_MAX_BYTES:,} bytes; nothing was imported")
        for file in before:
            shutil.copyfile(file, folder / file.name.replace(path.name, "copy.db", 1))
        if _read_signatures(files) == before:
            return folder / "copy.db"
    raise UsageError(f"{path} changes while it is read: stop the program that writes it, and try again")


def _read_signatures(files: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Return (size, time of the last change) of each file that exists. Raises UsageError for one that is no file."""
    signatures = {}
    for file in files:
        if file.exists():
            status = file.stat()
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{file} is not a file")
            signatures[file] = (status.st_size, status.st_mtime_ns)
    return signatures


def list_columns(connection: apsw.Connection, table: str) -> set[str]:
    """Return the columns of a table; none for a view, or if there is no such table."""
    query = """SELECT name FROM pragma_table_info(?1)
        WHERE EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1)"""
    return {name for (name,) in connection.execute(query, (table,))}


def select_rows(connection: apsw.Connection, table: str, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a table in the order in which they were written. columns: those that may be there.

    table, columns: names in the code, never from a file.
    """
    present_columns = [column for column in columns if column in list_columns(connection, table)]
    values = ", ".join(f"substr(CAST({column} AS BLOB), 1, {_MAX_VALUE_CHARS * 4})" for column in present_columns)
    if not present_columns:
        return
    for row in connection.execute(f"SELECT {values} FROM {table} ORDER BY rowid"):
        texts = [(raw or b"").decode("utf-8", "replace")[:_MAX_VALUE_CHARS] for raw in row]
        yield dict.fromkeys(columns, "") | dict(zip(present_columns, texts, strict=True))


def count_rows(connection: apsw.Connection, table: str) -> int:
    """Count the rows of a table; 0 if there is none."""
    if not list_columns(connection, table):
        return 0
    return int(connection.execute(f"SELECT count(*) FROM {table}").get)
