"""Statements of people become memories: once, however often a capture is read, and from their own typed words only."""

import pytest

from perdure.memories import stated


def keep_all(box, user="ada", **limits):
    return stated.keep_statements(box.open(user), box.archive, **limits)


def texts(box, user="ada"):
    return {memory.text for memory in box.open(user).list_memories()}


@pytest.fixture
def captured(box):
    box.clock.move(days=1)
    box.capture("s", "I prefer tabs over spaces.")
    box.capture("s", "You prefer tabs over spaces.", role="assistant")
    box.capture("s", "What time is it?")
    box.capture("t", "I prefer tea.", user="bob")
    return box


def test_what_a_person_stated_is_kept_with_its_source(captured):
    result = keep_all(captured)
    assert (result.n_turns, result.n_new) == (2, 1)
    (memory,) = captured.open().list_memories()
    assert (memory.kind, memory.how, memory.trust, memory.conversation) == ("preference", "stated", "owner", "s")
    assert len(memory.sources) == 1 and memory.runtime == "messages"


def test_second_look_and_another_home_make_the_same_memory(captured, tmp_path):
    keep_all(captured)
    (memory,) = captured.open().list_memories()
    assert keep_all(captured).n_turns == 0
    captured.archive.ledger.set_meta(stated.build_mark("ada"), "0")  # the mark was lost: everything is read again
    assert keep_all(captured).n_new == 0
    assert [one.memory_id for one in captured.open().list_memories()] == [memory.memory_id]
    assert captured.open().list_memories()[0].n_stated == 1


def test_statements_of_each_user_are_their_own(captured):
    keep_all(captured)
    keep_all(captured, "bob")
    assert all("tabs" in text for text in texts(captured)) and all("tea" in text for text in texts(captured, "bob"))


def test_work_that_ran_out_of_time_goes_on_later(captured):
    """With no time left, one run is read and marked in each call."""
    n_turns = [keep_all(captured, limit_s=-1.0).n_turns for _ in range(4)]
    assert sum(n_turns) == 2 and max(n_turns) == 1 and len(texts(captured)) == 1


def test_restating_reads_only_the_named_runs(captured):
    keep_all(captured)
    run_id = captured.capture("u", "We decided on SQLite.")
    assert stated.restate(captured.open(), captured.archive, [run_id, "0" * 26]).n_new == 1


def test_forgotten_words_are_not_stated_again(captured):
    class Forgotten:
        def is_forgotten_memory(self, text, stated_at):
            return "tabs" in text

    captured.tombstones = Forgotten()
    assert keep_all(captured).n_new == 0 and texts(captured) == set()
