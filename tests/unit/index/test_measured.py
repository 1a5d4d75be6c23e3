"""What was measured, as rows: the newest times, however much of the journal was followed."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from perdure.archive.journal import Journal
from perdure.index.apply_journals import apply_journals
from perdure.index.rebuild import compute_digest
from perdure.index.statistics import MEASURED_TYPE, list_newest_measurements
from perdure.index.store import IndexConnection

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal" / "ada", home=tmp_path)


@pytest.mark.parametrize("n_followed", [0, 2, 5])
def test_newest_measurements_are_listed_oldest_first(journal, tmp_path, n_followed):
    with closing(IndexConnection(tmp_path / "index-1.db", create=True)) as index:
        for n in range(5):
            if n == n_followed:
                apply_journals(index, [journal.root])
            journal.append(MEASURED_TYPE, {"n": n}, now=NOW + timedelta(days=30 * n))
        if n_followed == 5:
            apply_journals(index, [journal.root])
        found = list_newest_measurements(index, "ada", journal.root, limit=4)
        assert [(one.data, one.at) for one in found] == [({"n": n}, NOW + timedelta(days=30 * n)) for n in range(1, 5)]
        assert list_newest_measurements(index, "bob", journal.root.parent / "bob", limit=4) == []


def test_rows_of_a_rewritten_journal_are_rebuilt(journal, tmp_path):
    with closing(IndexConnection(tmp_path / "index-1.db", create=True)) as index:
        journal.append(MEASURED_TYPE, {"n": 1}, now=NOW)
        apply_journals(index, [journal.root])
        before = compute_digest(index)
        journal.rewrite(MEASURED_TYPE, lambda event: {"n": 2})
        apply_journals(index, [journal.root])
        assert [one.data for one in list_newest_measurements(index, "ada", journal.root, limit=4)] == [{"n": 2}]
        assert compute_digest(index) != before
