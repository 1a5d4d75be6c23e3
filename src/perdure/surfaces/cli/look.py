"""The command that opens the page."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from urllib.parse import urlencode

import click

from perdure.capture import wire
from perdure.config import home_path
from perdure.errors import PackageMissing, PerdureError, UsageError
from perdure.jobs import post
from perdure.surfaces.cli.common import Shell, command
from perdure.surfaces.cli.resident import begun
from perdure.surfaces.page import listener

_ANSWER_S = 20.0  # so long may the first page of a resident home take


@command(
    "page",
    epilog="""\
  perdure page             print an address that lets you in, once
  perdure page --open      and open it in a browser
  perdure page --at /search?q=port
  perdure page --off       from the next `serve` on, answer no browser any more""",
)
@click.option("--open", "is_opened", is_flag=True, help="Open it in a browser as well.")
@click.option("--at", "place", default="", metavar="PATH", help="Lead to this page of it, as its address has it.")
@click.option("--off", is_flag=True, help="Have no page any more, from the next `serve` on.")
def page_command(shell: Shell, is_opened: bool, place: str, off: bool) -> None:
    """Print an address of this home's page. It lets one visitor in, within ten minutes; nobody but you can make one.
    The home is served in the background if it was not, and answers this machine alone unless server.http says
    otherwise.
    """
    home = home_path(shell.home)
    if (thin := shell.thin()) is not None:
        _show(shell, f"{thin.remote.url}/enter" + _leading(place), is_opened=is_opened)
    elif off:
        _switch_off(shell, home)
    else:
        _show(shell, _link(shell, home) + _leading(place), is_opened=is_opened)


def _leading(place: str) -> str:
    """What makes a link lead to a page of the home. Raises UsageError for what is none."""
    if place and not place.startswith("/"):
        raise UsageError(f"{place!r} is no page of a home: write what stands behind its address, as /search?q=port")
    return f"?{urlencode({'to': place})}" if place else ""


def _link(shell: Shell, home: Path) -> str:
    """A link of the home that is served. Raises PerdureError."""
    shell.open(create=True).close()  # says what is wrong with a home before a process is begun for it
    if post.resident(home) is None:
        begun(home)
    try:
        said = wire.ask(home, {"op": "page"}, timeout_s=_ANSWER_S)
    except (OSError, ValueError) as error:
        raise PerdureError("the resident home does not answer; `perdure serve --stop` ends it") from error
    if "page" not in said:
        fault = said.get("error", {})
        kind = PackageMissing if fault.get("code") == PackageMissing().code else PerdureError
        raise kind(str(fault.get("detail") or "the resident home has no page"))
    return str(said["page"])


def _show(shell: Shell, address: str, *, is_opened: bool) -> None:
    if shell.as_json:
        shell.answer({"page": address})
    else:
        shell.out.print(address, markup=False, soft_wrap=True)
    if is_opened and not webbrowser.open(address):
        shell.note("No browser could be opened here: open the address yourself.")


def _switch_off(shell: Shell, home: Path) -> None:
    was = listener.forget(home)
    if shell.as_json:
        shell.answer({"was_on": was})
    else:
        shell.out.print("There is no page from the next `perdure serve` on." if was else "There was no page.")
