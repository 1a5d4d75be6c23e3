"""Turns of sessions: the prompt of an injection and its answer, quotes, and messages that are still to be mined."""

from datetime import UTC, datetime, timedelta

import pytest

from perdure.index.session_turns import (
    MAX_TIME_GAP,
    PromptTurn,
    find_exchange,
    find_last_times,
    find_nearest_prompt,
    find_tagged_conversations,
    list_message_offsets,
    list_prompts,
    list_turn_chunks,
    list_turns_of_source,
    list_unmined_sources,
    quote_turn,
)
from perdure.types import Part
from rig.index_rows import ADA, BOB, START, TURN_BYTES, get_turn_id, reply, say, share

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)


def asked(name, after):
    return PromptTurn(name, AT + after, name, None)


def test_nearest_message_within_the_limit_is_chosen():
    near, nearer = asked("near", -MAX_TIME_GAP), asked("nearer", timedelta(seconds=5))
    far = asked("far", MAX_TIME_GAP + timedelta(milliseconds=1))
    assert find_nearest_prompt([near, nearer, far], AT) is nearer
    assert find_nearest_prompt([near, far], AT) is near
    assert find_nearest_prompt([far], AT) is None
    assert find_nearest_prompt([], AT) is None


# in an index ----------------------------------------------------------------------------------------------------


@pytest.fixture
def talk(file):
    """A prompt at minute 0 with an answer of two turns, a notice, and the next prompt at minute 30."""
    file.add_run(
        "s", say("which port?"), reply("It is 8080.", Part("call", '{"a": 1}', "grep"), minute=1),
        say("a notice", author="machine", minute=2), reply("Written down.", minute=3), say("thanks", minute=30),
        project="/w/tide",
    )  # fmt: skip
    return file


def test_exchange_holds_the_prompt_and_the_whole_answer(talk):
    """The agent's words come first, then the input of its calls; the notice between is no part of either."""
    exchange = find_exchange(talk.index, "ada", "messages", "s", START + timedelta(seconds=20))
    assert (exchange.prompt, exchange.answer) == ("which port?", 'It is 8080.\nWritten down.\ngrep {"a": 1}')
    assert exchange.ended and exchange.last_at == START + timedelta(minutes=3)
    last = find_exchange(talk.index, "ada", "messages", "s", START + timedelta(minutes=30))
    assert (last.prompt, last.answer, last.ended, last.last_at) == ("thanks", "", False, None)


@pytest.mark.parametrize(
    ("user", "runtime", "session", "minute"),
    [("bob", "messages", "s", 0), ("ada", "pi", "s", 0), ("ada", "messages", "t", 0), ("ada", "messages", "s", 10)],
)
def test_no_exchange_without_a_prompt_of_that_session_then(talk, user, runtime, session, minute):
    talk.add_run("t", say("elsewhere", minute=600), user="bob")
    assert find_exchange(talk.index, user, runtime, session, START + timedelta(minutes=minute)) is None


def test_prompts_of_a_session_between_two_moments(talk):
    until = START + timedelta(minutes=30)
    prompts = list_prompts(talk.index, "ada", "messages", "s", since_at=START + timedelta(minutes=5), until_at=until)
    assert [(prompt.text, prompt.at, prompt.project) for prompt in prompts] == [("thanks", until, "/w/tide")]
    first = list_prompts(talk.index, "ada", "messages", "s", since_at=START, until_at=START)
    assert [prompt.text for prompt in first] == ["which port?"]
    assert list_prompts(talk.index, "bob", "messages", "s", since_at=START, until_at=until) == []


NOTICE = "<task-notification>the job is done</task-notification>"


def test_a_notice_is_no_prompt(file):
    """The notice comes at the time of the injection; the person's message 30 seconds (0.5 minutes) before it."""
    file.add_run("s", say("which port?"), say(NOTICE, author="machine", minute=0.5), reply("8080.", minute=1))
    at = START + timedelta(seconds=30)
    assert find_exchange(file.index, "ada", "messages", "s", at).prompt == "which port?"
    prompts = list_prompts(file.index, "ada", "messages", "s", since_at=START, until_at=at)
    assert [prompt.text for prompt in prompts] == ["which port?"]
    file.add_run("t", say(NOTICE, author="machine"), reply("8080.", minute=1))
    assert find_exchange(file.index, "ada", "messages", "t", START) is None


def test_the_task_of_a_sub_agent_is_a_prompt(file):
    """Beside a person's message it comes second, even if it is nearer."""
    file.add_run("s/a", say("find the port", author="machine"), reply("8080.", minute=1), parent_session="s")
    assert find_exchange(file.index, "ada", "messages", "s/a", START).prompt == "find the port"
    (task,) = list_prompts(file.index, "ada", "messages", "s/a", since_at=START, until_at=START)
    assert (task.text, task.is_typed) == ("find the port", False)
    assert find_nearest_prompt([task, asked("typed", START - AT + timedelta(seconds=9))], START).turn_id == "typed"


def test_a_turn_is_quoted_only_for_those_who_may_read_it(file):
    long = " ".join(f"word{n}" for n in range(1000))
    run = file.add_run("s", say("short words", Part("call", "{}", "ls"), minute=4), say(long), tags=("open",))
    turn_id = get_turn_id(run, 0)
    quoted = quote_turn(file.index, ADA, turn_id)
    assert (quoted.said, quoted.role, quoted.machine) == ("short words\nls {}", "user", "laptop")
    assert quote_turn(file.index, BOB, turn_id) is None and quote_turn(file.index, ADA, "tnone") is None
    assert quote_turn(file.index, share("tag", "open"), turn_id) == quoted
    assert list_turn_chunks(file.index, "ada", turn_id) == ["short words", "ls {}"]
    assert list_turn_chunks(file.index, "bob", turn_id) == []
    assert len(list_turn_chunks(file.index, "ada", get_turn_id(run, 1))) > 1


def test_source_is_unmined_until_a_batch_covers_its_messages(file):
    """Three messages at offsets 0, 100 and 300 (a tool's result at 200 is none): each batch leaves fewer."""
    tool = say("", Part("result", "x"), role="tool", minute=2)
    file.add_run("s", say("one"), reply("two", minute=1), tool, reply("three", minute=3), project="/w/tide")
    (source,) = list_unmined_sources(file.index, "ada")
    assert (source.source, source.n_left, source.project, source.is_subagent) == ("messages\ts\t0", 3, "/w/tide", False)
    file.add_memories(batch=(source.source, 0, 100))
    assert [left.n_left for left in list_unmined_sources(file.index, "ada")] == [2]  # the end is exclusive
    file.add_memories(batch=(source.source, 100, 301))
    assert list_unmined_sources(file.index, "ada") == [] and list_unmined_sources(file.index, "bob") == []


def test_sources_that_began_first_come_first(file):
    file.add_run("late", say("b", minute=50))
    file.add_run("early", say("a"), parent_session="late")
    file.add_run("fork", say("c", minute=90), parent_session="late", fork=True)
    sources = list_unmined_sources(file.index, "ada")
    assert [(source.session, source.is_subagent) for source in sources] == [
        ("early", True), ("late", False), ("fork", False),
    ]  # fmt: skip


def test_turns_of_a_source_say_which_are_messages(file):
    call = Part("call", "{}", "ls")
    first = file.add_run("s", say("one"), reply("", call, minute=1), say("sum", is_summary=True, minute=2))
    second = file.add_run("s", reply("two", minute=3), from_offset=3 * TURN_BYTES)
    (source,) = list_unmined_sources(file.index, "ada")
    turns = list_turns_of_source(file.index, "ada", source)
    assert [(turn.run_id, turn.offset, turn.is_message) for turn in turns] == [
        (first.run_id, 0, True), (first.run_id, 100, False), (first.run_id, 200, False), (second.run_id, 300, True),
    ]  # fmt: skip
    assert list_message_offsets(file.index, first.run_id) == {0}
    assert list_turns_of_source(file.index, "bob", source) == []


def test_message_that_two_runs_hold_is_listed_for_one(file):
    original = file.add_run("a", say("copied", native_id="m1"))
    fork = file.add_run("b", say("copied", native_id="m1"), say("own", native_id="m2"))
    assert list_message_offsets(file.index, original.run_id) == {0}
    assert list_message_offsets(file.index, fork.run_id) == {TURN_BYTES}


def test_conversations_are_found_by_tag_and_by_last_time(file):
    file.add_run("s", say("one"), say("two", minute=7), tags=("mining",))
    file.add_run("s/1", say("below", minute=9), conversation="s")
    file.add_run("t", say("undated", minute=None), captured_at=START)
    file.add_run("u", say("of bob"), user="bob", tags=("mining",))
    assert find_tagged_conversations(file.index, "ada", "mining") == {"s"}
    assert find_tagged_conversations(file.index, "ada", "unknown") == set()
    assert find_last_times(file.index, "ada") == {"s": START + timedelta(minutes=9), "t": START}
