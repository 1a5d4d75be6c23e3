"""Commands about the value of memories: utility, consolidate."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from perdure import text
from perdure.errors import Busy, IndexFault, ProposalMissing, UsageError
from perdure.memories.consolidate import UndoResult
from perdure.memories.cue_use import MemoryUtility, UtilitySums, rank_by_utility, sum_utilities
from perdure.memories.proposals import PROPOSAL_KINDS, REQUESTED_KINDS, ConsolidationProposal
from perdure.surfaces.cli.common import Shell, command, format_count, format_time

_MAX_TEXT_CHARS = 76


@command(
    "utility",
    epilog="""\
  perdure memories utility                 the most useful memories first
  perdure memories utility --limit 1000 --json""",
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 1_000_000),
    default=50,
    show_default=True,
    help="Maximum number of memories, most useful first.",
)
def utility_command(shell: Shell, limit: int) -> None:
    """Show how useful each memory is: how often it was shown with a message, and how often the answer used it. Memories
    that were used come first; memories that were shown often and never used come last. This command does not count as
    use.
    """
    now = datetime.now(UTC)
    with shell.open_home() as home:
        if home.writable:
            with contextlib.suppress(Busy, IndexFault):  # then show what was judged until now
                home.memories.mark_used_cues(now=now)
        ratings = rank_by_utility(home.memories.list_memories(), now=now)
    if shell.as_json:
        shell.print_json(
            {
                "memories": [_worth_to_json(rating) for rating in ratings[:limit]],
                "sums": sum_utilities(ratings)._asdict(),
            }
        )
        return
    _print_worth(shell, ratings[:limit])
    _print_sums(shell, sum_utilities(ratings), n_more=max(0, len(ratings) - limit))


def _worth_to_json(rating: MemoryUtility) -> dict[str, Any]:
    memory = rating.memory
    return {
        "memory_id": memory.memory_id,
        "path": memory.path,
        "text": memory.text,
        "pinned": memory.pinned,
        "n_injected": memory.n_injected,
        "n_used": memory.n_used,
        "share": rating.share,
        "used_at": memory.used_at,
        "decay": rating.decay,
        "heat": rating.heat,
        "earns": rating.label,
    }


def _print_worth(shell: Shell, ratings: Sequence[MemoryUtility]) -> None:
    """Print the figures of each memory in columns and its words below them, so that no figure is lost on a narrow
    terminal.
    """
    shell.out.print("shown  used  share  decay  heat  last used         memory", style="bold")
    for rating in ratings:
        memory = rating.memory
        share = "–" if rating.share is None else f"{rating.share:.0%}"
        used_at = format_time(memory.used_at) if memory.used_at else "never"
        figures = f"{memory.n_injected:>5}  {memory.n_used:>4}  {share:>5}  {rating.decay:>5.2f}  {rating.heat:>4.2f}"
        shell.out.print(f"{figures}  {used_at:<16}  {memory.memory_id}", style="dim")
        shell.out.print(Text(f"  {text.one_line(memory.text, _MAX_TEXT_CHARS)}", style=_WORTH_STYLES[rating.label]))


_WORTH_STYLES = {"earns its place": "", "not known yet": "dim", "never used": "red"}


def _print_sums(shell: Shell, totals: UtilitySums, *, n_more: int) -> None:
    shell.out.print(
        f"\n{_count_memories(totals.n_memories)}, shown {totals.n_injected:,} times, used {totals.n_used:,} times."
    )
    if n_more:
        shell.note(f"{n_more:,} more; --limit shows them.")
    if totals.n_never_used:
        shell.suggest([("perdure consolidate --only retire", f"{totals.n_never_used:,} were shown and never used")])


@command(
    "consolidate",
    epilog="""\
  perdure consolidate                          list the proposals; changes nothing
  perdure consolidate --only merge
  perdure consolidate --only guess             what earlier rules guessed from plain sentences
  perdure consolidate --apply --only guess     retire all of it
  perdure consolidate lift-1a2b3c4d            show that proposal in full
  perdure consolidate --apply lift-1a2b3c4d    apply it; without an id, apply all
  perdure consolidate --undo                   undo the last consolidation""",
)
@click.argument("ids", nargs=-1, metavar="[ID…]")
@click.option("--apply", "is_apply", is_flag=True, help="Apply the named proposals; without an id, all.")
@click.option(
    "--undo", "is_undo", is_flag=True, help="Undo the consolidation with this event id; without an id, the last one."
)
@click.option("--only", type=click.Choice(PROPOSAL_KINDS), help="List only proposals of this kind.")
def consolidate_command(shell: Shell, ids: tuple[str, ...], is_apply: bool, is_undo: bool, only: str | None) -> None:
    """List proposals to tidy up memories: retire what earlier rules guessed from plain sentences, merge duplicates,
    lift repeated episodes into one general memory, split memories with two facts, put contradictions on one path, and
    limit memories to the project in which they were found. With `--only retire`: retire memories that were shown often
    and never used, which costs answers. Nothing is deleted. A pinned memory is retired only if the new memory that
    replaces it is pinned too. Age alone is no reason to retire a memory.
    """
    if is_undo:
        if is_apply or only or len(ids) > 1:
            raise UsageError("--undo undoes one consolidation: give one event id, or none for the last consolidation")
        _undo_consolidation(shell, *ids)
        return
    with shell.open_home() as home:
        if not is_apply:
            proposals = home.memories.proposals(only or "")
            if ids and not only:
                proposals += [found for kind in REQUESTED_KINDS for found in home.memories.proposals(kind)]
            _print_proposals(shell, _select_proposals(proposals, ids) if ids else proposals, full=bool(ids))
            return
        result = home.memories.consolidate(list(ids) or None, kind=only or "")
    if shell.as_json:
        shell.print_json(
            {"event": result.event_id or None, "applied": [_proposal_to_json(applied) for applied in result.proposals]}
        )
    elif not result.proposals:
        shell.out.print("No proposals to apply.")
    else:
        _print_each_proposal(shell, result.proposals, full=True)
        shell.out.print(f"\nApplied {format_count(len(result.proposals), 'proposal')} (event {result.event_id[:12]}).")
        shell.suggest([(f"perdure consolidate --undo {result.event_id[:12]}", "undo this")])


def _select_proposals(proposals: Sequence[ConsolidationProposal], ids: Sequence[str]) -> list[ConsolidationProposal]:
    selected = [proposal for proposal in proposals if proposal.proposal_id in ids]
    missing_ids = set(ids) - {proposal.proposal_id for proposal in selected}
    if missing_ids:
        raise ProposalMissing(sorted(missing_ids)[0])
    return selected


def _undo_consolidation(shell: Shell, event_id: str = "") -> None:
    with shell.open_home() as home:
        result = home.memories.undo(event_id)
    if shell.as_json:
        shell.print_json({"event": result.event_id, "memories": result.memories, "left": result.changed_since})
        return
    _print_undone(shell, result)


def _count_memories(n: int) -> str:
    return "1 memory" if n == 1 else f"{n:,} memories"


def _print_undone(shell: Shell, result: UndoResult) -> None:
    shell.out.print(f"Undone: {result.event_id[:12]}; {_count_memories(len(result.memories))} restored.")
    if result.changed_since:
        shell.note(f"Not restored, because they were changed since then: {', '.join(result.changed_since)}")


def _print_proposals(shell: Shell, proposals: Sequence[ConsolidationProposal], *, full: bool) -> None:
    if shell.as_json:
        shell.print_json({"proposals": [_proposal_to_json(proposal) for proposal in proposals]})
        return
    if not proposals:
        shell.out.print("No proposals.")
        return
    _print_each_proposal(shell, proposals, full=full)
    shell.out.print(f"\n{format_count(len(proposals), 'proposal')}; nothing was changed.")
    shell.suggest([(f"perdure consolidate --apply {proposals[0].proposal_id}", "apply the first (without an id: all)")])


def _print_each_proposal(shell: Shell, proposals: Sequence[ConsolidationProposal], *, full: bool) -> None:
    for proposal in proposals:
        shell.out.print(Text.assemble((proposal.proposal_id, "bold"), f"  {proposal.why}"))
        n_shown = len(proposal.memories) if full else 3
        for memory in proposal.memories[:n_shown]:
            mark = "-" if memory.memory_id in proposal.retired_ids else " "
            shell.out.print(Text(f"  {mark} {text.one_line(memory.text, 100)}  {memory.memory_id}", style="dim"))
        if len(proposal.memories) > n_shown:
            shell.out.print(f"    … and {len(proposal.memories) - n_shown} more", style="dim")
        for new_memory in proposal.new_memories:
            shell.out.print(Text(f"  + {text.one_line(new_memory.text, 200)}", style="green"))
        for _, path in proposal.new_paths[:1]:
            move_text = f"  → {_count_memories(len(proposal.new_paths))} to the path {text.printable(path)}"
            shell.out.print(Text(move_text, style="green"))
        for project in dict.fromkeys(project for _, project in proposal.new_projects):
            shell.out.print(Text(f"  → holds only in {text.printable(project)}", style="green"))


def _proposal_to_json(proposal: ConsolidationProposal) -> dict[str, Any]:
    new_memories = [
        {
            "memory_id": memory.memory_id,
            "text": memory.text,
            "path": memory.path,
            "kind": memory.kind,
            "trust": memory.trust,
            "made_from": memory.made_from,
            "n_sources": len(memory.sources),
        }
        for memory in proposal.new_memories
    ]
    return {
        "id": proposal.proposal_id,
        "kind": proposal.kind,
        "why": proposal.why,
        "memories": [
            {"memory_id": memory.memory_id, "text": memory.text, "path": memory.path} for memory in proposal.memories
        ],
        "makes": new_memories,
        "retires": proposal.retired_ids,
        "moves": [{"memory_id": memory_id, "path": new_path} for memory_id, new_path in proposal.new_paths],
        "narrows": [{"memory_id": memory_id, "project": project} for memory_id, project in proposal.new_projects],
    }
