"""The group of commands about memories; each is imported only when it runs."""

from __future__ import annotations

import click

from perdure.surfaces.cli.lazy import LazyGroup

_MEMORY_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("memories_read", "List what is current now, or was at some time."),
    "show": ("memories_read", "Show everything about one memory."),
    "search": ("memories_read", "Find memories by words and meaning."),
    "history": ("memories_read", "Show how a memory came to be, and what it replaced."),
    "sources": ("memories_read", "Show the turns behind a memory."),
    "utility": ("consolidate", "Show how useful each memory is: how often it was shown, and then used."),
    "stats": ("memories_read", "Count memories and their length by month."),
    "edit": ("memories_edit", "Correct the words of a memory, or what it is about."),
    "pin": ("memories_edit", "Keep memories from fading."),
    "retire": ("memories_edit", "Set memories aside: kept, never recalled."),
    "restore": ("memories_edit", "Take back memories that were retired."),
    "move": ("memories_edit", "Rename a path with everything below it."),
    "export": ("memories_edit", "Write memories as Markdown, a file each."),
    "import": ("memories_edit", "Take in Markdown: an export, CLAUDE.md, AGENTS.md, notes."),
}


@click.group(
    "memories",
    cls=LazyGroup,
    table=_MEMORY_COMMANDS,
    epilog="""\b
Examples:
  perdure memories list --prefix user/preferences
  perdure memories history staging-server/port
  perdure memories export notes/
  perdure memories import CLAUDE.md

`perdure remember` makes one, `perdure forget` deletes one for good.""",
)
def memories_command() -> None:
    """Short statements worth keeping, each with its source, its time and how far it can be trusted. A newer memory
    about the same thing takes the place of the older one, and both stay.
    """
