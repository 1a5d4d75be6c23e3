"""The reasons of a cue are true of it."""

from datetime import UTC, datetime

from perdure.recall.candidates import TurnFact
from perdure.recall.pack import explain_cue
from perdure.recall.plan import plan

NOW = datetime(2026, 3, 10, tzinfo=UTC)
FACT = TurnFact("user", NOW)
PLAN = plan("Which port does the server use?", now=NOW)


def reasons(*, is_memory: bool, **legs: float) -> tuple[str, ...]:
    return explain_cue("x", {leg: {"x": score} for leg, score in legs.items()}, FACT, PLAN, is_memory=is_memory)


def test_weak_turn_names_its_neighbour_and_a_memory_does_not() -> None:
    assert reasons(is_memory=False, keyword=0.2)[-1] == "stands beside a turn that matches"
    assert reasons(is_memory=True, keyword=0.2, vector=0.3) == (
        "holds the words (0.20 of the best)",
        "is close in meaning (cosine 0.30)",
    )


def test_weakest_candidate_has_a_reason_too() -> None:
    """The worst of a leg scores 0 there, whatever it holds."""
    assert reasons(is_memory=True, keyword=0.0) == ("holds some of the words",)
