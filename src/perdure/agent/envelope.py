"""The envelope of a run, for people, programs and models: how it ended, why, what it cost, what it said, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.agent_queue import AgentEnvelope, AgentRun, Outcome
from perdure.errors import NewerFormat, SessionMissing
from perdure.formats.perdure import AnyEntry, Message
from perdure.session.log import read_path
from perdure.session.spending import ANSWERS, SessionTotals, add_totals, sum_by_job

if TYPE_CHECKING:
    from perdure.home import Home

CHECK_OPENING = "[The check of this run failed: "


class OutcomeAdvice(NamedTuple):
    """One way in which a run ends."""

    exit_reason: str  # in the words that other programs know
    to_do: str


OUTCOMES: Mapping[Outcome, OutcomeAdvice] = {
    "done": OutcomeAdvice("natural_completion", "Use the output."),
    "wrong": OutcomeAdvice(
        "natural_completion", "Its check failed: read the check's output. Queue a run that corrects the work."
    ),
    "empty": OutcomeAdvice("empty_response", "The model said nothing. Ask in other words, or with another model."),
    "refused": OutcomeAdvice("natural_completion", "The model would not do it. Ask in other words, or do it yourself."),
    "out-of-turns": OutcomeAdvice(
        "max_turns_exceeded", "Use what is there, or queue the rest with a larger max_turns, or in smaller parts."
    ),
    "out-of-tokens": OutcomeAdvice(
        "max_tokens_exceeded", "Use what is there, or queue the rest with a larger max_tokens, or in smaller parts."
    ),
    "out-of-money": OutcomeAdvice("max_money_exceeded", "Use what is there, or raise max_money in agent.yaml."),
    "timed-out": OutcomeAdvice(
        "timeout", "Use what is there, or queue the rest with a larger max_s, or in smaller parts."
    ),
    "crashed": OutcomeAdvice("exception", "Read why. When the cause is gone, queue it again."),
    "cancelled": OutcomeAdvice("cancelled", "Somebody ended it. Queue it again only if it is still wanted."),
    "lost": OutcomeAdvice(
        "worker_lost",
        "Its process was killed, or the machine stopped. It is not begun again by itself: look at what it did already, "
        "then queue it again.",
    ),
}  # fmt: skip
_CUT_OFF = {"out-of-turns", "out-of-tokens", "out-of-money", "timed-out", "crashed", "cancelled", "lost"}


class RunEnding(NamedTuple):
    """How the session of a run ended."""

    outcome: Outcome
    why: str = ""


def make_envelope(home: Home | None, run: AgentRun, ending: RunEnding) -> AgentEnvelope:
    """Return the envelope of a run: its ending, and what the answers in its session add up to."""
    totals_by_job = sum_by_job(read_session(home, run.session) if home else [])
    totals = add_totals(totals_by_job.values())
    return AgentEnvelope(
        outcome=ending.outcome,
        why=ending.why,
        is_truncated=ending.outcome in _CUT_OFF,
        n_turns=totals_by_job.get(ANSWERS, SessionTotals()).n_model_calls,
        n_tokens=totals.n_read + totals.n_output,
        money=totals.money if totals.n_unpriced < totals.n_model_calls else None,
        ended_at=datetime.now(UTC),
    )


def read_session(home: Home, session: str) -> list[AnyEntry]:
    """Return the entries of a run's session, as far as they are durable; none where there is no session (any more)."""
    try:
        return read_path(home, session) if session else []
    except (SessionMissing, NewerFormat):
        return []


def describe_run(home: Home, run: AgentRun) -> dict[str, Any]:
    """Return everything about a run for a program: where it stands, its envelope, and what it said so far."""
    messages = [entry for entry in read_session(home, run.session) if isinstance(entry, Message)]
    envelope = run.envelope or make_envelope(home, run, RunEnding("done"))
    outcome = run.envelope.outcome if run.envelope else ""
    advice = OUTCOMES[run.envelope.outcome] if run.envelope else OutcomeAdvice("", "Wait for it.")
    return {
        "run": run.run,
        "job": run.job,
        "state": run.state,
        "outcome": outcome,
        "exit_reason": advice.exit_reason,
        "why": envelope.why,
        "what_to_do": advice.to_do,
        "truncated": envelope.is_truncated,
        "n_turns": envelope.n_turns,
        "n_tokens": envelope.n_tokens,
        "money": envelope.money,
        "output": _find_last(messages, "assistant"),
        "check_output": _find_last(messages, "user", opening=CHECK_OPENING),
        "session": run.session,
        "lost_sessions": list(run.lost_sessions),
        "spawned_by": run.spawned_by[0],
        "depth": run.depth,
        "n_tries": run.n_tries,
        "queued_at": run.queued_at,
        "started_at": run.started_at,
        "ended_at": envelope.ended_at if run.envelope else None,
        "instruction": run.recipe.instruction or _find_first(messages),
        "model": run.recipe.model,
        "mode": run.recipe.mode,
        "check": run.recipe.check,
        "cwd": run.recipe.cwd,
    }


def _find_last(messages: list[Message], role: str, *, opening: str = "") -> str:
    texts = (message.text for message in reversed(messages) if message.role == role)
    return next((text for text in texts if text.strip() and text.startswith(opening)), "")


def _find_first(messages: list[Message]) -> str:
    return next((message.text for message in messages if message.role == "user"), "")


def format_run(fields: Mapping[str, Any], *, max_chars: int = 0) -> str:
    """Return a run as a model or a person reads it. fields: of `describe_run`. max_chars: of its output; 0: all."""
    turns = "1 turn" if fields["n_turns"] == 1 else f"{fields['n_turns']} turns"
    if fields["state"] != "ended":
        return f"run {fields['run']}: {fields['state']}, {turns} so far"
    money = "" if fields["money"] is None else f", {fields['money']:.4f} money"
    head = f"run {fields['run']}: {fields['outcome']}" + (f" ({fields['why']})" if fields["why"] else "")
    lines = [
        head,
        f"{turns}, {fields['n_tokens']:,} tokens{money}, session {fields['session'] or 'none'}"
        + (", cut off" if fields["truncated"] else ""),
        f"What to do: {fields['what_to_do']}",
    ]
    output = fields["output"] or "[no output]"
    if max_chars and len(output) > max_chars:
        n_left = len(output) - max_chars
        output = f"{output[:max_chars]}\n[{n_left:,} more characters: wait_for_agent with this run alone shows more]"
    lines += ["Output:", output]
    return "\n".join([*lines, *([fields["check_output"]] if fields["check_output"] else [])])
