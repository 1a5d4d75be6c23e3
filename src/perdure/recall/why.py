"""Why a turn was chosen, and what another lacked, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.patterns import late
from perdure.recall.candidates import Fact
from perdure.recall.fuse import Scores
from perdure.types import Plan, Recalled

_SCORES = late(r" \((?:the best has |cosine )?-?\d+\.\d+(?: of the best)?\)| with -?\d+\.\d+")
_STRONG = 0.5  # of a normalised leg, from which it is a reason of its own


def why(
    name: str, legs: Mapping[str, Scores], fact: Fact, plan: Plan, *, entity: str = "", is_memory: bool = False
) -> tuple[str, ...]:
    """The reasons for a cue, the strongest first. A memory stands beside nothing: what it has is its own."""
    got = {leg: scores[name] for leg, scores in legs.items() if name in scores}
    reasons = [f"names {entity}, which is rare"] if entity else []
    if got.get("keyword", 0.0) > 0:
        reasons.append(f"holds the words ({got['keyword']:.2f} of the best)")
    if got.get("vector", 0.0) > 0:
        reasons.append(f"is close in meaning (cosine {got['vector']:.2f})")
    is_weak = max(got.get("keyword", 0.0), got.get("vector", 0.0)) < _STRONG
    if is_weak and not entity and not is_memory:
        reasons.append("stands beside a turn that matches")
    if is_memory and not reasons and "keyword" in got:
        reasons.append("holds some of the words")
    if "speaker" in got:
        reasons.append(f"said by {fact.speaker or {'user': 'you', 'assistant': 'the agent'}.get(fact.role, fact.role)}")
    if "time" in got:
        reasons.append("is from " + ", ".join(window.words for window in plan.windows))
    if "done" in got:
        reasons.append("is what was done, not said")
    if got.get("recent", 0.0) > 0:
        reasons.append("is recent")
    return tuple(reasons)


def plainly(reason: str) -> str:
    """A reason without its scores.

    >>> plainly("holds the words (0.83 of the best)")
    'holds the words'
    """
    return _SCORES.sub("", reason)


def why_not(recalled: Recalled, turn_id: str) -> str:
    """What a turn lacked to be a cue, or that it is one."""
    for place, cue in enumerate(recalled.cues, start=1):
        if cue.turn_id == turn_id:
            return f"it is cue {place}: " + "; ".join(cue.why)
    if turn_id in recalled.held_back:
        return (
            f"it reads like an order to a model ({recalled.held_back[turn_id].rule}); `perdure floor alerts` lists it"
        )
    if recalled.silent:
        return f"recall stayed silent: {recalled.silent}"
    return recalled.passed_over.get(
        turn_id, "no candidate: none of its words were asked for often enough, and nothing near it is close in meaning"
    )
