"""Commands that read memories: list, show, search, history, sources, stats."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from perdure import text
from perdure.home import Home
from perdure.memories.cue_use import MemoryMonth, count_by_month, count_memories, rank_by_heat, sum_months
from perdure.memories.gate import GateReason
from perdure.remote_home import RemoteHome
from perdure.surfaces.cli.common import Shell, command, format_count, format_scores, format_time, parse_moment
from perdure.surfaces.cli.memory_common import (
    complete_memory_ids,
    find_memory,
    format_marks,
    format_memory,
    format_source,
    list_replaced,
    list_successors,
    memory_to_json,
    print_memory,
    resolve_project,
    sources_to_json,
    suggest_for_memory,
)
from perdure.surfaces.units import format_paragraphs
from perdure.types import MEMORY_KINDS, Memory

_identifier_argument = click.argument("identifier", metavar="ID|PATH", shell_complete=complete_memory_ids)

# list, show ---------------------------------------------------------------------------------------------------


@command(
    "list",
    epilog="""\
  perdure memories list
  perdure memories list --prefix user/preferences --pinned
  perdure memories list --by-heat -n 10                 what was said or used often and lately
  perdure memories list --as-of 2026-03-01              the memories of that day
  perdure memories list --recorded-as-of 7d --all       recorded a week ago, with superseded memories""",
)
@click.option("--prefix", default="", metavar="PATH", help="Only memories at this path and below it.")
@click.option("--kind", type=click.Choice(MEMORY_KINDS), help="Only memories of this kind.")
@click.option(
    "--project",
    help='Only memories of this project (its path, or the end of the path); "" for those without a project.',
)
@click.option("--pinned", is_flag=True, help="Only pinned memories.")
@click.option("--by-heat", is_flag=True, help="The hottest first, with the heat (0 to 1); it cools without use.")
@click.option("--all", "include_all", is_flag=True, help="Also superseded and retired memories.")
@click.option("--as-of", help="Show the memories that were current at this time: a date, or 7d, 4w ago.")
@click.option("--recorded-as-of", help="Show the memories that Perdure had recorded by this time.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="Maximum number of memories, newest first.",
)
def list_command(
    shell: Shell,
    prefix: str,
    kind: str | None,
    project: str | None,
    pinned: bool,
    by_heat: bool,
    limit: int,
    **options: Any,
) -> None:
    """List the current memories, newest first: text, path, time of the statement, level of trust."""
    with shell.use_home() as home:
        memories = home.memories.list_memories(
            prefix=prefix,
            kind=kind or "",
            project=None if project is None else resolve_project(home, project) or "",
            every=options["include_all"],
            as_of=parse_moment(options["as_of"]),
            recorded_as_of=parse_moment(options["recorded_as_of"]),
        )
    memories = [memory for memory in memories if memory.pinned or not pinned]
    heats = rank_by_heat(memories, now=datetime.now(UTC)) if by_heat else [(memory, None) for memory in memories]
    _print_memories(shell, heats, limit)


def _print_memories(shell: Shell, memories: Sequence[tuple[Memory, float | None]], limit: int) -> None:
    """Print memories, each with its heat where the list is in that order."""
    if shell.as_json:
        rows = [
            memory_to_json(memory) | ({} if heat is None else {"heat": round(heat, 4)})
            for memory, heat in memories[:limit]
        ]
        shell.print_json({"memories": rows, "total": len(memories)})
        return
    for memory, heat in memories[:limit]:
        shell.out.print(Text("" if heat is None else f"{heat:.2f}  ", style="dim") + format_memory(memory))
    if not memories:
        shell.out.print("No memories. `perdure remember` stores one.")
    if len(memories) > limit:
        shell.note(f"{len(memories) - limit:,} more; --limit shows them.")


@command("show", epilog="  perdure memories show user/preferences/editor\n  perdure show mem-20260301-093000-0102")
@_identifier_argument
def show_command(shell: Shell, identifier: str) -> None:
    """Show everything about one memory, by its path or the beginning of its id: words, times, trust, sources,
    history.
    """
    with shell.use_home() as home:
        show_memory(shell, home, identifier)


def show_memory(shell: Shell, home: Home | RemoteHome, identifier: str) -> None:
    """Print a memory with everything that is known about it."""
    home.upkeep.catch_up()
    memory = find_memory(home, identifier)
    if not shell.as_json:
        print_memory(shell, home, memory)
        shell.suggest(suggest_for_memory(memory))
        return
    result = {
        "kind": "memory",
        "memory": memory_to_json(memory),
        "sources": sources_to_json(home, home.memories.holder_of(memory.memory_id).sources(memory.memory_id)),
        "replaced": [memory_to_json(related) for related in list_replaced(home, memory)],
        "replaced_by": [memory_to_json(related) for related in list_successors(home, memory)],
    }
    shell.print_json(result, next_actions=suggest_for_memory(memory))


# search -------------------------------------------------------------------------------------------------------


@command(
    "search",
    epilog="""\
  perdure memories search which editor
  perdure memories search staging port --all
  perdure memories search staging port --touch --json""",
)
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum number of memories."
)
@click.option("--all", "include_all", is_flag=True, help="Also superseded memories, with a mark.")
@click.option("--touch", is_flag=True, help="Count the results as used, so that they fade more slowly.")
def search_command(shell: Shell, words: tuple[str, ...], limit: int, include_all: bool, touch: bool) -> None:
    """Find memories by words, and by meaning if there are vectors, with the score of each. Only --touch changes
    data.
    """
    with shell.use_home() as home:
        hits = home.memories.search(" ".join(words), limit=limit, every=include_all, touch=touch)
    if shell.as_json:
        rows = [
            {"score": hit.score, "keyword_score": hit.keyword_score, "vector_score": hit.vector_score}
            | memory_to_json(hit.memory)
            for hit in hits
        ]
        shell.print_json({"memories": rows, "touched": len(hits) if touch else 0})
        return
    for hit in hits:
        shell.out.print(format_memory(hit.memory))
        shell.out.print(f"    {format_scores(hit)}", style="dim", markup=False)
    if not hits:
        shell.out.print("Nothing found.")
        shell.suggest([("perdure search " + " ".join(words), "search the turns instead")])


# history, sources ---------------------------------------------------------------------------------------------


@command(
    "history",
    epilog="""\
  perdure memories history staging-server/port
  perdure memories history mem-20260301-093000-010203 --json""",
)
@click.argument("identifier", metavar="ID|PATH", shell_complete=complete_memory_ids)
def history_command(shell: Shell, identifier: str) -> None:
    """Show the history of a memory: each statement on its path, oldest first, with the times from and until which it
    was current, and its source turns.
    """
    with shell.use_home() as home:
        home.upkeep.catch_up()
        memories = home.memories.history(identifier)
        stages = [(memory, sources_to_json(home, home.memories.sources(memory.memory_id))) for memory in memories]
    if shell.as_json:
        shell.print_json({"history": [{**memory_to_json(memory), "turns": sources} for memory, sources in stages]})
        return
    for memory, sources in stages:
        _print_stage(shell, memory, sources)


def _print_stage(shell: Shell, memory: Memory, sources: list[dict[str, Any]]) -> None:
    end_text = format_time(memory.ended_at) if memory.ended_at else "now"
    period = (
        f"{format_time(memory.stated_at)} to {end_text}"
        if not memory.retired
        else f"{format_time(memory.stated_at)}, retired"
    )
    shell.out.print(f"{period}  {text.one_line(memory.text, 100)}", markup=False)
    project = memory.project or "no project"
    origin_text = f"{memory.how}, {memory.trust}, {format_count(memory.n_stated, 'time')} said, {project}"
    suffix = f" [{marks_text}]" if (marks_text := format_marks(memory)) else ""
    shell.out.print(f"    {memory.memory_id}  {origin_text}{suffix}", style="dim", markup=False)
    for source in sources:
        shell.out.print(f"    {format_source(source)}", style="dim", markup=False)


@command("sources", epilog="  perdure memories sources mem-20260301-093000-010203")
@_identifier_argument
def sources_command(shell: Shell, identifier: str) -> None:
    """Show the source turns of a memory, and of the memories that it was made from, with one line of text each. A turn
    that this home does not hold is marked UNRESOLVED.
    """
    with shell.use_home() as home:
        home.upkeep.catch_up()
        memory = find_memory(home, identifier)
        rows = sources_to_json(home, home.memories.sources(memory.memory_id))
    if shell.as_json:
        n_unresolved = sum(not source["resolved"] for source in rows)
        shell.print_json({"memory_id": memory.memory_id, "sources": rows, "unresolved": n_unresolved})
        return
    for source in rows:
        shell.out.print(format_source(source), markup=False, style="" if source["resolved"] else "red")
    if not rows:
        shell.out.print(f"No turn is its source: it was {memory.how} on {format_time(memory.recorded_at)}.")


# stats --------------------------------------------------------------------------------------------------------


@command("stats", epilog="  perdure memories stats\n  perdure memories stats --json")
def stats_command(shell: Shell) -> None:
    """Count the memories that were stated in each month (UTC): how many are current and retired today, their tokens
    (all, and each), how often recall told them, how often they were used (all, and for each memory), and how many there
    are for 100 messages that people typed. The table shows whether memories become fewer and richer. Below it stands
    what the write gate allowed, held and discarded, and how many paragraphs of the files in which your clients keep
    memories and instructions are believed; the others are only found.
    """
    with shell.open_home() as home:
        memories = home.memories.list_memories(every=True)
        message_counts = home.runs.messages_by_month()
        decisions = home.memories.count_decisions()
        paragraph_counts = home.runs.count_paragraphs()._asdict()
    n_waiting = sum(memory.in_review for memory in memories)
    months, counts = count_by_month(memories, messages_by_month=message_counts), count_memories(memories)
    sum_of_months = sum_months(months)
    if shell.as_json:
        rows = [_month_to_json(month) for month in months]
        gate_counts = {
            "allowed": decisions.n_allowed,
            "held": decisions.n_held,
            "waiting": n_waiting,
            "discarded": {reason: decisions.discarded[reason] for reason in GateReason},
        }
        total = _month_to_json(sum_of_months)
        shell.print_json(
            {
                "time_zone": "UTC",
                "months": rows,
                "total": total,
                **vars(counts),
                "gate": gate_counts,
                "host_paragraphs": paragraph_counts,
            }
        )
        return
    shell.out.print(
        "month (UTC)  memories  current  retired  tokens  each  told  used   use  per 100", style="bold", soft_wrap=True
    )
    for month in (*months, sum_of_months):
        shell.out.print(_format_month(month), soft_wrap=True)
    shell.out.print(
        f"{counts.n_current:,} current, {counts.n_superseded:,} superseded, {counts.n_retired:,} retired; "
        f"{counts.n_pinned:,} pinned"
    )
    reasons_text = ", ".join(f"{n:,} {reason}" for reason, n in decisions.discarded.most_common() if n)
    held_text = f", {decisions.n_held:,} held for review ({n_waiting:,} waiting)" if decisions.n_held else ""
    shell.out.print(f"Write gate: {decisions.n_allowed:,} allowed{held_text}; discarded: {reasons_text or 'none'}")
    if files_text := format_paragraphs(paragraph_counts):
        shell.out.print(f"Files of your clients: {files_text}")
    if n_waiting:
        shell.suggest([("perdure memories review", f"read what waits for you: {format_count(n_waiting, 'memory')}")])


def _format_month(month: MemoryMonth) -> str:
    rate = "" if month.per_100_messages is None else f"{month.per_100_messages:.1f}"
    memory_columns = f"{month.n_memories:>8,}  {month.n_current:>7,}  {month.n_retired:>7,}"
    token_columns = f"{month.n_tokens:>6,}  {month.tokens_per_memory:>4.0f}"
    use_columns = f"{month.n_told:>4,}  {month.n_used:>4,}  {month.uses_per_memory:>4.1f}"
    return f"{month.month or 'all':<11}  {memory_columns}  {token_columns}  {use_columns}  {rate:>7}"


def _month_to_json(month: MemoryMonth) -> dict[str, Any]:
    return {
        "month": month.month or None,
        "memories": month.n_memories,
        "current": month.n_current,
        "retired": month.n_retired,
        "tokens": month.n_tokens,
        "tokens_each": round(month.tokens_per_memory, 1),
        "told": month.n_told,
        "used": month.n_used,
        "uses_each": round(month.uses_per_memory, 2),
        "messages": month.n_messages,
        "per_100_messages": None if month.per_100_messages is None else round(month.per_100_messages, 1),
    }
