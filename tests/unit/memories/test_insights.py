"""Insights: one for what is said alike, the surest first, within the budget."""

from datetime import UTC, datetime

import pytest

from perdure import text
from perdure.archive import memory_events
from perdure.index import memory_replay
from perdure.memories import mining_question
from perdure.types import Memory

AT = datetime(2026, 3, 1, tzinfo=UTC)


def insight(n, said, confidence=0.5, **more):
    made = {"kind": "insight", "path": f"insights/{n}", "agent": "default", "project": None, "stated_at": AT}
    made |= {"recorded_at": AT, "trust": "agent", "how": "mined", "confidence": confidence} | more
    return Memory(f"mem-{n}", said, **made)


def test_similarity_is_worked_out_by_hand():
    """{when deploying run the smoke tests} and {when deploying run smoke tests first}: 5 shared of 7."""
    assert (
        mining_question.compute_jaccard("When deploying: run the smoke tests", "when deploying, run smoke tests first")
        == 5 / 7
    )
    assert mining_question.compute_jaccard("", "") == 0.0


def test_insights_match_at_two_of_five_common_words():
    """{a b c} and {a b d e}: 2 of 5 = 0.40; {a b c} and {a b d e f}: 2 of 6."""
    known = [insight(1, "a b c")]
    assert mining_question.find_same_insight("a b d e", known) == known[0]
    assert mining_question.find_same_insight("a b d e f", known) is None
    assert mining_question.find_same_insight("a b c", [insight(1, "a b c", superseded_by="mem-2")]) is None


def test_only_sure_insights_fit_the_budget_surest_first():
    found = [insight(n, f"when {n}: do {n}", confidence) for n, confidence in enumerate((0.39, 0.4, 0.9, 0.6))]
    assert [memory.memory_id for memory in mining_question.choose_surest(found)] == ["mem-2", "mem-3", "mem-1"]
    one = text.tokens(found[2].text)
    assert [memory.memory_id for memory in mining_question.choose_surest(found, max_tokens=one)] == ["mem-2"]
    assert mining_question.choose_surest(found, max_tokens=0) == []


def test_each_reinforcement_adds_a_fifth_of_the_rest():
    """0.5 → 0.5 + 0.2 × 0.5 = 0.6 → 0.6 + 0.2 × 0.4 = 0.68."""
    made = memory_events.build_create_op(insight(1, "when x: do y", 0.5))
    again = memory_events.build_reinforce_op("mem-1", stated_at=AT)
    data = [memory_events.build_event_data([op], by="miner") for op in (made, again, again)]
    noted = [memory_replay.ReplayEvent("memories", one, AT, str(n)) for n, one in enumerate(data)]
    found = [memory_replay.replay_events(noted[:n]).memories["mem-1"].confidence for n in (1, 2, 3)]
    assert found == pytest.approx([0.5, 0.6, 0.68])
