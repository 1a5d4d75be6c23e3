"""Turn chosen candidates into cues: with their sources, the reasons why, and what a reader must know beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from perdure.access.scan import digest_text
from perdure.formats.call_text import describe_calls
from perdure.recall import judge
from perdure.recall.candidates import CandidateDetail, CandidateSource
from perdure.recall.pack import BEFORE_CHARS, explain_cue, find_matching_words, is_dependent, pack
from perdure.recall.rank import Ranking
from perdure.recall.recaller import ChangeNote, TextScan
from perdure.recall.retractions import retracts
from perdure.recall.truth import TruthScores, describe_belief
from perdure.text import describe_file, format_age, one_line
from perdure.types import MCP_RUNTIME, WORKFLOW_RUNTIME, Cue, Plan, Recalled, WithheldText

_RETRACTION_CHARS = 120  # of the turn that takes another one back, in a note


def scan_cues(cues: Sequence[Cue], scan_text: TextScan | None) -> tuple[list[Cue], dict[str, WithheldText]]:
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


def add_note(cue: Cue, truth: TruthScores, now: datetime, describe_changes: ChangeNote | None) -> Cue:
    """Return a cue with the note that a reader needs beside its words."""
    belief = truth.beliefs.get(cue.turn_id) or truth.ended_by_turn.get(cue.turn_id)
    if belief:
        cue = replace(cue, note=describe_belief(belief, now), is_history=belief.has_ended(now))
    is_memory = cue.memory is not None or cue.runtime == "host-memory"
    if describe_changes is None or not is_memory or cue.is_history or cue.is_shared:
        return cue
    changes = describe_changes(cue.text, cue.project, cue.stated_at)
    return replace(cue, note="; ".join(filter(None, (cue.note, changes))))


def mark_retracted(cues: Sequence[Cue]) -> list[Cue]:
    """Return the cues, with a note on each turn of a workflow that a later one among them takes back; that one comes
    first.
    """
    turns = [
        cue for cue in cues if cue.runtime == WORKFLOW_RUNTIME and cue.memory is None and cue.stated_at is not None
    ]
    notes: dict[str, str] = {}
    ordered = list(cues)
    for earlier in turns:
        later = [
            cue
            for cue in turns
            if cue.stated_at > earlier.stated_at and retracts(cue.text, earlier.text)  # type: ignore[operator]
        ]
        if later:
            newest = max(later, key=lambda cue: (cue.stated_at, cue.turn_id))
            notes[earlier.turn_id] = f"taken back later: “{one_line(newest.text, _RETRACTION_CHARS)}”"
            if ordered.index(newest) > ordered.index(earlier):
                ordered.remove(newest)
                ordered.insert(ordered.index(earlier), newest)
    return [
        replace(cue, note="; ".join(filter(None, (notes[cue.turn_id], cue.note)))) if cue.turn_id in notes else cue
        for cue in ordered
    ]


def build_cues(
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
    preceding_texts = _read_preceding(candidates, details)
    from_web_ids = candidates.find_from_web([turn_id for turn_id in turn_ids if turn_id in details])
    cues = []
    for turn_id in (turn_id for turn_id in turn_ids if turn_id in details):
        detail = details[turn_id]
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
                before=preceding_texts.get(turn_id, ""),
                memory=detail.memory,
                user=detail.user,
                is_shared=detail.is_shared,
                chunk=detail.chunk,
                project=detail.project,
                age=format_age(detail.stated_at, plan.asked_at),
                is_from_web=turn_id in from_web_ids or detail.runtime == MCP_RUNTIME,
                is_history=detail.is_left and bool(describe_file(detail.runtime, detail.conversation, is_left=True)),
                note=describe_file(detail.runtime, detail.conversation, is_left=detail.is_left),
                is_in_picture=detail.is_in_picture,
            )
        )
    return sorted(cues, key=lambda cue: cue.is_history)  # a paragraph that left its file comes after the others


def _read_preceding(candidates: CandidateSource, details: Mapping[str, CandidateDetail]) -> dict[str, str]:
    """Return turn id -> the text before it, for those turns that say little without it."""
    neighbours = candidates.find_neighbours(
        [turn_id for turn_id, detail in details.items() if is_dependent(detail.text)], 1
    )
    neighbour_details = candidates.get_details(
        sorted({neighbour_id for turn_neighbours in neighbours.values() for neighbour_id, _ in turn_neighbours})
    )
    texts: dict[str, str] = {}
    for turn_id, turn_neighbours in neighbours.items():
        preceding_id = next(
            (neighbour_id for neighbour_id, _ in turn_neighbours if neighbour_id in neighbour_details), ""
        )
        if preceding_id:
            texts[turn_id] = _show_text(neighbour_details[preceding_id])
    return texts


def _show_text(detail: CandidateDetail) -> str:
    """Return the text of a candidate as its reader sees it: tool calls in words."""
    return describe_calls(detail.text, detail.project, before=detail.before_call) if detail.is_call else detail.text


def pack_cues(plan: Plan, cues: Sequence[Cue], held_back: Mapping[str, WithheldText], *, max_tokens: int) -> Recalled:
    """Return the cues that fit, or silence with its reason."""
    packed_cues, without_room = pack(cues, judge.extract_query_words(plan.question), max_tokens=max_tokens)
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
        held_back=dict(held_back),
    )
