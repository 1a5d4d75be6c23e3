"""Commands of recall: what a model would be told for a message, and how good that is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from perdure import config as settings
from perdure import text
from perdure.access import told
from perdure.errors import UsageError
from perdure.recall import why as reasons
from perdure.recall.pack import SAID_BY
from perdure.resident import instead
from perdure.surfaces import afar
from perdure.surfaces.cli.common import ROLE_STYLES, Actions, Shell, command, day, moment, plural
from perdure.surfaces.reading import shared
from perdure.types import Cue, Plan, Recalled

_SHOWN_CHARS = 600  # of a cue on a terminal, unless --full


@command(
    "recall",
    epilog="""\
  perdure recall "which port did we give the staging server?"
  perdure recall --all-projects what broke last Tuesday
  perdure recall "why sqlite" --why-not t7k2m9q     what a turn lacked to be a cue
  perdure recall "which port does staging use?" --as-of 2026-03-01     what was known then
  echo "a long message" | perdure recall -
  perdure recall "the release" --json""",
)
@click.argument("message", nargs=-1)
@click.option("--all-projects", is_flag=True, help="Look everywhere, not only in this folder's project.")
@click.option("--why-not", metavar="ID", help="Say what this turn lacked.")
@click.option("--mode", type=click.Choice(["hybrid", "keyword"]), help="By words and meaning, or by words alone.")
@click.option(
    "--as-of", metavar="DATE", help="Answer by what had been said until then: a date, or 30m, 12h, 7d, 4w ago."
)
@click.option("--full", is_flag=True, help="Show the cues in full.")
@click.option("--explain", is_flag=True, help="Show the plan, the scores and the time that each step took.")
def recall_command(
    shell: Shell, message: tuple[str, ...], all_projects: bool, why_not: str | None, mode: str | None,
    as_of: str | None, full: bool, explain: bool,
) -> None:  # fmt: skip
    """What would be put beside a message before a model reads it: a few memories and earlier turns with their source
    and the reason each was chosen, or nothing. Looks in the project of the folder you are in, and in what has none.
    """
    found, reason = _found(shell, _said(message), all_projects, why_not, mode, moment(as_of))
    place = settings.home_path(shell.home)
    told.mark(place, settings.load(place).user, {held.digest: name for name, held in found.held_back.items()})
    after = _after(found, all_projects) if shell.thin() is None else _after_afar(found)
    if shell.as_json:
        shell.answer({**_json(found), "why_not": reason or None}, next_actions=after)
        return
    _notices(shell, found, mode)
    for number, cue in enumerate(found.cues):
        _print_cue(shell, cue, number, None if full else _SHOWN_CHARS, explain=explain)
    if not found.cues:
        shell.out.print(f"Nothing: {found.silent}.", markup=False)
    if explain:
        _print_plan(shell, found)
    if reason:
        shell.out.print(f"\n{why_not}: {reason}.", markup=False)
    shell.suggest(after)


def _found(
    shell: Shell, said: str, all_projects: bool, why_not: str | None, mode: str | None, as_of: datetime | None
) -> tuple[Recalled, str]:
    """(what is recalled, what a turn lacked), by the resident home where it says the same as this process would."""
    cwd = None if all_projects else str(Path.cwd())
    if (thin := shell.thin()) is not None:
        if why_not:
            raise UsageError("--why-not is answered at the home; run it there")
        with afar.opened(thin) as there:
            return there.recall(said, cwd=cwd, all_projects=all_projects, mode=mode, as_of=as_of), ""
    if not why_not and as_of is None:
        place = settings.home_path(shell.home)
        found = instead.recall(place, said, cwd=cwd, all_projects=all_projects, mode=mode)
        if found is not None:
            return found, ""
    with shell.open() as home:
        wanted = home.resolve(why_not)[1] if why_not else ""
        found = home.recall(said, cwd=cwd, all_projects=all_projects, mode=mode, explain=bool(wanted), as_of=as_of)
    return found, reasons.why_not(found, wanted) if wanted else ""


def _said(message: Sequence[str]) -> str:
    if tuple(message) == ("-",):
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    if not message:
        raise UsageError("say which message to recall for, or `-` to read it from standard input")
    return " ".join(message)


def _notices(shell: Shell, found: Recalled, mode: str | None) -> None:
    if "vector" in found.degraded:
        shell.note("Without vectors: this answer comes from words alone. `perdure doctor` says why.")
    elif mode != "keyword" and found.timings_ms and shell.thin() is None and "compute" not in found.timings_ms:
        shell.note("By words alone: `perdure embed` makes the vectors that find meaning too.")
    if found.held_back:
        names = ", ".join(f"{name} ({why.rule})" for name, why in found.held_back.items())
        shell.note(f"Left out, because it reads like an order to a model: {names}. `perdure floor alerts` says more.")
    if "helper" in found.degraded:
        shell.note("Without the helper model, which failed or was late. `perdure models test helper` tries it.")
    if "behind" in found.degraded:
        shell.note("Not everything that was captured is indexed yet; ask again in a moment.")


def _print_cue(shell: Shell, cue: Cue, number: int, n_chars: int | None, *, explain: bool) -> None:
    head = Text("\n" if number else "")
    head.append(f"{number + 1}. ", style="bold")
    whose = cue.user if cue.is_shared else ""
    if cue.memory is not None:
        head.append(f"memory, {cue.memory.kind}", style="magenta")
        place = f"  {day(cue.stated_at)}  {shared(SAID_BY[cue.memory.trust], whose, '')}  {cue.turn_id}"
    else:
        head.append(shared(cue.role, whose, ""), style=ROLE_STYLES[cue.role])
        place = f"  {day(cue.stated_at)}  {cue.runtime} @{cue.machine}  {cue.turn_id}"
    head.append(text.printable(place), style="dim")
    shell.out.print(head)
    if cue.before:
        shell.out.print(Text(f"   > {text.one_line(cue.before, 200)}", style="dim"))
    words = text.printable(cue.text) if n_chars is None else text.clip(text.printable(cue.text), n_chars)
    shell.out.print(Text("\n".join(f"   {line}" for line in words.splitlines())))
    if cue.note:
        shell.out.print(Text(f"   ({text.one_line(cue.note, 400)})", style="cyan"))
    shell.out.print(Text(f"   because it {_joined(cue.why)}", style="yellow"))
    if explain:
        legs = ", ".join(f"{name} {value:.3f}" for name, value in cue.legs.items())
        shell.out.print(Text(f"   score {cue.score:.3f} ({legs}), {plural(cue.n_tokens, 'token')}", style="dim"))


def _joined(why: Sequence[str]) -> str:
    return "; ".join(why) or "is the best there is"


def _print_plan(shell: Shell, found: Recalled) -> None:
    plan = found.plan
    rows = {
        "asked": " | ".join(plan.queries), "names": ", ".join(plan.names), "intent": plan.intent,
        "times": ", ".join(f"{w.words} = {day(w.since_at)} to {day(w.until_at)}" for w in plan.windows),
        "whose words": ", ".join(plan.speakers),
        "took": ", ".join(f"{step} {ms:.1f} ms" for step, ms in found.timings_ms.items()),
        "tokens": f"{found.n_tokens:,}",
    }  # fmt: skip
    shell.out.print()
    for name, value in rows.items():
        if value:
            shell.out.print(f"{name + ':':<13}{text.printable(value)}", style="dim", markup=False)


def _after(found: Recalled, all_projects: bool) -> Actions:
    if found.cues:
        return [(f"perdure show {found.cues[0].turn_id}", "read the first cue in its place")]
    if all_projects or not found.plan.queries:
        return []
    return [(f"perdure recall --all-projects {_quoted(found.plan.message)}", "look in every project")]


def _after_afar(found: Recalled) -> Actions:
    """A remote home shows runs, not single turns."""
    runs = [cue.run_id for cue in found.cues if cue.run_id]
    return [(f"perdure show {runs[0]}", "read the first cue in its run")] if runs else []


def _quoted(message: str) -> str:
    return "'" + text.one_line(message, 60).replace("'", "'\\''") + "'"


def _json(found: Recalled) -> dict[str, Any]:
    return {
        "cues": [asdict(cue) for cue in found.cues], "silent": found.silent or None, "degraded": found.degraded,
        "n_tokens": found.n_tokens, "plan": _plan_json(found.plan), "timings_ms": found.timings_ms,
        "depth": found.depth, "held_back": {name: why._asdict() for name, why in found.held_back.items()},
    }  # fmt: skip


def _plan_json(plan: Plan) -> dict[str, Any]:
    return {**asdict(plan), "windows": [asdict(window) for window in plan.windows]}
