"""The command `review`: what recall would have told, beside its message; the person answers yes or no."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from perdure import text
from perdure.home import Home
from perdure.index.injections import ShadowBlock
from perdure.recall.judge import FittedLimits
from perdure.surfaces import shadow_review
from perdure.surfaces.cli.common import Shell, command, format_count, format_time
from perdure.surfaces.cli.settings_file import FILE_NAME, write_settings
from perdure.surfaces.shadow_review import LABELS, ReviewedBlock, SpeakingPlan
from perdure.surfaces.units import describe_recording

_MAX_SHOWN = 20  # blocks that one call shows, newest first
_MESSAGE_CHARS, _TEXT_CHARS = 600, 400  # of a message, and of one text beside it
_KEYS = {"y": "yes", "n": "no", "s": "", "q": "quit"}


@command(
    "review",
    epilog="""\
  perdure review                       answer on the terminal, one block after the other
  perdure review --yes 5f0c --no 81aa
  perdure review --speak               set this home's limits by your answers, then recall speaks
  perdure review --json""",
)
@click.option("--yes", "yes_ids", metavar="ID", multiple=True, help="This block belongs to its message (repeatable).")
@click.option("--no", "no_ids", metavar="ID", multiple=True, help="This block does not belong to it (repeatable).")
@click.option("--speak", is_flag=True, help="Set this home's own limits by all answers, and switch shadow off.")
@click.option("--all", "with_answered", is_flag=True, help="Show the blocks that are already answered, too.")
def review_command(
    shell: Shell, yes_ids: Sequence[str], no_ids: Sequence[str], speak: bool, with_answered: bool
) -> None:
    """Show the blocks that were recorded in shadow (`live.shadow`), each beside its message, and keep your answers:
    should an agent have got it? Runs at the home's own machine. The answers are labels in this home's journal.
    """
    with shell.open_home() as home:
        blocks = home.memories.list_shadow_blocks()
        if yes_ids or no_ids:
            _answer_by_id(home, blocks, {**dict.fromkeys(yes_ids, "yes"), **dict.fromkeys(no_ids, "no")})
            blocks = home.memories.list_shadow_blocks()
        shown = [block for block in blocks if with_answered or not block.label][::-1][:_MAX_SHOWN]
        if speak:
            _speak(shell, home.path, shadow_review.plan_speaking(blocks))
            return
        if shell.as_json or not (yes_ids or no_ids):
            reviewed = shadow_review.read_blocks(home, shown)
            if not shell.as_json:
                _show_blocks(shell, home, reviewed, can_ask=sys.stdin.isatty())
                blocks = home.memories.list_shadow_blocks()
    counts = Counter(block.label for block in blocks)
    if shell.as_json:
        n_answers = {answer or "open": counts[label] for answer, label in LABELS.items()}
        shell.print_json({"recorded": len(blocks), "answers": n_answers, "blocks": [one.to_json() for one in reviewed]})
        return
    shell.out.print(_describe_counts(blocks, counts), markup=False)


def _speak(shell: Shell, home: Path, plan: SpeakingPlan) -> None:
    """Write the limits and switch shadow off; say what changed and how to go back."""
    write_settings(home, plan.list_changes())
    if shell.as_json:
        fits = {model: {**fit.limits._asdict(), **_count_fit(fit)} for model, fit in plan.fits.items()}
        shell.print_json({"config": str(home / FILE_NAME), "limits": fits, "too_few_answers": dict(plan.n_few)})
        return
    shell.out.print(f"Recall speaks from now on: live.shadow = false in {home / FILE_NAME}.", markup=False)
    for line in plan.describe():
        shell.out.print(f"  {line}", markup=False)
    shell.suggest([
        ("perdure start --shadow", "only record again"),
        ("perdure why", "see the last recall, and its reasons"),
    ])  # fmt: skip
    if plan.fits:
        shell.note(f"For the built-in limits, remove the [live.limits...] tables from {FILE_NAME}.")


def _count_fit(fit: FittedLimits) -> dict[str, int]:
    names = ("n_wanted", "n_unwanted", "n_wanted_told", "n_unwanted_told")
    return {name: getattr(fit, name) for name in names}


def _answer_by_id(home: Home, blocks: Sequence[ShadowBlock], answers: dict[str, str]) -> None:
    """Keep the answers; none is kept if one id is unknown."""
    found = {identifier: shadow_review.find_block(blocks, identifier) for identifier in answers}
    for identifier, answer in answers.items():
        home.memories.label_block(found[identifier].injection.nonce, LABELS[answer])


def _show_blocks(shell: Shell, home: Home, reviewed: Sequence[ReviewedBlock], *, can_ask: bool) -> None:
    """Print the blocks; on a terminal, ask about each."""
    for number, one in enumerate(reviewed, start=1):
        shell.out.print(f"\n{number} of {len(reviewed)}", style="bold", markup=False)
        _print_side_by_side(shell, one)
        if not can_ask:
            continue
        key = click.prompt(
            "Should the agent have got this? (y)es, (n)o, (s)kip, (q)uit",
            type=click.Choice(list(_KEYS), case_sensitive=False),
            show_choices=False,
            err=True,
        )
        if _KEYS[key] == "quit":
            return
        if _KEYS[key]:
            home.memories.label_block(one.nonce, LABELS[_KEYS[key]])


def _print_side_by_side(shell: Shell, one: ReviewedBlock) -> None:
    from rich.table import Table  # 10 ms
    from rich.text import Text

    injection = one.block.injection
    place = text.shorten_project(one.project) or injection.runtime
    table = Table(expand=True, show_edge=False, pad_edge=False)
    table.add_column(f"message  {format_time(one.at)}  {place}", ratio=2)
    table.add_column(f"what the agent would have got  {one.nonce[:8]}", ratio=3)
    message = one.message[:_MESSAGE_CHARS] or "(the message is not captured)"
    told = "\n\n".join(block_text[:_TEXT_CHARS] for block_text in one.texts) or "(forgotten)"
    table.add_row(Text(message), Text(told))
    shell.out.print(table)
    if one.answer:
        shell.out.print(f"answered: {one.answer}", style="dim", markup=False)


def _describe_counts(blocks: Sequence[ShadowBlock], counts: Counter[str]) -> str:
    if not blocks:
        return "Nothing is recorded: `perdure start --shadow` lets recall record for some time, and say nothing."
    n_yes, n_no, n_open = (counts[LABELS[answer]] for answer in ("yes", "no", ""))
    return (
        f"{describe_recording(len(blocks)).partition(';')[0]}: "
        f"{n_yes} yes, {n_no} no, {format_count(n_open, 'block')} without an answer."
    )
