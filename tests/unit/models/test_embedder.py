"""Careful: another try where that helps, an error that says what to do where not. No waiting: time is given."""

import numpy as np
import pytest

from perdure.errors import DimensionMismatch, ModelBusy, ModelNonsense, ModelRefused, TextRefused
from perdure.models.embedder import ModelTag, TruncatingEmbedder, ValidatingEmbedder
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
