"""Lanes: who goes first, what is told, and turns between processes. Events, never sleeping: order is asserted."""

import subprocess
import sys
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from perdure.errors import ModelRefused, ReadOnlyHome
from perdure.models.lanes import LANES, BulkLock, EmbeddingLanes
from perdure.testing import FakeEmbedder

WAIT_S = 20  # for a thread that works; only a failing test waits so long


class Held(FakeEmbedder):
    """An embedder that waits, before each item, for the test to let it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def embed(self, texts: Sequence[str], kind):
        self.arrived.release()
        assert self.go.acquire(timeout=WAIT_S)
        return super().embed(texts, kind)

    def let(self, n: int) -> None:
        for _ in range(n):
            self.go.release()

    def in_flight(self) -> None:
        assert self.arrived.acquire(timeout=WAIT_S)

    @property
    def order(self) -> list[str]:
        return [text for texts, _ in self.asked for text in texts]


@pytest.fixture
def held():
    embedder = Held()
    lanes = EmbeddingLanes(embedder, item_chars=1)
    yield embedder, lanes
    embedder.let(500)
    lanes.close()


def texts(lanes, lane, *names):
    kind = "query" if lane == "query" else "document"
    return [lanes.submit([name], kind=kind, lane=lane) for name in names]


def test_a_query_overtakes_98_bulk_texts(held):
    """X32: the bulk text in flight finishes, then the query, then bulk goes on in its order."""
    embedder, lanes = held
    bulk = [f"b{n}" for n in range(98)]
    waiting = texts(lanes, "bulk", *bulk)
    embedder.in_flight()
    (query,) = texts(lanes, "query", "q")
    embedder.let(99)
    answer = query.result(WAIT_S)
    assert answer.depth_before == {"query": 0, "ingest": 0, "bulk": 98}
    waiting[-1].result(WAIT_S)
    assert embedder.order == ["b0", "q", *bulk[1:]]


def test_bulk_pauses_while_an_answer_is_generated(held):
    """The item in flight finishes, a query goes through, and bulk goes on when the answer is there."""
    embedder, lanes = held
    waiting = texts(lanes, "bulk", "b0", "b1")
    embedder.in_flight()
    with lanes.pause_bulk():
        embedder.let(2)
        waiting[0].result(WAIT_S)
        (asked,) = texts(lanes, "query", "q")
        asked.result(WAIT_S)
        assert embedder.order == ["b0", "q"] and not waiting[1].running()
    embedder.let(1)
    waiting[1].result(WAIT_S)
    assert embedder.order == ["b0", "q", "b1"]


def test_query_then_ingest_then_bulk_and_first_is_first(held):
    embedder, lanes = held
    first = texts(lanes, "bulk", "b0")
    embedder.in_flight()
    rest = [f for lane in ("bulk", "ingest", "query") for f in texts(lanes, lane, f"{lane}1", f"{lane}2")]
    embedder.let(7)
    for future in first + rest:
        future.result(WAIT_S)
    assert embedder.order == ["b0", "query1", "query2", "ingest1", "ingest2", "bulk1", "bulk2"]


def test_query_overtakes_items_of_a_large_submission(held):
    """One call with four texts is four items here (item_chars 1): the query waits for one of them."""
    embedder, lanes = held
    bulk = lanes.submit(["b0", "b1", "b2", "b3"], kind="document", lane="bulk")
    embedder.in_flight()
    (query,) = texts(lanes, "query", "q")
    assert lanes.count_waiting_texts() == {"query": 1, "ingest": 0, "bulk": 4}
    embedder.let(5)
    query.result(WAIT_S)
    found = bulk.result(WAIT_S)
    assert embedder.order == ["b0", "q", "b1", "b2", "b3"]
    assert np.array_equal(found.vectors, FakeEmbedder().embed(["b0", "b1", "b2", "b3"], "document"))


def test_items_are_filled_up_to_their_size():
    """10 characters: 'aaaa' + 'bbbb' fit, 'cccc' would not; a text longer than that goes alone."""
    fake = FakeEmbedder()
    lanes = EmbeddingLanes(fake, item_chars=10)
    lanes.submit(["aaaa", "bbbb", "cccc", "d" * 50, "e"], kind="document", lane="bulk").result(WAIT_S)
    lanes.close()
    assert [batch for batch, _ in fake.asked] == [("aaaa", "bbbb"), ("cccc",), ("d" * 50,), ("e",)]


def test_times_are_worked_out_by_hand():
    """X34. A clock that moves 1 s with each look: submitted at 0; started at 1; computing from 2 to 3.

    queued 1,000 ms, compute 1,000 ms, total 3,000 ms.
    """
    seconds = iter(range(100))
    lanes = EmbeddingLanes(FakeEmbedder(), item_chars=100, clock=lambda: float(next(seconds)))
    answer = lanes.submit(["a"], kind="query", lane="query").result(WAIT_S)
    lanes.close()
    assert (answer.queued_ms, answer.compute_ms, answer.total_ms) == (1000, 1000, 3000)


def test_error_goes_to_its_caller_and_the_lanes_continue():
    fake = FakeEmbedder(answers=[ModelRefused("401"), ZeroDivisionError("not even ours")])
    lanes = EmbeddingLanes(fake, item_chars=100)
    with pytest.raises(ModelRefused):
        lanes.submit(["a"], kind="query", lane="query").result(WAIT_S)
    with pytest.raises(ZeroDivisionError):
        lanes.submit(["a"], kind="query", lane="query").result(WAIT_S)
    assert lanes.submit(["a"], kind="query", lane="query").result(WAIT_S).vectors.shape == (1, 64)
    lanes.close()


def test_error_in_the_middle_ends_its_submission():
    good = FakeEmbedder().embed(["a"], "document")
    fake = FakeEmbedder(answers=[good, ModelRefused("401")])
    lanes = EmbeddingLanes(fake, item_chars=1)
    with pytest.raises(ModelRefused):
        lanes.submit(["a", "b", "c"], kind="document", lane="bulk").result(WAIT_S)
    lanes.submit([], kind="query", lane="bulk").result(WAIT_S)
    assert lanes.count_waiting_texts() == dict.fromkeys(LANES, 0) and len(fake.asked) == 3
    lanes.close()


def test_submission_can_be_cancelled_before_its_turn(held):
    embedder, lanes = held
    texts(lanes, "bulk", "b0")
    embedder.in_flight()
    gone, kept = texts(lanes, "bulk", "b1", "b2")
    assert gone.cancel()
    embedder.let(2)
    kept.result(WAIT_S)
    assert embedder.order == ["b0", "b2"]


def test_empty_submission_is_done_at_once():
    lanes = EmbeddingLanes(FakeEmbedder(), item_chars=1)
    assert lanes.submit([], kind="document", lane="ingest").result(WAIT_S).vectors.shape == (0, 64)
    lanes.close()


def test_closing_finishes_running_items_and_cancels_the_rest():
    embedder = Held()
    lanes = EmbeddingLanes(embedder, item_chars=1)
    first, second = texts(lanes, "bulk", "b0", "b1")
    long = lanes.submit(["c", "d"], kind="document", lane="query")
    embedder.in_flight()
    closing = threading.Thread(target=lanes.close)
    closing.start()
    embedder.let(2)
    closing.join(WAIT_S)
    assert not closing.is_alive()
    outcome = [f.cancelled() or f.exception() is not None or f.done() for f in (first, second, long)]
    assert all(outcome) and len(embedder.asked) <= 2
    with pytest.raises(RuntimeError):
        lanes.submit(["x"], kind="query", lane="query")


def test_unused_lanes_can_be_closed():
    EmbeddingLanes(FakeEmbedder(), item_chars=1).close()


# turns between processes ------------------------------------------------------------------------------------


def test_bulk_waits_for_the_other_process_and_a_query_does_not(tmp_path):
    other = BulkLock(tmp_path / "bulk.lock")
    other.open()
    assert other.try_acquire()
    fake = FakeEmbedder()
    lanes = EmbeddingLanes(fake, bulk_lock_path=tmp_path / "bulk.lock", item_chars=100, poll_s=0.01)
    bulk = lanes.submit(["b"], kind="document", lane="bulk")
    for lane in ("query", "ingest"):
        lanes.submit([lane], kind="document", lane=lane).result(WAIT_S)
    assert not bulk.done() and [batch for batch, _ in fake.asked] == [("query",), ("ingest",)]
    other.release()
    bulk.result(WAIT_S)
    lanes.close()
    assert other.try_acquire()
    other.close()


def test_the_turn_is_given_back_when_bulk_is_done(tmp_path):
    lanes = EmbeddingLanes(FakeEmbedder(), bulk_lock_path=tmp_path / "bulk.lock", item_chars=100)
    lanes.submit(["b"], kind="document", lane="bulk").result(WAIT_S)
    lanes.submit(["q"], kind="query", lane="query").result(WAIT_S)  # by then the worker has settled the first
    other = BulkLock(tmp_path / "bulk.lock")
    other.open()
    assert other.try_acquire()
    other.close()
    lanes.close()


def test_dead_process_frees_its_turn(tmp_path):
    path = tmp_path / "bulk.lock"
    code = f"""
import os, signal
from pathlib import Path
from perdure.models.lanes import BulkLock
turn = BulkLock(Path({str(path)!r}))
turn.open()
assert turn.try_acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    turn = BulkLock(path)
    turn.open()
    assert turn.try_acquire()
    turn.close()


def test_a_place_for_the_lock_that_cannot_be_written(tmp_path):
    lanes = EmbeddingLanes(FakeEmbedder(), bulk_lock_path=tmp_path / "nowhere" / "bulk.lock", item_chars=1)
    with pytest.raises(ReadOnlyHome):
        lanes.submit(["b"], kind="document", lane="bulk")
    assert lanes.submit(["q"], kind="query", lane="query").result(WAIT_S)
    lanes.close()
