"""The group of commands about memories; each is imported only when it runs."""

from __future__ import annotations

import click

from perdure.surfaces.cli.lazy import LazyGroup

_MEMORIES: dict[str, tuple[str, str]] = {
    "list": ("believed", "What is believed now, or was at some time."),
    "show": ("believed", "Everything about one memory."),
    "search": ("believed", "Find memories by words and meaning."),
    "history": ("believed", "How a belief came to be, and what it replaced."),
    "sources": ("believed", "The turns behind a memory."),
    "utility": ("memories_use", "What each is worth: how often it was shown, and then used."),
    "stats": ("believed", "How many memories there are, and how long, by month."),
    "edit": ("keep", "Correct the words of a memory, or what it is about."),
    "pin": ("keep", "Keep memories from fading."),
    "retire": ("keep", "Set memories aside: kept, never recalled."),
    "restore": ("keep", "Take back memories that were retired."),
    "move": ("keep", "Rename a path with everything below it."),
    "export": ("exchange", "Write memories as Markdown, a file each."),
    "import": ("exchange", "Take in Markdown: an export, CLAUDE.md, AGENTS.md, notes."),
}


@click.group(
    "memories",
    cls=LazyGroup,
    table=_MEMORIES,
    epilog="""\b
Examples:
  perdure memories list --prefix user/preferences
  perdure memories history staging-server/port
  perdure memories export notes/
  perdure memories import CLAUDE.md

`perdure remember` makes one, `perdure forget` deletes one for good.""",
)
def memories_command() -> None:
    """Short statements worth keeping, each with its source, its time and how far it can be trusted. A newer one about
    the same thing takes the place of the older, and both stay.
    """
