"""What a page about recall asks of a home: the words of cues by their ids, the message, and why something was not told.

Reads only, and only what the home answers for its user.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import msgspec

from perdure import live
from perdure.access import fence
from perdure.access.redact import mask
from perdure.errors import MemoryMissing, NotFound, UsageError
from perdure.home import Home
from perdure.index.exchanges import NEAR, Asked, nearest
from perdure.index.injections import Injection
from perdure.recall import plan as planning
from perdure.recall.pack import render
from perdure.surfaces.page import cues
from perdure.surfaces.page.cues import Card, Gone, Subject
from perdure.types import Cue, Hit, Live, Memory, Plan, Recalled

MEMORY = "mem-"
_MOST_BYTES = 8_000_000  # of a run that is looked through for the very block
_FEW = 3  # memories and turns that some words lead to
Known = Mapping[str, "Sequence[Hit] | Memory"]


@dataclass(frozen=True, slots=True)
class Moment:
    """When something was answered in which session."""

    runtime: str
    session: str
    agent: str
    at: datetime

    @property
    def line(self) -> tuple[str, str]:
        """(runtime, session as transcripts have it)."""
        return self.runtime, "/".join(filter(None, (self.session, self.agent)))


def moment(one: Injection) -> Moment:
    """When an injection was, and where."""
    return Moment(one.runtime, one.session, one.agent, one.at)


def asked(home: Home, moments: Iterable[Moment]) -> dict[Moment, Asked]:
    """The message of each moment, where it is captured."""
    found: dict[Moment, Asked] = {}
    for line, near in _together(moments).items():
        first, last = near[0].at, near[-1].at
        said = home.asked(*line, since_at=first - NEAR, until_at=last + NEAR)
        found |= {one: message for one in near if (message := nearest(said, one.at)) is not None}
    return found


def _together(moments: Iterable[Moment]) -> dict[tuple[str, str], list[Moment]]:
    """The moments of each session, in order."""
    found: dict[tuple[str, str], list[Moment]] = {}
    for one in sorted(moments, key=lambda one: one.at):
        if one.session:
            found.setdefault(one.line, []).append(one)
    return found


class Message(NamedTuple):
    """What was or could be typed, and where."""

    text: str = ""  # masked
    project: str | None = None
    session: Live | None = None  # the one in which it stands, whose own turns it need not be told


def message(home: Home, turn_id: str) -> Message:
    """What a person typed in a turn. Raises NotFound."""
    pieces = home.pieces([turn_id]).get(turn_id)
    if not pieces:
        raise NotFound(turn_id)
    said = "\n".join(piece.text for piece in pieces if piece.kind == "text")
    return Message(mask(said), pieces[0].project, Live(pieces[0].conversation))


def known(home: Home, names: Iterable[str]) -> dict[str, Sequence[Hit] | Memory]:
    """Those of these turns and memories that may be read now."""
    wanted = list(dict.fromkeys(names))
    found: dict[str, Sequence[Hit] | Memory] = {}
    found |= home.pieces([name for name in wanted if not name.startswith(MEMORY)])
    memories = [name for name in wanted if name.startswith(MEMORY)]
    found |= {memory.memory_id: memory for memory in home.memories.of_ids(memories)}
    for name in memories:
        if name not in found:  # nobody's, or one that another shares
            with contextlib.suppress(MemoryMissing):
                found[name] = home.shared.get(name)
    return found


def subjects(found: Known) -> dict[str, Subject]:
    """Each turn by its first piece, each memory as it is."""
    return {name: one if isinstance(one, Memory) else one[0] for name, one in found.items()}


# an injection ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """An injection with the words of its cues as they are kept now."""

    one: Injection
    plan: Plan
    message: str  # "" where it is not captured
    cards: tuple[Card | Gone, ...]
    given: tuple[Cue, ...]  # those that are still there, as far as it is known how they were given


def seen(home: Home, one: Injection, message_: str) -> Seen:
    """An injection as it can be shown now."""
    plan = planning.plan(message_, now=one.at)
    found = known(home, (reason.cue for reason in one.reasons))
    exchange = home.exchange(*moment(one).line, one.at) if one.used is not None and one.session else None
    made: list[Card | Gone] = []
    given: list[Cue] = []
    for reason in one.reasons:
        used = None if one.used is None else reason.cue in one.used
        cue = cues.again(reason, found.get(reason.cue), plan, home.user)
        if cue is None:
            made.append(Gone(reason.cue, reason.n_tokens, used))
            continue
        cue = _noted(home, cue, one.at)
        given.append(cues.given(cue, plan))
        taken = cues.taken_up(exchange.prompt, _texts(found[reason.cue]), exchange.answer) if exchange else ()
        made.append(replace(_card(home, cue, plan), used=used, taken_up=taken))
    return Seen(one, plan, message_, tuple(made), tuple(given))


def _noted(home: Home, cue: Cue, at: datetime) -> Cue:
    """A memory with what was said beside it at that moment, any other cue as it is."""
    if cue.memory is None:
        return cue
    return replace(cue, note=cues.noted_then(cue.memory, _chain(home, cue.memory), at))


def _chain(home: Home, memory: Memory) -> Sequence[Memory]:
    """All that was ever stated of the same thing, oldest first; nothing of what was forgotten meanwhile."""
    with contextlib.suppress(MemoryMissing):
        return home.holding(memory.memory_id).history(memory.memory_id)
    return ()


def cards(home: Home, recalled: Recalled, told: Sequence[Cue]) -> tuple[Card, ...]:
    """The cues of a recall of this moment."""
    return tuple(_card(home, cue, recalled.plan) for cue in told)


def _card(home: Home, cue: Cue, plan: Plan) -> Card:
    shown = replace(cue, text=cues.shown(mask(cue.text), plan), note=mask(cue.note))
    made = cues.card(shown, reader=home.user)
    if cue.memory is None:
        return made
    instead = cues.instead(cue.memory, _chain(home, cue.memory)) if cue.memory.superseded_by else None
    return replace(made, source=_source(home, cue.memory), instead=instead)


def _source(home: Home, memory: Memory) -> Hit | None:
    """The first turn behind a memory that is still there."""
    with contextlib.suppress(MemoryMissing):
        holding = home.shared if memory.shared_by else home.memories
        turns = [turn for _, turn in holding.sources(memory.memory_id) if turn]
        pieces = home.pieces(turns[:1])
        return next((found[0] for found in pieces.values()), None)
    return None


def _texts(found: Sequence[Hit] | Memory) -> list[str]:
    return [found.text] if isinstance(found, Memory) else [piece.text for piece in found]


def block(home: Home, shown: Seen, turn_id: str) -> tuple[str, bool]:
    """(the block that was given, whether it is the very one): out of the transcript, or made again of its cues.

    turn_id: of the message, "" where that is not captured. What is made again may be the very one as well.
    """
    one = shown.one
    with contextlib.suppress(NotFound):  # its bytes were forgotten, and the index does not know it yet
        if turn_id and (exact := _in_transcript(home, one, turn_id)):
            return mask(exact), True
    if not shown.given:
        return "", False
    items = list(map(render, shown.given))
    made = [fence.fenced([*items, *last], one.nonce) for last in ((), (live.REMINDER,))]
    very = next((text for text in made if fence.digest(text) == one.digest), "")
    return mask(very or made[0]), bool(very)


def _in_transcript(home: Home, one: Injection, turn_id: str) -> str:
    """The block as the client wrote it into its transcript, "" where it does not, or the run is very large."""
    run_id, _ = home.locate(turn_id)
    if home.run(run_id).jsonl_bytes > _MOST_BYTES:
        return ""
    for line in home.jsonl(run_id).split(b"\n"):
        if one.nonce.encode() in line:
            for text in _strings(line):
                if found := fence.found(text, one.nonce, one.digest):
                    return found
    return ""


def _strings(line: bytes) -> Iterable[str]:
    """Every text in a line of JSON."""
    try:
        todo: list[object] = [msgspec.json.decode(line)]
    except (msgspec.DecodeError, RecursionError):
        return
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            todo += item.values()
        elif isinstance(item, list):
            todo += item


# why not --------------------------------------------------------------------------------------------------------


def meant(home: Home, words: str) -> dict[str, Subject]:
    """The turns and memories that an id or some words mean."""
    if " " not in words:
        with contextlib.suppress(NotFound, MemoryMissing, UsageError):
            kind, name = home.resolve(words)
            if kind in ("turn", "memory"):
                return subjects(known(home, [name]))
    memories = [memory for memory, _ in home.search_memories(words, limit=_FEW)]
    hits = home.search(words, limit=_FEW).hits
    return {**{memory.memory_id: memory for memory in memories}, **{hit.turn_id: hit for hit in hits}}
