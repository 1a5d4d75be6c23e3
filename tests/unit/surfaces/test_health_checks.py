"""What the doctor makes of a home that cannot be examined: a line, never a traceback."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from perdure.errors import DiskFull
from perdure.models.store import VectorCache
from perdure.surfaces import health_checks


@pytest.mark.parametrize("error", [apsw.FullError("database or disk is full"), apsw.IOError("disk I/O error")])
def test_missing_database_feature_is_a_failed_check(error: apsw.Error) -> None:
    def _disk_of_vectors(_: object) -> None:
        raise error

    (check,) = health_checks.run_check(_disk_of_vectors, None)  # type: ignore[arg-type]
    assert (check.name, check.grade, check.found) == ("disk of vectors", "problem", str(error))


def test_cache_blocked_by_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise apsw.FullError("database or disk is full")

    monkeypatch.setattr("perdure.models.store._make_tables", full)
    with pytest.raises(DiskFull):
        VectorCache(tmp_path / "cache" / "texts.db")
