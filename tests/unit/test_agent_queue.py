"""The queue of runs: durable, in order, held by one process at a time, ended once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import agent_queue
from perdure.agent_queue import AgentEnvelope, AgentQueue, AgentRecipe, AgentRun, count_runs
from perdure.disk import lock_file
from perdure.errors import AgentQueueFull, AgentRunMissing, Busy, UsageError

NOW = datetime(2026, 1, 15, tzinfo=UTC)
DONE = AgentEnvelope(outcome="done", ended_at=NOW)
HOLD = """
import sys, time
from pathlib import Path
from perdure.agent_queue import AgentQueue
queue = AgentQueue(Path(sys.argv[1]))
with queue.hold(sys.argv[2]) as run:
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(name="queue")
def fixture_queue(tmp_path: Path) -> AgentQueue:
    return AgentQueue(tmp_path)


def add(queue: AgentQueue, instruction: str = "Count.", *, user: str = "ada", **more: Any) -> AgentRun:
    how = {"max_waiting": 100, **more}
    return queue.add(AgentRecipe(instruction=instruction), job="agent", user=user, agent="default", **how)


def end(queue: AgentQueue, run: AgentRun, **more: Any) -> AgentRun:
    with queue.hold(run.run) as held:
        return queue.end(replace(held, **more), DONE)


def test_a_run_is_on_disk_before_its_id_is_known(queue: AgentQueue, tmp_path: Path) -> None:
    run = add(queue)
    assert json.loads((tmp_path / "run/agents" / f"{run.run}.json").read_bytes())["recipe"] == {"instruction": "Count."}
    assert AgentQueue(tmp_path).read(run.run) == run
    assert (tmp_path / "run/agents" / f"{run.run}.json").stat().st_mode & 0o777 == 0o600


def test_runs_wait_in_their_order_and_end_once(queue: AgentQueue) -> None:
    runs = [add(queue, f"Task {n}.") for n in range(3)]
    assert queue.list_active() == runs
    ended = end(queue, runs[1], session="s1234567890")
    assert ended.recipe.instruction == ""  # its session has the words
    assert (queue.list_active(), queue.list_ended()) == ([runs[0], runs[2]], [ended])
    assert queue.read(runs[1].run).envelope == DONE
    with pytest.raises(AgentRunMissing), queue.hold(runs[1].run):
        pass


def test_a_run_that_never_had_a_session_keeps_its_words(queue: AgentQueue) -> None:
    assert end(queue, add(queue)).recipe.instruction == "Count."


def test_more_runs_than_may_wait_are_refused(queue: AgentQueue) -> None:
    add(queue, max_waiting=1)
    with pytest.raises(AgentQueueFull, match="1 runs wait"):
        add(queue, max_waiting=1)


def test_a_queue_that_is_held_refuses_at_its_limit(queue: AgentQueue) -> None:
    """J04: the limit of 30 s, here shorter."""
    add(queue)
    started_s = time.monotonic()
    with lock_file(queue.folder / "add.lock"), pytest.raises(Busy):
        add(queue, limit_s=0.2)
    assert time.monotonic() - started_s < 5
    assert agent_queue.ADD_S == 30


def test_one_process_holds_a_run_and_its_death_frees_it(queue: AgentQueue, tmp_path: Path) -> None:
    run = add(queue)
    assert not queue.is_held(run.run)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path), run.run], stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    assert queue.is_held(run.run)
    with pytest.raises(Busy), queue.hold(run.run):
        pass
    assert queue.cancel(run.run).state == "waiting" and queue.is_cancelled(run.run)  # it is only asked to end
    holder.kill()
    holder.communicate()
    assert not queue.is_held(run.run)
    with queue.hold(run.run) as held:
        assert held == run


def test_a_run_that_waits_is_cancelled_at_once(queue: AgentQueue) -> None:
    run = queue.cancel(add(queue).run)
    assert run.envelope is not None
    assert (run.state, run.envelope.outcome, run.envelope.why) == ("ended", "cancelled", "before it began")
    assert queue.cancel(run.run) == run


def test_an_end_counts_when_its_process_died_just_after(queue: AgentQueue, tmp_path: Path) -> None:
    """The envelope is written, and the file of the running run was not deleted any more."""
    run = add(queue)
    active = queue.folder / f"{run.run}.json"
    data = active.read_bytes()
    ended = end(queue, run)
    active.write_bytes(data)
    assert queue.read(run.run) == ended
    with pytest.raises(AgentRunMissing), queue.hold(run.run):
        pass
    assert queue.list_active() == []


def test_names_are_beginnings_of_ids_of_ones_own_runs(queue: AgentQueue) -> None:
    run, other = add(queue), add(queue, user="bob")
    assert queue.resolve(run.run[:6], user="ada") == run
    for name in (run.run[:2], "anothing", other.run):
        with pytest.raises(AgentRunMissing):
            queue.resolve(name, user="ada")
    for n in (1, 2):
        (queue.folder / f"azzzzzzzzz{n}.json").write_bytes(
            (queue.folder / f"{run.run}.json").read_bytes().replace(run.run.encode(), f"azzzzzzzzz{n}".encode())
        )
    with pytest.raises(UsageError, match="begins 2 runs"):
        queue.resolve("azzz", user="ada")


def test_the_oldest_ended_runs_go(queue: AgentQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_queue, "MAX_ENDED", 2)
    runs = [add(queue) for _ in range(3)]
    for n, run in enumerate(runs):
        with queue.hold(run.run) as held:
            queue.end(held, replace(DONE, ended_at=NOW + timedelta(hours=n)))
    queue.drop_old()
    assert [run.run for run in queue.list_ended()] == [runs[2].run, runs[1].run]


def test_a_user_who_leaves_takes_the_runs_along(queue: AgentQueue) -> None:
    add(queue)
    end(queue, add(queue))
    other = add(queue, user="bob")
    queue.drop_user("ada")
    assert (queue.list_active(), queue.list_ended()) == ([other], [])


def test_lost_and_crashed_runs_of_a_day_are_counted(queue: AgentQueue, tmp_path: Path) -> None:
    add(queue)
    for outcome, at in (("lost", NOW), ("lost", NOW - timedelta(days=2)), ("crashed", NOW), ("done", NOW)):
        with queue.hold(add(queue).run) as held:
            queue.end(held, AgentEnvelope(outcome=outcome, ended_at=at))
    assert count_runs(tmp_path, now=NOW) == {"waiting": 1, "running": 0, "lost": 1, "crashed": 1}


def test_a_file_of_a_newer_version_is_left_alone(queue: AgentQueue) -> None:
    run = add(queue)
    (queue.folder / "anewer00000.json").write_bytes(b'{"run": 5}')
    assert queue.list_active() == [run]
