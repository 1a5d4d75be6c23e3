"""What could be tidied up among an owner's memories: proposals, decided by rules. Pure.

A proposal changes nothing by itself, loses nothing when it is applied (what it retires stays and can be restored),
and names each memory at most once, so that all can be applied together. Something pinned is retired only for what is
made of it, which is pinned then; nothing is retired for its age alone, and what the owner said is never mixed with what
a tool or the web said. Without words: what a proposal
says of its reasons are numbers, because reasons outlive what is forgotten.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import combinations
from typing import Literal

from perdure import text as wording
from perdure.identity import memory_id
from perdure.memories import claims, decay, events, use
from perdure.memories.events import Op
from perdure.memories.paths import folded
from perdure.memories.replay import Chain, chain_of
from perdure.memories.values import Claim
from perdure.patterns import late
from perdure.types import TRUSTS, Memory

Kind = Literal["chain", "lift", "merge", "split", "retire"]
Chains = dict[Chain, list[Memory]]
KINDS: tuple[Kind, ...] = ("chain", "lift", "merge", "split", "retire")  # in this order each takes its memories

EPISODES = 3  # so many of one pattern, on as many days, are one general memory (decisions/017)
ALIKE = 0.65  # share of the words of two episodes that both have
SAME = 0.75  # share of the longer one's words, in their order, that the shorter one of two near-duplicates has
NEVER_USED = 8  # shown so often without any use, a memory is not worth its place
SELDOM_USED = 3  # shown so often without any use, when it is cold besides
COLD = 0.1  # heat below which a memory is cold (row D09)
QUIET = timedelta(days=30)  # neither said nor used for so long
FAINT = 0.05  # decay below which a memory comes first among those to retire (row D05); it decides nothing else
_RARE = 50  # memories that may share a word by which candidates are found
_MAX_TEXT = 600  # characters of what a model words

_SKIPPED = frozenset(
    "a an the is are was were be been that this it i we you he she they my our your me us user der die das den dem "
    "ein eine einen ist sind war ich wir mein meine unser unsere le la les un une est sont je nous mon ma notre el "
    "los una es yo mi".split()
)
_TIMES = frozenset(
    "today yesterday again morning evening night monday tuesday wednesday thursday friday saturday sunday january "
    "february march april june july august september october november december heute gestern wieder morgens abends "
    "montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar märz mai juni juli oktober dezember "
    "hier encore lundi mardi mercredi jeudi vendredi samedi dimanche janvier février mars avril juin juillet août "
    "septembre octobre novembre décembre hoy ayer".split()
)
_TIME_STEMS = frozenset(word[: use.STEM_CHARS] for word in _TIMES)
_DATE = late(
    r"\d{4}-\d\d-\d\d|\d{1,2}\.\d{1,2}\.(?:\d{2,4})?|\d{1,2}/\d{1,2}(?:/\d{2,4})?|\d{1,2}:\d\d(?::\d\d)?|"
    r"(?i:\b(?:on the |am |le )?\d{1,2}(?:st|nd|rd|th|\.)?"
    r"(?= (?:jan|feb|mar|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)))"
)
_WHEN = late(r"(?i) ?(?:\b(?:on|at|am|um|le|à) )?(?:\d{4}-\d\d-\d\d|\b\d{1,2}:\d\d\b)")
_NOT = late(
    r"(?i:\b(?:no|not|never|cannot|without|kein\w*|nicht|nie|niemals|ohne|pas|jamais|sans|nunca|sin)\b|n['’]t\b)|[不没無无]"
)
_PARTS = late(r"(?<=[.!?;])\s+|;\s*|(?<=[。！？；])|,? (?:and|und|et|y) |, (?=[^,]*$)")


@dataclass(frozen=True)
class Proposal:
    """One thing that could be tidied up."""

    proposal_id: str  # kind and a hash of the memories: the same as long as they are
    kind: Kind
    why: str  # in numbers
    memories: tuple[Memory, ...]  # that it is about, oldest first
    makes: tuple[Memory, ...] = ()  # new ones, in the place of those that it retires
    retires: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()  # (memory id, its new path)

    def ops(self) -> list[Op]:
        """What is to be written to apply it."""
        return [
            *map(events.create, self.makes),
            *(events.change(name, retired=True) for name in self.retires),
            *(events.change(name, path=path) for name, path in self.moves),
        ]


@dataclass(frozen=True)
class _Face:
    """A memory as others are compared with it."""

    memory: Memory
    row: tuple[str, ...]  # its words in their order
    words: frozenset[str]  # those that carry meaning, without times
    marks: frozenset[str]  # numbers, identifiers and names, without times
    negated: bool
    claim: Claim | None
    subject: str  # what the claim is about, folded; "" without one


def proposals(memories: Iterable[Memory], *, now: datetime) -> list[Proposal]:
    """Everything that could be tidied up among these memories (all of an owner's), each of them in one proposal."""
    every = sorted(memories, key=lambda memory: (memory.stated_at, memory.order, memory.memory_id))
    faces = [_face(memory) for memory in every if memory.is_current and not _is_over(memory, now)]
    chains, maker = _by_chain(every), _Maker({memory.memory_id for memory in every})
    steps: dict[Kind, Callable[[list[_Face]], Iterator[Proposal]]] = {
        "chain": lambda left: _chains(left, chains),
        "lift": lambda left: _lifts(left, chains, maker),
        "merge": lambda left: _merges(left, chains, maker),
        "split": lambda left: _splits(left, chains, maker),
        "retire": lambda left: _retirements(left, chains, now),
    }
    found: list[Proposal] = []
    for kind in KINDS:
        taken = {memory.memory_id for proposal in found for memory in proposal.memories}
        found += steps[kind]([face for face in faces if face.memory.memory_id not in taken])
    return found


def is_faithful(said: str, originals: Sequence[str]) -> bool:
    """Whether a model's wording adds no number, identifier or name to what it was given, and denies as they do."""
    known = {word.stem for one in originals for word in use.words(one)}
    added = {word.stem for word in use.words(said) if word.weight >= use.NAME} - known
    denies = {bool(_NOT.search(one)) for one in originals}
    return bool(said.strip()) and len(said) <= _MAX_TEXT and not added and denies == {bool(_NOT.search(said))}


# what memories look like -----------------------------------------------------------------------------------------


def _face(memory: Memory) -> _Face:
    timeless = [word for word in use.words(_DATE.sub(" ", memory.text)) if word.stem not in _TIME_STEMS]
    row = tuple(word.stem for word in use.words(memory.text) if word.stem not in _SKIPPED)
    claim = claims.claim(memory.text)
    return _Face(
        memory, row, frozenset(word.stem for word in timeless if word.weight),
        frozenset(word.stem for word in timeless if word.weight >= use.NAME),
        bool(_NOT.search(memory.text)), claim, folded(claim.path) if claim is not None else "",
    )  # fmt: skip


def _is_over(memory: Memory, now: datetime) -> bool:
    return memory.valid_until is not None and memory.valid_until <= now


def _by_chain(every: Sequence[Memory]) -> Chains:
    """All that is not retired, by what it is about, oldest first."""
    found: Chains = defaultdict(list)
    for memory in every:
        if not memory.retired:
            found[chain_of(memory)].append(memory)
    return found


def _history(members: Sequence[Memory], chains: Chains) -> list[Memory]:
    """What stands in the chains of these memories beside them: it would be current again without them."""
    ids = set(_ids(members))
    return [m for chain in dict.fromkeys(map(chain_of, members)) for m in chains[chain] if m.memory_id not in ids]


def _scopes(faces: Iterable[_Face]) -> list[list[_Face]]:
    """Memories that may be one: of one agent, project and validity."""
    found: dict[tuple[object, ...], list[_Face]] = defaultdict(list)
    for face in faces:
        m = face.memory
        found[m.agent, m.project or "", m.valid_from, m.valid_until].append(face)
    return list(found.values())


# groups ----------------------------------------------------------------------------------------------------------


def _groups(faces: Sequence[_Face], is_one: Callable[[_Face, _Face], bool]) -> list[list[_Face]]:
    """Groups of two and more around the oldest of each; only what shares a rare word or a claim is compared."""
    grouped: set[int] = set()
    found = []
    for n, near in enumerate(_near([_keys(face) for face in faces])):
        group = [] if n in grouped else [m for m in near if m not in grouped and is_one(faces[n], faces[m])]
        if group:
            grouped.update(group)
            found.append([faces[n], *(faces[m] for m in group)])
    return found


def _near(keys: Sequence[Collection[str]]) -> Iterator[list[int]]:
    """For each of some things the later ones that share a key with it which only a few have."""
    holders: dict[str, list[int]] = defaultdict(list)
    for n, own in enumerate(keys):
        for key in own:
            holders[key].append(n)
    for n, own in enumerate(keys):
        yield sorted({m for key in own if len(holders[key]) <= _RARE for m in holders[key] if m > n})


def _keys(face: _Face) -> set[str]:
    return {*face.words, *([f"claim {face.subject}"] if face.subject else [])}


def _claim_keys(face: _Face) -> set[str]:
    """What two claims that contradict each other share: the attribute, and a word of what it is of or was."""
    if face.claim is None:
        return set()
    about = " ".join((face.claim.entity, face.claim.value, face.claim.old_value))
    return {f"{folded(face.claim.attribute)} {word.stem}" for word in use.words(about)}


def _says_same(a: _Face, b: _Face) -> bool:
    """Whether two are near-duplicates: one restates the other, or has its words in their order and few more."""
    if not (a.subject and a.subject == b.subject) and len(a.words & b.words) < SAME * min(len(a.words), len(b.words)):
        return False
    if claims.says_same(a.memory.text, b.memory.text):
        return True
    if _differ(a, b) or (a.claim and b.claim and a.claim != b.claim):
        return False
    short, long = sorted((a.row, b.row), key=len)
    rest = iter(long)
    return len(short) >= 2 and len(short) >= SAME * len(long) and all(word in rest for word in short)


def _is_episode(a: _Face, b: _Face) -> bool:
    """Whether two tell of the same thing at other times."""
    if a.memory.trust != b.memory.trust or _differ(a, b):
        return False
    both = a.words & b.words
    return len(both) >= 2 and len(both) >= ALIKE * len(a.words | b.words)


def _differ(a: _Face, b: _Face) -> bool:
    """Whether they cannot mean the same: one denies, or names or counts something else."""
    return a.negated != b.negated or a.marks != b.marks


# the kinds of proposals ------------------------------------------------------------------------------------------


def _chains(faces: Sequence[_Face], chains: Chains) -> Iterator[Proposal]:
    """Two current memories that contradict each other on two paths: the newer one's chain joins the older one's."""
    for scope in _scopes(faces):
        taken: set[int] = set()
        for n, near in enumerate(_near([_claim_keys(face) for face in scope])):
            m = next((m for m in near if m not in taken and _contradicts(scope[m], scope[n])), None)
            if m is None or n in taken:
                continue
            taken |= {n, m}
            old, new = scope[n], scope[m]
            why = f"two current memories about one thing, {_days(old.memory, new.memory)} days apart"
            moves = [(memory.memory_id, old.memory.path) for memory in chains[chain_of(new.memory)]]
            yield _proposal("chain", why, [old, new], moves=moves)


def _contradicts(new: _Face, old: _Face) -> bool:
    if new.claim is None or old.claim is None or chain_of(new.memory) == chain_of(old.memory):
        return False
    is_other = (new.claim.value, new.claim.negated) != (old.claim.value, old.claim.negated)
    return is_other and claims.same_subject(new.claim, old.claim)


def _lifts(faces: Sequence[_Face], chains: Chains, maker: _Maker) -> Iterator[Proposal]:
    """Episodes of one thing, on several days: one general memory that points at all of them."""
    for scope in _scopes(faces):
        for group in _groups(scope, _is_episode):
            days = {face.memory.stated_at.date() for face in group}
            if len(group) < EPISODES or len(days) < EPISODES:
                continue
            draft = _proposal("lift", f"{len(group)} memories of one thing, on {len(days)} days", group)
            memories = [face.memory for face in group]
            best = min(memories, key=lambda m: (_n_times(m.text), *_rank(m)))
            made = replace(_united(best, memories), text=_general(best.text, memories), kind=_general_kind(memories))
            yield _in_place(draft, made, memories, chains, maker)


def _merges(faces: Sequence[_Face], chains: Chains, maker: _Maker) -> Iterator[Proposal]:
    """Near-duplicates: the most trusted and best worded is made anew with the sources of all that it can trust."""
    for scope in _scopes(faces):
        for group in _groups(scope, _says_same):
            memories = [face.memory for face in group]
            best = min(memories, key=_rank)
            weaker = [m for m in memories if m.trust != best.trust]
            equal = [m for m in memories if m.trust == best.trust]
            if any(m.pinned for m in weaker) or _history(weaker, chains):
                continue
            draft = replace(_proposal("merge", f"{len(group)} memories say the same", group), retires=_ids(weaker))
            yield draft if len(equal) == 1 else _in_place(draft, _united(best, equal), equal, chains, maker)


def _in_place(draft: Proposal, made: Memory, members: Sequence[Memory], chains: Chains, maker: _Maker) -> Proposal:
    """A proposal with one memory in the place of several, whose histories become its own.

    It was said when the first of them was; with a history, when the last of them was, or that would be current again.
    """
    before = _history(members, chains)
    said_at = (max if before else min)(m.stated_at for m in members)
    moved = tuple((m.memory_id, made.path) for m in before if folded(m.path) != folded(made.path))
    makes = (maker.named(replace(made, stated_at=said_at), draft),)
    return replace(draft, makes=makes, retires=(*draft.retires, *_ids(members)), moves=moved)


def _splits(faces: Sequence[_Face], chains: Chains, maker: _Maker) -> Iterator[Proposal]:
    """One memory that says two things: each becomes a memory of its own, with the same sources."""
    for face in faces:
        parts = _claiming_parts(face.memory.text)
        if not parts or any(claims.same_subject(a[1], b[1]) for a, b in combinations(parts, 2)):
            continue
        memory = face.memory
        if _history([memory], chains):
            continue
        draft = _proposal("split", f"{len(parts)} facts in one memory", [face])
        made = [
            replace(_united(memory, [memory]), text=part, path=claim.path, entities=wording.entities(part))
            for part, claim in parts
        ]
        yield replace(draft, makes=tuple(maker.named(one, draft) for one in made), retires=_ids([memory]))


def _claiming_parts(said: str) -> list[tuple[str, Claim]]:
    """The parts of a text with what each claims; none when there is one alone, or one of them claims nothing."""
    parts = [part.strip(" ,;") for part in _PARTS.split(said) if part.strip(" ,;.")]
    if len(parts) < 2:  # what a text as a whole claims is the dear part of this
        return []
    found = [(part, claim) for part in parts if (claim := claims.claim(part)) is not None]
    return found if len(found) == len(parts) else []


def _retirements(faces: Sequence[_Face], chains: Chains, now: datetime) -> Iterator[Proposal]:
    """What was shown again and again and never used, the faintest first."""
    due = [face for face in faces if all(_is_useless(m, now) for m in (face.memory, *_history([face.memory], chains)))]
    due.sort(key=lambda f: (decay.decay(f.memory, now) > FAINT, -f.memory.n_injected, f.memory.memory_id))
    for face in due:
        memory = face.memory
        why = f"shown {memory.n_injected} times, never used; heat {decay.heat(memory, now):.2f}"
        whole = [memory, *_history([memory], chains)]
        yield replace(_proposal("retire", why, [face]), retires=_ids(whole))


def _is_useless(memory: Memory, now: datetime) -> bool:
    """Whether it had its chances and took none. Age alone says nothing: what was never shown had no chance."""
    if memory.pinned or memory.n_used:
        return False
    is_cold = decay.heat(memory, now) < COLD and now - (memory.renewed_at or memory.stated_at) >= QUIET
    return memory.n_injected >= NEVER_USED or (is_cold and memory.n_injected >= SELDOM_USED)


# what is made ----------------------------------------------------------------------------------------------------


class _Maker:
    """Gives new memories ids that follow from their proposal, so that two homes that apply it make the same one."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = set(known)

    def named(self, memory: Memory, proposal: Proposal) -> Memory:
        """The memory under an id that no other has."""
        last_at = max(m.stated_at for m in proposal.memories)
        for n in range(len(self._known) + 1):
            seed = f"{proposal.proposal_id} {n}"
            name = memory_id(last_at, hashlib.sha256(seed.encode()).digest())
            if name not in self._known:
                self._known.add(name)
                break
        return replace(memory, memory_id=name)


def _united(best: Memory, members: Sequence[Memory]) -> Memory:
    """The best of some memories with the sources, names and pins of all."""
    return Memory(
        memory_id="", text=best.text, kind=best.kind, path=best.path, agent=best.agent, project=best.project,
        stated_at=best.stated_at, recorded_at=best.recorded_at, trust=max((m.trust for m in members), key=TRUSTS.index),
        how="consolidated", sources=tuple(dict.fromkeys(span for m in members for span in m.sources)),
        made_from=_ids(members), entities=tuple(dict.fromkeys(name for m in members for name in m.entities)),
        runtime=best.runtime, conversation=best.conversation, valid_from=best.valid_from, valid_until=best.valid_until,
        pinned=any(m.pinned for m in members), confidence=max(m.confidence for m in members),
    )  # fmt: skip


def _rank(memory: Memory) -> tuple[object, ...]:
    """Sorts the best first: trusted, pinned, used, then the fuller words, then what was said first."""
    return (
        TRUSTS.index(memory.trust), not memory.pinned, -memory.n_used, -len(memory.text), memory.stated_at,
        memory.memory_id,
    )  # fmt: skip


def _general(said: str, memories: Sequence[Memory]) -> str:
    """The words of a general memory: those of its best episode; of events without its day, but how often and when."""
    if any(memory.kind != "event" for memory in memories):
        return said
    first, last = min(m.stated_at for m in memories), max(m.stated_at for m in memories)
    plain = " ".join(_WHEN.sub("", said).split()).rstrip(". ")
    return f"{plain} ({len(memories)} times, {first:%Y-%m-%d} to {last:%Y-%m-%d})."


def _general_kind(
    memories: Sequence[Memory],
) -> Literal["fact", "preference", "decision", "procedure", "event", "insight"]:
    kinds = [memory.kind for memory in memories]
    most = max(sorted(set(kinds)), key=kinds.count)
    return "fact" if most == "event" else most


def _n_times(said: str) -> int:
    """How many words of a text say when."""
    return len(_DATE.findall(said)) + sum(word.stem in _TIME_STEMS for word in use.words(said))


def _proposal(kind: Kind, why: str, faces: Sequence[_Face], *, moves: Sequence[tuple[str, str]] = ()) -> Proposal:
    memories = tuple(face.memory for face in faces)
    seed = "\n".join((kind, *sorted(_ids(memories))))
    name = f"{kind}-{hashlib.sha256(seed.encode()).hexdigest()[:8]}"
    return Proposal(name, kind, why, memories, moves=tuple(moves))


def _ids(memories: Iterable[Memory]) -> tuple[str, ...]:
    return tuple(memory.memory_id for memory in memories)


def _days(a: Memory, b: Memory) -> int:
    return abs(a.stated_at - b.stated_at).days
