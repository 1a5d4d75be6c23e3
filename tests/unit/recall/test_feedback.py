import numpy as np
import pytest

from perdure.recall.feedback import moved, rarity, terms, words


def test_terms_by_hand():
    """Two hits of 2 and 4 words. oak: 1/2 + 1/4 = 0.75; elm: 1/2; ash, fir, yew: 1/4. Rarity 1 each but fir, 4:
    fir 1.0, oak 0.75, elm 0.5, then ash and yew with 0.25 by name.
    """
    found = terms(["oak elm", "oak ash fir yew"], [], lambda word: 4.0 if word == "fir" else 1.0)
    assert found == ["fir", "oak", "elm", "ash", "yew"]


def test_what_was_asked_for_and_what_is_everywhere_is_left_out():
    assert terms(["oak elm ash"], ["oak"], lambda word: 0.0 if word == "elm" else 1.0) == ["ash"]
    assert words(["the oak and the elm"], ["oak"]) == ["elm"]


def test_rarity_by_hand():
    """ln(100 / 10) = 2.302585; what is everywhere says nothing; what nobody said counts half a sighting: ln 200."""
    assert rarity(10, 100) == pytest.approx(2.302585, abs=1e-6)
    assert rarity(100, 100) == 0.0
    assert rarity(0, 100) == pytest.approx(5.298317, abs=1e-6)
    assert rarity(0, 0) == 0.0


def test_a_moved_vector_by_hand():
    """(1, 0) + 1 · mean((0, 1), (0, 1)) = (1, 1), at length 1 (0.7071, 0.7071)."""
    query = np.array([[1.0, 0.0]], dtype=np.float32)
    best = [np.array([0.0, 1.0], dtype=np.float32)] * 2
    assert moved(query, best, share=1.0) == pytest.approx(np.array([[0.70710678, 0.70710678]]), abs=1e-6)
    assert moved(query, best, share=0.0) is query
