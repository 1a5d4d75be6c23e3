"""`/`: what is going on, what asks for a decision, and where to go."""

from __future__ import annotations

import contextlib
from typing import Any

from perdure.errors import IndexFault
from perdure.index.browse import Stretch, Wanted
from perdure.surfaces.page import belief
from perdure.surfaces.page.views import recall
from perdure.surfaces.page.visits import Shown, View, Visit
from perdure.types import RunView

_RUNS = 8
_MEMORIES = 6
_TOLD = 4


def overview(visit: Visit) -> Shown:
    """The first page."""
    try:
        values = _known(visit)
    except IndexFault:
        values = {"sessions": [], "memories": [], "recalls": [], "n_memories": 0, "n_turns": 0}
    return Shown("overview.html", {"title": "Overview", "belief": belief, **values, "told": _told(visit)})


def _known(visit: Visit) -> dict[str, Any]:
    known = visit.home.memories
    return {
        "sessions": _sessions(visit), "n_memories": known.count(Wanted()),
        "memories": known.page(Wanted(), Stretch(0, _MEMORIES), order="newest"),
        "n_turns": sum(visit.home.said_by_month().values()),
        "recalls": recall.listed(visit, visit.home.injections.newest(limit=_TOLD)),
    }  # fmt: skip


def _sessions(visit: Visit) -> list[RunView]:
    """The newest run of each of the newest sessions."""
    found: dict[tuple[str, str], RunView] = {}
    nodes = visit.home.forest(limit=_RUNS * 8)
    todo = list(nodes)
    while todo:
        node = todo.pop()
        run = node.run
        key = run.runtime, run.session
        if key not in found or _at(run) > _at(found[key]):
            found[key] = run
        todo += node.children
    return sorted(found.values(), key=_at, reverse=True)[:_RUNS]


def _at(run: RunView) -> Any:
    return run.ended_at or run.captured_at


def _told(visit: Visit) -> dict[str, Any]:
    """What the resident home says of itself, as far as the visitor may know."""
    with contextlib.suppress(OSError):
        said = visit.server.health()
        return {
            "problems": said.get("problems", []) if visit.identity.is_admin else [],
            "behind": said.get("behind", 0),
        }
    return {"problems": [], "behind": 0}


ROWS: tuple[View, ...] = (View("GET", "/", overview, nav="overview"),)
