"""Turn the cues of a recall into cards: their source, why each was chosen, and what became of it. Pure.

The module also explains why a turn or a memory was left out of a recall.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from perdure.index import memory_replay
from perdure.index.injections import CueReason, Injection
from perdure.memories import cue_use
from perdure.recall import judge
from perdure.recall.candidates import TurnFact
from perdure.recall.pack import (
    SPEAKER_LABELS,
    TEXT_SIZES,
    cut_excerpt,
    explain_absence,
    explain_cue,
    find_matching_words,
    render_cue,
)
from perdure.recall.plan import choose_filters
from perdure.recall.truth import Belief, describe_belief
from perdure.text import PICTURE_LABEL, format_age, tokens
from perdure.types import Cue, Hit, Memory, Plan, Recalled, Role

CueSubject: TypeAlias = "Hit | Memory"  # anything that recall can return
EXCERPT_CHARS = 600  # of a cue's text on its card; the turn itself is one click away
_ID_CHARS = 20  # a word as long as this is taken for an id
_BAR_WIDTH = 100  # width of a whole bar
_LEG_NAMES = {
    "keyword": "words", "vector": "meaning", "entity": "rare name", "time": "time", "recent": "recency",
    "speaker": "speaker", "done": "done, not said",
}  # fmt: skip
_STEP_NAMES = {
    "queued": "waiting for the model", "compute": "vector of the message",
    "candidates": "candidates, ranked and judged",
    "cues": "choosing and packing",
}  # fmt: skip


class MeterBar(NamedTuple):
    """One number as a bar."""

    label: str
    value: float
    x: float  # start and width, of 100
    width: float


@dataclass(frozen=True, slots=True)
class CueCard:
    """One cue as it is shown."""

    cue: Cue
    said_by: str
    bars: tuple[MeterBar, ...]
    why: tuple[str, ...]
    became: str  # what happened to it since then, in words
    used: bool | None = None  # True if the answer uses it; None if that was not checked
    taken_up: tuple[MeterBar, ...] = ()  # how much of it the answer uses, measured now
    source: Hit | None = None  # the first turn behind a memory
    instead: Memory | None = None  # believed now in place of a replaced memory
    project: str | None = None  # where it was said

    @property
    def machine(self) -> str:
        """The machine on which it was said."""
        return self.cue.machine or (self.source.machine if self.source else "")

    @property
    def is_memory(self) -> bool:
        """True for a memory, False for a turn."""
        return self.cue.memory is not None

    @property
    def href(self) -> str:
        """The address of the memory or the turn."""
        kind = "memories" if self.is_memory else "turns"
        return f"/{kind}/{self.cue.turn_id}"


@dataclass(frozen=True, slots=True)
class MissingCue:
    """A cue that no longer exists, or that the visitor may no longer read."""

    name: str
    n_tokens: int
    used: bool | None


def make_card(cue: Cue, *, reader: str, source: Hit | None = None) -> CueCard:
    """Return a cue as it is shown to a reader."""
    return CueCard(
        cue,
        describe_speaker(cue, reader),
        make_leg_bars(cue.legs),
        cue.why,
        describe_change(cue),
        source=source,
    )


def describe_speaker(cue: Cue, reader: str) -> str:
    """Say whose words a cue is, from its reader's point of view.

    A turn of the reader's own session was said by them or by their agent; a memory has the lowest trust in
    its lineage.
    """
    if cue.is_shared or cue.user not in ("", reader):
        return f"shared by {cue.user}"
    if cue.memory is not None:
        return "you said" if cue.memory.trust == "owner" else SPEAKER_LABELS[cue.memory.trust]
    speaker = {"user": "you", "assistant": "the agent"}.get(cue.role, cue.role)
    return f"{speaker}, {PICTURE_LABEL}" if cue.is_in_picture else speaker


def describe_change(cue: Cue) -> str:
    """Say what happened to a memory since: superseded or set aside; "" if it still holds."""
    memory = cue.memory
    if memory is None:
        return ""
    if memory.retired:
        return "It was retired later: it is no longer recalled."
    if memory.superseded_by:
        return "It is no longer current: a newer memory replaced it."
    return ""


def find_successor(memory: Memory, chain: Iterable[Memory]) -> Memory | None:
    """Return the memory that is believed in place of this one; None if it still holds or nothing replaced it."""
    if memory.superseded_by is None:
        return None
    return next((statement for statement in chain if statement.is_current), None)


def make_leg_bars(leg_scores: Mapping[str, float]) -> tuple[MeterBar, ...]:
    """Return the legs of a score as bars, strongest first; each is 0 to 1 of the best."""
    ordered = sorted(leg_scores.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        MeterBar(_LEG_NAMES.get(name, name), value, 0.0, _BAR_WIDTH * min(1.0, max(0.0, value)))
        for name, value in ordered
    )


def make_step_bars(timings_ms: Mapping[str, float]) -> tuple[MeterBar, ...]:
    """Return the steps of a recall side by side, each as wide as its share of the time.

    >>> [(bar.x, bar.width) for bar in make_step_bars({"candidates": 30.0, "cues": 10.0})]
    [(0.0, 75.0), (75.0, 25.0)]
    """
    total = sum(max(0.0, value) for value in timings_ms.values())
    bars, offset = [], 0.0
    for name, value in timings_ms.items() if total else ():
        width = _BAR_WIDTH * max(0.0, value) / total
        bars.append(MeterBar(_STEP_NAMES.get(name, name), value, offset, width))
        offset += width
    return tuple(bars)


# an injection, stored as ids and numbers only -------------------------------------------------------------------


def restore_cue(reason: CueReason, source: Sequence[Hit] | Memory | None, plan: Plan, reader: str) -> Cue | None:
    """Rebuild a cue of an injection from the words stored now; None if they no longer exist.

    source: the pieces of its turn, or the memory. plan: the plan of the message, which picks the piece and
    words the reasons.
    """
    if isinstance(source, Memory):
        return _restore_memory(reason, source, plan, reader)
    return _restore_turn(reason, source, plan, reader) if source else None


def _restore_turn(reason: CueReason, pieces: Sequence[Hit], plan: Plan, reader: str) -> Cue:
    stems = _list_stems(plan)
    hit = max(pieces, key=lambda piece: len(judge.find_held_stems(stems, piece.text)))
    fact = TurnFact(hit.role, hit.stated_at, hit.kind == "text")
    return Cue(
        hit.turn_id,
        hit.run_id,
        hit.conversation,
        hit.role,
        hit.stated_at,
        hit.machine,
        hit.runtime,
        hit.text,
        reason.score,
        reason.legs,
        explain_cue(reason.cue, _to_leg_scores(reason), fact, plan, words=find_matching_words(hit.text, plan)),
        n_tokens=reason.n_tokens,
        user=hit.user,
        is_shared=hit.user != reader,
        chunk=hit.chunk,
        project=hit.project,
        age=format_age(hit.stated_at, plan.asked_at),
        is_in_picture=hit.kind == "picture",
    )


def _restore_memory(reason: CueReason, memory: Memory, plan: Plan, reader: str) -> Cue:
    role: Role = "user" if memory.trust == "owner" else "assistant"
    words, fact = find_matching_words(memory.text, plan), TurnFact(role, memory.stated_at)
    reasons = explain_cue(reason.cue, _to_leg_scores(reason), fact, plan, words=words, is_memory=True)
    return Cue(
        memory.memory_id,
        "",
        memory.conversation,
        role,
        memory.stated_at,
        "",
        memory.runtime,
        memory.text,
        reason.score,
        reason.legs,
        reasons,
        n_tokens=reason.n_tokens,
        memory=memory,
        user=memory.shared_by or reader,
        is_shared=bool(memory.shared_by),
        project=memory.project,
        age=format_age(memory.stated_at, plan.asked_at),
    )


def _to_leg_scores(reason: CueReason) -> dict[str, dict[str, float]]:
    return {leg: {reason.cue: value} for leg, value in reason.legs.items()}


def _list_stems(plan: Plan) -> frozenset[str]:
    return frozenset[str]().union(*map(judge.extract_stems, judge.extract_query_words(plan.question)))


def restore_note(memory: Memory, chain: Iterable[Memory], injected_at: datetime) -> str:
    """Rebuild the note beside a memory: what it had replaced, or since when it no longer held, as of that moment.

    A memory that was injected was not set aside then; for the others that moment is not known.
    """
    statements = memory_replay.settle_chain(
        replace(statement, retired=statement.retired and statement.memory_id != memory.memory_id)
        for statement in chain
        if max(statement.stated_at, statement.recorded_at) <= injected_at
    )
    injected_statement = next((statement for statement in statements if statement.memory_id == memory.memory_id), None)
    if injected_statement is None:
        return ""
    return describe_belief(
        Belief(
            injected_statement,
            tuple(statements),
            next((statement for statement in statements if statement.is_current), None),
        ),
        injected_at,
    )


def cut_as_injected(cue: Cue, plan: Plan) -> Cue:
    """Cut the text of a cue as it was injected: at the size that costs as many tokens as were counted."""
    stems = _list_stems(plan)
    excerpts = [cut_excerpt(cue.text, stems, size) for size in TEXT_SIZES]
    candidates = [replace(cue, text=words, is_from_web=is_web) for is_web in (False, True) for words in excerpts]
    return next(
        (candidate for candidate in candidates if tokens(render_cue(candidate)) + 1 == cue.n_tokens), candidates[0]
    )


def pick_excerpt(text: str, plan: Plan) -> str:
    """Return the part of a text that holds most of the message's words."""
    return cut_excerpt(text, _list_stems(plan), EXCERPT_CHARS)


def measure_use(prompt: str, pieces: Iterable[str], answer: str) -> tuple[MeterBar, ...]:
    """Measure how much of a cue an answer uses: the highest score among its pieces, 0 to 1."""
    score = max((cue_use.score_use(prompt, piece, answer) for piece in pieces), default=0.0)
    return (MeterBar("in the answer", score, 0.0, _BAR_WIDTH * score),)


def describe_outcome(injection: Injection) -> str:
    """Say what became of an injection, in a few words."""
    if not injection.reasons:
        return "a reminder, not a cue"
    if injection.used is None:
        return "use not known yet"
    return f"{len(injection.used)} of {len(injection.reasons)} used" if injection.used else "none used"


# why not -------------------------------------------------------------------------------------------------------------


class Omission(NamedTuple):
    """A turn or a memory that was left out of a recall, and the reason."""

    name: str  # of a turn or a memory; "" for words that match nothing
    text: str
    why: str


class OmissionContext(NamedTuple):
    """Facts about a recall that may explain why something was left out."""

    injected_before: str = ""  # when the session received it before, in words
    project: str | None = None  # in which recall looked; None: everywhere


def explain_unknown(words: str) -> Omission:
    """Return the omission for words, or an id, that match nothing."""
    is_id = " " not in words and (words.startswith("mem-") or len(words) >= _ID_CHARS)
    phrase = "with this id" if is_id else "with these words"
    return Omission("", words, f"Nothing {phrase} is visible to you: it was never captured, or it was forgotten.")


def explain_omission(subject: CueSubject, recalled: Recalled, context: OmissionContext) -> str:
    """Say why a turn or a memory was left out of a recall, or that it is in it.

    recalled: must include the candidates that were passed over.
    """
    name = subject.memory_id if isinstance(subject, Memory) else subject.turn_id
    if context.injected_before:
        return f"The session already has it: it was recalled {context.injected_before}, and recall does not repeat."
    if any(cue.turn_id == name for cue in recalled.cues):
        return explain_absence(recalled, name)
    if name in recalled.held_back:
        rule = recalled.held_back[name].rule
        return (
            f"It is held back: it reads like an instruction to a model ({rule}). You "
            "can allow it under Settings, Floor, Held back."
        )
    return (
        _explain_by_kind(subject)
        or _explain_by_project(subject.project, context.project, recalled.plan)
        or explain_absence(recalled, name)
    )


def _explain_by_kind(subject: CueSubject) -> str:
    """Say why it is never recalled, whatever the message; "" if it may be."""
    if isinstance(subject, Memory):
        if subject.retired:
            return "It is retired: kept, but never recalled. Restore it to recall it again."
        return ""
    if subject.kind in ("result", "thinking") or subject.role in ("tool", "system"):
        return "It is a tool result or thinking: search finds it, recall does not use it."
    if subject.author == "machine" and subject.role == "user":
        return "No person typed it: search finds it, recall does not use it."
    return ""


def _explain_by_project(project: str | None, recall_project: str | None, plan: Plan) -> str:
    """Say that it belongs to a project in which recall did not look; "" if recall did."""
    if recall_project is None or not project:
        return ""
    looked_in = choose_filters(
        plan.message, project=recall_project, projects=[project], all_projects=False, shared_projects=[project]
    ).projects
    if project in looked_in:
        return ""
    names = f"({project}), which the message does not name; recall searched {recall_project}"
    return f"It belongs to another project {names}."


def list_passed_over(recalled: Recalled, subjects: Mapping[str, CueSubject], *, limit: int) -> list[Omission]:
    """List the best candidates that were left out and can be shown, each with its reason."""
    names = [name for name in recalled.passed_over if name in subjects]
    return [Omission(name, subjects[name].text, f"It matched, {recalled.passed_over[name]}.") for name in names[:limit]]
