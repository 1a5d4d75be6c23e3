"""Choose the turns that become cues: by relevance and diversity, with what corrects them and what closed their talk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial

from perdure import text
from perdure.index.fuse import rank_ids
from perdure.recall import judge
from perdure.recall.assess import Assessment
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
from perdure.recall.diversify import Likeness, diversify, split_repeats
from perdure.recall.judge import extract_stems
from perdure.recall.pack import LONGEST_TEXTS
from perdure.recall.plain import find_change
from perdure.recall.rank import Ranking
from perdure.recall.retractions import settles
from perdure.recall.truth import TruthScores
from perdure.recall.tuning import Tuning
from perdure.types import Plan

N_DIVERSIFIED = 40  # best candidates among which the cues are chosen
MAX_REPEATED_CHARS = 400  # of a text that may repeat another: a longer one says more than one thing
CLOSED_INTENTS = ("task", "latest", "overview", "history")  # answered by how a talk ended


def choose_named_turns(name_sightings: Mapping[str, NameSighting], ranking: Ranking, tuning: Tuning) -> dict[str, str]:
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


def choose_turns(
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
    state the same; less of it if a sentence says plainly that it is otherwise now, and states the same itself. Of a
    workflow, a later turn corrects what it takes back, or whose problem it solves.
    """
    times = {
        turn_id: fact.stated_at
        for turn_id, fact in ranking.facts.items()
        if plan.intent == "latest" or fact.role == "user" or fact.is_of_workflow
    }
    weights = judge.weigh_words(candidates.get_rarities(judge.extract_query_words(plan.question)))
    asked_weights = {stem: weight for word, weight in weights.items() for stem in extract_stems(word)}

    @cache
    def read_stems(turn_id: str, part: Callable[[str], str] = str) -> frozenset[str]:
        detail = candidates.get_details((turn_id,)).get(turn_id)
        speaker = ranking.facts[turn_id].speaker or ""
        return extract_stems(part(detail.text)) - extract_stems(speaker) - text.STOPWORDS if detail else frozenset()

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
        stems, other_stems = read_stems(turn_id), read_stems(other_id)
        if likeness >= tuning.newer_fact_first and restates(stems, other_stems, asked_weights):
            return True
        return all(
            restates(said, other_stems, dict.fromkeys(asked_weights, 1.0), MIN_SHARED_BY_CHANGE)
            for said in (stems, read_stems(turn_id, find_change))
        )

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
