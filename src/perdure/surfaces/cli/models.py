"""Commands that use models: models, mine, embed, pictures."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure import text
from perdure.config import CapsConfig, RoleConfig
from perdure.errors import BudgetSpent, UsageError
from perdure.home import Home
from perdure.models.chat import Chat, ChatMessage, ChatReply
from perdure.models.cost_meter import CutAnswers, EstimateError, Spending
from perdure.models.roles import ROLES, RoleState, check_role
from perdure.surfaces.cli.common import Shell, command, format_count, show_progress
from perdure.surfaces.cli.settings_file import write_settings

if TYPE_CHECKING:
    from perdure.memories.mine import MiningResult

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
  perdure models                   the model of each role and its cost
  perdure models test miner        one small question to the model, answered by a schema
  perdure models time helper       the time until the first words, and tokens per second
  perdure models set resident gguf ~/models/small.gguf
  perdure models set resident anthropic claude-sonnet-5 --key-env ANTHROPIC_API_KEY
  perdure models set helper openai qwen3:4b --url http://127.0.0.1:11434/v1""",
)
@click.argument("action", type=click.Choice(["list", "test", "time", "set"]), default="list")
@click.argument("role", required=False)
@click.argument("provider", required=False)
@click.argument("model", required=False)
@click.option("--url", default="", help="With `set`: the address of the endpoint (default: the provider's own).")
@click.option("--key-env", default="", help="With `set`: the environment variable that holds the key.")
@click.option("--window", type=click.IntRange(1), help="With `set`: the size of the model's context, in tokens.")
def models_command(
    shell: Shell,
    action: str,
    role: str | None,
    provider: str | None,
    model: str | None,
    url: str,
    key_env: str,
    window: int | None,
) -> None:
    """Show the models of this home, by role: resident, miner, helper, summariser. `set` writes the model of a role into
    config.toml; docs/models.md lists all settings. Without models, rules do all the work.
    """
    if action == "set":
        _set_model(shell, role, RoleConfig(provider or "", model or "", url, key_env, window_tokens=window or 0))
        return
    if provider is not None or url or key_env or window:
        raise UsageError("only `perdure models set ROLE PROVIDER MODEL` takes a provider, a model and options")
    if action == "list" and role is not None:
        raise UsageError(f"`perdure models list` shows all roles; `perdure models test {role}` tests one")
    with shell.open_home() as home:
        if action == "list":
            _list_roles(shell, home)
            return
        if role is None:
            raise UsageError(f"give a role: `perdure models {action} ROLE` ({', '.join(ROLES)})")
        chat = home.chat(role, job="models")
        if chat is None:
            raise UsageError(f"the role {role} has no model: set models.roles.{role} in config.toml (docs/models.md)")
        (_test_model if action == "test" else _time_model)(shell, role, chat)


def _set_model(shell: Shell, role: str | None, config: RoleConfig) -> None:
    """Write the model of a role into config.toml; the old one goes, with its address and its key."""
    if role not in ROLES or not config.provider or not config.model:
        raise UsageError(f"`perdure models set ROLE PROVIDER MODEL`: ROLE is one of {', '.join(ROLES)}")
    if config.provider == "gguf":
        config = config._replace(model=str(Path(config.model).expanduser().absolute()))
        if not Path(config.model).is_file():
            raise UsageError(f"there is no file {config.model}: give the path of the model, a .gguf file")
    check_role(f"models.roles.{role}", config)
    with shell.open_home(create=True) as home:
        values = {name: getattr(config, name) or None for name in ("provider", "model", "url", "key_env")}
        values["window_tokens"] = config.window_tokens or None
        write_settings(home.path, {("models", "roles", role): values})
    with shell.open_home() as home:
        state = home.connections.roles().get_state(role)
    if shell.as_json:
        shell.print_json(_describe_state(state))
        return
    shell.out.print(f"{role:<11} {_format_state(state)}", markup=False)
    if state.missing:
        shell.note(f"Still missing: {state.missing}")
    shell.suggest([(f"perdure models test {role}", "ask it one small question")])


def _list_roles(shell: Shell, home: Home) -> None:
    roles = home.connections.roles()
    states = [roles.get_state(role) for role in ROLES]
    spent, by_job = roles.meter.read_spending(), roles.meter.read_spending_by_job()
    errors, cut_answers = roles.meter.read_estimate_errors(), roles.meter.count_cut_answers()
    if shell.as_json:
        jobs = [{**asdict(model_call), **asdict(sums)} for model_call, sums in by_job.items()]
        shell.print_json(
            {
                "roles": [_describe_state(state) for state in states],
                "today": asdict(spent["day"]),
                "month": asdict(spent["month"]),
                "caps": home.config.models.caps._asdict(),
                "jobs": jobs,
                "token_encoder": text.TOKEN_ENCODER,
                "cut_answers": {role: counts._asdict() for role, counts in cut_answers.items()},
                "estimates": {
                    model: {**error._asdict(), "error": round(error.share, 4)} for model, error in errors.items()
                },
            }
        )
        return
    for state in states:
        shell.out.print(f"{state.role:<11} {_format_state(state)}", markup=False)
        if state.missing:
            shell.out.print(f"{'':<11} {state.missing}", style="yellow", markup=False)
        for warning in (*state.warnings, *_describe_cut_answers(cut_answers.get(state.role))):
            shell.out.print(f"{'':<11} models.roles.{state.role}: {warning}", style="yellow", markup=False)
    shell.out.print()
    for name, period in (("today", "day"), ("month", "month")):
        shell.out.print(
            f"{name:<11} {_format_spending(spent[period])}{_format_caps(home.config.models.caps, period)}", markup=False
        )
    for call, sums in by_job.items():
        effort_text = f", effort {call.effort}" if call.effort else ""
        caller = f"{call.job:<9} {call.role} {call.model}{effort_text}"
        shell.out.print(f"  {caller}: {_format_spending(sums)}", style="dim", markup=False)
    for model, error in errors.items():
        shell.out.print(f"  {_format_estimate(model, error)}", style="dim", markup=False)
    shell.out.print(f"{'tokens':<11} counted in {text.TOKEN_ENCODER} (docs/evaluation/tokens.md)", style="dim")
    if not any(state.provider for state in states):
        shell.note("No model is set: rules do all the work. docs/models.md describes how to set a model.")


def _describe_state(state: RoleState) -> dict[str, Any]:
    return {**asdict(state), "price": state.price and state.price._asdict()}


def _format_state(state: RoleState) -> str:
    if not state.provider:
        return "no model: rules do the work"
    key = {True: f", key in {state.key_env}", False: f", no key in {state.key_env}", None: ""}[state.has_key]
    effort = f", effort {state.effort}" if state.effort else ""
    price = "" if state.price else ", price not known"
    return f"{state.provider}:{state.model or 'default'}{effort}, window {state.window_tokens:,}{key}{price}"


def _describe_cut_answers(counts: CutAnswers | None) -> list[str]:
    if counts is None or not counts.n_cut:
        return []
    return [f"{counts.n_cut:,} of {counts.n_calls:,} answers of this month were cut off by max_output_tokens"]


def _format_spending(spent: Spending) -> str:
    if not spent.n_calls:
        return "nothing"
    unpriced_text = f" and {format_count(spent.n_unpriced, 'call')} of unknown price" if spent.n_unpriced else ""
    return (
        f"{format_count(spent.n_calls, 'call')}, {format_count(spent.n_tokens, 'token')}, "
        f"{spent.money:.4f}{unpriced_text}"
    )


def _format_estimate(model: str, error: EstimateError) -> str:
    return (
        f"estimate  {model}: {error.n_estimated:,} input tokens estimated, {error.n_reported:,} reported "
        f"({error.share:+.0%}) in {format_count(error.n_calls, 'call')}"
    )


def _format_caps(caps: CapsConfig, period: str) -> str:
    tokens, money = getattr(caps, f"{period}_tokens"), getattr(caps, f"{period}_money")
    parts = [f"{tokens:,} tokens"] * bool(tokens) + [f"{money:g}"] * bool(money)
    return f" (at most {' and '.join(parts)})" if parts else ""


def _test_model(shell: Shell, role: str, chat: Chat) -> None:
    started_s = time.monotonic()
    reply = chat.reply([ChatMessage("user", _QUESTION)], schema=_SCHEMA)
    took_ms = (time.monotonic() - started_s) * 1000
    if shell.as_json:
        shell.print_json({"role": role, "name": chat.name, "took_ms": round(took_ms, 1), **_reply_to_json(reply)})
        return
    shell.out.print(f"{chat.name} answered in {took_ms:.0f} ms: {reply.text}", markup=False, style="green")
    shell.out.print(_format_usage(reply), style="dim", markup=False)


def _time_model(shell: Shell, role: str, chat: Chat) -> None:
    """Time one longer answer. The time to the first words includes loading the model, if this is its first
    question.
    """
    arrivals_s: list[float] = []
    started_s = time.monotonic()
    reply = chat.reply([ChatMessage("user", _LONG_QUESTION)], on_text=lambda _: arrivals_s.append(time.monotonic()))
    took_s = time.monotonic() - started_s
    first_s = arrivals_s[0] - started_s if arrivals_s else took_s
    writing_s = took_s - first_s
    rate = reply.usage.n_output / writing_s if len(arrivals_s) > 1 and writing_s > 0 else None
    if shell.as_json:
        times = {"first_ms": round(first_s * 1000, 1), "took_ms": round(took_s * 1000, 1), "tokens_per_s": rate}
        shell.print_json({"role": role, "name": chat.name, **times, **_reply_to_json(reply)})
        return
    speed = f"{rate:.0f} tokens/s" if rate else "in one piece"
    shell.out.print(f"{chat.name}: first words after {first_s * 1000:.0f} ms, then {speed}", markup=False)
    shell.out.print(_format_usage(reply), style="dim", markup=False)


def _reply_to_json(reply: ChatReply) -> dict[str, Any]:
    usage = asdict(reply.usage)
    return {"text": reply.text, "value": reply.value, "model": reply.model, "stop": reply.stop, "usage": usage}


def _format_usage(reply: ChatReply) -> str:
    return f"{reply.model}: {reply.usage.n_tokens - reply.usage.n_output} tokens read, {reply.usage.n_output} written"


_NO_MINER = (
    "No model is set for mining, so nothing was sent anywhere. Set one in config.toml: [models.roles.miner], with "
    "provider, model and key_env (docs/mining.md). Plain statements become memories without a model."
)


@command(
    "mine",
    epilog="""\
  perdure mine --dry-run              count what would be sent; asks no model
  perdure mine                        sessions that have ended
  perdure mine --now --session ID     one session that is still running
  perdure mine --most 20 --json""",
)
@click.option("--now", is_flag=True, help="Also mine sessions that are still running.")
@click.option("--include-subagents", is_flag=True, help="Also mine the messages of sub-agents.")
@click.option("--session", "sessions", metavar="ID", multiple=True, help="Mine only this session. Can be repeated.")
@click.option("--without", metavar="ID", multiple=True, help="Do not mine this session. Can be repeated.")
@click.option("--most", type=click.IntRange(1), help="Maximum number of batches of ten messages (default: no limit).")
@click.option("--again", is_flag=True, help="Also mine batches that failed three times.")
@click.option("--dry-run", is_flag=True, help="Only count the messages and tokens; send nothing.")
def mine_command(
    shell: Shell, now: bool, include_subagents: bool, sessions: tuple[str, ...], without: tuple[str, ...],
    most: int | None, again: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Make memories from conversations, with the model that the settings give the role `miner`. No message is sent
    twice. Secrets are masked, and every memory names its source turns.
    """
    from perdure.memories.mine import MiningRequest

    request = MiningRequest(now, include_subagents, sessions, without, most, again, dry_run)
    with shell.open_home() as home, show_progress(shell, "mining", None) as step:
        mined = home.memories.mine(request, progress=step)
    if mined is None:
        if shell.as_json:
            shell.print_json({"model": None})
        shell.note(_NO_MINER)
        return
    if shell.as_json:
        shell.print_json(_mining_to_json(mined))
    else:
        _print_mined(shell, mined, is_dry_run=dry_run)
    if mined.fault is not None and not isinstance(mined.fault, BudgetSpent):
        sys.exit(mined.fault.exit_code)


def _print_mined(shell: Shell, mined: MiningResult, *, is_dry_run: bool) -> None:
    batches, messages = (
        format_count(mined.n_batches, "batch").replace("batchs", "batches"),
        format_count(mined.n_messages, "message"),
    )
    if is_dry_run:
        shell.out.print(f"{messages} in {batches} would be sent: about {format_count(mined.n_tokens, 'token')}.")
    else:
        money_text = f", {mined.cost:.4f} in money" if mined.cost else ""
        shell.out.print(
            f"{messages} mined in {batches}: {format_count(mined.n_calls, 'call')}, "
            f"{format_count(mined.usage.n_tokens, 'token')}{money_text}."
        )
        shell.out.print(f"{mined.n_new:,} new, {mined.n_reinforced:,} said again, {mined.n_known:,} known already.")
    for reason, count in sorted(mined.skipped.items()):
        shell.out.print(
            f"  {format_count(count, 'session')} left alone: {text.printable(reason)}", style="dim", markup=False
        )
    for code, count in sorted(Counter(refusal.code for refusal in mined.refusals).items()):
        first_reason = text.printable(next(refusal.why for refusal in mined.refusals if refusal.code == code))
        shell.out.print(
            f"  {format_count(count, 'operation')} refused ({code}: {first_reason})", style="dim", markup=False
        )
    if mined.n_bad_answers:
        shell.note(
            f"{format_count(mined.n_bad_answers, 'answer')} could not be used; those messages "
            "are tried again next time."
        )
    if mined.n_stuck:
        shell.note(
            f"{format_count(mined.n_stuck, 'group')} of ten messages failed three times: "
            "`perdure mine --again` tries them again."
        )
    if mined.stop_reason:
        shell.note(f"Stopped: {mined.stop_reason}. {mined.n_left:,} batches are left.")


def _mining_to_json(mined: MiningResult) -> dict[str, Any]:
    usage = vars(mined.usage)
    return {
        "batches": mined.n_batches,
        "messages": mined.n_messages,
        "calls": mined.n_calls,
        "new": mined.n_new,
        "again": mined.n_reinforced,
        "known": mined.n_known,
        "bad_answers": mined.n_bad_answers,
        "stuck": mined.n_stuck,
        "left": mined.n_left,
        "skipped": dict(mined.skipped),
        "usage": usage,
        "would_send_tokens": mined.n_tokens,
        "refused": [{"code": refusal.code, "why": refusal.why} for refusal in mined.refusals],
        "money": mined.cost,
        "stopped": mined.stop_reason or None,
    }


@command(
    "embed",
    epilog="""\
  perdure embed                     the missing vectors, newest first; Ctrl-C stops, the next call continues
  perdure embed --limit 5000        at most 5,000 chunks
  perdure embed --json""",
)
@click.option("--limit", "-n", type=click.IntRange(1), help="Maximum number of chunks to embed (default: no limit).")
def embed_command(shell: Shell, limit: int | None) -> None:
    """Make vectors for the captured text: first for messages of people and agents, then for thinking, calls and
    results. `perdure search` uses vectors as soon as they exist; keyword search always works. No text is embedded
    twice.
    """
    with shell.open_home() as home, show_progress(shell, "embedding", None) as step:
        result = home.upkeep.embed(most=limit, progress=step)
    if shell.as_json:
        shell.print_json({"embedded": result.n_done, "refused": result.n_refused, "left": result.n_left})
        return
    shell.out.print(f"{format_count(result.n_done, 'chunk')} embedded, {result.n_left:,} left.")
    if result.n_refused:
        shell.note(
            f"The model makes no vector for {format_count(result.n_refused, 'text')}; keyword search finds them."
        )
    if result.n_left:
        shell.suggest([("perdure embed", "embed the rest")])


@command(
    "pictures",
    epilog="""\
  perdure pictures                  the pictures that are not read, newest first; Ctrl-C stops, the next call continues
  perdure pictures --limit 50       at most 50 pictures
  perdure pictures --again          also those that could not be read before
  perdure pictures --json""",
)
@click.option("--limit", "-n", type=click.IntRange(1), help="Maximum number of pictures to read (default: no limit).")
@click.option("--again", is_flag=True, help="Also try those that could not be read before.")
def pictures_command(shell: Shell, limit: int | None, again: bool) -> None:
    """Read the text in the pictures of transcripts and tool results: screenshots, photos of a whiteboard. Search and
    recall then find it, marked "in a screenshot". Needs an extra: pip install 'perdure[pictures]'. Nothing leaves this
    machine; the same picture is read once. The resident home does this in the background.
    """
    with shell.open_home() as home, show_progress(shell, "reading pictures", None) as step:
        result = home.upkeep.read_pictures(again=again, most=limit, progress=step)
    if shell.as_json:
        shell.print_json({"read": result.n_read, "faulty": result.n_faulty, "left": result.n_left})
        return
    shell.out.print(f"{format_count(result.n_read, 'picture')} read, {result.n_left:,} left.")
    if result.n_faulty:
        shell.note(f"{format_count(result.n_faulty, 'picture')} could not be read.")
    if result.n_left:
        shell.suggest([("perdure pictures", "read the rest")])
