"""A run that does not end is killed; time in which the machine slept does not count."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from perdure.agent.queue_runner import OVERDUE_S, kill_overdue
from perdure.agent_queue import AgentRecipe, AgentRun, count_running_s

MAX_S = 1800


@pytest.fixture(name="worker")
def fixture_worker() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, as that of a run is."""
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(words, start_new_session=True) as worker:
        yield worker
        worker.kill()


def make_run(pid: int) -> AgentRun:
    """Return a run that began ten hours ago on the clock on the wall, of which the machine slept all but a minute."""
    began_at = datetime.now(UTC) - timedelta(hours=10)
    return AgentRun(
        run="a0123456789", job="agent", user="ada", agent="ada", recipe=AgentRecipe(instruction="Go.", max_s=MAX_S),
        queued_at=began_at, state="running", pid=pid, started_at=began_at, started_s=time.monotonic() - 60,
    )  # fmt: skip


def test_a_run_survives_a_night_in_which_the_machine_slept(worker: subprocess.Popen[bytes]) -> None:
    kill_overdue(make_run(worker.pid), time.monotonic())
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(0.2)


def test_a_run_is_killed_long_after_its_limit(worker: subprocess.Popen[bytes]) -> None:
    run = make_run(worker.pid)
    kill_overdue(run, run.started_s + MAX_S + OVERDUE_S - 1)
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(0.2)
    kill_overdue(run, run.started_s + MAX_S + OVERDUE_S + 1)
    assert worker.wait(10) < 0


def test_the_time_is_counted_by_every_process_of_the_machine() -> None:
    """The beginning stands in the file of the run, so that a new resident home counts on."""
    run = make_run(os.getpid())
    words = [sys.executable, "-c", "import time; print(time.monotonic())"]
    now_s = float(subprocess.run(words, capture_output=True, check=True).stdout)
    assert 60 <= count_running_s(run, now_s) < 120
    assert count_running_s(run, 0.0) == 0.0  # the machine was started anew
    assert count_running_s(replace(run, started_s=None), now_s) == 0.0
