import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep

import pytest

from perdure.service.first_free_queue import FirstFreeQueue


def wait_for_takers(waiting: FirstFreeQueue, n: int) -> None:
    ends_s = monotonic() + 10
    while len(waiting._waiting) < n and monotonic() < ends_s:
        sleep(0.001)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as threads:
        yield threads


def test_the_first_place_that_is_free_takes_the_next_item(pool) -> None:
    waiting: FirstFreeQueue[str] = FirstFreeQueue()
    taken = {place: pool.submit(waiting.get, place, timeout_s=10) for place in (2, 0, 1)}
    wait_for_takers(waiting, 3)
    for item in "abc":
        waiting.put(item)
    assert [taken[place].result(10) for place in (0, 1, 2)] == ["a", "b", "c"]


def test_items_wait_in_their_order_until_somebody_asks() -> None:
    waiting: FirstFreeQueue[int] = FirstFreeQueue()
    for item in range(3):
        waiting.put(item)
    assert waiting.qsize() == 3
    assert [waiting.get(0, timeout_s=0) for _ in range(3)] == [0, 1, 2]


def test_a_thread_that_waited_in_vain_gets_nothing_later() -> None:
    waiting: FirstFreeQueue[str] = FirstFreeQueue()
    with pytest.raises(queue.Empty):
        waiting.get(0, timeout_s=0.01)
    waiting.put("a")
    assert waiting.get(1, timeout_s=0) == "a"


def test_every_item_is_taken_once_whatever_times_run_out(pool) -> None:
    """Four threads whose waiting ends all the time, and two that put: nothing is lost and nothing comes twice."""
    waiting: FirstFreeQueue[int] = FirstFreeQueue()
    taken: list[int] = []
    is_over = threading.Event()

    def take(place: int) -> None:
        while not (is_over.is_set() and not waiting.qsize()):
            try:
                taken.append(waiting.get(place, timeout_s=0.0001))
            except queue.Empty:
                continue

    takers = [pool.submit(take, place) for place in range(4)]
    putters = [
        threading.Thread(target=lambda low=low: [waiting.put(n) for n in range(low, low + 2000)]) for low in (0, 2000)
    ]
    for putter in putters:
        putter.start()
    for putter in putters:
        putter.join()
    is_over.set()
    for taker in takers:
        taker.result(10)
    assert sorted(taken) == list(range(4000))
