"""SQLite for all code here: the library, loaded at its first use, and one way to write into a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from perdure.lazy_module import LazyModule

if TYPE_CHECKING:
    import apsw as apsw  # noqa: PLC0414 - others import it from here
else:
    apsw = LazyModule("apsw")


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
