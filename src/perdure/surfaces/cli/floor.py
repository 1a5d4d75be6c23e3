"""The group of commands about the floor; each is imported only when it runs."""

from __future__ import annotations

import click

from perdure.surfaces.cli.lazy import LazyGroup

_FLOOR_COMMANDS: dict[str, tuple[str, str]] = {
    "show": ("floor_pages", "Show the text that every session begins with and its cost in tokens; or one page."),
    "edit": ("floor_pages", "Open a page in your editor."),
    "write": ("floor_pages", "Replace the text of a page."),
    "remove": ("floor_pages", "Remove a page; its history stays."),
    "forget": ("floor_edits", "Delete a line of a page, a card or a proposal permanently."),
    "history": ("floor_pages", "List every state of a page: when, by whom, why."),
    "diff": ("floor_pages", "Show what changed in a page."),
    "revert": ("floor_pages", "Restore an earlier text of a page."),
    "propose": ("floor_edits", "Propose an edit to the owner. Agents call this."),
    "proposals": ("floor_edits", "List the proposed edits that wait for your decision."),
    "approve": ("floor_edits", "Approve a proposed edit."),
    "reject": ("floor_edits", "Reject a proposed edit."),
    "alerts": ("floor_edits", "List the texts that are left out because they look like an injection."),
    "allow": ("floor_edits", "Allow a text that was left out."),
    "note": ("floor_notes", "Add a line to the notes."),
    "card": ("floor_notes", "Add a card: a few sentences for every session, until newer cards replace it."),
    "cards": ("floor_notes", "List, edit and remove cards."),
    "diary": ("floor_notes", "Read a page of the diary, or write the page of a past day."),
    "recent": ("floor_notes", "Update recent.md, about all projects, with the newest messages."),
}


@click.group(
    "floor",
    cls=LazyGroup,
    table=_FLOOR_COMMANDS,
    default_command="show",
    epilog="""\b
Examples:
  perdure floor                          the layers of the floor and their cost in tokens
  perdure floor edit profile             open it in your editor; you can also edit the file
  perdure floor history notes
  perdure floor card "Ask before you push" --by-agent
  perdure floor proposals                edits that agents propose

The pages are files in agents/ of the home. `perdure floor COMMAND --help` describes each command.""",
)
def floor_command() -> None:
    """Show and edit the floor: the text that every session begins with (system prompt, profile, core, notes, cards,
    recent, diary). Each layer has a budget of tokens.

    Without a command it runs `perdure floor show`.
    """
