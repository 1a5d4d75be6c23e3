"""Turns as they are read: those of a run, of a whole conversation, or around one turn; each once, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from perdure.errors import NotFound
from perdure.identity import turn_id
from perdure.types import RunView, Source, Turn

if TYPE_CHECKING:  # who shows a shared hit needs no home
    from perdure.home import Home, Transcript

Placed = tuple[RunView, Turn, bool]  # where a turn stands, the turn, whether its branch was left


def shared(what: str, owner: str, reader: str) -> str:
    """A label with whose it is, where that is not who reads it.

    >>> shared("user", "ada", "bob"), shared("user", "bob", "bob")
    ('shared by ada (user)', 'user')
    """
    return what if owner in ("", reader) else f"shared by {owner} ({what})"


def turns(home: Home, kind: str, name: str) -> list[Placed]:
    """The turns of a run or a conversation, or of the session that a turn belongs to. Raises NotFound."""
    if kind == "turn":
        run_id, _ = home.locate(name)
        views = home.conversation(home.run(run_id).conversation)
        views = [v for v in views if v.session == home.run(run_id).session]
    elif kind == "run":
        views = [home.run(name)]
    else:
        views = home.conversation(name)
    return list(_each(home, views))


def _each(home: Home, views: Iterable[RunView]) -> Iterator[Placed]:
    """Every turn of these runs in order, a message that stands in several of them once, the newest state of it."""
    placed: dict[str, Placed] = {}
    for view in views:
        held = view.parent_run_id if view.sidechain else view.run_id
        transcript: Transcript = home.transcript(str(held))
        offsets = home.offsets(view.run_id) if view.sidechain else None
        for turn in transcript.parsed.turns:
            if offsets is not None and turn.offset not in offsets:
                continue
            key = turn.native_id or turn_id(transcript.run.source, turn.offset)
            placed[key] = (view, turn, turn.offset in transcript.abandoned)
    yield from placed.values()


def identifier(item: Placed) -> str:
    """The id of a turn where it stands."""
    view, turn, _ = item
    return turn_id(Source(view.user, view.runtime, view.session, view.generation), turn.offset)


def window(items: list[Placed], name: str, n_context: int) -> list[Placed]:
    """A turn with its neighbours on the same line of the conversation. Raises NotFound."""
    at = next((i for i, item in enumerate(items) if identifier(item) == name), None)
    if at is None:
        raise NotFound(name)
    thread = items[at][1].thread
    same = [i for i, item in enumerate(items) if item[1].thread == thread and (not item[2] or i == at)]
    place = same.index(at)
    return [items[i] for i in same[max(0, place - n_context) : place + n_context + 1]]
