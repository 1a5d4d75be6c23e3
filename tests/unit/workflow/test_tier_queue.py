"""The queue of one tier: in order, once, with a breaker, and nothing raised."""

from __future__ import annotations

import pytest

from perdure.errors import TierFault, UsageError
from perdure.workflow.tier_queue import MAX_WAITING, PAUSE_S, TierQueue


class Tier:
    """A tier that can be down, and a clock."""

    def __init__(self) -> None:
        self.is_down, self.taken, self.tries, self.now_s = False, [], 0, 0.0
        self.queue = TierQueue(clock=lambda: self.now_s)

    def write(self, key: str) -> None:
        self.queue.write(key, lambda: self.take(key))

    def take(self, key: str) -> None:
        self.tries += 1
        if self.is_down:
            raise TierFault("down")
        self.taken.append(key)


def test_fifty_writes_while_down_arrive_once_in_order():
    tier = Tier()
    tier.is_down = True
    for n in range(50):
        tier.write(f"k{n}")
    assert tier.tries == 3, "after three failures nothing is tried"
    status = tier.queue.status
    assert (status.delivered, status.failed, status.dropped, status.waiting) == (0, 3, 0, 50)
    assert "down" in status.last_error

    tier.is_down, tier.now_s = False, PAUSE_S - 0.1
    assert not tier.queue.flush() and tier.tries == 3
    tier.now_s = PAUSE_S
    tier.write("k49")  # waits already
    assert tier.taken == [f"k{n}" for n in range(50)]
    assert tier.queue.status.delivered == 50 and tier.queue.status.waiting == 0 and not tier.queue.status.last_error


def test_one_failure_after_the_pause_pauses_again():
    tier = Tier()
    tier.is_down = True
    for n in range(4):
        tier.write(f"k{n}")
    tier.now_s = PAUSE_S
    assert not tier.queue.flush() and tier.tries == 4 and tier.queue.is_paused


def test_a_success_counts_failures_from_the_start():
    tier = Tier()
    for _ in range(3):
        for _ in range(2):
            tier.is_down = True
            tier.write("k")
        tier.is_down = False
        assert tier.queue.flush()
    assert tier.queue.status.failed == 6 and not tier.queue.is_paused


def test_the_oldest_of_too_many_is_dropped_and_counted():
    tier = Tier()
    tier.is_down = True
    for n in range(MAX_WAITING + 7):
        tier.write(f"k{n}")
    assert (tier.queue.status.waiting, tier.queue.status.dropped) == (MAX_WAITING, 7)
    tier.is_down, tier.now_s = False, PAUSE_S
    assert tier.queue.flush() and tier.taken[0] == "k7"


def test_what_the_owner_forbids_is_not_done_later():
    tier = Tier()

    def refuse() -> None:
        raise UsageError("capture is paused")

    tier.queue.write("k", refuse)
    tier.write("k2")
    assert tier.taken == ["k2"] and (tier.queue.status.dropped, tier.queue.status.waiting) == (1, 0)


def test_a_read_of_a_tier_that_is_down_gives_the_default():
    tier = Tier()

    def read() -> str:
        tier.take("read")
        return "value"

    assert tier.queue.read(read, "") == "value"
    tier.is_down = True
    assert [tier.queue.read(read, "") for _ in range(5)] == [""] * 5
    assert tier.tries == 4 and tier.queue.status.failed == 3


def test_a_fault_of_the_program_is_raised():
    with pytest.raises(ZeroDivisionError):
        Tier().queue.write("k", lambda: 1 // 0)
