"""Commands that read memories: list, show, search, history, sources, stats."""

from __future__ import annotations

from typing import Any

import click

from perdure import text
from perdure.home import Home
from perdure.memories.tally import Month, by_month, tally, total
from perdure.surfaces.afar_memories import Believed
from perdure.surfaces.cli.common import Shell, command, day, moment, plural
from perdure.surfaces.cli.memory import (
    after_one,
    believing,
    complete_ids,
    identified,
    line,
    marks,
    memory_json,
    print_memory,
    project_named,
    replaced,
    replacing,
    source_json,
    source_line,
)
from perdure.types import MEMORY_KINDS, Memory

_identifier = click.argument("identifier", metavar="ID|PATH", shell_complete=complete_ids)

# list, show ---------------------------------------------------------------------------------------------------


@command(
    "list",
    epilog="""\
  perdure memories list
  perdure memories list --prefix user/preferences --pinned
  perdure memories list --as-of 2026-03-01              what had been stated by then
  perdure memories list --recorded-as-of 7d --all       what Perdure knew a week ago, replaced ones too""",
)
@click.option("--prefix", default="", metavar="PATH", help="At this path and below it.")
@click.option("--kind", type=click.Choice(MEMORY_KINDS), help="Only this kind.")
@click.option("--project", help='Of this project (its path, or the end of it); "" for what belongs to none.')
@click.option("--pinned", is_flag=True, help="Only what is pinned.")
@click.option("--all", "every", is_flag=True, help="Also what was superseded or retired.")
@click.option("--as-of", help="As it stood by what had been stated then: a date, or 7d, 4w ago.")
@click.option("--recorded-as-of", help="As it stood by what Perdure had noted then.")
@click.option("--limit", "-n", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Newest first.")
def list_command(
    shell: Shell, prefix: str, kind: str | None, project: str | None, pinned: bool, every: bool, as_of: str | None,
    recorded_as_of: str | None, limit: int,
) -> None:  # fmt: skip
    """What is believed, newest first: its words, its path, when it was stated, how far it can be trusted."""
    with believing(shell) as home:
        found = home.memories.listed(
            prefix=prefix, kind=kind or "", project=_wanted(home, project), every=every, as_of=moment(as_of),
            recorded_as_of=moment(recorded_as_of),
        )  # fmt: skip
    found = [memory for memory in found if memory.pinned or not pinned]
    _say_listed(shell, found, limit)


def _wanted(home: Home | Believed, project: str | None) -> str | None:
    return None if project is None else project_named(home, project) or ""


def _say_listed(shell: Shell, found: list[Memory], limit: int) -> None:
    if shell.as_json:
        shell.answer({"memories": [memory_json(memory) for memory in found[:limit]], "total": len(found)})
        return
    for memory in found[:limit]:
        shell.out.print(line(memory))
    if not found:
        shell.out.print("No memories. `perdure remember` keeps one.")
    if len(found) > limit:
        shell.note(f"{len(found) - limit:,} more; --limit shows them.")


@command("show", epilog="  perdure memories show user/preferences/editor\n  perdure show mem-20260301-093000-0102")
@_identifier
def show_command(shell: Shell, identifier: str) -> None:
    """Everything about one memory, by its path or the beginning of its id: words, times, trust, sources, history."""
    with believing(shell) as home:
        show(shell, home, identifier)


def show(shell: Shell, home: Home | Believed, identifier: str) -> None:
    """Print a memory with all that is known of it."""
    home.catch_up()
    memory = identified(home, identifier)
    if not shell.as_json:
        print_memory(shell, home, memory)
        shell.suggest(after_one(memory))
        return
    result = {
        "kind": "memory", "memory": memory_json(memory),
        "sources": source_json(home, home.holding(memory.memory_id).sources(memory.memory_id)),
        "replaced": [memory_json(other) for other in replaced(home, memory)],
        "replaced_by": [memory_json(other) for other in replacing(home, memory)],
    }  # fmt: skip
    shell.answer(result, next_actions=after_one(memory))


# search -------------------------------------------------------------------------------------------------------


@command(
    "search",
    epilog="""\
  perdure memories search which editor
  perdure memories search staging port --all
  perdure memories search staging port --touch --json""",
)
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, help="Memories to show.")
@click.option("--all", "every", is_flag=True, help="Also what was superseded, marked as such.")
@click.option("--touch", is_flag=True, help="Record those found as used: they fade more slowly.")
def search_command(shell: Shell, words: tuple[str, ...], limit: int, every: bool, touch: bool) -> None:
    """Find memories by words, and by meaning where there are vectors. Writes nothing, unless --touch."""
    with believing(shell) as home:
        found = home.search_memories(" ".join(words), limit=limit, every=every, touch=touch)
    if shell.as_json:
        hits = [{"score": score, **memory_json(memory)} for memory, score in found]
        shell.answer({"memories": hits, "touched": len(found) if touch else 0})
        return
    for memory, _ in found:
        shell.out.print(line(memory))
    if not found:
        shell.out.print("Nothing found.")
        shell.suggest([("perdure search " + " ".join(words), "look through what was said instead")])


# history, sources ---------------------------------------------------------------------------------------------


@command(
    "history",
    epilog="""\
  perdure memories history staging-server/port
  perdure memories history mem-20260301-093000-010203 --json""",
)
@click.argument("identifier", metavar="ID|PATH", shell_complete=complete_ids)
def history_command(shell: Shell, identifier: str) -> None:
    """How a belief came to be: each statement about the same thing, oldest first, when it was made, from when to when
    it held, and the turns behind it.
    """
    with believing(shell) as home:
        home.catch_up()
        found = home.memories.history(identifier)
        told = [(memory, source_json(home, home.memories.sources(memory.memory_id))) for memory in found]
    if shell.as_json:
        shell.answer({"history": [{**memory_json(memory), "turns": sources} for memory, sources in told]})
        return
    for memory, sources in told:
        _say_stage(shell, memory, sources)


def _say_stage(shell: Shell, memory: Memory, sources: list[dict[str, Any]]) -> None:
    until = day(memory.ended_at) if memory.ended_at else "now"
    held = f"{day(memory.stated_at)} to {until}" if not memory.retired else f"{day(memory.stated_at)}, retired"
    shell.out.print(f"{held}  {text.one_line(memory.text, 100)}", markup=False)
    where = memory.project or "no project"
    said = f"{memory.how}, {memory.trust}, {plural(memory.n_stated, 'time')} said, {where}"
    extra = f" [{found}]" if (found := marks(memory)) else ""
    shell.out.print(f"    {memory.memory_id}  {said}{extra}", style="dim", markup=False)
    for source in sources:
        shell.out.print(f"    {source_line(source)}", style="dim", markup=False)


@command("sources", epilog="  perdure memories sources mem-20260301-093000-010203")
@_identifier
def sources_command(shell: Shell, identifier: str) -> None:
    """The turns behind a memory, and behind those that it was made from, with a line of their words. One that this home
    does not hold (any more) is marked as unresolved.
    """
    with believing(shell) as home:
        home.catch_up()
        memory = identified(home, identifier)
        found = source_json(home, home.memories.sources(memory.memory_id))
    if shell.as_json:
        n_unresolved = sum(not source["resolved"] for source in found)
        shell.answer({"memory_id": memory.memory_id, "sources": found, "unresolved": n_unresolved})
        return
    for source in found:
        shell.out.print(source_line(source), markup=False, style="" if source["resolved"] else "red")
    if not found:
        shell.out.print(f"No turn is behind it: it was {memory.how} on {day(memory.recorded_at)}.")


# stats --------------------------------------------------------------------------------------------------------


@command("stats", epilog="  perdure memories stats\n  perdure memories stats --json")
def stats_command(shell: Shell) -> None:
    """How many memories there are and how long they are, by the month in which they were stated (in UTC), and how many
    for each 100 messages of a person in that month: whether memory gets fewer and richer.
    """
    with shell.open() as home:
        every = home.memories.listed(every=True)
        said = home.said_by_month()
    months, counts = by_month(every, said=said), tally(every)
    whole = total(months)
    if shell.as_json:
        rows = [_month_json(month) for month in months]
        shell.answer({"time_zone": "UTC", "months": rows, "total": _month_json(whole), **vars(counts)})
        return
    shell.out.print("month (UTC)  memories     tokens  tokens each  messages  per 100", style="bold")
    for month in (*months, whole):
        rate = "" if month.per_100_said is None else f"{month.per_100_said:.1f}"
        counted = f"{month.n_memories:>8,}  {month.n_tokens:>9,}  {month.tokens_each:>11.1f}"
        shell.out.print(f"{month.month or 'all':<11}  {counted}  {month.n_said:>8,}  {rate:>7}")
    shell.out.print(
        f"{counts.n_current:,} current, {counts.n_superseded:,} superseded, {counts.n_retired:,} retired; "
        f"{counts.n_pinned:,} pinned"
    )


def _month_json(month: Month) -> dict[str, Any]:
    return {
        "month": month.month or None, "memories": month.n_memories, "tokens": month.n_tokens,
        "tokens_each": round(month.tokens_each, 1), "messages": month.n_said,
        "per_100_messages": None if month.per_100_said is None else round(month.per_100_said, 1),
    }  # fmt: skip
