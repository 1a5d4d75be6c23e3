"""Vectors: length 1, shorter, int8 and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perdure.models.embedder import hash_text, quantise, restore, shorten, to_unit_length

ROWS = arrays(np.float32, (3, 8), elements=st.floats(-(2.0**100), 2.0**100, width=32))


def test_unit_is_worked_out_by_hand():
    """|(3, 4)| = 5, so (0.6, 0.8); zeros have no direction and stay."""
    assert to_unit_length(np.array([[3.0, 4.0], [0.0, 0.0]])) == pytest.approx(np.array([[0.6, 0.8], [0, 0]]))


def test_shorten_is_worked_out_by_hand():
    """(3, 4, 12)/13 cut to (3, 4)/13, whose length is 5/13: (0.6, 0.8)."""
    whole = to_unit_length(np.array([[3.0, 4.0, 12.0]]))
    assert shorten(whole, 2)[0] == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("dimension", [0, -1, 4])
def test_shorten_refuses_an_invalid_dimension(dimension):
    with pytest.raises(ValueError):
        shorten(np.ones((1, 3), np.float32), dimension)


def test_shortened_matryoshka_vector_keeps_its_ranking():
    """X27: a model that puts what matters first. 768 of 4,096 numbers: length 1, 9 of the 10 nearest are the same."""
    rng = np.random.default_rng(7)
    weights = np.exp(-np.arange(4096) / 300)  # what the training does: early numbers carry most
    whole = to_unit_length(rng.standard_normal((400, 4096)) * weights)
    small = shorten(whole, 768)
    assert np.linalg.norm(small, axis=1) == pytest.approx(np.ones(400), abs=1e-6)

    def nearest(vectors):
        return np.argsort(-(vectors[:40] @ vectors.T), axis=1)[:, 1:11]

    kept = np.mean([len(set(a) & set(b)) for a, b in zip(nearest(whole), nearest(small), strict=True)])
    assert kept >= 9


def test_quantise_is_worked_out_by_hand():
    """The largest, -1, becomes -127, so a step is 1/127; 0.5 is 63.5 steps, rounded to even: 64."""
    small = quantise(np.array([[0.5, -1.0, 0.0]], np.float32))
    assert small.values.tolist() == [[64, -127, 0]] and small.scales == pytest.approx([1 / 127])


@given(ROWS)
def test_unit_has_length_one_or_zero(rows):
    lengths = np.linalg.norm(to_unit_length(rows).astype(np.float64), axis=1)
    assert all(abs(n - 1) < 1e-6 or n == 0 for n in lengths)


@given(ROWS)
def test_int8_is_off_by_half_a_step(rows):
    vectors = to_unit_length(rows)
    small = quantise(vectors)
    off = np.abs(small.values * small.scales[:, None] - vectors)
    assert (off <= small.scales[:, None] * 0.5001).all()
    assert np.abs(small.values.astype(int)).max() <= 127


@given(ROWS)
def test_quantising_twice_changes_nothing(rows):
    once = restore(quantise(to_unit_length(rows)))
    assert np.array_equal(quantise(once).values, quantise(to_unit_length(rows)).values)


def test_empty_input_gives_no_rows():
    none = np.zeros((0, 4), np.float32)
    assert to_unit_length(none).shape == (0, 4) and restore(quantise(none)).shape == (0, 4)


def test_texts_are_told_apart_by_their_bytes():
    assert hash_text("a") != hash_text("a ") and len(hash_text("\ud800")) == 32
