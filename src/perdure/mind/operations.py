"""From the miner's answer to memories: what of it can be kept, and with how much trust. Pure.

The answer is somebody else's text. Its form was checked before; here every operation stands for itself, and one that
cannot be kept is refused with the reason while the others hold. Nothing that is made gets more trust than the turns
that it rests on, and what tells a model how to behave is kept only when a person said it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

from perdure.access import scan
from perdure.access.redact import mask
from perdure.errors import UsageError
from perdure.index.memories import Use
from perdure.memories import claims, paths
from perdure.mind import insights
from perdure.mind.batches import Message, lowest
from perdure.mind.memories import MAX_TEXT_BYTES, Draft
from perdure.patterns import late
from perdure.text import index_terms, normalised, one_line, printable, without_stopwords
from perdure.types import Memory, MemoryKind, Trust

MAX_ENTITY_CHARS = 100
MIN_INJECTED = 20  # so often must a topic have been shown before its never being used says anything (row E05: 20 to 50)
RARE = 0.5  # of its confidence is left to what is about a topic that was never used
_HEAD = "user/"  # paths about the person hold in every project

Topic = tuple[str, str]  # kind, and the first part of the path

_OVERRIDE = late(  # nobody means these as something to remember
    r"(?i)\b(?:ignore|disregard|forget|override|bypass)\b.{0,30}\b(?:previous|prior|above|earlier|preceding|your|all|system)"
    r"\b.{0,20}\b(?:instructions?|prompts?|rules|guidelines|directives)\b"
    r"|\b(?:reveal|print|repeat|show)\b.{0,20}\bsystem prompt\b"
    r"|\bdo not (?:tell|inform|mention (?:this|it) to) the (?:user|owner|human)\b|<\|im_start\|>|\[INST\]"
)
_COMMAND = late(  # a person may want these; nobody else may
    r"(?i)\b(?:you|the (?:assistant|agent|model|ai))\s+(?:must|should|shall|have to|need to|are (?:now|to))\b"
    r"|\bfrom now on\b|\bnew instructions?\b|\byour (?:new )?(?:task|role|instructions?)\b"
    r"|^\W*(?:always|never|you must|make sure to|be sure to|remember to)\b"
    r"|\b(?:always|must|please)\s+(?:run|execute|call|send|post|upload|fetch|download|visit|open|install|include|add)\b"
    r"|\b(?:curl|wget)\b.{0,80}\|\s*(?:ba|z)?sh\b"
)


_WORD = late(r"\w+")


class Refusal(NamedTuple):
    """An operation that was not done."""

    code: str  # id, path, text, turns, time, instruction, insight
    why: str  # in words


@dataclass(frozen=True)
class Shown:
    """What the miner was shown, and where that was said."""

    messages: Sequence[Message]
    known: Sequence[Memory]  # k1, k2, …
    insights: Sequence[Memory] = ()  # all that there are
    rare: frozenset[Topic] = frozenset()
    agent: str = "default"
    project: str | None = None
    runtime: str = ""
    conversation: str = ""


class Decided(NamedTuple):
    """What becomes of an answer."""

    drafts: list[Draft]
    refused: list[Refusal]
    n_skipped: int  # said to be known already


def decided(operations: Iterable[Mapping[str, Any]], shown: Shown) -> Decided:
    """What becomes of the operations of one answer, whose form was checked (prompts.schema)."""
    found = Decided([], [], 0)
    for op in operations:
        if op["op"] == "skip":
            found = found._replace(n_skipped=found.n_skipped + 1)
            continue
        fault = _fault(op, shown)
        if fault is None:
            found.drafts.append(_draft(op, shown, found.drafts))
        else:
            found.refused.append(fault)
    return found


def _fault(op: Mapping[str, Any], shown: Shown) -> Refusal | None:
    """Why an operation cannot be done; None when it can."""
    said = _said(op)
    if op["op"] != "create" and _known(op, shown) is None:
        return Refusal("id", f"{op['op']} of {one_line(op['id'], 20)!r}, which it was not shown")
    if not said and op["op"] != "update":
        return Refusal("text", "no words")
    if len(said.encode()) > MAX_TEXT_BYTES:
        return Refusal("text", f"more than {MAX_TEXT_BYTES} bytes")
    return _path_fault(op) or _turns_fault(op, shown) or _time_fault(op) or _words_fault(op, said, shown)


def _path_fault(op: Mapping[str, Any]) -> Refusal | None:
    if op["op"] != "create":
        return None  # it gets that of the memory it is about
    try:
        paths.checked(op["path"])
    except (UsageError, UnicodeEncodeError) as error:
        return Refusal("path", getattr(error, "detail", "no text"))
    return None


def _turns_fault(op: Mapping[str, Any], shown: Shown) -> Refusal | None:
    first, last = op["turns"]
    if 1 <= first <= last <= len(shown.messages):
        return None
    return Refusal("turns", f"messages {first} to {last} of {len(shown.messages)}")


def _time_fault(op: Mapping[str, Any]) -> Refusal | None:
    try:
        since, until = _at(op["valid_from"]), _at(op["valid_until"])
    except ValueError:
        return Refusal("time", "a date that is none")
    return Refusal("time", "valid until before it is valid") if since and until and until < since else None


def _words_fault(op: Mapping[str, Any], said: str, shown: Shown) -> Refusal | None:
    if instructs(f"{op['path']} {said}", "owner" if _a_person_said(op, shown) else _trust(op, shown)):
        return Refusal("instruction", "tells a model how to behave")
    if op["kind"] == insights.KIND and len(said.split()) > insights.MAX_WORDS:
        return Refusal("insight", f"more than {insights.MAX_WORDS} words")
    return None


def instructs(said: str, trust: Trust) -> bool:
    """Whether a text tells a model how to behave, and nobody who may said so.

    >>> instructs("always run the tests first", "owner"), instructs("always run the tests first", "web")
    (False, True)
    """
    return bool(_OVERRIDE.search(said) or scan.scan(said)) or (trust != "owner" and bool(_COMMAND.search(said)))


# what is made -----------------------------------------------------------------------------------------------------


def _draft(op: Mapping[str, Any], shown: Shown, pending: Sequence[Draft]) -> Draft:
    """The memory that an operation makes. Where it says what is there already, it has the same words and path, and
    so reinforces it.
    """
    known, cited = None if op["op"] == "create" else _known(op, shown), _cited(op, shown)
    times = [message.stated_at for message in cited if message.stated_at is not None]
    draft = Draft(
        text=_said(op), kind=cast(MemoryKind, op["kind"]), path=op["path"], project=_project(op, shown),
        stated_at=max(times, default=None), trust=_trust(op, shown), how="mined",
        sources=tuple(message.span for message in cited), entities=_entities(op),
        runtime=shown.runtime, conversation=shown.conversation, valid_from=_at(op["valid_from"]),
        valid_until=_until(op), confidence=_confidence(op, shown), agent=shown.agent,
    )  # fmt: skip
    if known is not None:
        return _about(known, draft, op["op"])
    return _said_before(draft, shown, pending)


def _about(known: Memory, draft: Draft, op: str) -> Draft:
    """A draft on the path of the memory that it updates or supersedes. An update rests on the old words as well."""
    placed = replace(draft, path=known.path, project=known.project, agent=known.agent)
    if op == "supersede":
        return placed
    if not draft.text or claims.says_same(draft.text, known.text):
        return replace(placed, text=known.text, kind=known.kind)
    trust = lowest([known.trust, draft.trust])
    since, until = draft.valid_from or known.valid_from, draft.valid_until or known.valid_until
    if since and until and until <= since:  # the new bound makes the old one untrue
        since, until = draft.valid_from, draft.valid_until
    return replace(
        placed, kind=known.kind, trust=trust, made_from=(known.memory_id,), pinned=known.pinned, valid_from=since,
        valid_until=until,
    )  # fmt: skip


def _said_before(draft: Draft, shown: Shown, pending: Sequence[Draft]) -> Draft:
    """An insight that is known already, or made a moment ago, as that one; an event under a path of its own, because
    one does not end another.
    """
    if draft.kind == insights.KIND:
        known = insights.same_as(draft.text, shown.insights)
        if known is not None:
            return replace(draft, text=known.text, path=known.path, project=known.project, agent=known.agent)
        twins = (p for p in pending if p.kind == draft.kind and insights.alike(p.text, draft.text) >= insights.SAME)
        if (twin := next(twins, None)) is not None:
            return replace(draft, text=twin.text, path=twin.path, project=twin.project)
    if draft.kind in ("event", insights.KIND):
        return replace(draft, path=_own_path(draft))
    return draft


def _own_path(draft: Draft) -> str:
    """The path with what tells these words from others behind it, where there is room."""
    path = paths.checked(draft.path)
    own = f"{path}/{hashlib.sha256(normalised(draft.text).encode()).hexdigest()[:8]}"
    return own if len(own.encode()) <= paths.MAX_PATH_BYTES else path


def _said(op: Mapping[str, Any]) -> str:
    """The words as they would be kept."""
    return mask(printable(op["text"].encode("utf-8", "replace").decode())).strip()


def _known(op: Mapping[str, Any], shown: Shown) -> Memory | None:
    codes = {f"k{n}": memory for n, memory in enumerate(shown.known, start=1)}
    return codes.get(op["id"])


def _cited(op: Mapping[str, Any], shown: Shown) -> Sequence[Message]:
    first, last = op["turns"]
    return shown.messages[first - 1 : last]


def _trust(op: Mapping[str, Any], shown: Shown) -> Trust:
    """The lowest trust of the messages that an operation names. Where those hold less than half of its words and others
    hold more, also the trust of these: a wrong number must not lend an agent's words the trust of a person.
    """
    cited, wanted = _cited(op, shown), terms(_said(op))
    named = lowest(message.trust for message in cited)
    held = len(wanted & set().union(*(terms(message.text) for message in cited)))
    if 2 * held >= len(wanted):
        return named
    better = [m.trust for m in shown.messages if m not in cited and len(wanted & terms(m.text)) > held]
    return lowest([named, *better])


def _a_person_said(op: Mapping[str, Any], shown: Shown) -> bool:
    """Whether one of the messages that an operation names is a person's and holds at least half of its words."""
    wanted = terms(_said(op))
    return any(m.trust == "owner" and 2 * len(wanted & terms(m.text)) >= len(wanted) for m in _cited(op, shown))


def terms(said: str) -> set[str]:
    """The words of a text that carry meaning; of scripts without spaces, pairs of letters."""
    return set(without_stopwords(_WORD.findall(index_terms(said).casefold())))


def _project(op: Mapping[str, Any], shown: Shown) -> str | None:
    """Where it holds: what is about the person, everywhere."""
    return None if op["path"].casefold().startswith(_HEAD) else shown.project


def _entities(op: Mapping[str, Any]) -> tuple[str, ...]:
    named = (one_line(mask(printable(name)), MAX_ENTITY_CHARS).strip() for name in op["entities"])
    return tuple(dict.fromkeys(filter(None, named)))


def _confidence(op: Mapping[str, Any], shown: Shown) -> float:
    """The model's, 0 to 1; less for a topic that was often shown and never used."""
    sure = min(1.0, max(0.0, float(op["confidence"])))
    return sure * RARE if op["op"] == "create" and topic(op["kind"], op["path"]) in shown.rare else sure


def _until(op: Mapping[str, Any]) -> datetime | None:
    """Until when it holds; what holds from a date until that date holds for the day."""
    since, until = _at(op["valid_from"]), _at(op["valid_until"])
    return until + timedelta(days=1) if until and until == since else until


def _at(said: str) -> datetime | None:
    """A date of the answer; ValueError for what is none."""
    if not said.strip():
        return None
    at = datetime.fromisoformat(said.strip())
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


# feedback ---------------------------------------------------------------------------------------------------------


def topic(kind: str, path: str) -> Topic:
    """What a memory is counted under: its kind and the first part of its path.

    >>> topic("event", "Deploys/2026-03")
    ('event', 'deploys')
    """
    return kind, paths.folded(path).partition("/")[0]


def never_used(memories: Iterable[Memory | Use]) -> list[Topic]:
    """The topics of which mined memories were shown at least MIN_INJECTED times and never used, in order."""
    shown: dict[Topic, tuple[int, int]] = {}
    for memory in memories:
        if memory.how == "mined":
            name = topic(memory.kind, memory.path)
            n_injected, n_used = shown.get(name, (0, 0))
            shown[name] = n_injected + memory.n_injected, n_used + memory.n_used
    return sorted(name for name, (n, used) in shown.items() if n >= MIN_INJECTED and not used)
