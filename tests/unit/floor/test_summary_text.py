"""What is kept of what was said, and where the rules put it."""

import doctest
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.floor import summary_text
from perdure.floor.summary_input import (
    SummaryMessage,
    SummarySession,
    merge_spans,
    render_sessions,
    select_newest,
    shape_turn,
)
from perdure.text import tokens
from perdure.types import Part, Span, Turn

START = datetime(2026, 1, 15, 9, tzinfo=UTC)
TALKS = [SummarySession("pi", "aaaaaaaa", "/w/alder"), SummarySession("codex", "bbbbbbbb")]


def turn(*parts, author="person", **more):
    role = {"person": "user", "agent": "assistant"}.get(author, "user")
    return Turn(role, author, ((0, 9),), tuple(Part(*part) for part in parts), **more)


def said(n, text="hello", talk=0, author="person"):
    return SummaryMessage(START + timedelta(minutes=n), author, text, TALKS[talk], Span(f"r{n:03}", 0, 9))


MANY = st.lists(
    st.builds(said, st.integers(0, 99), st.text("ab \n", min_size=1, max_size=60).filter(str.strip), st.integers(0, 1)),
    max_size=30, unique_by=lambda one: one.span,
)  # fmt: skip


@pytest.mark.parametrize("name", ["summary_input", "summary_text", "state", "pages"])
def test_examples(name):
    assert doctest.testmod(import_module(f"perdure.floor.{name}")).failed == 0


def test_typed_words_stay_and_pasted_ones_are_counted():
    words = "keep  this\n   as it is " + "and long " * 300
    assert shape_turn(turn(("text", words), ("pasted", "x" * 500))) == f"{words.strip()}\n\n[pasted: 500 characters]"
    assert shape_turn(turn(("text", "/compact"))) == ""
    monster = shape_turn(turn(("text", "log line\n" * 5000)))
    assert monster.startswith("log line") and monster.endswith("[pasted: 44999 characters]") and len(monster) < 450


def test_an_agents_words_are_short_and_on_one_line():
    found = shape_turn(
        turn(("text", "First.\n\n~~~\ncode\n~~~\n" + "And more. " * 50), ("call", "x", "Bash"), author="agent")
    )
    assert found.startswith("First. [code: 1 lines] And more.") and len(found) <= 200 and "\n" not in found


@pytest.mark.parametrize("author", ["tool", "machine"])
def test_tool_and_machine_turns_are_omitted(author):
    assert shape_turn(turn(("text", "noise"), author=author)) == ""
    assert shape_turn(turn(("text", "what it was about"), is_summary=True)) == ""


@settings(deadline=None)
@given(MANY, st.integers(0, 2000))
def test_newest_turns_fit_without_a_gap(found, most):
    kept = select_newest(found, most)
    assert len(render_sessions(kept, UTC)) <= most
    ordered = sorted(found, key=lambda one: (one.stated_at, one.span.run_id))
    assert kept == ordered[len(ordered) - len(kept) :]
    assert kept == select_newest(reversed(found), most)


@settings(deadline=None)
@given(MANY)
def test_every_source_is_covered_once_for_each_run(found):
    made = merge_spans(found, [Span("r000", 5, 50)])
    assert len({span.run_id for span in made}) == len(made)
    for one in (*(one.span for one in found), Span("r000", 5, 50)):
        assert any(
            s.run_id == one.run_id and s.from_offset <= one.from_offset < one.to_offset <= s.to_offset for s in made
        )
    assert merge_spans([], made) == made


@settings(deadline=None)
@given(MANY, st.integers(1, 300))
def test_rules_make_the_same_page_in_any_order_within_its_size(found, most):
    made = summary_text.extract_recent(found, "", zone=UTC, max_tokens=most)
    assert made == summary_text.extract_recent(reversed(found), "", zone=UTC, max_tokens=most) and tokens(made) <= most
    whole = summary_text.extract_recent(found, "", zone=UTC, max_tokens=10_000)
    assert whole.startswith(made.split("\n\n")[0][:20]) and whole == summary_text.extract_recent(
        found, whole, zone=UTC, max_tokens=10_000
    )


def test_late_old_session_is_placed_by_its_time():
    page = summary_text.extract_recent([said(60), said(90, talk=1)], "Mine.", zone=UTC, max_tokens=1000)
    assert [p.split("(")[-1].split(")")[0] for p in page.split("\n\n")] == ["codex bbbbbbbb", "pi aaaaaaaa", "Mine."]
    late = SummaryMessage(START, "person", "before all", SummarySession("pi", "cccccccc"), Span("q", 0, 1))
    page = summary_text.extract_recent([late], page, zone=UTC, max_tokens=1000)
    assert page.split("\n\n")[-1].startswith("**2026-01-15 09:00** (pi cccccccc)")


@settings(deadline=None)
@given(st.text("ab \n", max_size=300), st.integers(1, 60))
def test_a_cut_keeps_a_beginning(text, most):
    found = summary_text.cut_to_tokens(text, most)
    assert tokens(found) <= most and text.strip().startswith(found)
    assert found or not text.strip()


def test_sessions_with_the_same_beginning_stay_apart():
    one, other = (SummarySession("codex", f"019b2c3d-7e1f-7a00-8000-00000000000{n}") for n in (1, 2))
    found = [
        SummaryMessage(START, "person", f"question {n}", talk, Span(f"r{n}", 0, 1))
        for n, talk in enumerate((one, other))
    ]
    made = summary_text.extract_recent(found, "", zone=UTC, max_tokens=1000)
    assert "question 0" in made and "question 1" in made
    assert (
        made.count("**2026") == 2 == summary_text.extract_recent(found, made, zone=UTC, max_tokens=1000).count("**2026")
    )


def test_name_that_would_end_a_heading_is_cleaned():
    odd = SummarySession("pi", "a)b*c", "/w/**x** (1)")
    made = summary_text.extract_recent(
        [SummaryMessage(START, "person", "hi", odd, Span("r", 0, 1))], "", zone=UTC, max_tokens=1000
    )
    assert made.startswith("**2026-01-15 09:00, x 1** (pi abc)\n")
    assert (
        summary_text.extract_recent(
            [SummaryMessage(START, "person", "hi", odd, Span("r", 0, 1))], made, zone=UTC, max_tokens=99
        )
        == made
    )


def test_project_is_named_by_its_last_path_part_on_any_system():
    for path in ("/w/alder/", "D:\\work\\alder", "alder"):
        assert SummarySession("pi", "c", path).project_name == "alder"
    assert SummarySession("pi", "c").project_name == ""
