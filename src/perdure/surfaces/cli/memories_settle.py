"""The command `memories settle`, with which an agent answers what a session is worth keeping."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure.errors import UsageError
from perdure.memories.host_answer import HostStatement
from perdure.memories.host_question import HostCandidate, make_codes
from perdure.surfaces.cli.common import Shell, command, format_count
from perdure.surfaces.cli.memory_common import format_memory, memory_to_json
from perdure.types import MEMORY_KINDS

if TYPE_CHECKING:
    from perdure.memories.host_mining import SettleResult


@command(
    "settle",
    epilog="""\
  perdure memories settle                                what the last session here may be worth
  perdure memories settle keep t4kq2 t9xr1 --as "The staging server listens on port 8443"
  perdure memories settle none                           nothing else of it
  perdure memories settle none t7m0c                     nothing of this line""",
)
@click.argument("answer", required=False, type=click.Choice(["keep", "none"]), metavar="[keep|none]")
@click.argument("ids", nargs=-1, metavar="[ID…]")
@click.option("--as", "statement", metavar="STATEMENT", help="With keep: one statement, in the words of these lines.")
@click.option("--kind", type=click.Choice(MEMORY_KINDS), help="The kind of memory (default: guessed from the words).")
@click.option(
    "--path", default="", help="The subject of the memory, e.g. staging-server/port (default: from the words)."
)
@click.option("--session", default="", help="Without keep and none: ask about this session of the current folder.")
def settle_command(
    shell: Shell, answer: str | None, ids: tuple[str, ...], statement: str | None, **options: Any
) -> None:
    """Turn lines of a session into memories. Without keep or none, list the lines of the last session in the current
    folder that may be worth a memory, each with a short id. An agent, or you, then keeps some of them, each time as one
    statement, and answers none for the rest.

    A memory made in this way has the trust of an agent and names its turns as sources. A statement that its lines do
    not support, an order to a model and a secret are refused. What was settled once stays so.
    """
    if answer != "keep" and statement is not None:
        raise UsageError('write `perdure memories settle keep ID… --as "STATEMENT"`')
    with shell.use_home() as home:
        cwd = str(Path.cwd())
        if answer is None:
            _print_candidates(shell, home.memories.request_candidates(cwd=cwd, session=options["session"]))
            return
        if answer == "none":
            result = home.memories.settle([], ids, cwd=cwd)
        else:
            if not ids or not (statement or "").strip():
                raise UsageError('keep needs ids and a statement: `perdure memories settle keep ID… --as "STATEMENT"`')
            host_statement = HostStatement(ids, statement or "", options["kind"] or "", options["path"])
            result = home.memories.settle([host_statement])
        if result.refusals:
            raise UsageError(f"not settled: {'; '.join(refusal.why for refusal in result.refusals)}")
    _print_settled(shell, result)


def _print_candidates(shell: Shell, candidates: list[HostCandidate]) -> None:
    codes = make_codes([candidate.turn_id for candidate in candidates])
    if shell.as_json:
        rows = [
            {"id": code, "turn_id": candidate.turn_id, "kind": candidate.kind, "quote": candidate.quote}
            for code, candidate in zip(codes, candidates, strict=True)
        ]
        shell.print_json({"candidates": rows})
        return
    if not candidates:
        shell.out.print("Nothing to settle: the last session here has no line that looks worth a memory.")
        return
    for code, candidate in zip(codes, candidates, strict=True):
        shell.out.print(f"{code}  {candidate.quote}", markup=False, soft_wrap=True)
    shell.suggest(
        [
            (f'perdure memories settle keep {codes[0]} --as "…"', "keep it as one statement, in the words of the line"),
            ("perdure memories settle none", "keep nothing else of them"),
        ]
    )


def _print_settled(shell: Shell, result: SettleResult) -> None:
    if shell.as_json:
        shell.print_json(
            {
                "kept": [
                    {"new": keep_result.is_new, "memory": memory_to_json(keep_result.memory)}
                    for keep_result in result.kept
                ],
                "none": result.n_none,
                "known": result.n_known,
            }
        )
        return
    for keep_result in result.kept:
        header = (
            "Held for review: " if keep_result.memory.in_review else "Kept: " if keep_result.is_new else "Said again: "
        )
        shell.out.print(header, end="", style="bold")
        shell.out.print(format_memory(keep_result.memory))
    if result.n_known:
        shell.out.print("That was settled before. Nothing changed.")
    elif not result.kept:
        shell.out.print(f"Nothing kept of {format_count(result.n_none, 'line')}.")
