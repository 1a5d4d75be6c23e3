"""Commands about the pages of the floor: show, edit, write, remove, history, diff, revert."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.markdown import Markdown
from rich.text import Text

from perdure import text
from perdure.access.redact import mask
from perdure.errors import EditRefused, FloorMissing, PerdureError, UsageError
from perdure.floor import layers, pages
from perdure.floor.floor import Floor
from perdure.floor.state import Version
from perdure.surfaces.cli.common import Shell, command
from perdure.surfaces.cli.memory import said
from perdure.surfaces.cli.page import (
    NEXT_SESSION,
    bill_json,
    bill_lines,
    by_agent_option,
    complete_pages,
    folder_of_project,
    layers_of,
    page_argument,
    print_difference,
    tell_alerts,
    when,
    writer,
)
from perdure.surfaces.differences import difference

_EVENT_CHARS = 12  # of an event's key: enough to name it among the changes of a page

# show ---------------------------------------------------------------------------------------------------------


@command(
    "show",
    epilog="""\
  perdure floor                          what every session begins with, and what it costs
  perdure floor show profile             one page
  perdure floor show diary/2026-11-21
  perdure floor --platform telegram --project web --json""",
)
@click.argument("page", required=False, shell_complete=complete_pages)
@click.option("--platform", default="api", show_default=True, help="Where the session runs, for {{platform}}.")
@click.option("--project", help='For a session in this project; "" for none (default: of the folder you are in).')
def show_command(shell: Shell, page: str | None, platform: str, project: str | None) -> None:
    """What every session begins with: each layer with its source, rows, tokens and what had no room, in the order in
    which a model reads them, and below what was left out because it looks like an injection. Or one page.
    """
    with shell.open() as home:
        if page is not None:
            _show_page(shell, home.floor, pages.checked(page))
            return
        found = layers_of(shell, home, folder_of_project(home, project, str(Path.cwd())), platform)
    if shell.as_json:
        shell.answer(bill_json(found), next_actions=[("perdure context MESSAGE", "see it in full, with recall")])
        return
    for line in bill_lines(found, shell.out.width if shell.out.is_terminal else None):
        shell.out.print(line)
    for alert in found.alerts:
        shell.out.print(text.printable(alert), style="yellow", markup=False)
    if not found.n_tokens:
        shell.suggest([("perdure floor edit profile", "say who you are"), ("perdure floor edit core", "what is true")])


def _show_page(shell: Shell, floor: Floor, name: str) -> None:
    said = mask(floor.read(name))
    tell_alerts(shell, floor)
    if not said:
        raise FloorMissing(f"page {name} of the floor (`perdure floor edit {name}` writes it)")
    if shell.as_json:
        version = _version_json(floor.history(name)[-1]) if floor.writable else None
        shell.answer({
            "page": name, "text": said, "tokens": text.tokens(said), "file": str(floor.folder / name),
            "version": version,
        })  # fmt: skip
    elif shell.out.is_terminal and name.endswith(".md"):
        shell.out.print(Markdown(text.printable(said)))
    else:
        shell.out.print(text.printable(said), end="", markup=False)


# edit, write, remove ------------------------------------------------------------------------------------------


@command(
    "edit",
    epilog="""\
  perdure floor edit profile
  EDITOR=nano perdure floor edit system
  perdure floor edit skills/release/SKILL.md""",
)
@page_argument
def edit_command(shell: Shell, page: str) -> None:
    """Open a page in $VISUAL or $EDITOR. What you save is looked at, shown as a difference and written; what is refused
    is kept beside, and you are told where. Or edit the file in agents/ of the home with whatever you like: that is
    taken as it is.
    """
    with shell.open(create=True) as home:
        name = pages.checked(page)
        old = home.floor.read(name)
        tell_alerts(shell, home.floor)
        draft = _draft(name, old)
        click.edit(filename=str(draft))
        _write(shell, home.floor, name, _taken(draft, name), base=old, draft=draft)


def _draft(name: str, said: str) -> Path:
    """A file of one's own that holds a page's text."""
    stem, ending = os.path.splitext(name.replace("/", "-"))  # noqa: PTH122 - a name, not a path
    handle, path = tempfile.mkstemp(prefix=f"perdure-{stem}-", suffix=ending)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(said)
    return Path(path)


def _taken(draft: Path, name: str) -> str:
    try:
        return draft.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise EditRefused(f"{name}: the new text is not UTF-8; it is kept in {draft}") from error


def _write(shell: Shell, floor: Floor, name: str, said: str, *, base: str, draft: Path) -> None:
    """Write what was made in an editor; a draft that cannot be written stays."""
    if said.strip() == base.strip():
        draft.unlink()
        _say_written(shell, floor, name, base, base)
        return
    try:
        floor.write(name, said, base=base)
    except PerdureError as error:
        raise type(error)(f"{error.detail}; your text is kept in {draft}") from error
    draft.unlink()
    _say_written(shell, floor, name, base, floor.read(name))


@command(
    "write",
    epilog="""\
  perdure floor write core "The house is called Alder."
  perdure floor write profile - < about-me.md
  perdure floor write notes - --by-agent --why "put in order" < notes.md""",
)
@page_argument
@click.argument("words", nargs=-1, metavar="[TEXT…|-]")
@click.option("--why", default="", help="Why, for the history.")
@by_agent_option
def write_command(shell: Shell, page: str, words: tuple[str, ...], why: str, by_agent: bool) -> None:
    """Give a page a new text, in place of all that it says; `note` adds a line to the notes. The old text stays in the
    history. The profile is its owner's, and an agent changes the system prompt, its settings and skills by `propose`.
    """
    fresh = said(words, "the new text", page=page)
    with shell.open(create=True) as home:
        name = pages.checked(page)
        old = home.floor.read(name)
        home.floor.write(name, fresh, by=writer(by_agent=by_agent), why=why)
        _say_written(shell, home.floor, name, old, home.floor.read(name))


def _say_written(shell: Shell, floor: Floor, name: str, old: str, new: str) -> None:
    """What became of a page, and whether it will be before a model."""
    version = next(reversed(floor.history(name)), None) if new else None
    suspects = floor.suspicious(layers.injected(new)) if new else ()
    if shell.as_json:
        shell.answer({
            "page": name, "changed": old != new, "difference": difference(mask(old), mask(new), name),
            "tokens": text.tokens(new), "version": _version_json(version) if version else None,
            "left_out": bool(suspects),
        })  # fmt: skip
        return
    if old == new:
        shell.out.print(f"{name}: nothing to change.", markup=False)
        return
    print_difference(shell, old, new, name)
    shell.out.print(f"{name}: written. {NEXT_SESSION}", style="bold", markup=False)
    if version and version.unseen:
        shell.note(f"{name} was changed while you edited it. Yours counts; `perdure floor history {name}` has both.")
    whole = f"a line of {name} or more" if name == pages.NOTES else name
    for one in suspects[:1]:
        shell.note(f"{whole} is left out: {one.rule}, {one.excerpt!r}. `perdure floor alerts` says more.")


@command("remove", epilog="  perdure floor remove diary/2026-11-21\n  perdure floor remove core --json")
@page_argument
def remove_command(shell: Shell, page: str) -> None:
    """Take a page away. Its history stays, and `perdure floor revert` brings it back; to delete words for good,
    `perdure floor forget`.
    """
    with shell.open() as home:
        name = pages.checked(page)
        home.floor.remove(name)
        before = home.floor.history(name)[-2].event
    back = (f"perdure floor revert {name} {before[:_EVENT_CHARS]}", "bring it back")
    if shell.as_json:
        shell.answer({"page": name, "removed": True}, next_actions=[back])
        return
    shell.out.print(f"{name}: removed. {NEXT_SESSION}", style="bold", markup=False)
    shell.suggest([back])


# history, diff, revert ----------------------------------------------------------------------------------------


@command("history", epilog="  perdure floor history notes\n  perdure floor history system --json")
@page_argument
def history_command(shell: Shell, page: str) -> None:
    """Every state of a page, oldest first: the event that made it, when, by whom and why. `hand` is an edit in the file
    itself. Of two edits made at the same time the later counts, and is marked: both are here.
    """
    with shell.open() as home:
        name = pages.checked(page)
        versions = home.floor.history(name)
        tell_alerts(shell, home.floor)
    if shell.as_json:
        shell.answer({"page": name, "versions": [_version_json(version) for version in versions]})
        return
    for version in versions:
        now = "  now" if version is versions[-1] else ""
        line = Text(f"{version.event[:_EVENT_CHARS]}  ", style="bold")
        line.append(f"{when(version.at)}  {version.by:<5}{now}{_remark(version)}")
        shell.out.print(line)


def _remark(version: Version) -> str:
    gone = "  [removed]" if not version.sha else ""
    unseen = "  [replaced an edit that its writer had not seen]" if version.unseen else ""
    return f"{gone}{unseen}{'  ' if version.why else ''}{text.one_line(mask(version.why), 100)}"


@command("diff", epilog="  perdure floor diff notes\n  perdure floor diff notes 3f9c2a11 --json")
@page_argument
@click.argument("event", required=False)
def diff_command(shell: Shell, page: str, event: str | None) -> None:
    """What changed in a page since an event of its history; without one, by its last change."""
    with shell.open() as home:
        floor, name = home.floor, pages.checked(page)
        versions = floor.history(name)
        since = event or (versions[-2].event if len(versions) > 1 else "")
        old, new = floor.said(name, since) if since else "", floor.read(name)
    if shell.as_json:
        shell.answer({"page": name, "since": since or None, "difference": difference(mask(old), mask(new), name)})
    elif old == new:
        shell.out.print(f"{name}: it says the same as then.", markup=False)
    else:
        print_difference(shell, old, new, name)


@command("revert", epilog="  perdure floor revert notes 3f9c2a11")
@page_argument
@click.argument("event")
def revert_command(shell: Shell, page: str, event: str) -> None:
    """Let a page say again what it said after an event of its history. That is a change like any other, and can be
    reverted.
    """
    if not event:
        raise UsageError("name an event; `perdure floor history` lists them")
    with shell.open() as home:
        name = pages.checked(page)
        old = home.floor.read(name)
        home.floor.revert(name, event)
        _say_written(shell, home.floor, name, old, home.floor.read(name))


def _version_json(version: Version) -> dict[str, Any]:
    import msgspec  # loaded already by whoever opened a home

    found: dict[str, Any] = msgspec.structs.asdict(version)
    return found | {"removed": not version.sha}
