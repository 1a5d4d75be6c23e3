"""The way into a SQLite file that several processes open at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from perdure import sqlite
from perdure.sqlite import apsw, use_wal


def test_switching_a_file_waits_for_another_that_holds_it(tmp_path: Path) -> None:
    path = str(tmp_path / "new.db")
    holder, waiter = apsw.Connection(path), apsw.Connection(path)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(apsw.BusyError):
        waiter.pragma("journal_mode", "wal")
    release = threading.Timer(0.2, lambda: holder.execute("COMMIT"))
    release.start()
    use_wal(waiter)
    release.join()
    assert waiter.pragma("journal_mode") == "wal"
    holder.close()
    waiter.close()


def test_switching_a_file_gives_up_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "SWITCH_S", 0.05)
    path = str(tmp_path / "new.db")
    holder, waiter = apsw.Connection(path), apsw.Connection(path)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(apsw.BusyError):
        use_wal(waiter)
    holder.close()
    waiter.close()
