"""Rebuild (X36): beside the old index, resumable, proven, swapped in one step."""

import pytest

from perdure.errors import Busy
from perdure.index import catchup, store


@pytest.fixture
def filled(home, message):
    for n in range(6):
        home.capture(message("user", f"harbour number {n}", n), runtime="messages", session=f"s{n}")
    return home


def found(home):
    return [hit.turn_id for hit in home.search("harbour").hits]


@pytest.mark.index_file("it lists the files")
def test_rebuild_proves_equal_answers(filled):
    before, old = found(filled), store.find_current_file(filled.path)
    result = filled.upkeep.rebuild()
    assert (result.n_runs, result.n_chunks, result.resumed) == (6, 6, False)
    assert result.compared and result.n_queries == 6 and result.differing == () and result.same_digest
    assert found(filled) == before
    assert store.find_current_file(filled.path) != old and store.list_files(filled.path) == [
        store.find_current_file(filled.path)
    ]


def test_the_old_index_answers_while_the_new_one_is_built(filled, opened):
    before = found(filled)
    reader = opened(read_only=True)
    seen = []

    def progress(_runs, _bytes):
        seen.append((found(reader), reader.index().path))

    old = reader.index().path
    filled.upkeep.rebuild(progress=progress)
    assert seen == [(before, old)]
    assert found(reader) == before  # and it moves over to the new one by itself
    assert reader.index().path == filled.index().path != old


@pytest.mark.index_file("it lists the files")
def test_interrupted_rebuild_keeps_the_old_index_and_resumes(filled, monkeypatch):
    before, old = found(filled), store.find_current_file(filled.path)
    monkeypatch.setattr(catchup, "_MAX_BATCH_RUNS", 2)

    def stop(n_runs, _bytes):
        if n_runs >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        filled.upkeep.rebuild(progress=stop)
    assert store.find_current_file(filled.path) == old and found(filled) == before
    unfinished = [path for path in store.list_files(filled.path) if path != old]
    assert len(unfinished) == 1
    done = []
    result = filled.upkeep.rebuild(progress=lambda n_runs, _: done.append(n_runs))
    assert result.resumed and result.n_runs == 6 and done == [2]  # four of six were there
    assert result.same_digest and result.differing == () and found(filled) == before
    assert store.find_current_file(filled.path) == unfinished[0].resolve()


@pytest.mark.index_file("it damages the file")
def test_a_damaged_index_has_no_say(filled, opened):
    before, old = found(filled), store.find_current_file(filled.path)
    filled.close()
    old.write_bytes(b"garbage" * 1000)
    for suffix in ("-wal", "-shm"):
        old.with_name(old.name + suffix).unlink(missing_ok=True)
    again = opened()
    assert again.search("harbour").degraded == ("index",)
    result = again.upkeep.rebuild()
    assert not result.compared and result.n_runs == 6
    assert again.search("harbour").degraded == () and found(again) == before


@pytest.mark.index_file("it changes the version of the file")
def test_index_of_a_newer_version_is_rebuilt(filled, opened):
    filled.index().db.pragma("user_version", store.SCHEMA + 1)
    filled.close()
    again = opened()
    assert not again.upkeep.rebuild().compared
    assert len(found(again)) == 6


def test_missing_index_is_built(filled, opened):
    filled.connections.delete_index()
    filled.close()
    again = opened()
    assert not again.upkeep.rebuild().compared
    assert len(found(again)) == 6


def test_only_one_rebuilds_at_a_time(filled, opened):
    other = opened()

    def second(_runs, _bytes):
        with pytest.raises(Busy):
            other.upkeep.rebuild()

    filled.upkeep.rebuild(progress=second)


def test_capture_during_a_rebuild_is_found_after_it(filled, opened, message):
    other = opened()

    def capture(_runs, _bytes):
        other.capture(message("user", "harbour at the last moment", 50), runtime="messages", session="late")

    filled.upkeep.rebuild(progress=capture)
    assert len(found(filled)) == 7


@pytest.mark.index_file("it lists the files")
def test_index_of_an_older_version_is_made_anew_at_opening(filled, opened):
    before = found(filled)
    filled.index().db.pragma("user_version", store.SCHEMA - 1)
    filled.close()
    home = opened()
    assert found(home) == before
    assert store.list_files(home.path) == [store.find_current_file(home.path)]
    assert not store.is_old(home.path) and len(home.runs.forest()) == 6


@pytest.mark.index_file("it writes into the index file")
def test_index_of_an_older_version_is_made_anew_though_a_forgetting_was_not_ended(filled, opened, monkeypatch):
    """Nothing of it can be cleaned, and without an index recall had nothing to say."""
    forgotten, *kept = found(filled)
    with monkeypatch.context() as busy:
        busy.setattr(filled.upkeep, "clean_index", lambda: False)
        filled.forgetting.apply(filled.forgetting.plan([forgotten]))
    filled.index().db.pragma("user_version", store.SCHEMA - 1)
    filled.close()
    home = opened()
    assert home.connections.has_index() and found(home) == kept
    assert home.recall("harbour number 1").cues
