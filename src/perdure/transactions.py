"""One way to write into a SQLite file, for everything here that does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import apsw


@contextlib.contextmanager
def transaction(db: apsw.Connection) -> Iterator[None]:
    """One transaction that owns the writer's place from its start: one that became it later could fail at once."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk ends it by itself
            db.execute("ROLLBACK")
        raise
