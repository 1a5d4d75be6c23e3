"""Statements of people become memories: once, however often a capture is read, and from their own typed words only."""

import pytest

from perdure.memories import consolidate, stated
from perdure.memories.store import MemoryDraft
from perdure.types import Span


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


def keep_guess(box, text, session):
    """Keep a memory as an earlier release did, of a sentence that no form asks to keep."""
    run_id = box.capture(session, text)
    _, parsed = box.archive.read_turns(box.archive.get_entry(run_id))
    span = Span(run_id, *parsed.turns[0].lines[0])
    return box.open().keep_all([MemoryDraft(text, how="stated", sources=(span,))], by="rules")[0].memory.memory_id


def test_guesses_of_earlier_rules_are_found(box):
    guess = keep_guess(box, "The build of the gallery is red.", "a")
    keep_guess(box, "I prefer tabs over spaces.", "b")
    box.open().keep(MemoryDraft("The port is 8443"))
    pinned = keep_guess(box, "The roof of the gallery is grey.", "c")
    box.open().change([pinned], pinned=True)
    box.open().keep_all([MemoryDraft("its source is gone", how="stated", sources=(Span("0" * 26, 0, 9),))], by="rules")
    assert stated.find_guesses(box.open(), box.archive) == {guess}
    box.capture("d", "remember that the tests need a clock")
    keep_all(box)
    assert stated.find_guesses(box.open(), box.archive) == {guess}, "what was kept behind a form is no guess"


def test_guesses_are_retired_and_come_back(box):
    guess = keep_guess(box, "The build of the gallery is red.", "a")
    memories = box.open()
    guess_ids = stated.find_guesses(memories, box.archive)
    (proposal,) = consolidate.list_proposals(memories, guess_ids=guess_ids)
    assert (proposal.kind, proposal.retired_ids) == ("guess", (guess,))
    consolidate.apply_proposals(memories, kind="guess", guess_ids=guess_ids)
    assert memories.list_memories() == [] and stated.find_guesses(memories, box.archive) == set()
    consolidate.undo_consolidation(memories)
    assert [memory.memory_id for memory in memories.list_memories()] == [guess]
