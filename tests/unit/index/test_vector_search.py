"""Vectors beside the words: slabs are filled once, both legs meet in one ranking, and nobody sees another's chunks."""

from datetime import timedelta

import numpy as np
import pytest
from msgspec.structs import replace

from perdure.errors import TextRefused, VectorsMissing
from perdure.index import embed, vector_search, visibility
from perdure.index.vector_search import SlabFiles, VectorSpace
from perdure.recall.index_candidates import IndexCandidates
from perdure.recall.search import plan_search, search
from perdure.recall.tuning import DEFAULT, REFERENCE
from perdure.testing import FakeEmbedder
from perdure.types import Filters, Live, Part
from rig.index_rows import ADA, START, make_memory, reply, say, share

EMBEDDER = FakeEmbedder(dimension=32)


class Space:
    """The slab of one user, filled by a fake model."""

    def __init__(self, file, user="ada"):
        self.file, self.files = file, SlabFiles(file.folder)
        number = file.index.find_name("user", user)
        with file.index.begin_write():
            self.info = vector_search.find_or_add_slab(file.index, number, EMBEDDER.tag.key, 32)
        self.texts = []

    def embed(self, texts, lane):
        self.texts += texts
        return EMBEDDER.embed(texts, "document")

    def fill(self, **limits):
        result = embed.fill_slab(self.file.index, self.files, self.info, self.embed, **limits)
        self.info = vector_search.find_slab(self.file.index, self.info.user, self.info.tag)
        return result

    def open(self):
        return VectorSpace(self.info, self.files.open_slab(self.file.index, self.info))

    def ask(self, text):
        return EMBEDDER.embed([text], "query")


@pytest.fixture
def runs(file):
    file.add_run("s", say("the red buoy"), say("a blue mast", minute=5), reply("an anchor", minute=6), tags=("open",))
    file.add_run("t", say("the red mast", minute=9), conversation="c2")
    return file


def find(file, space, query, *, principal=ADA, k=9, **filters):
    """The words of the nearest chunks."""
    scope = visibility.get_read_scope(file.index, principal)
    vector = EMBEDDER.embed([query], "query")
    with file.index.begin_read():
        (pairs,) = space.open().find_nearest(file.index, vector, filters=Filters(**filters), k=k, read_scope=scope)
    texts = dict(file.index.select("SELECT id, text FROM chunk_text"))
    return [texts[chunk] for chunk, _ in pairs]


def test_each_chunk_is_embedded_once(runs):
    space = Space(runs)
    assert (space.fill().n_done, space.fill().n_done) == (4, 0)
    assert len(space.texts) == 4 and space.info.is_complete and embed.count_missing(runs.index, space.info) == 0
    runs.add_run("u", say("a new buoy"))
    assert embed.count_missing(runs.index, space.info) == 1
    assert space.fill().n_done == 1 and len(space.texts) == 5


def test_filling_in_parts_gives_the_same_vectors(runs):
    space = Space(runs)
    done = [space.fill(max_chunks=1).n_done for _ in range(5)]
    assert done == [1, 1, 1, 1, 0]
    assert set(find(runs, space, "red buoy")) == {"the red buoy", "a blue mast", "an anchor", "the red mast"}
    assert find(runs, space, "the red buoy", k=1) == ["the red buoy"]


def test_text_without_a_vector_is_recorded_and_not_tried_again(runs):
    """Zeros, or a refusal of the model, mean that there is none."""
    space = Space(runs)
    calls = []

    def refuse(texts, lane):
        calls.append(len(texts))
        if len(texts) == 1 and "anchor" in texts[0]:
            raise TextRefused("anchor")
        if any("anchor" in text for text in texts):
            raise TextRefused("one of them")
        vectors = EMBEDDER.embed(texts, "document")
        vectors[[n for n, text in enumerate(texts) if "blue" in text]] = 0
        return vectors

    space.embed = refuse
    result = space.fill()
    assert (result.n_done, result.n_refused) == (4, 2)
    n_calls = len(calls)
    assert space.fill().n_done == 0 and len(calls) == n_calls
    assert set(find(runs, space, "mast")) == {"the red buoy", "the red mast"}


def test_chunk_that_goes_while_it_is_embedded_gets_no_vector(runs):
    space = Space(runs)

    def embed_late(texts, lane):
        runs.add_run("t", say("the green mast", minute=9), conversation="c2")  # in the place of the red mast
        return EMBEDDER.embed(texts, "document")

    space.embed = embed_late
    space.fill(max_chunks=4)
    assert runs.index.select("SELECT count(*) FROM vector WHERE chunk NOT IN (SELECT id FROM chunk)") == [(0,)]
    assert "the red mast" not in find(runs, space, "the red mast")


def test_deleted_chunk_is_no_longer_near(runs):
    space = Space(runs)
    space.fill()
    runs.add_run("t", say("the green mast", minute=9), conversation="c2")
    assert "the red mast" not in find(runs, space, "the red mast")
    space.fill()
    assert "the green mast" in find(runs, space, "the red mast")
    assert embed.has_removed_vectors(runs.index)
    assert embed.wipe_removed(runs.index, space.files) == 1 and embed.wipe_removed(runs.index, space.files) == 0


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"roles": ("assistant",)}, {"an anchor"}),
        ({"conversations": ("c2",)}, {"the red mast"}),
        ({"tags": ("open",)}, {"the red buoy", "a blue mast", "an anchor"}),
        ({"tags": ("none",)}, set()),
        ({"since_at": START + timedelta(minutes=6)}, {"an anchor", "the red mast"}),
        ({"until_at": START + timedelta(minutes=5)}, {"the red buoy"}),
        ({"begun_since_at": START + timedelta(minutes=9)}, {"the red mast"}),
        ({"held": (Live("s", START + timedelta(minutes=5)),)}, {"the red buoy", "the red mast"}),
        ({"files": ("a.py",)}, set()),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_nearest_chunks_pass_the_filters(runs, filters, expected):
    space = Space(runs)
    space.fill()
    assert set(find(runs, space, "red buoy mast", **filters)) == expected


def test_memory_is_near_only_when_memories_are_wanted(runs):
    runs.add_memories(make_memory("the green buoy", "buoy"))
    space = Space(runs)
    space.fill()
    assert "the green buoy" not in find(runs, space, "the green buoy")
    assert find(runs, space, "the green buoy", memories=True)[0] == "the green buoy"


def test_slab_of_another_owner_gives_only_what_is_shared(runs):
    space = Space(runs)
    space.fill()
    reader = share("tag", "open")
    assert set(find(runs, space, "red mast", principal=reader)) == {"the red buoy", "a blue mast", "an anchor"}


# both legs ------------------------------------------------------------------------------------------------------


def search_turns(file, space, query, **options):
    """Text -> its place in a search by words and meaning."""
    candidates = IndexCandidates(file.index, ADA, Filters(), space.open())
    with file.index.begin_read():
        scores = search(candidates, plan_search(query, now=START), space.ask(query), limit=9, **options)
        hits = candidates.read_hits({score.turn_id: score.score for score in scores})
    return dict(zip([hit.text for hit in hits], scores, strict=True))


def test_turn_that_one_leg_alone_finds_is_in_the_ranking(runs):
    """ "buoy" is a word of one turn; its vector is near to the turns that share other words with the query."""
    space = Space(runs)
    space.fill()
    by_text = search_turns(runs, space, "red buoy")
    assert set(by_text) == {"the red buoy", "a blue mast", "an anchor", "the red mast"}
    assert next(iter(by_text)) == "the red buoy"
    assert by_text["an anchor"].bm25 is None and by_text["an anchor"].cosine is not None
    assert by_text["the red mast"].bm25 is not None


def test_score_of_both_legs_is_worked_out_by_hand(runs):
    """Rows X08 to X11: BM25 by its range over the candidates, cosines cut to [0, 1], 0.7 and 0.3."""
    space = Space(runs)
    space.fill()
    by_text = search_turns(runs, space, "red buoy", tuning=replace(REFERENCE, unsaid=0.0, programmed=0.0))
    bm25 = [score.bm25 for score in by_text.values() if score.bm25 is not None]
    for score in by_text.values():
        by_words = 0.0 if score.bm25 is None else (score.bm25 - min(bm25)) / (max(bm25) - min(bm25))
        assert score.legs == pytest.approx(0.3 * by_words + 0.7 * min(1, max(0, score.cosine)), abs=1e-9)


def test_turn_without_a_vector_is_found_by_its_words(runs):
    space = Space(runs)
    space.fill(max_chunks=1)
    by_text = search_turns(runs, space, "red")
    assert {text for text, score in by_text.items() if score.bm25 is not None} == {"the red buoy", "the red mast"}


def test_longer_list_begins_with_the_shorter_one(file):
    file.add_run("s", *(say(f"buoy {n % 7} of {n}", minute=n) for n in range(40)))
    space = Space(file)
    space.fill()
    candidates = IndexCandidates(file.index, ADA, Filters(), space.open())
    with file.index.begin_read():
        lists = [
            search(candidates, plan_search("buoy 3", now=START), space.ask("buoy 3"), limit=limit,
                   tuning=replace(DEFAULT, pool=5))
            for limit in (5, 30)
        ]  # fmt: skip
    assert len(lists[1]) == 40 and lists[1][: len(lists[0])] == lists[0]
    assert [score.score for score in lists[1]] == sorted((score.score for score in lists[1]), reverse=True)


def test_missing_slab_file_is_reported(runs):
    space = Space(runs)
    space.fill()
    space.open().slab.remove()
    with pytest.raises(VectorsMissing):
        search_turns(runs, space, "red")


def test_vectors_of_turns_are_one_for_each_chunk(runs):
    call = Part("call", "{}", "ls")
    runs.add_run("u", say("two chunks", call, minute=20))
    space = Space(runs)
    space.fill()
    ((turn,),) = runs.index.select("SELECT turn FROM chunk JOIN chunk_text USING (id) WHERE text = 'two chunks'")
    turns, vectors = space.open().fetch_of_turns(runs.index, [turn, 99])
    assert set(turns) == {turn} and vectors.shape == (len(turns), 32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=0.02)  # int8 and back
