"""Apply beliefs to the candidates: weigh memories by time, use and trust, and put the new before the old.

Pure. A superseded memory lends its score to its successor and falls behind it, and so does the turn in
which it was said; if the past is asked for, they stay, and the note says when they ended. A turn whose
memories say all of it lends them its score and is left out; another turn lends nothing, since its rest
may be what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from perdure.index.fuse import rank_ids
from perdure.index.memory_replay import compute_decay
from perdure.recall.tuning import Tuning
from perdure.types import Memory, Plan, Window

N_LOOKED_AT = 60  # best candidates whose memories are looked up
N_TRACED = 6  # best candidates whose whole chain is added if the past is asked for
_DEMOTED_SHARE = 0.95  # highest share of its successor's score that a demoted memory has
_WHOLE_SHARE = 0.6  # share of a turn's text in its memories from which the turn adds nothing


class Belief(NamedTuple):
    """A memory, and what became of it."""

    memory: Memory
    chain: tuple[Memory, ...]  # all memories of the same thing, oldest first, this one included
    current: Memory | None  # the current memory; None if it is retired, or the session holds it

    @property
    def is_superseded(self) -> bool:
        """True if a successor superseded it."""
        return self.memory.superseded_by is not None

    def has_ended(self, now: datetime) -> bool:
        """Return True if it is not valid any more: a successor superseded it, or its own time is over."""
        return self.is_superseded or (self.memory.ended_at is not None and self.memory.ended_at <= now)


Beliefs = Mapping[str, Sequence[Belief]]  # candidate id -> its own belief if it is a memory, or those made of the turn


class TruthScores(Struct):
    """Scores with the beliefs applied, and the beliefs to mention."""

    scores: dict[str, float]
    beliefs: dict[str, Belief] = {}  # memory id -> its belief
    distrusted_ids: set[str] = set()  # memories of the web that have a trusted alternative
    repeated_by: dict[str, str] = {}  # turn or superseded memory -> memory that says it all
    lent_scores: dict[str, float] = {}  # memory id -> the highest score lent to it
    ended_by_turn: dict[str, Belief] = {}  # turn -> a belief stated in it that has ended


def score_beliefs(
    scores: Mapping[str, float], beliefs: Beliefs, texts: Mapping[str, str], plan: Plan, tuning: Tuning
) -> TruthScores:
    """Return the scores of all candidates, with the memories that supersede others.

    texts: of the turns that memories were made from.
    """
    truth = TruthScores(dict(scores))
    is_past_asked = plan.intent == "history" or bool(plan.windows)
    for candidate_id in rank_ids(scores):
        scored_beliefs = [belief for belief in beliefs.get(candidate_id, ()) if belief.memory.memory_id in scores]
        turn_beliefs = [belief for belief in scored_beliefs if belief.memory.memory_id != candidate_id]
        is_fully_stated = bool(turn_beliefs) and _is_fully_stated(turn_beliefs, texts.get(candidate_id, ""))
        for belief in scored_beliefs if is_fully_stated or not turn_beliefs else ():
            _weigh_belief(truth, candidate_id, belief, scores[candidate_id], plan.asked_at, tuning)
        if turn_beliefs and all(belief.has_ended(plan.asked_at) for belief in turn_beliefs):
            truth.ended_by_turn[candidate_id] = turn_beliefs[0]
        if is_fully_stated:
            truth.repeated_by[candidate_id] = turn_beliefs[0].memory.memory_id
    if is_past_asked:
        _trace_chains(truth, plan)
    else:
        _demote_ended(truth, plan.asked_at, tuning)
    if tuning.by_trust:
        _exclude_distrusted(truth, tuning)
    return truth


def _exclude_distrusted(truth: TruthScores, tuning: Tuning) -> None:
    """Exclude memories of the web if a person, an agent or a turn has something to say as well."""
    web_ids = [
        candidate_id
        for candidate_id, belief in truth.beliefs.items()
        if belief.memory.trust == "web" and candidate_id in truth.scores
    ]
    trusted_ids = set(truth.scores) - set(web_ids) - set(truth.repeated_by)  # these are left out as well
    best_score = max((truth.scores[candidate_id] for candidate_id in trusted_ids), default=0.0)
    truth.distrusted_ids.update(
        candidate_id for candidate_id in web_ids if best_score >= tuning.enough_trust * truth.scores[candidate_id]
    )


def _weigh_belief(
    truth: TruthScores, candidate_id: str, belief: Belief, score: float, now: datetime, tuning: Tuning
) -> None:
    """Weigh a candidate's memory, and lend its score to the current one."""
    memory, current = belief.memory, belief.current
    if memory.memory_id == candidate_id:
        truth.beliefs[candidate_id] = belief
        own_score = truth.scores[candidate_id] * compute_weight(memory, now, tuning) + (
            0.0 if belief.has_ended(now) else tuning.memory
        )
        truth.scores[candidate_id] = max(own_score, truth.lent_scores.get(candidate_id, 0.0))
    if current is not None:
        bonus = tuning.memory if memory.memory_id == candidate_id else 0.0
        lent_score = score * compute_weight(current, now, tuning) + bonus
        truth.beliefs.setdefault(current.memory_id, belief._replace(memory=current))
        truth.lent_scores[current.memory_id] = max(lent_score, truth.lent_scores.get(current.memory_id, 0.0))
        truth.scores[current.memory_id] = max(lent_score, truth.scores.get(current.memory_id, 0.0))


def compute_weight(memory: Memory, now: datetime, tuning: Tuning) -> float:
    """Return the factor for a memory's score: less if it was not used for long, and for lower trust."""
    decay_factor = 1 - tuning.decay * (1 - compute_decay(memory, now))
    return decay_factor * (dict(tuning.trust).get(memory.trust, 1.0) if tuning.by_trust else 1.0)


def _is_fully_stated(turn_beliefs: Sequence[Belief], turn_text: str) -> bool:
    """Return True if the memories that were made of a turn leave little of it unsaid."""
    n_stated_chars = sum(len(belief.memory.text) for belief in turn_beliefs)
    return n_stated_chars >= _WHOLE_SHARE * len(turn_text) and any(
        belief.memory.text[:40] in turn_text for belief in turn_beliefs
    )


def _demote_ended(truth: TruthScores, now: datetime, tuning: Tuning) -> None:
    """Rank superseded and expired memories below their successors."""
    for candidate_id in list(truth.scores):
        belief = truth.beliefs.get(candidate_id) or truth.ended_by_turn.get(candidate_id)
        if belief is None or not belief.has_ended(now):
            continue
        current = belief.current if belief.is_superseded else None
        score_ahead = truth.scores.get(current.memory_id, 0.0) if current else truth.scores[candidate_id]
        if candidate_id in truth.beliefs and current is not None:
            truth.repeated_by[candidate_id] = current.memory_id  # the note of that memory says it
        truth.scores[candidate_id] = min(truth.scores[candidate_id] * tuning.superseded, score_ahead * _DEMOTED_SHARE)


def _trace_chains(truth: TruthScores, plan: Plan) -> None:
    """If the past is asked for, add the whole chains of what was found; put what was valid at that time first."""
    top_scores: dict[tuple[Memory, ...], float] = {}
    for candidate_id in rank_ids(truth.scores)[:N_TRACED]:
        belief = truth.beliefs.get(candidate_id)
        if belief is not None and len(belief.chain) > 1:
            top_scores.setdefault(belief.chain, truth.scores[candidate_id])
    for chain, top_score in top_scores.items():
        current = next((memory for memory in reversed(chain) if memory.is_current), None)
        for memory in chain:
            if not memory.retired:
                truth.beliefs[memory.memory_id] = Belief(memory, chain, current)
                truth.scores[memory.memory_id] = top_score * _choose_share(memory, current, plan.windows)


def _choose_share(memory: Memory, current: Memory | None, windows: Sequence[Window]) -> float:
    """Return a memory's share of the best score of its chain.

    All of it for a memory that was valid at the asked time, or just before the current one.
    """
    if windows:
        return 1.0 if any(_is_valid_in(memory, window) for window in windows) else _DEMOTED_SHARE**2
    if memory is current:
        return _DEMOTED_SHARE
    return 1.0 if current is not None and memory.superseded_by == current.memory_id else _DEMOTED_SHARE**2


def _is_valid_in(memory: Memory, window: Window) -> bool:
    """Return True if a memory was valid at any moment of a window."""
    return memory.stated_at < window.until_at and (memory.ended_at is None or memory.ended_at > window.since_at)


def describe_belief(belief: Belief, now: datetime) -> str:
    """Return what a reader must know beside the words: what the memory replaced, or since when it is not valid
    any more.
    """
    memory = belief.memory
    if memory.superseded_by is not None:
        end_label = f" since {memory.ended_at:%Y-%m-%d}" if memory.ended_at else ""
        current_label = f": now “{belief.current.text}”" if belief.current and belief.current is not memory else ""
        return f"no longer so{end_label}{current_label}"
    if memory.ended_at is not None and memory.ended_at <= now:
        return f"no longer so since {memory.ended_at:%Y-%m-%d}"
    if memory.ended_at is not None:
        return f"valid until {memory.ended_at:%Y-%m-%d}"
    predecessors = [m for m in belief.chain if m.superseded_by == memory.memory_id and not m.retired]
    if predecessors:
        return f"since {memory.stated_at:%Y-%m-%d}; before: “{predecessors[-1].text}”"
    return ""
