"""The commands that go on with sessions, or name something in them: resume, branch, label, title."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from perdure.errors import UsageError
from perdure.formats.perdure import Label, Title
from perdure.home import Home
from perdure.session import export
from perdure.session.catalog import resolve_name
from perdure.session.log import SessionLog, open_log
from perdure.surfaces.cli.common import Shell, command


@command(
    "resume",
    epilog="""\
  perdure sessions resume last
  perdure sessions resume e4m9        from this entry; what was said after it stays as a branch""",
)
@click.argument("identifier", metavar="ID")
def resume_command(shell: Shell, identifier: str) -> None:
    """Go on with a session in the terminal: the same as `perdure chat --resume ID`."""
    home = ["--home", shell.home] if shell.home else []
    root = click.get_current_context().find_root().command
    root.main(["chat", "--resume", identifier, *home], prog_name="perdure")


@command(
    "branch",
    epilog="""\
  perdure sessions branch e4m9
  perdure sessions branch e4m9 --summary   the model reads what was tried on the branch that is left""",
)
@click.argument("identifier", metavar="ENTRY")
@click.option("--summary", "has_summary", is_flag=True, help="Keep what was asked and answered on the branch left.")
def branch_command(shell: Shell, identifier: str, has_summary: bool) -> None:
    """Go back to an entry, from which the session goes on with the next message. What was said after it stays, as a
    branch that can be resumed by any of its entries.
    """
    with shell.open_home() as home:
        session, entry_id = _resolve_entry(home, identifier)
        with _open_to_edit(home, session) as log:
            left = log.tree.leaf
            summary = export.summarise_left_branch(log.tree.list_left(left, entry_id)) if has_summary else ""
            log.move_leaf(entry_id, summary=summary)
            result = {"session": session, "leaf": log.tree.leaf, "left": left, "summary": summary}
    _print_result(shell, result, f"Session {session} goes on after {entry_id}. `{left}` resumes the branch left.")


@command(
    "label",
    epilog="""\
  perdure sessions label e4m9 "before the rewrite"
  perdure sessions label e4m9 ""          take the label away""",
)
@click.argument("identifier", metavar="ENTRY")
@click.argument("words", metavar="LABEL")
def label_command(shell: Shell, identifier: str, words: str) -> None:
    """Name an entry; `perdure sessions tree` shows the name beside it."""
    with shell.open_home() as home:
        session, entry_id = _resolve_entry(home, identifier)
        with _open_to_edit(home, session) as log:
            log.append(Label(target=entry_id, text=words.strip(), **log.make_fields()))
    result = {"session": session, "entry": entry_id, "label": words.strip()}
    _print_result(shell, result, f"Labelled {entry_id}." if words.strip() else f"{entry_id} has no label now.")


@command("title", epilog='  perdure sessions title last "The attic"')
@click.argument("identifier", metavar="ID")
@click.argument("words", metavar="TITLE")
def title_command(shell: Shell, identifier: str, words: str) -> None:
    """Set the title of a session, instead of its first message."""
    with shell.open_home() as home:
        session, _ = resolve_name(home, identifier, cwd=str(Path.cwd()))
        with _open_to_edit(home, session) as log:
            log.append(Title(text=words.strip(), **log.make_fields()))
    _print_result(shell, {"session": session, "title": words.strip()}, f"Session {session} has its title.")


@contextmanager
def _open_to_edit(home: Home, session: str) -> Iterator[SessionLog]:
    """Open a session to add an entry that is kept. Raises UsageError where nothing may be kept now."""
    with closing(open_log(home, session)) as log:
        if not log.is_kept:
            raise UsageError(
                "nothing was changed: capture is paused, this folder is excluded, or the home is read-only"
            )
        yield log


def _resolve_entry(home: Home, identifier: str) -> tuple[str, str]:
    session, entry_id = resolve_name(home, identifier, cwd=str(Path.cwd()))
    if not entry_id:
        raise UsageError(f"{identifier} is a session; `perdure sessions tree {identifier}` shows its entries (e…)")
    return session, entry_id


def _print_result(shell: Shell, result: dict[str, str], message: str) -> None:
    if shell.as_json:
        shell.print_json(result)
    else:
        shell.out.print(message, markup=False)
