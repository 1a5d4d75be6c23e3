"""Carry out the runs of a queue, some at a time, each in a process of its own.

One process of a home does this at a time, by a lock: the resident home, or where none runs a session that queued
something, or a command that waits. When it is killed, the next one goes on: runs that have begun end by themselves,
those that wait still wait, and those whose own process is gone are settled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure import log
from perdure.agent.permission import MODES
from perdure.agent_queue import ADD_S, AgentQueue, AgentRecipe, AgentRun, RunCause, count_running_s
from perdure.capture import events
from perdure.config import AgentsConfig
from perdure.disk import lock_file, make_folder
from perdure.errors import Busy, PerdureError, UsageError

if TYPE_CHECKING:
    from perdure.home import Home

ACTIVE_TICK_S, IDLE_TICK_S = 0.25, 2.0  # between two looks, if nobody wakes the thread
IDLE_S = 600.0  # without a run for so long, the process that forks ends
_RESEND_S = 15.0  # a run whose process has not begun after this time gets another one
OVERDUE_S = 60.0  # a run that has not ended so long after its limit is killed
_FAULT_PAUSE_S = 30.0
_WAKE_S = 2.0
_CLOSE_S = 1.0
_RESIDENT_S = 3.0  # a resident home that was told has so long to begin
_FORK_SERVER = "perdure.agent.fork_server"


def queue_run(
    home: Home, recipe: AgentRecipe, *, job: str, spawned_by: tuple[str, str] = ("", ""), depth: int = 1,
    cause: RunCause | None = None, key: str = "", limit_s: float = ADD_S,
) -> AgentRun:  # fmt: skip
    """Queue a run as the user and agent of a home, and wake the resident home; the run is durable when this returns.

    job: under this name its model calls are metered. spawned_by: (session, entry) of the agent that asks. key: a run
    with the same key is queued once. Raises UsageError, AgentQueueFull, and Busy after `limit_s`.
    """
    if recipe.mode not in MODES:
        raise UsageError(f"mode {recipe.mode!r} (known: {', '.join(MODES)})")
    settings = home.config.agents
    recipe = replace(recipe, max_s=recipe.max_s or settings.max_s, cwd=recipe.cwd or str(Path.cwd()))
    run = AgentQueue(home.path).add(
        recipe, job=job, user=home.user, agent=home.config.agent, spawned_by=spawned_by, depth=depth,
        cause=cause, key=key, max_waiting=settings.max_waiting, limit_s=limit_s,
    )  # fmt: skip
    wake_resident(home.path)
    return run


def wake_resident(home: Path, *, timeout_s: float = _WAKE_S) -> bool:
    """Tell the resident home that there is, or will soon be, a run; return True if there is a resident home."""
    try:
        return bool(events.ask_resident(home, {"op": "agents"}, timeout_s=timeout_s).get("ok"))
    except (OSError, ValueError):
        return False


class ForkServer:
    """The process that forks one for each run (`fork_server.py`); started when first needed. Use it from one thread."""

    def __init__(self, home: Path, *, on_end: Callable[[], None]) -> None:
        """on_end: called, in another thread, when a run's process has ended."""
        self._home, self._on_end = home, on_end
        self._process: subprocess.Popen[bytes] | None = None
        self.has_ended = False  # what it was asked for last may not have been done

    def start(self) -> None:
        """Start the process, so that the first run need not wait for it."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            words = [sys.executable, "-m", _FORK_SERVER, str(self._home)]
            errors = subprocess.DEVNULL if sys.stderr.isatty() else None  # a person's screen is no log
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True, bufsize=0
            )
            threading.Thread(target=self._listen, args=(self._process,), name="perdure-ends", daemon=True).start()

    def fork(self, run_id: str) -> None:
        """Let a process be forked for a run. Raises OSError if there can be none."""
        self.start()
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed just now: the run gets another process later
            self._process.stdin.write(f"{run_id}\n".encode())

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as ends:
            while ends.readline():
                self._on_end()
        self.has_ended = True
        self._on_end()

    def close(self) -> None:
        """Let the process end. The runs that it has begun go on."""
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(_CLOSE_S)
            except subprocess.TimeoutExpired:  # it may be loading
                self._process.kill()
                self._process.wait()
            self._process = None


def start_runner(home: Home, stop_event: threading.Event) -> QueueRunner:
    """Carry out runs in a thread of this process, for as long as no resident home does, until stopped."""
    runner = QueueRunner(home.path, home.config.agents)
    delay_s = _RESIDENT_S if wake_resident(home.path) else 0.0

    def run() -> None:
        if not stop_event.wait(delay_s):
            runner.run(stop_event)

    threading.Thread(target=run, name="perdure-agents", daemon=True).start()
    return runner


class QueueRunner:
    """The thread that carries out the runs of one home."""

    def __init__(self, home: Path, settings: AgentsConfig) -> None:
        """Start nothing yet."""
        self._home, self._settings = home, settings
        self._queue = AgentQueue(home)
        self._wake = threading.Event()
        self._sent_at_s: dict[tuple[str, str, int], float] = {}  # (run, state, try) -> when a process was asked for
        self._active_at_s = 0.0
        self._is_expected = False

    def wake(self, *, expect: bool = False) -> None:
        """Look at the queue now. expect: a run may come soon."""
        self._is_expected = self._is_expected or expect
        self._wake.set()

    def run(self, stop_event: threading.Event) -> None:
        """Carry out runs until stopped, whenever no other process does. Runs that have begun go on by themselves."""
        while not stop_event.is_set():
            self._wake.clear()
            try:
                if self._is_expected or self._queue.folder.is_dir():
                    make_folder(self._queue.folder)
                    with lock_file(self._queue.folder / "runner.lock", wait_s=0):
                        self._serve(stop_event)
            except Busy:
                pass
            except (PerdureError, OSError) as error:
                code = getattr(error, "code", type(error).__name__)
                log.append_entry(self._home, "failed", client="agents", kind="queue", code=str(code))
                stop_event.wait(_FAULT_PAUSE_S)
            if not stop_event.is_set():
                self._wake.wait(IDLE_TICK_S)

    def _serve(self, stop_event: threading.Event) -> None:
        fork_server, was_active = ForkServer(self._home, on_end=self._wake.set), True
        try:
            while not stop_event.is_set():
                self._wake.clear()
                is_active = self._step(fork_server)
                if was_active and not is_active:
                    self._queue.drop_old()
                was_active = is_active
                if self._is_expected:
                    fork_server.start()
                if is_active or self._is_expected:
                    self._active_at_s, self._is_expected = time.monotonic(), False
                elif time.monotonic() - self._active_at_s > IDLE_S:
                    fork_server.close()
                self._wake.wait(ACTIVE_TICK_S if is_active else IDLE_TICK_S)
        finally:
            fork_server.close()

    def _step(self, fork_server: ForkServer) -> bool:
        """Ask for a process for each run that may begin, or was lost; return True if any run has not ended."""
        if fork_server.has_ended:
            fork_server.has_ended = False
            self._sent_at_s.clear()
        runs, now_s = self._queue.list_active(), time.monotonic()
        keys = {_to_key(run) for run in runs}
        self._sent_at_s = {key: s for key, s in self._sent_at_s.items() if key in keys and now_s - s < _RESEND_S}
        n_busy: Counter[int] = Counter()  # by depth
        for run in runs:
            if run.state == "running" and self._queue.is_held(run.run):
                n_busy[run.depth] += 1
                kill_overdue(run, now_s)
            elif run.state == "running" and _to_key(run) not in self._sent_at_s and self._is_lost(run):
                self._send(run, fork_server)
            elif run.state == "waiting" and _to_key(run) in self._sent_at_s:
                n_busy[run.depth] += 1
        earlier_jobs: set[tuple[str, str, str]] = set()
        for run in runs:
            job = (run.user, run.agent, run.job)
            is_held_up = run.cause is not None and run.cause.is_serial and job in earlier_jobs
            earlier_jobs.add(job)
            is_new = run.state == "waiting" and _to_key(run) not in self._sent_at_s and not is_held_up
            if is_new and n_busy[run.depth] < self._settings.workers:
                n_busy[run.depth] += 1
                self._send(run, fork_server)
        return bool(runs)

    def _is_lost(self, run: AgentRun) -> bool:
        """Return True if a run says that it is running, and its process is gone; it may just have ended."""
        with contextlib.suppress(PerdureError):
            return self._queue.read(run.run).state == "running" and not self._queue.is_held(run.run)
        return False

    def _send(self, run: AgentRun, fork_server: ForkServer) -> None:
        self._sent_at_s[_to_key(run)] = time.monotonic()
        fork_server.fork(run.run)


def _to_key(run: AgentRun) -> tuple[str, str, int]:
    return run.run, run.state, run.n_tries


def kill_overdue(run: AgentRun, now_s: float) -> None:
    """Kill a run that has not ended long after its limit; its process holds its lock, so it is no other one.

    now_s: of the monotonic clock.
    """
    if run.recipe.max_s and run.pid > 0 and count_running_s(run, now_s) > run.recipe.max_s + OVERDUE_S:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(run.pid, signal.SIGKILL)
