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


def test_a_rebuild_proves_that_it_answers_the_same(filled):
    before, old = found(filled), store.current(filled.path)
    result = filled.rebuild()
    assert (result.n_runs, result.n_chunks, result.resumed) == (6, 6, False)
    assert result.compared and result.n_queries == 6 and result.differing == () and result.same_digest
    assert found(filled) == before
    assert store.current(filled.path) != old and store.files(filled.path) == [store.current(filled.path)]


def test_the_old_index_answers_while_the_new_one_is_built(filled, opened):
    before = found(filled)
    reader = opened(read_only=True)
    seen = []

    def progress(_runs, _bytes):
        seen.append((found(reader), store.current(filled.path)))

    old = store.current(filled.path)
    filled.rebuild(progress=progress)
    assert seen == [(before, old)]
    assert found(reader) == before  # and it moves over to the new one by itself
    assert reader.index().path == store.current(filled.path) != old


def test_an_interrupted_rebuild_leaves_the_old_one_and_goes_on(filled, monkeypatch):
    before, old = found(filled), store.current(filled.path)
    monkeypatch.setattr(catchup, "_BATCH_RUNS", 2)

    def stop(n_runs, _bytes):
        if n_runs >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        filled.rebuild(progress=stop)
    assert store.current(filled.path) == old and found(filled) == before
    unfinished = [path for path in store.files(filled.path) if path != old]
    assert len(unfinished) == 1
    done = []
    result = filled.rebuild(progress=lambda n_runs, _: done.append(n_runs))
    assert result.resumed and result.n_runs == 6 and done == [2]  # four of six were there
    assert result.same_digest and result.differing == () and found(filled) == before
    assert store.current(filled.path) == unfinished[0].resolve()


def test_a_damaged_index_has_no_say(filled, opened):
    before, old = found(filled), store.current(filled.path)
    filled.close()
    old.write_bytes(b"garbage" * 1000)
    for suffix in ("-wal", "-shm"):
        old.with_name(old.name + suffix).unlink(missing_ok=True)
    again = opened()
    assert again.search("harbour").degraded == ("index",)
    result = again.rebuild()
    assert not result.compared and result.n_runs == 6
    assert again.search("harbour").degraded == () and found(again) == before


def test_an_index_of_an_older_version_is_made_anew(filled, opened):
    filled.index().db.pragma("user_version", store.SCHEMA - 1)
    filled.close()
    again = opened()
    assert not again.rebuild().compared
    assert len(found(again)) == 6


def test_without_any_index_it_is_simply_made(filled, opened):
    filled.close()
    for path in filled.path.glob("index*"):
        path.unlink()
    again = opened()
    assert not again.rebuild().compared
    assert len(found(again)) == 6


def test_only_one_rebuilds_at_a_time(filled, opened):
    other = opened()

    def second(_runs, _bytes):
        with pytest.raises(Busy):
            other.rebuild()

    filled.rebuild(progress=second)


def test_what_is_captured_during_a_rebuild_is_found_after_it(filled, opened, message):
    other = opened()

    def capture(_runs, _bytes):
        other.capture(message("user", "harbour at the last moment", 50), runtime="messages", session="late")

    filled.rebuild(progress=capture)
    assert len(found(filled)) == 7
