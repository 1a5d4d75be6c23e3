"""The way into a SQLite file that several processes open at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.sqlite import apsw, use_wal


@pytest.fixture
def connections(tmp_path: Path) -> Iterator[tuple[apsw.Connection, apsw.Connection]]:
    """Two connections to one new file; the first holds it as a writer does."""
    path = str(tmp_path / "new.db")
    holder, waiter = apsw.Connection(path), apsw.Connection(path)
    holder.execute("BEGIN IMMEDIATE")
    yield holder, waiter
    holder.close()
    waiter.close()


def test_switching_a_file_waits_for_another_that_holds_it(connections) -> None:
    holder, waiter = connections
    waiter.set_busy_timeout(10_000)
    with pytest.raises(apsw.BusyError):  # SQLite does not wait
        waiter.pragma("journal_mode", "wal")
    release = threading.Timer(0.2, lambda: holder.execute("COMMIT"))
    release.start()
    use_wal(waiter)
    release.join()
    assert waiter.pragma("journal_mode") == "wal"


def test_switching_a_file_gives_up_after_its_busy_timeout(connections) -> None:
    _, waiter = connections
    waiter.set_busy_timeout(50)
    with pytest.raises(apsw.BusyError):
        use_wal(waiter)
