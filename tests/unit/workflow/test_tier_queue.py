"""The queue of one tier: in order, once, with a breaker, and nothing raised."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import pytest

from perdure.errors import TierFault, UsageError
from perdure.workflow import tier_queue
from perdure.workflow.tier_queue import MAX_WAITING, PAUSE_S, TierQueue


class Tier:
    """A tier that can be down, and a clock."""

    def __init__(self) -> None:
        self.is_down, self.taken, self.tries, self.now_s = False, [], 0, 0.0
        self.queue = TierQueue(has_thread=False, clock=lambda: self.now_s)

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


# with a thread --------------------------------------------------------------------------------------------------


class SlowTier:
    """A tier that takes a write when the test lets it."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.may_go_on = threading.Semaphore(0)
        self.queue = TierQueue()

    def write(self, key: str) -> None:
        self.queue.write(key, lambda: self.take(key))

    def take(self, key: str) -> None:
        assert self.may_go_on.acquire(timeout=30)
        self.taken.append(key)


def test_the_writer_does_not_wait_and_a_read_sees_its_writes():
    tier = SlowTier()
    for n in range(20):
        tier.write(f"k{n}")
    assert tier.taken == [] and tier.queue.status.waiting == 20 and not tier.queue.settle(0.01)
    tier.may_go_on.release(20)
    assert tier.queue.read(lambda: list(tier.taken), []) == [f"k{n}" for n in range(20)]
    assert tier.queue.status.delivered == 20 and tier.queue.flush()


def test_a_queue_is_behind_while_one_write_or_many_wait():
    tier = SlowTier()
    for key in "abc":
        tier.write(key)
    assert tier.queue.is_behind("a", 3) and tier.queue.is_behind("x", 2) and not tier.queue.is_behind("x", 3)
    tier.may_go_on.release(3)
    assert tier.queue.settle() and not tier.queue.is_behind("a", 0)


def test_a_tier_that_is_slow_loses_nothing(monkeypatch):
    """A full queue of a tier that is not down holds the writer up instead of dropping the oldest."""
    monkeypatch.setattr(tier_queue, "MAX_WAITING", 5)
    tier = SlowTier()
    writer = threading.Thread(target=lambda: [tier.write(f"k{n}") for n in range(30)])
    writer.start()
    tier.may_go_on.release(30)
    writer.join()
    assert tier.queue.flush() and tier.taken == [f"k{n}" for n in range(30)]
    assert tier.queue.status.dropped == 0


def test_what_waits_is_tried_again_without_a_new_write(monkeypatch):
    monkeypatch.setattr(tier_queue, "PAUSE_S", 0.01)
    tries: list[int] = []

    def write() -> None:
        tries.append(1)
        if len(tries) < 6:
            raise TierFault("down")

    tier = TierQueue()
    tier.write("k", write)
    for _ in range(500):
        if tier.status.delivered:
            break
        time.sleep(0.01)
    assert tier.status.delivered == 1 and len(tries) == 6 and tier.status.failed == 5


def test_the_thread_of_a_queue_ends_and_comes_back(monkeypatch):
    monkeypatch.setattr(tier_queue, "_IDLE_S", 0.0)
    tier, names = TierQueue(), []
    for n in range(50):
        tier.write(f"k{n}", lambda: names.append(threading.current_thread().name))
        assert tier.settle()
    assert len(names) == 50 and set(names) == {"perdure-tier"}


def test_a_fault_of_the_program_in_a_thread_holds_nobody_up(monkeypatch):
    faults: queue.Queue[Any] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", faults.put)
    tier = TierQueue()
    tier.write("k", lambda: 1 // 0)
    assert not tier.settle(30)
    assert faults.get(timeout=30).exc_type is ZeroDivisionError
