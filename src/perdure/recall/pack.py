"""Explain cues and pack them into a budget: each with date, source, speaker, and the turn before it where
it needs one.

Pure. The budget counts the cues as they are rendered. A text is shortened to the part that holds most
of the query's words, cut at a border between characters; a cue that does not fit even then is left out
and named. Reasons say why a turn became a cue, and what another turn lacked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perdure import text
from perdure.index.fuse import Scores
from perdure.recall.candidates import TurnFact
from perdure.recall.judge import extract_query_words, extract_stems, find_held_stems, find_held_words
from perdure.regex import lazy_re
from perdure.types import Cue, Plan, Recalled

TEXT_SIZES = (1000, 800, 500, 400, 200)  # characters of a cue's text that are tried, longest first
LONGEST_TEXTS = (1000, 800, 500, 400)  # characters of the first cue's text, the second's, …; the last is for the rest
BEFORE_CHARS = 240
SHORT_CHARS = 90  # a shorter text may need the turn before it
SPEAKER_LABELS = {  # label of a memory, by the lowest trust in its lineage
    "owner": "the user said", "agent": "an agent concluded", "tool": "a tool's output",
    "web": "from the web, unverified",
}  # fmt: skip
SCRAP_CHARS = 24  # a shorter text always needs it
_DEPENDENT_START = lazy_re(
    r"^(?:[\w .'-]{1,30}: )?(?:yes|yeah|yep|no|nope|sure|ok|okay|thanks?|that|this|it|they|he|she|exactly|same"
    r"|both|also|ja|nein|genau|das|oui|non|sí|是|对|好|不)\b",
    re.IGNORECASE,
)


def is_dependent(words: str) -> bool:
    """Return True if a text needs the turn before it: it is short and answers or points back.

    >>> is_dependent("Yes, that one."), is_dependent("The port is 8443 for the staging server.")
    (True, False)
    """
    is_scrap = len(words) < SCRAP_CHARS and len(words.split()) < 4
    return is_scrap or (len(words) < SHORT_CHARS and bool(_DEPENDENT_START.match(words)))


def render_cue(cue: Cue) -> str:
    """Return one cue as a model or a person reads it."""
    date_label = f"{cue.stated_at:%Y-%m-%d %H:%M}" if cue.stated_at else "undated"
    age_label = f" ({cue.age})" if cue.age else ""
    if cue.memory is None:
        speaker = f"shared by {cue.user} ({cue.role})" if cue.is_shared else cue.role
        speaker += f" · {text.PICTURE_LABEL}" if cue.is_in_picture else ""
        speaker += f" · {SPEAKER_LABELS['web']}" if cue.is_from_web else ""
        labels = [speaker, f"{cue.runtime} @{cue.machine}", text.shorten_project(cue.project), f"turn {cue.turn_id}"]
    else:
        speaker = SPEAKER_LABELS[cue.memory.trust]
        if cue.is_shared:  # names the owner; the label for unverified words stays
            speaker = f"shared by {cue.user}" + (f" · {speaker}" if cue.memory.trust in ("tool", "web") else "")
        labels = [f"memory, {cue.memory.kind}", speaker, text.shorten_project(cue.project), cue.turn_id]
    header = f"[{' · '.join(filter(None, [date_label + age_label, *labels]))}]"
    context_line = f"\n> {cue.before}" if cue.before else ""
    note_line = f"\n({cue.note})" if cue.note else ""
    return f"{header}{context_line}\n{cue.text}{note_line}"


def pack(
    cues: Sequence[Cue], query_words: Sequence[str], *, max_tokens: int
) -> tuple[tuple[Cue, ...], tuple[str, ...]]:
    """Return the cues that fit, in order and shortened where needed, and the turn ids of the others.

    query_words: the words of the query.
    """
    query_stems = frozenset[str]().union(*map(extract_stems, query_words))
    packed_cues: list[Cue] = []
    unfitted_ids: list[str] = []
    tokens_left = max_tokens
    for cue in cues:
        max_chars = LONGEST_TEXTS[min(len(packed_cues), len(LONGEST_TEXTS) - 1)]
        fitted_cue = _fit_cue(cue, query_stems, max_chars, tokens_left)
        if fitted_cue is None:
            unfitted_ids.append(cue.turn_id)
            continue
        packed_cues.append(fitted_cue)
        tokens_left -= fitted_cue.n_tokens
    return tuple(packed_cues), tuple(unfitted_ids)


def _fit_cue(cue: Cue, query_stems: frozenset[str], max_chars: int, tokens_left: int) -> Cue | None:
    """Return the cue with as much text as fits, with the turn before it if possible; None if nothing fits."""
    for size in (size for size in TEXT_SIZES if size <= max_chars):
        shortened = replace(
            cue, text=cut_excerpt(cue.text, query_stems, size), before=text.one_line(cue.before, BEFORE_CHARS)
        )
        for candidate in (shortened, replace(shortened, before="")):
            n_tokens = text.tokens(render_cue(candidate)) + 1  # plus the line break after it
            if n_tokens <= tokens_left:
                return replace(candidate, n_tokens=n_tokens)
    return None


def cut_excerpt(full_text: str, query_stems: frozenset[str], n_chars: int) -> str:
    """Return at most n_chars of a text: the part that holds most of the query's stems, the earliest of equal
    ones.
    """
    plain_text = text.printable(full_text).strip()
    if len(plain_text) <= n_chars:
        return plain_text
    pieces = [
        plain_text[start:end].strip()
        for start, end in text.split(plain_text, max_chars=n_chars - 2, overlap_chars=n_chars // 4)
    ]
    best_number = max(range(len(pieces)), key=lambda n: (len(find_held_stems(query_stems, pieces[n])), -n))
    lead = text.ELLIPSIS if best_number else ""
    tail = text.ELLIPSIS if best_number < len(pieces) - 1 else ""
    return f"{lead}{pieces[best_number]}{tail}"


_STRONG_LEG = 0.5  # normalised score from which a leg is a reason of its own
_LIKENESS_LABELS = (  # (lowest cosine, how alike two texts are)
    (0.6, "means nearly the same"),
    (0.4, "is close in meaning"),
    (0.25, "is somewhat close in meaning"),
)
_MAX_WORDS_NAMED = 6


def find_matching_words(candidate_text: str, plan: Plan) -> tuple[str, ...]:
    """Return the words of a message that a text holds, in any of their forms."""
    words = extract_query_words(plan.question)
    held_words = find_held_words(words, {"": candidate_text})[""]
    return tuple(word for word in words if word in held_words)


def explain_cue(
    turn_id: str,
    legs: Mapping[str, Scores],
    fact: TurnFact,
    plan: Plan,
    *,
    words: Sequence[str] = (),
    entity: str = "",
    is_memory: bool = False,
) -> tuple[str, ...]:
    """Return the reasons for a cue, the strongest first. A memory has no neighbours: its score is its own.

    words: those of the message that its text holds.
    """
    scores_by_leg = {leg: scores[turn_id] for leg, scores in legs.items() if turn_id in scores}
    reasons = [f"contains the rare name {entity}"] if entity else []
    if scores_by_leg.get("keyword", 0.0) > 0:
        reasons.append(_name_words(words))
    cosine = scores_by_leg.get("vector", 0.0)
    reasons += [label for lowest, label in _LIKENESS_LABELS if cosine >= lowest][:1]
    is_weak = max(scores_by_leg.get("keyword", 0.0), cosine) < _STRONG_LEG
    if is_weak and not entity and not is_memory:
        reasons.append("is next to a turn that matches")
    if is_memory and not reasons and "keyword" in scores_by_leg:
        reasons.append(_name_words(words))
    if "speaker" in scores_by_leg:
        speaker = fact.speaker or {"user": "you", "assistant": "the agent"}.get(fact.role, fact.role)
        reasons.append(f"was said by {speaker}")
    if "time" in scores_by_leg:
        reasons.append("is from " + ", ".join(window.words for window in plan.windows))
    if scores_by_leg.get("recent", 0.0) > 0:
        reasons.append("is recent")
    return tuple(reasons)


def _name_words(words: Sequence[str]) -> str:
    return f"contains your words: {', '.join(words[:_MAX_WORDS_NAMED])}" if words else "contains some of your words"


def explain_absence(recalled: Recalled, turn_id: str) -> str:
    """Return in a sentence what a turn lacked to be a cue, or that it is one."""
    for rank, cue in enumerate(recalled.cues, start=1):
        if cue.turn_id == turn_id:
            return f"It is cue {rank}, because it {'; '.join(cue.why) or 'matches best'}."
    if turn_id in recalled.held_back:
        rule = recalled.held_back[turn_id].rule
        return f"It reads like an instruction to a model ({rule}), so it is held back; `perdure floor alerts` lists it."
    if recalled.silent:
        return f"Nothing was recalled: {recalled.silent}."
    if turn_id in recalled.passed_over:
        return f"It matched, {recalled.passed_over[turn_id]}."
    return "It does not match: it shares too few words with the message, and its meaning is not close enough."
