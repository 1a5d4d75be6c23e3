import numpy as np
import pytest

from perdure.recall.fuse import choose_feedback_terms, compute_rarity, list_feedback_words, move_queries


def test_terms_are_worked_out_by_hand():
    """Two hits of 2 and 4 words. oak: 1/2 + 1/4 = 0.75; elm: 1/2; ash, fir, yew: 1/4. Rarity 1 each but fir, 4:
    fir 1.0, oak 0.75, elm 0.5, then ash and yew with 0.25 by name.
    """
    found = choose_feedback_terms(["oak elm", "oak ash fir yew"], [], lambda word: 4.0 if word == "fir" else 1.0)
    assert found == ["fir", "oak", "elm", "ash", "yew"]


def test_asked_and_ubiquitous_terms_are_left_out():
    assert choose_feedback_terms(["oak elm ash"], ["oak"], lambda word: 0.0 if word == "elm" else 1.0) == ["ash"]
    assert list_feedback_words(["the oak and the elm"], ["oak"]) == ["elm"]


def test_rarity_is_worked_out_by_hand():
    """ln(100 / 10) = 2.302585; what is everywhere says nothing; what nobody said counts half a sighting: ln 200."""
    assert compute_rarity(10, 100) == pytest.approx(2.302585, abs=1e-6)
    assert compute_rarity(100, 100) == 0.0
    assert compute_rarity(0, 100) == pytest.approx(5.298317, abs=1e-6)
    assert compute_rarity(0, 0) == 0.0


def test_a_moved_vector_by_hand():
    """(1, 0) + 1 · mean((0, 1), (0, 1)) = (1, 1), at length 1 (0.7071, 0.7071)."""
    query = np.array([[1.0, 0.0]], dtype=np.float32)
    best = [np.array([0.0, 1.0], dtype=np.float32)] * 2
    assert move_queries(query, best, share=1.0) == pytest.approx(np.array([[0.70710678, 0.70710678]]), abs=1e-6)
    assert move_queries(query, best, share=0.0) is query
