"""SQLite for all code here: the library, loaded at its first use, and one way to write into a file."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.lazy_module import LazyModule

if TYPE_CHECKING:
    import apsw as apsw  # noqa: PLC0414 - others import it from here
else:
    apsw = LazyModule("apsw")


_RETRY_S = 0.005
_LOG_INDEX_BYTES = 32768  # SQLite grows the index of its write-ahead log by this much


def is_disk_full(error: BaseException, folder: Path) -> bool:
    """Return True if SQLite, or the operating system, failed because the disk of a folder is full.

    SQLite calls it an error of input and output where the index of its write-ahead log cannot grow.
    """
    if isinstance(error, apsw.IOError):
        space = os.statvfs(folder)
        return space.f_bavail * space.f_frsize < _LOG_INDEX_BYTES
    return isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)


def use_wal(db: apsw.Connection) -> None:
    """Switch a file to its write-ahead log, so that readers and a writer work at once. Raises apsw.BusyError.

    Waits as long as the connection's busy timeout: SQLite itself does not wait while another process writes a
    file that is not switched yet.
    """
    deadline = time.monotonic() + db.pragma("busy_timeout") / 1000
    while True:
        try:
            db.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_S)


@contextlib.contextmanager
def transaction(db: apsw.Connection) -> Iterator[None]:
    """Run the block as one transaction, which is the writer from its start.

    A transaction that becomes the writer later could fail at once.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite has already ended it when the disk is full
            db.execute("ROLLBACK")
        raise
