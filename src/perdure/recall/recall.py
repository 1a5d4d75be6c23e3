"""M(I): turn a plan into cues, or into silence. Reads through `CandidateSource`, writes nothing, decides
in pure functions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.index.fuse import rank_ids
from perdure.recall.assess import Assessment, assess
from perdure.recall.candidates import CandidateSource
from perdure.recall.choose import N_DIVERSIFIED, choose_named_turns, choose_turns
from perdure.recall.cues import add_note, build_cues, mark_retracted, pack_cues, scan_cues
from perdure.recall.rank import Ranking
from perdure.recall.recaller import NO_CONTEXT, RecallContext
from perdure.types import Cue, Plan, Recalled, WithheldText

N_SCANNED = 8  # rounds of choosing without cues that read like orders; after that there are fewer cues
NOTHING_ASKED = "the message asks for nothing"


class _StepTimer(Struct):
    """Measures the milliseconds of each step."""

    steps_ms: dict[str, float] = {}
    _last_s: float = field(default_factory=time.perf_counter)

    def mark(self, step: str) -> None:
        now_s = time.perf_counter()
        self.steps_ms[step] = (now_s - self._last_s) * 1000
        self._last_s = now_s


def recall(candidates: CandidateSource, plan: Plan, context: RecallContext = NO_CONTEXT) -> Recalled:
    """Return the cues for a plan, best first, within the budget of tokens; none if nothing is relevant.

    If the latest is asked for, a later turn comes before an earlier one that is alike. A cue whose text reads like an
    order to a model is left out, and the next one takes its room.
    """
    if not plan.queries and not plan.windows:
        return Recalled((), plan, silent=NOTHING_ASKED)
    timer = _StepTimer()
    assessment = assess(candidates, plan, context)
    timer.mark("candidates")
    recalled = compose(candidates, assessment, context)
    timer.mark("cues")
    if context.explain:
        recalled = replace(recalled, passed_over=_explain_passed_over(assessment.ranking, recalled, context))
    verdict = assessment.verdict
    return replace(
        recalled,
        timings_ms=timer.steps_ms,
        relevance=verdict.relevance,
        threshold=verdict.threshold,
        coverage=verdict.coverage,
        spoke_by=verdict.spoke_by,
        judged_for=verdict.judged_for,
    )


def compose(candidates: CandidateSource, assessment: Assessment, context: RecallContext = NO_CONTEXT) -> Recalled:
    """Return the cues of an assessment, or silence with its reason."""
    plan, ranking = assessment.plan, assessment.ranking
    if assessment.verdict.silent:
        return Recalled((), plan, assessment.verdict.silent)
    tuning, session_ids = context.tuning, set(context.session_turn_ids)
    names_by_turn = choose_named_turns(assessment.name_sightings, ranking, tuning)
    truth = assessment.truth
    trusted_ids = set(ranking.scores) - truth.distrusted_ids
    repeated_ids = {name for name, memory_id in truth.repeated_by.items() if memory_id in trusted_ids}
    left_out_ids = session_ids | repeated_ids | truth.distrusted_ids
    held_back: dict[str, WithheldText] = {}
    cues: list[Cue] = []
    for _ in range(N_SCANNED):
        excluded_ids = {*left_out_ids, *held_back}
        chosen_ids = choose_turns(candidates, assessment, excluded_ids, tuning)
        named_turns = {turn_id: name for turn_id, name in names_by_turn.items() if turn_id not in excluded_ids}
        cues = build_cues(candidates, plan, ranking, chosen_ids, named_turns)
        cues, suspected_cues = scan_cues(cues, context.scan_text)
        held_back |= suspected_cues
        if not suspected_cues:
            break
    cues = [add_note(cue, truth, plan.asked_at, context.describe_changes) for cue in cues]
    cues = mark_retracted(cues)
    return pack_cues(plan, cues, held_back, max_tokens=tuning.max_tokens)


def tell(
    candidates: CandidateSource, plan: Plan, scores: Mapping[str, float], context: RecallContext = NO_CONTEXT
) -> Recalled:
    """Return turns that another recaller chose as cues, best first: without what the session holds and what reads like
    an order to a model, within the budget of tokens.
    """
    told_ids = [turn_id for turn_id in rank_ids(scores) if turn_id not in set(context.session_turn_ids)]
    ranking = Ranking(scores, {}, {}, {}, {}, candidates.get_facts(told_ids))
    cues, held_back = scan_cues(build_cues(candidates, plan, ranking, told_ids, {}), context.scan_text)
    return pack_cues(plan, cues, held_back, max_tokens=context.tuning.max_tokens)


def hide_scores(recalled: Recalled) -> Recalled:
    """Return recalled cues with scores by rank alone: others' word counts are part of the real ones."""
    return replace(
        recalled,
        cues=tuple(replace(cue, score=1 / rank, legs={}) for rank, cue in enumerate(recalled.cues, start=1)),
        relevance=None,
        threshold=None,
        coverage=None,
    )


def _explain_passed_over(ranking: Ranking, recalled: Recalled, context: RecallContext) -> dict[str, str]:
    """Say for each candidate that is no cue why."""
    packed_ids = {cue.turn_id for cue in recalled.cues}
    ranked_ids = rank_ids(ranking.scores)
    reasons = {}
    for position, turn_id in enumerate(ranked_ids, start=1):
        if turn_id in packed_ids:
            continue
        if turn_id in recalled.held_back:
            reason = f"it reads like an instruction to a model ({recalled.held_back[turn_id].rule})"
        elif turn_id in context.session_turn_ids:
            reason = "this session already got it"
        elif turn_id in recalled.without_room:
            reason = f"it did not fit into {context.tuning.max_tokens:,} tokens"
        elif ranking.cosine and ranking.scores[turn_id] < context.tuning.weakest * ranking.scores[ranked_ids[0]]:
            reason = "it matches much less than the best one"
        elif position <= N_DIVERSIFIED:
            reason = "the cues match better or say the same"
        else:
            reason = f"only the best {N_DIVERSIFIED} matches can become cues"
        reasons[turn_id] = f"in place {position} of {len(ranked_ids)}, but {reason}"
    return reasons
