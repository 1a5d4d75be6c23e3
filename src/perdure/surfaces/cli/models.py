"""The command `models`: which model does which work, what it cost, and whether it answers."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import click

from perdure.config import CapsConfig
from perdure.errors import UsageError
from perdure.home import Home
from perdure.models.chat import Chat, Message, Reply
from perdure.models.meter.caps import Spent
from perdure.models.roles import ROLES, State
from perdure.surfaces.cli.common import Shell, command, plural

_QUESTION = "Ada Lovelace was born in London in 1815. Answer with her name, the place and the year."
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "place": {"type": "string"}, "year": {"type": "integer"}},
    "required": ["name", "place", "year"],
    "additionalProperties": False,
}
_LONG_QUESTION = "Write about a harbour, in two hundred words."


@command(
    "models",
    epilog="""\
  perdure models                   which model does which work, and what it cost
  perdure models test miner        one real, small question, answered by a schema
  perdure models time helper       how long until its first words, and how many tokens a second""",
)
@click.argument("action", type=click.Choice(["list", "test", "time"]), default="list")
@click.argument("role", required=False)
def models_command(shell: Shell, action: str, role: str | None) -> None:
    """The models of this home, by role: resident, miner, helper, summariser. config.toml says which (docs/models.md);
    without any, everything works by rules.
    """
    if action == "list" and role is not None:
        raise UsageError(f"`perdure models list` shows every role; `perdure models test {role}` tries one")
    with shell.open() as home:
        if action == "list":
            _list(shell, home)
            return
        if role is None:
            raise UsageError(f"which role? `perdure models {action} ROLE` ({', '.join(ROLES)})")
        chat = home.chat(role, job="models")
        if chat is None:
            raise UsageError(f"the role {role} has no model: set models.roles.{role} in config.toml (docs/models.md)")
        (_test if action == "test" else _time)(shell, role, chat)


def _list(shell: Shell, home: Home) -> None:
    roles = home.roles()
    states = [roles.state(role) for role in ROLES]
    spent, by_job = roles.meter.spent(), roles.meter.by_job()
    if shell.as_json:
        jobs = [{"job": j, "role": r, "model": m, **asdict(sums)} for (j, r, m), sums in by_job.items()]
        shell.answer(
            {
                "roles": [asdict(state) for state in states], "today": asdict(spent["day"]),
                "month": asdict(spent["month"]), "caps": asdict(home.config.models.caps), "jobs": jobs,
            }
        )  # fmt: skip
        return
    for state in states:
        shell.out.print(f"{state.role:<11} {_said(state)}", markup=False)
        if state.missing:
            shell.out.print(f"{'':<11} {state.missing}", style="yellow", markup=False)
    shell.out.print()
    for name, period in (("today", "day"), ("month", "month")):
        shell.out.print(f"{name:<11} {_sums(spent[period])}{_caps(home.config.models.caps, period)}", markup=False)
    for (job, role, model), sums in by_job.items():
        shell.out.print(f"  {job:<9} {role} {model}: {_sums(sums)}", style="dim", markup=False)
    if not any(state.provider for state in states):
        shell.note("No model is set, so everything works by rules. docs/models.md says how to set one.")


def _said(state: State) -> str:
    if not state.provider:
        return "no model: rules do its work"
    key = {True: f", key in {state.key_env}", False: f", no key in {state.key_env}", None: ""}[state.has_key]
    return f"{state.provider}:{state.model}{key}{'' if state.price else ', price not known'}"


def _sums(spent: Spent) -> str:
    if not spent.n_calls:
        return "nothing"
    unknown = f" and {plural(spent.n_unpriced, 'call')} of unknown price" if spent.n_unpriced else ""
    return f"{plural(spent.n_calls, 'call')}, {plural(spent.n_tokens, 'token')}, {spent.money:.4f}{unknown}"


def _caps(caps: CapsConfig, period: str) -> str:
    tokens, money = getattr(caps, f"{period}_tokens"), getattr(caps, f"{period}_money")
    said = [f"{tokens:,} tokens"] * bool(tokens) + [f"{money:g}"] * bool(money)
    return f" (at most {' and '.join(said)})" if said else ""


def _test(shell: Shell, role: str, chat: Chat) -> None:
    began_s = time.monotonic()
    reply = chat.reply([Message("user", _QUESTION)], schema=_SCHEMA)
    took_ms = (time.monotonic() - began_s) * 1000
    if shell.as_json:
        shell.answer({"role": role, "name": chat.name, "took_ms": round(took_ms, 1), **_plain(reply)})
        return
    shell.out.print(f"{chat.name} answered in {took_ms:.0f} ms: {reply.text}", markup=False, style="green")
    shell.out.print(_used(reply), style="dim", markup=False)


def _time(shell: Shell, role: str, chat: Chat) -> None:
    """Time one longer answer. What loading a model takes is in the first words of the first question."""
    seen_s: list[float] = []
    began_s = time.monotonic()
    reply = chat.reply([Message("user", _LONG_QUESTION)], on_text=lambda _: seen_s.append(time.monotonic()))
    took_s = time.monotonic() - began_s
    first_s = seen_s[0] - began_s if seen_s else took_s
    writing_s = took_s - first_s
    rate = reply.usage.n_output / writing_s if len(seen_s) > 1 and writing_s > 0 else None
    if shell.as_json:
        times = {"first_ms": round(first_s * 1000, 1), "took_ms": round(took_s * 1000, 1), "tokens_per_s": rate}
        shell.answer({"role": role, "name": chat.name, **times, **_plain(reply)})
        return
    speed = f"{rate:.0f} tokens/s" if rate else "in one piece"
    shell.out.print(f"{chat.name}: first words after {first_s * 1000:.0f} ms, then {speed}", markup=False)
    shell.out.print(_used(reply), style="dim", markup=False)


def _plain(reply: Reply) -> dict[str, Any]:
    usage = asdict(reply.usage)
    return {"text": reply.text, "value": reply.value, "model": reply.model, "stop": reply.stop, "usage": usage}


def _used(reply: Reply) -> str:
    return f"{reply.model}: {reply.usage.n_tokens - reply.usage.n_output} tokens read, {reply.usage.n_output} written"
