"""The cache of texts read in pictures: (digest of the picture, tag of the engine) -> its text. It survives rebuilds.

`cache/pictures.db`. Its texts are masked, as everything derived is. When the last turn with a picture is forgotten, the
picture's texts are deleted here and overwritten. If the file is lost, all pictures are read again, and nothing else is
lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from perdure.errors import Busy, DiskFull, ReadOnlyHome
from perdure.sqlite import apsw, transaction, use_wal

SCHEMA = 1  # a file with another number is deleted: it is a cache
BUSY_MS = 10_000
_TABLE = """CREATE TABLE picture(digest TEXT NOT NULL, tag TEXT NOT NULL, text TEXT NOT NULL, fault TEXT NOT NULL,
  PRIMARY KEY(digest, tag)) WITHOUT ROWID"""


class PictureText(NamedTuple):
    """The text that an engine read in a picture."""

    tag: str  # of the engine
    text: str  # masked; "" for none
    fault: str = ""  # why it could not be read


class PictureCache:
    """One connection to the file. Close it after use."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make an empty one. Raises ReadOnlyHome, DiskFull, Busy."""
        self._path = path
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                self._db = self._open()
            except (apsw.NotADBError, apsw.CorruptError):
                delete_cache(path)
                self._db = self._open()
        except (apsw.CantOpenError, apsw.ReadOnlyError, PermissionError) as error:
            raise ReadOnlyHome(str(path)) from error
        except (apsw.FullError, OSError) as error:
            raise DiskFull(str(path)) from error
        except apsw.BusyError as error:
            raise Busy(str(path)) from error

    def _open(self) -> apsw.Connection:
        db = apsw.Connection(str(self._path))
        self._path.chmod(0o600)
        db.set_busy_timeout(BUSY_MS)
        use_wal(db)
        db.pragma("synchronous", 1)
        db.pragma("secure_delete", True)
        with transaction(db):
            if db.pragma("user_version") != SCHEMA:
                db.execute("DROP TABLE IF EXISTS picture")
                db.execute(_TABLE)
                db.pragma("user_version", SCHEMA)
        return db

    def close(self) -> None:
        """Release the file."""
        self._db.close()

    def get(self, digest: str, tag: str) -> PictureText | None:
        """Return what this engine read in a picture, or else what another engine read; None if none did."""
        query = "SELECT tag, text, fault FROM picture WHERE digest = ? ORDER BY tag <> ?, fault <> '', tag LIMIT 1"
        return next((PictureText(*row) for row in self._db.execute(query, (digest, tag))), None)

    def put(self, digest: str, picture: PictureText) -> None:
        """Store what an engine read in a picture."""
        with self._write():
            self._db.execute("INSERT OR REPLACE INTO picture VALUES (?, ?, ?, ?)", (digest, *picture))

    def forget(self, digests: Iterable[str]) -> None:
        """Delete all texts of these pictures, also from the log beside the file.

        Raises Busy if another process reads the old ones for too long; they are deleted then, but not yet wiped.
        """
        with self._write():
            self._db.executemany("DELETE FROM picture WHERE digest = ?", [(digest,) for digest in digests])
        (is_blocked, _, _) = next(iter(self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
        if is_blocked:
            raise Busy(str(self._path))

    @contextlib.contextmanager
    def _write(self) -> Iterator[None]:
        """Run one transaction. Raises Busy, DiskFull."""
        try:
            with transaction(self._db):
                yield
        except apsw.BusyError as error:
            raise Busy(str(self._path)) from error
        except apsw.FullError as error:
            raise DiskFull(str(self._path)) from error


def delete_cache(path: Path) -> None:
    """Delete the file and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
