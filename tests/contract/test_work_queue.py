"""The queue of the workers on a real Postgres: each item once, none lost with a worker, users in turn."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import work_queue
from perdure.config import IndexConfig
from perdure.errors import IndexUnreachable
from perdure.work_queue import WorkItem, WorkQueue
from rig.postgres import ROLE, PostgresServer
from rig.waiting import wait_for

INGEST, EMBED = WorkItem("capture", "ingest", "ada"), WorkItem("embed", "embed", "ada")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with contextlib.closing(PostgresServer()) as server:
        yield server


@pytest.fixture
def config(server: PostgresServer) -> IndexConfig:
    return IndexConfig("postgres", server.get_address(server.create_database(), role=ROLE))


@pytest.fixture
def queue(config: IndexConfig) -> Iterator[WorkQueue]:
    with contextlib.closing(WorkQueue(config)) as queue:
        yield queue


def work_in_background(queue: WorkQueue, carry_out) -> tuple[threading.Event, threading.Thread]:
    stop_event = threading.Event()
    thread = threading.Thread(target=queue.work, args=(carry_out, stop_event), daemon=True)
    thread.start()
    return stop_event, thread


def test_an_item_waits_once_and_is_done_once(queue: WorkQueue) -> None:
    assert queue.put(INGEST) and queue.put(EMBED)
    assert not queue.put(INGEST._replace(note="3"))  # it is the same
    assert queue.count_items()["capture"] == (1, 0)
    done: list[WorkItem] = []
    stop_event, thread = work_in_background(queue, done.append)
    wait_for(lambda: len(done) == 2)
    stop_event.set()
    thread.join(20)
    assert sorted(done) == [INGEST, EMBED]
    assert set(queue.count_items().values()) == {(0, 0)}


def test_an_item_that_runs_can_be_put_in_again(queue: WorkQueue) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), []

    def carry_out(item: WorkItem) -> None:
        begun.set()
        assert go_on.wait(20)
        done.append(time.monotonic())

    queue.put(INGEST)
    stop_event, thread = work_in_background(queue, carry_out)
    assert begun.wait(20)
    assert queue.put(INGEST)  # what came since this one began must not be forgotten
    assert queue.count_items()["capture"] == (1, 1)
    go_on.set()
    wait_for(lambda: len(done) == 2)
    stop_event.set()
    thread.join(20)


def test_slices_of_users_take_turns(queue: WorkQueue) -> None:
    order: list[str] = []
    slices = {"ada": 4, "eve": 1}

    def carry_out(item: WorkItem) -> None:
        order.append(item.name)
        slices[item.name] -= 1
        if slices[item.name]:
            queue.put(item)

    for user in ("ada", "eve"):
        queue.put(WorkItem("capture", "ingest", user))
    stop_event, thread = work_in_background(queue, carry_out)
    wait_for(lambda: len(order) == 5)
    stop_event.set()
    thread.join(20)
    assert order == ["ada", "eve", "ada", "ada", "ada"]  # eve waits for one slice, not for all of ada's


def _work_forever(address: str, folder: str) -> None:
    def carry_out(item: WorkItem) -> None:
        with (Path(folder) / "begun").open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(600)

    WorkQueue(IndexConfig("postgres", address)).work(carry_out, threading.Event())


def test_another_worker_gets_the_item_of_a_killed_one(
    config: IndexConfig, queue: WorkQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "STALLED_S", 3.0)
    queue.put(INGEST)
    process = multiprocessing.get_context("spawn").Process(target=_work_forever, args=(config.address, str(tmp_path)))
    process.start()
    wait_for((tmp_path / "begun").exists, limit_s=60)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    queue.put(INGEST)  # and a second one waits meanwhile, which must not be in the way
    done: list[WorkItem] = []
    stop_event, thread = work_in_background(queue, done.append)
    wait_for(lambda: done != [], limit_s=60)
    stop_event.set()
    thread.join(20)
    assert done == [INGEST]


def test_two_homes_in_one_database_have_queues_of_their_own(config: IndexConfig, queue: WorkQueue) -> None:
    other_config = IndexConfig("postgres", config.address, schema="second")
    queue.put(INGEST)
    with contextlib.closing(WorkQueue(other_config)) as other_queue:
        assert other_queue.count_items()["capture"] == (0, 0)
        assert other_queue.put(INGEST)


def test_a_server_that_is_away_is_said() -> None:
    with pytest.raises(IndexUnreachable, match="perdure_queue"):
        WorkQueue(IndexConfig("postgres", "postgresql://perdure@127.0.0.1:9/none"))
