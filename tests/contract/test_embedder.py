"""The contract of the socket `Embedder`: the fake, every real implementation and every wrapper keep it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.models import local_embedders
from perdure.models.embedder import Embedder, TruncatingEmbedder, ValidatingEmbedder
from perdure.models.lanes import EmbeddingLanes
from perdure.models.remote_embedder import EmbeddingEndpoint, RemoteEmbedder
from perdure.models.store import CachingEmbedder, VectorCache
from perdure.testing import FakeEmbedder

_spec = importlib.util.spec_from_file_location("http_embedder", Path(__file__).parents[1] / "http_embedder.py")
assert _spec and _spec.loader
_http = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_http)

KINDS = ("fake", "minilm", "static", "openai", "ollama", "shortened", "cached", "lane")
TEXTS = ["why did the cluster fail", "The node refused the connection.", "数据库 is down 👍", "x" * 5000, "a b"]


def _need(name: str) -> None:
    if not local_embedders.has_weights(name):
        pytest.skip("no weights here: `make weights`")


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    endpoint = _http.Endpoint()
    yield endpoint
    endpoint.close()


@pytest.fixture(scope="module", params=KINDS)
def embedder(
    request: pytest.FixtureRequest, server: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Embedder]:
    lanes = EmbeddingLanes(ValidatingEmbedder(FakeEmbedder()), item_chars=20)
    folder = tmp_path_factory.mktemp("cache")
    yield lanes.to_embedder("bulk") if request.param == "lane" else made(request.param, server.url, folder)
    lanes.close()


def made(kind: str, url: str, folder: Path) -> Embedder:
    if kind == "minilm":
        pytest.importorskip("onnxruntime")
        _need(local_embedders.MINILM_MODEL)
        return ValidatingEmbedder(local_embedders.MiniLM(threads=1))
    if kind == "static":
        _need(local_embedders.STATIC_TABLE)
        return ValidatingEmbedder(local_embedders.StaticEmbedder())
    if kind in ("openai", "ollama"):
        return ValidatingEmbedder(RemoteEmbedder(EmbeddingEndpoint(kind, url, "fake", 64)))
    if kind == "shortened":
        return TruncatingEmbedder(ValidatingEmbedder(FakeEmbedder()), 32)
    if kind == "cached":
        return CachingEmbedder(ValidatingEmbedder(FakeEmbedder()), VectorCache(folder / "embeddings.db"))
    return ValidatingEmbedder(FakeEmbedder())


def test_one_row_of_length_one_a_text(embedder: Embedder) -> None:
    found = embedder.embed(TEXTS, "document")
    assert found.shape == (len(TEXTS), embedder.tag.dimension) and found.dtype == np.float32
    lengths = np.linalg.norm(found, axis=1)
    assert all(abs(n - 1) < 1e-5 or n == 0 for n in lengths) and lengths[0] > 0


def test_neighbours_do_not_matter(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS, "document")
    alone = np.concatenate([embedder.embed([text], "document") for text in reversed(TEXTS)])[::-1]
    assert np.array_equal(together, alone)


def test_same_texts_give_the_same_vectors(embedder: Embedder) -> None:
    assert np.array_equal(embedder.embed(TEXTS, "query"), embedder.embed(TEXTS, "query"))


def test_no_texts_and_empty_texts_give_zero_vectors(embedder: Embedder) -> None:
    assert embedder.embed([], "document").shape == (0, embedder.tag.dimension)
    found = embedder.embed(["", " \n", "\x00"], "document")
    assert not found.any()


def test_repeated_texts_get_equal_vectors(embedder: Embedder) -> None:
    found = embedder.embed(["same", "other", "same"], "document")
    assert np.array_equal(found[0], found[2]) and not np.array_equal(found[0], found[1])


def test_both_kinds_are_answered(embedder: Embedder) -> None:
    assert embedder.embed(["one"], "query").shape == embedder.embed(["one"], "document").shape


def test_the_tag_is_known_and_stays(embedder: Embedder) -> None:
    tag = embedder.tag
    embedder.embed(["one"], "query")
    assert tag == embedder.tag and len(tag.sha) == 64 and tag.dimension > 0


def test_odd_texts_get_finite_vectors(embedder: Embedder) -> None:
    found = embedder.embed(["\ud800 lone", "\u202eright to left", "a" * 100_000, "\n".join("{}" * 500)], "document")
    assert np.isfinite(found).all()
