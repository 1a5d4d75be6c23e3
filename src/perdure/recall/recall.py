"""M(I): turn a plan into cues, or into silence. Reads through `CandidateSource`, writes nothing, decides
in pure functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial

from perdure import text
from perdure.config import LimitsConfig
from perdure.index.fuse import rank_ids
from perdure.recall import judge
from perdure.recall.candidates import CandidateSource, NameSighting
from perdure.recall.corrections import (
    MIN_SHARED_BY_CHANGE,
    find_corrections,
    is_later,
    order_newer_first,
    put_later_sessions_first,
    put_latest_before,
    restates,
)
from perdure.recall.cues import add_note, build_cues, mark_retracted, pack_cues, scan_cues
from perdure.recall.diversify import Likeness, diversify, split_repeats
from perdure.recall.judge import Verdict, extract_stems
from perdure.recall.pack import LONGEST_TEXTS
from perdure.recall.plain import says_change
from perdure.recall.rank import PlanVectors, Ranking, rank
from perdure.recall.recaller import NO_CONTEXT, RecallContext
from perdure.recall.refine import refine
from perdure.recall.retractions import settles
from perdure.recall.truth import N_LOOKED_AT, TruthScores, score_beliefs
from perdure.recall.tuning import Tuning
from perdure.types import Cue, Plan, Recalled, Window, WithheldText

N_JUDGED = 10  # best candidates whose words the judge reads
N_DIVERSIFIED = 40  # best candidates among which the cues are chosen
MAX_REPEATED_CHARS = 400  # of a text that may repeat another: a longer one says more than one thing
N_SCANNED = 8  # rounds of choosing without cues that read like orders; after that there are fewer cues
CLOSED_INTENTS = ("task", "latest", "overview", "history")  # answered by how a talk ended
NOTHING_ASKED = "the message asks for nothing"
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass
class _StepTimer:
    """Measures the milliseconds of each step."""

    steps_ms: dict[str, float] = field(default_factory=dict)
    _last_s: float = field(default_factory=time.perf_counter)

    def mark(self, step: str) -> None:
        now_s = time.perf_counter()
        self.steps_ms[step] = (now_s - self._last_s) * 1000
        self._last_s = now_s


@dataclass(frozen=True)
class Assessment:
    """The candidates of a plan, ranked and judged, before any is chosen."""

    plan: Plan  # with its events as windows
    ranking: Ranking
    name_sightings: Mapping[str, NameSighting]  # of the plan's names
    verdict: Verdict
    truth: TruthScores


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


def compose(candidates: CandidateSource, assessment: Assessment, context: RecallContext = NO_CONTEXT) -> Recalled:
    """Return the cues of an assessment, or silence with its reason."""
    plan, ranking = assessment.plan, assessment.ranking
    if assessment.verdict.silent:
        return Recalled((), plan, assessment.verdict.silent)
    tuning, session_ids = context.tuning, set(context.session_turn_ids)
    names_by_turn = _choose_named_turns(assessment.name_sightings, ranking, tuning)
    truth = assessment.truth
    trusted_ids = set(ranking.scores) - truth.distrusted_ids
    repeated_ids = {name for name, memory_id in truth.repeated_by.items() if memory_id in trusted_ids}
    left_out_ids = session_ids | repeated_ids | truth.distrusted_ids
    held_back: dict[str, WithheldText] = {}
    cues: list[Cue] = []
    for _ in range(N_SCANNED):
        excluded_ids = {*left_out_ids, *held_back}
        chosen_ids = _choose_turns(candidates, assessment, excluded_ids, tuning)
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


def _choose_named_turns(name_sightings: Mapping[str, NameSighting], ranking: Ranking, tuning: Tuning) -> dict[str, str]:
    """Return turn id -> rare name in it: for each name its best candidate, otherwise the newest turn that has
    it.
    """
    names_by_turn: dict[str, str] = {}
    rare_names = [
        name for name, sighting in name_sightings.items() if sighting.newest and sighting.rarity >= tuning.entity_rarity
    ]
    for name in sorted(rare_names, key=lambda rare_name: (-name_sightings[rare_name].rarity, rare_name))[
        : tuning.entity_hits
    ]:
        free_turns = [turn for turn in name_sightings[name].newest if turn not in names_by_turn]
        if free_turns:
            names_by_turn[max(free_turns, key=lambda turn: ranking.scores.get(turn, 0.0))] = name
    return names_by_turn


def _choose_turns(
    candidates: CandidateSource, assessment: Assessment, excluded_ids: Collection[str], tuning: Tuning
) -> list[str]:
    """Choose turns by relevance and diversity, as many as the kind of question calls for.

    Of texts that say nearly the same, one keeps its place. By words alone, which cut nothing, the others come last.
    """
    plan, ranking = assessment.plan, assessment.ranking
    k = tuning.k_broad if plan.intent in ("history", "overview") else tuning.k
    new_ids = [turn_id for turn_id in rank_ids(ranking.scores) if turn_id not in set(excluded_ids)][:N_DIVERSIFIED]
    if not new_ids:
        return []
    is_cut = bool(ranking.cosine)  # scores by words alone fall too fast
    scores = _cut_weak(candidates, assessment, new_ids, tuning) if is_cut else _share_scores(ranking, new_ids)
    measure_likeness = _make_likeness(candidates, new_ids)
    split = partial(
        split_repeats, read_stems=_make_stem_reader(candidates, assessment.truth), least_shared=tuning.repeated
    )
    distinct_ids, repeated_ids = split(list(scores))
    choose = partial(diversify, likeness=measure_likeness, relevance=tuning.relevance, same_likeness=tuning.same)
    chosen_ids = choose({turn_id: scores[turn_id] for turn_id in distinct_ids}, k=k)
    if repeated_ids and len(chosen_ids) < k and not is_cut:
        more_ids = [turn_id for turn_id in choose(scores, k=k) if turn_id not in chosen_ids]
        chosen_ids += more_ids[: k - len(chosen_ids)]
    if plan.intent in ("latest", "fact", "task") and not plan.windows:
        corrects = _make_correction_test(candidates, plan, ranking, measure_likeness, tuning)
        chosen_ids += find_corrections(chosen_ids, new_ids, measure_likeness, corrects, n_first=tuning.corrected)
        chosen_ids = order_newer_first(chosen_ids, corrects)
        if plan.intent == "task":
            follows = _make_later_run_test(candidates, ranking, measure_likeness, tuning)
            chosen_ids = put_latest_before(chosen_ids, new_ids, measure_likeness, follows, n_first=tuning.n_settled)
            chosen_ids = _put_later_sessions_first(candidates, ranking, chosen_ids, tuning)
    if plan.intent in CLOSED_INTENTS and not plan.windows:
        chosen_ids += _find_closing(candidates, chosen_ids, excluded_ids)
    distinct_ids, repeated_ids = split(chosen_ids)
    return distinct_ids if is_cut else [*distinct_ids, *repeated_ids]


def _share_scores(ranking: Ranking, turn_ids: Sequence[str]) -> dict[str, float]:
    """Return the scores of turns, best first, as shares of the best of them."""
    best = max(ranking.scores[turn_ids[0]], 1e-9)
    return {turn_id: ranking.scores[turn_id] / best for turn_id in turn_ids}


def _cut_weak(
    candidates: CandidateSource, assessment: Assessment, turn_ids: Sequence[str], tuning: Tuning
) -> dict[str, float]:
    """Return the shares of the best score of those turns that match well enough, or hold a rare name of the message.

    turn_ids: best first. The cut keeps a block short, so a weaker turn passes while the better ones together are short.
    """
    named_ids = {
        turn_id
        for sighting in assessment.name_sightings.values()
        if sighting.rarity >= tuning.entity_rarity
        for turn_id in sighting.newest
    }
    details = candidates.get_details(turn_ids)
    scores: dict[str, float] = {}
    n_chars = 0
    for turn_id, share in _share_scores(assessment.ranking, turn_ids).items():
        least = tuning.weakest if n_chars >= tuning.short_block else tuning.weakest_of_short
        if share >= least or turn_id in named_ids:
            scores[turn_id] = share
            n_chars += min(len(details[turn_id].text), LONGEST_TEXTS[-1]) if turn_id in details else 0
    return scores


def _put_later_sessions_first(
    candidates: CandidateSource, ranking: Ranking, chosen_ids: Sequence[str], tuning: Tuning
) -> list[str]:
    """Return the chosen turns with those of the latest session before those of earlier ones about the same."""
    details = candidates.get_details(chosen_ids)
    sessions = {turn_id: detail.run_id for turn_id, detail in details.items() if detail.memory is None}
    times = {turn_id: detail.stated_at for turn_id, detail in details.items()}
    least = tuning.strong * max(ranking.scores.get(turn_id, 0.0) for turn_id in chosen_ids)
    return put_later_sessions_first(
        chosen_ids, sessions, times, lambda turn_id: ranking.scores.get(turn_id, 0.0) >= least
    )


def _find_closing(candidates: CandidateSource, chosen_ids: Sequence[str], excluded_ids: Collection[str]) -> list[str]:
    """Return the text that closed the talk of the best cue that stands near the end of one, if it may be told and is
    no cue yet: a talk opens with the symptom and closes with what was decided.
    """
    closings = candidates.find_closings(chosen_ids)
    closing_id = next((closings[turn_id] for turn_id in chosen_ids if turn_id in closings), None)
    return [] if closing_id is None or closing_id in {*chosen_ids, *excluded_ids} else [closing_id]


def _make_stem_reader(candidates: CandidateSource, truth: TruthScores) -> Callable[[str], frozenset[str]]:
    """Return a function for the stems of a text that may repeat another: a short one, and no ended memory."""

    @cache
    def read_stems(turn_id: str) -> frozenset[str]:
        belief = truth.beliefs.get(turn_id)
        if belief:
            return frozenset() if belief.is_superseded else extract_stems(belief.memory.text) - text.STOPWORDS
        detail = candidates.get_details((turn_id,)).get(turn_id)
        is_short = detail is not None and len(detail.text) <= MAX_REPEATED_CHARS
        return extract_stems(detail.text) - text.STOPWORDS if detail and is_short else frozenset()

    return read_stems


def _make_correction_test(
    candidates: CandidateSource, plan: Plan, ranking: Ranking, measure_likeness: Likeness, tuning: Tuning
) -> Callable[[str, str], bool]:
    """Return a function that says whether the first of two turns may correct the second.

    If the latest is asked for, a later turn that is alike does. If a fact is asked for, it must be a person's, and
    state the same; less of it if it says plainly that it is otherwise now. Of a workflow, a later turn corrects what it
    takes back, or whose problem it solves.
    """
    times = {
        turn_id: fact.stated_at
        for turn_id, fact in ranking.facts.items()
        if plan.intent == "latest" or fact.role == "user" or fact.is_of_workflow
    }
    weights = judge.weigh_words(candidates.get_rarities(judge.extract_query_words(plan.question)))
    asked_weights = {stem: weight for word, weight in weights.items() for stem in extract_stems(word)}

    @cache
    def read_stems(turn_id: str) -> frozenset[str]:
        detail = candidates.get_details((turn_id,)).get(turn_id)
        speaker = ranking.facts[turn_id].speaker or ""
        return extract_stems(detail.text) - extract_stems(speaker) - text.STOPWORDS if detail else frozenset()

    def is_change(turn_id: str) -> bool:
        detail = candidates.get_details((turn_id,)).get(turn_id)
        return detail is not None and says_change(detail.text)

    def is_of_workflow(turn_id: str) -> bool:
        return turn_id in ranking.facts and ranking.facts[turn_id].is_of_workflow

    def settles_it(turn_id: str, other_id: str) -> bool:
        if not (is_of_workflow(turn_id) and is_of_workflow(other_id)):
            return False
        details = candidates.get_details((turn_id, other_id))
        return len(details) == 2 and settles(details[turn_id].text, details[other_id].text)

    def corrects(turn_id: str, other_id: str) -> bool:
        if not is_later(turn_id, other_id, times):
            return False
        if settles_it(turn_id, other_id):
            return True
        if is_of_workflow(turn_id) and plan.intent != "latest":
            return False
        likeness = measure_likeness(turn_id, other_id)
        if plan.intent == "latest":
            return likeness >= tuning.newer_first
        if likeness < tuning.changed_first:  # the lower one of the two limits
            return False
        restates_it = partial(restates, read_stems(turn_id), read_stems(other_id))
        if likeness >= tuning.newer_fact_first and restates_it(asked_weights):
            return True
        return restates_it(dict.fromkeys(asked_weights, 1.0), MIN_SHARED_BY_CHANGE) and is_change(turn_id)

    return corrects


def _make_later_run_test(
    candidates: CandidateSource, ranking: Ranking, measure_likeness: Likeness, tuning: Tuning
) -> Callable[[str, str], bool]:
    """Return a function that says whether the first of two turns was said later than the second, in another session,
    about the same. Memories are left out: what became of them is known.
    """
    times = {turn_id: fact.stated_at for turn_id, fact in ranking.facts.items()}

    @cache
    def read_run(turn_id: str) -> str:
        detail = candidates.get_details((turn_id,)).get(turn_id)
        return detail.run_id if detail and detail.memory is None else ""

    def follows(turn_id: str, other_id: str) -> bool:
        if not is_later(turn_id, other_id, times) or measure_likeness(turn_id, other_id) < tuning.newer_first:
            return False
        run_id, other_run_id = read_run(turn_id), read_run(other_id)
        return bool(run_id and other_run_id) and run_id != other_run_id

    return follows


def _make_likeness(candidates: CandidateSource, turn_ids: Sequence[str]) -> Likeness:
    """Return a function for the likeness of two turns: the cosine of their vectors, or the share of common
    words.

    Words are compared if one of the two has no vector.
    """
    vectors_by_turn = candidates.get_vectors(turn_ids)
    ids_without_vectors = [turn_id for turn_id in turn_ids if turn_id not in vectors_by_turn]
    words = {
        turn_id: extract_stems(detail.text)
        for turn_id, detail in candidates.get_details(turn_ids if ids_without_vectors else ()).items()
    }

    def measure_likeness(turn_a: str, turn_b: str) -> float:
        if (
            turn_a in vectors_by_turn
            and turn_b in vectors_by_turn
            and len(vectors_by_turn[turn_a])
            and len(vectors_by_turn[turn_b])
        ):
            return max(0.0, float((vectors_by_turn[turn_a] @ vectors_by_turn[turn_b].T).max()))
        words_a, words_b = words.get(turn_a, frozenset()), words.get(turn_b, frozenset())
        n_shared = len(words_a & words_b)
        return n_shared / max(1, len(words_a) + len(words_b) - n_shared)

    return measure_likeness


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
