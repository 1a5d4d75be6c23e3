"""The embedding cache: nothing twice, models side by side, and nothing left of what is forgotten."""

import threading

import numpy as np
import pytest

from perdure.errors import ModelBusy, ReadOnlyHome, TextRefused
from perdure.models.embedder import Careful
from perdure.models.store import Cache, Cached, fill
from perdure.models.vectors import quantise, restore, text_hash
from perdure.testing import FakeEmbedder


@pytest.fixture
def cache(tmp_path):
    made = Cache(tmp_path / "cache" / "embeddings.db")
    yield made
    made.close()


def names(*texts):
    return [text_hash(text) for text in texts]


def put(cache, fake, *texts):
    cache.put(fake.tag, names(*texts), fake.embed(texts, "document"))


def test_what_is_put_is_found(cache):
    fake = FakeEmbedder()
    put(cache, fake, "one", "two")
    known = cache.get(fake.tag, names("zero", "two", "one"))
    assert known.places.tolist() == [1, 2]
    expected = fake.embed(["two", "one"], "document")
    assert np.array_equal(known.vectors.values, quantise(expected).values)
    assert (restore(known.vectors) * expected).sum(axis=1) == pytest.approx([1, 1], abs=1e-3)


def test_nothing_is_known_of_a_model_never_seen(cache):
    known = cache.get(FakeEmbedder().tag, names("one"))
    assert known.places.tolist() == [] and known.vectors.values.shape == (0, 64) and cache.counts() == {}


def test_models_lie_side_by_side(cache):
    """X05, X28: two models coexist, and neither sees the other's vectors, though name or length are equal."""
    models = [FakeEmbedder(), FakeEmbedder(name="other"), FakeEmbedder(dimension=32)]
    for model in models[:2]:
        put(cache, model, "one")
    assert [len(cache.get(m.tag, names("one")).places) for m in models] == [1, 1, 0]
    assert cache.counts() == {models[0].tag.key: 1, models[1].tag.key: 1}
    cache.drop(models[0].tag)
    assert cache.counts() == {models[1].tag.key: 1}


def test_a_second_put_changes_nothing(cache):
    fake = FakeEmbedder()
    put(cache, fake, "one")
    cache.put(fake.tag, names("one"), fake.embed(["something else"], "document"))
    expected = quantise(fake.embed(["one"], "document")).values
    assert np.array_equal(cache.get(fake.tag, names("one")).vectors.values, expected)


def test_it_survives_the_process(cache, tmp_path):
    fake = FakeEmbedder()
    put(cache, fake, "one")
    cache.close()
    again = Cache(tmp_path / "cache" / "embeddings.db")
    assert len(again.get(fake.tag, names("one")).places) == 1
    again.close()


def test_forgetting_leaves_no_byte(cache, tmp_path):
    """The vector tells much about its text: gone from the file, from the log beside it, for every model."""
    models = [FakeEmbedder(dimension=384), FakeEmbedder(dimension=384, name="other")]
    for model in models:
        put(cache, model, "the password is swordfish", "kept")
    secret = [quantise(m.embed(["the password is swordfish"], "document")).values.tobytes() for m in models]
    assert cache.forget(names("the password is swordfish", "never there")) == 2
    raw = b"".join(path.read_bytes() for path in (tmp_path / "cache").iterdir())
    assert text_hash("the password is swordfish") not in raw
    assert not any(numbers[at : at + 16] in raw for numbers in secret for at in range(0, 384, 16))
    assert text_hash("kept") in raw and set(cache.counts().values()) == {1}


def test_it_is_private(cache, tmp_path):
    assert (tmp_path / "cache" / "embeddings.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_made_anew(tmp_path, content):
    path = tmp_path / "embeddings.db"
    path.write_bytes(content)
    cache = Cache(path)
    put(cache, FakeEmbedder(), "one")
    assert len(cache.get(FakeEmbedder().tag, names("one")).places) == 1
    cache.close()


def test_a_file_of_another_version_is_made_anew(cache, tmp_path):
    put(cache, FakeEmbedder(), "one")
    cache._db.pragma("user_version", 99)
    cache.close()
    again = Cache(tmp_path / "cache" / "embeddings.db")
    assert again.counts() == {}
    again.close()


def test_no_place_for_it(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ReadOnlyHome):
        Cache(tmp_path / "file" / "embeddings.db")


def test_threads_share_it(cache):
    fake = FakeEmbedder()
    threads = [threading.Thread(target=put, args=(cache, FakeEmbedder(), f"t{n}", "same")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.counts() == {fake.tag.key: 9}


# never twice ------------------------------------------------------------------------------------------------


def test_no_document_is_embedded_twice(cache):
    fake = FakeEmbedder()
    embedder = Cached(fake, cache)
    first = embedder.embed(["one", "two", "one"], "document")
    second = embedder.embed(["two", "three", "one"], "document")
    assert [batch for batch, _ in fake.asked] == [("one", "two"), ("three",)]
    assert np.array_equal(first[0], first[2]) and np.array_equal(second[0], first[1])
    assert np.array_equal(second[2], first[0])


def test_queries_pass_by(cache):
    fake = FakeEmbedder()
    embedder = Cached(fake, cache)
    embedder.embed(["one"], "query")
    embedder.embed(["one"], "query")
    assert len(fake.asked) == 2 and cache.counts() == {}


def test_another_model_starts_anew(cache):
    """X05: a changed text is another text; a changed model another tag. What is touched only stays."""
    for model in (FakeEmbedder(), FakeEmbedder(name="new")):
        Cached(model, cache).embed(["one"], "document")
        assert len(model.asked) == 1


def test_nan_once_and_the_text_is_still_kept(cache):
    """X40: NaN at first, good with the prefix; the text is found in the cache under its own hash."""
    fake = FakeEmbedder(answers=[np.full((1, 64), np.nan, np.float32)])
    assert fill(Cached(Careful(fake), cache), ["one"]) == (1, ())
    assert len(cache.get(fake.tag, names("one")).places) == 1


class Picky(FakeEmbedder):
    """Refuses texts with 'bad' in them, and with them the whole request."""

    def embed(self, texts, kind):
        if any("bad" in text for text in texts):
            self.asked.append((tuple(texts), kind))
            raise TextRefused("400")
        return super().embed(texts, kind)


def test_a_refused_text_costs_only_itself(cache):
    embedder = Cached(Picky(), cache)
    texts = ["a", "b", "bad c", "d", "e bad", "f"]
    assert fill(embedder, texts) == (4, (2, 4))
    assert cache.get(embedder.tag, names(*texts)).places.tolist() == [0, 1, 3, 5]


def test_a_model_that_is_gone_leaves_the_rest_for_later(cache):
    fake = FakeEmbedder(answers=[ModelBusy("503")])
    embedder = Cached(fake, cache)
    with pytest.raises(ModelBusy):
        fill(embedder, ["a", "b"])
    assert cache.counts() == {}
    assert fill(embedder, ["a", "b"]) == (2, ())
