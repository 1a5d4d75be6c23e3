"""Decide what a host's own model answered about its candidates. Pure.

An answer is text from outside, like that of the miner, and its statements pass the same checks (`mining_answer`). More
is asked of them, because nobody bound the answer to a schema: each names turns that were asked about in one question,
holds no secret, is short, and says nothing that its turns do not say. What is kept has at most the trust of an agent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from perdure.access.redact import mask
from perdure.archive.host_questions import HostQuestion
from perdure.identity import make_memory_id
from perdure.memories import cue_use, gate, mining_answer, subject
from perdure.memories.explicit import guess_kind
from perdure.memories.gate import GateReason
from perdure.memories.host_question import MIN_CODE_CHARS
from perdure.memories.mining_answer import MiningInput, OperationRefusal
from perdure.memories.mining_question import find_lowest_trust
from perdure.memories.proposals import is_negated
from perdure.memories.store import MemoryDraft
from perdure.regex import lazy_re
from perdure.text import normalise, one_line, printable

MAX_CHARS = 500  # of a statement
MAX_STATEMENTS = 20  # of one answer
MIN_HELD_SHARE = 0.5  # share of a statement's words that its turns hold
_CLAUSE_BREAK = lazy_re(r"[,;:!?。，；]|\.\s|\b(?:and|but|because|so|und|aber|sondern|weil|et|mais|parce que|y|pero)\b")


@dataclass(frozen=True)
class HostStatement:
    """One statement that a host's model wants to keep."""

    codes: tuple[str, ...]  # short ids of candidates
    text: str
    kind: str = ""  # "": guessed from the text
    path: str = ""  # "": chosen by the text


def find_turns(codes: Sequence[str], questions: Sequence[HostQuestion]) -> tuple[str, ...] | OperationRefusal:
    """Return the turns of some short ids; a refusal for one that was not asked, or turns of several questions.

    questions: newest first; the newest that knows an id counts.
    """
    turn_ids: list[str] = []
    for code in codes:
        turn_id = _find_turn(code, questions)
        if turn_id is None:
            return OperationRefusal(
                "id", f"{one_line(printable(code), 20)!r} was not asked about, or means several turns"
            )
        turn_ids.append(turn_id)
    if not turn_ids:
        return OperationRefusal("id", "name the ids of the lines that say it")
    if not any(set(turn_ids) <= set(question.asked) for question in questions):
        return OperationRefusal("turns", "the ids belong to several sessions: keep one statement for each")
    return tuple(dict.fromkeys(turn_ids))


def _find_turn(code: str, questions: Sequence[HostQuestion]) -> str | None:
    if len(code) < MIN_CODE_CHARS:
        return None
    for question in questions:
        matches = [turn_id for turn_id in question.asked if turn_id.startswith(code)]
        if matches:
            return matches[0] if len(matches) == 1 else None
    return None


def decide_statement(
    statement: HostStatement, turn_ids: Sequence[str], mining_input: MiningInput, *, user: str
) -> MemoryDraft | OperationRefusal:
    """Return the draft of a statement, or why it is refused. mining_input: exactly the turns that it names."""
    op = {
        "op": "create",
        "id": "",
        "path": statement.path or subject.path_for(statement.text, guess_kind(statement.text)),
        "kind": statement.kind or guess_kind(statement.text),
        "text": statement.text,
        "turns": [1, len(mining_input.messages)],
        "entities": [],
        "valid_from": "",
        "valid_until": "",
        "confidence": 1.0,
    }
    if (fault := _find_fault(statement.text, mining_input)) is not None:
        return fault
    decision = mining_answer.decide_operations([op], mining_input)
    if decision.refusals:
        return decision.refusals[0]
    (draft,) = decision.drafts
    return replace(
        draft,
        trust=find_lowest_trust(["agent", draft.trust]),
        entities=None,
        memory_id=_make_id(user, turn_ids, draft),
    )


def _find_fault(statement_text: str, mining_input: MiningInput) -> OperationRefusal | None:
    """Return why a statement is refused, beyond what is asked of the miner."""
    plain_text = printable(statement_text).strip()
    if len(plain_text) > MAX_CHARS:
        return OperationRefusal("text", f"more than {MAX_CHARS} characters")
    if mask(plain_text) != plain_text:
        return OperationRefusal(GateReason.SECRET, gate.EXPLANATIONS[GateReason.SECRET])
    source_text = "\n".join(message.text for message in mining_input.messages)
    terms = mining_answer.extract_terms(plain_text)
    if len(terms & mining_answer.extract_terms(source_text)) < MIN_HELD_SHARE * len(terms):
        return OperationRefusal("source", "its lines do not say that: use their words")
    if added := list_added_marks(plain_text, source_text):
        return OperationRefusal("source", f"its lines do not name {', '.join(map(repr, added[:3]))}")
    typed_text = "\n".join(message.text for message in mining_input.messages if message.author == "person")
    if turned := list_turned_words(plain_text, typed_text):
        return OperationRefusal("source", f"its lines say yes where it says no, or no where it says yes: {turned[0]!r}")
    return None


def list_turned_words(statement_text: str, source_text: str) -> list[str]:
    """Return the words that stand beside a negation in a statement and never so in its source, or the other way round.

    >>> list_turned_words("Use pip.", "Use uv, not pip"), list_turned_words("Use uv and not pip.", "Use uv, not pip")
    (['pip'], [])
    """
    statement_signs, source_signs = _list_signs(statement_text), _list_signs(source_text)
    shared_words = sorted(statement_signs.keys() & source_signs)
    return [word for word in shared_words if statement_signs[word].isdisjoint(source_signs[word])]


def _list_signs(text: str) -> dict[str, set[bool]]:
    """Return word -> whether a clause with it holds a negation: True, False, or both."""
    signs: dict[str, set[bool]] = {}
    for clause in _CLAUSE_BREAK.split(text):
        for word in mining_answer.extract_terms(clause):
            signs.setdefault(word, set()).add(is_negated(clause))
    return signs


def list_added_marks(statement_text: str, source_text: str) -> list[str]:
    """Return the numbers, identifiers and names of a statement that its source does not hold, in order.

    >>> list_added_marks("Staging listens on 8643 for Otto", "staging is on port 8642"), list_added_marks("a", "b")
    (['8643', 'otto'], [])
    """
    known_stems = {word.stem for word in cue_use.iter_words(source_text)}
    return [
        word.stem
        for word in cue_use.iter_words(statement_text)
        if (word.weight >= cue_use.NAME_WEIGHT or word.stem.isdigit()) and word.stem not in known_stems
    ]


def _make_id(user: str, turn_ids: Sequence[str], draft: MemoryDraft) -> str:
    """Return the id of a memory: the same turns and words give the same memory, in every home."""
    seed = "\0".join((user, *sorted(turn_ids), normalise(draft.text)))
    stated_at = draft.stated_at or datetime.fromtimestamp(0, UTC)
    return make_memory_id(stated_at, hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest())


def list_pending(questions: Sequence[HostQuestion], settled: Mapping[str, str]) -> list[str]:
    """Return the turns of the newest question that no answer has settled."""
    return [turn_id for turn_id in questions[0].asked if turn_id not in settled] if questions else []
