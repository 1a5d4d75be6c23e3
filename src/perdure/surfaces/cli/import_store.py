"""The part of `perdure import` that takes in the memories of another product: preview, then apply."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from perdure import text
from perdure.errors import UsageError
from perdure.memories.markdown_io import FileRefusal
from perdure.memories.other_stores.plan import DiscardedRecord, PlannedRecord, StorePlan, StoreTerms
from perdure.surfaces.cli.common import Shell, format_count, format_time, show_progress
from perdure.surfaces.cli.import_home import open_import_home
from perdure.surfaces.cli.memory_common import memory_to_json, resolve_project
from perdure.types import Trust

if TYPE_CHECKING:
    from perdure.home import Home
    from perdure.memories.other_stores.take_in import StoreImport

_MAX_SAMPLES = 5  # of each group, without --json
_SAMPLE_CHARS = 90
_MARKDOWN = "markdown"  # the one store whose author the owner can say


def import_store(shell: Shell, store: str, paths: Sequence[Path], options: dict[str, Any]) -> None:
    """Show what an import from a store would do; with the option `apply`, do it."""
    if store == _MARKDOWN and not paths:
        raise UsageError("name the files or folders: `perdure import --from markdown PATH`")
    if options["trust"] == "owner" and store != _MARKDOWN:
        raise UsageError(f"a model wrote what {store} holds, so it is never your word: --trust agent, or web")
    is_applied = options["apply"]
    with open_import_home(shell, is_applied=is_applied) as home:
        terms = _build_terms(home, options)
        with show_progress(shell, "importing", None) as step:
            imports, failures = [], []
            for path in paths or (None,):
                try:
                    imports.append(
                        home.memories.import_store(store, path, terms=terms, dry_run=not is_applied, progress=step)
                    )
                except UsageError as error:
                    if len(paths) < 2:
                        raise
                    failures.append(FileRefusal(str(path), error.detail))
    _print_imports(shell, store, imports, failures, [] if is_applied else _list_actions(store, paths, options))
    if failures or any(imported.plan.refusals and not imported.plan.n_records for imported in imports):
        sys.exit(1)


def _list_actions(store: str, paths: Sequence[Path], options: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the command that imports what a preview has shown."""
    words = ["perdure", "import", "--from", store, *map(str, paths)]
    for name in ("trust", "project"):
        words += [f"--{name}", options[name]] if options[name] else []
    words += ["--everywhere"] if options["everywhere"] else []
    return [(shlex.join([*words, "--apply"]), "import it")]


def _print_imports(
    shell: Shell,
    store: str,
    imports: Sequence[StoreImport],
    failures: Sequence[FileRefusal],
    actions: Sequence[tuple[str, str]],
) -> None:
    """Print what came of each store. failures: stores of which nothing could be read.

    actions: what to do after a preview; none for an import that was applied.
    """
    is_applied = not actions
    is_pending = any(imported.plan.new or imported.plan.changed or imported.plan.moved for imported in imports)
    if shell.as_json:
        results = [_to_json(imported, is_applied=is_applied) for imported in imports]
        shell.print_json(
            {
                "store": store,
                "applied": is_applied,
                "imports": results,
                "failed": [{"path": failure.path, "why": failure.why} for failure in failures],
            },
            next_actions=actions if is_pending else (),
        )
        return
    for imported in imports:
        _print_import(shell, imported, is_applied=is_applied)
    for failure in failures:
        shell.note(f"Not read: {text.printable(failure.why)}")
    if is_applied:
        shell.suggest([("perdure memories list", "look at your memories"), ("perdure consolidate", "list duplicates")])
    elif is_pending:
        shell.out.print("\nNothing was changed. Add --apply to import.", style="bold")


def _build_terms(home: Home, options: dict[str, Any]) -> StoreTerms | None:
    trust = cast("Trust", options["trust"] or "agent")
    if options["everywhere"] and options["project"]:
        raise UsageError("give only one of --project and --everywhere")
    if options["everywhere"] or options["project"]:
        project = None if options["everywhere"] else resolve_project(home, options["project"])
        return StoreTerms(trust, lambda _: project)
    return StoreTerms(trust, home.memories.find_named_project)


# for programs -------------------------------------------------------------------------------------------------


def _to_json(imported: StoreImport, *, is_applied: bool) -> dict[str, Any]:
    plan = imported.plan
    result: dict[str, Any] = {
        "path": plan.path,
        "records": plan.n_records,
        "unchanged": plan.n_unchanged,
        "forgotten": plan.n_forgotten,
        "discarded": [
            {"record": item.record.label, "text": item.record.text, "reason": item.reason, "why": f"it {item.why}"}
            for item in plan.discarded
        ],
        "moved": {project: list(map(memory_to_json, group)) for project, group in plan.moved.items()},
        "removed": [memory_to_json(memory) for memory in plan.removed],
        "by_project": dict(plan.by_project),
        "left_out": dict(plan.left_out),
        "refused": [item._asdict() for item in plan.refusals],
    }
    if is_applied:
        new, changed = ([memory_to_json(memory) for memory in group] for group in (imported.new, imported.changed))
        return result | {"new": new, "changed": changed, "held": imported.n_held}
    return result | {name: list(map(_planned_to_json, group)) for name, group in _list_groups(plan)}


def _list_groups(plan: StorePlan) -> tuple[tuple[str, Sequence[PlannedRecord]], ...]:
    return (("new", plan.new), ("changed", plan.changed))


def _planned_to_json(planned_record: PlannedRecord) -> dict[str, Any]:
    draft = planned_record.draft
    fields = {"text": draft.text, "kind": draft.kind, "path": draft.path, "project": draft.project}
    return {**fields, "stated_at": draft.stated_at, "trust": draft.trust, "record": planned_record.record.label}


# for people ---------------------------------------------------------------------------------------------------


def _print_import(shell: Shell, imported: StoreImport, *, is_applied: bool) -> None:
    plan = imported.plan
    shell.out.print(f"{plan.path} ({plan.store}): {format_count(plan.n_records, 'record')}", style="bold", markup=False)
    counts = [len(group) for group in ((imported.new, imported.changed) if is_applied else (plan.new, plan.changed))]
    prefix = "" if is_applied else "would be "
    shell.out.print(
        f"  {counts[0]:,} {prefix}new, {counts[1]:,} {prefix}changed, {plan.n_unchanged:,} unchanged,"
        f" {len(plan.discarded):,} kept out"
    )
    if not is_applied:
        for name, group in _list_groups(plan):
            _print_planned(shell, name, group)
    if any(plan.by_project):
        parts = (f"{text.shorten_project(name) or 'all projects'} {n:,}" for name, n in plan.by_project.most_common())
        shell.out.print(f"  By project: {', '.join(parts)}", markup=False)
    _print_discarded(shell, plan.discarded)
    _print_rest(shell, imported, is_applied=is_applied)


def _print_planned(shell: Shell, name: str, group: Sequence[PlannedRecord]) -> None:
    for planned_record in group[:_MAX_SAMPLES]:
        draft = planned_record.draft
        shell.out.print(f"  {name}: {text.one_line(draft.text, _SAMPLE_CHARS)}", markup=False)
        stated_at = f"{format_time(draft.stated_at)}  " if draft.stated_at else ""
        shell.out.print(f"      {draft.path}  {draft.kind}  {stated_at}{draft.trust}", style="dim", markup=False)
    if len(group) > _MAX_SAMPLES:
        shell.out.print(f"  … and {len(group) - _MAX_SAMPLES:,} more {name} (--json lists them)", style="dim")


def _print_discarded(shell: Shell, discarded: Sequence[DiscardedRecord]) -> None:
    if discarded:
        counts = Counter(item.reason for item in discarded)
        shell.out.print(f"  Kept out: {', '.join(f'{name} {n:,}' for name, n in counts.most_common())}")
    for item in discarded[:_MAX_SAMPLES]:
        words = text.one_line(item.record.text, 60)
        shell.out.print(f"      {words!r} {item.why}", style="dim", markup=False)


def _print_rest(shell: Shell, imported: StoreImport, *, is_applied: bool) -> None:
    """Print what is moved, gone, forgotten, held, left out and refused."""
    plan = imported.plan
    for project, group in plan.moved.items():
        n_moved = format_count(len(group), "memory")
        verb = "moved" if is_applied else "would be moved"
        shell.out.print(f"  {n_moved} {verb} to the folder of the project: {project}", markup=False)
    if plan.removed:
        n_removed = format_count(len(plan.removed), "memory")
        shell.out.print(f"  {n_removed} of an earlier import no longer in the store; kept (--json lists them)")
    if plan.n_forgotten:
        shell.note(f"  {format_count(plan.n_forgotten, 'record')} not imported: you deleted it with `perdure forget`")
    if imported.n_held:
        shell.out.print(f"  {format_count(imported.n_held, 'memory')} held: `perdure memories review` shows them")
    if plan.left_out:
        left_out_text = ", ".join(f"{name} {n:,}" for name, n in sorted(plan.left_out.items()))
        shell.note(f"  Left out: {left_out_text}")
    _print_refused(shell, plan.refusals)


def _print_refused(shell: Shell, refusals: Sequence[FileRefusal]) -> None:
    for item in refusals[:_MAX_SAMPLES]:
        shell.note(f"  {text.printable(item.path)}: {text.printable(item.why)}")
    if len(refusals) > _MAX_SAMPLES:
        shell.note(f"  … and {len(refusals) - _MAX_SAMPLES:,} more not read (--json names them)")
