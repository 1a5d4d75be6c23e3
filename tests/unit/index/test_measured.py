"""What was measured, as rows: the newest times, however much of the journal was followed."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from perdure.archive.journal import Journal
from perdure.index.digest import digest
from perdure.index.follow import follow
from perdure.index.measured import TYPE, newest
from perdure.index.store import Connection

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal" / "ada", home=tmp_path)


@pytest.mark.parametrize("n_followed", [0, 2, 5])
def test_the_newest_times_are_told_oldest_first(journal, tmp_path, n_followed):
    with closing(Connection(tmp_path / "index-1.db", create=True)) as index:
        for n in range(5):
            if n == n_followed:
                follow(index, [journal.root])
            journal.append(TYPE, {"n": n}, now=NOW + timedelta(days=30 * n))
        if n_followed == 5:
            follow(index, [journal.root])
        found = newest(index, "ada", journal.root, limit=4)
        assert [(one.data, one.at) for one in found] == [({"n": n}, NOW + timedelta(days=30 * n)) for n in range(1, 5)]
        assert newest(index, "bob", journal.root.parent / "bob", limit=4) == []


def test_of_a_journal_that_was_put_anew_the_rows_are_made_anew(journal, tmp_path):
    with closing(Connection(tmp_path / "index-1.db", create=True)) as index:
        journal.append(TYPE, {"n": 1}, now=NOW)
        follow(index, [journal.root])
        before = digest(index)
        journal.rewrite(TYPE, lambda event: {"n": 2})
        follow(index, [journal.root])
        assert [one.data for one in newest(index, "ada", journal.root, limit=4)] == [{"n": 2}]
        assert digest(index) != before
