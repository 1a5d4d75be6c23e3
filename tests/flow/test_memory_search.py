"""Memories found from Python: by words, by path and by meaning, and what a rebuild makes of their vectors."""

from __future__ import annotations

import pytest

from perdure.errors import UsageError
from perdure.home import Home
from perdure.testing import FakeEmbedder

KEPT = {
    "boat/mooring": "we moor at the northern quay",
    "tower/lantern": "the lantern is lit at dusk",
    "index/engine": "sqlite was chosen for the index",
}


@pytest.fixture
def home(opened) -> Home:
    """Three memories and their vectors; to the fake model texts are near that share words."""
    made = opened(embedder=FakeEmbedder())
    for path, text in KEPT.items():
        made.remember(text, path=path)
    made.upkeep.embed()
    return made


def texts(home: Home, query: str, **how: object) -> list[str]:
    return [hit.memory.text for hit in home.memories.search(query, **how)]  # type: ignore[arg-type]


def test_meaning_finds_memories_without_common_words(home: Home, opened) -> None:
    """Nothing names a zebra, and other words are too common to look up; the fake model hears "we" and "at"."""
    plain = opened("plain")
    plain.remember(KEPT["boat/mooring"], path="boat/mooring")
    assert texts(plain, "zebras, we at") == []
    assert texts(home, "zebras, we at", limit=1) == [KEPT["boat/mooring"]]


def test_scores_fall_and_no_turn_is_returned(home: Home, message) -> None:
    home.capture(message("user", "the northern quay is full of turns"), runtime="messages", session="s")
    home.upkeep.embed()
    found = home.memories.search("northern quay")
    scores = [hit.score for hit in found]
    assert found[0].memory.text == "we moor at the northern quay" and scores == sorted(scores, reverse=True)
    assert all(hit.memory.memory_id.startswith("mem-") for hit in found)


def test_each_hit_has_the_parts_of_its_score(home: Home) -> None:
    """Both legs found the first; by words alone the score is that of the words, and there is no cosine."""
    first = home.memories.search("northern quay")[0]
    assert first.keyword_score and first.vector_score and first.score
    (by_words,) = home.memories.search("northern", mode="keyword")
    assert by_words.vector_score is None and by_words.keyword_score == by_words.score


def test_a_limit_has_to_be_one_or_more(home: Home) -> None:
    with pytest.raises(UsageError):
        home.memories.search("quay", limit=0)


def test_a_rebuild_proves_the_vectors_of_memories(home: Home) -> None:
    done = home.upkeep.rebuild()
    assert done.compared and done.same_digest and list(done.differing_vectors) == []
    assert texts(home, "northern quay", limit=1) == ["we moor at the northern quay"]
