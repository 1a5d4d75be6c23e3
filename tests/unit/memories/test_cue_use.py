"""Whether an answer rests on a cue, by words; and how many memories there are, by month."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.eval import cue_use_quality
from perdure.memories import cue_use
from perdure.memories.cue_use import MAX_ANSWER_CHARS, is_used, iter_words, score_use
from perdure.text import tokens
from perdure.types import Memory


def test_words_of_the_prompt_are_no_use() -> None:
    """All of the cue that the answer takes up stood in the prompt."""
    assert (
        score_use("Is the staging server on port 8443 up?", "The staging server is on port 8443.", "8443 is up.") == 0.0
    )


def test_a_number_weighs_three_and_a_word_one() -> None:
    """Own words of the cue: vault 1, opens 1, 774411 3; taken: 774411. 3 / 5 = 0.6."""
    assert score_use("How?", "Vault opens: 774411.", "Type 774411.") == pytest.approx(0.6)


def test_other_value_is_no_use() -> None:
    assert not is_used("Which port?", "It runs on port 8080.", "It runs now on 9443.")


def test_long_cue_is_judged_by_its_sentences() -> None:
    padding = "The garden was quiet while nobody came by. " * 12
    assert is_used("Where are the keys?", f"{padding}The keys lie in Kestrel-9. {padding}", "They are in Kestrel-9.")


def test_the_shipped_pairs_are_judged_as_well_as_they_were() -> None:
    figures = cue_use_quality.run().figures
    assert figures["held out"]["precision"] >= 0.95 and figures["held out"]["recall"] >= 0.85
    assert figures["crossed"]["right"] / figures["crossed"]["n"] >= 0.995


def test_a_huge_answer_costs_little() -> None:
    started = time.perf_counter()
    score_use("p", "The vault opens with 774411 only. " * 60, "word " * MAX_ANSWER_CHARS)
    assert time.perf_counter() - started < 2.0


@given(st.text(), st.text(), st.text())
def test_score_is_a_share_for_any_input(prompt: str, cue: str, answer: str) -> None:
    assert 0.0 <= score_use(prompt, cue, answer) <= 1.0
    assert score_use(prompt, cue, "") == score_use(cue, cue, answer) == 0.0
    assert all(word.weight >= 0 for word in iter_words(cue))


AT = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
ONE = Memory("mem-1", "I prefer Helix", "preference", "a/b", "default", None, AT, AT, "owner", "remembered")
FOUR = [
    ONE,
    replace(ONE, memory_id="mem-2", text="The port is 8443", stated_at=AT + timedelta(hours=1), superseded_by="mem-3"),
    replace(ONE, memory_id="mem-3", text="The port is 9443 now", stated_at=AT + timedelta(hours=2), pinned=True),
    replace(ONE, memory_id="mem-4", retired=True, superseded_by="mem-1", how="mined", recorded_at=AT + timedelta(1)),
]


def test_the_months_sum_to_the_whole() -> None:
    months = cue_use.count_by_month(FOUR)
    assert [(month.month, month.n_memories) for month in months] == [("2026-01", 2), ("2026-02", 2)]
    whole = cue_use.sum_months(months)
    assert whole.n_memories == 4 and whole.n_tokens == sum(tokens(memory.text) for memory in FOUR)
    assert whole.tokens_per_memory == whole.n_tokens / 4


def test_month_reports_memories_per_100_messages() -> None:
    """2 memories of 8 messages are 25 for each 100; a month of messages alone has 0; one of none has no share."""
    january, february, march = cue_use.count_by_month(FOUR, messages_by_month={"2026-01": 8, "2026-03": 5})
    assert (january.per_100_messages, february.per_100_messages, march.per_100_messages) == (25.0, None, 0.0)
    whole = cue_use.sum_months((january, february, march))
    assert whole.n_messages == 13 and whole.per_100_messages == 100 * 4 / 13


def test_month_reports_how_its_memories_were_used() -> None:
    """Told 3 and 5 times, used 1 and 2 times: 3 uses of 2 memories, 1.5 each. One of them is current, none retired."""
    told = [
        replace(ONE, n_injected=3, n_used=1),
        replace(ONE, memory_id="mem-5", n_injected=5, n_used=2, superseded_by="mem-1"),
    ]
    (january,) = cue_use.count_by_month(told)
    assert (january.n_told, january.n_used, january.uses_per_memory) == (8, 3, 1.5)
    assert (january.n_memories, january.n_current, january.n_retired) == (2, 1, 0)
    whole = cue_use.sum_months((january, *cue_use.count_by_month(FOUR)))
    assert (whole.n_told, whole.n_current, whole.n_retired) == (8, 3, 1)
    assert cue_use.sum_months([]).uses_per_memory == 0.0


def test_another_time_zone_has_other_months() -> None:
    """23:30 in UTC is 00:30 of the next day one hour east."""
    assert [m.month for m in cue_use.count_by_month([ONE], timezone(timedelta(hours=1)))] == ["2026-02"]


def test_each_memory_is_current_superseded_or_retired() -> None:
    found = cue_use.count_memories(FOUR)
    assert (found.n_current, found.n_superseded, found.n_retired, found.n_pinned) == (2, 1, 1, 1)
    assert found.kept_at == found.mined_at == AT + timedelta(1)
    assert cue_use.count_memories([]).kept_at is None and cue_use.sum_months([]).tokens_per_memory == 0.0
