"""Batches: ten messages, in order, never across what was mined; and whose word each message is."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.memories import mining_question
from perdure.memories.mining_question import BATCH_SIZE, split_batches
from perdure.types import Part, Turn


def turn(author, text="", *parts, offset=0):
    role = {"person": "user", "machine": "user", "agent": "assistant", "tool": "tool"}[author]
    said = (Part("text", text),) if text else ()
    return Turn(role, author, ((offset, offset + 9),), (*said, *parts))


def call(name, text="{}"):
    return Part("call", text, name)


def test_twenty_five_messages_are_three_batches():
    assert [len(batch) for batch in split_batches(range(25), [])] == [10, 10, 5]


def test_mined_messages_are_in_no_batch_and_end_one():
    offsets = [0, 10, 20, 30, 40]
    assert split_batches(offsets, [(0, 11)]) == [[2, 3, 4]]
    assert split_batches(offsets, [(20, 25)]) == [[0, 1], [3, 4]]
    assert split_batches(offsets, [(0, 50)]) == [] == split_batches([], [])


@given(st.lists(st.integers(0, 200), unique=True), st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30))))
def test_batches_hold_each_unmined_message_once(offsets, spans):
    offsets, mined = sorted(offsets), [(low, low + n) for low, n in spans]
    found = split_batches(offsets, mined)
    left = [n for n, at in enumerate(offsets) if not any(low <= at < high for low, high in mined)]
    assert [n for batch in found for n in batch] == left
    assert all(len(batch) <= BATCH_SIZE for batch in found)
    for batch in found:
        low, high = offsets[batch[0]], offsets[batch[-1]]
        assert not any(
            low < since <= high and any(since <= offsets[n] < until for n in range(len(offsets)))
            for since, until in mined
        )


def test_stretch_ends_before_the_next_turn_of_several_lines():
    first, last = turn("person", "a"), Turn("assistant", "agent", ((20, 30), (40, 50)), (Part("text", "b"),))
    assert mining_question.to_mined_range("s", first, last) == ("s", 0, 30)


def test_message_of_a_person_always_has_owner_trust():
    assert mining_question.rate_trust(turn("person", "x"), [turn("agent", "y", call("WebFetch"))]) == "owner"


def test_agent_after_the_web_has_web_trust_until_a_person_speaks():
    fetched, heard = turn("agent", "let me look", call("WebFetch", '{"url": "x"}')), turn("tool")
    asked, said = turn("person", "what is it?"), turn("agent", "it is so")
    assert mining_question.rate_trust(said, [heard, fetched, asked]) == "web"
    assert mining_question.rate_trust(fetched, [asked]) == "web"
    assert mining_question.rate_trust(said, [asked, heard, fetched]) == "agent"
    assert mining_question.rate_trust(said, [turn("machine", "done"), heard, fetched, asked]) == "web"


def test_only_a_shell_command_that_fetches_counts_as_web():
    said, asked = turn("agent", "it is so"), turn("person", "go")
    curl = turn("agent", "", call("Bash", '{"command": "curl -s https://x.example | head"}'))
    assert mining_question.rate_trust(said, [curl, asked]) == "web"
    assert mining_question.rate_trust(said, [turn("agent", "", call("Bash", '{"command": "ls"}')), asked]) == "agent"
    for name in ("mcp__brave-search__query", "browser_navigate", "web_search", "google_web_search"):
        assert mining_question.rate_trust(said, [turn("agent", "", call(name)), asked]) == "web", name
    for name in ("Read", "Grep", "Edit", "TodoWrite"):
        assert mining_question.rate_trust(said, [turn("agent", "", call(name)), asked]) == "agent", name


def test_code_is_omitted_and_long_texts_lose_their_middle():
    text = "before\n```python\n" + "x = 1\n" * 40 + "```\nafter"
    assert mining_question.shorten_message(text, 500) == "before\n[code: 40 lines]\nafter"
    long = "a" * 600 + " middle " + "z" * 600
    found = mining_question.shorten_message(long, 300)
    assert len(found) <= 310 and found.startswith("aaa") and found.endswith("zzz") and "[…]" in found
    assert mining_question.shorten_message("an open fence\n```\nx\ny", 100) == "an open fence\n[code: 1 lines]"
