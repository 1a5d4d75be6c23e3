"""Which turns of a line of talk stand on one page of it, and what belongs beside them. It asks the home, and writes
nothing.

A stretch begins and ends between turns, and never between a call and its results where these follow it, so that they
can be shown together. Whatever the length of the talk, only the stretch is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from perdure.errors import NotFound
from perdure.home import Home
from perdure.index.exchanges import NEAR
from perdure.index.injections import Injection
from perdure.index.talk import BEGINNING, Place, Spawned, Standing, Talk
from perdure.surfaces.page.opened import Opened
from perdure.surfaces.page.transcript import Read
from perdure.types import RunView, Turn

TURNS = 40  # of one stretch
_MORE_RESULTS = 20  # turns behind them that may be added because they are results of their calls
_LEAD = 6  # turns before the one that was asked for
_OPENED = Opened()


@dataclass(frozen=True, slots=True)
class Asked:
    """What an address asks for: at most one of the three turns counts, in this order."""

    since: str = ""  # the stretch begins with this turn
    until: str = ""  # it ends before this one
    at: str = ""  # it lies around this one
    shown: str = ""  # one of index.talk.SHOWN


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some turns of a line of talk that follow each other."""

    turns: tuple[Standing, ...]
    n_before: int  # turns of the talk before the first of them, also those that were not asked for
    has_earlier: bool
    following: Standing | None  # the first turn behind them
    is_lost: bool = False  # the turn that was asked for is not in the talk


def stretch(talk: Talk, asked: Asked) -> Stretch:
    """The turns that an address asks for; those from the beginning of the run where it names a turn that is gone."""
    try:
        return _stretch(talk, asked)
    except NotFound:
        return _around(talk, talk.start, asked.shown, lead=0, is_lost=True)


def _stretch(talk: Talk, asked: Asked) -> Stretch:
    if asked.since:
        return _around(talk, talk.place(asked.since), asked.shown, lead=0)
    if asked.until:
        end = talk.place(asked.until)
        turns = _from_a_call(talk.before(end, TURNS + _MORE_RESULTS, asked.shown))
        return _measured(talk, turns, asked.shown, next(iter(talk.since(end, 1, asked.shown)), None))
    if asked.at:
        return _around(talk, talk.place(asked.at), asked.shown, lead=_LEAD)
    return _around(talk, talk.start, asked.shown, lead=0)


def _around(talk: Talk, place: Place, shown: str, *, lead: int, is_lost: bool = False) -> Stretch:
    before = talk.before(place, lead + _MORE_RESULTS, shown) if lead else []
    n_lead = len(_from_a_call(before, lead))
    found = talk.since(place, TURNS + _MORE_RESULTS + 1, shown)
    n = _n_with_results(found)
    turns = [*before[len(before) - n_lead :], *found[:n]]
    return _measured(talk, turns, shown, found[n] if n < len(found) else None, is_lost=is_lost)


def _n_with_results(found: Sequence[Standing]) -> int:
    """How many of these turns make a stretch: TURNS, and the results behind them."""
    n = min(TURNS, len(found))
    while n < min(len(found), TURNS + _MORE_RESULTS) and found[n].role == "tool":
        n += 1
    return n


def _from_a_call(before: Sequence[Standing], k: int = TURNS) -> list[Standing]:
    """The last k of these turns, with those before them that their results answer to."""
    start = max(0, len(before) - k)
    while start and before[start].role == "tool":
        start -= 1
    return list(before[start:])


def _measured(
    talk: Talk, turns: Sequence[Standing], shown: str, following: Standing | None, *, is_lost: bool = False
) -> Stretch:
    first = turns[0].place if turns else following.place if following else BEGINNING
    has_earlier = bool(talk.before(first, 1, shown))
    return Stretch(tuple(turns), talk.n_before(first), has_earlier, following, is_lost)


# what belongs beside --------------------------------------------------------------------------------------------


def read(home: Home, turns: Sequence[Standing]) -> list[Read]:
    """These turns with their words; without any where the run that holds them is not shared."""
    return [Read(one, _turn(home, one)) for one in turns]


def _turn(home: Home, one: Standing) -> Turn:
    try:
        found = _OPENED.turns(home, one.captured_in).get(one.offset)
    except NotFound:
        found = None
    author = one.author
    return found or Turn(one.role, author, ((one.offset, one.offset),), (), one.stated_at)  # type: ignore[arg-type]


def with_results(talk: Talk, turn_id: str) -> list[Standing]:
    """A turn, and those behind it that hold results of its calls. Raises NotFound."""
    first, *behind = talk.since(talk.place(turn_id), 1 + _MORE_RESULTS)
    return [first, *takewhile(lambda turn: turn.role == "tool", behind)]


def spawned_in(talk: Talk, found: Stretch) -> dict[str, list[Spawned]]:
    """Turn -> the sub-agents that began in it: while it was the agent's last, by what clocks say."""
    below = talk.spawned()
    agents = [turn for turn in found.turns if turn.role == "assistant" and turn.stated_at] if below else []
    until = found.following.stated_at if found.following else None
    began: defaultdict[str, list[Spawned]] = defaultdict(list)
    for one in below:
        at = one.started_at
        before = [turn for turn in agents if at is not None and turn.stated_at is not None and turn.stated_at <= at]
        if before and not (until is not None and at is not None and at >= until):
            began[before[-1].turn_id].append(one)
    return began


def injected_beside(home: Home, view: RunView, turns: Sequence[Standing]) -> Mapping[str, list[Injection]]:
    """Turn -> what was told beside it, of the reader's own: an injection belongs to the message in a person's place
    that is nearest to it in time.
    """
    prompts = [(turn, turn.stated_at) for turn in turns if turn.role == "user" and turn.stated_at is not None]
    found: defaultdict[str, list[Injection]] = defaultdict(list)
    if not prompts or view.user != home.user:
        return found
    session, _, agent = view.session.partition("/")
    since_at, until_at = (pick(at for _, at in prompts) for pick in (min, max))
    for one in home.injections.between(session, since_at=since_at - NEAR, until_at=until_at + NEAR):
        turn, at = min(prompts, key=lambda prompt: abs(prompt[1] - one.at))
        if (one.runtime, one.agent) == (view.runtime, agent) and abs(at - one.at) <= NEAR:
            found[turn.turn_id].append(one)
    return found


def copied_before(home: Home, talk: Talk, view: RunView, found: Stretch) -> str | None:
    """The turn before the first of a talk that begins with what another talk holds already, as a fork does; there it
    stands once for both.
    """
    if found.has_earlier:
        return None
    first = found.turns[0] if found.turns else None
    captured = first.captured_in if first else str(view.parent_run_id) if view.sidechain else view.run_id
    every = _OPENED.turns(home, captured).values()  # in the order of their first lines
    turns = list(takewhile(lambda turn: turn.offset < first.offset, every) if first else every)
    copied = next((turn.native_id for turn in reversed(turns) if turn.native_id), None)
    return talk.copy_of(view.user, view.runtime, copied) if copied else None


def turn_at(home: Home, turn_id: str) -> tuple[Standing, Turn]:
    """A turn and where it stands. Raises NotFound."""
    talk = home.talk(turn_id)
    (found,) = talk.since(talk.place(turn_id), 1)
    return found, _turn(home, found)
