"""`forget` on a machine that keeps nothing itself: the home says what would go, and does it once that is confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.capture.rules import Rules
from perdure.errors import NotFound, ThinHome, UsageError
from perdure.surfaces import afar
from perdure.surfaces.amounts import going
from perdure.surfaces.cli.common import Shell, confirmed, plural
from perdure.surfaces.cli.doomed import OUTSIDE, SHOWN, preview_memories
from perdure.surfaces.cli.memory import memory_json
from perdure.types import Memory

Said = dict[str, Any]


def forget(shell: Shell, rules: Rules, ids: Sequence[str], *, cascade: bool, dry_run: bool, yes: bool) -> None:
    """Forget runs at the remote home. Raises ThinHome for what its API cannot forget."""
    if not ids:
        raise ThinHome(rules.remote.url)
    with afar.opened(rules) as there:
        runs = [_run(there, name) for name in ids]
        would = [there.forget(run, cascade=cascade, dry=True) for run in runs]
        items, memories = _items(would), _memories(would)
        if not shell.as_json:
            _preview(shell, items)
            preview_memories(shell, memories)
        done: list[Said] = []
        if (items or memories) and not dry_run:
            question = f"Forget {going(len(items), 'item', len(memories))} for good?"
            if not confirmed(shell, question, yes=yes):
                raise UsageError("nothing was forgotten")
            done = [there.forget(run, cascade=cascade, dry=False) for run in runs]
    _report(shell, would, done, dry_run=dry_run)


def _run(there: afar.Afar, name: str) -> str:
    """The run of an id. Raises ThinHome for what is something else, also for the path of a memory."""
    try:
        found = there.resolve(name)
    except (NotFound, UsageError):
        if "/" in name:
            raise ThinHome(there.url) from None
        raise
    if found.kind != "run":
        raise ThinHome(there.url)
    return found.id


def _items(said: Sequence[Said]) -> list[Said]:
    """The turns that go, each once, in the order in which the home lists them."""
    return list(
        {(item["run_id"], item["turn_id"]): item for one in said for item in afar.listed(one, "items")}.values()
    )


def _memories(said: Sequence[Said]) -> list[Memory]:
    found = [afar.noun(item, Memory) for one in said for item in afar.listed(one, "memories")]
    return list({memory.memory_id: memory for memory in found}.values())


def _preview(shell: Shell, items: Sequence[Said]) -> None:
    for item in items[:SHOWN]:
        at = str(item.get("stated_at") or "")[:16].replace("T", " ")
        row = f"  {item['turn_id']}  {at:16}  {item.get('role') or 'other':9}  {item.get('preview')}"
        shell.out.print(row, markup=False)
    if len(items) > SHOWN:
        shell.out.print(f"  … and {plural(len(items) - SHOWN, 'more item')}", style="dim")


def _report(shell: Shell, would: Sequence[Said], done: Sequence[Said], *, dry_run: bool) -> None:
    items, memories = _items(would), _memories(would)
    changed = sorted({run for one in done for run in one.get("rewritten_runs", ())})
    if shell.as_json:
        shell.answer(
            {
                "dry_run": dry_run, "forgotten": len(items) if done else 0, "rewritten_runs": changed, "items": items,
                "forgotten_memories": len(memories) if done else 0,
                "memories": list(map(memory_json, memories)), "not_deleted": OUTSIDE,
                "left_on_floor": [line for one in would for line in one.get("left_on_floor", ())],
                "transcripts": sorted({path for one in would for path in one.get("transcripts", ())}),
            },
        )  # fmt: skip
    elif not items and not memories:
        shell.out.print("Nothing matches: nothing to forget.")
    elif not done:
        shell.out.print(f"{going(len(items), 'item', len(memories))} would be forgotten. Nothing was changed.")
    else:
        shell.out.print(
            f"Forgotten: {going(len(items), 'item', len(memories))}; {plural(len(changed), 'run')} rewritten."
        )
        shell.out.print(OUTSIDE, style="dim")
