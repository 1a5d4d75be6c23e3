"""Commands that make and change memories: remember, edit, pin, retire, restore, move, export, import."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import click

from perdure import text
from perdure.access import scan, shown_alerts
from perdure.archive.memory_events import is_unscoped
from perdure.capture.transcripts import check_session
from perdure.errors import MemoryMissing, NothingToExport, UsageError
from perdure.home import Home
from perdure.identity import find_project
from perdure.memories import gate
from perdure.memories.explicit import guess_kind
from perdure.memories.markdown_io import FileRefusal, ImportResult, ImportTerms
from perdure.memories.other_stores import export
from perdure.memories.repository import list_facts
from perdure.memories.subject import path_for
from perdure.remote_home import RemoteHome
from perdure.surfaces.cli.common import Shell, command, format_count, format_time, parse_moment
from perdure.surfaces.cli.memory_common import (
    complete_memory_ids,
    find_memory,
    format_memory,
    list_replaced,
    list_successors,
    memory_to_json,
    read_words,
    resolve_project,
    suggest_for_memory,
)
from perdure.types import MEMORY_KINDS, TRUSTS, Live, Memory, MemoryKind, Trust

_ids_argument = click.argument("ids", nargs=-1, required=True, metavar="ID|PATH…", shell_complete=complete_memory_ids)
_DATE_FORMS = "a date, an ISO time, or 7d, 4w ago"

# remember -----------------------------------------------------------------------------------------------------


@command(
    "remember",
    epilog="""\
  perdure remember "I prefer Helix over vim"
  perdure remember "The staging server listens on port 8443" --path staging-server/port
  perdure remember "We decided on SQLite" --kind decision --stated-at 2026-03-01
  echo "Never push on a Friday" | perdure remember - --pin --everywhere
  perdure remember "Mira answers fastest by mail" --by-agent --session 5f0c2a1b""",
)
@click.argument("words", nargs=-1, metavar="TEXT…")
@click.option(
    "--kind", type=click.Choice(MEMORY_KINDS), help="The kind of memory (default: guessed from the first words)."
)
@click.option(
    "--path", default="", help="The subject of the memory, e.g. user/preferences/editor (default: from the text)."
)
@click.option("--project", help="The project of the memory: a folder, or the name of a known project.")
@click.option("--here", is_flag=True, help="Use the project of the current folder.")
@click.option("--everywhere", is_flag=True, help="Use no project: the memory holds in all projects.")
@click.option("--pin", is_flag=True, help="Pin the memory: it does not fade.")
@click.option(
    "--entity",
    "entities",
    multiple=True,
    help='A person or thing that the memory names (default: the names in the text; "" for none). Can be repeated.',
)
@click.option("--stated-at", help=f"The time of the statement: {_DATE_FORMS} (default: now).")
@click.option("--valid-from", help="The fact is true from this time on.")
@click.option("--valid-until", help="The fact is true until this time.")
@click.option("--by-agent", is_flag=True, help="Record an agent as the author, not the owner.")
@click.option("--anyway", is_flag=True, help="Store the words also if they say little, or only how far a task is.")
@click.option("--session", help="The session of the statement; recall does not repeat it there.")
def remember_command(shell: Shell, words: tuple[str, ...], path: str, **options: Any) -> None:
    """Store a memory, in the words that you want to read later. If the same statement exists already, it is counted
    again and not stored twice. A different statement on the same path replaces the old one; the history keeps both.

    Preferences and all paths below user/ belong to no project. All other memories belong to the project of the current
    folder.
    """
    statement = read_words(words, "the memory").strip()
    if not statement:
        raise UsageError("a memory cannot be empty")
    check_session(options["session"] or "")
    kind: MemoryKind = options["kind"] or guess_kind(statement)
    with shell.use_home(create=True) as home:
        project = _choose_project(home, statement, kind, path, options)
        if not (options["by_agent"] or options["anyway"]):
            _check_words(statement, project)
        memory = home.remember(
            statement,
            kind=kind,
            path=path,
            cwd=project,
            session=Live(options["session"]) if options["session"] else None,
            **_read_statement_options(options),
        )
        _print_remembered(shell, home, memory)


def _check_words(statement: str, project: str | None) -> None:
    """Raise UsageError for words of a person that the write gate would discard from anybody else."""
    weakness = gate.find_weakness(statement, lambda: list_facts(project))
    if weakness:
        raise UsageError(f"not stored: the text {gate.EXPLANATIONS[weakness]}; `--anyway` stores it")


def _choose_project(
    home: Home | RemoteHome, statement: str, kind: str, path: str, options: dict[str, Any]
) -> str | None:
    """Return the project of a new memory: from the options, or else from its path and kind."""
    if (options["project"] is not None) + options["here"] + options["everywhere"] > 1:
        raise UsageError("give only one of --project, --here and --everywhere")
    if options["project"] is not None:
        return resolve_project(home, options["project"])
    memory_path = path or path_for(statement, kind)
    if options["everywhere"] or (is_unscoped(memory_path, kind) and not options["here"]):
        return None
    return find_project(str(Path.cwd()))


def _read_statement_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options about when, by whom and about whom, as fields of a memory."""
    fields: dict[str, Any] = {
        "trust": "agent" if options["by_agent"] else "owner",
        "pinned": options["pin"],
        "stated_at": parse_moment(options["stated_at"]),
        "valid_from": parse_moment(options["valid_from"]),
        "valid_until": parse_moment(options["valid_until"]),
    }
    if fields["stated_at"] and fields["stated_at"] > datetime.now(UTC):
        raise UsageError("--stated-at is in the future; use --valid-from for a fact that becomes true later")
    return fields | ({"entities": options["entities"]} if options["entities"] else {})


def _print_remembered(shell: Shell, home: Home | RemoteHome, memory: Memory) -> None:
    """Print the result of `remember`."""
    predecessors = list_replaced(home, memory)[-1:] if memory.n_stated == 1 else []
    successors = list_successors(home, memory)
    outcome = "held" if memory.in_review else "again" if memory.n_stated > 1 else "history" if successors else "new"
    rule = _check_suspicion(home, memory)
    if shell.as_json:
        result = {
            "outcome": outcome,
            "memory": memory_to_json(memory),
            "replaced": [memory_to_json(m) for m in predecessors],
            "replaced_by": [memory_to_json(m) for m in successors],
            "left_out": bool(rule),
        }
        shell.print_json(result, next_actions=suggest_for_memory(memory))
        return
    headers = {
        "again": f"Said again ({format_count(memory.n_stated, 'time')}):",
        "held": "Held for review:",
        "history": "Kept as history:",
        "new": "Kept:",
    }
    shell.out.print(f"{headers[outcome]} ", end="", style="bold")
    shell.out.print(format_memory(memory))
    for related in predecessors:
        shell.out.print(
            f"  before, since {format_time(related.stated_at)}: {text.one_line(related.text, 90)}", markup=False
        )
    for related in successors:
        shell.out.print(f"  since {format_time(related.stated_at)}: {text.one_line(related.text, 90)}", markup=False)
    if rule:
        shell.note(
            f"The memory is left out of every context until you allow it: {rule}. `perdure floor alerts` lists it."
        )


def _check_suspicion(home: Home | RemoteHome, memory: Memory) -> str:
    """Return the rule that keeps a memory from models, or "". From now on `perdure floor alerts` lists the memory."""
    if isinstance(home, RemoteHome):  # the remote home scans it each time before a model gets it
        return ""
    findings = home.floor.find_injections(memory.text) if scan.scan(memory.text) else ()
    if not findings:
        return ""
    shown_alerts.mark_shown(home.path, home.user, {scan.digest_text(memory.text): memory.memory_id})
    return findings[0].rule


# edit ---------------------------------------------------------------------------------------------------------


@command(
    "edit",
    epilog="""\
  perdure memories edit user/preferences/editor "I prefer Helix, except for LaTeX"
  perdure memories edit mem-20260301-0930 --editor
  perdure memories edit mem-20260301-0930 --path user/preferences/editor --everywhere
  perdure memories edit mem-20260301-0930 --valid-until 2026-12-31""",
)
@click.argument("identifier", metavar="ID|PATH", shell_complete=complete_memory_ids)
@click.argument("words", nargs=-1, metavar="[TEXT…]")
@click.option("--editor", is_flag=True, help="Open the text in $EDITOR.")
@click.option("--path", help="The new subject of the memory.")
@click.option("--kind", type=click.Choice(MEMORY_KINDS), help="The new kind.")
@click.option("--project", help='The new project; "" for none.')
@click.option("--everywhere", is_flag=True, help="Use no project: the memory holds in all projects.")
@click.option("--valid-from", help='The fact is true from this time on; "" for no limit.')
@click.option("--valid-until", help='The fact is true until this time; "" for no limit.')
def edit_command(shell: Shell, identifier: str, words: tuple[str, ...], editor: bool, **options: Any) -> None:
    """Correct a memory. A new text replaces the old one, and the history keeps both. Other properties are changed in
    place.
    """
    if editor and words:
        raise UsageError("give the new text or --editor, not both")
    with shell.use_home() as home:
        memory = find_memory(home, identifier)
        fields = _read_changes(home, options)
        if not (editor or words or fields):
            raise UsageError("give a change: the new text, --editor, --path, --kind, --project, --valid-until")
        new_words = (
            _edit_words(memory) if editor else read_words(words, "the new text").strip() if words else memory.text
        )
        is_reworded = new_words != memory.text
        if is_reworded:
            memory = _replace_words(home, memory, new_words, fields)
        elif fields:
            (memory,) = home.memories.change([memory.memory_id], **fields)
        _print_edited(shell, memory, is_changed=is_reworded or bool(fields))


def _read_changes(home: Home | RemoteHome, options: dict[str, Any]) -> dict[str, Any]:
    """Return the changes that the options ask for, as fields of a memory."""
    if options["everywhere"] and options["project"]:
        raise UsageError("give only one of --project and --everywhere")
    fields = {name: options[name] for name in ("path", "kind") if options[name] is not None}
    if options["everywhere"]:
        fields["project"] = None
    elif options["project"] is not None:
        fields["project"] = resolve_project(home, options["project"])
    for name in ("valid_from", "valid_until"):
        if options[name] is not None:
            fields[name] = parse_moment(options[name] or None)
    return fields


def _edit_words(memory: Memory) -> str:
    """Open the words of a memory in an editor; return them as the owner saved them."""
    edited_text = click.edit(memory.text + "\n", extension=".md")
    return edited_text.strip() if edited_text is not None else memory.text


def _replace_words(home: Home | RemoteHome, memory: Memory, new_words: str, fields: dict[str, Any]) -> Memory:
    if not new_words:
        raise UsageError("a memory cannot be empty; `perdure memories retire` retires it, `perdure forget` deletes it")
    if memory.superseded_by is not None:
        raise UsageError(f"{memory.memory_id} is superseded: edit {memory.superseded_by}, which replaced it")
    return home.memories.edit(memory.memory_id, new_words, **fields)


def _print_edited(shell: Shell, memory: Memory, *, is_changed: bool) -> None:
    if shell.as_json:
        shell.print_json(
            {"changed": is_changed, "memory": memory_to_json(memory)}, next_actions=suggest_for_memory(memory)
        )
        return
    shell.out.print("Now: " if is_changed else "No change: ", end="", style="bold")
    shell.out.print(format_memory(memory))


# review -------------------------------------------------------------------------------------------------------


_REVIEWED = "ID|PATH|FILE|all"


@command(
    "review",
    epilog="""\
  perdure memories review                            what waits, newest first
  perdure memories review --accept mem-20260301-093000-010203
  perdure memories review --refuse mem-20260301-0930 --refuse mem-20260302-11
  perdure memories review --accept claude-mem/shop      all that waits at or below a path
  perdure memories review --refuse notes/plan.md        all that came from a file
  perdure memories review --accept all""",
)
@click.option("--accept", "accepted", multiple=True, metavar=_REVIEWED, help="Recall it from now on. Can be repeated.")
@click.option("--refuse", "refused", multiple=True, metavar=_REVIEWED, help="Retire it. Can be repeated.")
def review_command(shell: Shell, accepted: tuple[str, ...], refused: tuple[str, ...]) -> None:
    """List what waits for you, and accept or refuse it. With `review = true` under `[memories]` in config.toml, what
    the rules, the miner and agents draft is held: it is in no context before you accept it. What you typed and reads
    like an order to a model is always held, with the reason. A refused memory is retired, and the same statement is not
    held again; `perdure memories restore` takes it back.
    """
    with shell.open_home() as home:
        waiting = home.memories.list_in_review()
        accepted_ids, refused_ids = (_list_reviewed(home, waiting, names) for names in (accepted, refused))
        if both := set(accepted_ids) & set(refused_ids):
            raise UsageError(f"{min(both)} cannot be accepted and refused at once")
        accepted_memories = home.memories.review(accepted_ids, is_accepted=True)
        refused_memories = home.memories.review(refused_ids, is_accepted=False)
        home.memories.embed_new()
        remaining = home.memories.list_in_review()
        orders = {memory.memory_id: why for memory in remaining if (why := home.memories.find_order(memory))}
    if shell.as_json:
        groups = {"accepted": accepted_memories, "refused": refused_memories, "waiting": remaining}
        rows = {name: [memory_to_json(memory) for memory in group] for name, group in groups.items()}
        for row in rows["waiting"]:
            row["why"] = f"it {orders[row['memory_id']]}" if row["memory_id"] in orders else ""
        shell.print_json(rows)
        return
    for header, memories in (("Accepted: ", accepted_memories), ("Refused: ", refused_memories)):
        for memory in memories:
            shell.out.print(header, end="", style="bold")
            shell.out.print(format_memory(memory))
    if not (accepted or refused):
        for memory in remaining[:_MAX_SHOWN]:
            shell.out.print(format_memory(memory))
            if memory.memory_id in orders:
                shell.out.print(f"  held: it {orders[memory.memory_id]}", style="dim", markup=False)
    _print_waiting(shell, remaining)


def _list_reviewed(home: Home, waiting: Sequence[Memory], names: Sequence[str]) -> list[str]:
    """Return the ids of what was named by ids, paths and files; "all" names every memory that waits."""
    if "all" in names:
        return [memory.memory_id for memory in waiting]
    return list(dict.fromkeys(memory.memory_id for name in names for memory in home.memories.find_in_review(name)))


def _print_waiting(shell: Shell, waiting: Sequence[Memory]) -> None:
    shell.out.print(f"{format_count(len(waiting), 'memory')} waiting for review." if waiting else "Nothing waits.")
    if waiting:
        shell.suggest(
            [
                (f"perdure memories review --accept {waiting[0].memory_id}", "recall it from now on"),
                (f"perdure memories sources {waiting[0].memory_id}", "read what it was made from"),
            ]
        )


# pin, retire, restore, move -----------------------------------------------------------------------------------


@command("pin", epilog="  perdure memories pin user/preferences/editor\n  perdure memories pin mem-20260301-0930 --off")
@_ids_argument
@click.option("--off", is_flag=True, help="Unpin the memories: they fade again.")
def pin_command(shell: Shell, ids: tuple[str, ...], off: bool) -> None:
    """Pin memories: they do not fade, and `perdure consolidate` does not propose to retire them."""
    _change_memories(shell, ids, "unpinned" if off else "pinned", pinned=not off)


@command("retire", epilog="  perdure memories retire mem-20260301-093000-010203")
@_ids_argument
def retire_command(shell: Shell, ids: tuple[str, ...]) -> None:
    """Retire memories: they are kept, but never recalled. The memories that they replaced become current again.
    `restore` undoes this; `perdure forget` deletes permanently.
    """
    _change_memories(shell, ids, "retired", retired=True)


@command("restore", epilog="  perdure memories restore mem-20260301-093000-010203")
@_ids_argument
def restore_command(shell: Shell, ids: tuple[str, ...]) -> None:
    """Restore retired memories."""
    _change_memories(shell, ids, "restored", retired=False)


def _change_memories(shell: Shell, ids: tuple[str, ...], outcome: str, **fields: Any) -> None:
    with shell.use_home() as home:
        is_restore = fields.get("retired") is False
        memory_ids = [find_memory(home, name, retired=is_restore).memory_id for name in ids]
        memories = home.memories.change(memory_ids, **fields)
    if shell.as_json:
        shell.print_json({"memories": [memory_to_json(memory) for memory in memories]})
        return
    for memory in memories:
        shell.out.print(f"{outcome.capitalize()}: ", end="", style="bold")
        shell.out.print(format_memory(memory))


@command("move", epilog="  perdure memories move servers/staging staging-server")
@click.argument("old")
@click.argument("new")
def move_command(shell: Shell, old: str, new: str) -> None:
    """Rename a path and all paths below it, with their history. Memories that are then on the same path form one
    history: the newest statement is current.
    """
    with shell.open_home() as home:
        if not home.memories.list_memories(prefix=old, every=True):
            raise MemoryMissing(f"no memory has the path {old!r}")
        n_moved = home.memories.move(old, new)
    if shell.as_json:
        shell.print_json({"moved": n_moved, "from": old, "to": new})
    else:
        shell.out.print(f"{format_count(n_moved, 'memory')} moved from {old} to {new}.", markup=False)


_MAX_SHOWN = 20
_MAX_SHOWN_REFUSED = 10


@command(
    "export",
    epilog="""\
  perdure memories export                     into ./memories
  perdure memories export notes/mine --prefix user
  perdure memories export archive/ --all      also superseded and retired memories
  perdure memories export out --to memory-server
  perdure memories export out --to basic-memory --prefix user --replace""",
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path("memories"))
@click.option("--prefix", default="", metavar="PATH", help="Only memories at this path and below it.")
@click.option("--all", "include_all", is_flag=True, help="Also superseded and retired memories.")
@click.option(
    "--to",
    "form",
    type=click.Choice(["markdown", *export.FORMS]),
    default="markdown",
    show_default=True,
    help="The form: our own Markdown, or what another product reads.",
)
@click.option("--replace", is_flag=True, help="With --to: overwrite the files of an earlier export.")
def export_command(shell: Shell, folder: Path, prefix: str, include_all: bool, form: str, replace: bool) -> None:
    """Write memories as Markdown: one file per memory, in folders by path; all properties are in the front matter. The
    command does not overwrite other files, nor edits that are not imported yet. It does not follow links.

    With --to, write the current memories for another product: notes of basic-memory, the graph of the MCP memory
    server, a list as mem0 answers it, or the text that Claude imports.
    """
    is_own_form = form == "markdown"
    if (replace and is_own_form) or (include_all and not is_own_form):
        raise UsageError("--replace is for --to, and --all for our own Markdown: other products keep no history")
    with shell.open_home() as home:
        if prefix and not home.memories.list_memories(prefix=prefix, every=include_all):
            raise NothingToExport(f"no memory has a path below {prefix!r}")
        if is_own_form:
            result = home.memories.export_markdown(folder, prefix=prefix, every=include_all)
        else:
            result = home.memories.export_to(form, folder, prefix=prefix, replace=replace)
    if shell.as_json:
        shell.print_json(
            {
                "folder": str(folder),
                "written": result.n_written,
                "unchanged": result.n_same,
                "refused": [item._asdict() for item in result.refusals],
            }
        )
        return
    n_files_text = format_count(result.n_written, "file")
    shell.out.print(f"{n_files_text} written to {folder}, {result.n_same:,} unchanged.", markup=False)
    _print_refused(shell, result.refusals)
    if is_own_form:
        shell.suggest([(f"perdure memories import {folder}", "import edited files again")])
    elif result.refusals:
        shell.suggest([(f"perdure memories export {folder} --to {form} --replace", "overwrite these files")])


@command(
    "import",
    epilog="""\
  perdure memories import memories/                  an export, with your edits
  perdure memories import CLAUDE.md AGENTS.md        instructions: one memory for each list item and paragraph
  perdure memories import ~/notes --trust web --everywhere""",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--trust",
    type=click.Choice(TRUSTS),
    default="owner",
    show_default=True,
    help="The highest trust that the imported memories get.",
)
@click.option("--project", help="The project of the notes (default: the repository of the files, or none).")
@click.option("--everywhere", is_flag=True, help="Use no project: the notes hold in all projects.")
def import_command(shell: Shell, paths: tuple[Path, ...], trust: str, project: str | None, everywhere: bool) -> None:
    """Import Markdown. Files of an export keep their ids; a changed text counts as an edit. In other files each list
    item and each short paragraph becomes a memory; code, tables and quotations are skipped. A second import changes
    nothing. A changed statement replaces the old one. A statement that is no longer in the files is listed and kept.
    """
    if everywhere and project:
        raise UsageError("give only one of --project and --everywhere")
    with shell.open_home(create=True) as home:
        result = home.memories.import_markdown(paths, terms=_build_terms(home, trust, project, everywhere=everywhere))
    if not (result.n_files or result.refusals):
        raise UsageError("there is no Markdown file; give Markdown files, or folders with Markdown files")
    if shell.as_json:
        shell.print_json(_import_to_json(result))
    else:
        _print_imported(shell, result)


def _build_terms(home: Home, trust: str, project: str | None, *, everywhere: bool) -> ImportTerms:
    max_trust = cast("Trust", trust)
    if not everywhere and project is None:
        return ImportTerms(max_trust)
    chosen_project = None if everywhere else resolve_project(home, project or "")
    return ImportTerms(max_trust, lambda _: chosen_project)


def _import_to_json(result: ImportResult) -> dict[str, object]:
    return {
        "files": result.n_files,
        "new": [memory_to_json(m) for m in result.new],
        "changed": [memory_to_json(m) for m in result.changed],
        "unchanged": result.n_unchanged,
        "forgotten": result.n_forgotten,
        "removed": [memory_to_json(m) for m in result.removed],
        "left_out": dict(result.left_out),
        "refused": [item._asdict() for item in result.refusals],
    }


def _print_imported(shell: Shell, result: ImportResult) -> None:
    counts = f"{len(result.new):,} new, {len(result.changed):,} changed, {result.n_unchanged:,} unchanged"
    shell.out.print(f"{format_count(result.n_files, 'file')}: {counts}.")
    for memory in result.changed[:_MAX_SHOWN]:
        shell.out.print(format_memory(memory, 80))
    _print_removed(shell, result.removed)
    if result.left_out:
        left_out_text = ", ".join(f"{n:,} {kind}" for kind, n in sorted(result.left_out.items()))
        shell.note(f"Left out: {left_out_text}.")
    if result.n_forgotten:
        shell.note(
            f"{format_count(result.n_forgotten, 'statement')} not imported: you "
            "deleted it earlier with `perdure forget`."
        )
    _print_refused(shell, result.refusals)


def _print_removed(shell: Shell, removed: Sequence[Memory]) -> None:
    if removed:
        shell.out.print("No longer in the files, but kept (`perdure memories retire ID` retires one):", style="bold")
    for memory in removed[:_MAX_SHOWN]:
        shell.out.print(format_memory(memory, 80))
    if len(removed) > _MAX_SHOWN:
        shell.out.print(f"… and {len(removed) - _MAX_SHOWN:,} more (--json names them)", style="dim")


def _print_refused(shell: Shell, refused: Sequence[FileRefusal]) -> None:
    for item in refused[:_MAX_SHOWN_REFUSED]:
        shell.note(f"{item.path}: {item.why}")
    if len(refused) > _MAX_SHOWN_REFUSED:
        shell.note(
            f"… and {format_count(len(refused) - _MAX_SHOWN_REFUSED, 'more file')} not changed (--json names them)"
        )
