"""What the doctor makes of a home that cannot be examined: a line, never a traceback."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import perdure
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


PROXY = {"address": "http://127.0.0.1:8788", "pid": 7, "since_at": "2026-11-25T09:00:00+00:00", "n_requests": 1200,
         "n_edited": 900, "n_failed_open": 60, "n_slow": 50}  # fmt: skip


def test_a_proxy_is_described_and_one_that_often_fails_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[proxy]\nlisten = "127.0.0.1:8788"\n')
    with perdure.open(tmp_path) as home:
        (well,) = health_checks.check_proxies(home, {"proxies": [PROXY]})
        (failing,) = health_checks.check_proxies(home, {"proxies": [{**PROXY, "n_failed_open": 61}]})
        (absent,) = health_checks.check_proxies(home, None)
    assert well.grade == "ok" and well.found.endswith(
        "1,200 requests, 900 edited, 60 without the block they should have (50 because recall was slow)"
    )
    assert failing.grade == "notice" and "proxy.limit_ms" in failing.advice
    assert (absent.grade, absent.found) == ("notice", "127.0.0.1:8788: it does not run")
