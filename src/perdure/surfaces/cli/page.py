"""How pages of the floor are named, compared and billed on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from rich.text import Text

from perdure import text
from perdure.access.redact import mask
from perdure.errors import PerdureError
from perdure.floor import pages
from perdure.surfaces.cli.common import Shell, day
from perdure.surfaces.cli.memory import project_named
from perdure.surfaces.differences import difference
from perdure.surfaces.moments import written_at

if TYPE_CHECKING:  # 0.1 s, which `--help` does without
    from perdure.floor.floor import Floor
    from perdure.floor.layers import Layers
    from perdure.home import Home

NEXT_SESSION = "In force from the next session on."
_MARKS = {"+": "green", "-": "red", "@": "cyan"}


def complete_pages(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Names of pages that begin so: those of every floor, and those of this one; the first where there is no home."""
    from perdure.home import open_home

    found = set(pages.KNOWN)
    try:
        with open_home(ctx.params.get("home"), create=False, read_only=True) as home:
            found.update(home.floor.names())
    except PerdureError:  # a shell that completes has nowhere to show an error
        pass
    return [CompletionItem(name) for name in sorted(found) if name.startswith(incomplete)]


page_argument = click.argument("page", shell_complete=complete_pages)
by_agent_option = click.option("--by-agent", is_flag=True, help="An agent says this, not its owner.")


def writer(*, by_agent: bool) -> str:
    """Who writes, as the floor calls them."""
    return "agent" if by_agent else "owner"


def folder_of_project(home: Home, project: str | None, here: str | None) -> str | None:
    """The folder whose project counts: of the named one, of none for "", or where one is."""
    return here if project is None else project_named(home, project)


def when(hybrid_time: str) -> str:
    """A hybrid time for people."""
    return day(written_at(hybrid_time))


def print_difference(shell: Shell, old: str, new: str, name: str) -> None:
    """Print what makes a text of another, without the secrets in either."""
    for line in difference(mask(old), mask(new), name)[2:]:
        shell.out.print(Text(text.printable(line), style=_MARKS.get(line[:1], "dim")))


# the bill -----------------------------------------------------------------------------------------------------


def layers_of(shell: Shell, home: Home, cwd: str | None, platform: str) -> Layers:
    """C₀ for a session here, after telling what a person must know of the working copies."""
    found = home.layers(cwd=cwd, platform=platform)
    tell_alerts(shell, home.floor)
    return found


def tell_alerts(shell: Shell, floor: Floor) -> None:
    """Say what was amiss with the working copies."""
    for alert in floor.alerts:
        shell.note(alert)


def bill_json(found: Layers) -> dict[str, Any]:
    """The bill of a floor for programs."""
    layers = [
        {
            "name": layer.name, "source": layer.source, "rows": layer.n_rows, "tokens": layer.n_tokens,
            "tokens_each": _each(layer.n_tokens, layer.n_rows), "role": layer.role, "left": layer.n_left,
        }
        for layer in found.layers
    ]  # fmt: skip
    rows = sum(layer.n_rows for layer in found.layers)
    total = {"rows": rows, "tokens": found.n_tokens, "tokens_each": _each(found.n_tokens, rows)}
    return {"layers": layers, "total": total, "alerts": found.alerts}


def bill_lines(found: Layers, width: int | None = None) -> list[Text]:
    """The bill of a floor for people: a line for each layer, in their order, and the sum; none longer than the width,
    at the cost of what a layer is for.
    """
    bill = bill_json(found)
    head = Text(_bill_line("layer", "source", "rows", "tokens", "a row", "no room", "what it is for"), style="bold")
    total = {"name": "all", "source": "", "left": 0, "role": "what every session costs", **bill["total"]}
    lines = [
        head,
        *(Text(_layer_line(layer), style="" if layer["rows"] else "dim") for layer in bill["layers"]),
        Text(_layer_line(total), style="bold"),
    ]
    for line in lines if width else ():
        line.truncate(width or 0, overflow="ellipsis")
    return lines


def _layer_line(row: dict[str, Any]) -> str:
    each = f"{row['tokens_each']:,.1f}" if row["rows"] else ""
    left = f"{row['left']:,}" if row["left"] else ""
    return _bill_line(row["name"], row["source"], f"{row['rows']:,}", f"{row['tokens']:,}", each, left, row["role"])


def _bill_line(name: str, source: str, rows: str, tokens: str, each: str, left: str, role: str) -> str:
    return f"{name:<8}  {source:<10}  {rows:>5}  {tokens:>7}  {each:>8}  {left:>7}  {role}"


def _each(n_tokens: int, n_rows: int) -> float:
    return round(n_tokens / n_rows, 1) if n_rows else 0.0
