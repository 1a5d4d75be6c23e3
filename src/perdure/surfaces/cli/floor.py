"""The group of commands about the floor; each is imported only when it runs."""

from __future__ import annotations

import click

from perdure.surfaces.cli.lazy import LazyGroup

_FLOOR_COMMANDS: dict[str, tuple[str, str]] = {
    "show": ("floor_pages", "Show what every session begins with, and what it costs; or one page."),
    "edit": ("floor_pages", "Open a page in your editor."),
    "write": ("floor_pages", "Give a page a new text."),
    "remove": ("floor_pages", "Remove a page; its history stays."),
    "forget": ("floor_edits", "Delete a line of a page, a card or a proposal for good."),
    "history": ("floor_pages", "List every state of a page: when, by whom, why."),
    "diff": ("floor_pages", "Show what changed in a page."),
    "revert": ("floor_pages", "Give a page an earlier text again."),
    "propose": ("floor_edits", "Ask the owner for an edit (what agents call)."),
    "proposals": ("floor_edits", "List the edits that wait for you."),
    "approve": ("floor_edits", "Make a proposed edit."),
    "reject": ("floor_edits", "Turn a proposed edit down."),
    "alerts": ("floor_edits", "List what is left out because it looks like an injection."),
    "allow": ("floor_edits", "Let a text through that was left out."),
    "note": ("floor_notes", "Add a line to the notes."),
    "card": ("floor_notes", "Add a card: a few sentences for every session, until newer ones need the room."),
    "cards": ("floor_notes", "List the cards, edit one, remove one."),
    "diary": ("floor_notes", "Read a page of the diary, or write that of a day that is over."),
    "recent": ("floor_notes", "Update recent.md with what was said last."),
}


@click.group(
    "floor",
    cls=LazyGroup,
    table=_FLOOR_COMMANDS,
    default_command="show",
    epilog="""\b
Examples:
  perdure floor                          what every session begins with, and what it costs
  perdure floor edit profile             in your editor; or edit the file, as you like
  perdure floor history notes
  perdure floor card "Ask before you push" --by-agent
  perdure floor proposals                what agents ask you to change

The pages are files in agents/ of the home. `perdure floor COMMAND --help` says more of each command.""",
)
def floor_command() -> None:
    """The text that every session begins with: system prompt, profile, core, notes, cards, recent, diary, each
    within a budget of tokens.

    Without a command: the bill, as `perdure floor show`.
    """
