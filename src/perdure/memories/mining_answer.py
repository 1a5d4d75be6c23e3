"""Turn the miner's answer into drafts of memories, each with its trust. Pure.

The answer is text from outside. Its form was checked before; here every operation is checked alone: one
that cannot be kept is refused with a reason, and the others hold. No memory gets more trust than the
turns that it rests on, and a text that tells a model how to behave is kept only when a person said it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

from perdure.access.redact import mask
from perdure.archive import memory_events
from perdure.errors import UsageError
from perdure.memories import gate, mining_question, subject
from perdure.memories.gate import GateReason
from perdure.memories.mining_question import MiningMessage, find_lowest_trust
from perdure.memories.scope import is_said_everywhere
from perdure.memories.sentences import sentences
from perdure.memories.store import MAX_TEXT_BYTES, MemoryDraft
from perdure.regex import lazy_re
from perdure.text import index_terms, normalise, one_line, printable, without_stopwords
from perdure.types import Memory, MemoryKind, Trust

MAX_ENTITY_CHARS = 100

_WORD = lazy_re(r"\w+")


class OperationRefusal(NamedTuple):
    """An operation that was refused."""

    code: str  # id, path, text, turns, time, instruction, insight
    why: str  # in words


@dataclass(frozen=True)
class MiningInput:
    """The messages and memories that the miner was shown, with their agent and project."""

    messages: Sequence[MiningMessage]
    known_memories: Sequence[Memory]  # k1, k2, …
    insights: Sequence[Memory] = ()  # all known insights
    agent: str = "default"
    project: str | None = None
    runtime: str = ""
    conversation: str = ""


class MiningDecision(NamedTuple):
    """The drafts and refusals of one answer."""

    drafts: list[MemoryDraft]
    refusals: list[OperationRefusal]
    n_skipped: int  # operations `skip`: known already


def decide_operations(operations: Iterable[Mapping[str, Any]], mining_input: MiningInput) -> MiningDecision:
    """Decide every operation of one answer, whose form was checked (build_schema)."""
    decision = MiningDecision([], [], 0)
    for op in operations:
        if op["op"] == "skip":
            decision = decision._replace(n_skipped=decision.n_skipped + 1)
            continue
        fault = _find_fault(op, mining_input)
        if fault is None:
            decision.drafts.append(_build_draft(op, mining_input, decision.drafts))
        else:
            decision.refusals.append(fault)
    return decision


def _find_fault(op: Mapping[str, Any], mining_input: MiningInput) -> OperationRefusal | None:
    """Return why an operation is refused; None if it is not."""
    memory_text = _clean_text(op)
    if op["op"] != "create" and _find_known(op, mining_input) is None:
        return OperationRefusal("id", f"{op['op']} of {one_line(op['id'], 20)!r}, which was not in its input")
    if not memory_text and op["op"] != "update":
        return OperationRefusal("text", "no words")
    if len(memory_text.encode()) > MAX_TEXT_BYTES:
        return OperationRefusal("text", f"more than {MAX_TEXT_BYTES} bytes")
    return (
        _find_path_fault(op)
        or _find_turns_fault(op, mining_input)
        or _find_time_fault(op)
        or _find_words_fault(op, memory_text, mining_input)
    )


def _find_path_fault(op: Mapping[str, Any]) -> OperationRefusal | None:
    if op["op"] != "create":
        return None  # it gets the path of its memory
    try:
        memory_events.check_path(op["path"])
    except (UsageError, UnicodeEncodeError) as error:
        return OperationRefusal("path", getattr(error, "detail", "no text"))
    return None


def _find_turns_fault(op: Mapping[str, Any], mining_input: MiningInput) -> OperationRefusal | None:
    first, last = op["turns"]
    if 1 <= first <= last <= len(mining_input.messages):
        return None
    return OperationRefusal("turns", f"messages {first} to {last} of {len(mining_input.messages)}")


def _find_time_fault(op: Mapping[str, Any]) -> OperationRefusal | None:
    try:
        valid_from, valid_until = _parse_date(op["valid_from"]), _parse_date(op["valid_until"])
    except ValueError:
        return OperationRefusal("time", "an invalid date")
    return (
        OperationRefusal("time", "the end of its time range is before the beginning")
        if valid_from and valid_until and valid_until < valid_from
        else None
    )


def _find_words_fault(op: Mapping[str, Any], memory_text: str, mining_input: MiningInput) -> OperationRefusal | None:
    if gate.is_instruction(
        f"{op['path']} {memory_text}",
        "owner" if _is_said_by_person(op, mining_input) else _rate_trust(op, mining_input),
    ):
        return OperationRefusal(GateReason.INSTRUCTION, "tells a model how to behave")
    if op["kind"] == mining_question.INSIGHT_KIND and len(memory_text.split()) > mining_question.MAX_WORDS:
        return OperationRefusal("insight", f"more than {mining_question.MAX_WORDS} words")
    return None


# what is made -----------------------------------------------------------------------------------------------------


def _build_draft(
    op: Mapping[str, Any], mining_input: MiningInput, earlier_drafts: Sequence[MemoryDraft]
) -> MemoryDraft:
    """Build the memory of an operation. If it says the same as a known memory, it gets its words and path, and
    so reinforces it.
    """
    known_memory, cited_messages = (
        None if op["op"] == "create" else _find_known(op, mining_input),
        _list_cited(op, mining_input),
    )
    times = [message.stated_at for message in cited_messages if message.stated_at is not None]
    draft = MemoryDraft(
        text=_clean_text(op),
        kind=cast(MemoryKind, op["kind"]),
        path=op["path"],
        project=_choose_project(op, mining_input),
        stated_at=max(times, default=None),
        trust=_rate_trust(op, mining_input),
        how="mined",
        sources=tuple(message.span for message in cited_messages),
        entities=_clean_entities(op),
        runtime=mining_input.runtime,
        conversation=mining_input.conversation,
        valid_from=_parse_date(op["valid_from"]),
        valid_until=_find_valid_until(op),
        confidence=min(1.0, max(0.0, float(op["confidence"]))),
        agent=mining_input.agent,
    )
    if known_memory is not None:
        return _place_on_known(known_memory, draft, op["op"])
    return _place_insight_or_event(draft, mining_input, earlier_drafts)


def _place_on_known(known_memory: Memory, draft: MemoryDraft, op_name: str) -> MemoryDraft:
    """Move a draft to the path of the memory that it updates or supersedes. An update rests on the old words
    as well.
    """
    placed_draft = replace(draft, path=known_memory.path, project=known_memory.project, agent=known_memory.agent)
    if op_name == "supersede":
        return placed_draft
    if not draft.text or subject.says_same(draft.text, known_memory.text):
        return replace(placed_draft, text=known_memory.text, kind=known_memory.kind)
    trust = find_lowest_trust([known_memory.trust, draft.trust])
    valid_from, valid_until = draft.valid_from or known_memory.valid_from, draft.valid_until or known_memory.valid_until
    if valid_from and valid_until and valid_until <= valid_from:  # the new bound contradicts the old one
        valid_from, valid_until = draft.valid_from, draft.valid_until
    return replace(
        placed_draft,
        kind=known_memory.kind,
        trust=trust,
        made_from=(known_memory.memory_id,),
        pinned=known_memory.pinned,
        valid_from=valid_from,
        valid_until=valid_until,
    )


def _place_insight_or_event(
    draft: MemoryDraft, mining_input: MiningInput, earlier_drafts: Sequence[MemoryDraft]
) -> MemoryDraft:
    """Give an insight that is known, or was made a moment ago, the words and path of that one.

    An event gets a path of its own, because one event does not end another.
    """
    if draft.kind == mining_question.INSIGHT_KIND:
        known_insight = mining_question.find_same_insight(draft.text, mining_input.insights)
        if known_insight is not None:
            return replace(
                draft,
                text=known_insight.text,
                path=known_insight.path,
                project=known_insight.project,
                agent=known_insight.agent,
            )
        same_drafts = (
            earlier
            for earlier in earlier_drafts
            if earlier.kind == draft.kind
            and mining_question.compute_jaccard(earlier.text, draft.text) >= mining_question.SAME_JACCARD
        )
        if (same_draft := next(same_drafts, None)) is not None:
            return replace(draft, text=same_draft.text, path=same_draft.path, project=same_draft.project)
    if draft.kind in ("event", mining_question.INSIGHT_KIND):
        return replace(draft, path=_make_unique_path(draft))
    return draft


def _make_unique_path(draft: MemoryDraft) -> str:
    """Return the path with a hash of the words appended, where there is room."""
    path = memory_events.check_path(draft.path)
    unique_path = f"{path}/{hashlib.sha256(normalise(draft.text).encode()).hexdigest()[:8]}"
    return unique_path if len(unique_path.encode()) <= memory_events.MAX_PATH_BYTES else path


def _clean_text(op: Mapping[str, Any]) -> str:
    """Return the text as it would be kept."""
    return mask(printable(op["text"].encode("utf-8", "replace").decode())).strip()


def _find_known(op: Mapping[str, Any], mining_input: MiningInput) -> Memory | None:
    memories_by_code = {f"k{n}": memory for n, memory in enumerate(mining_input.known_memories, start=1)}
    return memories_by_code.get(op["id"])


def _list_cited(op: Mapping[str, Any], mining_input: MiningInput) -> Sequence[MiningMessage]:
    first, last = op["turns"]
    return mining_input.messages[first - 1 : last]


def _rate_trust(op: Mapping[str, Any], mining_input: MiningInput) -> Trust:
    """Return the lowest trust of the messages that an operation names.

    If those hold less than half of its words and other messages hold more, the trust of these counts as
    well: a wrong number must not give an agent's words the trust of a person.
    """
    cited_messages, memory_terms = _list_cited(op, mining_input), extract_terms(_clean_text(op))
    cited_trust = find_lowest_trust(message.trust for message in cited_messages)
    n_held = len(memory_terms & set().union(*(extract_terms(message.text) for message in cited_messages)))
    if 2 * n_held >= len(memory_terms):
        return cited_trust
    other_trusts = [
        m.trust
        for m in mining_input.messages
        if m not in cited_messages and len(memory_terms & extract_terms(m.text)) > n_held
    ]
    return find_lowest_trust([cited_trust, *other_trusts])


def _is_said_by_person(op: Mapping[str, Any], mining_input: MiningInput) -> bool:
    """Return True if a message that an operation names is a person's and holds at least half of the
    operation's words.
    """
    memory_terms = extract_terms(_clean_text(op))
    return any(
        m.trust == "owner" and 2 * len(memory_terms & extract_terms(m.text)) >= len(memory_terms)
        for m in _list_cited(op, mining_input)
    )


def extract_terms(text: str) -> set[str]:
    """Return the words of a text that carry meaning; pairs of letters in scripts without spaces."""
    return set(without_stopwords(_WORD.findall(index_terms(text).casefold())))


def _choose_project(op: Mapping[str, Any], mining_input: MiningInput) -> str | None:
    """Return the project in which a memory holds; None if a person said that it holds everywhere."""
    memory_terms = extract_terms(_clean_text(op))
    person_sentences = (
        message.text[start:end]
        for message in _list_cited(op, mining_input)
        if message.trust == "owner"
        for start, end in sentences(message.text)
    )
    is_everywhere = any(
        is_said_everywhere(sentence) and 2 * len(memory_terms & extract_terms(sentence)) >= len(memory_terms)
        for sentence in person_sentences
    )
    return None if is_everywhere else mining_input.project


def _clean_entities(op: Mapping[str, Any]) -> tuple[str, ...]:
    names = (one_line(mask(printable(name)), MAX_ENTITY_CHARS).strip() for name in op["entities"])
    return tuple(dict.fromkeys(filter(None, names)))


def _find_valid_until(op: Mapping[str, Any]) -> datetime | None:
    """Return the end of validity. A memory that is valid from and until one date holds for that day."""
    valid_from, valid_until = _parse_date(op["valid_from"]), _parse_date(op["valid_until"])
    return valid_until + timedelta(days=1) if valid_until and valid_until == valid_from else valid_until


def _parse_date(date_text: str) -> datetime | None:
    """Return a date of the answer. Raises ValueError if it is none."""
    if not date_text.strip():
        return None
    instant = datetime.fromisoformat(date_text.strip())
    return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
