"""Settings -> embedder: the default works at once, what is missing is said, what cannot be meant is refused."""

import builtins
import sys

import numpy as np
import pytest

from perdure.config import EmbedderConfig
from perdure.errors import ConfigFault, RuntimeMissing, WeightsDamaged, WeightsMissing
from perdure.models import local_embedders
from perdure.models.local_embedders import NOTICE_NO_RUNTIME, NOTICE_NO_WEIGHTS, NOTICE_OFF, choose_embedder


def remote(**more):
    return EmbedderConfig(**{"kind": "openai", "url": "http://127.0.0.1:1/v1", "model": "m", "dimension": 4096, **more})


def test_default_embedder_is_minilm(built):
    chosen = choose_embedder(EmbedderConfig())
    assert str(chosen.embedder.tag) == "all-minilm-l6-v2-int8@384" and chosen.notice == ""


def test_heavy_modules_are_loaded_with_the_first_text(built):
    import subprocess

    code = """
import sys
from perdure.config import EmbedderConfig
from perdure.models.local_embedders import choose_embedder
print(choose_embedder(EmbedderConfig()).embedder.tag, [m for m in ("onnxruntime", "ssl", "apsw") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "all-minilm-l6-v2-int8@384 []\n"


def test_static_model_is_used_without_onnxruntime(built, monkeypatch):
    monkeypatch.setattr(local_embedders.importlib.util, "find_spec", lambda name: None)
    chosen = choose_embedder(EmbedderConfig())
    assert str(chosen.embedder.tag) == "potion-base-8m-int8@256" and chosen.notice == NOTICE_NO_RUNTIME
    assert choose_embedder(EmbedderConfig(kind="static")).notice == ""


def test_an_onnxruntime_that_does_not_load(built, monkeypatch):
    real = builtins.__import__

    def broken(name, *rest, **more):
        if name == "onnxruntime":
            raise ImportError("libstdc++.so.6: version not found")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(RuntimeMissing):
        local_embedders.MiniLM().embed(["a"], "query")


def test_without_weights_words_are_left(tmp_path):
    for kind in ("minilm", "static"):
        assert choose_embedder(EmbedderConfig(kind=kind), folder=tmp_path) == (None, 0, NOTICE_NO_WEIGHTS)
    for model in (local_embedders.MiniLM, local_embedders.StaticEmbedder):
        with pytest.raises(WeightsMissing):
            model(folder=tmp_path).embed(["a"], "query")


def test_embedder_can_be_switched_off():
    assert choose_embedder(EmbedderConfig(kind="off")) == (None, 0, NOTICE_OFF)


def test_weights_of_another_content_are_refused(built, tmp_path):
    """Same length, one bit flipped: they are there, but they are not read."""
    for source in local_embedders.WEIGHTS_FOLDER.iterdir():
        raw = bytearray(source.read_bytes())
        raw[len(raw) // 2] ^= 1
        (tmp_path / source.name).write_bytes(raw)
    for model in (local_embedders.MiniLM, local_embedders.StaticEmbedder):
        with pytest.raises(WeightsDamaged):
            model(folder=tmp_path).embed(["a"], "query")


@pytest.mark.parametrize("kind", ["", "MiniLM", "bert"])
def test_unknown_kinds_are_refused(kind):
    with pytest.raises(ConfigFault, match=r"models\.embedder\.kind"):
        choose_embedder(EmbedderConfig(kind=kind))


@pytest.mark.parametrize("missing", ["url", "model", "dimension"])
def test_endpoint_without_a_required_setting_is_refused(missing):
    with pytest.raises(ConfigFault, match=rf"models\.embedder\.{missing}"):
        choose_embedder(remote(**{missing: "" if missing != "dimension" else 0}))


def test_a_key_that_the_environment_does_not_have(monkeypatch):
    monkeypatch.delenv("PERDURE_TEST_KEY", raising=False)
    with pytest.raises(ConfigFault, match="PERDURE_TEST_KEY"):
        choose_embedder(remote(key_env="PERDURE_TEST_KEY"))
    monkeypatch.setenv("PERDURE_TEST_KEY", "s3cret")
    assert choose_embedder(remote(key_env="PERDURE_TEST_KEY")).embedder is not None


def test_embedder_is_shortened_as_set():
    assert str(choose_embedder(remote(shorten_to=768)).embedder.tag) == "m@768"
    with pytest.raises(ConfigFault, match="shorten_to"):
        choose_embedder(remote(shorten_to=5000))


def test_paraphrase_is_found_by_its_meaning(built):
    """X31: no word is shared, the right line is among the first three of twelve."""
    lines = [
        "ECONNREFUSED: connection refused by 10.0.0.7:6443", "kubelet: node not ready, connection refused",
        "I booked the table for four at seven", "We should paint the fence green", "The cat sleeps on the sofa",
        "npm installed 214 packages", "Her birthday is in May", "All tests passed in 3.2 seconds",
        "The invoice was paid on Friday", "He prefers tea to coffee", "Release notes for version 2 are done",
        "The train to Bern leaves at nine",
    ]  # fmt: skip
    for kind in ("minilm", "static"):
        embedder = choose_embedder(EmbedderConfig(kind=kind)).embedder
        scores = embedder.embed(lines, "document") @ embedder.embed(["why did the cluster fail"], "query")[0]
        assert set(np.argsort(-scores)[:3].tolist()) & {0, 1}, kind
