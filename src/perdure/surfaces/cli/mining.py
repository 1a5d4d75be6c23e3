"""The command that makes memories of conversations: mine."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from perdure import text
from perdure.errors import BudgetSpent
from perdure.surfaces.cli.common import Shell, command, plural, progress

if TYPE_CHECKING:
    from perdure.mind.mine import Mined

_NO_MODEL = (
    "No model is set for mining, so nothing was sent anywhere. Set one in config.toml: [models.roles.miner], with "
    "provider, model and key_env (docs/mining.md). What you state plainly is kept without one."
)


@command(
    "mine",
    epilog="""\
  perdure mine --dry-run              what would be sent, and about how much; asks no model
  perdure mine                        sessions that are over
  perdure mine --now --session ID     one session, though it is still going on
  perdure mine --most 20 --json""",
)
@click.option("--now", is_flag=True, help="Also sessions in which something was said a moment ago.")
@click.option("--include-subagents", is_flag=True, help="Also what sub-agents were told and said.")
@click.option("--session", "sessions", metavar="ID", multiple=True, help="Only this session. Can be repeated.")
@click.option("--without", metavar="ID", multiple=True, help="Not this session: the one that asks.")
@click.option("--most", type=click.IntRange(1), help="At most so many batches of ten messages.")
@click.option("--again", is_flag=True, help="Also batches whose answers could not be used three times.")
@click.option("--dry-run", is_flag=True, help="Only count what would be sent.")
def mine_command(
    shell: Shell, now: bool, include_subagents: bool, sessions: tuple[str, ...], without: tuple[str, ...],
    most: int | None, again: bool, dry_run: bool,
) -> None:  # fmt: skip
    """Make memories of what people and agents said, by the model that the settings give the role `miner`. What was
    mined is never sent again. Secrets are masked, and every memory names the turns that it comes from.
    """
    from perdure.mind.mine import Wish

    wish = Wish(now, include_subagents, sessions, without, most, again, dry_run)
    with shell.open() as home, progress(shell, "mining", None) as step:
        done = home.mine(wish, progress=step)
    if done is None:
        if shell.as_json:
            shell.answer({"model": None})
        shell.note(_NO_MODEL)
        return
    if shell.as_json:
        shell.answer(_json(done))
    else:
        _print(shell, done, dry=dry_run)
    if done.fault is not None and not isinstance(done.fault, BudgetSpent):
        sys.exit(done.fault.exit_code)


def _print(shell: Shell, done: Mined, *, dry: bool) -> None:
    batches, messages = plural(done.n_batches, "batch").replace("batchs", "batches"), plural(done.n_messages, "message")
    if dry:
        shell.out.print(f"{messages} in {batches} would be sent: about {plural(done.n_tokens, 'token')}.")
    else:
        money = f", {done.money:.4f} in money" if done.money else ""
        shell.out.print(f"{messages} mined in {batches}: {plural(done.n_calls, 'call')}, {_tokens(done)}{money}.")
        shell.out.print(f"{done.n_new:,} new, {done.n_again:,} said again, {done.n_known:,} known already.")
    for why, n in sorted(done.skipped.items()):
        shell.out.print(f"  {plural(n, 'session')} left alone: {text.printable(why)}", style="dim", markup=False)
    for code, n in sorted(Counter(refusal.code for refusal in done.refused).items()):
        first = text.printable(next(refusal.why for refusal in done.refused if refusal.code == code))
        shell.out.print(f"  {plural(n, 'operation')} refused ({code}: {first})", style="dim", markup=False)
    if done.n_bad:
        shell.note(f"{plural(done.n_bad, 'answer')} could not be used; those messages are tried again next time.")
    if done.n_stuck:
        shell.note(
            f"{done.n_stuck} times ten messages failed three times: `perdure mine --again` tries them once more."
        )
    if done.stopped:
        shell.note(f"Stopped: {done.stopped}. {done.n_left:,} batches are left.")


def _tokens(done: Mined) -> str:
    return plural(done.usage.n_tokens, "token")


def _json(done: Mined) -> dict[str, Any]:
    usage = vars(done.usage)
    return {
        "batches": done.n_batches, "messages": done.n_messages, "calls": done.n_calls, "new": done.n_new,
        "again": done.n_again, "known": done.n_known, "bad_answers": done.n_bad, "stuck": done.n_stuck,
        "left": done.n_left, "skipped": dict(done.skipped), "usage": usage, "would_send_tokens": done.n_tokens,
        "refused": [{"code": refusal.code, "why": refusal.why} for refusal in done.refused], "money": done.money,
        "stopped": done.stopped or None,
    }  # fmt: skip
