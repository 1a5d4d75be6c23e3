"""Scores added up in arrays are those of FTS5, chunk by chunk, whatever was written, deleted and asked."""

import random
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import IndexDamaged
from perdure.index import keyword, postings
from perdure.index.store import IndexConnection, TemporaryIndex
from perdure.index.write import delete_chunks
from perdure.types import Filters, Live
from rig.index_rows import ADA, START, IndexFile, make_memory, reply, say

WORDS = ["wal", "mode", "error", "port 8080", "src/app.py", "retry", "retries", "Straße", "数据库", "z1z", "the"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
PHRASES = ['"wal mode"', '"数据库"', '"数据库 wal"', '"据库。"']
QUERIES = st.lists(st.sampled_from([*WORDS, *PHRASES, "nowhere", "—"]), min_size=1, max_size=5).map(" ".join)
FILTERS = (
    Filters(memories=True),
    Filters(),
    Filters(roles=("user",)),
    Filters(conversations=("s0",)),
    Filters(held=(Live("s1", START),)),
    Filters(since_at=START),
)


def find(index: IndexConnection, query: str, filters: Filters, limit: int, *, in_arrays: bool):
    """Return the best chunk of each of the best turns as the search finds them: (turn, chunk, score)."""
    index._n_scored = 10 if in_arrays else -10
    with index.begin_read():
        found = keyword.find_candidates(index, ADA, query, filters=filters, limit=limit).scored
    best = {}
    for item in found:
        best.setdefault(item.turn, (item.turn, item.chunk, item.score))
    return list(best.values())[:limit]


def assert_same(index, query, *, limit=5, filters=FILTERS):
    for each in filters:
        expected = find(index, query, each, limit, in_arrays=False)
        if any(score == 0.0 for _, _, score in expected):
            continue  # FTS5 scores a chunk 0 if a phrase beside its words stands nowhere
        assert find(index, query, each, limit, in_arrays=True) == expected, (query, each)


@settings(deadline=None, max_examples=60)
@given(st.lists(TEXTS, min_size=1, max_size=40), st.lists(QUERIES, min_size=1, max_size=4), st.integers(0, 9))
def test_arrays_find_what_fts5_finds(texts, queries, budget):
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyword, "BUDGET_MIN", budget)  # so that terms are rare, common and dropped
        file = IndexFile(Path(folder))
        with closing(file):
            for n in range(3):
                made = [(say if i % 2 else reply)(text) for i, text in enumerate(texts[n::3])]
                if made:
                    file.add_run(f"s{n}", *made)
            file.add_memories(make_memory("the port 8080 retry", "server/port"))
            for query in queries:
                assert_same(file.index, query, limit=60)
            with file.index.begin_write():
                delete_chunks(file.index, 1)
            file.add_run("s9", say(texts[0]), say("retry wal"))
            for query in queries:
                assert_same(file.index, query, limit=60)


def test_many_chunks_that_tie_or_do_not_pass_are_looked_through(file, monkeypatch):
    """More than the best are read where the best are all of another role, and ties stand in the order of FTS5."""
    monkeypatch.setattr(keyword, "_N_EXTRA", 2)
    monkeypatch.setattr(keyword, "BUDGET_MIN", 1000)
    rng = random.Random(3)
    file.add_run(
        "s1", *(reply("mast " * rng.randint(1, 3)) for _ in range(60)), say("the mast of a far ship in the bay")
    )
    everyone, people = Filters(), Filters(roles=("user",))
    assert_same(file.index, "mast", limit=2, filters=(everyone, people))
    ((_, _, score),) = find(file.index, "mast", people, 2, in_arrays=True)
    assert score < find(file.index, "mast", everyone, 2, in_arrays=True)[0][2]


def test_lengths_of_many_new_chunks_are_read_beside_the_search(file, monkeypatch):
    monkeypatch.setattr(postings, "_READ_AT_ONCE", 2)
    file.add_run("s1", *(say(f"mast {'red ' * n}") for n in range(7)))
    expected = find(file.index, "mast", Filters(), 9, in_arrays=False)
    scored = []
    real = postings.PlanScorer._read_words
    monkeypatch.setattr(postings.PlanScorer, "_read_words", lambda *arguments: scored.append(1) or real(*arguments))
    assert find(file.index, "mast", Filters(), 9, in_arrays=True) == expected and not scored
    wait_until_read(file.index)
    assert find(file.index, "mast", Filters(), 9, in_arrays=True) == expected and scored
    file.add_run("s2", say("mast of another day"))  # one more is read at once
    assert_same(file.index, "mast", limit=9)


def wait_until_read(index):
    for _ in range(1000):
        if not index.chunk_lengths._is_reading:
            return
        postings.threading.Event().wait(0.01)
    raise AssertionError("still reading")


def test_connections_to_one_file_share_lengths_and_other_files_have_their_own(file, tmp_path):
    file.add_run("s1", say("red mast"))
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    other = IndexFile(other_folder)
    with closing(other), closing(IndexConnection(file.index.path, writable=False)) as reader:
        other.add_run("s1", say("red mast of the other ship, much longer"))
        for index in (file.index, reader, other.index):
            assert_same(index, "mast")
        assert reader.chunk_lengths is file.index.chunk_lengths is not other.index.chunk_lengths


def test_a_process_that_asks_once_or_twice_keeps_no_lengths(file):
    file.add_run("s1", say("red mast"))
    for n in range(4):
        with file.index.begin_read():
            for _ in range(3):  # several questions of one message
                keyword.find_candidates(file.index, ADA, "mast", filters=Filters(), limit=5)
        assert (file.index.chunk_lengths is not None) == (n >= 2)
    assert not TemporaryIndex().count_scoring()


def test_fts5_scores_where_common_words_stand_in_very_many_chunks(file, monkeypatch):
    """It passes over most of them, where a list would have them all."""
    file.add_run("s1", *(say(f"mast number{n} {'red' * (n % 5 == 0)}") for n in range(30)), say("red oar"))
    monkeypatch.setattr(keyword, "BUDGET_MIN", 5)
    for most, is_listed in ((5, False), (100, True)):
        monkeypatch.setattr(keyword, "MAX_LISTED_CHUNKS", most)
        file.index.chunk_lengths = None
        assert_same(file.index, "oar red", filters=(Filters(),))
        assert (file.index.chunk_lengths is not None) == is_listed


def test_words_of_a_chunk_that_has_no_length_are_damage(file):
    """FTS5 says so too; the search then goes through the archive."""
    with file.index.begin_write() as db:
        db.execute("INSERT INTO sqlite_sequence(name, seq) VALUES ('chunk', 5000)")
    file.add_run("s1", say("red mast"))
    file.index.db.execute("DELETE FROM words_1_docsize")
    for in_arrays in (False, True):
        with pytest.raises(IndexDamaged):
            find(file.index, "mast", Filters(), 5, in_arrays=in_arrays)


def test_search_after_a_rollback_still_knows_where_words_stand(file):
    """The rollback of a snapshot takes what was made in TEMP tables with it."""
    file.add_run("s1", say("red mast"))
    file.index._n_scored = 10
    with pytest.raises(RuntimeError), file.index.begin_read():
        keyword.find_candidates(file.index, ADA, "mast", filters=Filters(), limit=5)
        raise RuntimeError
    assert_same(file.index, "mast")
