"""Catching up: the index follows the ledger of an archive, in batches, and nothing is projected twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.archive import run_files
from perdure.errors import Busy
from perdure.index import catchup, keyword
from perdure.index.rebuild import compute_digest
from perdure.types import Filters
from rig.index_rows import ADA, ArchiveFile, IndexFile, make_memory, open_archive


@pytest.fixture
def home(tmp_path: Path) -> Iterator[ArchiveFile]:
    home = ArchiveFile(tmp_path)
    yield home
    home.close()


def find(home, query):
    return {hit.text for hit in keyword.search(home.index, ADA, query, filters=Filters(), limit=9).hits}


def test_only_new_runs_are_projected(home):
    home.capture("s", "the red buoy")
    assert catchup.count_unprojected(home.index, home.archive) == 1
    assert catchup.catch_up(home.index, home.archive).n_runs == 1
    home.capture("s", "the red mast")
    home.capture("t", "a blue mast", user="bob")
    assert catchup.count_unprojected(home.index, home.archive, "bob") == 1
    projected = []
    result = catchup.catch_up(home.index, home.archive, on_run=projected.append)
    assert (result.n_runs, result.n_behind, [(one.n_turns, one.n_malformed) for one in projected]) == (
        2, 0, [(1, 0), (1, 0)],
    )  # fmt: skip
    assert find(home, "red") == {"the red buoy", "the red mast"}
    assert catchup.catch_up(home.index, home.archive).n_runs == 0


def test_a_second_index_holds_the_same_however_often_it_stopped(home, tmp_path):
    """One index follows after each capture, the other catches up once with no time: it stops after a batch."""
    for n in range(4):
        home.capture(f"s{n % 2}", f"message number {n}")
        catchup.catch_up(home.index, home.archive)
    (tmp_path / "second").mkdir()
    second = IndexFile(tmp_path / "second")
    result = catchup.catch_up(second.index, home.archive, limit_s=-1.0)
    assert (result.n_runs, result.n_behind) == (4, 0)
    assert compute_digest(second.index) == compute_digest(home.index)
    second.close()


def test_batches_are_bounded_and_the_rest_is_counted(home, monkeypatch):
    monkeypatch.setattr(catchup, "_MAX_BATCH_RUNS", 2)
    for n in range(5):
        home.capture("s", f"message number {n}")
    progress = []
    result = catchup.catch_up(
        home.index, home.archive, limit_s=-1.0, progress=lambda *figures: progress.append(figures)
    )
    assert (result.n_runs, result.n_behind, [n_runs for n_runs, _ in progress]) == (2, 3, [2])
    assert catchup.catch_up(home.index, home.archive).n_runs == 3


def test_damaged_run_is_named_and_the_others_are_projected(home):
    damaged = home.capture("s", "the red buoy")
    home.capture("t", "the red mast")
    (home.archive.root / run_files.to_blob_path("ada", damaged)).write_bytes(b"torn")
    result = catchup.catch_up(home.index, home.archive)
    assert (result.damaged, result.n_runs) == ((damaged,), 1)
    assert find(home, "red") == {"the red mast"}


def test_ledger_that_was_built_again_is_read_from_its_start(home, tmp_path):
    home.capture("s", "the red buoy")
    catchup.catch_up(home.index, home.archive)
    digest = compute_digest(home.index)
    home.archive.close()
    for path in (tmp_path / "cache").iterdir():
        path.unlink()
    home.archive = open_archive(tmp_path)
    assert catchup.count_unprojected(home.index, home.archive) == 1
    assert catchup.catch_up(home.index, home.archive).n_runs == 0  # the index has exactly these bytes
    assert compute_digest(home.index) == digest


def test_journals_are_followed_with_the_runs(home):
    folder = home.archive.root / "journal"
    folder.mkdir(parents=True)
    home.add_memories(make_memory("port 8080", "port"))
    (home.folder / "journal" / "ada").rename(folder / "ada")
    fresh = IndexFile(home.folder / "archive")
    assert catchup.catch_up(fresh.index, home.archive).n_memories == 1
    assert catchup.catch_up_journals(fresh.index, home.archive, "ada") == 0
    fresh.close()


def test_another_writer_does_the_work(home, tmp_path, monkeypatch):
    """While the write lock is held elsewhere nothing is projected here, and the runs are counted as behind."""
    home.capture("s", "the red buoy")
    home.index.db.set_busy_timeout(0)
    other = IndexFile.__new__(IndexFile)
    other.index = type(home.index)(home.index.path)
    with other.index.begin_write():
        result = catchup.catch_up(home.index, home.archive)
        assert (result.n_runs, result.n_behind) == (0, 1)
        with pytest.raises(Busy), home.index.begin_write():
            pass
    other.close()
    assert catchup.catch_up(home.index, home.archive).n_runs == 1
