"""SQLite for all code here: the library, loaded at its first use, and one way to write into a file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perdure.lazy_module import LazyModule

if TYPE_CHECKING:
    import apsw as apsw  # noqa: PLC0414 - others import it from here
else:
    apsw = LazyModule("apsw")


SWITCH_S = 10.0  # the longest wait for another process that switches the same file
_RETRY_S = 0.005


def use_wal(db: apsw.Connection) -> None:
    """Let readers and a writer work at once ("write-ahead log"). Raises apsw.BusyError.

    Of two processes that switch a new file at the same time, SQLite refuses one at once: its busy timeout
    does not count there.
    """
    deadline = time.monotonic() + SWITCH_S
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
