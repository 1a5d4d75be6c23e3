"""Rows of runs: written twice they do not change, and copies of a message are one turn in any order of arrival."""

from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.index.rebuild import compute_digest
from perdure.index.write import has_run, has_run_id
from perdure.types import Part
from rig.index_rows import TURN_BYTES, IndexFile, get_turn_id, reply, say


def list_turns(file):
    """(turn id, offset, words) of every turn."""
    query = """SELECT turn_id, offset, group_concat(text, '|') FROM turn JOIN chunk ON chunk.turn = turn.id
        JOIN chunk_text ON chunk_text.id = chunk.id GROUP BY turn.id ORDER BY turn_id"""
    return file.index.select(query)


def find_words(file, word):
    """The rows of the full-text index with a word."""
    return file.index.select('SELECT rowid FROM "words_1" WHERE "words_1" MATCH ?', word)


def list_wrong_counts(file):
    """Names whose count of chunks is not that of the chunks that carry the name in their scope."""
    scopes = [scope.split() for (scope,) in file.index.select("SELECT scope FROM chunk_text")]
    counts = file.index.select("SELECT id, value, n_chunks FROM name WHERE kind <> 'user'")
    return [value for number, value, n in counts if n != sum(f"z{number}z" in scope for scope in scopes)]


def test_writing_a_run_twice_changes_nothing(file):
    turns = say("the port is 8080", files=("/w/a.py",)), reply("noted", Part("call", "{}", "ls"))
    run = file.add_run("s1", *turns, tags=("work",))
    digest, rows = compute_digest(file.index), list_turns(file)
    assert file.add_run("s1", *turns, tags=("work",)) == run
    assert (compute_digest(file.index), list_turns(file)) == (digest, rows)
    assert list_wrong_counts(file) == []


def test_a_run_is_known_by_its_exact_bytes(file):
    run = file.add_run("s1", say("a"))
    changed = file.add_run("s1", say("b"))
    assert has_run_id(file.index, run.run_id) and not has_run_id(file.index, "x")
    assert has_run(file.index, changed) and not has_run(file.index, run)


def test_words_and_facets_of_a_removed_turn_leave_no_row(file):
    file.add_run("s1", say("barnacle", files=("/w/a.py",)), say("limpet"))
    assert len(find_words(file, "barnacle")) == 1
    file.add_run("s1", say("limpet"))
    assert find_words(file, "barnacle") == [] and len(find_words(file, "limpet")) == 1
    assert file.index.select("SELECT * FROM facet") == [] and file.index.select("SELECT * FROM turn_facet") == []
    assert [words for _, _, words in list_turns(file)] == ["limpet"] and list_wrong_counts(file) == []


def test_later_state_of_a_message_keeps_its_id_and_offset(file):
    first = file.add_run("s1", say("draft", native_id="m1"))
    file.add_run("s1", say("final", native_id="m1"), from_offset=TURN_BYTES)
    assert list_turns(file) == [(get_turn_id(first, 0), 0, "final")]
    assert find_words(file, "draft") == []


def test_state_of_a_message_that_arrives_late_is_not_taken(file):
    """The run with the later bytes came first: the earlier one gives the position only."""
    file.add_run("s1", say("final", native_id="m1"), from_offset=TURN_BYTES)
    first = file.add_run("s1", say("draft", native_id="m1"))
    assert list_turns(file) == [(get_turn_id(first, 0), 0, "final")]


HISTORY = (
    ("s1", 0, (say("draft", native_id="m1"), say("one", native_id="m2"))),
    ("s1", 2 * TURN_BYTES, (say("final", native_id="m1"),)),
    ("s2", 0, (say("draft", native_id="m1"), say("one", native_id="m2"), say("two", native_id="m3"))),
    ("s3", 0, (say("one", native_id="m2"), say("three", native_id="m4"))),
)


@pytest.mark.parametrize("order", list(permutations(range(len(HISTORY)))), ids=lambda order: "".join(map(str, order)))
def test_copies_of_messages_are_one_turn_in_any_order(file, order):
    """s1 sorts first, so its copies stay; the last of its two states of m1 is the content."""
    for session, from_offset, turns in (HISTORY[n] for n in order):
        file.add_run(session, *turns, from_offset=from_offset)
    assert sorted(words for _, _, words in list_turns(file)) == ["final", "one", "three", "two"]
    assert sorted(offset for _, offset, _ in list_turns(file)) == [0, TURN_BYTES, TURN_BYTES, 2 * TURN_BYTES]
    assert list_wrong_counts(file) == []


PLACES = [(session, position) for session in ("s1", "s2") for position in range(3)]
words = st.sampled_from(["port", "port 8080", "the barnacle", "limpet limpet"])
contents = st.fixed_dictionaries({place: st.tuples(words, words) for place in PLACES})
arrivals = st.lists(st.tuples(st.sampled_from(PLACES), st.booleans()), min_size=1, max_size=6)


@settings(max_examples=15, deadline=None)
@given(contents, arrivals)
def test_counts_and_words_agree_with_the_chunks_that_are_left(content, drawn):
    """Runs of two sessions arrive in any order, some again with their last turn forgotten: no word is left over.

    Each run begins with a newer state of the message m0; its second message is the same in both sessions.
    """
    with TemporaryDirectory() as folder:
        file = IndexFile(Path(folder))
        for (session, position), is_whole in drawn:
            first, second = content[session, position]
            turns = [say(first, native_id="m0"), say(second, native_id=f"m{position + 1}")]
            file.add_run(session, *turns[: 1 + is_whole], from_offset=position * 2 * TURN_BYTES)
        assert list_wrong_counts(file) == []
        for word in ("port", "barnacle", "limpet"):
            texts = [text for (text,) in file.index.select("SELECT text FROM chunk_text") if word in text]
            assert len(find_words(file, word)) == len(texts)
        file.index.db.execute('INSERT INTO "words_1"("words_1") VALUES (\'integrity-check\')')
        file.close()


def test_abandoned_branch_is_marked_when_the_session_goes_back(file):
    """Entries a → b → c, then d continues a: b and c are abandoned. The next run returns to c, so d is."""
    turns = [say(name, link=(name, above)) for name, above in (("a", None), ("b", "a"), ("c", "b"), ("d", "a"))]
    file.add_run("s1", *turns, links=[turn.link for turn in turns])
    abandoned = "SELECT entry FROM turn WHERE abandoned ORDER BY entry"
    assert file.index.select(abandoned) == [("b",), ("c",)]
    last = say("e", link=("e", "c"))
    file.add_run("s1", last, from_offset=400, links=[last.link])
    assert file.index.select(abandoned) == [("d",)]


def test_sidechain_is_a_child_run_with_its_own_turns(file):
    run = file.add_run("s1", say("go"), say("search the logs", thread="x", author="machine"))
    rows = file.index.select("SELECT run_id, captured_in, thread, parent_run_id, n_turns FROM run ORDER BY thread")
    assert rows[0] == (run.run_id, run.run_id, "", None, 1)
    assert rows[1][1:] == (run.run_id, "x", run.run_id, 1) and rows[1][0] != run.run_id


def test_turn_of_a_machine_has_a_role_of_its_own(file):
    """A filter of role "user" finds what people typed, not notices of the client."""
    file.add_run("s1", say("typed"), say("notice", author="machine"))
    query = """SELECT text, value FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id
        JOIN name ON name.id = chunk.role ORDER BY text"""
    assert file.index.select(query) == [("notice", "machine"), ("typed", "user")]


@pytest.mark.parametrize("has_other", [True, False])
def test_another_message_takes_the_place_of_one_that_moved(file, has_other):
    """A run is written again, and another message stands where a message stood whose newer state took its id."""
    first = file.add_run("s1", say("draft", native_id="m1"))
    moved = file.add_run("s1", say("final", native_id="m1"), from_offset=TURN_BYTES)
    if has_other:
        file.add_run("s1", say("other", native_id="m2"), from_offset=2 * TURN_BYTES)
    file.add_run("s1", say("first", native_id="m2"))
    words = "other" if has_other else "first"
    places = [(get_turn_id(first, 0), 0, words), (get_turn_id(moved, 0), TURN_BYTES, "final")]
    assert list_turns(file) == sorted(places)
    file.add_run("s1", say("draft", native_id="m1"))
    assert (get_turn_id(first, 0), 0, "final") in list_turns(file)
