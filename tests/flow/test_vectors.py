"""Vectors through the home: filled behind the words, searched with them, renewed, rebuilt, forgotten."""

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import perdure
from perdure.errors import Busy, IndexFault, ModelUnreachable, NotFound, TextRefused, UsageError
from perdure.index import embed, store, vector_search
from perdure.index.encoding import build_embedded_text, hash_embedded_text
from perdure.models.embedder import quantise
from perdure.models.store import VectorCache
from perdure.service import lock
from perdure.testing import FakeEmbedder
from perdure.types import Filters

_spec = importlib.util.spec_from_file_location("http_embedder", Path(__file__).parents[1] / "http_embedder.py")
assert _spec and _spec.loader
_http = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_http)

LINES = (
    ("user", "we moor at the northern quay"),
    ("assistant", "noted, the northern quay"),
    ("user", "the lighthouse keeper sleeps at noon"),
    ("assistant", "then nobody guards the lantern"),
    ("user", "sqlite was chosen for the index"),
)


@pytest.fixture
def fake():
    return FakeEmbedder()


@pytest.fixture
def home(opened, fake):
    return opened(embedder=fake)


@pytest.fixture
def opened(opened_quiet):
    """Turns alone: the chunks are counted here."""
    return opened_quiet


def say(home, message, lines=LINES, session="s"):
    data = b"".join(message(role, words, n) for n, (role, words) in enumerate(lines))
    return home.capture(data, runtime="messages", session=session)


@pytest.fixture
def filled(home, message):
    say(home, message)
    home.upkeep.embed()
    return home


def texts(found):
    return [hit.text for hit in found.hits]


def slab_of(home):
    (status,) = home.upkeep.vector_status().slabs
    return status


def documents(fake):
    return [text for texts, kind in fake.asked if kind == "document" for text in texts]


def embed_after(before, turn):
    """The text that is embedded for a short turn that comes after another one."""
    return f"[15 January 2026] {before[0]}: {before[1][-len(turn[1]) :]}\n{turn[0]}: {turn[1]}"


# searching ----------------------------------------------------------------------------------------------------


def test_search_is_hybrid_once_there_are_vectors(home, message, fake):
    say(home, message)
    assert home.search("northern quay").mode == "keyword" and fake.asked == []
    done = home.upkeep.embed()
    assert (done.n_done, done.n_refused, done.n_left) == (5, 0, 0)
    found = home.search("northern quay")
    assert (found.mode, found.degraded, found.n_unembedded) == ("hybrid", (), 0)
    assert set(texts(found)[:2]) == {LINES[0][1], LINES[1][1]} and len(found.hits) == 5
    assert found.hits[0].keyword_score > 0 and found.hits[0].vector_score > 0.3
    assert home.search("northern quay", mode="keyword").mode == "keyword"


def test_embedded_text_names_date_and_role_after_the_end_of_the_turn_before(filled, fake):
    first = f"[15 January 2026] user: {LINES[0][1]}"
    assert set(documents(fake)) == {first, *(embed_after(*pair) for pair in pairwise(LINES))}


def test_only_a_short_text_is_embedded_with_the_turn_before(home, message, fake):
    lines = [("user", "a" * 300), ("assistant", "b" * 399), ("user", "c" * 400), ("tool", "d"), ("assistant", "e")]
    lines += [("assistant", "f")]
    say(home, message, lines)
    home.upkeep.embed()
    embedded = {text[-1]: text.partition("] ")[2] for text in documents(fake)}
    assert embedded["a"] == "user: " + "a" * 300
    assert embedded["b"] == "user: " + "a" * 200 + "\nassistant: " + "b" * 399
    assert embedded["c"] == "user: " + "c" * 400
    assert embedded["e"] == "user: " + "c" * 20 + "\nassistant: e"  # a tool's output is not said
    assert embedded["f"] == "assistant: f"  # the same agent goes on


def test_a_turn_of_another_session_is_not_embedded_with(home, message, fake):
    say(home, message, [("user", "of the first session")], session="one")
    say(home, message, [("user", "of the second session")], session="two")
    home.upkeep.embed()
    assert all(text.count("session") == 1 for text in documents(fake))


def test_forgetting_a_turn_drops_the_vector_that_holds_its_words(filled, fake, grep):
    """The turn after it was embedded with its end."""
    embedded = embed_after(LINES[2], LINES[3])
    numbers = quantise(fake.embed([embedded], "document")).values[0].tobytes()
    assert grep(filled.path, numbers) and grep(filled.path, hash_embedded_text(embedded))
    (hit,) = [h for h in filled.search("lighthouse", mode="keyword").hits if h.role == "user"]
    filled.forgetting.apply(filled.forgetting.plan([hit.turn_id]))
    assert grep(filled.path, numbers) == [] and grep(filled.path, hash_embedded_text(embedded)) == []
    filled.upkeep.embed()
    assert (slab_of(filled).n_embedded, slab_of(filled).n_missing) == (4, 0)
    assert documents(fake)[-1] == f"[15 January 2026] assistant: {LINES[3][1]}"  # an agent's turn is now before it


def test_semantic_search_finds_a_text_without_a_keyword_hit(filled):
    """ "keeper" is in the fake's words; the keyword leg is not asked."""
    found = filled.search("keeper lighthouse", mode="semantic")
    assert found.mode == "semantic" and LINES[2][1] in texts(found)[:2]  # the turn after it is embedded with its end
    assert found.hits[0].score == found.hits[0].vector_score and found.hits[0].keyword_score is None


def test_keyword_hit_gets_its_vector_score_behind_the_nearest(home, message):
    """X10: 200 turns are nearer to the query than the one that has its rare word."""
    say(home, message, [("user", f"quay quay quay {n}") for n in range(200)] + [("user", "zebra " + "hay " * 50)])
    home.upkeep.embed()
    found = home.search("quay zebra", limit=50)
    (zebra,) = [hit for hit in found.hits if "zebra" in hit.text]
    assert zebra.keyword_score is not None and zebra.vector_score is not None
    nearest = home.search("quay zebra", limit=50, mode="semantic")
    assert zebra.text not in texts(nearest)


def test_keyword_answer_stands_and_says_that_vectors_are_missing(opened, message):
    """X12: everything that the words find is there, in their order, when the model fails; and nothing is raised."""
    fake = FakeEmbedder()
    home = opened(embedder=fake)
    say(home, message)
    wanted = home.search("quay lighthouse sqlite", mode="keyword")
    for mode in ("hybrid", "semantic"):
        found = home.search("quay lighthouse sqlite", mode=mode)
        assert (found.hits, found.degraded) == (wanted.hits, ("vector",))
    home.upkeep.embed()
    fake._answers = [ModelUnreachable("gone")] * 20
    found = home.search("quay lighthouse sqlite")
    assert (found.hits, found.degraded, found.mode) == (wanted.hits, ("vector",), "keyword")


@pytest.mark.index_file("loses the files of vectors beside it")
def test_lost_files_degrade_and_are_made_again_without_the_model(filled, fake):
    n_asked = len(documents(fake))
    for path in (filled.path / "vectors").rglob("*.segment"):
        path.unlink()
    filled.connections.vectors()._slab_files._slabs.clear()
    found = filled.search("quay")
    assert found.degraded == ("vector",) and len(found.hits) == 2
    filled.upkeep.embed()
    assert filled.search("quay").mode == "hybrid" and filled.search("quay").degraded == ()
    assert len(documents(fake)) == n_asked


def test_unknown_modes_are_refused(filled):
    with pytest.raises(UsageError):
        filled.search("quay", mode="psychic")


def test_a_read_only_home_answers_by_meaning(filled, opened):
    reader = opened(read_only=True, embedder=FakeEmbedder())
    assert LINES[2][1] in texts(reader.search("keeper lighthouse", mode="semantic"))[:2]
    assert reader.upkeep.vector_status().slabs[0].n_embedded == 5


def test_user_gets_no_vectors_of_another(filled, opened, message):
    other = opened(user="bob", embedder=FakeEmbedder())
    other.capture(message("user", "bob keeps bees"), runtime="messages", session="b")
    other.upkeep.embed()
    assert texts(other.search("northern quay", mode="semantic")) == ["bob keeps bees"]
    assert "bob keeps bees" not in texts(filled.search("bees", mode="semantic"))


# filters ------------------------------------------------------------------------------------------------------


def test_filters_leave_the_same_turns_as_in_keyword_search(home, message, start):
    """Every filter, alone and with others, leaves by meaning exactly what it leaves by words, whatever the limit."""
    dice = random.Random(4)
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "/w/p1/store.py"}'}}
    for n in range(40):
        role = dice.choice(["user", "assistant"])
        more = {"tool_calls": [call]} if role == "assistant" and dice.random() < 0.5 else {}
        data = message(role, f"common word {n} of Alice Munro" if n % 3 else f"common word {n}", n, **more)
        home.capture(data, runtime=dice.choice(["messages", "custom"]), session=f"s{n}", conversation=f"c{n % 7}",
                     cwd=f"/w/p{n % 3}", tags=[f"t{n % 4}", f"u{n % 3}"])  # fmt: skip
    home.upkeep.embed()
    choices = {
        "projects": [("/w/p1",), ("p2", "p0"), ("none",)], "conversations": [("c1", "c2")], "runtimes": [("custom",)],
        "roles": [("user",)], "kinds": [("text",), ("call",)], "tags": [("t1",), ("t2", "u1"), ("t1", "t2")],
        "files": [("store.py",)], "tools": [("read",)], "entities": [("Alice Munro",)],
        "since_at": [start + timedelta(minutes=11)], "until_at": [start + timedelta(minutes=30)],
    }  # fmt: skip
    for _ in range(80):
        names = dice.sample(sorted(choices), dice.randint(1, 3))
        filters = Filters(**{name: dice.choice(choices[name]) for name in names})
        by_words = {hit.turn_id for hit in home.search("", filters=filters, limit=100).hits}
        by_meaning = {hit.turn_id for hit in home.search("common", filters=filters, limit=100, mode="semantic").hits}
        assert by_meaning == by_words, filters


# filling ------------------------------------------------------------------------------------------------------


def test_new_capture_is_embedded_on_arrival(filled, message):
    filled.capture(message("user", "a new anchor", 9), runtime="messages", session="later")
    assert slab_of(filled).n_missing == 0
    assert filled.search("anchor new", mode="semantic").hits[0].text == "a new anchor"


def test_filling_stops_on_request_and_resumes(home, message, fake):
    say(home, message, [("user", f"line {n}") for n in range(200)])
    done = home.upkeep.embed(most=70)
    assert (done.n_done, done.n_left) == (70, 130)
    found = home.search("line", limit=5)
    assert (found.mode, found.n_unembedded) == ("hybrid", 130)
    assert not slab_of(home).is_complete and slab_of(home).n_missing == 130
    seen = []
    assert home.upkeep.embed(progress=lambda n, whole: seen.append((n, whole))).n_left == 0
    assert seen == [(64, 130), (128, 130), (130, 130)]
    assert len(documents(fake)) == len(set(documents(fake))) == 200


def test_new_texts_are_embedded_before_the_backlog(home, message, fake):
    say(home, message, [("user", f"line {n}") for n in range(200)])
    home.upkeep.embed(most=70)
    home.capture(message("user", "fresh from the sea", 9), runtime="messages", session="later")
    assert documents(fake)[-1].endswith("fresh from the sea") and len(documents(fake)) == 71
    status = home.upkeep.vector_status()
    assert status.slabs[0].n_missing == 130 and status.depth == {"query": 0, "ingest": 0, "bulk": 130}
    assert home.upkeep.embed().n_left == 0 and slab_of(home).n_embedded == 201


def test_people_and_agents_first_then_the_newest(home, message, fake):
    say(home, message, [("tool", "output of a tool"), ("user", "older"), ("assistant", "newer")])
    home.upkeep.embed()
    (asked,) = [texts for texts, kind in fake.asked if kind == "document"][:1]
    assert sorted(text.rpartition(": ")[2] for text in documents(fake)) == ["newer", "older", "output of a tool"]
    assert len(asked) <= 3
    home2 = embed.list_missing(home.index(), vector_search.list_slabs(home.index())[0])
    assert home2 == []


def test_newest_is_what_was_written_last_not_what_came_in_last(home, message, fake):
    home.capture(message("user", "of this week", 20), runtime="messages", session="a")
    home.capture(message("user", "of last year", 1), runtime="messages", session="b")
    assert home.upkeep.count_unembedded() == 2
    home.upkeep.embed(most=1)
    assert [text.partition("user: ")[2] for text in documents(fake)] == ["of this week"]
    assert home.upkeep.count_unembedded() == 1


def test_a_text_without_a_vector_costs_only_itself(opened, message):
    """X40: NaN once is asked again; for ever NaN is noted, the rest has its vectors, and words find it still."""

    class Picky(FakeEmbedder):
        def embed(self, texts, kind):
            found = super().embed(texts, kind)
            for n, text in enumerate(texts):
                if "unspeakable" in text:
                    found[n] = np.nan
            return found

    home = opened(embedder=Picky())
    say(home, message, [*LINES, ("user", "the unspeakable text")])
    done = home.upkeep.embed()
    assert (done.n_done, done.n_refused, done.n_left) == (6, 1, 0)
    status = slab_of(home)
    assert (status.n_embedded, status.n_missing, status.n_refused, status.is_complete) == (5, 0, 1, True)
    assert home.upkeep.embed().n_done == 0
    assert texts(home.search("unspeakable"))[0] == "the unspeakable text"


def test_failing_model_keeps_finished_vectors(opened, message):
    fake = FakeEmbedder()
    home = opened(embedder=fake)
    say(home, message, [("user", f"line {n}") for n in range(100)])
    calls = iter(range(100))

    def failing(texts, kind, inner=fake.embed):
        if next(calls) >= 1:
            raise ModelUnreachable("gone")
        return inner(texts, kind)

    fake.embed = failing
    with pytest.raises(ModelUnreachable):
        home.upkeep.embed()
    left = slab_of(home).n_missing
    assert 0 < left <= 100 and texts(home.search("line 7"))
    assert home.search("line 7").degraded in ((), ("vector",))


def test_refusing_everything_is_not_the_end(opened, message):
    home = opened(embedder=FakeEmbedder(answers=[TextRefused("no")] * 50))
    say(home, message)
    assert home.upkeep.embed().n_refused == 5


@pytest.mark.index_file("its lock is one for all users")
def test_two_processes_do_not_embed_at_once(filled, opened):
    from perdure.disk import lock_file

    with lock_file(filled.path / ".embed.lock"), pytest.raises(Busy):
        opened(embedder=FakeEmbedder()).upkeep.embed()


def test_vectors_can_be_switched_off(opened, message, tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text('[models.embedder]\nkind = "off"\n')
    home = opened()
    say(home, message)
    assert home.search("quay").degraded == () and home.search("quay", mode="hybrid").degraded == ("vector",)
    with pytest.raises(NotFound):
        home.upkeep.embed()
    assert home.upkeep.vector_status().model == "" and "off" in home.upkeep.vector_status().notice


# another model ------------------------------------------------------------------------------------------------


@pytest.fixture
def endpoint():
    server = _http.Endpoint()
    yield server
    server.close()


def use(tmp_path, endpoint, model):
    (tmp_path / "home").mkdir(mode=0o700, exist_ok=True)
    (tmp_path / "home" / "config.toml").write_text(
        f'user = "ada"\n[models.embedder]\nkind = "openai"\nurl = "{endpoint.url}"\nmodel = "{model}"\ndimension = 64\n'
        "[memories]\nstated = false\n"
    )


@pytest.mark.index_file("lists the files of vectors beside it")
def test_the_old_model_answers_until_the_new_one_is_complete(tmp_path, endpoint, opened, message):
    """X28, X36: queries go to the model whose slab answers; the two are never compared."""
    use(tmp_path, endpoint, "old")
    home = opened()
    say(home, message, [*LINES, *(("user", f"line {n}") for n in range(100))])
    home.upkeep.embed()
    home.close()
    use(tmp_path, endpoint, "new")
    home = opened()
    home.upkeep.embed(most=80)

    def asked_model():
        endpoint.seen.clear()
        found = home.search("lighthouse keeper")
        assert found.degraded == () and found.hits[0].text == LINES[2][1]
        return [body["model"] for _, _, body in endpoint.seen]

    assert asked_model() == ["old"]
    assert [(s.tag.partition("@")[0], s.is_complete, s.answers) for s in home.upkeep.vector_status().slabs] == [
        ("old", True, True), ("new", False, False)]  # fmt: skip
    home.upkeep.embed()
    assert asked_model() == ["new"]
    (only,) = home.upkeep.vector_status().slabs
    assert only.tag.startswith("new@64#") and only.answers
    assert len(list((home.path / "vectors").glob("*/*"))) == 1


# rebuilding ---------------------------------------------------------------------------------------------------


@pytest.mark.index_file("lists the files of vectors beside it")
def test_rebuild_takes_cached_vectors_and_proves_equal_answers(filled, fake):
    asked, before = len(documents(fake)), filled.search("quay keeper", limit=5)
    result = filled.upkeep.rebuild()
    assert result.compared and result.differing_vectors == ()
    assert len(documents(fake)) == asked
    after = filled.search("quay keeper", limit=5)
    assert [(h.turn_id, h.score) for h in after.hits] == [(h.turn_id, h.score) for h in before.hits]
    assert slab_of(filled).n_missing == 0 and slab_of(filled).is_complete
    assert len(list((filled.path / "vectors").iterdir())) == 1


@pytest.mark.index_file("it deletes the file")
def test_deleted_index_gets_its_vectors_from_the_cache(filled, fake, opened):
    asked = len(documents(fake))
    for path in [*filled.path.glob("index*"), *filled.path.glob("index.db")]:
        path.unlink(missing_ok=True)
    home = opened(embedder=fake)
    home.upkeep.rebuild()
    assert home.search("quay").mode == "hybrid" and len(documents(fake)) == asked
    assert len(list((home.path / "vectors").iterdir())) == 1


# forgetting ---------------------------------------------------------------------------------------------------


@pytest.mark.index_file("reads the files of vectors beside it")
def test_forgetting_leaves_no_vector(filled, fake, grep):
    """The slab's bytes and the cache's, by the hash of the words and by the numbers themselves."""
    (hit,) = [h for h in filled.search("lighthouse", mode="keyword").hits if h.role == "user"]
    words = embed_after(LINES[1], LINES[2])
    numbers = quantise(fake.embed([words], "document")).values[0].tobytes()
    where = grep(filled.path, numbers)
    assert any("vectors/" in name for name in where) and any("cache/" in name for name in where)
    assert any("cache/" in name for name in grep(filled.path, hash_embedded_text(words)))
    filled.forgetting.apply(filled.forgetting.plan([hit.turn_id]))
    assert grep(filled.path, numbers) == [] and grep(filled.path, hash_embedded_text(words)) == []
    assert (slab_of(filled).n_embedded, slab_of(filled).n_missing) == (3, 1)  # the turn after it held its end
    filled.upkeep.embed()
    n_asked = len(documents(fake))
    assert slab_of(filled).n_embedded == 4 and slab_of(filled).n_missing == 0
    assert len(filled.search("lighthouse", mode="semantic").hits) == 4
    filled.upkeep.rebuild()
    assert len(documents(fake)) == n_asked and slab_of(filled).n_embedded == 4
    assert grep(filled.path, numbers) == []


@pytest.mark.index_file("it deletes the file")
def test_forgetting_without_an_index_drops_every_vector(filled, fake, grep):
    turn = filled.search("lighthouse", mode="keyword").hits[0]
    doomed = filled.forgetting.plan([turn.turn_id])
    for path in filled.path.glob("index-*.db"):
        path.write_bytes(b"not an index at all" * 100)
    filled.connections.close_index()
    filled.forgetting.apply(doomed)
    words = build_embedded_text(turn.author, turn.role, int(turn.stated_at.timestamp() * 1000), turn.text)
    numbers = quantise(fake.embed([words], "document")).values[0].tobytes()
    assert grep(filled.path, numbers) == []


def test_erasing_drops_every_vector(filled):
    filled.forgetting.erase_user()
    assert not list((filled.path / "vectors").glob("*/*/*"))
    assert filled.search("quay").hits == ()


@pytest.mark.parametrize("way", ["forgotten", "erased"])
def test_no_vector_stays_of_a_text_that_goes_while_it_is_embedded(home, message, fake, way):
    """Who embeds puts a vector into the cache before it looks whether the text is still there."""
    say(home, message)
    turn_ids = [hit.turn_id for hit in home.search("", limit=100, mode="keyword").hits]
    is_embedding, may_end = threading.Event(), threading.Event()

    class SlowEmbedder(FakeEmbedder):
        def embed(self, texts, kind):
            is_embedding.set()
            may_end.wait(10)
            return super().embed(texts, kind)

    def embed_slowly():
        with perdure.open(home.path, user="ada", embedder=SlowEmbedder()) as other, suppress(IndexFault):
            other.upkeep.embed_indexed()  # in Postgres the old index is gone when it comes to write

    thread = threading.Thread(target=embed_slowly)
    thread.start()
    assert is_embedding.wait(10)
    threading.Timer(0.3, may_end.set).start()
    if way == "erased":
        home.forgetting.erase_user()
    else:
        home.forgetting.apply(home.forgetting.plan(turn_ids))
    thread.join()
    with closing(VectorCache(home.path / "cache" / "embeddings.db")) as cache:
        assert cache.count_by_model().get(fake.tag.key, 0) == 0


@pytest.mark.index_file("another process keeps old pages of the file in use")
@pytest.mark.parametrize("way", ["rebuilt", "stale"])
def test_new_index_knows_what_is_still_to_be_forgotten(filled, fake, opened, way):
    """Somebody reads while a text is forgotten, so its vector waits in the cache; then the index is made again."""
    (hit,) = filled.search("lighthouse", mode="keyword").hits
    with closing(store.open_current(filled.path, writable=False)) as reader, reader.begin_read():
        reader.select("SELECT count(*) FROM chunk")
        filled.forgetting.apply(filled.forgetting.plan([hit.turn_id]))
        if way == "rebuilt":
            filled.upkeep.rebuild()
        else:
            filled.archive.ledger.set_meta("stale-index", "yes")
            filled.upkeep.drop_stale_index()
    filled.close()
    again = opened(embedder=FakeEmbedder())
    again.upkeep.embed()
    index = again.index()
    with closing(VectorCache(again.path / "cache" / "embeddings.db")) as cache:
        assert cache.count_by_model() == {fake.tag.key: len(set(embed.list_embedded_hashes(index)))}
    assert index.select("SELECT count(*) FROM gone") == [(0,)]


# crashes and company ------------------------------------------------------------------------------------------

_FILLER = """
import sys, time, perdure
from perdure.testing import FakeEmbedder
from perdure.errors import Busy
home = perdure.open(sys.argv[1], user="ada", embedder=FakeEmbedder())
print("ready", flush=True)
while True:
    try:
        if home.embed().n_left == 0 and len(sys.argv) > 2:
            break
    except Busy:
        time.sleep(0.01)
"""


def filler(home, *words):
    process = subprocess.Popen(
        [sys.executable, "-c", _FILLER, str(home.path), *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def assert_sound(home, fake):
    """Every chunk has exactly one row, and that row is the vector of its words."""
    index = home.index()
    (slot,) = vector_search.list_slabs(index)
    assert embed.list_missing(index, slot) == []
    chunks = [key for (key,) in index.select("SELECT id FROM chunk ORDER BY id")]
    slab = home.connections.vectors()._slab_files.open_slab(index, slot)
    found, vectors = vector_search.fetch_vectors(index, slab, slot, chunks)
    assert found.tolist() == chunks
    asked = [item.text for part in embed.split_chunks(chunks) for item in embed._read_pending(index, part)]
    wanted = fake.embed(asked, "document")
    assert ((vectors * wanted).sum(axis=1) > 0.999).all()
    rows = index.select("SELECT count(DISTINCT row), count(*), max(row) FROM vector WHERE slab = ?", slot.id)[0]
    assert rows[0] == rows[1] == len(chunks) and rows[2] < slot.n_rows


@pytest.mark.slow
def test_kill_during_filling_loses_and_corrupts_nothing(home, message, fake):
    """SIGKILL at 25 random moments, while more comes in; in the end every vector is that of its words."""
    dice = random.Random(7)
    for n in range(25):
        lines = [("user", f"round {n} line {i} {dice.random()}") for i in range(60)]
        data = b"".join(message(role, words, i) for i, (role, words) in enumerate(lines))
        fake._answers = [ModelUnreachable("not here")] * 9  # the capture must leave its embedding to the filler
        home.capture(data, runtime="messages", session=f"s{n}")
        fake._answers = []
        process = filler(home)
        time.sleep(dice.random() * 0.15)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    home.upkeep.embed()
    assert_sound(home, fake)


@pytest.mark.slow
def test_one_fills_while_another_captures_and_searches(home, message, fake, opened):
    say(home, message, [("user", f"first {n}") for n in range(300)], session="first")
    process = filler(home)
    reader = opened(read_only=True, embedder=FakeEmbedder())
    for n in range(40):
        home.capture(message("user", f"second {n}", n), runtime="messages", session=f"second{n}")
        found = reader.search(f"second {n}", limit=3)
        assert found.hits and {hit.text for hit in found.hits} <= {
            *(f"first {i}" for i in range(300)), *(f"second {i}" for i in range(n + 1))}  # fmt: skip
    process.terminate()
    process.wait()
    process.stdout.close()
    home.upkeep.embed()
    assert_sound(home, fake)


# command line -------------------------------------------------------------------------------------------------


def run(home, *words):
    env = {**os.environ, "PERDURE_HOME": str(home), "HOME": str(home.parent)}
    done = subprocess.run(
        [sys.executable, "-m", "perdure.surfaces.cli", *words], env=env, capture_output=True, text=True, check=False
    )
    return done


def test_command_line_embeds_searches_and_reports(tmp_path, endpoint, opened, message):
    use(tmp_path, endpoint, "remote")
    home = opened()
    say(home, message)
    done = run(home.path, "embed", "--json", "--limit", "3")
    assert json.loads(done.stdout)["result"] == {"embedded": 3, "refused": 0, "left": 2}, done.stderr
    assert "2 chunks embedded, 0 left." in run(home.path, "embed").stdout
    shown = run(home.path, "search", "northern quay", "--mode", "hybrid", "--explain").stdout
    assert "words and meaning" in shown and ", meaning 0." in shown and ", words " in shown
    status = json.loads(run(home.path, "status", "--json").stdout)["result"]["vectors"]
    assert status["slabs"][0]["n_embedded"] == 5 and status["depth"] == {"query": 0, "ingest": 0, "bulk": 0}
    assert "remote@64: 5 chunks, 0 missing, answers" in run(home.path, "status").stdout
    assert "remote@64 answers" in run(home.path, "doctor").stdout
    endpoint.replies = [(401, b"{}")] * 5
    broken = run(home.path, "doctor")
    assert broken.returncode == 1 and "embedder" in broken.stdout


@pytest.mark.parametrize("kind, closing", [
    ("ollama", "2 chunks have no vector yet: `perdure embed` or `perdure serve --detach` adds search by meaning."),
    ("off", ""), ("openai", "models.embedder.url must be set"),
])  # fmt: skip
def test_import_says_when_its_text_gets_vectors(tmp_path, message, kind, closing):
    (tmp_path / "home").mkdir(mode=0o700)
    url = 'url = "http://127.0.0.1:9"\nmodel = "m"\ndimension = 64\n' if kind == "ollama" else ""
    settings = f'[models.embedder]\nkind = "{kind}"\n{url}[memories]\nstated = false\n'
    (tmp_path / "home" / "config.toml").write_text(settings)
    for n, name in enumerate(("first", "second")):
        (tmp_path / f"{name}.jsonl").write_bytes(message("user", f"the {name} buoy", n) + message("user", "drifts", n))
    done = run(tmp_path / "home", "import", str(tmp_path / "first.jsonl"))
    assert done.returncode == 0 and closing in done.stdout
    assert ("Search by words works now." in done.stdout) == (kind == "ollama")
    if kind == "ollama":
        with lock.hold_lock(tmp_path / "home", now=datetime.now(UTC)):
            done = run(tmp_path / "home", "import", str(tmp_path / "second.jsonl"))
        assert "4 chunks are embedded in the background, newest first; `perdure status` shows" in done.stdout
        done = run(tmp_path / "home", "import", "--json", str(tmp_path / "second.jsonl"))
        assert json.loads(done.stdout)["result"]["unembedded"] == 4
