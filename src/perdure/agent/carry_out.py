"""Carry out one run of the queue, in a process of its own: a session like any other, with nobody to ask.

The process holds the lock of its run from before the first word to after the envelope. It writes the envelope itself;
only when it is killed, another process finds the lock free and says that the run was lost. A run that may have begun is
never begun again by itself, unless its recipe says retry.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure import text
from perdure.agent.agent import Agent, open_agent
from perdure.agent.deliver_result import deliver_result
from perdure.agent.envelope import CHECK_OPENING, RunEnding, make_envelope
from perdure.agent.tools.shell import MAX_S as MAX_CHECK_S
from perdure.agent_queue import AgentEnvelope, AgentQueue, AgentRecipe, AgentRun, Outcome, count_running_s
from perdure.errors import AgentRunMissing, Busy, ModelCancelled, PerdureError, TurnBudgetSpent
from perdure.floor.platforms import JOBS
from perdure.formats.perdure import Message
from perdure.home import open_home
from perdure.session.chat_model import find_chat

if TYPE_CHECKING:
    from perdure.home import Home

INSTRUCTION = (
    "[You are a sub-agent: another agent or a job gave you this task, and no person reads along. Nobody can be asked. "
    "Your last answer goes back to whoever gave the task: give the result in it, whole, and say what you could not do.]"
)
PRIVATE = "capture is paused, or leaves out this folder, and of a run everything must be kept. Nothing was done"
MAX_REFUSALS = 2  # in a row; then a programme of prompts ends
_CANCEL_POLL_S = 0.1
_WHY_CHARS = 500
_LIMIT_OUTCOMES: dict[str, Outcome] = {
    "max_turns": "out-of-turns", "max_tokens": "out-of-tokens", "max_money": "out-of-money", "max_s": "timed-out",
}  # fmt: skip
_STOP_OUTCOMES: dict[str, Outcome] = {"refused": "refused", "length": "out-of-tokens", "empty": "empty"}


def carry_out(home_path: Path, run_id: str) -> None:
    """Carry out a run that waits, or settle one whose process was lost; leave one that another process holds."""
    queue = AgentQueue(home_path)
    with contextlib.suppress(Busy, AgentRunMissing), queue.hold(run_id) as run:
        if run.state == "running":
            _settle_lost(queue, home_path, run)
        else:
            _carry_out_held(queue, home_path, run)


def _settle_lost(queue: AgentQueue, home_path: Path, run: AgentRun) -> None:
    """Give a run whose process is gone its envelope; or let it wait again, if its recipe says so."""
    if run.n_tries <= run.recipe.retry and not queue.is_cancelled(run.run):
        lost_sessions = (*run.lost_sessions, *filter(None, [run.session]))
        queue.update(replace(run, state="waiting", session="", pid=0, lost_sessions=lost_sessions))
        return
    is_late = count_running_s(run, time.monotonic()) > run.recipe.max_s > 0
    ending = RunEnding("timed-out", "it did not end by itself") if is_late else RunEnding("lost", "its process is gone")
    with open_home(home_path, user=run.user, agent=run.agent, create=False) as home:
        _end(queue, home, run, make_envelope(home, run, ending))


def _end(queue: AgentQueue, home: Home | None, run: AgentRun, envelope: AgentEnvelope) -> None:
    """Hand the result to the targets of a run, then give the run its envelope."""
    if home is not None and run.recipe.deliver:
        deliver_result(home, replace(run, state="ended", envelope=envelope))
    queue.end(run, envelope)


def _carry_out_held(queue: AgentQueue, home_path: Path, run: AgentRun) -> None:
    run = queue.update(
        replace(
            run, state="running", pid=os.getpid(), started_at=datetime.now(UTC), started_s=time.monotonic(),
            n_tries=run.n_tries + 1,
        )
    )  # fmt: skip
    try:
        with open_home(home_path, user=run.user, agent=run.agent, create=False) as home, _watch(queue, run) as cancel:
            run, ending = _hold_session(queue, home, run, cancel)
            _end(queue, home, run, make_envelope(home, run, ending))
    except Exception as error:  # noqa: BLE001 - a run that could not begin has an envelope, too
        _end(queue, None, run, make_envelope(None, run, _describe_crash(error)))


@contextlib.contextmanager
def _watch(queue: AgentQueue, run: AgentRun) -> Iterator[threading.Event]:
    """Yield an event that is set when somebody asks the run to end."""
    cancel, is_over = threading.Event(), threading.Event()

    def watch() -> None:
        while not is_over.wait(_CANCEL_POLL_S):
            if queue.is_cancelled(run.run):
                cancel.set()
                return

    thread = threading.Thread(target=watch, name="perdure-cancel", daemon=True)
    thread.start()
    try:
        yield cancel
    finally:
        is_over.set()
        thread.join()


def _hold_session(
    queue: AgentQueue, home: Home, run: AgentRun, cancel: threading.Event
) -> tuple[AgentRun, RunEnding]:  # fmt: skip
    """Hold the session of a run to its end; its log is archived when this returns."""
    recipe, began_s = run.recipe, time.monotonic()
    chat = (
        find_chat(home, recipe.model, job=run.job, effort=recipe.effort) if recipe.model else None
    )  # else the one of agent.yaml
    with open_agent(home, cwd=recipe.cwd or None, chat=chat, job=run.job, run=run, platform=JOBS) as agent:
        if not agent.session.log.is_kept:
            return run, RunEnding("cancelled", PRIVATE)
        run = queue.update(replace(run, session=agent.session.session))
        try:
            ending = _talk(agent, recipe, cancel, ends_s=began_s + recipe.max_s if recipe.max_s else math.inf)
            if ending.outcome == "done" and recipe.check:
                ending = _check(agent, recipe, cancel, left_s=recipe.max_s - (time.monotonic() - began_s))
        except Exception as error:  # noqa: BLE001 - whatever it is, what was said until then counts
            ending = _describe_crash(error)
    return run, ending


def _talk(agent: Agent, recipe: AgentRecipe, cancel: threading.Event, *, ends_s: float) -> RunEnding:
    """Say the instruction, then each further prompt, while the one before it was answered; return the last ending.

    One refusal costs the programme its prompt; after MAX_REFUSALS in a row the rest is not said. ends_s: on the
    monotonic clock; no prompt is said after it.
    """
    context = f"What you need to know:\n{recipe.context}" if recipe.context else ""
    n_refusals, ending = 0, RunEnding("empty")
    for n_said, prompt in enumerate((recipe.instruction, *recipe.prompts)):
        if time.monotonic() >= ends_s:
            return RunEnding(
                "timed-out", f"max_s = {recipe.max_s}, after {n_said} of {1 + len(recipe.prompts)} prompts"
            )
        ending = _say(agent, "\n\n".join(filter(None, (prompt, "" if n_said else context))), cancel)
        n_refusals = n_refusals + 1 if ending.outcome == "refused" else 0
        if n_refusals >= MAX_REFUSALS and recipe.prompts:
            return RunEnding(
                "refused", f"{n_refusals} refusals in a row; {len(recipe.prompts) - n_said} prompts were not said"
            )
        if ending.outcome not in ("done", "refused"):
            break
    return ending


def _say(agent: Agent, message: str, cancel: threading.Event) -> RunEnding:
    try:
        answer = agent.session.say(message, cancel=cancel, instruction=INSTRUCTION, is_typed=False)
    except TurnBudgetSpent as error:
        return RunEnding(_LIMIT_OUTCOMES[error.detail.partition(" ")[0]], error.detail)
    except ModelCancelled:
        return RunEnding("cancelled", "somebody asked for it")
    outcome = _STOP_OUTCOMES.get(answer.stop, "done")
    return RunEnding(outcome, "the answer was cut off at its greatest length" if answer.stop == "length" else "")


def _check(agent: Agent, recipe: AgentRecipe, cancel: threading.Event, *, left_s: float) -> RunEnding:
    """Run the check; if it fails, its output becomes the last message of the session."""
    limit_s = max(1, min(MAX_CHECK_S, int(left_s))) if recipe.max_s else MAX_CHECK_S
    output = agent.shell.run({"command": recipe.check, "timeout_s": limit_s}, cancel)
    if cancel.is_set():
        return RunEnding("cancelled", "somebody asked for it, while the check ran")
    if not output.is_error:
        return RunEnding("done")
    words = f"{CHECK_OPENING}{recipe.check}]\n{output.text}"
    agent.session.log.append(Message(role="user", text=words, is_typed=False, **agent.session.log.make_fields()))
    return RunEnding("wrong", f"the check failed: {text.one_line(recipe.check, _WHY_CHARS)}")


def _describe_crash(error: Exception) -> RunEnding:
    if isinstance(error, PerdureError):
        name = error.code
    else:
        name = type(error).__name__
        traceback.print_exception(error)
    return RunEnding("crashed", text.one_line(f"{name}: {error}", _WHY_CHARS))
