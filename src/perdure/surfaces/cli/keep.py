"""Commands that make and change memories: remember, edit, pin, retire, restore, move."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from perdure import text
from perdure.access import scan, told
from perdure.errors import MemoryMissing, UsageError
from perdure.home import Home
from perdure.identity import project_of
from perdure.memories import claims
from perdure.memories.kinds import guessed
from perdure.memories.paths import is_everywhere
from perdure.surfaces.afar_memories import Believed
from perdure.surfaces.cli.common import Shell, command, day, moment, plural
from perdure.surfaces.cli.memory import (
    after_one,
    believing,
    complete_ids,
    identified,
    line,
    memory_json,
    project_named,
    replaced,
    replacing,
    said,
)
from perdure.types import MEMORY_KINDS, Live, Memory, MemoryKind

_ids = click.argument("ids", nargs=-1, required=True, metavar="ID|PATH…", shell_complete=complete_ids)
_DATES = "a date, an ISO time, or 7d, 4w ago"

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
@click.option("--kind", type=click.Choice(MEMORY_KINDS), help="What it is (default: guessed from its first words).")
@click.option("--path", default="", help="What it is about, e.g. user/preferences/editor (default: from its words).")
@click.option("--project", help="The project it belongs to: a folder, or the name of one that is known.")
@click.option("--here", is_flag=True, help="It belongs to the project of the folder you are in.")
@click.option("--everywhere", is_flag=True, help="It belongs to no project.")
@click.option("--pin", is_flag=True, help="It does not fade.")
@click.option(
    "--entity", "entities", multiple=True, help='A name that it is about (default: those in its words; "" for none).'
)
@click.option("--stated-at", help=f"When it was stated: {_DATES} (default: now).")
@click.option("--valid-from", help="In the world, it holds from then.")
@click.option("--valid-until", help="In the world, it holds until then.")
@click.option("--by-agent", is_flag=True, help="An agent says this, not its owner.")
@click.option("--session", help="The session in which it is said, which need not be told it again.")
def remember_command(shell: Shell, words: tuple[str, ...], path: str, **given: Any) -> None:
    """Keep a memory, in the words in which you would want to read it again. What is said again is counted and not kept
    twice; what is said differently on the same path takes the place of what was said before.

    Preferences and what lies at user/… belong to no project; everything else to that of the folder you are in.
    """
    statement = said(words, "what to remember").strip()
    if not statement:
        raise UsageError("a memory needs words")
    kind: MemoryKind = given["kind"] or guessed(statement)
    with believing(shell, create=True) as home:
        where = _project(home, statement, kind, path, given)
        memory = home.remember(
            statement, kind=kind, path=path, cwd=where, session=Live(given["session"]) if given["session"] else None,
            **_stated(given),
        )  # fmt: skip
        _say_kept(shell, home, memory)


def _project(home: Home | Believed, statement: str, kind: str, path: str, given: dict[str, Any]) -> str | None:
    """The project that a new memory belongs to, as the options say or as its path and kind do."""
    if (given["project"] is not None) + given["here"] + given["everywhere"] > 1:
        raise UsageError("say one of --project, --here and --everywhere")
    if given["project"] is not None:
        return project_named(home, given["project"])
    about = path or claims.path_for(statement, kind)
    if given["everywhere"] or (is_everywhere(about, kind) and not given["here"]):
        return None
    return project_of(str(Path.cwd()))


def _stated(given: dict[str, Any]) -> dict[str, Any]:
    """What the options say of when, by whom and about whom."""
    found: dict[str, Any] = {
        "trust": "agent" if given["by_agent"] else "owner", "pinned": given["pin"],
        "stated_at": moment(given["stated_at"]), "valid_from": moment(given["valid_from"]),
        "valid_until": moment(given["valid_until"]),
    }  # fmt: skip
    if found["stated_at"] and found["stated_at"] > datetime.now(UTC):
        raise UsageError("--stated-at lies in the future; --valid-from says from when something holds")
    return found | ({"entities": given["entities"]} if given["entities"] else {})


def _say_kept(shell: Shell, home: Home | Believed, memory: Memory) -> None:
    """What became of a statement."""
    before = replaced(home, memory)[-1:] if memory.n_stated == 1 else []
    now = replacing(home, memory)
    outcome = "again" if memory.n_stated > 1 else "history" if now else "new"
    suspected = _held_back(home, memory)
    if shell.as_json:
        result = {
            "outcome": outcome, "memory": memory_json(memory), "replaced": [memory_json(m) for m in before],
            "replaced_by": [memory_json(m) for m in now], "left_out": bool(suspected),
        }  # fmt: skip
        shell.answer(result, next_actions=after_one(memory))
        return
    heads = {"again": f"Said again ({plural(memory.n_stated, 'time')}):", "history": "Kept as history:", "new": "Kept:"}
    shell.out.print(f"{heads[outcome]} ", end="", style="bold")
    shell.out.print(line(memory))
    for other in before:
        shell.out.print(f"  before, since {day(other.stated_at)}: {text.one_line(other.text, 90)}", markup=False)
    for other in now:
        shell.out.print(f"  since {day(other.stated_at)}: {text.one_line(other.text, 90)}", markup=False)
    if suspected:
        shell.note(f"It is left out of every context until you allow it: {suspected}. `perdure floor alerts` lists it.")


def _held_back(home: Home | Believed, memory: Memory) -> str:
    """The rule by which a memory is kept from models, or ""; then `perdure floor alerts` lists it from now on."""
    if isinstance(home, Believed):  # its own home looks at it, each time that it would be told
        return ""
    found = home.floor.suspicious(memory.text) if scan.scan(memory.text) else ()
    if not found:
        return ""
    told.mark(home.path, home.user, {scan.digest(memory.text): memory.memory_id})
    return found[0].rule


# edit ---------------------------------------------------------------------------------------------------------


@command(
    "edit",
    epilog="""\
  perdure memories edit user/preferences/editor "I prefer Helix, except for LaTeX"
  perdure memories edit mem-20260301-0930 --editor
  perdure memories edit mem-20260301-0930 --path user/preferences/editor --everywhere
  perdure memories edit mem-20260301-0930 --valid-until 2026-12-31""",
)
@click.argument("identifier", metavar="ID|PATH", shell_complete=complete_ids)
@click.argument("words", nargs=-1, metavar="[TEXT…]")
@click.option("--editor", is_flag=True, help="Open its words in $EDITOR.")
@click.option("--path", help="What it is about.")
@click.option("--kind", type=click.Choice(MEMORY_KINDS), help="What it is.")
@click.option("--project", help='The project it belongs to; "" for none.')
@click.option("--everywhere", is_flag=True, help="It belongs to no project.")
@click.option("--valid-from", help='In the world, it holds from then; "" for no bound.')
@click.option("--valid-until", help='In the world, it holds until then; "" for no bound.')
def edit_command(shell: Shell, identifier: str, words: tuple[str, ...], editor: bool, **given: Any) -> None:
    """Correct a memory. New words take the place of the old ones, which stay in its history; everything else is changed
    as it is.
    """
    if editor and words:
        raise UsageError("give the new words, or --editor, not both")
    with believing(shell) as home:
        memory = identified(home, identifier)
        fields = _fields(home, given)
        if not (editor or words or fields):
            raise UsageError("say what to change: its new words, --editor, --path, --kind, --project, --valid-until")
        fresh = _edited(memory) if editor else said(words, "the new words").strip() if words else memory.text
        changed = fresh != memory.text
        if changed:
            memory = _reworded(home, memory, fresh, fields)
        elif fields:
            (memory,) = home.memories.change([memory.memory_id], **fields)
        _say_edited(shell, memory, changed=changed or bool(fields))


def _fields(home: Home | Believed, given: dict[str, Any]) -> dict[str, Any]:
    """What the options change, as fields of a memory."""
    if given["everywhere"] and given["project"]:
        raise UsageError("say one of --project and --everywhere")
    found = {name: given[name] for name in ("path", "kind") if given[name] is not None}
    if given["everywhere"]:
        found["project"] = None
    elif given["project"] is not None:
        found["project"] = project_named(home, given["project"])
    for name in ("valid_from", "valid_until"):
        if given[name] is not None:
            found[name] = moment(given[name] or None)
    return found


def _edited(memory: Memory) -> str:
    """The words of a memory after its owner had them in an editor."""
    found = click.edit(memory.text + "\n", extension=".md")
    return found.strip() if found is not None else memory.text


def _reworded(home: Home | Believed, memory: Memory, fresh: str, fields: dict[str, Any]) -> Memory:
    if not fresh:
        raise UsageError("a memory needs words; `perdure memories retire` sets it aside, `perdure forget` deletes it")
    if memory.superseded_by is not None:
        raise UsageError(f"{memory.memory_id} is history: edit {memory.superseded_by}, which took its place")
    return home.memories.edit(memory.memory_id, fresh, **fields)


def _say_edited(shell: Shell, memory: Memory, *, changed: bool) -> None:
    if shell.as_json:
        shell.answer({"changed": changed, "memory": memory_json(memory)}, next_actions=after_one(memory))
        return
    shell.out.print("Now: " if changed else "Nothing to change: ", end="", style="bold")
    shell.out.print(line(memory))


# pin, retire, restore, move -----------------------------------------------------------------------------------


@command("pin", epilog="  perdure memories pin user/preferences/editor\n  perdure memories pin mem-20260301-0930 --off")
@_ids
@click.option("--off", is_flag=True, help="Let them fade again.")
def pin_command(shell: Shell, ids: tuple[str, ...], off: bool) -> None:
    """Keep memories from fading with disuse, and from being proposed for retirement."""
    _change(shell, ids, "unpinned" if off else "pinned", pinned=not off)


@command("retire", epilog="  perdure memories retire mem-20260301-093000-010203")
@_ids
def retire_command(shell: Shell, ids: tuple[str, ...]) -> None:
    """Set memories aside: they are kept and never recalled. What they had replaced is believed again; `restore` undoes
    it, `perdure forget` deletes for good.
    """
    _change(shell, ids, "retired", retired=True)


@command("restore", epilog="  perdure memories restore mem-20260301-093000-010203")
@_ids
def restore_command(shell: Shell, ids: tuple[str, ...]) -> None:
    """Take back memories that were retired."""
    _change(shell, ids, "restored", retired=False)


def _change(shell: Shell, ids: tuple[str, ...], done: str, **fields: Any) -> None:
    with believing(shell) as home:
        back = fields.get("retired") is False
        names = [identified(home, name, retired=back).memory_id for name in ids]
        found = home.memories.change(names, **fields)
    if shell.as_json:
        shell.answer({"memories": [memory_json(memory) for memory in found]})
        return
    for memory in found:
        shell.out.print(f"{done.capitalize()}: ", end="", style="bold")
        shell.out.print(line(memory))


@command("move", epilog="  perdure memories move servers/staging staging-server")
@click.argument("old")
@click.argument("new")
def move_command(shell: Shell, old: str, new: str) -> None:
    """Rename a path with everything below it, history included. Memories that then lie on one path form one history:
    the one stated last is believed.
    """
    with shell.open() as home:
        if not home.memories.listed(prefix=old, every=True):
            raise MemoryMissing(f"no memory has the path {old!r}")
        n_moved = home.memories.move(old, new)
    if shell.as_json:
        shell.answer({"moved": n_moved, "from": old, "to": new})
    else:
        shell.out.print(f"{plural(n_moved, 'memory')} moved from {old} to {new}.", markup=False)
