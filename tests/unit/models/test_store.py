"""The embedding cache: nothing twice, models side by side, and nothing left of what is forgotten."""

import threading

import numpy as np
import pytest

from perdure.errors import ModelBusy, ReadOnlyHome, TextRefused
from perdure.models.embedder import ValidatingEmbedder, hash_text, quantise, restore
from perdure.models.store import CachingEmbedder, VectorCache, embed_documents
from perdure.testing import FakeEmbedder


@pytest.fixture
def cache(tmp_path):
    made = VectorCache(tmp_path / "cache" / "embeddings.db")
    yield made
    made.close()


def names(*texts):
    return [hash_text(text) for text in texts]


def put(cache, fake, *texts):
    cache.put(fake.tag, names(*texts), fake.embed(texts, "document"))


def test_stored_vectors_are_found(cache):
    fake = FakeEmbedder()
    put(cache, fake, "one", "two")
    known = cache.get(fake.tag, names("zero", "two", "one"))
    assert known.positions.tolist() == [1, 2]
    expected = fake.embed(["two", "one"], "document")
    assert np.array_equal(known.vectors.values, quantise(expected).values)
    assert (restore(known.vectors) * expected).sum(axis=1) == pytest.approx([1, 1], abs=1e-3)


def test_unknown_model_has_no_vectors(cache):
    known = cache.get(FakeEmbedder().tag, names("one"))
    assert known.positions.tolist() == [] and known.vectors.values.shape == (0, 64) and cache.count_by_model() == {}


def test_models_lie_side_by_side(cache):
    """X05, X28: two models coexist, and neither sees the other's vectors, though name or length are equal."""
    models = [FakeEmbedder(), FakeEmbedder(name="other"), FakeEmbedder(dimension=32)]
    for model in models[:2]:
        put(cache, model, "one")
    assert [len(cache.get(m.tag, names("one")).positions) for m in models] == [1, 1, 0]
    assert cache.count_by_model() == {models[0].tag.key: 1, models[1].tag.key: 1}
    cache.drop_model(models[0].tag)
    assert cache.count_by_model() == {models[1].tag.key: 1}


def test_second_put_changes_nothing(cache):
    fake = FakeEmbedder()
    put(cache, fake, "one")
    cache.put(fake.tag, names("one"), fake.embed(["something else"], "document"))
    expected = quantise(fake.embed(["one"], "document")).values
    assert np.array_equal(cache.get(fake.tag, names("one")).vectors.values, expected)


def test_cache_survives_the_process(cache, tmp_path):
    fake = FakeEmbedder()
    put(cache, fake, "one")
    cache.close()
    again = VectorCache(tmp_path / "cache" / "embeddings.db")
    assert len(again.get(fake.tag, names("one")).positions) == 1
    again.close()


def test_forgetting_leaves_no_byte(cache, tmp_path):
    """The vector tells much about its text: gone from the file, from the log beside it, for every model."""
    models = [FakeEmbedder(dimension=384), FakeEmbedder(dimension=384, name="other")]
    for model in models:
        put(cache, model, "the password is swordfish", "kept")
    secret = [quantise(m.embed(["the password is swordfish"], "document")).values.tobytes() for m in models]
    assert cache.forget(names("the password is swordfish", "never there")) == 2
    raw = b"".join(path.read_bytes() for path in (tmp_path / "cache").iterdir())
    assert hash_text("the password is swordfish") not in raw
    assert not any(numbers[at : at + 16] in raw for numbers in secret for at in range(0, 384, 16))
    assert hash_text("kept") in raw and set(cache.count_by_model().values()) == {1}


def test_cache_file_is_private(cache, tmp_path):
    assert (tmp_path / "cache" / "embeddings.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_damaged_file_is_rebuilt(tmp_path, content):
    path = tmp_path / "embeddings.db"
    path.write_bytes(content)
    cache = VectorCache(path)
    put(cache, FakeEmbedder(), "one")
    assert len(cache.get(FakeEmbedder().tag, names("one")).positions) == 1
    cache.close()


@pytest.mark.parametrize("is_open", [True, False])
def test_file_with_damaged_pages_is_begun_again(tmp_path, is_open):
    """Its header is whole, so that it opens; a forgotten text must be gone all the same."""
    path, fake = tmp_path / "embeddings.db", FakeEmbedder(dimension=384)
    cache = VectorCache(path)
    put(cache, fake, *map(str, range(200)))
    cache._db.wal_checkpoint(mode=3)
    content = path.read_bytes()
    cache._db.release_memory()
    if not is_open:
        cache.close()
    path.write_bytes(content[:8192] + b"\xa5" * (len(content) - 8192))
    if not is_open:
        cache = VectorCache(path)
    cache.forget(names("7"))
    assert len(cache.get(fake.tag, names("7")).positions) == 0
    put(cache, fake, "8")
    assert cache.count_by_model() == {fake.tag.key: 1}
    cache.close()


def test_file_of_another_version_is_rebuilt(cache, tmp_path):
    put(cache, FakeEmbedder(), "one")
    cache._db.pragma("user_version", 99)
    cache.close()
    again = VectorCache(tmp_path / "cache" / "embeddings.db")
    assert again.count_by_model() == {}
    again.close()


def test_cache_without_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ReadOnlyHome):
        VectorCache(tmp_path / "file" / "embeddings.db")


def test_threads_share_the_cache(cache):
    fake = FakeEmbedder()
    threads = [threading.Thread(target=put, args=(cache, FakeEmbedder(), f"t{n}", "same")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.count_by_model() == {fake.tag.key: 9}


# never twice ------------------------------------------------------------------------------------------------


def test_no_document_is_embedded_twice(cache):
    fake = FakeEmbedder()
    embedder = CachingEmbedder(fake, cache)
    first = embedder.embed(["one", "two", "one"], "document")
    second = embedder.embed(["two", "three", "one"], "document")
    assert [batch for batch, _ in fake.asked] == [("one", "two"), ("three",)]
    assert np.array_equal(first[0], first[2]) and np.array_equal(second[0], first[1])
    assert np.array_equal(second[2], first[0])


def test_queries_are_not_cached(cache):
    fake = FakeEmbedder()
    embedder = CachingEmbedder(fake, cache)
    embedder.embed(["one"], "query")
    embedder.embed(["one"], "query")
    assert len(fake.asked) == 2 and cache.count_by_model() == {}


def test_other_model_starts_with_an_empty_cache(cache):
    """X05: a changed text is another text; a changed model another tag. What is touched only stays."""
    for model in (FakeEmbedder(), FakeEmbedder(name="new")):
        CachingEmbedder(model, cache).embed(["one"], "document")
        assert len(model.asked) == 1


def test_nan_once_and_the_text_is_still_kept(cache):
    """X40: NaN at first, good with the prefix; the text is found in the cache under its own hash."""
    fake = FakeEmbedder(answers=[np.full((1, 64), np.nan, np.float32)])
    assert embed_documents(CachingEmbedder(ValidatingEmbedder(fake), cache), ["one"]) == (1, ())
    assert len(cache.get(fake.tag, names("one")).positions) == 1


class Picky(FakeEmbedder):
    """Refuses texts with 'bad' in them, and with them the whole request."""

    def embed(self, texts, kind):
        if any("bad" in text for text in texts):
            self.asked.append((tuple(texts), kind))
            raise TextRefused("400")
        return super().embed(texts, kind)


def test_a_refused_text_costs_only_itself(cache):
    embedder = CachingEmbedder(Picky(), cache)
    texts = ["a", "b", "bad c", "d", "e bad", "f"]
    assert embed_documents(embedder, texts) == (4, (2, 4))
    assert cache.get(embedder.tag, names(*texts)).positions.tolist() == [0, 1, 3, 5]


def test_missing_model_leaves_the_rest_for_later(cache):
    fake = FakeEmbedder(answers=[ModelBusy("503")])
    embedder = CachingEmbedder(fake, cache)
    with pytest.raises(ModelBusy):
        embed_documents(embedder, ["a", "b"])
    assert cache.count_by_model() == {}
    assert embed_documents(embedder, ["a", "b"]) == (2, ())
