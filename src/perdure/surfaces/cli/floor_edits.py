"""Commands about what its owner decides of the floor: propose, proposals, approve, reject, alerts, allow."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from perdure import text
from perdure.access.redact import mask
from perdure.access.told import DIGEST_CHARS
from perdure.errors import FloorMissing, UsageError
from perdure.floor import pages
from perdure.floor.layers import Suspect
from perdure.floor.state import Proposal
from perdure.home import Home
from perdure.surfaces.cli.common import Shell, command, plural
from perdure.surfaces.cli.memory import said
from perdure.surfaces.cli.page import NEXT_SESSION, page_argument, print_difference, when
from perdure.surfaces.differences import difference

_id = click.argument("identifier", metavar="ID")

# proposals ----------------------------------------------------------------------------------------------------


@command(
    "propose",
    epilog="""\
  perdure floor propose system - --why "it forgets to run the tests" < system.md
  perdure floor propose agent.yaml - --json < agent.yaml""",
)
@page_argument
@click.argument("words", nargs=-1, metavar="TEXT…|-")
@click.option("--why", default="", help="Why, for the owner.")
def propose_command(shell: Shell, page: str, words: tuple[str, ...], why: str) -> None:
    """Ask the owner for an edit: what an agent does to change its system prompt, its settings or a skill. Give the
    whole new text of the page. Nothing changes until the owner approves, and then from the next session on.
    """
    fresh = said(words, "the new text", page=page)
    with shell.open(create=True) as home:
        wanted = home.floor.propose(pages.checked(page), fresh, why=why)
        old = home.floor.read(wanted.name)
    after = [(f"perdure floor approve {wanted.id}", "what the owner does to make it")]
    if shell.as_json:
        shell.answer(_proposal_json(wanted, old), next_actions=after)
        return
    print_difference(shell, old, wanted.text, wanted.name)
    shell.out.print(f"{wanted.id}: waits for the owner. Nothing has changed.", style="bold", markup=False)
    shell.suggest(after)


@command("proposals", epilog="  perdure floor proposals\n  perdure floor proposals --all --json")
@click.option("--all", "every", is_flag=True, help="Also those that were decided.")
def proposals_command(shell: Shell, every: bool) -> None:
    """The edits that wait for you, each as the difference that it would make."""
    with shell.open() as home:
        found = home.floor.proposals(every=every)
        old = {one.name: home.floor.read(one.name) for one in found}
    if shell.as_json:
        shell.answer({"proposals": [_proposal_json(one, old[one.name]) for one in found]})
        return
    for one in found:
        _print_proposal(shell, one, old[one.name])
    waiting = [one for one in found if not one.outcome]
    if not waiting:
        shell.out.print("Nothing waits for you.")
        return
    shell.suggest([(f"perdure floor approve {waiting[0].id}", "make it"),
                   (f"perdure floor reject {waiting[0].id}", "turn it down")])  # fmt: skip


def _print_proposal(shell: Shell, one: Proposal, old: str) -> None:
    head = Text(f"{one.id}  ", style="bold") + Text(f"{one.name}  by {one.by}, {when(one.at)}")
    shell.out.print(head + Text(f"  [{one.outcome}]" if one.outcome else ""))
    if one.why:
        shell.out.print(f"  {text.one_line(mask(one.why), 200)}", markup=False)
    if not one.outcome:
        print_difference(shell, old, one.text, one.name)


def _proposal_json(one: Proposal, old: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.structs.asdict(one)
    more = [] if one.outcome else difference(mask(old), mask(one.text), one.name)
    return found | {"text": mask(one.text), "outcome": one.outcome or None, "difference": more}


@command("approve", epilog="  perdure floor approve edit-3f9c2a11\n  perdure floor approve edit-3f9c2a11 --yes --json")
@_id
@click.option("--yes", is_flag=True, help="Do not ask.")
def approve_command(shell: Shell, identifier: str, yes: bool) -> None:
    """Make a proposed edit, after showing it. It is in force from the next session on: one that goes on keeps what it
    began with.
    """
    with shell.open() as home:
        wanted = home.floor.proposal(identifier)
        old = home.floor.read(wanted.name)
        if not shell.as_json:
            _print_proposal(shell, wanted, old)
            for finding in home.floor.suspicious(wanted.text):
                shell.note(f"It reads like an instruction to a model ({finding.rule}: {finding.excerpt!r}).")
        if not _agreed(shell, "Make this edit?", yes=yes):
            shell.out.print("Left as it was.")
            return
        made = home.floor.approve(wanted.id)
    if shell.as_json:
        shell.answer({"proposal": wanted.id, "page": wanted.name, "approved": True, "event": made.event})
    else:
        shell.out.print(f"{wanted.name}: written. {NEXT_SESSION}", style="bold", markup=False)


@command("reject", epilog="  perdure floor reject edit-3f9c2a11")
@_id
def reject_command(shell: Shell, identifier: str) -> None:
    """Turn a proposed edit down. Nothing changes; it stays in `perdure floor proposals --all`."""
    with shell.open() as home:
        found = home.floor.reject(identifier)
    if shell.as_json:
        shell.answer({"proposal": found.id, "page": found.name, "approved": False})
    else:
        shell.out.print(f"{found.id}: turned down. Nothing has changed.", style="bold", markup=False)


def _agreed(shell: Shell, question: str, *, yes: bool) -> bool:
    """Whether the owner says yes. Without a terminal to ask on, --yes must have been given."""
    if yes:
        return True
    if shell.as_json or not sys.stdin.isatty():
        raise UsageError("the owner decides this: add --yes to do it without being asked")
    return click.confirm(question, default=False, err=True)


# alerts -------------------------------------------------------------------------------------------------------


@command("alerts", epilog="  perdure floor alerts\n  perdure floor alerts --json")
def alerts_command(shell: Shell) -> None:
    """What is kept out of every context because it reads like an instruction to a model, and why. It stays where it is;
    `perdure floor allow` lets it through.
    """
    with shell.open() as home:
        found = _suspects(home)
    after = [(f"perdure floor allow {found[0].digest[:DIGEST_CHARS]}", "let this text through")] if found else []
    if shell.as_json:
        shell.answer({"alerts": [_suspect_json(one) for one in found]}, next_actions=after)
        return
    for one in found:
        shell.out.print(
            Text(f"{one.digest[:DIGEST_CHARS]}  {one.where}  ", style="bold") + Text(one.finding.rule, style="yellow")
        )
        shell.out.print(f"  {text.one_line(mask(one.finding.excerpt), 160)}", markup=False)
    if not found:
        shell.out.print("Nothing is left out.")
    shell.suggest(after)


def _suspects(home: Home) -> Sequence[Suspect]:
    """What is left out of a session that begins here, and of what recall met."""
    return home.held_back(cwd=str(Path.cwd()))


def _suspect_json(one: Suspect) -> dict[str, Any]:
    return {
        "where": one.where, "digest": one.digest, "rule": one.finding.rule, "score": one.finding.score,
        "excerpt": mask(one.finding.excerpt),
    }  # fmt: skip


@command(
    "allow",
    epilog="""\
  perdure floor allow 3f9c2a11          by what `perdure floor alerts` calls it
  perdure floor allow notes
  perdure floor allow mem-20260301-120000-3f9c2a        a memory, or a turn, that recall left out
  perdure floor allow card-3f9c2a11""",
)
@click.argument("what", metavar="PAGE|CARD|MEMORY|TURN|DIGEST")
def allow_command(shell: Shell, what: str) -> None:
    """Let a text through that was left out: this very text. Once it is changed, it is looked at again."""
    with shell.open() as home:
        found = _named(_suspects(home), what)
        home.floor.allow(found.text, where=found.where)
    if shell.as_json:
        shell.answer({"allowed": _suspect_json(found)})
    else:
        shell.out.print(f"{found.where}: allowed as it is. {NEXT_SESSION}", style="bold", markup=False)


def _named(suspects: Sequence[Suspect], what: str) -> Suspect:
    """The one suspect that a page, a card or the beginning of a digest names. Raises FloorMissing, UsageError."""
    names = {what, f"{what}.md"}
    found = [one for one in suspects if one.where in names]
    found = found or [one for one in suspects if one.digest.startswith(what) or one.where.startswith(what)]
    if not what or not found:
        raise FloorMissing(f"{text.printable(what)!r} among what is left out (`perdure floor alerts` lists it)")
    if len({one.digest for one in found}) > 1:
        raise UsageError(f"{what!r} names {plural(len(found), 'text')}: write more of the digest")
    return found[0]
