"""The group of commands about the sessions that Perdure holds; each is imported only when it runs."""

from __future__ import annotations

import click

from perdure.surfaces.cli.lazy import LazyGroup

_SESSION_COMMANDS: dict[str, tuple[str, str]] = {
    "list": ("sessions_read", "List the sessions, with their tokens and their cost."),
    "tree": ("sessions_read", "Draw the chain of sessions, with compactions, branches, forks and labels."),
    "show": ("sessions_read", "Show a session, or one entry of it in full."),
    "export": ("sessions_read", "Write a whole conversation as Markdown or JSON."),
    "resume": ("sessions_edit", "Go on with a session in the terminal."),
    "branch": ("sessions_edit", "Go back to an entry; what was said after it stays as a branch."),
    "label": ("sessions_edit", "Name an entry, to find it again."),
    "title": ("sessions_edit", "Set the title of a session."),
}


@click.group(
    "sessions",
    cls=LazyGroup,
    table=_SESSION_COMMANDS,
    default_command="list",
    epilog="""\b
Examples:
  perdure sessions
  perdure sessions tree last
  perdure sessions show s7k2
  perdure sessions branch e4m9 --summary
  perdure sessions export 12 > plan.md

An ID is the beginning of the id of a session (s…), of an entry (e…) or of a turn that a search found (t…); the number
of a session in the list; or `last`, the last session of this project.""",
)
def sessions_command() -> None:
    """Work with the sessions that `perdure chat` and `perdure ask` held in this home. Nothing here deletes anything:
    `perdure forget` does.
    """
