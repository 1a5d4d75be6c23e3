"""M(I): turn a plan into cues, or into silence. Reads through `CandidateSource`, writes nothing, decides
in pure functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TypeAlias

from perdure import text
from perdure.access.scan import Finding, digest_text
from perdure.config import LimitsConfig
from perdure.formats.call_text import describe_calls
from perdure.recall import judge
from perdure.recall.candidates import CandidateDetail, CandidateSource, NameSighting
from perdure.recall.corrections import (
    MIN_SHARED_BY_CHANGE,
    find_corrections,
    is_later,
    order_newer_first,
    put_latest_before,
    restates,
)
from perdure.recall.diversify import Likeness, diversify, split_repeats
from perdure.recall.fuse import rank_ids
from perdure.recall.judge import Verdict, extract_stems
from perdure.recall.pack import BEFORE_CHARS, explain_cue, find_matching_words, is_dependent, pack
from perdure.recall.plain import says_change
from perdure.recall.rank import PlanVectors, Ranking, rank
from perdure.recall.refine import refine
from perdure.recall.truth import N_LOOKED_AT, TruthScores, describe_belief, score_beliefs
from perdure.recall.tuning import DEFAULT, Tuning
from perdure.text import describe_file, format_age, one_line
from perdure.types import MCP_RUNTIME, Cue, Plan, Recalled, Window, WithheldText

N_JUDGED = 10  # best candidates whose words the judge reads
N_DIVERSIFIED = 40  # best candidates among which the cues are chosen
N_SCANNED = 8  # rounds of choosing without cues that read like orders; after that there are fewer cues
CLOSED_INTENTS = ("task", "latest", "overview", "history")  # answered by how a talk ended
NOTHING_ASKED = "the message asks for nothing"
TextScan: TypeAlias = "Callable[[str], Sequence[Finding]]"  # findings in a text that nobody allowed
ChangeNote: TypeAlias = (
    "Callable[[str, str | None, datetime | None], str]"  # words, project, time -> what changed since
)
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


def recall(  # noqa: PLR0913 - what a home adds to candidates and plan; all has defaults
    candidates: CandidateSource,
    plan: Plan,
    *,
    vectors: PlanVectors = None,
    model: str = "",
    session_turn_ids: Collection[str] = (),
    explain: bool = False,
    scan_text: TextScan | None = None,
    describe_changes: ChangeNote | None = None,
    limits: Mapping[str, LimitsConfig] | None = None,
    tuning: Tuning = DEFAULT,
) -> Recalled:
    """Return the cues for a plan, best first, within the budget of tokens; none if nothing is relevant.

    If the latest is asked for, a later turn comes before an earlier one that is alike.

    vectors: a row for each text of `list_texts_to_embed(plan)`, or a function that waits for them; None
    without vectors. model: the name of the model that made them, as `judge.THRESHOLDS` knows it.
    session_turn_ids: turns that the session holds, which are not said again. explain: say for every other
    candidate why it is no cue. scan_text: finds text that reads like an order to a model; such a cue is
    left out, and the next one takes its room. describe_changes: says what has changed since a memory was
    stated. limits: a home's own, below which recall is silent, by model.
    """
    if not plan.queries and not plan.windows:
        return Recalled((), plan, silent=NOTHING_ASKED)
    timer = _StepTimer()
    assessment = assess(candidates, plan, vectors=vectors, model=model, limits=limits, tuning=tuning)
    timer.mark("candidates")
    recalled = compose(
        candidates,
        assessment,
        session_turn_ids=session_turn_ids,
        scan_text=scan_text,
        describe_changes=describe_changes,
        tuning=tuning,
    )
    timer.mark("cues")
    if explain:
        recalled = replace(
            recalled, passed_over=_explain_passed_over(assessment.ranking, recalled, session_turn_ids, tuning)
        )
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


def assess(
    candidates: CandidateSource,
    plan: Plan,
    *,
    vectors: PlanVectors = None,
    model: str = "",
    limits: Mapping[str, LimitsConfig] | None = None,
    tuning: Tuning = DEFAULT,
) -> Assessment:
    """Return the ranked candidates of a plan and the judge's verdict on them: all that search and evaluation
    need.
    """
    plan = add_event_windows(candidates, plan)
    ranking = refine(candidates, plan, rank(candidates, plan, vectors, tuning), tuning)
    ranking, truth = _apply_beliefs(candidates, plan, ranking, tuning)
    name_sightings = candidates.find_names(plan.names)
    verdict = _judge_candidates(candidates, plan, ranking, name_sightings, model if ranking.cosine else "", limits)
    return Assessment(plan, ranking, name_sightings, verdict, truth)


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


def compose(
    candidates: CandidateSource,
    assessment: Assessment,
    *,
    session_turn_ids: Collection[str] = (),
    scan_text: TextScan | None = None,
    describe_changes: ChangeNote | None = None,
    tuning: Tuning = DEFAULT,
) -> Recalled:
    """Return the cues of an assessment, or silence with its reason."""
    plan, ranking = assessment.plan, assessment.ranking
    if assessment.verdict.silent:
        return Recalled((), plan, assessment.verdict.silent)
    names_by_turn = {
        turn_id: rare_name
        for turn_id, rare_name in _choose_named_turns(assessment.name_sightings, ranking, tuning).items()
        if turn_id not in set(session_turn_ids)
    }
    truth = assessment.truth
    trusted_ids = set(ranking.scores) - truth.distrusted_ids
    repeated_ids = {name for name, memory_id in truth.repeated_by.items() if memory_id in trusted_ids}
    left_out_ids = repeated_ids | truth.distrusted_ids
    held_back: dict[str, WithheldText] = {}
    cues: list[Cue] = []
    for _ in range(N_SCANNED):
        chosen_ids = _choose_turns(candidates, assessment, {*session_turn_ids, *left_out_ids, *held_back}, tuning)
        names_by_turn = {
            turn_id: name
            for turn_id, name in names_by_turn.items()
            if turn_id not in left_out_ids and turn_id not in held_back
        }
        cues, suspected_cues = _scan_cues(_build_cues(candidates, plan, ranking, chosen_ids, names_by_turn), scan_text)
        held_back |= suspected_cues
        if not suspected_cues:
            break
    cues = [_add_note(cue, truth, plan.asked_at, describe_changes) for cue in cues]
    packed_cues, without_room = pack(cues, judge.extract_query_words(plan.question), max_tokens=tuning.max_tokens)
    reason = (
        "the matching text reads like an instruction to a model"
        if held_back
        else "this session already got everything that matches"
    )
    return Recalled(
        packed_cues,
        plan,
        silent="" if packed_cues else reason,
        n_tokens=sum(cue.n_tokens for cue in packed_cues),
        without_room=without_room,
        held_back=held_back,
    )


def hide_scores(recalled: Recalled) -> Recalled:
    """Return recalled cues with scores by rank alone: others' word counts are part of the real ones."""
    return replace(
        recalled,
        cues=tuple(replace(cue, score=1 / rank, legs={}) for rank, cue in enumerate(recalled.cues, start=1)),
        relevance=None,
        threshold=None,
        coverage=None,
    )


def _scan_cues(cues: Sequence[Cue], scan_text: TextScan | None) -> tuple[list[Cue], dict[str, WithheldText]]:
    """Return the cues that may be given, and those that may not. A suspicious turn before a cue is removed
    alone.
    """
    if scan_text is None:
        return list(cues), {}
    safe_cues: list[Cue] = []
    suspected_cues: dict[str, WithheldText] = {}
    for cue in cues:
        if findings := scan_text(cue.text):
            suspected_cues[cue.turn_id] = WithheldText(findings[0].rule, digest_text(cue.text))
        else:
            before = one_line(cue.before, BEFORE_CHARS)
            safe_cues.append(replace(cue, before="" if before and scan_text(before) else before))
    return safe_cues, suspected_cues


def _add_note(cue: Cue, truth: TruthScores, now: datetime, describe_changes: ChangeNote | None) -> Cue:
    """Return a cue with the note that a reader needs beside its words."""
    belief = truth.beliefs.get(cue.turn_id) or truth.ended_by_turn.get(cue.turn_id)
    if belief:
        cue = replace(cue, note=describe_belief(belief, now), is_history=belief.has_ended(now))
    is_memory = cue.memory is not None or cue.runtime == "host-memory"
    if describe_changes is None or not is_memory or cue.is_history or cue.is_shared:
        return cue
    changes = describe_changes(cue.text, cue.project, cue.stated_at)
    return replace(cue, note="; ".join(filter(None, (cue.note, changes))))


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

    Of memories that say nearly the same, one keeps its place. By words alone, which cut nothing, the others come last.
    """
    plan, ranking = assessment.plan, assessment.ranking
    k = tuning.k_broad if plan.intent in ("history", "overview") else tuning.k
    new_ids = [turn_id for turn_id in rank_ids(ranking.scores) if turn_id not in set(excluded_ids)][:N_DIVERSIFIED]
    if not new_ids:
        return []
    best = max(ranking.scores[new_ids[0]], 1e-9)
    is_cut = bool(ranking.cosine)  # scores by words alone fall too fast
    named_ids = {
        turn_id
        for sighting in assessment.name_sightings.values()
        if sighting.rarity >= tuning.entity_rarity
        for turn_id in sighting.newest
    }
    shares = {turn_id: ranking.scores[turn_id] / best for turn_id in new_ids}
    scores = {
        turn_id: share
        for turn_id, share in shares.items()
        if not is_cut or share >= tuning.weakest or turn_id in named_ids
    }
    measure_likeness, repeats = _make_likeness(candidates, new_ids), _make_repeat_test(assessment.truth, tuning)
    distinct_ids, repeated_ids = split_repeats(list(scores), repeats)
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
    if plan.intent in CLOSED_INTENTS and not plan.windows:
        chosen_ids += _find_closing(candidates, chosen_ids, excluded_ids)
    distinct_ids, repeated_ids = split_repeats(chosen_ids, repeats)
    return distinct_ids if is_cut else [*distinct_ids, *repeated_ids]


def _find_closing(candidates: CandidateSource, chosen_ids: Sequence[str], excluded_ids: Collection[str]) -> list[str]:
    """Return the text that closed the talk of the best cue that stands near the end of one, if it may be told and is
    no cue yet: a talk opens with the symptom and closes with what was decided.
    """
    closings = candidates.find_closings(chosen_ids)
    closing_id = next((closings[turn_id] for turn_id in chosen_ids if turn_id in closings), None)
    return [] if closing_id is None or closing_id in {*chosen_ids, *excluded_ids} else [closing_id]


def _make_repeat_test(truth: TruthScores, tuning: Tuning) -> Callable[[str, str], bool]:
    """Return a function that says whether two current memories say nearly the same, with the same numbers."""

    @cache
    def read_stems(memory_id: str) -> frozenset[str]:
        belief = truth.beliefs.get(memory_id)
        return (
            extract_stems(belief.memory.text) - text.STOPWORDS if belief and not belief.is_superseded else frozenset()
        )

    def repeats(memory_id: str, other_id: str) -> bool:
        stems, other_stems = read_stems(memory_id), read_stems(other_id)
        n_shared = len(stems & other_stems)
        has_same_numbers = not any(stem.isdecimal() for stem in stems ^ other_stems)
        return bool(n_shared) and has_same_numbers and n_shared >= tuning.repeated * len(stems | other_stems)

    return repeats


def _make_correction_test(
    candidates: CandidateSource, plan: Plan, ranking: Ranking, measure_likeness: Likeness, tuning: Tuning
) -> Callable[[str, str], bool]:
    """Return a function that says whether the first of two turns may correct the second.

    If the latest is asked for, a later turn that is alike does. If a fact is asked for, it must be a person's, and
    state the same; less of it if it says plainly that it is otherwise now.
    """
    times = {
        turn_id: fact.stated_at
        for turn_id, fact in ranking.facts.items()
        if plan.intent == "latest" or fact.role == "user"
    }
    asked_stems = frozenset[str]().union(*map(extract_stems, judge.extract_query_words(plan.question)))

    @cache
    def read_stems(turn_id: str) -> frozenset[str]:
        detail = candidates.get_details((turn_id,)).get(turn_id)
        speaker = ranking.facts[turn_id].speaker or ""
        return extract_stems(detail.text) - extract_stems(speaker) - text.STOPWORDS if detail else frozenset()

    def is_change(turn_id: str) -> bool:
        detail = candidates.get_details((turn_id,)).get(turn_id)
        return detail is not None and says_change(detail.text)

    def corrects(turn_id: str, other_id: str) -> bool:
        if not is_later(turn_id, other_id, times):
            return False
        if plan.intent == "latest":
            return measure_likeness(turn_id, other_id) >= tuning.newer_first
        likeness = measure_likeness(turn_id, other_id)
        restates_it = partial(restates, read_stems(turn_id), read_stems(other_id), asked_stems)
        if likeness >= tuning.newer_fact_first and restates_it():
            return True
        return likeness >= tuning.changed_first and restates_it(MIN_SHARED_BY_CHANGE) and is_change(turn_id)

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


def _build_cues(
    candidates: CandidateSource,
    plan: Plan,
    ranking: Ranking,
    chosen_ids: Sequence[str],
    names_by_turn: Mapping[str, str],
) -> list[Cue]:
    """Return the chosen turns and then those found by a rare name, as cues."""
    turn_ids = [*chosen_ids, *(turn_id for turn_id in names_by_turn if turn_id not in chosen_ids)]
    details = candidates.get_details(turn_ids)
    facts = candidates.get_facts(turn_ids)
    neighbours = candidates.find_neighbours(
        [turn_id for turn_id in turn_ids if turn_id in details and is_dependent(details[turn_id].text)], 1
    )
    neighbour_details = candidates.get_details(
        sorted({neighbour_id for turn_neighbours in neighbours.values() for neighbour_id, _ in turn_neighbours})
    )
    from_web_ids = candidates.find_from_web([turn_id for turn_id in turn_ids if turn_id in details])
    cues = []
    for turn_id in (turn_id for turn_id in turn_ids if turn_id in details):
        detail = details[turn_id]
        preceding_turns = [
            neighbour_details[neighbour_id]
            for neighbour_id, _ in neighbours.get(turn_id, ())
            if neighbour_id in neighbour_details
        ]
        cues.append(
            Cue(
                detail.turn_id,
                detail.run_id,
                detail.conversation,
                detail.role,
                detail.stated_at,
                detail.machine,
                detail.runtime,
                _show_text(detail),
                ranking.scores.get(turn_id, 0.0),
                {leg: scores[turn_id] for leg, scores in ranking.legs.items() if turn_id in scores},
                explain_cue(
                    turn_id,
                    ranking.legs,
                    facts[turn_id],
                    plan,
                    words=find_matching_words(detail.text, plan),
                    entity=names_by_turn.get(turn_id, ""),
                    is_memory=detail.memory is not None,
                ),
                before=_show_text(preceding_turns[0]) if preceding_turns else "",
                memory=detail.memory,
                user=detail.user,
                is_shared=detail.is_shared,
                chunk=detail.chunk,
                project=detail.project,
                age=format_age(detail.stated_at, plan.asked_at),
                is_from_web=turn_id in from_web_ids or detail.runtime == MCP_RUNTIME,
                is_history=detail.is_left and bool(describe_file(detail.runtime, detail.conversation, is_left=True)),
                note=describe_file(detail.runtime, detail.conversation, is_left=detail.is_left),
            )
        )
    return sorted(cues, key=lambda cue: cue.is_history)  # a paragraph that left its file comes after the others


def _show_text(detail: CandidateDetail) -> str:
    """Return the text of a candidate as its reader sees it: tool calls in words."""
    return describe_calls(detail.text, detail.project, before=detail.before_call) if detail.is_call else detail.text


def _explain_passed_over(
    ranking: Ranking, recalled: Recalled, session_turn_ids: Collection[str], tuning: Tuning
) -> dict[str, str]:
    """Say for each candidate that is no cue why."""
    packed_ids = {cue.turn_id for cue in recalled.cues}
    ranked_ids = rank_ids(ranking.scores)
    reasons = {}
    for position, turn_id in enumerate(ranked_ids, start=1):
        if turn_id in packed_ids:
            continue
        if turn_id in recalled.held_back:
            reason = f"it reads like an instruction to a model ({recalled.held_back[turn_id].rule})"
        elif turn_id in session_turn_ids:
            reason = "this session already got it"
        elif turn_id in recalled.without_room:
            reason = f"it did not fit into {tuning.max_tokens:,} tokens"
        elif ranking.cosine and ranking.scores[turn_id] < tuning.weakest * ranking.scores[ranked_ids[0]]:
            reason = "it matches much less than the best one"
        elif position <= N_DIVERSIFIED:
            reason = "the cues match better or say the same"
        else:
            reason = f"only the best {N_DIVERSIFIED} matches can become cues"
        reasons[turn_id] = f"in place {position} of {len(ranked_ids)}, but {reason}"
    return reasons
