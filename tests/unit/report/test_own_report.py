from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from msgspec import structs

from perdure.index.injections import CueReason, Injection
from perdure.index.session_turns import PromptTurn
from perdure.report.cue_outcomes import CueOutcome, RecallWindow, describe_correction
from perdure.report.own_report import judge, list_advice
from perdure.types import Memory

AT = datetime(2026, 1, 1, tzinfo=UTC)
MEMORY = Memory("mem-1", "The tide server listens on port 8642.", "fact", "tide/port", "default", None, AT, AT,
                "owner", "remembered")  # fmt: skip


def told(n: int, outcome: str, *, was_used: bool | None) -> Iterator[CueOutcome]:
    yield from (CueOutcome(f"t{k}", "x", outcome, "", AT, f"n{outcome}{k}", "", 1, was_used) for k in range(n))


def window(memory: Memory, *, used: frozenset[str] | None, label: str = "", following: str = "") -> RecallWindow:
    one = Injection("n1", AT, "claude-code", "s", "", "", (CueReason("mem-1"),), 1, 1, 1.0, {}, (), "", used)
    next_messages = {"n1": PromptTurn("t9", AT + timedelta(minutes=1), following, None)} if following else {}
    labels = {("n1", "mem-1"): label} if label else {}
    return RecallWindow([one], {}, next_messages, labels, {"mem-1": memory}, {})


def outcome(*args: Memory, **more) -> str:
    return next(window(*args, **more).iter_outcomes()).outcome


def test_strongest_of_what_is_known_counts():
    used, replaced = (
        frozenset({"mem-1"}),
        structs.replace(MEMORY, superseded_by="mem-2", ended_at=AT + timedelta(days=1)),
    )
    assert outcome(MEMORY, used=used) == "used"
    assert outcome(MEMORY, used=frozenset()) == "ignored"
    assert outcome(MEMORY, used=None) == "waiting"
    assert outcome(replaced, used=used) == "corrected"
    assert outcome(replaced, used=used, label="wrong") == "wrong"
    assert outcome(MEMORY, used=used, following="The tide server listens on port 9000.") == "wrong"
    assert outcome(MEMORY, used=used, following="Thanks, port 8642 works.") == "used"


def test_memory_that_had_ended_before_it_was_told_is_history_and_not_corrected():
    assert (
        describe_correction(structs.replace(MEMORY, superseded_by="mem-2", ended_at=AT - timedelta(days=1)), AT) == ""
    )
    assert describe_correction(structs.replace(MEMORY, retired=True), AT) == "retired since"


def test_verdict_is_held_against_the_placebo():
    used, ignored = list(told(12, "used", was_used=True)), list(told(8, "ignored", was_used=False))
    assert judge([*used, *ignored], (40, 4)).verdict == "earns its place"
    assert judge([*used, *ignored], (40, 24)).verdict == "does not show its worth"
    assert judge(used[:9], (40, 4)).verdict == "not known yet"
    assert judge([*used[:3], *told(9, "wrong", was_used=True)], (40, 4)).verdict == "does harm"
    assert judge([], (0, 0)).verdict == "not known yet"


def test_home_that_measured_no_placebo_is_held_against_the_documented_one():
    verdict = judge(list(told(12, "used", was_used=True)), (0, 0))
    assert (verdict.n_chance, verdict.n_chance_used, verdict.verdict) == (200, 12, "earns its place")


def test_pinned_memory_is_never_advised_away():
    unused = structs.replace(MEMORY, n_injected=9)
    wrong = [replace(next(told(1, "wrong", was_used=True)), cue="mem-1", why="said so")]
    assert [advice.why for advice in list_advice([unused], wrong)] == ["wrong: said so"]
    assert list_advice([structs.replace(unused, pinned=True)], wrong) == []
    assert list_advice([unused], ()) == []
