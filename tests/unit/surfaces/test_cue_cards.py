"""What is shown of a recall, by hand-made cues and candidates."""

import dataclasses
from datetime import UTC, date, datetime, timedelta

import pytest
from msgspec.structs import replace

from perdure.index.injections import CueReason, Injection, UsageWeek
from perdure.recall.pack import cut_excerpt, render_cue
from perdure.recall.plan import plan
from perdure.surfaces import cue_cards
from perdure.surfaces.cue_cards import OmissionContext
from perdure.surfaces.web.views.recall import UseTotals, fill_use_weeks, sum_weeks
from perdure.text import tokens
from perdure.types import Cue, Hit, Memory, Recalled, WithheldText

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)  # a Wednesday
PLAN = plan("Which port does staging use?", now=NOW)
MEMORY = Memory("mem-1", "Staging uses port 8443.", "fact", "staging/port", "default", None, NOW, NOW, "owner", "mined")
HIT = Hit("t1", "r1", "c", "", "pi", "laptop", "default", None, "user", "person", "text", NOW, "Use 8443.", 1.0,
          user="ada")  # fmt: skip
WHY = ("contains your words: port",)
CUE = Cue("t1", "r1", "c", "user", NOW, "laptop", "pi", "Use 8443.", 0.8, {}, WHY)
EMPTY = Recalled((), PLAN)


def injection(**more):
    made = Injection("n", NOW, "pi", "s", "", "d", (CueReason("t1"), CueReason("mem-1")), 9, 99, 1.0, {}, (), "fact")
    return dataclasses.replace(made, **more)


def test_legs_are_bars_of_at_most_a_whole():
    found = cue_cards.make_leg_bars({"vector": 0.4, "keyword": 1.3, "done": -0.2})
    assert [(bar.label, bar.width) for bar in found] == [("words", 100.0), ("meaning", 40.0), ("done, not said", 0.0)]
    assert found[0].value == 1.3


def test_steps_share_one_bar_and_zero_steps_have_none():
    assert [(bar.x, bar.width) for bar in cue_cards.make_step_bars({"queued": 0.0, "cues": 5.0})] == [
        (0.0, 0.0),
        (0.0, 100.0),
    ]
    assert cue_cards.make_step_bars({}) == cue_cards.make_step_bars({"cues": 0.0}) == ()


@pytest.mark.parametrize(
    ("cue", "said"),
    [
        (replace(CUE, user="ada"), "you"),
        (replace(CUE, user="ada", role="assistant"), "the agent"),
        (replace(CUE, user="bob", is_shared=True), "shared by bob"),
        (replace(CUE, memory=MEMORY, user="ada"), "you said"),
        (replace(CUE, memory=replace(MEMORY, trust="web"), user="ada"), "from the web, unverified"),
    ],
)
def test_cue_names_its_speaker(cue, said):
    assert cue_cards.describe_speaker(cue, "ada") == said


def test_changed_memory_is_described():
    assert cue_cards.describe_change(CUE) == cue_cards.describe_change(replace(CUE, memory=MEMORY)) == ""
    assert "newer" in cue_cards.describe_change(replace(CUE, memory=replace(MEMORY, superseded_by="mem-2")))
    assert "retired" in cue_cards.describe_change(replace(CUE, memory=replace(MEMORY, retired=True)))


def test_successor_is_the_current_memory():
    new = replace(MEMORY, memory_id="mem-2", text="Staging uses port 9443.")
    old = replace(MEMORY, superseded_by="mem-2")
    assert cue_cards.find_successor(old, [old, new]) == new
    assert cue_cards.find_successor(MEMORY, [MEMORY]) is None
    assert cue_cards.find_successor(old, [old, replace(new, retired=True)]) is None


def test_note_beside_a_memory_is_that_of_its_moment():
    """Three statements, a day apart: before the third was noted nobody could be told of it, whenever it was said."""
    first, second, third = (
        replace(MEMORY, memory_id=f"mem-{n}", text=f"Port {n}.", stated_at=at, recorded_at=at, order=str(n))
        for n, at in enumerate(NOW + timedelta(days=day) for day in range(3))
    )
    chain = [first, second, replace(third, retired=True)]
    an_hour = timedelta(hours=1)
    assert cue_cards.restore_note(first, chain, NOW + an_hour) == ""
    assert cue_cards.restore_note(second, chain, second.stated_at + an_hour) == "since 2026-03-05; before: “Port 0.”"
    assert (
        cue_cards.restore_note(first, chain, second.stated_at + an_hour)
        == "no longer so since 2026-03-05: now “Port 1.”"
    )
    assert cue_cards.restore_note(third, chain, third.stated_at + an_hour) == "since 2026-03-06; before: “Port 1.”"
    late = replace(second, recorded_at=NOW + timedelta(days=9))
    assert cue_cards.restore_note(first, [first, late], second.stated_at + an_hour) == ""


def test_cue_text_is_cut_to_its_token_count():
    long = replace(CUE, text="Staging uses port 8443. " * 100)
    n_tokens = tokens(render_cue(replace(long, text=cut_excerpt(long.text, frozenset({"port"}), 400)))) + 1
    assert len(cue_cards.cut_as_injected(replace(long, n_tokens=n_tokens), PLAN).text) <= 400
    assert 800 < len(cue_cards.cut_as_injected(replace(long, n_tokens=0), PLAN).text) <= 1600  # nobody counted


def test_cue_text_is_restored_from_the_matching_chunk():
    other = replace(HIT, text="Lunch was good.", chunk=0)
    asked = replace(HIT, text="The staging port is 8443.", chunk=1)
    cue = cue_cards.restore_cue(CueReason("t1", 0.7, {"keyword": 0.9}, 12), [other, asked], PLAN, "ada")
    assert cue is not None and (cue.text, cue.chunk, cue.score, cue.n_tokens) == (asked.text, 1, 0.7, 12)
    assert cue.why == ("contains your words: port, staging",) and not cue.is_shared
    assert cue_cards.restore_cue(CueReason("t1"), [replace(HIT, user="bob")], PLAN, "ada").is_shared
    assert cue_cards.restore_cue(CueReason("t1"), None, PLAN, "ada") is None


def test_outcome_of_an_injection_is_described():
    assert cue_cards.describe_outcome(injection()) == "use not known yet"
    assert cue_cards.describe_outcome(injection(used=frozenset())) == "none used"
    assert cue_cards.describe_outcome(injection(used=frozenset({"t1"}))) == "1 of 2 used"
    assert cue_cards.describe_outcome(injection(reasons=())) == "a reminder, not a cue"


@pytest.mark.parametrize(
    ("subject", "recalled", "told", "said"),
    [
        (HIT, replace(EMPTY, cues=(CUE,)), OmissionContext(), "It is cue 1, because it contains your words: port."),
        (HIT, replace(EMPTY, held_back={"t1": WithheldText("override", "d")}), OmissionContext(), "(override)"),
        (HIT, EMPTY, OmissionContext("at noon"), "recalled at noon"),
        (replace(MEMORY, retired=True), EMPTY, OmissionContext(), "retired"),
        (replace(HIT, role="tool", kind="result"), EMPTY, OmissionContext(), "tool result"),
        (replace(HIT, author="machine"), EMPTY, OmissionContext(), "No person typed it"),
        (replace(HIT, project="/w/bank"), EMPTY, OmissionContext(project="/w/web"), "another project (/w/bank)"),
        (HIT, replace(EMPTY, silent="nothing is relevant enough"), OmissionContext(), "Nothing was recalled: nothing is relevant enough."),  # noqa: E501
        (HIT, replace(EMPTY, passed_over={"t1": "in place 7 of 9, but it did not fit"}), OmissionContext(), "It matched, in place 7 of 9"),  # noqa: E501
        (HIT, EMPTY, OmissionContext(project="/w/web"), "It does not match"),
        (replace(HIT, project="/w/staging"), EMPTY, OmissionContext(project="/w/web"), "It does not match"),  # the message names it  # noqa: E501
    ],
)  # fmt: skip
def test_omission_is_explained(subject, recalled, told, said):
    assert said in cue_cards.explain_omission(subject, recalled, told)


def test_words_that_lead_nowhere_and_ids_that_do():
    assert "with these words" in cue_cards.explain_unknown("zebra").why
    assert "with this id" in cue_cards.explain_unknown("mem-20260101-000000-ffffff").why


def test_passed_over_candidates_are_listed_best_first():
    found = replace(EMPTY, passed_over={"t9": "a", "t1": "b", "mem-1": "c"})
    said = cue_cards.list_passed_over(found, {"mem-1": MEMORY, "t1": HIT}, limit=1)
    assert [(one.name, one.text, one.why) for one in said] == [("t1", "Use 8443.", "It matched, b.")]


def test_every_week_is_in_the_chart_and_periods_are_sums():
    mondays = [date(2026, 3, 2), date(2026, 3, 9)]
    found = fill_use_weeks([UsageWeek(mondays[0], 2, 3, 1, 1, 1, 0)], mondays)
    assert [(week.begins_on, week.n_cues) for week in found] == [(mondays[0], 4), (mondays[1], 0)]
    assert sum_weeks(found) == UseTotals(4, 2) and sum_weeks(found).share == 0.5
    assert sum_weeks(found[1:]).share is None
