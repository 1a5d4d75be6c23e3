"""The two tiers that are carried along: vectors as recorded, so that a new runtime that changes them is seen."""

import json
from pathlib import Path

import numpy as np
import pytest

from perdure.models.embedder import to_unit_length
from perdure.models.local_embedders import MINILM_MAX_TOKENS, MiniLM, StaticEmbedder, decode_table

GOLDEN = Path(__file__).parents[2] / "data" / "vectors.json"


@pytest.mark.parametrize("model", [MiniLM, StaticEmbedder])
def test_vectors_equal_the_recorded_ones(built, model):
    """tests/data/vectors.json holds six texts and the float32 vectors of the original models (make_vectors_golden.py).

    int8 moves them a little: cosine at least 0.975 for MiniLM (activations are int8 too), 0.9999 for the table.
    """
    golden = json.loads(GOLDEN.read_text())
    found = model().embed(golden["texts"], "document")
    cosines = (found * to_unit_length(np.array(golden[model.__name__.removesuffix("Embedder")]))).sum(axis=1)
    assert cosines.min() > (0.975 if model is MiniLM else 0.9999), cosines


def test_more_threads_give_nearly_equal_vectors(built):
    texts = ["The node refused the connection.", "long " * 300]
    one, two = (MiniLM(threads=n).embed(texts, "document") for n in (1, 2))
    assert np.abs(one - two).max() < 1e-3


def test_minilm_reads_256_tokens(built):
    head = "word " * (MINILM_MAX_TOKENS - 2)
    model = MiniLM(threads=1)
    found = model.embed([head, head + "and then something else entirely"], "document")
    assert np.array_equal(found[0], found[1])


def test_the_static_table_by_hand():
    """Two rows of three numbers: scales 0.5 and 2, so (1, -2, 127) * 0.5 and (0, 1, -127) * 2."""
    raw = np.array([2, 3], "<u4").tobytes() + np.array([0.5, 2], "<f4").tobytes()
    raw += np.array([1, -2, 127, 0, 1, -127], np.int8).tobytes()
    assert decode_table(raw).tolist() == [[0.5, -1.0, 63.5], [0.0, 2.0, -254.0]]


def test_unknown_words_give_no_vector(built):
    found = StaticEmbedder().embed(["\U0001fabf \U0001fabd", "hello \U0001fabf"], "document")
    assert not found[0].any() and found[1].any()
