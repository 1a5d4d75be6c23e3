"""Rank the candidates of a plan and judge them: everything before cues are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from perdure.config import LimitsConfig
from perdure.index.fuse import rank_ids
from perdure.recall import judge
from perdure.recall.candidates import CandidateSource, NameSighting
from perdure.recall.judge import Verdict
from perdure.recall.rank import PlanVectors, Ranking, rank
from perdure.recall.recaller import NO_CONTEXT, RecallContext
from perdure.recall.refine import refine
from perdure.recall.truth import N_LOOKED_AT, TruthScores, score_beliefs
from perdure.recall.tuning import Tuning
from perdure.types import Plan, Window

N_JUDGED = 10  # best candidates whose words the judge reads
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class Assessment(Struct, frozen=True):
    """The candidates of a plan, ranked and judged, before any is chosen."""

    plan: Plan  # with its events as windows
    ranking: Ranking
    name_sightings: Mapping[str, NameSighting]  # of the plan's names
    verdict: Verdict
    truth: TruthScores


def assess(candidates: CandidateSource, plan: Plan, context: RecallContext = NO_CONTEXT) -> Assessment:
    """Return the ranked candidates of a plan and the judge's verdict on them: all that evaluation needs."""
    plan = add_event_windows(candidates, plan)
    ranking, truth = rank_candidates(candidates, plan, context.vectors, context.tuning)
    name_sightings = candidates.find_names(plan.names)
    model = context.model if ranking.cosine else ""
    verdict = _judge_candidates(candidates, plan, ranking, name_sightings, model, context.limits)
    return Assessment(plan, ranking, name_sightings, verdict, truth)


def rank_candidates(
    candidates: CandidateSource, plan: Plan, vectors: PlanVectors, tuning: Tuning
) -> tuple[Ranking, TruthScores]:
    """Return the candidates of a plan, ranked, with the beliefs that changed their scores: the one ranking that search
    and recall share.
    """
    return _apply_beliefs(
        candidates, plan, refine(candidates, plan, rank(candidates, plan, vectors, tuning), tuning), tuning
    )


def _apply_beliefs(
    candidates: CandidateSource, plan: Plan, ranking: Ranking, tuning: Tuning
) -> tuple[Ranking, TruthScores]:
    """Return the ranking with beliefs applied to its scores, and the beliefs themselves."""
    beliefs = candidates.find_beliefs(rank_ids(ranking.scores)[:N_LOOKED_AT])
    if not beliefs:
        return ranking, TruthScores(dict(ranking.scores))
    turn_ids = [
        turn_id
        for turn_id, turn_beliefs in beliefs.items()
        if all(belief.memory.memory_id != turn_id for belief in turn_beliefs)
    ]
    texts = {turn_id: detail.text for turn_id, detail in candidates.get_details(turn_ids).items()}
    truth = score_beliefs(ranking.scores, beliefs, texts, plan, tuning)
    new_ids = [turn_id for turn_id in truth.scores if turn_id not in ranking.facts]
    facts = {**ranking.facts, **candidates.get_facts(new_ids)} if new_ids else ranking.facts
    return replace(ranking, scores=truth.scores, facts=facts), truth


def add_event_windows(candidates: CandidateSource, plan: Plan) -> Plan:
    """Return the plan with "since the release" as a window that opens when the event was last mentioned."""
    sightings = candidates.find_names(plan.events) if plan.events else {}
    windows = list(plan.windows)
    for event, sighting in sightings.items():
        dates = [fact.stated_at for fact in candidates.get_facts(sighting.newest).values() if fact.stated_at]
        if dates:
            windows.append(Window(max(dates), _END_OF_TIME, f"since {event}"))
    return replace(plan, windows=tuple(windows))


def _judge_candidates(
    candidates: CandidateSource,
    plan: Plan,
    ranking: Ranking,
    name_sightings: Mapping[str, NameSighting],
    model: str,
    limits: Mapping[str, LimitsConfig] | None,
) -> Verdict:
    if not ranking.scores:
        return Verdict(0.0, 0.0, "none of its words occur here")
    if not plan.queries:
        return Verdict(1.0, 0.0, spoke_by="time")  # only a time: everything from that time was asked for
    best_texts = [detail.text for detail in candidates.get_details(rank_ids(ranking.scores)[:N_JUDGED]).values()]
    evidence = judge.gather_evidence(
        candidates.get_rarities(judge.extract_query_words(plan.question)),
        name_sightings,
        texts=best_texts,
        cosine=max(ranking.cosine.values(), default=None),
        is_in_time="time" in ranking.legs,
    )
    return judge.judge(evidence, model, limits)
