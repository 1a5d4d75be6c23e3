"""What the doctor makes of a home that cannot be examined: a line, never a traceback."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from perdure.errors import DiskFull
from perdure.models.store import Cache
from perdure.surfaces import condition


@pytest.mark.parametrize("error", [apsw.FullError("database or disk is full"), apsw.IOError("disk I/O error")])
def test_what_a_database_cannot_do_is_a_check_that_failed(error: apsw.Error) -> None:
    def _disk_of_vectors(_: object) -> None:
        raise error

    (check,) = condition.examined(_disk_of_vectors, None)  # type: ignore[arg-type]
    assert (check.name, check.grade, check.found) == ("disk of vectors", "problem", str(error))


def test_a_cache_that_a_full_disk_does_not_let_open_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise apsw.FullError("database or disk is full")

    monkeypatch.setattr("perdure.models.store._make_tables", full)
    with pytest.raises(DiskFull):
        Cache(tmp_path / "cache" / "texts.db")
