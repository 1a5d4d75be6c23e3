"""A durable queue of agent runs: a file for each in `run/agents/`, and in `run/agents/ended/` from its end on.

It belongs to this machine's processes, like the rest of `run/`: no merge, sync or backup carries it, because a run that
travelled would run twice. A run is on disk before anybody is told its id. Whoever carries it out holds its lock from
its beginning to its end, and the kernel frees the lock with the process: a run that says "running" and whose lock is
free was lost. Who put a run in, and what becomes of its output, is no concern of the queue. The words of a recipe leave
it when the run has ended: from then on they are in the session of the run, where forgetting reaches them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from perdure import log
from perdure.disk import lock_file, make_folder, map_os_errors, replace_file
from perdure.errors import AgentQueueFull, AgentRunMissing, Busy, UsageError
from perdure.identity import to_base32

ADD_S = 30.0  # a run that is not durably queued after this time is refused
MAX_ENDED = 500  # ended runs of each job that are kept, the newest
MAX_RETRIES = 3
COUNT_WINDOW = timedelta(days=1)
_ID_CHARS = 10
_MIN_PREFIX_CHARS = 3
_POLL_S = 0.05
_LOCK_WAIT_S = 2.0  # somebody may only be looking whether a lock is free

Outcome = Literal[
    "done", "wrong", "empty", "refused", "out-of-turns", "out-of-tokens", "out-of-money", "timed-out", "crashed",
    "cancelled", "lost",
]  # fmt: skip
RunState = Literal["waiting", "running", "ended"]


class AgentRecipe(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a run is to do, with what, and how much it may cost. Whoever queues it answers for what it allows."""

    instruction: str
    prompts: tuple[str, ...] = ()  # further messages of the same session, each after the answer to the one before
    context: str = ""  # what it must know, and does not find by itself
    tools: tuple[str, ...] | None = None  # None: all of agent.yaml
    model: str = ""  # a role, or a name at the provider of the role resident; "": the role resident
    effort: str = ""  # the provider's word; "": as agent.yaml says
    mode: str = "ask"  # of its permissions; nobody can be asked
    max_turns: int = 0  # answers of the model; 0: as agent.yaml says
    max_tokens: int = 0  # of all answers, what the model reads included; 0: as agent.yaml says
    max_money: float = 0.0  # in the currency of `models.prices`; 0: as agent.yaml says
    max_s: int = 0  # seconds from its beginning; 0: `agents.max_s`
    check: str = ""  # a shell line that must succeed at its end; whoever queues it has allowed it
    cwd: str = ""  # the folder to work in
    retry: int = 0  # how often it is begun again after its process was lost
    deliver: tuple[str, ...] = ()  # names of targets, to which its result goes


class RunCause(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Why a job queued a run."""

    trigger: Literal["clock", "person"]
    due_at: datetime  # of the schedule, or when the person asked
    is_serial: bool = False  # it waits until the earlier runs of its job have ended


class AgentEnvelope(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a run ended, in numbers. What it said is in its session."""

    outcome: Outcome
    why: str = ""
    is_truncated: bool = False  # it wanted to go on, or its answer was cut off
    n_turns: int = 0  # answers of the model
    n_tokens: int = 0  # of all answers, what the model read included
    money: float | None = None  # None: the price is unknown
    ended_at: datetime


class AgentRun(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One run of an agent: what is to be done, and how far it is."""

    run: str  # `a` and 10 characters
    job: str  # under this name its model calls are metered
    user: str
    agent: str
    recipe: AgentRecipe
    queued_at: datetime
    spawned_by: tuple[str, str] = ("", "")  # (session, entry) of the agent that asked; "" for nobody's sub-agent
    cause: RunCause | None = None  # of a run of a job that the owner defined
    depth: int = 1  # 1: asked for by no sub-agent
    state: RunState = "waiting"
    session: str = ""
    pid: int = 0
    n_tries: int = 0
    started_at: datetime | None = None  # of the last try
    started_s: float | None = None  # the same on the monotonic clock of the machine, which stops while it sleeps
    lost_sessions: tuple[str, ...] = ()  # of earlier tries, whose processes were lost
    envelope: AgentEnvelope | None = None


def count_running_s(run: AgentRun, now_s: float) -> float:
    """Return for how many seconds the last try of a run has been running, without those in which the machine slept.

    now_s: of the monotonic clock, which all processes share until the machine starts anew. 0 for a run that began
    before the last start, or whose beginning nobody wrote down.
    """
    return max(0.0, now_s - run.started_s) if run.started_s is not None else 0.0


class AgentQueue:
    """The queue of one home. Any process and thread may use it."""

    def __init__(self, home: Path) -> None:
        """Make nothing before the first run."""
        self._home = home
        self.folder = home / "run" / "agents"
        self._ended_folder = self.folder / "ended"

    # putting in -------------------------------------------------------------------------------------------

    def add(  # noqa: PLR0913 - what is written down of a run; most have defaults
        self, recipe: AgentRecipe, *, job: str, user: str, agent: str, spawned_by: tuple[str, str] = ("", ""),
        depth: int = 1, cause: RunCause | None = None, key: str = "", max_waiting: int, limit_s: float = ADD_S,
    ) -> AgentRun:  # fmt: skip
        """Queue a run; it is durable when this returns. key: if a run with this key is there, return that one.

        Raises AgentQueueFull, Busy after `limit_s`, DiskFull.
        """
        make_folder(self._ended_folder)
        run_id = _make_id(key)
        with lock_file(self.folder / "add.lock", wait_s=limit_s):
            if key:
                with contextlib.suppress(AgentRunMissing):
                    return self.read(run_id)
            n_waiting = sum(run.state == "waiting" for run in self.list_active())
            if n_waiting >= max_waiting:
                raise AgentQueueFull(f"{n_waiting} runs wait (agents.max_waiting = {max_waiting})")
            run = AgentRun(
                run=run_id, job=job, user=user, agent=agent, recipe=recipe, queued_at=datetime.now(UTC),
                spawned_by=spawned_by, depth=depth, cause=cause,
            )  # fmt: skip
            self._write(self._to_path(run.run), run)
        return run

    # reading ----------------------------------------------------------------------------------------------

    def _to_path(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.json"

    def _to_ended(self, run_id: str) -> Path:
        return self._ended_folder / f"{run_id}.json"

    def read(self, run_id: str) -> AgentRun:
        """Return a run. Raises AgentRunMissing."""
        active_path, ended_path = self._to_path(run_id), self._to_ended(run_id)
        for path in (ended_path, active_path, ended_path):  # it may end between two looks
            if (run := _read_run(path)) is not None:
                return run
        raise AgentRunMissing(run_id)

    def resolve(self, prefix: str, *, user: str) -> AgentRun:
        """Return the run of a user whose id begins so. Raises AgentRunMissing, UsageError if several do."""
        runs = [run for run in (*self.list_active(), *self.list_ended()) if run.run.startswith(prefix)]
        matches = {run.run: run for run in runs if run.user == user}
        if prefix in matches:
            return matches[prefix]
        if len(matches) > 1:
            raise UsageError(f"{prefix!r} begins {len(matches)} runs: {', '.join(sorted(matches)[:5])}")
        if not matches or len(prefix) < _MIN_PREFIX_CHARS:
            raise AgentRunMissing(prefix)
        return next(iter(matches.values()))

    def list_active(self) -> list[AgentRun]:
        """Return the runs that have not ended, in the order in which they were queued."""
        return sorted(_read_folder(self.folder), key=lambda run: (run.queued_at, run.run))

    def list_ended(self) -> list[AgentRun]:
        """Return the runs that have ended, the last one first."""
        return sorted(_read_folder(self._ended_folder), key=_get_end, reverse=True)

    # a life -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def hold(self, run_id: str) -> Iterator[AgentRun]:
        """Hold the lock of a run for the block; yields it as it is then. Raises Busy, AgentRunMissing if it ended."""
        with lock_file(self._to_lock(run_id), wait_s=_LOCK_WAIT_S):
            run = _read_run(self._to_path(run_id))
            if run is None or self._to_ended(run_id).exists():
                self._drop_active(run_id)  # a process died between the two
                raise AgentRunMissing(run_id)
            yield run

    def is_held(self, run_id: str) -> bool:
        """Return True if a process holds the lock of a run. Asking never holds up the process that asks for it."""
        try:
            descriptor = os.open(self._to_lock(run_id), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _to_lock(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.lock"

    def update(self, run: AgentRun) -> AgentRun:
        """Write a run that is held."""
        self._write(self._to_path(run.run), run)
        return run

    def end(self, run: AgentRun, envelope: AgentEnvelope) -> AgentRun:
        """Give a run that is held its envelope. The words of its recipe go, if its session has them."""
        recipe = run.recipe
        if run.session:
            recipe = msgspec.structs.replace(recipe, instruction="", prompts=(), context="")
        ended_run = msgspec.structs.replace(run, state="ended", recipe=recipe, envelope=envelope, pid=0)
        self._write(self._to_ended(run.run), ended_run)
        self._drop_active(run.run)
        counts = {"turns": envelope.n_turns, "tokens": envelope.n_tokens}
        log.append_entry(
            self._home, "agent", run=run.run, job=run.job, session=run.session, outcome=envelope.outcome, counts=counts
        )
        return ended_run

    def _drop_active(self, run_id: str) -> None:
        for path in (self._to_path(run_id), self._to_cancel(run_id), self._to_lock(run_id)):
            path.unlink(missing_ok=True)

    def drop_old(self) -> None:
        """Delete the oldest ended runs of each job that has too many. Their sessions stay."""
        n_kept: Counter[str] = Counter()
        for run in self.list_ended():
            n_kept[run.job] += 1
            if n_kept[run.job] > MAX_ENDED:
                self._to_ended(run.run).unlink(missing_ok=True)

    def drop_user(self, user: str) -> None:
        """Delete the runs of a user; those that run now are cancelled."""
        for run in (*self.list_active(), *self.list_ended()):
            if run.user == user:
                if self.is_held(run.run):
                    self.cancel(run.run)
                self._drop_active(run.run)
                self._to_ended(run.run).unlink(missing_ok=True)

    # cancelling -------------------------------------------------------------------------------------------

    def _to_cancel(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.cancel"

    def cancel(self, run_id: str) -> AgentRun:
        """End a run that waits; ask a running one to end, which it does soon. Raises AgentRunMissing."""
        if self.read(run_id).state == "ended":
            return self.read(run_id)
        if not self.is_held(run_id):
            with contextlib.suppress(Busy, AgentRunMissing), self.hold(run_id) as run:
                if run.state == "waiting":
                    envelope = AgentEnvelope(outcome="cancelled", why="before it began", ended_at=datetime.now(UTC))
                    return self.end(run, envelope)
        if (run := self.read(run_id)).state != "ended":
            with map_os_errors(self.folder):
                self._to_cancel(run_id).touch(mode=0o600)
        return run

    def is_cancelled(self, run_id: str) -> bool:
        """Return True if somebody asked a run to end."""
        return self._to_cancel(run_id).exists()

    # waiting ----------------------------------------------------------------------------------------------

    def wait_until(self, run_id: str, deadline_s: float) -> AgentRun:
        """Return a run when it has ended, or as it is at this time of the monotonic clock. Raises AgentRunMissing."""
        while True:
            run = self.read(run_id)
            left_s = deadline_s - time.monotonic()
            if run.state == "ended" or left_s <= 0:
                return run
            time.sleep(min(_POLL_S, left_s))

    def _write(self, path: Path, run: AgentRun) -> None:
        replace_file(path, msgspec.json.encode(run))


def count_runs(home: Path, *, now: datetime) -> dict[str, int]:
    """Count the runs of all users that wait and run, and those of the last day that were lost or crashed."""
    queue = AgentQueue(home)
    states, since_at = [run.state for run in queue.list_active()], now - COUNT_WINDOW
    outcomes = [
        run.envelope.outcome for run in queue.list_ended() if run.envelope and run.envelope.ended_at >= since_at
    ]
    return {
        "waiting": states.count("waiting"), "running": states.count("running"), "lost": outcomes.count("lost"),
        "crashed": outcomes.count("crashed"),
    }  # fmt: skip


def _make_id(key: str) -> str:
    """Return the id of a run: the same for the same key, a random one for none."""
    n_bits = 5 * _ID_CHARS
    digest = int.from_bytes(hashlib.sha256(key.encode()).digest())
    return "a" + to_base32(digest >> (256 - n_bits) if key else secrets.randbits(n_bits), _ID_CHARS)


def _get_end(run: AgentRun) -> tuple[datetime, str]:
    return (run.envelope.ended_at if run.envelope else run.queued_at, run.run)


def _read_folder(folder: Path) -> Iterator[AgentRun]:
    for path in folder.glob("a*.json"):
        if (run := _read_run(path)) is not None:
            yield run


def _read_run(path: Path) -> AgentRun | None:
    """Return the run of a file; None if it is not there, or a newer version wrote it."""
    try:
        return _decoder.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


_decoder = msgspec.json.Decoder(AgentRun)
