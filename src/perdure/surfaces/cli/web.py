"""The command `page`, which opens this home in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from urllib.parse import urlencode

import click

from perdure.capture import events
from perdure.config import find_home_path
from perdure.errors import PackageMissing, PerdureError, ServiceFault, UsageError
from perdure.service import lock
from perdure.surfaces.cli.common import Shell, command
from perdure.surfaces.cli.serve import start_in_background
from perdure.surfaces.web import listener

_ANSWER_LIMIT_S = 20.0  # limit for the first answer of a resident home


@command(
    "page",
    epilog="""\
  perdure page             print a one-time sign-in link
  perdure page --open      also open it in a browser
  perdure page --at /search?q=port
  perdure page --off       switch the page off at the next `serve`""",
)
@click.option("--open", "is_opened", is_flag=True, help="Also open the link in a browser.")
@click.option(
    "--at",
    "path",
    default="",
    metavar="PATH",
    help="Open this page first, e.g. /search?q=port (default: Home).",
)
@click.option("--off", is_flag=True, help="Switch the page off, from the next start of `perdure serve` on.")
def page_command(shell: Shell, is_opened: bool, path: str, off: bool) -> None:
    """Print a one-time sign-in link to the web page of this home. The link is valid for ten minutes. If the home is not
    served yet, this command starts it in the background. The page answers only this machine, unless server.http is set.
    """
    home = find_home_path(shell.home)
    if (rules := shell.load_thin_rules()) is not None:
        _print_link(shell, f"{rules.remote.url}/enter" + _to_query(path), is_opened=is_opened)
    elif off:
        _switch_page_off(shell, home)
    else:
        _print_link(shell, _request_link(shell, home) + _to_query(path), is_opened=is_opened)


def _to_query(path: str) -> str:
    """Return the query that makes a link lead to a page of the home. Raises UsageError if the path is no such
    page.
    """
    if path and not path.startswith("/"):
        raise UsageError(f"{path!r} is not a page: give the part after the address, as /search?q=port")
    return f"?{urlencode({'to': path})}" if path else ""


def _request_link(shell: Shell, home: Path) -> str:
    """Ask the resident home for a link, and start one if none runs. Raises PerdureError."""
    shell.open_home(create=True).close()  # raises if the home is unusable, before a process is started for it
    if lock.find_resident(home) is None:
        listener.require_packages()  # before a process is started that could not serve the page
        start_in_background(home)
    try:
        reply = events.ask_resident(home, {"op": "page"}, timeout_s=_ANSWER_LIMIT_S)
    except (OSError, ValueError) as error:
        raise ServiceFault("the resident home does not answer; run `perdure serve --stop`, then try again") from error
    if "page" not in reply:
        fault = reply.get("error", {})
        error_class = PackageMissing if fault.get("code") == PackageMissing().code else PerdureError
        raise error_class(str(fault.get("detail") or "the resident home has no page"))
    return str(reply["page"])


def _print_link(shell: Shell, address: str, *, is_opened: bool) -> None:
    if shell.as_json:
        shell.print_json({"page": address})
    else:
        shell.out.print(address, markup=False, soft_wrap=True)
    if is_opened and not webbrowser.open(address):
        shell.note("No browser could be opened: open the link yourself.")


def _switch_page_off(shell: Shell, home: Path) -> None:
    was_on = listener.forget_address(home)
    if shell.as_json:
        shell.print_json({"was_on": was_on})
    else:
        shell.out.print(
            "The page is off from the next start of `perdure serve` on." if was_on else "The page was already off."
        )
