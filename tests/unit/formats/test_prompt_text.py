"""What was typed and what was not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.formats.prompt_text import is_client_summary, is_machine_text, split_typed_text


def kinds(text):
    return [(p.kind, p.text) for p in split_typed_text(text)]


TRACE = """Traceback (most recent call last):
  File "a.py", line 3, in <module>
    run()
  File "b.py", line 9, in run
ValueError: no"""


def test_typed_words_are_one_part():
    assert kinds("fix the bug\nin the parser") == [("text", "fix the bug\nin the parser")]
    assert kinds("  \n ") == []


def test_unclosed_fence_is_pasted():
    assert kinds("see\n```py\nx = 1\n```\nwhy?") == [("text", "see"), ("pasted", "```py\nx = 1\n```"), ("text", "why?")]
    assert kinds("see\n~~~\nx\n") == [("text", "see"), ("pasted", "~~~\nx")]


def test_quoted_lines_are_pasted():
    assert kinds("> he said\n> this\nno") == [("pasted", "> he said\n> this"), ("text", "no")]


def test_stack_trace_is_pasted():
    """Traceback, File, File and ValueError are four log-like lines, the source line between belongs to them."""
    assert kinds(f"why?\n{TRACE}\nplease fix") == [("text", "why?"), ("pasted", TRACE), ("text", "please fix")]


def test_log_is_pasted():
    log = "2026-01-02 03:04:05 start\n2026-01-02 03:04:06 stop\n[ERROR] gone"
    assert kinds(f"look\n\n{log}") == [("text", "look"), ("pasted", log)]


def test_two_odd_lines_may_have_been_typed():
    assert [k for k, _ in kinds("do:\n$ ls\n$ pwd\nthen stop")] == ["text"]


def test_a_marker_of_pasted_text():
    assert kinds("compare [Pasted text #1 +23 lines] with this") == [
        ("text", "compare "),
        ("pasted", "[Pasted text #1 +23 lines]"),
        ("text", " with this"),
    ]


def test_client_blocks_are_pasted():
    assert kinds("<ide_selection>x = 1</ide_selection>\nrename") == [
        ("pasted", "<ide_selection>x = 1</ide_selection>"),
        ("text", "rename"),
    ]
    assert kinds("is <b>bold</b> or <skill> open")[0][0] == "text"


@pytest.mark.parametrize(
    "text", ["<task-notification>x", " [Request interrupted by user]", "<system-reminder>a</system-reminder>\n"]
)
def test_machine_text_is_recognised(text):
    assert is_machine_text(text)


@pytest.mark.parametrize(
    "text", ["", "hi", "<system-reminder>a</system-reminder>\nhi", "<div>why?</div>", "<system-reminder> open"]
)
def test_typed_text_is_not_taken_for_a_machine(text):
    assert not is_machine_text(text)


def test_summaries_are_recognised():
    assert is_client_summary("This session is being continued from a previous conversation that ran out")


pieces = st.sampled_from(
    ["```\n", "> q\n", "<skill>", "</skill>", "[Pasted text #1]", "at x:1\n", "[ERROR] x\n", "word ", "\n", "  ", "é"]
)


@given(st.lists(pieces | st.text(max_size=8), max_size=20).map("".join))
def test_splitting_loses_only_blank_space(text):
    joined = "".join(part.text for part in split_typed_text(text))
    assert re.sub(r"\s", "", joined) == re.sub(r"\s", "", text)


@given(st.lists(pieces | st.text(max_size=8), max_size=20).map("".join))
def test_parts_are_never_blank(text):
    assert all(part.text.strip() for part in split_typed_text(text))


@pytest.mark.parametrize(
    "bit", ["<skill>", "<skill></skill>", "[Pasted text", "```\n", "> \n", "at x:1\n", "a.a", "<skill " + "x" * 400]
)
def test_a_megabyte_of_anything_is_quick(bit):
    split_typed_text(bit * (1_000_000 // len(bit)))
    is_machine_text(bit * (1_000_000 // len(bit)))
