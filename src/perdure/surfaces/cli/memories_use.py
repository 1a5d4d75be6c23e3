"""Commands about what memories are worth: utility, and consolidate."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from perdure import text
from perdure.errors import Busy, IndexFault, ProposalMissing, UsageError
from perdure.memories.consolidation import KINDS, Proposal
from perdure.memories.utility import Sums, Worth, sums, worth
from perdure.mind.consolidate import Undone
from perdure.surfaces.cli.common import Shell, command, day, plural

_SHOWN_CHARS = 76


@command(
    "utility",
    epilog="""\
  perdure memories utility                 what was used of what was shown, the most useful first
  perdure memories utility --limit 1000 --json""",
)
@click.option(
    "--limit", "-n", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="Most useful first."
)
def utility_command(shell: Shell, limit: int) -> None:
    """What each memory is worth: how often it was put beside a message, and how often the answer then rested on it.
    First what is used, last what was shown again and again in vain. To be shown is no use, and renews nothing.
    """
    now = datetime.now(UTC)
    with shell.open() as home:
        if home.writable:
            with contextlib.suppress(Busy, IndexFault):  # what was judged until now is shown all the same
                home.judge_use(now=now)
        found = worth(home.memories.listed(), now=now)
    if shell.as_json:
        shell.answer({"memories": [_worth_json(one) for one in found[:limit]], "sums": sums(found)._asdict()})
        return
    _say_worth(shell, found[:limit])
    _say_sums(shell, sums(found), n_more=max(0, len(found) - limit))


def _worth_json(one: Worth) -> dict[str, Any]:
    memory = one.memory
    return {
        "memory_id": memory.memory_id, "path": memory.path, "text": memory.text, "pinned": memory.pinned,
        "n_injected": memory.n_injected, "n_used": memory.n_used, "share": one.share, "used_at": memory.used_at,
        "decay": one.decay, "heat": one.heat, "earns": one.earns,
    }  # fmt: skip


def _say_worth(shell: Shell, found: Sequence[Worth]) -> None:
    """The figures of each in columns, and its words below them: so none is lost where a terminal is narrow."""
    shell.out.print("shown  used  share  decay  heat  last used         memory", style="bold")
    for one in found:
        memory = one.memory
        share = "–" if one.share is None else f"{one.share:.0%}"
        used_at = day(memory.used_at) if memory.used_at else "never"
        figures = f"{memory.n_injected:>5}  {memory.n_used:>4}  {share:>5}  {one.decay:>5.2f}  {one.heat:>4.2f}"
        shell.out.print(f"{figures}  {used_at:<16}  {memory.memory_id}", style="dim")
        shell.out.print(Text(f"  {text.one_line(memory.text, _SHOWN_CHARS)}", style=_STYLES[one.earns]))


_STYLES = {"earns its place": "", "not known yet": "dim", "never used": "red"}


def _say_sums(shell: Shell, found: Sums, *, n_more: int) -> None:
    shell.out.print(f"\n{_memories(found.n_memories)}, shown {found.n_injected:,} times, used {found.n_used:,} times.")
    if n_more:
        shell.note(f"{n_more:,} more; --limit shows them.")
    if found.n_never_used:
        shell.suggest([("perdure consolidate", f"{found.n_never_used:,} were shown and never used: what could go")])


@command(
    "consolidate",
    epilog="""\
  perdure consolidate                          what could be tidied up; changes nothing
  perdure consolidate --only merge
  perdure consolidate lift-1a2b3c4d            that proposal in full
  perdure consolidate --apply lift-1a2b3c4d    apply it; without an id, all that are shown
  perdure consolidate --undo                   take the last one back""",
)
@click.argument("ids", nargs=-1, metavar="[ID…]")
@click.option("--apply", "is_apply", is_flag=True, help="Apply these proposals, or all.")
@click.option("--undo", "is_undo", is_flag=True, help="Take back a consolidation: this event (ID), or the last one.")
@click.option("--only", type=click.Choice(KINDS), help="Only proposals of this kind.")
def consolidate_command(shell: Shell, ids: tuple[str, ...], is_apply: bool, is_undo: bool, only: str | None) -> None:
    """What could be tidied up among the memories: duplicates to merge, repeated episodes to lift into one general
    memory, two facts in one to split, contradictions to put on one path, and what was shown often and never used to
    retire. Nothing is ever deleted, nothing pinned is retired and lost (what is made of it is pinned), and
    age alone retires nothing.
    """
    if is_undo:
        if is_apply or only or len(ids) > 1:
            raise UsageError("--undo takes back one consolidation: give its event, or nothing for the last one")
        _undo(shell, *ids)
        return
    with shell.open() as home:
        if not is_apply:
            found = [proposal for proposal in home.proposals() if only in (None, proposal.kind)]
            _say_proposals(shell, _named(found, ids) if ids else found, full=bool(ids))
            return
        done = home.consolidate(list(ids) or None, kind=only or "")
    if shell.as_json:
        shell.answer({"event": done.event_id or None, "applied": [_proposal_json(one) for one in done.proposals]})
    elif not done.proposals:
        shell.out.print("Nothing to do.")
    else:
        _say_all(shell, done.proposals, full=True)
        shell.out.print(f"\nApplied {plural(len(done.proposals), 'proposal')} (event {done.event_id[:12]}).")
        shell.suggest([(f"perdure consolidate --undo {done.event_id[:12]}", "take this back")])


def _named(found: Sequence[Proposal], ids: Sequence[str]) -> list[Proposal]:
    named = [proposal for proposal in found if proposal.proposal_id in ids]
    missing = set(ids) - {proposal.proposal_id for proposal in named}
    if missing:
        raise ProposalMissing(sorted(missing)[0])
    return named


def _undo(shell: Shell, event_id: str = "") -> None:
    with shell.open() as home:
        undone = home.undo(event_id)
    if shell.as_json:
        shell.answer({"event": undone.event_id, "memories": undone.memories, "left": undone.left})
        return
    _say_undone(shell, undone)


def _memories(n: int) -> str:
    return "1 memory" if n == 1 else f"{n:,} memories"


def _say_undone(shell: Shell, undone: Undone) -> None:
    shell.out.print(f"Took back {undone.event_id[:12]}: {_memories(len(undone.memories))} set back.")
    if undone.left:
        shell.note(f"Left as they are, because they were changed since: {', '.join(undone.left)}")


def _say_proposals(shell: Shell, found: Sequence[Proposal], *, full: bool) -> None:
    if shell.as_json:
        shell.answer({"proposals": [_proposal_json(proposal) for proposal in found]})
        return
    if not found:
        shell.out.print("Nothing to tidy up.")
        return
    _say_all(shell, found, full=full)
    shell.out.print(f"\n{plural(len(found), 'proposal')}; nothing was changed.")
    shell.suggest([(f"perdure consolidate --apply {found[0].proposal_id}", "apply the first (without an id: all)")])


def _say_all(shell: Shell, found: Sequence[Proposal], *, full: bool) -> None:
    for proposal in found:
        shell.out.print(Text.assemble((proposal.proposal_id, "bold"), f"  {proposal.why}"))
        most = len(proposal.memories) if full else 3
        for memory in proposal.memories[:most]:
            mark = "-" if memory.memory_id in proposal.retires else " "
            shell.out.print(Text(f"  {mark} {text.one_line(memory.text, 100)}  {memory.memory_id}", style="dim"))
        if len(proposal.memories) > most:
            shell.out.print(f"    … and {len(proposal.memories) - most} more", style="dim")
        for made in proposal.makes:
            shell.out.print(Text(f"  + {text.one_line(made.text, 200)}", style="green"))
        for _, path in proposal.moves[:1]:
            where = f"  → {_memories(len(proposal.moves))} to the path {text.printable(path)}"
            shell.out.print(Text(where, style="green"))


def _proposal_json(proposal: Proposal) -> dict[str, Any]:
    made = [
        {"memory_id": one.memory_id, "text": one.text, "path": one.path, "kind": one.kind, "trust": one.trust,
         "made_from": one.made_from, "n_sources": len(one.sources)}
        for one in proposal.makes
    ]  # fmt: skip
    return {
        "id": proposal.proposal_id, "kind": proposal.kind, "why": proposal.why,
        "memories": [{"memory_id": one.memory_id, "text": one.text, "path": one.path} for one in proposal.memories],
        "makes": made, "retires": proposal.retires, "moves": [{"memory_id": n, "path": p} for n, p in proposal.moves],
    }  # fmt: skip
