"""The embedder that settings choose, and the two that the package carries."""

import builtins
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from perdure.config import EmbedderConfig
from perdure.errors import ConfigFault, RuntimeMissing, WeightsDamaged, WeightsMissing
from perdure.models import local_embedders
from perdure.models.embedder import to_unit_length
from perdure.models.local_embedders import (
    MINILM_MAX_TOKENS,
    MINILM_QUERY_TOKENS,
    NOTICE_NO_RUNTIME,
    NOTICE_NO_WEIGHTS,
    NOTICE_OFF,
    MiniLM,
    StaticEmbedder,
    choose_embedder,
    decode_table,
)


def remote(**more):
    return EmbedderConfig(**{"kind": "openai", "url": "http://127.0.0.1:1/v1", "model": "m", "dimension": 4096, **more})


def test_default_embedder_is_minilm(built):
    chosen = choose_embedder(EmbedderConfig())
    assert str(chosen.embedder.tag) == "all-minilm-l6-v2-int8@384" and chosen.notice == ""


def test_heavy_modules_are_loaded_with_the_first_text(built):
    code = """
import sys
from perdure.config import EmbedderConfig
from perdure.models.local_embedders import choose_embedder
print(choose_embedder(EmbedderConfig()).embedder.tag, [m for m in ("onnxruntime", "ssl", "apsw") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "all-minilm-l6-v2-int8@384 []\n"


def test_the_runtime_reports_nothing_to_its_maker(built, tmp_path):
    """Unless told not to, onnxruntime 1.31 keeps a device id and what it will send to Microsoft in the user's cache."""
    code = """
from perdure.config import EmbedderConfig
from perdure.models.local_embedders import choose_embedder
choose_embedder(EmbedderConfig()).embedder.embed(["tide"], "query")
"""
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert list(tmp_path.rglob("*")) == []


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


def test_a_session_that_was_begun_early_gives_the_same_bits(built):
    """It is not packed for speed, and only the first MiniLM of the process takes it."""
    texts = ["The tide table is signed at noon.", "a", "Wo steht der Hafen?"]
    usual = MiniLM().embed(texts, "query")
    local_embedders.begin_loading(EmbedderConfig())
    assert list(local_embedders._early_sessions) == [local_embedders.WEIGHTS_FOLDER]
    early, later = MiniLM().embed(texts, "query"), MiniLM().embed(texts, "query")
    assert (early == usual).all() and (later == usual).all()
    assert local_embedders._early_sessions == {}


def test_matrices_are_mapped_from_the_file_of_the_whole_model(built):
    """A process of its own: it gives the bits of the whole model, opened as one file, and has that file mapped."""
    code = """
import sys
from pathlib import Path
import numpy as np
import onnxruntime
from perdure.models import local_embedders as own
model = own.MiniLM()
(found,) = model.embed(["The tide table is signed at noon."], "query")
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
maps = Path("/proc/self/maps")
is_mapped = own.MINILM_MODEL in maps.read_text() if maps.exists() else True
whole = onnxruntime.InferenceSession(str(own.WEIGHTS_FOLDER / own.MINILM_MODEL), options)
expected = own._run_model(whole, model._to_token_ids("The tide table is signed at noon."))
print(is_mapped, bool((found == expected).all()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n", done.stderr


def test_a_graph_that_is_not_the_pinned_one_is_refused(built, tmp_path):
    for name in (local_embedders.MINILM_MODEL, local_embedders.MINILM_VOCABULARY):
        (tmp_path / name).symlink_to(local_embedders.WEIGHTS_FOLDER / name)
    assert choose_embedder(EmbedderConfig(), folder=tmp_path).notice == NOTICE_NO_WEIGHTS  # without the graph
    graph = (local_embedders.WEIGHTS_FOLDER / local_embedders.MINILM_GRAPH).read_bytes()
    (tmp_path / local_embedders.MINILM_GRAPH).write_bytes(graph.replace(b"location", b"locatiom", 1))
    with pytest.raises(WeightsDamaged):
        MiniLM(folder=tmp_path).embed(["a"], "query")


def test_nothing_is_begun_early_for_other_settings(built, tmp_path):
    for kind in ("static", "off"):
        local_embedders.begin_loading(EmbedderConfig(kind=kind))
    local_embedders.begin_loading(EmbedderConfig(), folder=tmp_path)  # no weights there
    assert local_embedders._early_sessions == {}


def test_what_fails_early_is_raised_at_the_first_text(built, tmp_path):
    size = (local_embedders.WEIGHTS_FOLDER / local_embedders.MINILM_MODEL).stat().st_size
    with (tmp_path / local_embedders.MINILM_MODEL).open("wb") as file:
        file.truncate(size)
    for name in (local_embedders.MINILM_GRAPH, local_embedders.MINILM_VOCABULARY):
        (tmp_path / name).symlink_to(local_embedders.WEIGHTS_FOLDER / name)
    local_embedders.begin_loading(EmbedderConfig(), folder=tmp_path)
    with pytest.raises(WeightsDamaged):
        MiniLM(folder=tmp_path).embed(["a"], "query")


def test_minilm_reads_256_tokens(built):
    head = "word " * (MINILM_MAX_TOKENS - 2)
    model = MiniLM(threads=1)
    found = model.embed([head, head + "and then something else entirely"], "document")
    assert np.array_equal(found[0], found[1])


def test_of_a_query_minilm_reads_48_tokens_in_any_script(built):
    model = MiniLM(threads=1)
    for head, rest in (("word " * (MINILM_QUERY_TOKENS - 2), "and then something else"), ("库" * 46, "数据潮汐")):
        query, longer = model.embed([head, head + rest], "query")
        document, other = model.embed([head, head + rest], "document")
        assert np.array_equal(query, longer) and np.array_equal(query, document) and not np.array_equal(query, other)


def test_the_static_table_by_hand():
    """Two rows of three numbers: scales 0.5 and 2, so (1, -2, 127) * 0.5 and (0, 1, -127) * 2."""
    raw = np.array([2, 3], "<u4").tobytes() + np.array([0.5, 2], "<f4").tobytes()
    raw += np.array([1, -2, 127, 0, 1, -127], np.int8).tobytes()
    assert decode_table(raw).tolist() == [[0.5, -1.0, 63.5], [0.0, 2.0, -254.0]]


def test_unknown_words_give_no_vector(built):
    found = StaticEmbedder().embed(["\U0001fabf \U0001fabd", "hello \U0001fabf"], "document")
    assert not found[0].any() and found[1].any()
