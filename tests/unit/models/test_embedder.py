"""Embedders that try again or shorten, and vectors: length 1, int8 and back. Time is a parameter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from perdure.errors import DimensionMismatch, ModelBusy, ModelNonsense, ModelRefused, TextRefused
from perdure.models.embedder import (
    ModelTag,
    TruncatingEmbedder,
    ValidatingEmbedder,
    hash_text,
    quantise,
    restore,
    shorten,
    to_unit_length,
)
from perdure.testing import FakeEmbedder

BUSY = ModelBusy("503")
NAN = np.full((1, 64), np.nan, np.float32)


def careful(*answers):
    slept = []
    fake = FakeEmbedder(answers=answers)
    return ValidatingEmbedder(fake, sleep=slept.append), fake, slept


def test_a_tag_shows_name_and_dimension():
    tag = ModelTag("qwen3-embedding-8b", 768, "ab12")
    assert str(tag) == "qwen3-embedding-8b@768" and tag.key == "qwen3-embedding-8b@768#ab12"


def test_a_busy_model_is_asked_three_times():
    """X40: 500 ms, then 1,500 ms."""
    embedder, fake, slept = careful(BUSY, BUSY)
    assert embedder.embed(["a"], "query").shape == (1, 64)
    assert slept == [0.5, 1.5] and len(fake.asked) == 3


def test_a_model_that_stays_busy_is_given_up():
    embedder, fake, slept = careful(BUSY, BUSY, BUSY)
    with pytest.raises(ModelBusy):
        embedder.embed(["a"], "query")
    assert slept == [0.5, 1.5] and len(fake.asked) == 3


@pytest.mark.parametrize("error", [ModelRefused("401"), ModelNonsense("x"), TextRefused("400")])
def test_permanent_error_is_not_retried(error):
    embedder, fake, slept = careful(error)
    with pytest.raises(type(error)):
        embedder.embed(["a"], "document")
    assert slept == [] and len(fake.asked) == 1


def test_nan_once_is_mended_by_the_prefix():
    """X40: only the text that came out wrong is asked again, with 'passage: ' before it."""
    answer = FakeEmbedder().embed(["one", "two"], "document").copy()
    answer[1] = np.nan
    embedder, fake, _ = careful(answer)
    found = embedder.embed(["one", "two"], "document")
    assert fake.asked[1] == (("passage: two",), "document")
    assert np.array_equal(found[1], FakeEmbedder().embed(["passage: two"], "document")[0])
    assert np.isfinite(found).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_text_that_stays_nan_is_refused(bad):
    wrong = np.full((1, 64), bad, np.float32)
    embedder, fake, _ = careful(wrong, wrong)
    with pytest.raises(TextRefused, match="fake@64"):
        embedder.embed(["a"], "document")
    assert len(fake.asked) == 2


def test_another_length_is_an_error_that_names_the_setting():
    embedder, _, _ = careful(np.ones((1, 32), np.float32))
    with pytest.raises(DimensionMismatch, match=r"32 numbers.*models\.embedder\.dimension"):
        embedder.embed(["a"], "query")


@pytest.mark.parametrize("shape", [(2, 64), (64,), (0, 64)])
def test_another_number_of_vectors_is_nonsense(shape):
    embedder, _, _ = careful(np.ones(shape, np.float32))
    with pytest.raises(ModelNonsense):
        embedder.embed(["a"], "query")


def test_answers_get_length_one():
    embedder, _, _ = careful(np.full((1, 64), 7, np.float32))
    assert np.linalg.norm(embedder.embed(["a"], "query")) == pytest.approx(1)


def test_no_texts_send_no_request():
    embedder, fake, _ = careful()
    assert embedder.embed([], "query").shape == (0, 64) and fake.asked == []


def test_shortened_embedder_has_its_own_tag_and_length():
    embedder = TruncatingEmbedder(FakeEmbedder(), 16)
    assert str(embedder.tag) == "fake@16" and embedder.tag.sha == FakeEmbedder().tag.sha
    found = embedder.embed(["a b"], "document")
    assert found.shape == (1, 16) and np.linalg.norm(found) == pytest.approx(1)
    with pytest.raises(DimensionMismatch):
        TruncatingEmbedder(FakeEmbedder(), 65)


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
