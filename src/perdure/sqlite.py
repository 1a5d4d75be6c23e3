"""One way to write into a SQLite file, for all code here that does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import apsw


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
