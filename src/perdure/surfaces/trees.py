"""Runs drawn as the trees that they form, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from perdure import text
from perdure.surfaces.moments import ago
from perdure.types import Node, RunView

_FOLDED = 4  # deltas of one session in a row before the middle is folded


def draw(nodes: Sequence[Node], now: datetime, *, fold: bool, reader: str = "") -> Iterator[Text]:
    """The lines of a forest. Built without recursion: sessions can be thousands of deltas deep.

    reader: who reads it, and is told whose the runs of others are.
    """
    stack = [(node, "", i == len(nodes) - 1) for i, node in reversed(list(enumerate(nodes)))]
    while stack:
        node, indent, last = stack.pop()
        yield Text(f"{indent}{'└─' if last else '├─'} ") + _badges(node.run, now, reader)
        inner = indent + ("   " if last else "│  ")
        said = text.one_line(node.run.intent, 72)
        if said:
            yield Text(f'{inner}  "{said}"', style="italic dim")
        below, n_folded = _unfolded(node) if fold else (node.children, 0)
        if n_folded:
            yield Text(f"{inner}⋮ {n_folded} more deltas of this session (--all)", style="dim")
        stack += [(child, inner, i == len(below) - 1) for i, child in reversed(list(enumerate(below)))]


def _unfolded(node: Node) -> tuple[Sequence[Node], int]:
    """Children to draw below a node, and how many deltas in a row were passed over to get there."""
    chain, at = [], node
    while len(at.children) == 1 and same_session(at.children[0].run, node.run):
        at = at.children[0]
        chain.append(at)
    if len(chain) <= _FOLDED:
        return node.children, 0
    return (chain[-1],), len(chain) - 1


def deltas(node: Node) -> tuple[Sequence[RunView], Sequence[Node]]:
    """(the runs of a session from a node on, oldest first, what else hangs below any of them, oldest first)."""
    chain, below, at = [node.run], [], node
    while True:
        following = next((child for child in at.children if same_session(child.run, at.run)), None)
        below += [child for child in at.children if child is not following]
        if following is None:
            return chain, below
        chain.append(following.run)
        at = following


def same_session(a: RunView, b: RunView) -> bool:
    """Whether one run goes on with the session of another."""
    return (a.runtime, a.session, a.generation, a.sidechain) == (b.runtime, b.session, b.generation, b.sidechain)


def _badges(run: RunView, now: datetime, reader: str) -> Text:
    line = Text(run.runtime, style="bold cyan")
    line.append(f" @{run.machine}", style="magenta")
    line.append(f" {ago(run.ended_at or run.captured_at, now)}", style="green")
    line.append(f" {run.n_turns}t")
    if kind := kinship(run):
        line.append(f" ⤷{kind}", style="yellow")
    for tag in run.tags:
        line.append(f" #{text.one_line(tag, 40)}", style="blue")
    if reader and run.user != reader:
        line.append(f" shared by {run.user}", style="yellow")
    return line + Text(f"  {run.run_id[:14]}", style="dim")


def kinship(run: RunView) -> str:
    """What a run is to the one above it, where it is not the next delta of its session."""
    is_spawned = run.session != run.conversation and run.from_offset == 0
    return "sidechain" if run.sidechain else "fork" if run.fork else "sub-agent" if is_spawned else ""
