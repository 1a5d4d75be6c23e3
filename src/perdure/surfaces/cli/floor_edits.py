"""Commands for the decisions of the owner about the floor: propose, proposals, approve, reject, alerts, allow,
forget.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.shell_completion import CompletionItem
from rich.text import Text

from perdure import text
from perdure.access.redact import mask
from perdure.access.shown_alerts import DIGEST_CHARS
from perdure.errors import FloorMissing, UsageError
from perdure.floor import pages
from perdure.floor.floor import Floor
from perdure.floor.layers import Suspect
from perdure.floor.state import EditProposal
from perdure.home import Home
from perdure.surfaces.cli.common import Shell, command, confirm, format_count
from perdure.surfaces.cli.floor_common import (
    complete_pages,
    format_hybrid_time,
    page_argument,
    print_difference,
)
from perdure.surfaces.cli.floor_notes import complete_cards
from perdure.surfaces.cli.memory_common import read_words
from perdure.surfaces.text_diff import make_unified_diff

if TYPE_CHECKING:
    from perdure.agent.self_edit import EditDecision

_id_argument = click.argument("identifier", metavar="ID")
_SURFACE = "terminal"  # where a decision was made, as the journal keeps it

# proposals ----------------------------------------------------------------------------------------------------


@command(
    "propose",
    epilog="""\
  perdure floor propose system - --why "it forgets to run the tests" < system.md
  perdure floor propose agent.yaml - --json < agent.yaml""",
)
@page_argument
@click.argument("words", nargs=-1, metavar="TEXT…|-")
@click.option("--why", default="", help="The reason, shown to the owner.")
def propose_command(shell: Shell, page: str, words: tuple[str, ...], why: str) -> None:
    """Propose an edit to the owner. An agent uses this to change its system prompt, its settings or a skill. Give the
    whole new text of the page. Nothing changes until the owner approves; then the change applies from the next session
    on.
    """
    from perdure.agent.self_edit import propose_edit

    new_text = read_words(words, "the new text", page=page)
    with shell.open_home(create=True) as home:
        proposal = propose_edit(home, page, new_text, why=why)
        old_text = home.floor.read(proposal.name)
    actions = [(f"perdure floor approve {proposal.id}", "approve it (the owner)")]
    if shell.as_json:
        shell.print_json(_proposal_to_json(proposal, old_text), next_actions=actions)
        return
    print_difference(shell, old_text, proposal.text, proposal.name)
    shell.out.print(f"{proposal.id} waits for the owner. Nothing has changed.", style="bold", markup=False)
    shell.suggest(actions)


@command("proposals", epilog="  perdure floor proposals\n  perdure floor proposals --all --json")
@click.option("--all", "include_all", is_flag=True, help="Also list the decided proposals.")
def proposals_command(shell: Shell, include_all: bool) -> None:
    """List the proposed edits that wait for your decision, each as a difference."""
    with shell.open_home() as home:
        proposals = home.floor.list_proposals(with_decided=include_all)
        old_texts = {proposal.name: home.floor.read(proposal.name) for proposal in proposals}
    if shell.as_json:
        shell.print_json(
            {"proposals": [_proposal_to_json(proposal, old_texts[proposal.name]) for proposal in proposals]}
        )
        return
    for proposal in proposals:
        _print_proposal(shell, proposal, old_texts[proposal.name])
    waiting = [proposal for proposal in proposals if not proposal.outcome]
    if not waiting:
        shell.out.print("No proposed edits are waiting.")
        return
    shell.suggest(
        [
            (f"perdure floor approve {waiting[0].id}", "approve it"),
            (f"perdure floor reject {waiting[0].id}", "reject it"),
        ]
    )


def _print_proposal(shell: Shell, proposal: EditProposal, old_text: str) -> None:
    from perdure.agent.self_edit import describe_powers

    header = Text(f"{proposal.id}  ", style="bold") + Text(
        f"{proposal.name}  by {proposal.by}, {format_hybrid_time(proposal.at)}"
    )
    shell.out.print(header + Text(f"  [{_describe_decision(proposal)}]" if proposal.outcome else ""))
    if proposal.why:
        shell.out.print(f"  {text.one_line(mask(proposal.why), 200)}", markup=False)
    if proposal.origin:
        shell.out.print(f"  {text.printable(proposal.origin)}", markup=False, style="yellow" * bool(proposal.readings))
    if not proposal.outcome:
        if powers := describe_powers(proposal.name, old_text, proposal.text):
            shell.out.print(f"  {powers}", markup=False, style="yellow")
        print_difference(shell, old_text, proposal.text, proposal.name)


def _describe_decision(proposal: EditProposal) -> str:
    surface = f" in the {proposal.surface}" if proposal.surface else ""
    return f"{proposal.outcome} {format_hybrid_time(proposal.decided_at)}{surface}"


def _proposal_to_json(proposal: EditProposal, old_text: str) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(proposal)
    difference_lines = [] if proposal.outcome else make_unified_diff(mask(old_text), mask(proposal.text), proposal.name)
    return fields | {"text": mask(proposal.text), "outcome": proposal.outcome or None, "difference": difference_lines}


@command("approve", epilog="  perdure floor approve edit-3f9c2a11\n  perdure floor approve edit-3f9c2a11 --yes --json")
@_id_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def approve_command(shell: Shell, identifier: str, yes: bool) -> None:
    """Show a proposed edit, ask, and make it. The change applies from the next session on; running sessions keep the
    old text.
    """
    from perdure.agent.self_edit import decide_edit, refuse_agents

    refuse_agents()
    with shell.open_home() as home:
        proposal = home.floor.get_proposal(identifier)
        old_text = home.floor.read(proposal.name)
        if not shell.as_json:
            _print_proposal(shell, proposal, old_text)
            for finding in home.floor.find_injections(proposal.text):
                shell.note(f"It reads like an instruction to a model ({finding.rule}: {finding.excerpt!r}).")
        if not _confirm_as_owner(shell, "Make this edit?", yes=yes):
            shell.out.print("Nothing was changed.")
            return
        decision = decide_edit(home, proposal.id, is_approved=True, surface=_SURFACE)
    _report_decision(shell, decision, {"approved": True, "event": decision.event})


@command("reject", epilog="  perdure floor reject edit-3f9c2a11")
@_id_argument
def reject_command(shell: Shell, identifier: str) -> None:
    """Reject a proposed edit. Nothing changes; `perdure floor proposals --all` still lists it."""
    from perdure.agent.self_edit import decide_edit

    with shell.open_home() as home:
        decision = decide_edit(home, identifier, is_approved=False, surface=_SURFACE)
    _report_decision(shell, decision, {"approved": False})


def _report_decision(shell: Shell, decision: EditDecision, fields: Mapping[str, Any]) -> None:
    if shell.as_json:
        shell.print_json({"proposal": decision.proposal.id, "page": decision.proposal.name, **fields})
    else:
        shell.out.print(decision.words, style="bold", markup=False)


def _confirm_as_owner(shell: Shell, question: str, *, yes: bool) -> bool:
    """Ask the owner; return True for yes. Raises UsageError without a terminal, unless --yes was given."""
    if yes:
        return True
    if shell.as_json or not sys.stdin.isatty():
        raise UsageError("this needs the owner's confirmation: add --yes to confirm")
    return click.confirm(question, default=False, err=True)


# alerts -------------------------------------------------------------------------------------------------------


@command("alerts", epilog="  perdure floor alerts\n  perdure floor alerts --json")
def alerts_command(shell: Shell) -> None:
    """List the texts that are left out of every context because they read like an instruction to a model, each with the
    reason. The texts themselves are not changed; `perdure floor allow` allows one.
    """
    with shell.open_home() as home:
        suspects = _list_suspects(home)
    actions = [(f"perdure floor allow {suspects[0].digest[:DIGEST_CHARS]}", "allow this text")] if suspects else []
    if shell.as_json:
        shell.print_json({"alerts": [_suspect_to_json(suspect) for suspect in suspects]}, next_actions=actions)
        return
    for suspect in suspects:
        shell.out.print(
            Text(f"{suspect.digest[:DIGEST_CHARS]}  {suspect.location}  ", style="bold")
            + Text(suspect.finding.rule, style="yellow")
        )
        shell.out.print(f"  {text.one_line(mask(suspect.finding.excerpt), 160)}", markup=False)
    if not suspects:
        shell.out.print("Nothing is left out.")
    shell.suggest(actions)


def _list_suspects(home: Home) -> Sequence[Suspect]:
    """Return the texts that are left out of a session that begins here, and those that recall left out."""
    return home.floor.list_held_back(cwd=str(Path.cwd()))


def _suspect_to_json(suspect: Suspect) -> dict[str, Any]:
    return {
        "where": suspect.location,
        "digest": suspect.digest,
        "rule": suspect.finding.rule,
        "score": suspect.finding.score,
        "excerpt": mask(suspect.finding.excerpt),
    }


@command(
    "allow",
    epilog="""\
  perdure floor allow 3f9c2a11          by the digest that `perdure floor alerts` shows
  perdure floor allow notes
  perdure floor allow mem-20260301-120000-3f9c2a        a memory or a turn that recall left out
  perdure floor allow card-3f9c2a11""",
)
@click.argument("name", metavar="PAGE|CARD|MEMORY|TURN|DIGEST")
def allow_command(shell: Shell, name: str) -> None:
    """Allow exactly this text, which was left out. If the text changes, it is checked again."""
    from perdure.agent.self_edit import refuse_agents

    refuse_agents()
    with shell.open_home() as home:
        suspect = _find_suspect(_list_suspects(home), name)
        home.floor.allow(suspect.text, location=suspect.location)
    if shell.as_json:
        shell.print_json({"allowed": _suspect_to_json(suspect)})
    else:
        shell.out.print(f"{suspect.location}: allowed as it is. {pages.NEXT_SESSION}", style="bold", markup=False)


def _find_suspect(suspects: Sequence[Suspect], name: str) -> Suspect:
    """Return the one suspect that a page, a card or the beginning of a digest names. Raises FloorMissing,
    UsageError.
    """
    names = {name, f"{name}.md"}
    matches = [suspect for suspect in suspects if suspect.location in names]
    matches = matches or [
        suspect for suspect in suspects if suspect.digest.startswith(name) or suspect.location.startswith(name)
    ]
    if not name or not matches:
        raise FloorMissing(f"no text {text.printable(name)!r} is left out: `perdure floor alerts` lists the texts")
    if len({suspect.digest for suspect in matches}) > 1:
        raise UsageError(f"{name!r} matches {format_count(len(matches), 'text')}: give more characters of the digest")
    return matches[0]


_ID_PREFIXES = ("card-", "edit-")


def _complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [*complete_pages(ctx, param, incomplete), *complete_cards(ctx, param, incomplete)]


@command(
    "forget",
    epilog="""\
  perdure floor forget notes "The shed key is under the mat"
  perdure floor forget diary/2026-11-21 - --yes < line.txt
  perdure floor forget card-3f9c2a11
  perdure floor forget edit-77a0b1c2 --yes --json""",
)
@click.argument("name", metavar="PAGE|ID", shell_complete=_complete_names)
@click.argument("words", nargs=-1, metavar="[LINE…|-]")
@click.option("--dry-run", is_flag=True, help="Only check that the text exists; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def forget_command(shell: Shell, name: str, words: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Delete a line of a page, a card or a proposal permanently: from the page and its whole history, in this home and
    in all homes that are merged with it. You cannot undo this.
    """
    has_id = name.startswith(_ID_PREFIXES)
    if has_id == bool(words):
        raise UsageError("give a page and the words of one of its lines, or only the id of a card or a proposal")
    line = read_words(words, "the line").strip() if words else ""
    if len(line.splitlines()) > 1:
        raise UsageError("give one line")
    with shell.open_home() as home:
        full_name = home.floor.check_item(name) if has_id else home.floor.check_line(name, line)
        if not dry_run:
            _forget_confirmed(shell, home.floor, full_name, line, yes=yes)
    if shell.as_json:
        shell.print_json({"name": full_name, "dry_run": dry_run, "forgotten": not dry_run})
        return
    subject = f"A line of {full_name}" if line else full_name
    shell.out.print(f"{subject}: {'would be forgotten' if dry_run else 'forgotten'}.", style="bold", markup=False)


def _forget_confirmed(shell: Shell, floor: Floor, name: str, line: str, *, yes: bool) -> None:
    subject = f"this line of {name}" if line else name
    if not confirm(shell, f"Delete {subject} permanently, from every state of the page?", yes=yes):
        raise UsageError("nothing was deleted")
    if line:
        floor.forget_line(name, line)
    else:
        floor.forget_item(name)
