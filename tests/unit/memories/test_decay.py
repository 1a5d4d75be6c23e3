"""Decay and heat, with every clock an argument."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from perdure.archive import memory_events
from perdure.index import memory_replay
from perdure.types import Memory

SAID = datetime(2026, 1, 1, tzinfo=UTC)
MEMORY = Memory(
    "mem-20260101-000000-000001", "words", "fact", "p", "default", None, SAID, SAID, "owner", "remembered"
)  # fmt: skip


@pytest.mark.parametrize(
    ("days", "expected"), [(0, 1.0), (30, 0.5), (60, 0.25), (90, 0.125), (3650, memory_replay.MIN_DECAY)]
)
def test_score_halves_every_thirty_days_and_never_reaches_zero(days: int, expected: float) -> None:
    assert memory_replay.compute_decay(MEMORY, SAID + timedelta(days=days)) == expected


def test_use_renews_a_memory() -> None:
    """One day after a use on day 29: 0.5 ** (1 / 30) = 0.977."""
    used = replace(MEMORY, renewed_at=SAID + timedelta(days=29))
    assert memory_replay.compute_decay(used, SAID + timedelta(days=30)) == pytest.approx(0.977, abs=0.0005)


def test_showing_a_memory_does_not_renew_it() -> None:
    shown = memory_replay.ReplayState({MEMORY.memory_id: MEMORY})
    memory_replay.apply_event(
        shown,
        memory_replay.ReplayEvent(
            memory_events.INJECTED, {"turns": [MEMORY.memory_id]}, SAID + timedelta(days=29), "1"
        ),
    )
    (memory,) = shown.memories.values()
    assert (memory.n_injected, memory.renewed_at) == (1, None)
    assert memory_replay.compute_decay(memory, SAID + timedelta(days=30)) == 0.5


def test_a_pinned_memory_is_as_loud_after_ten_years() -> None:
    assert memory_replay.compute_decay(replace(MEMORY, pinned=True), SAID + timedelta(days=3650)) == 1.0


def test_slow_clock_makes_nothing_louder() -> None:
    assert memory_replay.compute_decay(MEMORY, SAID - timedelta(days=9)) == 1.0


@pytest.mark.parametrize(("hours", "expected"), [(0, 0.7), (24, 0.2575), (48, 0.0947)])
def test_heat_falls_by_e_each_day(hours: int, expected: float) -> None:
    """Never used, said once: density 0, so 0.7 * 1 * exp(-hours / 24)."""
    assert memory_replay.compute_heat(MEMORY, SAID + timedelta(hours=hours)) == pytest.approx(expected, abs=0.0001)


def test_used_memory_is_hotter_and_cools_more_slowly() -> None:
    """Said once and used three times: density 1 - 1/4, 0.7 + 0.3 * 0.75 = 0.925; at S = 2.25 after 54 h one e less."""
    used = replace(MEMORY, n_used=3, stability=2.25)
    assert memory_replay.compute_heat(used, SAID) == pytest.approx(0.925)
    assert memory_replay.compute_heat(used, SAID + timedelta(hours=54)) == pytest.approx(0.3403, abs=0.0001)
    order = sorted([MEMORY, used], key=lambda memory: -memory_replay.compute_heat(memory, SAID + timedelta(hours=54)))
    assert order == [used, MEMORY]


def test_second_use_within_twelve_hours_adds_no_stability() -> None:
    """1.5 for the first use, the same an hour later, 1.5 * 1.5 = 2.25 thirteen hours after that; each use counts."""
    memory = MEMORY
    found = []
    for hours in (0, 1, 14):
        noted = memory_replay.ReplayEvent(
            memory_events.USED, {"cues": [memory.memory_id]}, SAID + timedelta(hours=hours), str(hours)
        )
        state = memory_replay.ReplayState({memory.memory_id: memory})
        memory_replay.apply_event(state, noted)
        (memory,) = state.memories.values()
        found.append((memory.n_used, memory.stability))
    assert found == [(1, 1.5), (2, 1.5), (3, 2.25)]
    assert memory.renewed_at == memory.used_at == SAID + timedelta(hours=14)


def test_use_counts_from_its_own_time_and_not_its_recording() -> None:
    data = memory_events.build_used_data("nonce", [MEMORY.memory_id], used_at=SAID + timedelta(days=1))
    state = memory_replay.ReplayState({MEMORY.memory_id: MEMORY})
    memory_replay.apply_event(
        state, memory_replay.ReplayEvent(memory_events.USED, data, SAID + timedelta(days=20), "1")
    )
    assert state.memories[MEMORY.memory_id].renewed_at == SAID + timedelta(days=1)
