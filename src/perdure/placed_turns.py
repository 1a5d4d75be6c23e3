"""Turns in reading order: of a run, of a whole conversation, or around one turn; each turn once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from perdure.errors import NotFound
from perdure.identity import make_turn_id
from perdure.types import PROMPTS_ONLY, RunView, Source, Turn

if TYPE_CHECKING:  # who shows a shared hit needs no home
    from perdure.home import Home
    from perdure.remote_home import RemoteHome
    from perdure.runs import Transcript

PlacedTurn = tuple[RunView, Turn, bool]  # where a turn stands, the turn, whether its branch was left


def label_with_owner(label: str, owner: str, reader: str) -> str:
    """Add the owner to a label, unless the reader is the owner.

    >>> label_with_owner("user", "ada", "bob"), label_with_owner("user", "bob", "bob")
    ('shared by ada (user)', 'user')
    """
    return label if owner in ("", reader) else f"shared by {owner} ({label})"


def load_placed_turns(home: Home | RemoteHome, kind: str, name: str) -> list[PlacedTurn]:
    """Load the turns of a run or a conversation, or of the session of a turn. Raises NotFound."""
    if kind == "turn":
        run_id, _ = home.runs.locate_turn(name)
        turn_view = home.runs.get(run_id)
        views = home.runs.conversation(turn_view.conversation)
        views = [view for view in views if (view.runtime, view.session) == (turn_view.runtime, turn_view.session)]
    elif kind == "run":
        views = [home.runs.get(name)]
    else:
        views = home.runs.conversation(name)
        views = [view for view in views if view.n_turns or not view.runtime.endswith(PROMPTS_ONLY)]
    return list(_iterate_turns(home, views))


def _iterate_turns(home: Home | RemoteHome, views: Iterable[RunView]) -> Iterator[PlacedTurn]:
    """Yield every turn of these runs in order; one that is in several runs comes once, in its newest state."""
    turns_by_id: dict[str, PlacedTurn] = {}
    for view in views:
        transcript_run_id = view.parent_run_id if view.sidechain else view.run_id
        transcript: Transcript = home.runs.transcript(str(transcript_run_id))
        offsets = home.runs.turn_offsets(view.run_id) if view.sidechain else None
        for turn in transcript.parsed.turns:
            if offsets is not None and turn.offset not in offsets:
                continue
            turn_id = turn.native_id or make_turn_id(transcript.run.source, turn.offset)
            turns_by_id[turn_id] = (view, turn, turn.offset in transcript.abandoned)
    yield from turns_by_id.values()


def get_turn_id(item: PlacedTurn) -> str:
    """Return the id of a turn."""
    view, turn, _ = item
    return make_turn_id(Source(view.user, view.runtime, view.session, view.generation), turn.offset)


def select_window(items: list[PlacedTurn], turn_id: str, n_context: int) -> list[PlacedTurn]:
    """Select a turn with its neighbours on the same thread of the conversation. Raises NotFound."""
    index = next((i for i, item in enumerate(items) if get_turn_id(item) == turn_id), None)
    if index is None:
        raise NotFound(turn_id)
    thread = items[index][1].thread
    thread_indexes = [i for i, item in enumerate(items) if item[1].thread == thread and (not item[2] or i == index)]
    position = thread_indexes.index(index)
    return [items[i] for i in thread_indexes[max(0, position - n_context) : position + n_context + 1]]
