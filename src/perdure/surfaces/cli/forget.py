"""The command `forget`: delete turns, runs, conversations and memories permanently.

On a thin machine the remote home says what would go, and deletes it once that is confirmed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from perdure.archive.forget import ForgetTarget
from perdure.capture.policy import CaptureRules
from perdure.errors import MemoryMissing, NotFound, ThinHome, UsageError
from perdure.home import Home
from perdure.index.memory_replay import get_chain
from perdure.remote_home import RemoteHome, get_items, open_remote_home, to_noun
from perdure.surfaces.cli.common import Shell, command, confirm, format_count, format_time
from perdure.surfaces.cli.memory_common import ID_PREFIX, complete_memory_ids, format_memory, memory_to_json
from perdure.surfaces.cli.search import add_filter_options, build_filters
from perdure.surfaces.units import format_forgotten
from perdure.text import one_line
from perdure.types import Filters, Memory

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


ForgetReply = dict[str, Any]


def forget_remotely(
    shell: Shell, rules: CaptureRules, ids: Sequence[str], *, cascade: bool, dry_run: bool, yes: bool
) -> None:
    """Forget runs at the remote home. Raises ThinHome for what its API cannot forget."""
    if not ids:
        raise ThinHome(rules.remote.url)
    with open_remote_home(rules) as remote_home:
        runs = [_resolve_remote_run(remote_home, name) for name in ids]
        previews = [remote_home.forget(run, cascade=cascade, dry_run=True) for run in runs]
        items, memories = _collect_turns(previews), _collect_memories(previews)
        if not shell.as_json:
            _preview_remote_turns(shell, items)
            preview_memories(shell, memories)
        replies: list[ForgetReply] = []
        if (items or memories) and not dry_run:
            question = f"Delete {format_forgotten(len(items), 'item', len(memories))} permanently?"
            if not confirm(shell, question, yes=yes):
                raise UsageError("nothing was deleted")
            replies = [remote_home.forget(run, cascade=cascade, dry_run=False) for run in runs]
    _print_remote_report(shell, previews, replies, dry_run=dry_run)


def _resolve_remote_run(remote_home: RemoteHome, name: str) -> str:
    """Return the run of an id. Raises ThinHome for anything else, also for the path of a memory."""
    try:
        kind, run_id = remote_home.resolve(name)
    except (NotFound, UsageError):
        if "/" in name:
            raise ThinHome(remote_home.url) from None
        raise
    if kind != "run":
        raise ThinHome(remote_home.url)
    return run_id


def _collect_turns(replies: Sequence[ForgetReply]) -> list[ForgetReply]:
    """Return the turns to forget, each once, in the order in which the home lists them."""
    return list(
        {(item["run_id"], item["turn_id"]): item for reply in replies for item in get_items(reply, "items")}.values()
    )


def _collect_memories(replies: Sequence[ForgetReply]) -> list[Memory]:
    memories = [to_noun(item, Memory) for reply in replies for item in get_items(reply, "memories")]
    return list({memory.memory_id: memory for memory in memories}.values())


def _preview_remote_turns(shell: Shell, items: Sequence[ForgetReply]) -> None:
    for item in items[:MAX_SHOWN]:
        stated_text = str(item.get("stated_at") or "")[:16].replace("T", " ")
        row = f"  {item['turn_id']}  {stated_text:16}  {item.get('role') or 'other':9}  {item.get('preview')}"
        shell.out.print(row, markup=False)
    if len(items) > MAX_SHOWN:
        shell.out.print(f"  … and {format_count(len(items) - MAX_SHOWN, 'more item')}", style="dim")


def _print_remote_report(
    shell: Shell, previews: Sequence[ForgetReply], replies: Sequence[ForgetReply], *, dry_run: bool
) -> None:
    items, memories = _collect_turns(previews), _collect_memories(previews)
    rewritten_runs = sorted({run for reply in replies for run in reply.get("rewritten_runs", ())})
    if shell.as_json:
        shell.print_json(
            {
                "dry_run": dry_run,
                "forgotten": len(items) if replies else 0,
                "rewritten_runs": rewritten_runs,
                "items": items,
                "forgotten_memories": len(memories) if replies else 0,
                "memories": list(map(memory_to_json, memories)),
                "not_deleted": NOT_DELETED,
                "left_on_floor": [floor_line for reply in previews for floor_line in reply.get("left_on_floor", ())],
                "transcripts": sorted({path for reply in previews for path in reply.get("transcripts", ())}),
            },
        )
    elif not items and not memories:
        shell.out.print("Nothing matches. Nothing was deleted.")
    elif not replies:
        shell.out.print(f"{format_forgotten(len(items), 'item', len(memories))} would be deleted. Nothing was changed.")
    else:
        shell.out.print(
            f"Forgotten: {format_forgotten(len(items), 'item', len(memories))}; "
            f"{format_count(len(rewritten_runs), 'run')} rewritten."
        )
        shell.out.print(NOT_DELETED, style="dim")


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
@click.option("--everything", is_flag=True, help="Delete all your data in this home, with its journal.")
@click.option("--user", metavar="USER", help="With --everything: the user whose data is deleted (default: you).")
@click.option("--only", is_flag=True, help="Delete only the run itself, not the runs below it.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def forget_command(
    shell: Shell,
    ids: tuple[str, ...],
    query: str | None,
    everything: bool,
    user: str | None,
    only: bool,
    dry_run: bool,
    yes: bool,
    **filters: object,
) -> None:
    """Delete turns, runs, conversations or memories permanently (by id, or all memories of a path): from the archive,
    the index and every copy in this home. Memories that were made from them are deleted too. A later import of the same
    transcript does not bring them back. You cannot undo this.
    """
    if bool(ids) + bool(query) + everything != 1:
        raise UsageError("give ids, --query WORDS, or --everything")
    if not query and build_filters(**filters) != Filters():
        raise UsageError("filters need --query: they cannot limit ids")
    if user and not everything:
        raise UsageError("--user needs --everything: only the owner can delete parts")
    if (rules := shell.load_thin_rules()) is not None:
        forget_remotely(shell, rules, ids, cascade=not only, dry_run=dry_run, yes=yes)
        return
    with shell.open_home(user=user) as home:
        if user:
            home.sharing.require_user()
        if everything:
            _erase_user(shell, home, dry_run=dry_run, yes=yes)
            return
        home.upkeep.catch_up()
        targets, memories = _select_targets(home, ids, query, filters, cascade=not only)
        if not shell.as_json:
            _preview_turns(shell, targets)
            preview_memories(shell, memories)
        rewritten_runs: list[str] = []
        if (targets or memories) and not dry_run:
            if not confirm(
                shell, f"Delete {format_forgotten(len(targets), 'item', len(memories))} permanently?", yes=yes
            ):
                raise UsageError("nothing was deleted")
            rewritten_runs = home.forgetting.apply(targets, memories=[memory.memory_id for memory in memories])
        _print_report(
            shell,
            targets,
            memories,
            rewritten_runs,
            dry_run=dry_run,
            floor_lines=home.forgetting.floor_lines_quoting(targets),
        )


def _select_targets(
    home: Home, ids: tuple[str, ...], query: str | None, filters: Mapping[str, object], *, cascade: bool
) -> tuple[list[ForgetTarget], list[Memory]]:
    """Return the (turns, memories) to forget, with the memories that were made from them."""
    if query:
        query_filters = build_filters(**filters)
        targets = home.forgetting.plan_by_query(query, filters=query_filters)
        named_memories = [] if query_filters != Filters() else home.forgetting.memories_by_query(query)
    else:
        memory_ids_by_name = {name: _find_memory_ids(home, name) for name in ids}
        targets = home.forgetting.plan(
            [name for name, memories in memory_ids_by_name.items() if not memories], cascade=cascade
        )
        named_memories = home.forgetting.memories_of(
            memories=[memory_id for memories in memory_ids_by_name.values() for memory_id in memories]
        )
    return targets, home.forgetting.memories_of(targets, [memory.memory_id for memory in named_memories])


def _find_memory_ids(home: Home, name: str) -> list[str]:
    """Return the ids of the memories that a name means: itself, or all that was stated at this path; none if it is
    no path.

    Raises UsageError for a name that could mean something else as well: nothing is deleted on a guess.
    """
    if name.startswith(ID_PREFIX):
        return [name]
    try:
        stated = home.memories.history(name)
    except (MemoryMissing, UsageError):  # no memory has this path, or it cannot be a path
        return []
    if _is_id(home, name):
        raise UsageError(f"{name!r} is both the path of a memory and the beginning of an id: write the id in full")
    if len({get_chain(memory) for memory in stated}) > 1:
        ids = ", ".join(memory.memory_id for memory in stated)
        raise UsageError(f"several projects have memories at {name!r}: give the ids to delete ({ids})")
    return [memory.memory_id for memory in stated]


def _is_id(home: Home, name: str) -> bool:
    try:
        home.resolve(name)
    except (NotFound, UsageError):  # no id, too short, or the beginning of several ids
        return False
    return True


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


def _preview_turns(shell: Shell, targets: list[ForgetTarget]) -> None:
    for item in targets[:MAX_SHOWN]:
        role = item.turn.role if item.turn else "other"
        stated_text = format_time(item.turn.stated_at) if item.turn else ""
        shell.out.print(f"  {item.turn_id}  {stated_text:16}  {role:9}  {item.preview}", markup=False)
    if len(targets) > MAX_SHOWN:
        shell.out.print(f"  … and {format_count(len(targets) - MAX_SHOWN, 'more item')}", style="dim")
    if targets:
        shell.out.print(
            "  with every copy: in forks, and in places where the client wrote the same words again", style="dim"
        )


def _target_to_json(item: ForgetTarget) -> dict[str, object]:
    role = item.turn.role if item.turn else None
    return {"turn_id": item.turn_id, "run_id": item.run.run_id, "role": role, "preview": item.preview}


def _print_report(
    shell: Shell,
    targets: list[ForgetTarget],
    memories: list[Memory],
    rewritten_runs: list[str],
    *,
    dry_run: bool,
    floor_lines: Sequence[tuple[str, str]],
) -> None:
    actions = [("perdure verify", "check the archive")] if rewritten_runs else []
    amount = format_forgotten(len(targets), "item", len(memories))
    if shell.as_json:
        shell.print_json(
            {
                "dry_run": dry_run,
                "forgotten": 0 if dry_run else len(targets),
                "rewritten_runs": rewritten_runs,
                "items": [_target_to_json(item) for item in targets],
                "forgotten_memories": 0 if dry_run else len(memories),
                "memories": [memory_to_json(memory) for memory in memories],
                "not_deleted": NOT_DELETED,
                "left_on_floor": [{"page": page, "line": floor_line} for page, floor_line in floor_lines],
                "transcripts": sorted({target.run.path for target in targets if target.run.path}),
            },
            next_actions=actions,
        )
        return
    if not targets and not memories:
        shell.out.print("Nothing matches. Nothing was deleted.")
    elif dry_run:
        shell.out.print(f"{amount} would be deleted. Nothing was changed.")
    else:
        shell.out.print(f"Forgotten: {amount}; {format_count(len(rewritten_runs), 'run')} rewritten.")
        shell.out.print(NOT_DELETED, style="dim")
        for path, n_items in Counter(target.run.path for target in targets if target.run.path).most_common(5):
            shell.out.print(f"  {path} ({format_count(n_items, 'item')})", style="dim", markup=False)
        shell.suggest(actions)
    if floor_lines:
        shell.out.print("Lines of the floor with the same words that a person wrote stay:")
        for page, floor_line in floor_lines[:MAX_SHOWN]:
            shell.out.print(f"  {page}: {one_line(floor_line, 80)}", markup=False)
        shell.out.print("`perdure floor forget` deletes such a line.", style="dim")
