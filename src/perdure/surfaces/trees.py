"""Draw runs as trees, one line for each run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from perdure import text
from perdure.surfaces.units import format_count, format_time_and_age
from perdure.types import Node, RunView

_TITLE_CHARS = 72
_MAX_UNFOLDED = 4  # deltas of one session in a row before the middle is folded


def draw_trees(nodes: Sequence[Node], now: datetime, *, fold: bool, reader: str = "") -> Iterator[Text]:
    """Yield the lines of a forest. It needs no recursion: sessions can be thousands of deltas deep.

    reader: the user who reads it; runs of others are marked with their owner.
    """
    stack = [(node, "", i == len(nodes) - 1) for i, node in reversed(list(enumerate(nodes)))]
    while stack:
        node, indent, is_last = stack.pop()
        yield Text(f"{indent}{'└─' if is_last else '├─'} ") + _draw_name(node.run)
        inner_indent = indent + ("   " if is_last else "│  ")
        yield Text(f"{inner_indent}  ") + _draw_badges(node.run, now, reader)
        children, n_folded = _fold_children(node) if fold else (node.children, 0)
        if n_folded:
            yield Text(f"{inner_indent}⋮ {n_folded} more deltas of this session (--all)", style="dim")
        stack += [(child, inner_indent, i == len(children) - 1) for i, child in reversed(list(enumerate(children)))]


def _fold_children(node: Node) -> tuple[Sequence[Node], int]:
    """Return the children to draw below a node, and the number of deltas in a row that were skipped on the way."""
    chain, last_node = [], node
    while len(last_node.children) == 1 and is_same_session(last_node.children[0].run, node.run):
        last_node = last_node.children[0]
        chain.append(last_node)
    if len(chain) <= _MAX_UNFOLDED:
        return node.children, 0
    return (chain[-1],), len(chain) - 1


def split_session(node: Node) -> tuple[Sequence[RunView], Sequence[Node]]:
    """Return (the runs of the session, oldest first; the other trees below any of them, oldest first)."""
    chain, other_children, last_node = [node.run], [], node
    while True:
        next_node = next((child for child in last_node.children if is_same_session(child.run, last_node.run)), None)
        other_children += [child for child in last_node.children if child is not next_node]
        if next_node is None:
            return chain, other_children
        chain.append(next_node.run)
        last_node = next_node


def is_same_session(run: RunView, other_run: RunView) -> bool:
    """Return True if two runs belong to the same session."""
    return (run.runtime, run.session, run.generation, run.sidechain) == (
        other_run.runtime,
        other_run.session,
        other_run.generation,
        other_run.sidechain,
    )


def _draw_name(run: RunView) -> Text:
    """Return the project and the title of a run."""
    line = Text(text.shorten_project(run.project) or "no project", style="bold cyan")
    if kind := describe_kinship(run):
        line.append(f" ⤷{kind}", style="yellow")
    return line.append(f"  {text.one_line(run.title or run.intent, _TITLE_CHARS) or 'no request'}", style="default")


def _draw_badges(run: RunView, now: datetime, reader: str) -> Text:
    line = Text(format_time_and_age(run.ended_at or run.captured_at, now), style="green")
    line.append(f"  {run.runtime}", style="dim cyan")
    line.append(f" @{run.machine}", style="magenta")
    line.append(f"  {format_count(run.n_turns, 'turn')}")
    for tag in run.tags:
        line.append(f" #{text.one_line(tag, 40)}", style="blue")
    if reader and run.user != reader:
        line.append(f" shared by {run.user}", style="yellow")
    return line + Text(f"  {run.run_id[:14]}", style="dim")


def describe_kinship(run: RunView) -> str:
    """Name the relation to the parent: sidechain, fork or sub-agent; empty for the next delta of a session."""
    is_spawned = run.session != run.conversation and run.from_offset == 0
    return "sidechain" if run.sidechain else "fork" if run.fork else "sub-agent" if is_spawned else ""
