"""Forget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import click

from perdure.errors import MemoryMissing, NotFound, UsageError
from perdure.forget import Doomed
from perdure.home import Home
from perdure.memories.replay import chain_of
from perdure.surfaces.amounts import going
from perdure.surfaces.cli import thin_forget
from perdure.surfaces.cli.common import Shell, command, confirmed, day, plural
from perdure.surfaces.cli.doomed import OUTSIDE, SHOWN, preview_memories
from perdure.surfaces.cli.find import chosen_filters, filter_options
from perdure.surfaces.cli.memory import ID_PREFIX, complete_ids, memory_json
from perdure.text import one_line
from perdure.types import Filters, Memory


@command(
    "forget",
    epilog="""\
  perdure forget t7k2m9q            one turn (any unique beginning of its id)
  perdure forget 01m4x8…            a run, with the runs below it
  perdure forget mem-20260301-0930  a memory, with what was made from it
  perdure forget staging/port       all that was ever stated at the path of a memory
  perdure forget --query "my old address" --dry-run
  perdure forget --query "hunter2" --yes
  perdure forget --everything --user bob --dry-run""",
)
@click.argument("ids", nargs=-1, metavar="[ID|PATH…]", shell_complete=complete_ids)
@click.option("--query", help="Every turn and memory that holds all of these words (with filters: turns alone).")
@filter_options
@click.option("--everything", is_flag=True, help="All that is yours in this home, with its journal.")
@click.option("--user", metavar="USER", help="With --everything: another user of this home, who leaves it.")
@click.option("--only", is_flag=True, help="Of a run, only itself: leave the runs below it.")
@click.option("--dry-run", is_flag=True, help="Show what would go; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
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
    """Delete turns, runs, conversations or memories (by id, or all at the path of a memory): from the archive, the
    index and every copy in this home. Memories that were made of what goes, go with it. The same transcript imported
    again does not bring them back. This cannot be undone.
    """
    if bool(ids) + bool(query) + everything != 1:
        raise UsageError("name what to forget: ids, --query WORDS, or --everything")
    if not query and chosen_filters(**filters) != Filters():
        raise UsageError("filters go with --query: they would take nothing away from what you named")
    if user and not everything:
        raise UsageError("--user goes with --everything: what is another's is theirs to choose")
    if (thin := shell.thin()) is not None:
        thin_forget.forget(shell, thin, ids, cascade=not only, dry_run=dry_run, yes=yes)
        return
    with shell.open(user=user) as home:
        if user:
            home.check_is_here()
        if everything:
            _erase(shell, home, dry_run=dry_run, yes=yes)
            return
        home.catch_up()
        doomed, memories = _chosen(home, ids, query, filters, cascade=not only)
        if not shell.as_json:
            _preview(shell, doomed)
            preview_memories(shell, memories)
        changed: list[str] = []
        if (doomed or memories) and not dry_run:
            if not confirmed(shell, f"Forget {going(len(doomed), 'item', len(memories))} for good?", yes=yes):
                raise UsageError("nothing was forgotten")
            changed = home.forget(doomed, memories=[memory.memory_id for memory in memories])
        _report(shell, doomed, memories, changed, dry_run=dry_run, left=home.repeating(doomed))


def _chosen(
    home: Home, ids: tuple[str, ...], query: str | None, filters: Mapping[str, object], *, cascade: bool
) -> tuple[list[Doomed], list[Memory]]:
    """(turns, memories) that would go; those that were made of what goes are among them."""
    if query:
        chosen = chosen_filters(**filters)
        doomed = home.doomed_by_query(query, filters=chosen)
        named = [] if chosen != Filters() else home.doomed_memories_by_query(query)
    else:
        named_by = {name: _memories_named(home, name) for name in ids}
        doomed = home.doomed([name for name, memories in named_by.items() if not memories], cascade=cascade)
        named = home.doomed_memories(memories=[one for memories in named_by.values() for one in memories])
    return doomed, home.doomed_memories(doomed, [memory.memory_id for memory in named])


def _memories_named(home: Home, name: str) -> list[str]:
    """The ids of memories that a name means: itself, or all that was stated at this path; none where it is no path.

    Raises UsageError for what could be something else as well: nothing is deleted on a guess.
    """
    if name.startswith(ID_PREFIX):
        return [name]
    try:
        found = home.memories.history(name)
    except (MemoryMissing, UsageError):  # nothing is there, or it cannot be a path
        return []
    if _is_id(home, name):
        raise UsageError(f"{name!r} is the path of a memory and the beginning of another id: write the id in full")
    if len({chain_of(memory) for memory in found}) > 1:
        ids = ", ".join(memory.memory_id for memory in found)
        raise UsageError(f"memories of several projects lie at {name!r}: name those that are to go by id ({ids})")
    return [memory.memory_id for memory in found]


def _is_id(home: Home, name: str) -> bool:
    try:
        home.resolve(name)
    except (NotFound, UsageError):  # also one that is too short, or the beginning of several
        return False
    return True


def _erase(shell: Shell, home: Home, *, dry_run: bool, yes: bool) -> None:
    n_runs = sum(1 for _ in home.archive.ledger.all(home.user))
    linked = [str(folder) for folder in home.linked_floors()]
    if not dry_run:
        question = f"Delete all {plural(n_runs, 'run')} of {home.user} and their journal, for good?"
        if not confirmed(shell, question, yes=yes):
            raise UsageError("nothing was deleted")
        n_runs = home.erase()
    if shell.as_json:
        shell.answer({"dry_run": dry_run, "user": home.user, "runs": n_runs, "not_deleted": OUTSIDE, "linked": linked})
        return
    shell.out.print(
        f"{plural(n_runs, 'run')} of {home.user} {'would be' if dry_run else ''} deleted.".replace("  ", " ")
    )
    shell.out.print(OUTSIDE, style="dim")
    for folder in linked:
        shell.note(f"{folder} stays with its pages: only the link to it in agents/ goes.")


def _preview(shell: Shell, doomed: list[Doomed]) -> None:
    for item in doomed[:SHOWN]:
        role = item.turn.role if item.turn else "other"
        at = day(item.turn.stated_at) if item.turn else ""
        shell.out.print(f"  {item.turn_id}  {at:16}  {role:9}  {item.preview}", markup=False)
    if len(doomed) > SHOWN:
        shell.out.print(f"  … and {plural(len(doomed) - SHOWN, 'more item')}", style="dim")
    if doomed:
        shell.out.print("  with every copy: in forks, and where the client wrote the same words again", style="dim")


def _item(item: Doomed) -> dict[str, object]:
    role = item.turn.role if item.turn else None
    return {"turn_id": item.turn_id, "run_id": item.run.run_id, "role": role, "preview": item.preview}


def _report(
    shell: Shell,
    doomed: list[Doomed],
    memories: list[Memory],
    changed: list[str],
    *,
    dry_run: bool,
    left: Sequence[tuple[str, str]],
) -> None:
    actions = [("perdure verify", "prove that the archive is whole")] if changed else []
    whole = going(len(doomed), "item", len(memories))
    if shell.as_json:
        shell.answer(
            {
                "dry_run": dry_run, "forgotten": 0 if dry_run else len(doomed), "rewritten_runs": changed,
                "items": [_item(item) for item in doomed],
                "forgotten_memories": 0 if dry_run else len(memories), "memories": [memory_json(m) for m in memories],
                "not_deleted": OUTSIDE,
                "left_on_floor": [{"page": page, "line": raw} for page, raw in left],
                "transcripts": sorted({i.run.path for i in doomed if i.run.path}),
            },
            next_actions=actions,
        )  # fmt: skip
        return
    if not doomed and not memories:
        shell.out.print("Nothing matches: nothing to forget.")
    elif dry_run:
        shell.out.print(f"{whole} would be forgotten. Nothing was changed.")
    else:
        shell.out.print(f"Forgotten: {whole}; {plural(len(changed), 'run')} rewritten.")
        shell.out.print(OUTSIDE, style="dim")
        for path, n in Counter(i.run.path for i in doomed if i.run.path).most_common(5):
            shell.out.print(f"  {path} ({plural(n, 'item')})", style="dim", markup=False)
        shell.suggest(actions)
    if left:
        shell.out.print("What a person wrote on the floor in the same words stays:")
        for page, raw in left[:SHOWN]:
            shell.out.print(f"  {page}: {one_line(raw, 80)}", markup=False)
        shell.out.print("`perdure floor forget` deletes it for good.", style="dim")
