"""The three zones: what stays, and what goes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.formats.perdure import Message
from perdure.session.zones import Zones, count_head, find_tail, split_zones

from .conftest import make_talk

ROUNDS = st.lists(st.integers(0, 4), min_size=1, max_size=30).map(
    lambda calls: "".join("u" + "ct" * n + "a" for n in calls)
)


def split(kinds: str, sizes: list[int], **limits: int) -> tuple[Zones, list[Message]]:
    messages = make_talk(kinds)
    by_id = {message.id: sizes[n % len(sizes)] for n, message in enumerate(messages)}
    return split_zones(messages, lambda message: by_id[message.id], **limits), messages


def test_zones_of_sixty_rounds_are_sized_as_stated() -> None:
    """S06: 60 rounds of 2 x 400 tokens. Head: the first exchange, 800. Tail: 20 rounds would have 16,000 of 20,000."""
    zones, messages = split("ua" * 60, [400], head_tokens=4000, tail_tokens=20_000, tail_rounds=20)
    assert [len(zone) for zone in zones] == [2, 78, 40]
    assert [*zones.head, *zones.middle, *zones.tail] == messages


def test_tail_stops_at_its_tokens() -> None:
    """Rounds of 2 x 900 tokens: 11 of them have 19,800."""
    zones, _ = split("ua" * 60, [900], head_tokens=4000, tail_tokens=20_000, tail_rounds=20)
    assert len(zones.tail) == 22 and zones.tail[0].role == "user"


@settings(max_examples=200, deadline=None)
@given(
    ROUNDS,
    st.lists(st.integers(1, 3000), min_size=1, max_size=7),
    st.integers(1, 5000),
    st.integers(1, 20_000),
    st.integers(1, 25),
)
def test_zones_partition_any_session(kinds: str, sizes: list[int], head: int, tail: int, rounds: int) -> None:
    """S08, S27: in order, nothing twice, nothing lost; and no call stands in another zone than its result."""
    zones, messages = split(kinds, sizes, head_tokens=head, tail_tokens=tail, tail_rounds=rounds)
    assert [*zones.head, *zones.middle, *zones.tail] == messages
    assert zones.head[0] is messages[0] and (zones.tail or not zones.middle)
    for zone in zones:
        calls = {call.id for message in zone for call in message.calls}
        assert calls == {message.call_id for message in zone if message.role == "tool"}
    assert not zones.tail or zones.tail[0].role != "tool"
    assert not zones.middle or zones.middle[0].role != "tool"


@settings(max_examples=100, deadline=None)
@given(ROUNDS, st.integers(1, 30), st.integers(1, 9000))
def test_tail_is_snapped_to_a_person_unless_a_round_is_too_long(kinds: str, rounds: int, tail: int) -> None:
    messages = make_talk(kinds)
    start = find_tail(messages, lambda message: 500, tail, rounds)
    last_round = next(n for n in range(len(messages) - 1, -1, -1) if messages[n].role == "user")
    assert messages[start].role == "user" or start > last_round
    assert messages[start].role == "user" or 500 * (len(messages) - last_round) > tail


def test_first_exchange_with_long_tool_work_is_cut_to_its_message() -> None:
    """The head is never compressed, so it must not swallow the window: the first message and no answer that fits."""
    messages = make_talk("u" + "ct" * 50 + "aua")
    assert count_head(messages, lambda message: 100, 4000) == 1
    assert count_head(messages, lambda message: 10, 4000) == 102


def test_head_of_an_earlier_compaction_stays() -> None:
    messages = make_talk("ua" * 30)
    zones = split_zones(messages, lambda _: 100, head_tokens=1, tail_tokens=1000, tail_rounds=20, n_head=2)
    assert len(zones.head) == 2
