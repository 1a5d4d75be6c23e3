"""The group of commands about memories; each is imported only when it runs."""

from __future__ import annotations

import click

from perdure.surfaces.cli.lazy import LazyGroup

_MEMORY_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("memories_read", "List the current memories, or those of an earlier time."),
    "show": ("memories_read", "Show everything about one memory."),
    "search": ("memories_read", "Find memories by words and meaning."),
    "history": ("memories_read", "Show the history of a memory: each statement on its path."),
    "sources": ("memories_read", "Show the turns behind a memory."),
    "utility": ("consolidate", "Show how often each memory was shown, and how often it was used."),
    "images": ("images", "List and search the images of captured turns."),
    "stats": ("memories_read", "Count memories and their length by month."),
    "review": ("memories_edit", "Accept or refuse what others drafted, before it is recalled."),
    "edit": ("memories_edit", "Correct the text of a memory, its path or its kind."),
    "pin": ("memories_edit", "Keep memories from fading."),
    "retire": ("memories_edit", "Retire memories: keep them, but never recall them."),
    "restore": ("memories_edit", "Restore retired memories."),
    "move": ("memories_edit", "Rename a path with everything below it."),
    "export": ("memories_edit", "Write memories as Markdown, one file each."),
    "import": ("memories_edit", "Import Markdown: an export, CLAUDE.md, AGENTS.md, notes."),
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

`perdure remember` stores a memory, `perdure forget` deletes one permanently.""",
)
def memories_command() -> None:
    """Manage memories: short statements, each with a source, a time and a level of trust. A newer memory on the same
    path replaces the older one; the history keeps both.
    """
