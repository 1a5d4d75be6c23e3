"""Fusion by hand, and the words that are embedded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.index.encoding import build_embedded_text, hash_embedded_text
from perdure.index.hybrid import fuse_legs
from perdure.models.embedder import hash_text


def test_fusion_is_worked_out_by_hand():
    """Words 6 and 2, and 0 for turn 3: (1, 1/3, 0). Meaning 0.1 and 0.5, turn 2 has no vector and gets their mean
    0.3: (0, 1/2, 1). Halved and added: 1/2, 1/6 + 1/4 = 5/12, 1/2.
    """
    found = fuse_legs({1: 6.0, 2: 2.0}, {1: 0.1, 3: 0.5}, weight=0.5)
    assert {turn: score.fused for turn, score in found.items()} == pytest.approx({1: 1 / 2, 2: 5 / 12, 3: 1 / 2})
    assert found[2].vector is None and found[3].keyword is None and found[1][1:] == (6.0, 0.1)


def test_cosine_is_the_score_without_keyword_hits():
    assert {t: s.fused for t, s in fuse_legs({}, {1: 0.4, 2: -0.1}, weight=0.5).items()} == {1: 0.4, 2: -0.1}


def test_keyword_order_stands_without_vectors():
    found = fuse_legs({1: 3.0, 2: 9.0, 3: 6.0}, {}, weight=0.5)
    assert sorted(found, key=lambda turn: -found[turn].fused) == [2, 3, 1]


LEGS = st.dictionaries(st.integers(1, 30), st.floats(-1, 20, allow_nan=False), max_size=12)


@given(words=LEGS, meaning=LEGS, weight=st.floats(0, 1), seed=st.randoms())
def test_fusion_ignores_order_and_loses_nothing(words, meaning, weight, seed):
    found = fuse_legs(words, meaning, weight=weight)
    assert set(found) == set(words) | set(meaning)
    shuffled = list(words.items())
    seed.shuffle(shuffled)
    assert fuse_legs(dict(shuffled), meaning, weight=weight) == found


def test_chunk_is_worded_with_its_speaker():
    assert build_embedded_text("agent", "assistant", None, "Noted.") == "assistant: Noted."
    assert build_embedded_text("agent", "assistant", 0, "x" * 1000) == "[1 January 1970] assistant: " + "x" * 150
    assert build_embedded_text("person", "user", 0, "y" * 3000).endswith("y" * 3000)


@given(st.text())
def test_words_are_named_as_the_cache_names_them(words):
    assert hash_embedded_text(words) == hash_text(words)
