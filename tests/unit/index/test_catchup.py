"""Catching up: the index follows the ledger of an archive, in batches, and nothing is projected twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.archive import run_files
from perdure.errors import Busy
from perdure.index import catchup, keyword, write
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


# one user before the others -----------------------------------------------------------------------------------------


def count(home, user=None):
    return catchup.count_unprojected(home.index, home.archive, user)


def test_one_user_is_projected_before_what_others_captured_earlier(home):
    for n in range(3):
        home.capture("s", f"message number {n}")
    home.capture("t", "a blue mast", user="bob")
    assert catchup.list_behind(home.index, home.archive) == ["ada", "bob"]
    assert catchup.catch_up_user(home.index, home.archive, "bob", limit_s=9).n_runs == 1
    assert (count(home, "bob"), count(home, "ada"), count(home)) == (0, 3, 3)
    assert catchup.list_behind(home.index, home.archive) == ["ada"]
    home.capture("t", "a green mast", user="bob")
    assert (count(home, "bob"), count(home)) == (1, 4)


def test_the_last_user_who_catches_up_moves_the_position_of_all(home):
    home.capture("s", "the red buoy")
    home.capture("t", "a blue mast", user="bob")
    for user in ("bob", "ada"):
        catchup.catch_up_user(home.index, home.archive, user, limit_s=9)
    keys = {key for (key,) in home.index.select("SELECT key FROM meta") if key.startswith("change")}
    assert keys == {"change"} and count(home) == 0


def test_users_in_any_order_give_the_index_of_all_together(home, tmp_path):
    for n in range(4):
        home.capture(f"s{n % 2}", f"message number {n}", user=("ada", "bob")[n % 2])
    for user in ("bob", "ada"):
        catchup.catch_up_user(home.index, home.archive, user, limit_s=9)
    (tmp_path / "second").mkdir()
    second = IndexFile(tmp_path / "second")
    catchup.catch_up(second.index, home.archive)
    assert compute_digest(second.index) == compute_digest(home.index)
    second.close()


def test_a_user_position_of_a_ledger_that_was_made_again_counts_for_nothing(home):
    home.capture("s", "the red buoy")
    home.capture("t", "a blue mast", user="bob")
    catchup.catch_up_user(home.index, home.archive, "bob", limit_s=9)
    home.archive.ledger.set_meta("epoch", "another")
    assert count(home, "bob") == 1
    assert catchup.catch_up_user(home.index, home.archive, "bob", limit_s=9).n_runs == 0  # it is there already
    assert find(home, "mast") == set() and count(home, "bob") == 0  # of ada, who asks


# large runs in parts ------------------------------------------------------------------------------------------------


@pytest.fixture
def large(home, monkeypatch):
    """A home whose next run is large: it goes in a transaction for each turn."""
    monkeypatch.setattr(catchup, "_MAX_USER_BATCH_BYTES", 1)
    monkeypatch.setattr(catchup, "_PART_S", 0.0)
    home.capture("s", "the red buoy")
    home.capture("s", "the red mast")
    return home


def make_whole(home, folder):
    folder.mkdir()
    second = IndexFile(folder)
    catchup.catch_up(second.index, home.archive)
    digest = compute_digest(second.index)
    second.close()
    return digest


def test_a_run_in_parts_is_the_run(large, tmp_path):
    result = catchup.catch_up_user(large.index, large.archive, "ada", limit_s=9)
    assert (result.n_runs, result.n_chunks, result.n_behind) == (2, 2, 0)
    assert find(large, "red") == {"the red buoy", "the red mast"}
    assert compute_digest(large.index) == make_whole(large, tmp_path / "second")
    assert not [key for (key,) in large.index.select("SELECT key FROM meta") if key.startswith("part:")]


@pytest.mark.parametrize("everyone", [True, False])
def test_a_run_whose_process_was_killed_between_parts_is_written_whole(large, tmp_path, monkeypatch, everyone):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(write, "_write_turn", stop)
        with pytest.raises(KeyboardInterrupt):
            catchup.catch_up_user(large.index, large.archive, "ada", limit_s=9)
    assert find(large, "red") == set()
    assert [key for (key,) in large.index.select("SELECT key FROM meta") if key.startswith("part:")]
    if everyone:
        catchup.catch_up(large.index, large.archive)
    else:
        catchup.catch_up_user(large.index, large.archive, "ada", limit_s=9)
    assert compute_digest(large.index) == make_whole(large, tmp_path / "second")


def test_a_run_that_another_process_wrote_meanwhile_is_left_alone(large):
    write_turn = write._write_turn

    def let_others(index, run, *rest):
        n_chunks = write_turn(index, run, *rest)
        index.db.execute("DELETE FROM meta WHERE key LIKE 'part:%'")  # as `write_run` does
        return n_chunks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "_write_turn", let_others)
        assert catchup.catch_up_user(large.index, large.archive, "ada", limit_s=0.01).n_runs == 0


def test_a_run_that_was_forgotten_between_parts_is_not_written(large):
    (entry, *_) = large.archive.ledger.list_changes(0)
    write_turn, n_written = write._write_turn, []

    def forget_then(index, run, *rest):
        n_written.append(run.run_id)
        n_chunks = write_turn(index, run, *rest)
        large.archive.ledger.renumber([entry.run_id])  # as forgetting does with a run that it rewrote
        return n_chunks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "_write_turn", forget_then)
        catchup.catch_up_user(large.index, large.archive, "ada", limit_s=-1)
    assert n_written == [entry.run_id]
    assert count(large, "ada") == 2  # neither is done: what was begun is written again at its new number
