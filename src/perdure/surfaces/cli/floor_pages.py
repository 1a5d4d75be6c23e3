"""Commands about the pages of the floor: show, edit, write, remove, history, diff, revert."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markdown import Markdown
from rich.text import Text

from perdure import text
from perdure.access.redact import mask
from perdure.errors import EditRefused, FloorMissing, PerdureError, UsageError
from perdure.floor import layers, pages
from perdure.floor.floor import Floor
from perdure.floor.state import PageVersion
from perdure.remote_home import RemoteFloor
from perdure.surfaces.cli.common import Shell, command
from perdure.surfaces.cli.floor_common import (
    build_layers,
    by_agent_option,
    choose_folder,
    complete_pages,
    costs_to_json,
    format_costs,
    format_hybrid_time,
    format_kept,
    kept_to_json,
    name_writer,
    page_argument,
    print_alerts,
    print_difference,
)
from perdure.surfaces.cli.memory_common import read_words
from perdure.surfaces.text_diff import make_unified_diff

if TYPE_CHECKING:
    from perdure.home import Home
    from perdure.remote_home import RemoteHome

_EVENT_CHARS = 12  # of an event's key: enough to identify it among the changes of a page

# show ---------------------------------------------------------------------------------------------------------


@command(
    "show",
    epilog="""\
  perdure floor                          the layers of the floor and their cost in tokens
  perdure floor show profile             one page
  perdure floor show diary/2026-11-21
  perdure floor --platform telegram --project web --json""",
)
@click.argument("page", required=False, shell_complete=complete_pages)
@click.option("--platform", default="api", show_default=True, help="The platform of the session, for {{platform}}.")
@click.option("--project", help='The project of the session; "" for none (default: the project of the current folder).')
def show_command(shell: Shell, page: str | None, platform: str, project: str | None) -> None:
    """Show the text that every session begins with: each layer with its source, its rows, its tokens and the rows that
    did not fit, in the order in which a model reads them. The table ends with all that is kept (memories, pages and
    cards, diary) and the total. Below are the texts that are left out because they look like
    an injection. With PAGE, show one page.
    """
    with shell.use_home() as home:
        if page is not None:
            _show_page(shell, home.floor, pages.resolve_name(page))
            return
        floor_layers = build_layers(shell, home, choose_folder(home, project, str(Path.cwd())), platform)
        kept_layers = home.floor.list_kept()
    if shell.as_json:
        shell.print_json(
            costs_to_json(floor_layers) | {"kept": kept_to_json(kept_layers)},
            next_actions=[("perdure context MESSAGE", "show the full text, with recall")],
        )
        return
    width = shell.out.width if shell.out.is_terminal else None
    for line in [*format_costs(floor_layers, width), *format_kept(kept_layers, width)]:
        shell.out.print(line)
    for alert in floor_layers.alerts:
        shell.out.print(text.printable(alert), style="yellow", markup=False)
    if not floor_layers.n_tokens:
        shell.suggest(
            [
                ("perdure floor edit profile", "write your profile"),
                ("perdure floor edit core", "write facts for every session"),
            ]
        )


def _show_page(shell: Shell, floor: Floor | RemoteFloor, name: str) -> None:
    page_text = mask(floor.read(name))
    print_alerts(shell, floor)
    if not page_text:
        raise FloorMissing(f"the page {name} is not written yet: `perdure floor edit {name}` creates it")
    if shell.as_json:
        version = _version_to_json(floor.list_versions(name)[-1]) if floor.writable else None
        shell.print_json(
            {
                "page": name,
                "text": page_text,
                "tokens": text.tokens(page_text),
                "file": str(floor.folder / name) if floor.folder else None,  # not of this machine
                "version": version,
            }
        )
    elif shell.out.is_terminal and name.endswith(".md"):
        shell.out.print(Markdown(text.printable(page_text)))
    else:
        shell.out.print(text.printable(page_text), end="", markup=False)


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
    """Open a page in $VISUAL or $EDITOR. The saved text is checked, shown as a difference and written. If it is
    refused, the text stays in a file, and the message names the file. You can also edit the file in agents/ of the home
    with any program; Perdure takes over that edit unchanged.
    """
    with shell.use_home(create=True) as home:
        name = pages.resolve_name(page)
        old = home.floor.read(name)
        print_alerts(shell, home.floor)
        draft = _write_draft(name, old)
        click.edit(filename=str(draft))
        _write_page(shell, home, name, _read_draft(draft, name), base=old, draft=draft)


def _write_draft(name: str, page_text: str) -> Path:
    """Write the text of a page into a temporary file of its own; return its path."""
    stem, ending = os.path.splitext(name.replace("/", "-"))  # noqa: PTH122 - a name, not a path
    handle, path = tempfile.mkstemp(prefix=f"perdure-{stem}-", suffix=ending)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(page_text)
    return Path(path)


def _read_draft(draft: Path, name: str) -> str:
    try:
        return draft.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise EditRefused(f"{name}: the new text is not UTF-8; it is kept in {draft}") from error


def _write_page(shell: Shell, home: Home | RemoteHome, name: str, new_text: str, *, base: str, draft: Path) -> None:
    """Write what was saved in an editor; a draft that cannot be written stays."""
    floor = home.floor
    if new_text.strip() == base.strip():
        draft.unlink()
        _print_written(shell, floor, name, base, base)
        return
    try:
        _check_page(home, name, new_text)
        floor.write(name, new_text, base_text=base)
    except PerdureError as error:
        raise type(error)(f"{error.detail}; your text is kept in {draft}") from error
    draft.unlink()
    _print_written(shell, floor, name, base, floor.read(name))


def _check_page(home: Home | RemoteHome, name: str, new_text: str) -> None:
    """Check the settings of an agent as their reader does; another machine's home checks by itself."""
    from perdure.home import Home

    if name == pages.SETTINGS and isinstance(home, Home):
        from perdure.agent.self_edit import check_page

        check_page(home, name, new_text)


@command(
    "write",
    epilog="""\
  perdure floor write core "The house is called Alder."
  perdure floor write profile - < about-me.md
  perdure floor write notes - --by-agent --why "put in order" < notes.md""",
)
@page_argument
@click.argument("words", nargs=-1, metavar="[TEXT…|-]")
@click.option("--why", default="", help="The reason, for the history.")
@by_agent_option
def write_command(shell: Shell, page: str, words: tuple[str, ...], why: str, by_agent: bool) -> None:
    """Replace the whole text of a page (`perdure floor note` adds a line to the notes). The history keeps the old text.
    Only the owner can write the profile. An agent changes the system prompt, its settings and skills with `perdure
    floor propose`.
    """
    new_text = read_words(words, "the new text", page=page)
    with shell.use_home(create=True) as home:
        name = pages.resolve_name(page)
        old = home.floor.read(name)
        _check_page(home, name, new_text)
        home.floor.write(name, new_text, by=name_writer(by_agent=by_agent), why=why)
        _print_written(shell, home.floor, name, old, home.floor.read(name))


def _print_written(shell: Shell, floor: Floor | RemoteFloor, name: str, old: str, new: str) -> None:
    """Print the result of a change to a page, and whether a model will read it."""
    version = next(reversed(floor.list_versions(name)), None) if new else None
    suspects = floor.find_injections(layers.clean_page_text(new)) if new else ()
    if shell.as_json:
        shell.print_json(
            {
                "page": name,
                "changed": old != new,
                "difference": make_unified_diff(mask(old), mask(new), name),
                "tokens": text.tokens(new),
                "version": _version_to_json(version) if version else None,
                "left_out": bool(suspects),
            }
        )
        return
    if old == new:
        shell.out.print(f"{name}: no change.", markup=False)
        return
    print_difference(shell, old, new, name)
    shell.out.print(f"{name}: written. {pages.NEXT_SESSION}", style="bold", markup=False)
    if version and version.unseen:
        shell.note(
            f"{name} was changed while you edited it. Your text is current; `perdure floor history {name}` shows both."
        )
    left_out_name = f"one or more lines of {name}" if name == pages.NOTES else name
    for finding in suspects[:1]:
        shell.note(
            f"left out of every context: {left_out_name}. Reason: {finding.rule}, "
            f"{finding.excerpt!r}. `perdure floor alerts` shows more."
        )


@command("remove", epilog="  perdure floor remove diary/2026-11-21\n  perdure floor remove core --json")
@page_argument
def remove_command(shell: Shell, page: str) -> None:
    """Remove a page. The history keeps it, and `perdure floor revert` restores it. To delete text permanently, use
    `perdure floor forget`.
    """
    with shell.open_home() as home:
        name = pages.resolve_name(page)
        home.floor.remove(name)
        last_event = home.floor.list_versions(name)[-2].event
    revert_action = (f"perdure floor revert {name} {last_event[:_EVENT_CHARS]}", "restore it")
    if shell.as_json:
        shell.print_json({"page": name, "removed": True}, next_actions=[revert_action])
        return
    shell.out.print(f"{name}: removed. {pages.NEXT_SESSION}", style="bold", markup=False)
    shell.suggest([revert_action])


# history, diff, revert ----------------------------------------------------------------------------------------


@command("history", epilog="  perdure floor history notes\n  perdure floor history system --json")
@page_argument
def history_command(shell: Shell, page: str) -> None:
    """Show every state of a page, oldest first: the event, its time, its author and the reason. The author `hand` is an
    edit of the file itself. Of two edits made at the same time the later one is current; both are listed, and the later
    one is marked.
    """
    with shell.use_home() as home:
        name = pages.resolve_name(page)
        versions = home.floor.list_versions(name)
        print_alerts(shell, home.floor)
    if shell.as_json:
        shell.print_json({"page": name, "versions": [_version_to_json(version) for version in versions]})
        return
    for version in versions:
        current_mark = "  now" if version is versions[-1] else ""
        line = Text(f"{version.event[:_EVENT_CHARS]}  ", style="bold")
        line.append(f"{format_hybrid_time(version.at)}  {version.by:<5}{current_mark}{_format_remark(version)}")
        shell.out.print(line)


def _format_remark(version: PageVersion) -> str:
    removed_mark = "  [removed]" if not version.sha else ""
    unseen_mark = "  [replaced an edit made at the same time]" if version.unseen else ""
    return f"{removed_mark}{unseen_mark}{'  ' if version.why else ''}{text.one_line(mask(version.why), 100)}"


@command("diff", epilog="  perdure floor diff notes\n  perdure floor diff notes 3f9c2a11 --json")
@page_argument
@click.argument("event", required=False)
def diff_command(shell: Shell, page: str, event: str | None) -> None:
    """Show the changes of a page since an event of its history; without an event, the last change."""
    with shell.open_home() as home:
        floor, name = home.floor, pages.resolve_name(page)
        versions = floor.list_versions(name)
        since_event = event or (versions[-2].event if len(versions) > 1 else "")
        old, new = floor.read_version(name, since_event) if since_event else "", floor.read(name)
    if shell.as_json:
        shell.print_json(
            {"page": name, "since": since_event or None, "difference": make_unified_diff(mask(old), mask(new), name)}
        )
    elif old == new:
        shell.out.print(f"{name}: the text is the same as at that event.", markup=False)
    else:
        print_difference(shell, old, new, name)


@command("revert", epilog="  perdure floor revert notes 3f9c2a11")
@page_argument
@click.argument("event")
def revert_command(shell: Shell, page: str, event: str) -> None:
    """Restore the text that a page had after an event of its history. You can revert this change too."""
    if not event:
        raise UsageError("give an event; `perdure floor history` lists them")
    with shell.open_home() as home:
        name = pages.resolve_name(page)
        old = home.floor.read(name)
        home.floor.revert(name, event)
        _print_written(shell, home.floor, name, old, home.floor.read(name))


def _version_to_json(version: PageVersion) -> dict[str, Any]:
    import msgspec  # already loaded when a home is open

    fields: dict[str, Any] = msgspec.structs.asdict(version)
    return fields | {"removed": not version.sha}
