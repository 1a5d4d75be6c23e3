"""The command `forget`: delete turns, runs, conversations and memories permanently, here or in the remote home."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

import click
from msgspec.structs import asdict, replace

from perdure.errors import UsageError
from perdure.floor.notes import parse_line
from perdure.home import Home
from perdure.surfaces.cli.common import Shell, command, confirm, format_count, format_time
from perdure.surfaces.cli.memory_common import complete_memory_ids, format_memory, memory_to_json
from perdure.surfaces.cli.search import add_filter_options, build_filters
from perdure.surfaces.memory_tool.tool import make_memory_path
from perdure.surfaces.units import format_forgotten
from perdure.text import one_line
from perdure.types import Filters, ForgetItem, ForgetReport, ForgetRequest, Memory

MAX_SHOWN = 12
NOT_DELETED = (
    "Not deleted, because they lie outside this home: the clients' own transcripts, your backups and exports, "
    "and other homes until they are merged with this one."
)


def preview_memories(shell: Shell, memories: Sequence[Memory]) -> None:
    """Print the memories that would be forgotten."""
    for memory in memories[:MAX_SHOWN]:
        shell.out.print(format_memory(memory, 80))
    if len(memories) > MAX_SHOWN:
        shell.out.print(f"  … and {len(memories) - MAX_SHOWN:,} more memories", style="dim")


@command(
    "forget",
    epilog="""\
  perdure forget t7k2m9q            one turn, by the beginning of its id
  perdure forget 01m4x8…            a run, with the runs below it
  perdure forget mem-20260301-0930  a memory, with the memories made from it
  perdure forget staging/port       all memories of a path, with their history
  perdure forget --query "my old address" --dry-run
  perdure forget --query "hunter2" --yes
  perdure forget --everything --user bob --dry-run""",
)
@click.argument("ids", nargs=-1, metavar="[ID|PATH…]", shell_complete=complete_memory_ids)
@click.option("--query", help="Delete every turn and memory that contains all these words; with filters, only turns.")
@add_filter_options
@click.option(
    "--floor",
    "with_floor",
    is_flag=True,
    help="With --query: delete also the lines of the floor, cards and proposals with these words, from every version.",
)
@click.option("--everything", is_flag=True, help="Delete all your data in this home, with its journal.")
@click.option("--user", metavar="USER", help="With --everything: the user whose data is deleted (default: you).")
@click.option("--only", is_flag=True, help="Delete only the run itself, not the runs below it.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def forget_command(
    shell: Shell,
    ids: tuple[str, ...],
    query: str | None,
    with_floor: bool,
    everything: bool,
    user: str | None,
    only: bool,
    dry_run: bool,
    yes: bool,
    **filters: object,
) -> None:
    """Delete turns, runs, conversations or memories permanently (by id, or all memories of a path): from the archive,
    the index and every copy in this home. Memories that were made from them are deleted too. Lines that a person wrote
    stay and are listed, each with the command that deletes it. A later import of the same transcript does not bring
    anything back. You cannot undo this.
    """
    if bool(ids) + bool(query) + everything != 1:
        raise UsageError("give ids, --query WORDS, or --everything")
    if not query and build_filters(**filters) != Filters():
        raise UsageError("filters need --query: they cannot limit ids")
    if with_floor and not query:
        raise UsageError("--floor needs --query; `perdure floor forget` deletes one line")
    if user and not everything:
        raise UsageError("--user needs --everything: only the owner can delete parts")
    if everything:
        with shell.open_home(user=user) as home:
            if user:
                home.sharing.require_user()
            _erase_user(shell, home, dry_run=dry_run, yes=yes)
        return
    request = ForgetRequest(ids, query or "", build_filters(**filters), cascade=not only, with_floor=with_floor)
    with shell.use_home() as home:
        report = home.forgetting.preview(request)
        if not shell.as_json:
            _preview_items(shell, report.items)
            preview_memories(shell, report.memories)
            for name, floor_line in report.lines[:MAX_SHOWN]:
                shell.out.print(f"  {name}: {one_line(floor_line, 80)}", markup=False)
            for path in report.output_files[:MAX_SHOWN]:
                shell.out.print(f"  {path}", markup=False, soft_wrap=True)
        if (report.items or report.memories or report.lines or report.output_files) and not dry_run:
            n_items = len(report.items) + len(report.lines) + len(report.output_files)
            question = f"Delete {format_forgotten(n_items, 'item', len(report.memories))} permanently?"
            if not confirm(shell, question, yes=yes):
                raise UsageError("nothing was deleted")
            report = home.forgetting.delete(request, digest=report.digest)
        if isinstance(home, Home):
            if (status := home.upkeep.store_status()) and status.warning and not dry_run:
                shell.note(f"Not deleted in the archive's store yet: {status.warning}")
            report = replace(report, left_files=tuple(str(home.path / name) for name in report.left_files))
    _print_report(shell, report, dry_run=dry_run)


def _make_forget_command(name: str, floor_line: str, op: str) -> str:
    """Return the command that deletes a line of the floor, a card, a proposal or a file of the memory tool."""
    if op == "file":
        return f"perdure forget {shlex.quote(make_memory_path(name))}"
    if op in ("card", "propose") or name.startswith(("card-", "edit-")):
        return f"perdure floor forget {name}"
    return f"perdure floor forget {name} {shlex.quote(parse_line(floor_line).words)}"


def _erase_user(shell: Shell, home: Home, *, dry_run: bool, yes: bool) -> None:
    n_runs = sum(1 for _ in home.archive.ledger.list_runs(home.user))
    linked_folders = [str(folder) for folder in home.forgetting.linked_floors()]
    if not dry_run:
        question = f"Delete all {format_count(n_runs, 'run')} of {home.user} and their journal permanently?"
        if not confirm(shell, question, yes=yes):
            raise UsageError("nothing was deleted")
        n_runs = home.forgetting.erase_user()
    if shell.as_json:
        shell.print_json(
            {
                "dry_run": dry_run,
                "user": home.user,
                "runs": n_runs,
                "not_deleted": NOT_DELETED,
                "linked": linked_folders,
            }
        )
        return
    shell.out.print(
        f"{format_count(n_runs, 'run')} of {home.user} {'would be' if dry_run else ''} deleted.".replace("  ", " ")
    )
    shell.out.print(NOT_DELETED, style="dim")
    for folder in linked_folders:
        shell.note(f"{folder} stays with its pages: only the link to it in agents/ is deleted.")


def _preview_items(shell: Shell, items: Sequence[ForgetItem]) -> None:
    for item in items[:MAX_SHOWN]:
        stated_text = format_time(item.stated_at) if item.stated_at else ""
        row = f"  {item.turn_id}  {stated_text:16}  {item.role or 'other':9}  {item.preview}"
        shell.out.print(row, markup=False)
    if len(items) > MAX_SHOWN:
        shell.out.print(f"  … and {format_count(len(items) - MAX_SHOWN, 'more item')}", style="dim")
    if items:
        shell.out.print(
            "  with every copy: in forks, and in places where the client wrote the same words again", style="dim"
        )


def _print_report(shell: Shell, report: ForgetReport, *, dry_run: bool) -> None:
    n_items, n_memories = len(report.items), len(report.memories)
    actions = [("perdure verify", "check the archive")] if report.rewritten_runs else []
    amount = format_forgotten(n_items, "item", n_memories)
    amount += f", {format_count(len(report.lines), 'line')} of the floor" if report.lines else ""
    n_outputs = len(report.output_files)
    amount += f", {format_count(n_outputs, 'waiting message or output')}" if n_outputs else ""
    left_lines = [(name, line, _make_forget_command(name, line, op)) for name, line, op in report.left_lines]
    if shell.as_json:
        shell.print_json(
            {
                "dry_run": dry_run,
                "forgotten": 0 if dry_run else n_items,
                "rewritten_runs": report.rewritten_runs,
                "items": [asdict(item) for item in report.items],
                "forgotten_memories": 0 if dry_run else n_memories,
                "memories": [memory_to_json(memory) for memory in report.memories],
                "not_deleted": NOT_DELETED,
                "forgotten_lines": 0 if dry_run else len(report.lines),
                "left_on_floor": [{"page": page, "line": line, "command": name} for page, line, name in left_lines],
                "left_files": report.left_files,
                "output_files": report.output_files,
                "transcripts": sorted({item.path for item in report.items if item.path}),
            },
            next_actions=actions,
        )
        return
    if not n_items and not n_memories and not report.lines and not n_outputs:
        shell.out.print("Nothing matches. Nothing was deleted.")
    elif dry_run:
        shell.out.print(f"{amount} would be deleted. Nothing was changed.")
    else:
        shell.out.print(f"Forgotten: {amount}; {format_count(len(report.rewritten_runs), 'run')} rewritten.")
        shell.out.print(NOT_DELETED, style="dim")
        for path, n in Counter(item.path for item in report.items if item.path).most_common(5):
            shell.out.print(f"  {path} ({format_count(n, 'item')})", style="dim", markup=False)
        shell.suggest(actions)
    if left_lines:
        shell.out.print("Left on the floor of this home, because a person or a tool wrote it there:")
        for page, line, command_line in left_lines[:MAX_SHOWN]:
            shell.out.print(f"  {page}: {one_line(line, 80)}", markup=False)
            shell.out.print(f"    {command_line}", style="dim", markup=False, soft_wrap=True)
        if len(left_lines) > MAX_SHOWN:
            shell.out.print(f"  … and {format_count(len(left_lines) - MAX_SHOWN, 'more line')} (--json)", style="dim")
        shell.out.print("`perdure forget --query WORDS --floor` deletes all lines with these words.", style="dim")
    if report.left_files:
        shell.out.print("Files in this home that may hold the same words; delete them yourself (`rm`):")
        for path in report.left_files[:MAX_SHOWN]:
            shell.out.print(f"  {path}", markup=False, soft_wrap=True)
