"""The text that is embedded for a chunk: a short turn with the end of the turn before it, in any order of arrival."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from perdure.index.embedded_texts import read_embedded_texts
from perdure.index.encoding import build_embedded_text, hash_embedded_text
from perdure.models.embedder import hash_text
from perdure.types import Part
from rig.index_rows import reply, say


def read_by_end(file):
    """Last word of each text -> the text that is embedded."""
    chunks = [chunk for (chunk,) in file.index.select("SELECT id FROM chunk")]
    return {item.text.split()[-1]: item.text for item in read_embedded_texts(file.index, chunks).values()}


def give_vectors(file):
    """A row in a slab for every chunk that has none, as if it were embedded."""
    with file.index.begin_write() as db:
        db.execute("INSERT OR IGNORE INTO slab(id, user, tag, dimension, n_rows, listed, n_left, made_by) "
                   "VALUES (1, 1, 't', 8, 0, 0, 0, '')")  # fmt: skip
        db.execute("INSERT OR IGNORE INTO vector SELECT id, 1, id FROM chunk")


def list_with_vector(file):
    """Words of the chunks that have a vector."""
    query = "SELECT text FROM chunk_text JOIN vector ON vector.chunk = chunk_text.id ORDER BY text"
    return [text for (text,) in file.index.select(query)]


def list_removed(file):
    return {name for (name,) in file.index.select("SELECT name FROM gone")}


def test_calls_and_long_texts_are_embedded_alone(file):
    file.add_run("s1", say("which port"), reply("eight", Part("call", "{}", "ls")), say("x " * 250 + "long"))
    texts = read_by_end(file)
    assert "which port" not in texts["{}"] and "eight" not in texts["long"]
    assert texts["eight"].endswith("user: which port\nassistant: eight")


def test_the_order_of_arrival_does_not_change_the_text(file):
    """A part of a session that comes late takes the place before the turn after it."""
    parts = [(0, say, "first words"), (1, reply, "second words2"), (2, say, "third words3")]
    expected = None
    for n, order in enumerate(permutations(parts)):
        for offset, build, text in order:
            file.add_run(f"s{n}", build(text), from_offset=offset * 1000)
        query = """SELECT chunk.id FROM chunk JOIN turn ON turn.id = turn JOIN run ON run.id = turn.run
            WHERE session = ? ORDER BY turn.offset"""
        chunks = [chunk for (chunk,) in file.index.select(query, f"s{n}")]
        texts = [read_embedded_texts(file.index, [chunk])[chunk].text for chunk in chunks]
        expected = expected or texts
        assert texts == expected and "second words2\n" in texts[2]


def test_a_late_turn_drops_the_vector_of_the_turn_after_it(file):
    file.add_run("s1", say("which port"))
    file.add_run("s1", say("eight"), from_offset=2000)
    give_vectors(file)
    old = read_by_end(file)["eight"]
    file.add_run("s1", reply("on staging"), from_offset=1000)
    assert list_with_vector(file) == ["which port"]
    assert hash_embedded_text(old) in list_removed(file)
    assert file.index.select("SELECT n_left FROM slab") == [(1,)]


def test_a_removed_turn_drops_the_vector_of_the_turn_after_it(file):
    file.add_run("s1", say("which port"))
    file.add_run("s1", say("eight"), from_offset=1000)
    file.add_run("s1", say("thanks"), from_offset=2000)
    give_vectors(file)
    old = read_by_end(file)
    file.add_run("s1", from_offset=1000)  # the same run, with nothing in it
    assert list_with_vector(file) == ["which port"]
    assert {hash_embedded_text(old[word]) for word in ("eight", "thanks")} <= list_removed(file)
    assert "eight" not in read_by_end(file)["thanks"]


def test_the_vector_of_an_earlier_release_is_removed_with_its_turn(file):
    """It was made of the text alone."""
    file.add_run("s1", say("which port"), reply("eight"))
    alone = [item.text_alone for item in read_embedded_texts(file.index, [1, 2]).values()]
    file.add_run("s1", say("which port"))
    assert hash_embedded_text(alone[1]) in list_removed(file)


def test_chunk_is_worded_with_its_speaker():
    assert build_embedded_text("agent", "assistant", None, "Noted.") == "assistant: Noted."
    assert build_embedded_text("agent", "assistant", 0, "x" * 1000) == "[1 January 1970] assistant: " + "x" * 400
    assert build_embedded_text("person", "user", 0, "y" * 3000).endswith("y" * 3000)


@given(st.text())
def test_words_are_named_as_the_cache_names_them(words):
    assert hash_embedded_text(words) == hash_text(words)
