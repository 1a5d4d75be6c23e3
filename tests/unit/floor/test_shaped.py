"""What is kept of what was said, and where the rules put it."""

import doctest
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.floor import extract
from perdure.floor.shaped import Said, Talk, listed, newest, shaped, spans
from perdure.text import tokens
from perdure.types import Part, Span, Turn

START = datetime(2026, 1, 15, 9, tzinfo=UTC)
TALKS = [Talk("pi", "aaaaaaaa", "/w/alder"), Talk("codex", "bbbbbbbb")]


def turn(*parts, author="person", **more):
    role = {"person": "user", "agent": "assistant"}.get(author, "user")
    return Turn(role, author, ((0, 9),), tuple(Part(*part) for part in parts), **more)


def said(n, text="hello", talk=0, author="person"):
    return Said(START + timedelta(minutes=n), author, text, TALKS[talk], Span(f"r{n:03}", 0, 9))


MANY = st.lists(
    st.builds(said, st.integers(0, 99), st.text("ab \n", min_size=1, max_size=60).filter(str.strip), st.integers(0, 1)),
    max_size=30, unique_by=lambda one: one.span,
)  # fmt: skip


@pytest.mark.parametrize("name", ["shaped", "extract", "events", "pages"])
def test_examples(name):
    assert doctest.testmod(import_module(f"perdure.floor.{name}")).failed == 0


def test_a_persons_words_stay_and_what_was_pasted_is_counted():
    words = "keep  this\n   as it is " + "and long " * 300
    assert shaped(turn(("text", words), ("pasted", "x" * 500))) == f"{words.strip()}\n\n[pasted: 500 characters]"
    assert shaped(turn(("text", "/compact"))) == ""
    monster = shaped(turn(("text", "log line\n" * 5000)))
    assert monster.startswith("log line") and monster.endswith("[pasted: 44999 characters]") and len(monster) < 450


def test_an_agents_words_are_short_and_on_one_line():
    found = shaped(
        turn(("text", "First.\n\n~~~\ncode\n~~~\n" + "And more. " * 50), ("call", "x", "Bash"), author="agent")
    )
    assert found.startswith("First. [code: 1 lines] And more.") and len(found) <= 200 and "\n" not in found


@pytest.mark.parametrize("author", ["tool", "machine"])
def test_nothing_of_tools_and_machines(author):
    assert shaped(turn(("text", "noise"), author=author)) == ""
    assert shaped(turn(("text", "what it was about"), is_summary=True)) == ""


@settings(deadline=None)
@given(MANY, st.integers(0, 2000))
def test_the_newest_fit_and_none_that_is_newer_is_missing(found, most):
    kept = newest(found, most)
    assert len(listed(kept, UTC)) <= most
    ordered = sorted(found, key=lambda one: (one.at, one.span.run_id))
    assert kept == ordered[len(ordered) - len(kept) :]
    assert kept == newest(reversed(found), most)


@settings(deadline=None)
@given(MANY)
def test_every_source_is_covered_once_for_each_run(found):
    made = spans(found, [Span("r000", 5, 50)])
    assert len({span.run_id for span in made}) == len(made)
    for one in (*(one.span for one in found), Span("r000", 5, 50)):
        assert any(
            s.run_id == one.run_id and s.from_offset <= one.from_offset < one.to_offset <= s.to_offset for s in made
        )
    assert spans([], made) == made


@settings(deadline=None)
@given(MANY, st.integers(1, 300))
def test_rules_make_the_same_page_in_any_order_and_within_its_size(found, most):
    made = extract.recent(found, "", zone=UTC, most_tokens=most)
    assert made == extract.recent(reversed(found), "", zone=UTC, most_tokens=most) and tokens(made) <= most
    whole = extract.recent(found, "", zone=UTC, most_tokens=10_000)
    assert whole.startswith(made.split("\n\n")[0][:20]) and whole == extract.recent(
        found, whole, zone=UTC, most_tokens=10_000
    )


def test_an_old_session_that_comes_late_stands_where_it_belongs():
    page = extract.recent([said(60), said(90, talk=1)], "Mine.", zone=UTC, most_tokens=1000)
    assert [p.split("(")[-1].split(")")[0] for p in page.split("\n\n")] == ["codex bbbbbbbb", "pi aaaaaaaa", "Mine."]
    late = Said(START, "person", "before all", Talk("pi", "cccccccc"), Span("q", 0, 1))
    page = extract.recent([late], page, zone=UTC, most_tokens=1000)
    assert page.split("\n\n")[-1].startswith("**2026-01-15 09:00** (pi cccccccc)")


@settings(deadline=None)
@given(st.text("ab \n", max_size=300), st.integers(1, 60))
def test_a_cut_keeps_a_beginning(text, most):
    found = extract.within(text, most)
    assert tokens(found) <= most and text.strip().startswith(found)
    assert found or not text.strip()


def test_sessions_that_begin_alike_stay_apart():
    one, other = (Talk("codex", f"019b2c3d-7e1f-7a00-8000-00000000000{n}") for n in (1, 2))
    found = [Said(START, "person", f"question {n}", talk, Span(f"r{n}", 0, 1)) for n, talk in enumerate((one, other))]
    made = extract.recent(found, "", zone=UTC, most_tokens=1000)
    assert "question 0" in made and "question 1" in made
    assert made.count("**2026") == 2 == extract.recent(found, made, zone=UTC, most_tokens=1000).count("**2026")


def test_a_name_that_would_end_a_heading_is_put_without():
    odd = Talk("pi", "a)b*c", "/w/**x** (1)")
    made = extract.recent([Said(START, "person", "hi", odd, Span("r", 0, 1))], "", zone=UTC, most_tokens=1000)
    assert made.startswith("**2026-01-15 09:00, x 1** (pi abc)\n")
    assert extract.recent([Said(START, "person", "hi", odd, Span("r", 0, 1))], made, zone=UTC, most_tokens=99) == made


def test_a_project_is_named_by_its_last_name_on_whatever_system():
    for path in ("/w/alder/", "D:\\work\\alder", "alder"):
        assert Talk("pi", "c", path).place == "alder"
    assert Talk("pi", "c").place == ""
