"""Events become memories: what is current, what came before, decay and heat, in any order of arrival."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.archive import memory_events
from perdure.index import memory_replay
from perdure.index.memory_replay import ReplayEvent
from perdure.types import Memory, Span

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def day(n):
    return T0 + timedelta(days=n)


def memory(n, *, text="", path="staging/port", said=None, trust="owner", **more):
    return Memory(
        f"mem-20260101-000000-{n:06x}", text or f"port {n}", "fact", path, "default", more.pop("project", None),
        day(n if said is None else said), day(n), trust, "remembered", **more,
    )  # fmt: skip


def noted(*ops, n=0, type_=memory_events.EVENT_TYPE, **data):
    return ReplayEvent(type_, {"by": "owner", "ops": list(ops), **data}, day(n), f"{n:04d}")


def made(*memories):
    return [noted(memory_events.build_create_op(m), n=n) for n, m in enumerate(memories)]


def current(state):
    return sorted(m.text for m in state.memories.values() if m.is_current)


def test_later_statement_supersedes_the_earlier_on_its_path():
    state = memory_replay.replay_events(made(memory(1), memory(2), memory(3, path="staging/host")))
    assert current(state) == ["port 2", "port 3"]
    old = state.memories[memory(1).memory_id]
    assert old.superseded_by == memory(2).memory_id and old.ended_at == day(2)


def test_an_old_statement_found_late_enters_as_history():
    state = memory_replay.replay_events(made(memory(5), memory(6, said=1)))
    assert current(state) == ["port 5"]
    assert state.memories[memory(6).memory_id].superseded_by == memory(5).memory_id


def test_paths_ignore_case_but_differ_by_project_and_agent():
    elsewhere = replace(memory(3), project="/w/web")
    state = memory_replay.replay_events(made(memory(1), memory(2, path="Staging/PORT"), elsewhere))
    assert current(state) == ["port 2", "port 3"]


def test_web_statement_never_ends_an_owner_statement():
    state = memory_replay.replay_events(made(memory(1), memory(9, trust="web")))
    assert current(state) == ["port 1"]
    assert memory_replay.replay_events(made(memory(9, trust="web"))).memories[memory(9).memory_id].is_current


def test_restatement_reinforces():
    first = memory(1, confidence=0.5)
    again = memory_events.build_reinforce_op(first.memory_id, stated_at=day(8), sources=[Span("r2", 0, 9)])
    state = memory_replay.replay_events([*made(first), noted(again, n=8)])
    (found,) = state.memories.values()
    assert (found.n_stated, found.renewed_at, found.sources) == (2, day(8), (Span("r2", 0, 9),))
    assert found.confidence == 0.6  # + 20 % of what lacked


def test_retired_memories_take_no_part_and_can_return():
    one, two = memory(1), memory(2)
    retired = [*made(one, two), noted(memory_events.build_change_op(two.memory_id, retired=True), n=3)]
    assert current(memory_replay.replay_events(retired)) == ["port 1"]
    restored = [*retired, noted(memory_events.build_change_op(two.memory_id, retired=False), n=4)]
    assert current(memory_replay.replay_events(restored)) == ["port 2"]


def test_the_first_batch_of_a_stretch_wins():
    def batch(low, high):
        return ["source", low, high]

    state = memory_replay.replay_events([
        noted(memory_events.build_create_op(memory(1)), n=1, batch=batch(0, 10)),
        noted(memory_events.build_create_op(memory(2, path="a/b")), n=2, batch=batch(5, 15)),
        noted(memory_events.build_create_op(memory(3, path="c/d")), n=3, batch=batch(10, 20)),
    ])  # fmt: skip
    assert current(state) == ["port 1", "port 3"]
    assert state.mined == {"source": [(0, 10), (10, 20)]}


def test_only_use_renews_a_memory():
    one = memory(1)
    shown = ReplayEvent(memory_events.INJECTED, {"turns": [one.memory_id, "t1"]}, day(5), "5")
    used = ReplayEvent(memory_events.USED, {"cues": [one.memory_id]}, day(6), "6")
    (found,) = memory_replay.replay_events([*made(one), shown]).memories.values()
    assert (found.n_injected, found.n_used, found.renewed_at) == (1, 0, None)
    (found,) = memory_replay.replay_events([*made(one), shown, used]).memories.values()
    assert (found.n_injected, found.n_used, found.renewed_at) == (1, 1, day(6))


def test_belief_at_a_moment_is_the_last_statement_before():
    chain = memory_replay.replay_events(made(memory(1), memory(4))).memories.values()
    assert memory_replay.find_current_at(chain, day(2)).text == "port 1"
    assert memory_replay.find_current_at(chain, day(4)).text == "port 4"
    assert memory_replay.find_current_at(chain, day(0)) is None


def test_event_reads_back_as_written():
    full = memory(
        3, project="/w/x", sources=(Span("r", 1, 2),), made_from=("mem-1",), entities=("Ada",), runtime="pi",
        conversation="c", valid_from=day(1), valid_until=day(9), pinned=True, confidence=0.4, order="o",
    )  # fmt: skip
    assert (
        memory_events.build_memory(memory_events.build_create_op(full), recorded_at=full.recorded_at, order="o") == full
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from(("owner", "agent", "tool", "web"))), max_size=12
    )
)
def test_at_most_one_memory_is_current_and_it_is_the_latest(said):
    memories = [memory(n, said=at, path=f"p/{path}", trust=trust) for n, (at, path, trust) in enumerate(said)]
    state = memory_replay.replay_events(made(*memories))
    for chain in state.group_by_chain().values():
        alive = [m for m in chain if m.is_current]
        assert len(alive) == 1
        strong = [m for m in chain if m.trust in ("owner", "agent")] or chain
        assert alive[0].stated_at == max(m.stated_at for m in strong)


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
