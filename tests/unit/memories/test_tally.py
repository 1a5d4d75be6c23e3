"""How many memories there are, by month: the table sums to its totals (row M19)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

from perdure.memories import cue_use
from perdure.text import tokens
from perdure.types import Memory

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


def test_another_time_zone_has_other_months() -> None:
    """23:30 in UTC is 00:30 of the next day one hour east."""
    assert [m.month for m in cue_use.count_by_month([ONE], timezone(timedelta(hours=1)))] == ["2026-02"]


def test_each_memory_is_current_superseded_or_retired() -> None:
    found = cue_use.count_memories(FOUR)
    assert (found.n_current, found.n_superseded, found.n_retired, found.n_pinned) == (2, 1, 1, 1)
    assert found.kept_at == found.mined_at == AT + timedelta(1)
    assert cue_use.count_memories([]).kept_at is None and cue_use.sum_months([]).tokens_per_memory == 0.0
