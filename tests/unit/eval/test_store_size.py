"""The rules that choose a smaller store, and the figures of its row."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from perdure.eval import store_size
from perdure.eval.measures import ConfidenceInterval
from perdure.eval.store_size import StoreMeasurement, StoreRow, StoreSizeReport
from perdure.text import tokens
from perdure.types import Memory

AT = datetime(2026, 1, 1, tzinfo=UTC)
OLD = Memory("mem-1", "We deploy on Tuesdays.", "fact", "a/b", "default", None, AT, AT, "owner", "remembered")
NEW = structs.replace(OLD, memory_id="mem-2", text="We deploy on Fridays.", stated_at=AT + timedelta(1), n_injected=10)
USED = structs.replace(
    OLD, memory_id="mem-3", text="The port is 8443.", stated_at=AT - timedelta(1), n_injected=10, n_used=9
)


def test_the_first_memories_that_fit_are_kept():
    """A budget of exactly the first memory's tokens keeps it and no other; a budget of 0 keeps none."""
    assert store_size.choose_retired([OLD, NEW, USED], tokens(OLD.text)) == ["mem-2", "mem-3"]
    assert store_size.choose_retired([OLD, NEW], 0) == ["mem-1", "mem-2"]
    assert store_size.choose_retired([OLD, NEW, USED], 1000) == []


def test_memories_are_ordered_by_use_and_by_age():
    """Expected shares: used 9 of 10 is 10/12, never told 1/2, told 10 times for nothing 1/12."""
    assert [m.memory_id for m in store_size.sort_by_use([NEW, OLD, USED])] == ["mem-3", "mem-1", "mem-2"]
    assert [m.memory_id for m in store_size.sort_by_age([USED, OLD, NEW])] == ["mem-2", "mem-1", "mem-3"]


def test_a_draw_depends_on_its_seed_and_not_on_ids():
    memories = [structs.replace(OLD, memory_id=f"mem-{n}", text=f"Fact {n}") for n in range(20)]
    others = [structs.replace(memory, memory_id=f"mem-x{memory.memory_id}") for memory in reversed(memories)]
    texts = [memory.text for memory in store_size.sort_by_chance(memories, seed=1)]
    assert texts == [memory.text for memory in store_size.sort_by_chance(others, seed=1)]
    assert texts != [memory.text for memory in store_size.sort_by_chance(memories, seed=2)]


def test_told_counts_for_each_thousand_tokens_of_a_group():
    """Half of the answers are told from 4,000 tokens in 2 groups: 50 per cent over 2,000 tokens is 25 for 1,000."""
    half = ConfidenceInterval(0.5, 0.4, 0.6)
    row = StoreRow(store_size.WHOLE, 1.0, 100, 4000, 2, half, half, half, None)
    assert row.told_per_1000_tokens == pytest.approx(25.0)
    assert replace(row, n_tokens=0).told_per_1000_tokens == 0.0
    report = StoreSizeReport("set", 8, (row, replace(row, way=store_size.USED, share=0.5, over_random=half)))
    assert report.figures["rows"][1]["told_per_1000_tokens"] == pytest.approx(25.0)
    assert "+50.0 [+40.0, +60.0]" in report.text() and "25.0" in report.text()


def test_halves_are_put_together():
    whole = StoreMeasurement([1.0], [1.0], [(10, 100)])
    whole.extend(StoreMeasurement([0.0, 0.5], [0.0, 1.0], [(20, 200)]))
    assert (whole.told, whole.sizes) == ([1.0, 0.0, 0.5], [(10, 100), (20, 200)])


def test_the_useful_share_of_draws_leaves_out_where_nothing_was_told():
    """Told in two of three draws: one cue of two answers, then none of one: the mean is 1/4."""
    assert store_size._average([0.5, None, 0.0]) == 0.25 and store_size._average([None, None]) is None
