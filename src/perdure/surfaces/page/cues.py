"""What is shown of a recall: each cue with where it comes from, why it was chosen, and what became of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, TypeAlias

from perdure.index.injections import Injection, Reason
from perdure.memories import replay, use
from perdure.recall import judge
from perdure.recall.candidates import Fact
from perdure.recall.pack import SAID_BY, SIZES, excerpt, render
from perdure.recall.scope import scope
from perdure.recall.truth import Belief, note
from perdure.recall.why import plainly, why
from perdure.text import tokens
from perdure.types import Cue, Hit, Memory, Plan, Recalled, Role

Subject: TypeAlias = "Hit | Memory"  # what can be told
SHOWN_CHARS = 600  # of a cue's text beside its reasons; the turn itself is one click away
_ID_CHARS = 20  # a word as long as this is taken for an id
_BAR = 100  # width of a whole bar
_LEGS = {
    "keyword": "words", "vector": "meaning", "entity": "rare name", "time": "time", "recent": "recency",
    "speaker": "speaker", "done": "done, not said",
}  # fmt: skip
_STEPS = {
    "queued": "waiting for the model", "compute": "vector of the message",
    "candidates": "candidates, ranked and judged",
    "cues": "choosing and packing",
}  # fmt: skip


class Bar(NamedTuple):
    """One number as a bar."""

    label: str
    value: float
    x: float  # where it begins, and how wide it is, of 100
    width: float


@dataclass(frozen=True, slots=True)
class Card:
    """One cue as it is shown."""

    cue: Cue
    said_by: str
    bars: tuple[Bar, ...]
    why: tuple[str, ...]
    became: str  # what happened to it since, in words
    used: bool | None = None  # whether the answer rests on it; None where nobody looked
    taken_up: tuple[Bar, ...] = ()  # how much the answer takes up of it, as it is judged now
    source: Hit | None = None  # of a memory the first turn behind it
    instead: Memory | None = None  # of a memory that was replaced, what is believed now

    @property
    def machine(self) -> str:
        """On which machine it was said."""
        return self.cue.machine or (self.source.machine if self.source else "")

    @property
    def is_memory(self) -> bool:
        """Whether it is a memory; else it is a turn."""
        return self.cue.memory is not None

    @property
    def href(self) -> str:
        """Where it is read in its place."""
        kind = "memories" if self.is_memory else "turns"
        return f"/{kind}/{self.cue.turn_id}"


@dataclass(frozen=True, slots=True)
class Gone:
    """A cue that is no longer there, or no longer the visitor's to read."""

    name: str
    n_tokens: int
    used: bool | None


def card(cue: Cue, *, reader: str, source: Hit | None = None) -> Card:
    """A cue as it is shown to a reader."""
    return Card(cue, said_by(cue, reader), legs(cue.legs), tuple(map(plainly, cue.why)), became(cue), source=source)


def said_by(cue: Cue, reader: str) -> str:
    """Whose words a cue is, to its reader.

    A turn of the reader's own session was said by them or by their agent; a memory has the lowest trust in its lineage.
    """
    if cue.is_shared or cue.user not in ("", reader):
        return f"shared by {cue.user}"
    if cue.memory is not None:
        return "you said" if cue.memory.trust == "owner" else SAID_BY[cue.memory.trust]
    return {"user": "you", "assistant": "the agent"}.get(cue.role, cue.role)


def became(cue: Cue) -> str:
    """What happened to a memory since: superseded, set aside or no longer valid; "" where it still holds."""
    memory = cue.memory
    if memory is None:
        return ""
    if memory.retired:
        return "It was set aside since: no recall tells it any more."
    if memory.superseded_by:
        return "It is no longer current: a newer one took its place."
    return ""


def instead(memory: Memory, chain: Iterable[Memory]) -> Memory | None:
    """What is believed in place of a memory; None where it still holds, or nothing is."""
    if memory.superseded_by is None:
        return None
    return next((other for other in chain if other.is_current), None)


def legs(found: Mapping[str, float]) -> tuple[Bar, ...]:
    """The legs of a score, strongest first; each is 0 to 1 of the best."""
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Bar(_LEGS.get(name, name), value, 0.0, _BAR * min(1.0, max(0.0, value))) for name, value in ordered)


def steps(timings_ms: Mapping[str, float]) -> tuple[Bar, ...]:
    """The steps of a recall side by side, each as wide as its share of the time.

    >>> [(bar.x, bar.width) for bar in steps({"candidates": 30.0, "cues": 10.0})]
    [(0.0, 75.0), (75.0, 25.0)]
    """
    total = sum(max(0.0, value) for value in timings_ms.values())
    found, at = [], 0.0
    for name, value in timings_ms.items() if total else ():
        width = _BAR * max(0.0, value) / total
        found.append(Bar(_STEPS.get(name, name), value, at, width))
        at += width
    return tuple(found)


# an injection of which only ids and numbers were kept ------------------------------------------------------------


def again(reason: Reason, found: Sequence[Hit] | Memory | None, plan: Plan, reader: str) -> Cue | None:
    """A cue of an injection with its words as they are kept now; None where they are there no more.

    found: the pieces of its turn, or the memory. plan: of the message, by which the piece is chosen and the reasons are
    put into words.
    """
    if isinstance(found, Memory):
        return _memory_again(reason, found, plan, reader)
    return _turn_again(reason, found, plan, reader) if found else None


def _turn_again(reason: Reason, pieces: Sequence[Hit], plan: Plan, reader: str) -> Cue:
    asked = _stems(plan)
    hit = max(pieces, key=lambda piece: len(asked & judge.stems(piece.text)))
    fact = Fact(hit.role, hit.stated_at, hit.kind == "text")
    return Cue(
        hit.turn_id, hit.run_id, hit.conversation, hit.role, hit.stated_at, hit.machine, hit.runtime, hit.text,
        reason.score, reason.legs, why(reason.cue, _alone(reason), fact, plan), n_tokens=reason.n_tokens,
        user=hit.user, is_shared=hit.user != reader, chunk=hit.chunk,
    )  # fmt: skip


def _memory_again(reason: Reason, memory: Memory, plan: Plan, reader: str) -> Cue:
    role: Role = "user" if memory.trust == "owner" else "assistant"
    reasons = why(reason.cue, _alone(reason), Fact(role, memory.stated_at), plan, is_memory=True)
    return Cue(
        memory.memory_id, "", memory.conversation, role, memory.stated_at, "", memory.runtime, memory.text,
        reason.score, reason.legs, reasons, n_tokens=reason.n_tokens, memory=memory, user=memory.shared_by or reader,
        is_shared=bool(memory.shared_by),
    )  # fmt: skip


def _alone(reason: Reason) -> dict[str, dict[str, float]]:
    return {leg: {reason.cue: value} for leg, value in reason.legs.items()}


def _stems(plan: Plan) -> frozenset[str]:
    return frozenset[str]().union(*map(judge.stems, judge.asked_words(plan.asked)))


def noted_then(memory: Memory, chain: Iterable[Memory], at: datetime) -> str:
    """What was told beside a memory: what it had replaced, or since when it was no longer so, as of that moment.

    What was told was not set aside then; of the others it is not known when they were.
    """
    then = replay.settled(
        replace(one, retired=one.retired and one.memory_id != memory.memory_id)
        for one in chain
        if max(one.stated_at, one.recorded_at) <= at
    )
    known = next((one for one in then if one.memory_id == memory.memory_id), None)
    if known is None:
        return ""
    return note(Belief(known, tuple(then), next((one for one in then if one.is_current), None)), at)


def given(cue: Cue, plan: Plan) -> Cue:
    """A cue with as much of its text as was given: the size at which it costs as many tokens as were counted."""
    asked = _stems(plan)
    fitted = [replace(cue, text=excerpt(cue.text, asked, size)) for size in SIZES]
    return next((one for one in fitted if tokens(render(one)) + 1 == cue.n_tokens), fitted[0])


def shown(text: str, plan: Plan) -> str:
    """The piece of a text that holds most of what was asked."""
    return excerpt(text, _stems(plan), SHOWN_CHARS)


def taken_up(prompt: str, pieces: Iterable[str], answer: str) -> tuple[Bar, ...]:
    """How much an answer takes up of a cue: of its pieces the most, 0 to 1."""
    score = max((use.score(prompt, piece, answer) for piece in pieces), default=0.0)
    return (Bar("in the answer", score, 0.0, _BAR * score),)


def outcome(one: Injection) -> str:
    """What became of an injection, in a few words."""
    if not one.reasons:
        return "a reminder, no cue"
    if one.used is None:
        return "use not known yet"
    return f"{len(one.used)} of {len(one.reasons)} used" if one.used else "none used"


# why not -------------------------------------------------------------------------------------------------------------


class Lacked(NamedTuple):
    """What was asked about, and why it was not told."""

    name: str  # of a turn or a memory; "" for words that are nowhere
    text: str
    why: str


class Told(NamedTuple):
    """What is known beside a recall of why something may not be in it."""

    earlier: str = ""  # when the session was told it before, in words
    project: str | None = None  # where was asked; None for everywhere


def nowhere(words: str) -> Lacked:
    """What is said of words, or of an id, that lead to nothing."""
    is_id = " " not in words and (words.startswith("mem-") or len(words) >= _ID_CHARS)
    what = "by that id" if is_id else "with these words"
    return Lacked("", words, f"There is nothing {what} that you may see: it was never captured, or it was forgotten.")


def lacked(subject: Subject, recalled: Recalled, told: Told) -> str:
    """Why a turn or a memory was not told, or that it was.

    recalled: with what was passed over.
    """
    name = subject.memory_id if isinstance(subject, Memory) else subject.turn_id
    if told.earlier:
        return f"The session held it already: it was told {told.earlier}, and nothing is said twice."
    for place, cue in enumerate(recalled.cues, start=1):
        if cue.turn_id == name:
            return f"It is told now, as cue {place}: {'; '.join(map(plainly, cue.why)) or 'it matches best'}."
    if name in recalled.held_back:
        rule = recalled.held_back[name].rule
        return f"It is held back: it reads like an order to a model ({rule}). The floor's alerts list it, to allow it."
    return _of_itself(subject) or _elsewhere(subject.project, told.project, recalled.plan) or _ranked(name, recalled)


def _of_itself(subject: Subject) -> str:
    """Why it is never told, whatever is asked; "" where it may be."""
    if isinstance(subject, Memory):
        if subject.retired:
            return "It is set aside: kept, and never told. Bring it back to have it told again."
        return ""
    if subject.kind in ("result", "thinking") or subject.role in ("tool", "system"):
        return "It is what a tool answered, or a thought: search finds it, recall does not tell it."
    if subject.author == "machine" and subject.role == "user":
        return "No person typed it: search finds it, recall does not tell it."
    return ""


def _elsewhere(project: str | None, here: str | None, plan: Plan) -> str:
    """That it lies where recall did not look; "" where it did."""
    if here is None or not project:
        return ""
    if project in scope(plan.message, here=here, projects=[project], everywhere=False).projects:
        return ""
    return f"It belongs to another project ({project}), which the message does not name; recall looked in {here}."


def _ranked(name: str, recalled: Recalled) -> str:
    """What its place among the candidates says."""
    if recalled.silent:
        return f"Recall was silent: {recalled.silent}."
    reason = recalled.passed_over.get(name)
    if reason is None:
        return "It was no candidate: it holds too few of the words, and nothing near it is close in meaning."
    return f"It was {reason}."


def passed_over(recalled: Recalled, known: Mapping[str, Subject], *, limit: int) -> list[Lacked]:
    """The best candidates that were not told and can be shown, with the reason of each."""
    names = [name for name in recalled.passed_over if name in known]
    return [Lacked(name, known[name].text, f"It was {recalled.passed_over[name]}.") for name in names[:limit]]
