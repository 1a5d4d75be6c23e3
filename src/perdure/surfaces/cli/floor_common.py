"""How the command line names, compares and bills pages of the floor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from rich.text import Text

from perdure import text
from perdure.access.redact import mask
from perdure.errors import PerdureError
from perdure.floor import pages
from perdure.surfaces.cli.common import Shell, format_time
from perdure.surfaces.cli.memory_common import resolve_project
from perdure.surfaces.text_diff import make_unified_diff
from perdure.surfaces.units import from_hybrid_time

if TYPE_CHECKING:  # costs 0.1 s; `--help` does not need it
    from perdure.floor.floor import Floor
    from perdure.floor.layers import KeptLayer, Layers
    from perdure.home import Home
    from perdure.remote_home import RemoteFloor, RemoteHome

_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def complete_pages(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Return the names of pages with this beginning: the standard ones, and those of this home if it can be read."""
    from perdure.home import open_home

    names = set(pages.STANDARD_PAGES)
    try:
        with open_home(ctx.params.get("home"), create=False, read_only=True) as home:
            names.update(home.floor.list_pages())
    except PerdureError:  # completion has nowhere to show an error
        pass
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


page_argument = click.argument("page", shell_complete=complete_pages)
by_agent_option = click.option("--by-agent", is_flag=True, help="Record an agent as the author, not the owner.")


def name_writer(*, by_agent: bool) -> str:
    """Name the writer as the floor does: "agent" or "owner"."""
    return "agent" if by_agent else "owner"


def choose_folder(home: Home | RemoteHome, project: str | None, current_folder: str | None) -> str | None:
    """Return the folder whose project counts: the named project, none for "", or else the current folder."""
    return current_folder if project is None else resolve_project(home, project)


def format_hybrid_time(hybrid_time: str) -> str:
    """Format a hybrid time for people."""
    return format_time(from_hybrid_time(hybrid_time))


def print_difference(shell: Shell, old: str, new: str, name: str) -> None:
    """Print the difference between two texts, with the secrets in both masked."""
    for line in make_unified_diff(mask(old), mask(new), name)[2:]:
        shell.out.print(Text(text.printable(line), style=_DIFF_STYLES.get(line[:1], "dim")))


# the costs ----------------------------------------------------------------------------------------------------


def build_layers(shell: Shell, home: Home | RemoteHome, cwd: str | None, platform: str) -> Layers:
    """Build C₀ for a session here, and print what a person must know about the working copies."""
    floor_layers = home.floor.layers(cwd=cwd, platform=platform)
    print_alerts(shell, home.floor)
    return floor_layers


def print_alerts(shell: Shell, floor: Floor | RemoteFloor) -> None:
    """Print the problems of the working copies."""
    for alert in floor.alerts:
        shell.note(alert)


def costs_to_json(floor_layers: Layers) -> dict[str, Any]:
    """Convert the costs of a floor to JSON values."""
    rows = [
        {
            "name": layer.name,
            "source": layer.source,
            "rows": layer.n_rows,
            "tokens": layer.n_tokens,
            "tokens_each": _average_tokens(layer.n_tokens, layer.n_rows),
            "role": layer.role,
            "left": layer.n_left,
        }
        for layer in floor_layers.layers
    ]
    n_rows = sum(layer.n_rows for layer in floor_layers.layers)
    total = {
        "rows": n_rows,
        "tokens": floor_layers.n_tokens,
        "tokens_each": _average_tokens(floor_layers.n_tokens, n_rows),
    }
    return {"layers": rows, "total": total, "alerts": floor_layers.alerts}


def format_costs(floor_layers: Layers, width: int | None = None) -> list[Text]:
    """Format the costs of a floor for people: one row for each layer, in their order, and the sum.

    width: the most characters of a row; a longer row loses the end of what its layer is for.
    """
    costs = costs_to_json(floor_layers)
    header = Text(_format_costs_row("layer", "source", "rows", "tokens", "a row", "no room", "content"), style="bold")
    total = {"name": "all", "source": "", "left": 0, "role": "cost of every session", **costs["total"]}
    lines = [
        header,
        *(Text(_format_layer(layer), style="" if layer["rows"] else "dim") for layer in costs["layers"]),
        Text(_format_layer(total), style="bold"),
    ]
    return _truncate_lines(lines, width)


def kept_to_json(kept_layers: Sequence[KeptLayer]) -> dict[str, Any]:
    """Convert what a home keeps in its layers to JSON values, with the sum."""
    rows = [
        {
            "name": layer.name,
            "source": layer.source,
            "rows": layer.n_rows,
            "tokens": layer.n_tokens,
            "tokens_each": _average_tokens(layer.n_tokens, layer.n_rows),
            "role": layer.role,
        }
        for layer in kept_layers
    ]
    n_rows, n_tokens = sum(layer.n_rows for layer in kept_layers), sum(layer.n_tokens for layer in kept_layers)
    total = {"rows": n_rows, "tokens": n_tokens, "tokens_each": _average_tokens(n_tokens, n_rows)}
    return {"layers": rows, "total": total}


def format_kept(kept_layers: Sequence[KeptLayer], width: int | None = None) -> list[Text]:
    """Format what a home keeps, in the columns of the costs."""
    kept = kept_to_json(kept_layers)
    total = {"name": "total", "source": "", "role": "all that is kept", **kept["total"]}
    lines = [
        Text(_format_layer({"left": 0, **row}), style="bold" if row is total else "")
        for row in [*kept["layers"], total]
    ]
    return _truncate_lines(lines, width)


def _truncate_lines(lines: list[Text], width: int | None) -> list[Text]:
    for line in lines if width else ():
        line.truncate(width or 0, overflow="ellipsis")
    return lines


def _format_layer(row: dict[str, Any]) -> str:
    average = f"{row['tokens_each']:,.1f}" if row["rows"] else ""
    left_out = f"{row['left']:,}" if row["left"] else ""
    return _format_costs_row(
        row["name"], row["source"], f"{row['rows']:,}", f"{row['tokens']:,}", average, left_out, row["role"]
    )


def _format_costs_row(name: str, source: str, rows: str, tokens: str, each: str, left_out: str, role: str) -> str:
    return f"{name:<8}  {source:<10}  {rows:>5}  {tokens:>7}  {each:>8}  {left_out:>7}  {role}"


def _average_tokens(n_tokens: int, n_rows: int) -> float:
    return round(n_tokens / n_rows, 1) if n_rows else 0.0
