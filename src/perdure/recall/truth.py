"""What is true now, among what was found: memories weighed by time, use and trust, and the new before the old.

Pure. A memory that was superseded lends its score to what took its place and falls behind it, and so does the turn in
which it was said; where the past is asked for, they stay, and the note says when they ended. A turn of which a memory
says all lends it its score and is left out; another turn lends nothing, since its rest may be what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from perdure.memories.decay import decay
from perdure.recall.fuse import ranked
from perdure.recall.tuning import Tuning
from perdure.types import Memory, Plan, Window

N_LOOKED_AT = 60  # best candidates whose memories are looked up
N_TRACED = 6  # best candidates whose whole chain is told where the past is asked for
_BEHIND = 0.95  # of the score of what stands before it, that a memory of the same chain has at most
_WHOLE = 0.6  # of a turn's words in its memory, from which the turn says nothing more


class Belief(NamedTuple):
    """A memory, and what became of it."""

    memory: Memory
    chain: tuple[Memory, ...]  # all that was believed of the same thing, oldest first, the memory among them
    current: Memory | None  # what is believed now; None when that is retired, or the session holds it

    @property
    def is_old(self) -> bool:
        """Whether something took its place."""
        return self.memory.superseded_by is not None

    def is_over(self, now: datetime) -> bool:
        """Whether it is no longer so: something took its place, or its own time is over."""
        return self.is_old or (self.memory.ended_at is not None and self.memory.ended_at <= now)


Beliefs = Mapping[str, Sequence[Belief]]  # id of a candidate -> the memory that it is, or those made of a turn


@dataclass
class Truth:
    """Scores with the truth in them, and what there is to say of it."""

    scores: dict[str, float]
    beliefs: dict[str, Belief] = field(default_factory=dict)  # memory id -> what is known of it
    distrusted: set[str] = field(default_factory=set)  # memories of the web that something trusted answers instead of
    repeats: dict[str, str] = field(default_factory=dict)  # turn or old memory -> the memory that says all of it
    lent: dict[str, float] = field(default_factory=dict)  # memory id -> the most that another candidate gave it
    olds: dict[str, Belief] = field(default_factory=dict)  # turn -> what it stated, which is no longer so


def truthful(
    scores: Mapping[str, float], beliefs: Beliefs, texts: Mapping[str, str], plan: Plan, tuning: Tuning
) -> Truth:
    """The scores of all candidates, with the memories that take the place of others.

    texts: of the turns from which memories were made.
    """
    found = Truth(dict(scores))
    past = plan.intent == "history" or bool(plan.windows)
    for name in ranked(scores):
        asked_for = [belief for belief in beliefs.get(name, ()) if belief.memory.memory_id in scores]
        own = [belief for belief in asked_for if belief.memory.memory_id != name]
        says_all = bool(own) and _says_all(own, texts.get(name, ""))
        for belief in asked_for if says_all or not own else ():
            _believe(found, name, belief, scores[name], plan.asked_at, tuning)
        if own and all(belief.is_over(plan.asked_at) for belief in own):
            found.olds[name] = own[0]
        if says_all:
            found.repeats[name] = own[0].memory.memory_id
    if past:
        _trace(found, plan)
    else:
        _put_behind(found, plan.asked_at, tuning)
    if tuning.by_trust:
        _distrust(found, tuning)
    return found


def _distrust(found: Truth, tuning: Tuning) -> None:
    """Leave out what comes from the web where a person, an agent or a turn has something to say as well."""
    doubtful = [name for name, belief in found.beliefs.items() if belief.memory.trust == "web" and name in found.scores]
    spoken = set(found.scores) - set(doubtful) - set(found.repeats)  # these are left out themselves
    best = max((found.scores[name] for name in spoken), default=0.0)
    found.distrusted.update(name for name in doubtful if best >= tuning.enough_trust * found.scores[name])


def _believe(found: Truth, name: str, belief: Belief, score: float, now: datetime, tuning: Tuning) -> None:
    """Weigh a candidate's memory, and lend its score to what is believed now."""
    memory, current = belief.memory, belief.current
    if memory.memory_id == name:
        found.beliefs[name] = belief
        own = found.scores[name] * weight(memory, now, tuning) + (0.0 if belief.is_over(now) else tuning.memory)
        found.scores[name] = max(own, found.lent.get(name, 0.0))
    if current is not None:
        bonus = tuning.memory if memory.memory_id == name else 0.0
        lent = score * weight(current, now, tuning) + bonus
        found.beliefs.setdefault(current.memory_id, belief._replace(memory=current))
        found.lent[current.memory_id] = max(lent, found.lent.get(current.memory_id, 0.0))
        found.scores[current.memory_id] = max(lent, found.scores.get(current.memory_id, 0.0))


def weight(memory: Memory, now: datetime, tuning: Tuning) -> float:
    """What a memory's score is multiplied by: less for what was not used for long, and for what others said."""
    loud = 1 - tuning.decay * (1 - decay(memory, now))
    return loud * (dict(tuning.trust).get(memory.trust, 1.0) if tuning.by_trust else 1.0)


def _says_all(made: Sequence[Belief], words: str) -> bool:
    """Whether the memories that were made of a turn leave little of it unsaid."""
    n_said = sum(len(belief.memory.text) for belief in made)
    return n_said >= _WHOLE * len(words) and any(belief.memory.text[:40] in words for belief in made)


def _put_behind(found: Truth, now: datetime, tuning: Tuning) -> None:
    """What is no longer so falls behind what is."""
    for name in list(found.scores):
        old = found.beliefs.get(name) or found.olds.get(name)
        if old is None or not old.is_over(now):
            continue
        current = old.current if old.is_old else None
        ahead = found.scores.get(current.memory_id, 0.0) if current else found.scores[name]
        if name in found.beliefs and current is not None:
            found.repeats[name] = current.memory_id  # whose note says it
        found.scores[name] = min(found.scores[name] * tuning.superseded, ahead * _BEHIND)


def _trace(found: Truth, plan: Plan) -> None:
    """Where the past is asked for: all that was believed of what was found, what was so then before the rest."""
    tops: dict[tuple[Memory, ...], float] = {}
    for name in ranked(found.scores)[:N_TRACED]:
        belief = found.beliefs.get(name)
        if belief is not None and len(belief.chain) > 1:
            tops.setdefault(belief.chain, found.scores[name])
    for chain, top in tops.items():
        current = next((memory for memory in reversed(chain) if memory.is_current), None)
        for memory in chain:
            if not memory.retired:
                found.beliefs[memory.memory_id] = Belief(memory, chain, current)
                found.scores[memory.memory_id] = top * _share(memory, current, plan.windows)


def _share(memory: Memory, current: Memory | None, windows: Sequence[Window]) -> float:
    """What a memory gets of the best score of its chain: all of it where it was so at the time, or just before now."""
    if windows:
        return 1.0 if any(_held_in(memory, window) for window in windows) else _BEHIND**2
    if memory is current:
        return _BEHIND
    return 1.0 if current is not None and memory.superseded_by == current.memory_id else _BEHIND**2


def _held_in(memory: Memory, window: Window) -> bool:
    """Whether it was so at any moment of a window."""
    return memory.stated_at < window.until_at and (memory.ended_at is None or memory.ended_at > window.since_at)


def note(belief: Belief, now: datetime) -> str:
    """What a reader must know beside the words: what it replaced, or since when it is no longer so."""
    memory = belief.memory
    if memory.superseded_by is not None:
        ended = f" since {memory.ended_at:%Y-%m-%d}" if memory.ended_at else ""
        instead = f": now “{belief.current.text}”" if belief.current and belief.current is not memory else ""
        return f"no longer so{ended}{instead}"
    if memory.ended_at is not None and memory.ended_at <= now:
        return f"no longer so since {memory.ended_at:%Y-%m-%d}"
    if memory.ended_at is not None:
        return f"valid until {memory.ended_at:%Y-%m-%d}"
    before = [m for m in belief.chain if m.superseded_by == memory.memory_id and not m.retired]
    if before:
        return f"since {memory.stated_at:%Y-%m-%d}; before: “{before[-1].text}”"
    return ""
