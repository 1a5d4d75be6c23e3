"""A session read page by page: every turn once, in order, whichever runs captured it."""

import pytest

from perdure.errors import NotFound
from perdure.index.threads import THREAD_START, SessionThread, ThreadPosition
from perdure.types import Part
from rig.index_rows import ADA, BOB, START, TURN_BYTES, get_span, get_turn_id, make_memory, reply, say, share


@pytest.fixture
def runs(file):
    """One session in two runs that arrived in the wrong order, and its rewritten second generation."""
    call = Part("call", "{}", "ls")
    second = file.add_run(
        "s", reply("", call, minute=3), say("", Part("result", "x"), role="tool", minute=4), reply("done", minute=5),
        from_offset=2 * TURN_BYTES, title="Newer",
    )  # fmt: skip
    first = file.add_run("s", say("zero", minute=1), reply("one", minute=2, model="m1"), title="Older", tags=("deck",))
    third = file.add_run("s", say("again", minute=9), generation=1)
    return first, second, third


def offsets(turns):
    return [tuple(turn.position) for turn in turns]


def test_pages_of_any_size_hold_each_turn_once_in_order(file, runs):
    thread = SessionThread(file.index, ADA, runs[1].run_id)
    whole = offsets(thread.list_from(THREAD_START, 100))
    assert whole == [(0, 0), (0, 100), (0, 200), (0, 300), (0, 400), (1, 0)]
    for k in (1, 2, 4):
        pages, position = [], THREAD_START
        while page := thread.list_from(position, k):
            pages += page
            position = ThreadPosition(page[-1].position.generation, page[-1].position.offset + 1)
        assert offsets(pages) == whole
        before, position = [], ThreadPosition(9, 0)
        while page := thread.list_before(position, k):
            before = page + before
            position = page[0].position
        assert offsets(before) == whole


def test_number_of_turns_before_a_position(file, runs):
    thread = SessionThread(file.index, ADA, runs[0].run_id)
    assert [thread.count_before(ThreadPosition(0, offset)) for offset in (0, 100, 250)] == [0, 1, 3]
    assert thread.count_before(ThreadPosition(1, 0)) == 5


def test_choices_leave_out_tools_or_everyone_but_people(file, runs):
    thread = SessionThread(file.index, ADA, runs[0].run_id)
    assert offsets(thread.list_from(THREAD_START, 9, "person")) == [(0, 0), (1, 0)]
    assert offsets(thread.list_from(THREAD_START, 9, "words")) == [(0, 0), (0, 100), (0, 400), (1, 0)]


def test_a_turn_leads_to_its_thread_and_position(file, runs):
    turn_id = get_turn_id(runs[1], 1)
    thread = SessionThread(file.index, ADA, turn_id)
    assert thread.run_id == runs[1].run_id and thread.start == (0, 2 * TURN_BYTES)
    assert thread.find_position(turn_id) == (0, 3 * TURN_BYTES)
    with pytest.raises(NotFound):
        thread.find_position("tnone")


def test_summary_adds_up_the_runs(file, runs):
    summary = SessionThread(file.index, ADA, runs[0].run_id).summarise()
    assert (summary.n_runs, summary.n_turns, summary.n_calls, summary.n_bytes) == (3, 6, 1, 6 * TURN_BYTES)
    assert (summary.title, summary.intent) == ("Newer", "zero")  # the last title, the first intent
    assert (summary.models, summary.tags) == (("m1",), ("deck",))
    assert ((summary.started_at - START).seconds, (summary.ended_at - START).seconds) == (60, 540)


def test_another_users_session_is_unknown_until_it_is_shared(file, runs):
    for identifier in (runs[0].run_id, get_turn_id(runs[0], 0)):
        with pytest.raises(NotFound):
            SessionThread(file.index, BOB, identifier)
    shared = SessionThread(file.index, share("tag", "deck"), runs[0].run_id)
    assert offsets(shared.list_from(THREAD_START, 9)) == [(0, 0), (0, 100)]  # only the run with the tag


def test_spawned_agents_are_listed_once_each_and_name_their_parent(file, runs):
    """An inline sidechain, a session that names the session, and one that names the run: three agents."""
    top = file.add_run("top", say("go"), say("inline search", thread="x", author="machine", minute=1))
    by_session = file.add_run("child", say("by session", minute=2), parent_session="top")
    file.add_run("child", say("more", minute=3), parent_session="top", from_offset=TURN_BYTES)
    by_run = file.add_run("other", say("by run", minute=4), parent_run_id=top.run_id)
    file.add_run("fork", say("a fork", minute=5), parent_session="top", fork=True)
    thread = SessionThread(file.index, ADA, top.run_id)
    agents = [(agent.intent, agent.n_turns) for agent in thread.list_spawned()]
    assert agents == [("inline search", 1), ("by session", 2), ("by run", 1)]
    sidechain = thread.list_spawned()[0].run_id
    parents = [SessionThread(file.index, ADA, run_id).find_parent_run() for run_id in (sidechain, by_session.run_id)]
    assert parents == [top.run_id, top.run_id] and thread.find_parent_run() is None
    assert SessionThread(file.index, ADA, by_run.run_id).find_parent_run() == top.run_id


def test_copy_of_a_message_leads_to_the_turn_that_stands_for_it(file):
    original = file.add_run("a", say("copied", native_id="m1"))
    fork = file.add_run("b", say("copied", native_id="m1"), say("new", native_id="m2"), fork=True, parent_session="a")
    thread = SessionThread(file.index, ADA, fork.run_id)
    assert thread.find_copy("ada", "messages", "m1") == get_turn_id(original, 0)
    assert thread.find_copy("ada", "messages", "unknown") is None
    assert SessionThread(file.index, ADA, fork.run_id).list_from(THREAD_START, 9)[0].turn_id == get_turn_id(fork, 1)


def test_memories_stand_beside_the_turns_that_they_came_from(file, runs):
    memory = make_memory("zero it is", "count", sources=(get_span(runs[0], 0),), how="stated")
    file.add_memories(memory, make_memory("unrelated", "other", n=1))
    thread = SessionThread(file.index, ADA, runs[0].run_id)
    numbers = [turn.number for turn in thread.list_from(THREAD_START, 9)]
    found = thread.find_memories(numbers)
    assert {turn: [one.memory_id for one in beside] for turn, beside in found.items()} == {
        numbers[0]: [memory.memory_id]
    }
