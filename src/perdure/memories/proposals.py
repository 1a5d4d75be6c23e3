"""Propose how an owner's memories could be tidied up, by rules. Pure.

A proposal changes nothing by itself, and applying it loses nothing: a retired memory stays and can be
restored. Each memory is in at most one proposal, so all of them can be applied together. A pinned
memory is retired only for the memory made of it, which is then pinned. No memory is retired for its age
alone, and the owner's words are never mixed with those of a tool or the web. A proposal gives its
reasons in numbers and without words, because reasons outlive what is forgotten.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import combinations
from typing import Literal

from msgspec import structs

from perdure import text
from perdure.archive import memory_events
from perdure.archive.memory_events import Op, fold_path
from perdure.identity import make_memory_id
from perdure.index import memory_replay
from perdure.index.memory_replay import MemoryChain, get_chain
from perdure.memories import cue_use, subject
from perdure.memories.scope import is_said_everywhere
from perdure.regex import lazy_re
from perdure.types import TRUSTS, Memory

ProposalKind = Literal["guess", "narrow", "chain", "lift", "merge", "split", "retire"]
MemoriesByChain = dict[MemoryChain, list[Memory]]
PROPOSAL_KINDS: tuple[ProposalKind, ...] = ("guess", "narrow", "chain", "lift", "merge", "split", "retire")  # order
REQUESTED_KINDS = ("retire",)  # proposed only to who asks for them: they cost answers (decisions/067)

MIN_EPISODES = 3  # on as many days, to become one general memory (decisions/017)
EPISODE_LIKENESS = 0.65  # lowest share of common words of two episodes
DUPLICATE_SHARE = 0.75  # of two near-duplicates, the shorter has this share of the longer one's words, in order
MAX_UNUSED_SHOWN = 8  # shown so often without any use, a memory is proposed for retirement
MAX_UNUSED_SHOWN_COLD = 3  # the same, if it is cold as well
COLD_HEAT = 0.1  # heat below which a memory is cold (row D09)
QUIET_TIME = timedelta(days=30)  # without being said or used
FAINT_DECAY = 0.05  # below this decay a memory is retired first (row D05); it decides nothing else
_MAX_KEY_HOLDERS = 50  # a word shared by more memories finds no candidates
_MAX_KEY_WORDS = 8  # telling words of a statement by which others are found
_MAX_TEXT_CHARS = 600  # of a model's wording
_FOUND_WAYS = ("stated", "mined", "consolidated")  # values of `how` for what was found in conversations

_FILLER_WORDS = frozenset(
    "a an the is are was were be been that this it i we you he she they my our your me us user der die das den dem "
    "ein eine einen ist sind war ich wir mein meine unser unsere le la les un une est sont je nous mon ma notre el "
    "los una es yo mi".split()
)
_TIME_WORDS = frozenset(
    "today yesterday again morning evening night monday tuesday wednesday thursday friday saturday sunday january "
    "february march april june july august september october november december heute gestern wieder morgens abends "
    "montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar märz mai juni juli oktober dezember "
    "hier encore lundi mardi mercredi jeudi vendredi samedi dimanche janvier février mars avril juin juillet août "
    "septembre octobre novembre décembre hoy ayer".split()
)
_TIME_STEMS = frozenset(word[: cue_use.STEM_CHARS] for word in _TIME_WORDS)
_DATE = lazy_re(
    r"\d{4}-\d\d-\d\d|\d{1,2}\.\d{1,2}\.(?:\d{2,4})?|\d{1,2}/\d{1,2}(?:/\d{2,4})?|\d{1,2}:\d\d(?::\d\d)?|"
    r"(?i:\b(?:on the |am |le )?\d{1,2}(?:st|nd|rd|th|\.)?"
    r"(?= (?:jan|feb|mar|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)))"
)
_TIME_PHRASE = lazy_re(r"(?i) ?(?:\b(?:on|at|am|um|le|à) )?(?:\d{4}-\d\d-\d\d|\b\d{1,2}:\d\d\b)")
_NEGATION = lazy_re(
    r"(?i:\b(?:no|not|never|cannot|without|kein\w*|nicht|nie|niemals|ohne|pas|jamais|sans|nunca|sin)\b|n['’]t\b)|[不没無无]"
)
_PART_BREAK = lazy_re(r"(?<=[.!?;])\s+|;\s*|(?<=[。！？；])|,? (?:and|und|et|y) |, (?=[^,]*$)")


@dataclass(frozen=True)
class ConsolidationProposal:
    """One change that would tidy up the memories."""

    proposal_id: str  # kind and a hash of the memories: stable while these are the same
    kind: ProposalKind
    why: str  # in numbers
    memories: tuple[Memory, ...]  # the memories concerned, oldest first
    new_memories: tuple[Memory, ...] = ()  # new ones, in place of the retired ones
    retired_ids: tuple[str, ...] = ()
    new_paths: tuple[tuple[str, str], ...] = ()  # (memory id, its new path)
    new_projects: tuple[tuple[str, str], ...] = ()  # (memory id, the only project in which it will hold)

    def to_ops(self) -> list[Op]:
        """Return the operations that apply it."""
        return [
            *map(memory_events.build_create_op, self.new_memories),
            *(memory_events.build_change_op(memory_id, retired=True) for memory_id in self.retired_ids),
            *(memory_events.build_change_op(memory_id, path=path) for memory_id, path in self.new_paths),
            *(memory_events.build_change_op(memory_id, project=project) for memory_id, project in self.new_projects),
        ]


@dataclass(frozen=True)
class _MemoryFeatures:
    """A memory with the features by which it is compared with others."""

    memory: Memory
    stems: tuple[str, ...]  # its words in their order
    words: frozenset[str]  # words that carry meaning, without times
    marks: frozenset[str]  # numbers, identifiers and names, without times
    is_negated: bool


def find_proposals(
    memories: Iterable[Memory],
    *,
    now: datetime,
    run_projects: Mapping[str, str] | None = None,
    guess_ids: Collection[str] = (),
) -> list[ConsolidationProposal]:
    """Return everything that could be tidied up among all of an owner's memories, each memory in at most one
    proposal.

    run_projects: the project of each run that has one, by run id. guess_ids: memories that earlier rules guessed
    (`stated.find_guesses`).
    """
    ordered_memories = sorted(memories, key=lambda memory: (memory.stated_at, memory.order, memory.memory_id))
    features = [
        _extract_features(memory) for memory in ordered_memories if memory.is_current and not _is_expired(memory, now)
    ]
    memories_by_chain, id_maker = (
        _group_by_chain(ordered_memories),
        _IdMaker({memory.memory_id for memory in ordered_memories}),
    )
    steps: dict[ProposalKind, Callable[[list[_MemoryFeatures]], Iterator[ConsolidationProposal]]] = {
        "guess": lambda remaining: _propose_guesses(remaining, memories_by_chain, guess_ids),
        "narrow": lambda remaining: _propose_narrower_scopes(remaining, memories_by_chain, run_projects or {}),
        "chain": lambda remaining: _propose_chains(remaining, memories_by_chain),
        "lift": lambda remaining: _propose_lifts(remaining, memories_by_chain, id_maker),
        "merge": lambda remaining: _propose_merges(remaining, memories_by_chain, id_maker),
        "split": lambda remaining: _propose_splits(remaining, memories_by_chain, id_maker),
        "retire": lambda remaining: _propose_retirements(remaining, memories_by_chain, now),
    }
    found_proposals: list[ConsolidationProposal] = []
    for kind in PROPOSAL_KINDS:
        taken_ids = {memory.memory_id for proposal in found_proposals for memory in proposal.memories}
        found_proposals += steps[kind]([feature for feature in features if feature.memory.memory_id not in taken_ids])
    return found_proposals


def is_faithful(wording_text: str, originals: Sequence[str]) -> bool:
    """Return True if a model's wording adds no number, identifier or name to the originals, and negates as
    they do.
    """
    known_stems = {word.stem for original in originals for word in cue_use.iter_words(original)}
    added_stems = {
        word.stem for word in cue_use.iter_words(wording_text) if word.weight >= cue_use.NAME_WEIGHT
    } - known_stems
    negations = {is_negated(original) for original in originals}
    return (
        bool(wording_text.strip())
        and len(wording_text) <= _MAX_TEXT_CHARS
        and not added_stems
        and negations == {is_negated(wording_text)}
    )


def is_negated(text: str) -> bool:
    """Return True if a text holds a negation.

    >>> is_negated("never push on a Friday"), is_negated("push on a Friday")
    (True, False)
    """
    return bool(_NEGATION.search(text))


# what memories look like -----------------------------------------------------------------------------------------


def _extract_features(memory: Memory) -> _MemoryFeatures:
    timeless_words = [word for word in cue_use.iter_words(_DATE.sub(" ", memory.text)) if word.stem not in _TIME_STEMS]
    stems = tuple(word.stem for word in cue_use.iter_words(memory.text) if word.stem not in _FILLER_WORDS)
    return _MemoryFeatures(
        memory,
        stems,
        frozenset(word.stem for word in timeless_words if word.weight),
        frozenset(word.stem for word in timeless_words if word.weight >= cue_use.NAME_WEIGHT),
        is_negated(memory.text),
    )


def _is_expired(memory: Memory, now: datetime) -> bool:
    return memory.valid_until is not None and memory.valid_until <= now


def _group_by_chain(memories: Sequence[Memory]) -> MemoriesByChain:
    """Group all memories that are not retired by their chain, oldest first."""
    memories_by_chain: MemoriesByChain = defaultdict(list)
    for memory in memories:
        if not memory.retired:
            memories_by_chain[get_chain(memory)].append(memory)
    return memories_by_chain


def _find_history(members: Sequence[Memory], memories_by_chain: MemoriesByChain) -> list[Memory]:
    """Return the other memories of these members' chains: without the members they would become current again."""
    member_ids = set(_list_ids(members))
    return [
        m
        for chain in dict.fromkeys(map(get_chain, members))
        for m in memories_by_chain[chain]
        if m.memory_id not in member_ids
    ]


def _group_by_scope(features: Iterable[_MemoryFeatures]) -> list[list[_MemoryFeatures]]:
    """Group memories that may be merged: those of one agent, project and validity."""
    scopes: dict[tuple[object, ...], list[_MemoryFeatures]] = defaultdict(list)
    for feature in features:
        memory = feature.memory
        scopes[memory.agent, memory.project or "", memory.valid_from, memory.valid_until].append(feature)
    return list(scopes.values())


# groups ----------------------------------------------------------------------------------------------------------


def _group_alike(
    features: Sequence[_MemoryFeatures], is_one: Callable[[_MemoryFeatures, _MemoryFeatures], bool]
) -> list[list[_MemoryFeatures]]:
    """Group alike memories by twos and more around the oldest of each group.

    Only memories that share a rare word are compared.
    """
    grouped: set[int] = set()
    groups = []
    for n, later_numbers in enumerate(_find_sharing([feature.words for feature in features])):
        group = (
            [] if n in grouped else [m for m in later_numbers if m not in grouped and is_one(features[n], features[m])]
        )
        if group:
            grouped.update(group)
            groups.append([features[n], *(features[m] for m in group)])
    return groups


def _find_sharing(keys: Sequence[Collection[str]]) -> Iterator[list[int]]:
    """Yield for each item the numbers of later items that share a key with it which few items have."""
    holders: dict[str, list[int]] = defaultdict(list)
    for n, item_keys in enumerate(keys):
        for key in item_keys:
            holders[key].append(n)
    for n, item_keys in enumerate(keys):
        yield sorted({m for key in item_keys if len(holders[key]) <= _MAX_KEY_HOLDERS for m in holders[key] if m > n})


def _list_keys(text: str) -> set[str]:
    """Return the keys that two statements about the same thing share: their telling words, and pairs of them."""
    words = sorted(subject.read_subject(text).words[:_MAX_KEY_WORDS])
    return {*words, *map(" ".join, combinations(words, 2))}


def _is_duplicate(a: _MemoryFeatures, b: _MemoryFeatures) -> bool:
    """Return True for near-duplicates: one restates the other, or has its words in their order and few more."""
    if len(a.words & b.words) < DUPLICATE_SHARE * min(len(a.words), len(b.words)):
        return False
    if subject.says_same(a.memory.text, b.memory.text):
        return True
    if _is_different(a, b) or _is_contradiction(b, a):
        return False
    short_stems, long_stems = sorted((a.stems, b.stems), key=len)
    remaining_stems = iter(long_stems)
    return (
        len(short_stems) >= 2
        and len(short_stems) >= DUPLICATE_SHARE * len(long_stems)
        and all(word in remaining_stems for word in short_stems)
    )


def _is_episode(a: _MemoryFeatures, b: _MemoryFeatures) -> bool:
    """Return True if two memories tell of the same thing at different times."""
    if a.memory.trust != b.memory.trust or _is_different(a, b):
        return False
    shared_words = a.words & b.words
    return len(shared_words) >= 2 and len(shared_words) >= EPISODE_LIKENESS * len(a.words | b.words)


def _is_different(a: _MemoryFeatures, b: _MemoryFeatures) -> bool:
    """Return True if two cannot mean the same: one negates, or names or counts something else."""
    return a.is_negated != b.is_negated or a.marks != b.marks


# the kinds of proposals ------------------------------------------------------------------------------------------


def _propose_guesses(
    features: Sequence[_MemoryFeatures], memories_by_chain: MemoriesByChain, guess_ids: Collection[str]
) -> Iterator[ConsolidationProposal]:
    """Propose to retire what earlier rules guessed, with the guesses that it replaced.

    What somebody kept on purpose and a guess superseded is current again then.
    """
    for feature in features:
        memory = feature.memory
        if memory.memory_id in guess_ids:
            older_guesses = [m for m in _find_history([memory], memories_by_chain) if m.memory_id in guess_ids]
            reason = "guessed by rules from a plain sentence; nobody asked to keep it"
            retired_ids = _list_ids([memory, *older_guesses])
            yield replace(_build_proposal("guess", reason, [feature]), retired_ids=retired_ids)


def _propose_narrower_scopes(
    features: Sequence[_MemoryFeatures], memories_by_chain: MemoriesByChain, run_projects: Mapping[str, str]
) -> Iterator[ConsolidationProposal]:
    """Propose that a memory which holds in all projects, but was found in the conversations of one, holds there.

    Its history follows, each memory to its own project: the history would be current everywhere otherwise.
    """
    for feature in features:
        chain_members = memories_by_chain[get_chain(feature.memory)]
        projects = [_find_only_project(memory, run_projects) for memory in chain_members]
        if all(projects):
            reason = f"found in one project, holds in all ({len(chain_members)} in its history)"
            new_projects = tuple(zip(_list_ids(chain_members), map(str, projects), strict=True))
            yield replace(_build_proposal("narrow", reason, [feature]), new_projects=new_projects)


def _find_only_project(memory: Memory, run_projects: Mapping[str, str]) -> str | None:
    """Return the project of all conversations in which a memory was found.

    Returns None if the memory has a project, its owner wanted it everywhere, or a conversation has no project or
    another one.
    """
    if memory.project or memory.pinned or memory.how not in _FOUND_WAYS or is_said_everywhere(memory.text):
        return None
    projects = {run_projects.get(span.run_id) for span in memory.sources}
    return projects.pop() if len(projects) == 1 else None


def _propose_chains(
    features: Sequence[_MemoryFeatures], memories_by_chain: MemoriesByChain
) -> Iterator[ConsolidationProposal]:
    """Propose that two current memories which contradict each other on two paths become one chain, at the
    older path.
    """
    for scope in _group_by_scope(features):
        taken_numbers: set[int] = set()
        for n, later_numbers in enumerate(_find_sharing([_list_keys(feature.memory.text) for feature in scope])):
            m = next(
                (m for m in later_numbers if m not in taken_numbers and _is_contradiction(scope[m], scope[n])), None
            )
            if m is None or n in taken_numbers:
                continue
            taken_numbers |= {n, m}
            older, newer = scope[n], scope[m]
            n_days = abs(older.memory.stated_at - newer.memory.stated_at).days
            reason = f"two current memories about one thing, {n_days} days apart"
            new_paths = [(memory.memory_id, older.memory.path) for memory in memories_by_chain[get_chain(newer.memory)]]
            yield _build_proposal("chain", reason, [older, newer], new_paths=new_paths)


def _is_contradiction(newer: _MemoryFeatures, older: _MemoryFeatures) -> bool:
    if get_chain(newer.memory) == get_chain(older.memory) or "event" in (newer.memory.kind, older.memory.kind):
        return False
    texts = newer.memory.text, older.memory.text
    return subject.replaces(*texts) and not subject.says_same(*texts)


def _propose_lifts(
    features: Sequence[_MemoryFeatures], memories_by_chain: MemoriesByChain, id_maker: _IdMaker
) -> Iterator[ConsolidationProposal]:
    """Propose one general memory for episodes of one thing on several days; it points at all of them."""
    for scope in _group_by_scope(features):
        for group in _group_alike(scope, _is_episode):
            days = {feature.memory.stated_at.date() for feature in group}
            if len(group) < MIN_EPISODES or len(days) < MIN_EPISODES:
                continue
            draft = _build_proposal("lift", f"{len(group)} memories of one thing, on {len(days)} days", group)
            memories = [feature.memory for feature in group]
            best = min(memories, key=lambda m: (_count_time_words(m.text), *_sort_key(m)))
            general_memory = structs.replace(
                _merge_memories(best, memories),
                text=_generalise_text(best.text, memories),
                kind=_generalise_kind(memories),
            )
            yield _replace_members(draft, general_memory, memories, memories_by_chain, id_maker)


def _propose_merges(
    features: Sequence[_MemoryFeatures], memories_by_chain: MemoriesByChain, id_maker: _IdMaker
) -> Iterator[ConsolidationProposal]:
    """Propose to merge near-duplicates: the most trusted and best worded one is made again with the sources of
    its equals.
    """
    for scope in _group_by_scope(features):
        for group in _group_alike(scope, _is_duplicate):
            memories = [feature.memory for feature in group]
            best = min(memories, key=_sort_key)
            less_trusted = [m for m in memories if m.trust != best.trust]
            equally_trusted = [m for m in memories if m.trust == best.trust]
            if any(m.pinned for m in less_trusted) or _find_history(less_trusted, memories_by_chain):
                continue
            draft = replace(
                _build_proposal("merge", f"{len(group)} memories say the same", group),
                retired_ids=_list_ids(less_trusted),
            )
            yield (
                draft
                if len(equally_trusted) == 1
                else _replace_members(
                    draft, _merge_memories(best, equally_trusted), equally_trusted, memories_by_chain, id_maker
                )
            )


def _replace_members(
    draft: ConsolidationProposal,
    new_memory: Memory,
    members: Sequence[Memory],
    memories_by_chain: MemoriesByChain,
    id_maker: _IdMaker,
) -> ConsolidationProposal:
    """Return a proposal with one memory in the place of several, whose histories become its own.

    Its time is that of the first member; with a history, that of the last, because the history would be
    current otherwise.
    """
    history = _find_history(members, memories_by_chain)
    stated_at = (max if history else min)(m.stated_at for m in members)
    new_paths = tuple(
        (m.memory_id, new_memory.path) for m in history if fold_path(m.path) != fold_path(new_memory.path)
    )
    new_memories = (id_maker.assign_id(structs.replace(new_memory, stated_at=stated_at), draft),)
    return replace(
        draft, new_memories=new_memories, retired_ids=(*draft.retired_ids, *_list_ids(members)), new_paths=new_paths
    )


def _propose_splits(
    features: Sequence[_MemoryFeatures], memories_by_chain: MemoriesByChain, id_maker: _IdMaker
) -> Iterator[ConsolidationProposal]:
    """Propose a memory for each part of one that says two things, all with the same sources."""
    for feature in features:
        memory = feature.memory
        parts = _split_facts(memory.text)
        if not parts or _find_history([memory], memories_by_chain):
            continue
        draft = _build_proposal("split", f"{len(parts)} facts in one memory", [feature])
        new_memories = [
            structs.replace(
                _merge_memories(memory, [memory]),
                text=part,
                path=subject.path_for(part, memory.kind),
                entities=text.entities(part),
            )
            for part in parts
        ]
        yield replace(
            draft,
            new_memories=tuple(id_maker.assign_id(new_memory, draft) for new_memory in new_memories),
            retired_ids=_list_ids([memory]),
        )


def _split_facts(text: str) -> list[str]:
    """Return the parts of a text that each say what one thing is; none if there is only one part, or one of them does
    not stand by itself.
    """
    parts = [part.strip(" ,;") for part in _PART_BREAK.split(text) if part.strip(" ,;.")]
    frames = [subject.read_subject(part).frame for part in parts]
    subjects = [frame[0] for frame in frames if frame is not None]
    return parts if len(parts) > 1 and len(subjects) == len(parts) == len(set(subjects)) else []


def _propose_retirements(
    features: Sequence[_MemoryFeatures], memories_by_chain: MemoriesByChain, now: datetime
) -> Iterator[ConsolidationProposal]:
    """Propose to retire what was shown again and again and never used, the most decayed first."""
    useless_features = [
        feature
        for feature in features
        if all(_is_useless(m, now) for m in (feature.memory, *_find_history([feature.memory], memories_by_chain)))
    ]
    useless_features.sort(
        key=lambda f: (
            memory_replay.compute_decay(f.memory, now) > FAINT_DECAY,
            -f.memory.n_injected,
            f.memory.memory_id,
        )
    )
    for feature in useless_features:
        memory = feature.memory
        reason = f"shown {memory.n_injected} times, never used; heat {memory_replay.compute_heat(memory, now):.2f}"
        retired_memories = [memory, *_find_history([memory], memories_by_chain)]
        yield replace(_build_proposal("retire", reason, [feature]), retired_ids=_list_ids(retired_memories))


def _is_useless(memory: Memory, now: datetime) -> bool:
    """Return True if a memory was shown often enough and never used. Age alone does not count."""
    if memory.pinned or memory.n_used:
        return False
    is_cold = (
        memory_replay.compute_heat(memory, now) < COLD_HEAT
        and now - (memory.renewed_at or memory.stated_at) >= QUIET_TIME
    )
    return memory.n_injected >= MAX_UNUSED_SHOWN or (is_cold and memory.n_injected >= MAX_UNUSED_SHOWN_COLD)


# what is made ----------------------------------------------------------------------------------------------------


class _IdMaker:
    """Gives new memories ids that follow from their proposal, so that two homes that apply it make the same
    one.
    """

    def __init__(self, known_ids: Collection[str]) -> None:
        self._known = set(known_ids)

    def assign_id(self, memory: Memory, proposal: ConsolidationProposal) -> Memory:
        """Return the memory with an id that no other memory has."""
        last_at = max(m.stated_at for m in proposal.memories)
        for n in range(len(self._known) + 1):
            seed = f"{proposal.proposal_id} {n}"
            new_id = make_memory_id(last_at, hashlib.sha256(seed.encode()).digest())
            if new_id not in self._known:
                self._known.add(new_id)
                break
        return structs.replace(memory, memory_id=new_id)


def _merge_memories(best: Memory, members: Sequence[Memory]) -> Memory:
    """Return the best of some memories with the sources, names and pins of all."""
    return Memory(
        memory_id="",
        text=best.text,
        kind=best.kind,
        path=best.path,
        agent=best.agent,
        project=best.project,
        stated_at=best.stated_at,
        recorded_at=best.recorded_at,
        trust=max((m.trust for m in members), key=TRUSTS.index),
        how="consolidated",
        sources=tuple(dict.fromkeys(span for m in members for span in m.sources)),
        made_from=_list_ids(members),
        entities=tuple(dict.fromkeys(name for m in members for name in m.entities)),
        runtime=best.runtime,
        conversation=best.conversation,
        valid_from=best.valid_from,
        valid_until=best.valid_until,
        pinned=any(m.pinned for m in members),
        confidence=max(m.confidence for m in members),
    )


def _sort_key(memory: Memory) -> tuple[object, ...]:
    """Return the sort key that puts the best first: trusted, pinned, used, then the longer text, then the
    earlier one.
    """
    return (
        TRUSTS.index(memory.trust),
        not memory.pinned,
        -memory.n_used,
        -len(memory.text),
        memory.stated_at,
        memory.memory_id,
    )


def _generalise_text(text: str, memories: Sequence[Memory]) -> str:
    """Return the text of a general memory: that of its best episode; for events, without its day but with
    count and dates.
    """
    if any(memory.kind != "event" for memory in memories):
        return text
    first, last = min(m.stated_at for m in memories), max(m.stated_at for m in memories)
    plain_text = " ".join(_TIME_PHRASE.sub("", text).split()).rstrip(". ")
    return f"{plain_text} ({len(memories)} times, {first:%Y-%m-%d} to {last:%Y-%m-%d})."


def _generalise_kind(
    memories: Sequence[Memory],
) -> Literal["fact", "preference", "decision", "procedure", "event", "insight"]:
    kinds = [memory.kind for memory in memories]
    commonest_kind = max(sorted(set(kinds)), key=kinds.count)
    return "fact" if commonest_kind == "event" else commonest_kind


def _count_time_words(text: str) -> int:
    """Count the words of a text that tell a time."""
    return len(_DATE.findall(text)) + sum(word.stem in _TIME_STEMS for word in cue_use.iter_words(text))


def _build_proposal(
    kind: ProposalKind, reason: str, features: Sequence[_MemoryFeatures], *, new_paths: Sequence[tuple[str, str]] = ()
) -> ConsolidationProposal:
    memories = tuple(feature.memory for feature in features)
    seed = "\n".join((kind, *sorted(_list_ids(memories))))
    proposal_id = f"{kind}-{hashlib.sha256(seed.encode()).hexdigest()[:8]}"
    return ConsolidationProposal(proposal_id, kind, reason, memories, new_paths=tuple(new_paths))


def _list_ids(memories: Iterable[Memory]) -> tuple[str, ...]:
    return tuple(memory.memory_id for memory in memories)
