"""The index file: its settings, its names, and which file is in use."""

import shutil

import pytest

from perdure.errors import IndexDamaged, IndexMissing
from perdure.index import store


@pytest.fixture
def index(tmp_path):
    connection = store.open_current(tmp_path, writable=True, create=True)
    yield connection
    connection.close()


def test_settings_read_back_on_a_fresh_connection(tmp_path, index):
    """X01. 128 MiB = 134,217,728 bytes; a negative cache size is in KiB; synchronous 1 is NORMAL."""
    fresh = store.open_current(tmp_path, writable=True)
    assert fresh.db.pragma("journal_mode") == "wal"
    assert fresh.db.pragma("mmap_size") == 134_217_728
    assert fresh.db.pragma("cache_size") == -64_000
    assert fresh.db.pragma("synchronous") == 1
    assert fresh.db.pragma("busy_timeout") == 5000
    assert fresh.db.pragma("secure_delete") == 1
    assert fresh.path.stat().st_mode & 0o777 == 0o600
    fresh.close()


def test_words_leave_no_trace_when_deleted(index):
    with index.begin_write():
        number = index.add_name("user", "ada")
    assert index.select(f"SELECT v FROM words_{number}_config WHERE k = 'secure-delete'") == [(1,)]


def test_segments_of_words_are_joined_in_steps_that_can_stop(index, monkeypatch):
    with index.begin_write():
        owner = index.add_name("user", "ada")
        index.db.execute(f"INSERT INTO words_{owner}(words_{owner}, rank) VALUES ('automerge', 0)")
    texts = {n: " ".join(f"tide{n * 7 + k} port{k}" for k in range(300)) for n in range(1, 7)}
    for n, words in texts.items():  # each commit is a segment
        with index.begin_write():
            index.add_text(owner, n, words, "")
    count = f"SELECT count(DISTINCT segid) FROM words_{owner}_idx"
    find = f"SELECT rowid, bm25(words_{owner}) FROM words_{owner} WHERE words_{owner} MATCH 'tide42 OR port7'"
    found = index.select(find)
    assert index.select(count) == [(6,)]
    assert index.merge_words(lambda: True) == 1 and index.select(count) == [(6,)]  # stopped before the first step
    monkeypatch.setattr(store, "_MERGED_PAGES", 1)
    assert index.merge_words() == 1 and index.select(count) == [(1,)]
    assert index.select(find) == found and len(found) == 6
    assert index.merge_words() == 0  # nothing is left to do
    index.db.execute(f"INSERT INTO words_{owner}(words_{owner}) VALUES ('integrity-check')")


def test_names_are_numbered_once_and_by_kind(index):
    with index.begin_write():
        first = index.add_name("project", "/w")
        assert index.add_name("project", "/w") == first
        assert index.add_name("tag", "/w") != first
    assert index.list_names("project") == {first: "/w"}
    assert index.find_name("project", "/other") is None


def test_a_number_given_in_a_failed_transaction_is_forgotten(index):
    with pytest.raises(ZeroDivisionError), index.begin_write():
        index.add_name("tag", "x")
        1 / 0  # noqa: B018
    with index.begin_write():
        number = index.add_name("tag", "y")
        assert index.add_name("tag", "x") == number + 1


def test_tokens_are_folded_and_stemmed(index):
    assert index.tokenize("Réunions WAL-mode running") == ["reunion", "wal", "mode", "run"]


def test_counts_are_written_when_settled(index):
    with index.begin_write():
        number = index.add_name("tag", "x")
        index.add_to_counts(number, [number, number], 1)
        index.write_counts()
        index.add_to_counts(number, [number], -1)
        index.write_counts()
    assert index.select("SELECT n_chunks FROM name WHERE id = ?", number) == [(1,)]


def test_no_index_is_missing_and_a_broken_one_is_damaged(tmp_path):
    with pytest.raises(IndexMissing):
        store.open_current(tmp_path, writable=True)
    (tmp_path / "index-1.db").write_bytes(b"not a database, whatever its name says" * 100)
    store.point_to(tmp_path, tmp_path / "index-1.db")
    with pytest.raises(IndexDamaged):
        store.open_current(tmp_path, writable=True)


def test_an_index_of_another_version_is_not_read(tmp_path, index):
    index.db.pragma("user_version", store.SCHEMA + 1)
    with pytest.raises(IndexDamaged, match="another version"):
        store.open_current(tmp_path, writable=True)


def test_only_an_index_of_an_older_version_is_old(tmp_path, index):
    assert not store.is_old(tmp_path / "empty") and not store.is_old(tmp_path)
    for version, expected in ((store.SCHEMA - 1, True), (store.SCHEMA, False), (store.SCHEMA + 1, False)):
        index.db.pragma("user_version", version)
        index.checkpoint()
        assert store.is_old(tmp_path) == expected


def test_the_link_moves_in_one_step_and_a_reader_notices(tmp_path, index):
    other = store.choose_new_path(tmp_path)
    store.IndexConnection(other, create=True).close()
    assert index.is_current(tmp_path)
    store.point_to(tmp_path, other)
    assert not index.is_current(tmp_path) and store.find_current_file(tmp_path) == other.resolve()
    assert [path.name for path in store.list_files(tmp_path)] == ["index-1.db", "index-2.db"]
    store.delete_files([other])
    assert store.find_current_file(tmp_path) is None


def test_index_is_there_as_a_link_a_lost_file_or_a_copy_that_followed_the_link(tmp_path, index):
    folder, copied = store.IndexFolder(tmp_path), store.IndexFolder(tmp_path / "copied")
    assert folder.has_index() and not copied.has_index()
    shutil.copytree(tmp_path, tmp_path / "copied")
    assert not (tmp_path / "copied" / "index.db").is_symlink() and copied.has_index()
    store.delete_files(store.list_files(tmp_path))
    assert folder.has_index()


def test_nothing_stays_of_an_index_that_was_no_link(tmp_path, index):
    (tmp_path / "copied").mkdir()
    for name in ("index.db", "index.db-wal", "index.db-shm"):
        (tmp_path / "copied" / name).write_bytes(b"old")
    store.point_to(tmp_path / "copied", index.path)
    assert [path.name for path in sorted((tmp_path / "copied").iterdir())] == ["index.db"]
    store.IndexFolder(tmp_path / "copied").delete()
    assert not [*(tmp_path / "copied").iterdir()]
