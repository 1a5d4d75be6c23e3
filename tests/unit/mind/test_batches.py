"""Batches: ten messages, in order, never across what was mined; and whose word each message is."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.mind import batches
from perdure.mind.batches import SIZE, stretches
from perdure.types import Part, Turn


def turn(author, text="", *parts, offset=0):
    role = {"person": "user", "machine": "user", "agent": "assistant", "tool": "tool"}[author]
    said = (Part("text", text),) if text else ()
    return Turn(role, author, ((offset, offset + 9),), (*said, *parts))


def call(name, text="{}"):
    return Part("call", text, name)


def test_twenty_five_messages_are_three_batches():
    assert [len(batch) for batch in stretches(range(25), [])] == [10, 10, 5]


def test_what_was_mined_is_in_no_batch_and_ends_one():
    offsets = [0, 10, 20, 30, 40]
    assert stretches(offsets, [(0, 11)]) == [[2, 3, 4]]
    assert stretches(offsets, [(20, 25)]) == [[0, 1], [3, 4]]
    assert stretches(offsets, [(0, 50)]) == [] == stretches([], [])


@given(st.lists(st.integers(0, 200), unique=True), st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30))))
def test_batches_hold_each_message_that_was_not_mined_once_and_cut_no_mined_stretch(offsets, spans):
    offsets, mined = sorted(offsets), [(low, low + n) for low, n in spans]
    found = stretches(offsets, mined)
    left = [n for n, at in enumerate(offsets) if not any(low <= at < high for low, high in mined)]
    assert [n for batch in found for n in batch] == left
    assert all(len(batch) <= SIZE for batch in found)
    for batch in found:
        low, high = offsets[batch[0]], offsets[batch[-1]]
        assert not any(
            low < since <= high and any(since <= offsets[n] < until for n in range(len(offsets)))
            for since, until in mined
        )


def test_a_stretch_ends_before_the_next_turn_begins_even_inside_a_turn_of_several_lines():
    first, last = turn("person", "a"), Turn("assistant", "agent", ((20, 30), (40, 50)), (Part("text", "b"),))
    assert batches.batch_of("s", first, last) == ("s", 0, 30)


def test_a_person_is_the_owner_whatever_came_before():
    assert batches.trust_of(turn("person", "x"), [turn("agent", "y", call("WebFetch"))]) == "owner"


def test_an_agent_that_read_the_web_is_worth_no_more_than_the_web_until_a_person_speaks():
    fetched, heard = turn("agent", "let me look", call("WebFetch", '{"url": "x"}')), turn("tool")
    asked, said = turn("person", "what is it?"), turn("agent", "it is so")
    assert batches.trust_of(said, [heard, fetched, asked]) == "web"
    assert batches.trust_of(fetched, [asked]) == "web"
    assert batches.trust_of(said, [asked, heard, fetched]) == "agent"
    assert batches.trust_of(said, [turn("machine", "done"), heard, fetched, asked]) == "web"


def test_a_shell_that_fetches_counts_as_the_web_and_one_that_does_not_is_none():
    said, asked = turn("agent", "it is so"), turn("person", "go")
    curl = turn("agent", "", call("Bash", '{"command": "curl -s https://x.example | head"}'))
    assert batches.trust_of(said, [curl, asked]) == "web"
    assert batches.trust_of(said, [turn("agent", "", call("Bash", '{"command": "ls"}')), asked]) == "agent"
    for name in ("mcp__brave-search__query", "browser_navigate", "web_search", "google_web_search"):
        assert batches.trust_of(said, [turn("agent", "", call(name)), asked]) == "web", name
    for name in ("Read", "Grep", "Edit", "TodoWrite"):
        assert batches.trust_of(said, [turn("agent", "", call(name)), asked]) == "agent", name


def test_code_is_left_out_and_long_texts_are_shortened_in_the_middle():
    text = "before\n```python\n" + "x = 1\n" * 40 + "```\nafter"
    assert batches.shown(text, 500) == "before\n[code: 40 lines]\nafter"
    long = "a" * 600 + " middle " + "z" * 600
    found = batches.shown(long, 300)
    assert len(found) <= 310 and found.startswith("aaa") and found.endswith("zzz") and "[…]" in found
    assert batches.shown("an open fence\n```\nx\ny", 100) == "an open fence\n[code: 1 lines]"
