"""Forgetting what stands in a transcript: a page that says what would go with it, and the form that does it."""

from __future__ import annotations

from typing import Any

from perdure.errors import NotFound
from perdure.forget import Doomed
from perdure.home import Home
from perdure.surfaces.amounts import going
from perdure.surfaces.page.visits import Answer, Moved, Shown, View, Visit
from perdure.types import Memory

_SHOWN = 50  # turns and memories that are listed; the others are counted


def ask(visit: Visit) -> Answer:
    """What forgetting a run with all that is below it, or one of its turns, would take away."""
    name = _named(visit, visit.query.get("turn", ""))
    doomed, memories = _doomed(visit.home, name)
    return Shown("forget.html", _values(visit, name, doomed, memories))


def forget(visit: Visit) -> Answer:
    """Do it: what is there to be forgotten now, and no more than was shown."""
    name = _named(visit, visit.form.get("turn", ""))
    doomed, memories = _doomed(visit.home, name)
    if visit.form.get("n") != str(len(doomed)):
        said = "It has changed since you looked: look again at what would go."
        return Shown("forget.html", {**_values(visit, name, doomed, memories), "said": said}, 409)
    visit.home.forget(doomed, memories=[memory.memory_id for memory in memories])
    return Moved("/runs", f"Forgotten: {going(len(doomed), 'turn', len(memories))}.")


def _named(visit: Visit, turn: str) -> str:
    """What is to go: a turn of the run in the address, or the run. Raises NotFound for what is not the visitor's."""
    view = visit.home.run(visit.path["run_id"])
    if view.user != visit.home.user:
        raise NotFound
    if turn:
        visit.home.talk(view.run_id).place(turn)
    return turn or view.run_id


def _doomed(home: Home, name: str) -> tuple[list[Doomed], list[Memory]]:
    doomed = home.doomed([name])
    return doomed, home.doomed_memories(doomed)


def _values(visit: Visit, name: str, doomed: list[Doomed], memories: list[Memory]) -> dict[str, Any]:
    is_turn = name != visit.path["run_id"]
    back = f"/turns/{name}" if is_turn else f"/runs/{name}"
    return {
        "title": "Forget a turn" if is_turn else "Forget a run", "run_id": visit.path["run_id"], "back": back,
        "turn": name if is_turn else "", "doomed": doomed[:_SHOWN], "n": len(doomed), "memories": memories[:_SHOWN],
        "n_memories": len(memories), "counted": going(len(doomed), "turn", len(memories)), "said": "",
        "left": visit.home.repeating(doomed)[:_SHOWN],
        "files": sorted({item.run.path for item in doomed if item.run.path})[:_SHOWN],
    }  # fmt: skip


ROWS: tuple[View, ...] = (
    View("GET", "/runs/{run_id}/forget", ask, nav="runs", desk="slow"),
    View("POST", "/runs/{run_id}/forget", forget, nav="runs", desk="write"),
)
