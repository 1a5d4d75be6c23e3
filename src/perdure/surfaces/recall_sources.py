"""Read from a home what pages about recall need: the words of cues by their ids, the message, the block.

Reads only, and only what the home answers for its user.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from perdure import turn
from perdure.access import fence
from perdure.access.redact import mask
from perdure.errors import MemoryMissing, NotFound, UsageError
from perdure.home import Home
from perdure.index.injections import Injection
from perdure.index.session_turns import MAX_TIME_GAP, PromptTurn, find_nearest_prompt
from perdure.recall import plan as planning
from perdure.recall.pack import explain_absence, render_cue
from perdure.surfaces import cue_cards
from perdure.surfaces.cue_cards import CueCard, CueSubject, MissingCue
from perdure.surfaces.units import format_time_and_age
from perdure.text import shorten_project
from perdure.types import Cue, Hit, Live, Memory, Plan, Recalled

MEMORY_PREFIX = "mem-"
_MAX_RUN_BYTES = 8_000_000  # of a run that is searched for the exact block
_MAX_MATCHES = 3  # memories, and turns, that words may match
SourcesByName = Mapping[str, "Sequence[Hit] | Memory"]


@dataclass(frozen=True, slots=True)
class InjectionMoment:
    """The time of an injection, and its session."""

    runtime: str
    session: str
    agent: str
    at: datetime

    @property
    def session_key(self) -> tuple[str, str]:
        """(runtime, session as transcripts name it)."""
        return self.runtime, "/".join(filter(None, (self.session, self.agent)))


def explain_omission(home: Home, recalled: Recalled, name: str, cwd: str | None) -> str:
    """Say why a turn or a memory was left out of a recall, after its project and its date.

    recalled: must include the candidates that were passed over. cwd: the folder that the recall was for.
    """
    subject = to_subjects(read_sources(home, [name])).get(name)
    if subject is None:
        return explain_absence(recalled, name)
    age_text = format_time_and_age(subject.stated_at, datetime.now(UTC))
    context = cue_cards.OmissionContext(project=home.connections.project_of(cwd) if cwd else None)
    reason = cue_cards.explain_omission(subject, recalled, context)
    return f"({shorten_project(subject.project) or 'no project'}, {age_text}) {reason}"


def to_moment(injection: Injection) -> InjectionMoment:
    """Return the time and the session of an injection."""
    return InjectionMoment(injection.runtime, injection.session, injection.agent, injection.at)


def find_messages(home: Home, moments: Iterable[InjectionMoment]) -> dict[InjectionMoment, PromptTurn]:
    """Return the message of each moment, if it is captured."""
    message_by_moment: dict[InjectionMoment, PromptTurn] = {}
    for session_key, session_moments in _group_by_session(moments).items():
        first, last = session_moments[0].at, session_moments[-1].at
        messages = home.runs.prompts(*session_key, since_at=first - MAX_TIME_GAP, until_at=last + MAX_TIME_GAP)
        message_by_moment |= {
            moment: message
            for moment in session_moments
            if (message := find_nearest_prompt(messages, moment.at)) is not None
        }
    return message_by_moment


def _group_by_session(moments: Iterable[InjectionMoment]) -> dict[tuple[str, str], list[InjectionMoment]]:
    """Group the moments by session, in order of time."""
    groups: dict[tuple[str, str], list[InjectionMoment]] = {}
    for moment in sorted(moments, key=lambda moment: moment.at):
        if moment.session:
            groups.setdefault(moment.session_key, []).append(moment)
    return groups


class PromptMessage(NamedTuple):
    """A message that was or could be typed, and where."""

    text: str = ""  # masked
    project: str | None = None
    session: Live | None = None  # its session, whose own turns are not recalled


def read_message(home: Home, turn_id: str) -> PromptMessage:
    """Return the message that a person typed in a turn. Raises NotFound."""
    pieces = home.runs.first_chunks([turn_id]).get(turn_id)
    if not pieces:
        raise NotFound(turn_id)
    text = "\n".join(piece.text for piece in pieces if piece.kind == "text")
    return PromptMessage(mask(text), pieces[0].project, Live(pieces[0].conversation))


def read_sources(home: Home, names: Iterable[str]) -> dict[str, Sequence[Hit] | Memory]:
    """Return those of the named turns and memories that may be read now."""
    unique_names = list(dict.fromkeys(names))
    sources: dict[str, Sequence[Hit] | Memory] = {}
    sources |= home.runs.first_chunks([name for name in unique_names if not name.startswith(MEMORY_PREFIX)])
    memories = [name for name in unique_names if name.startswith(MEMORY_PREFIX)]
    sources |= {memory.memory_id: memory for memory in home.memories.get_many(memories)}
    for name in memories:
        if name not in sources:  # it does not exist, or another user shares it
            with contextlib.suppress(MemoryMissing):
                sources[name] = home.memories.shared.get(name)
    return sources


def to_subjects(sources: SourcesByName) -> dict[str, CueSubject]:
    """Return each turn by its first piece, and each memory unchanged."""
    return {name: source if isinstance(source, Memory) else source[0] for name, source in sources.items()}


# an injection ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InjectionView:
    """An injection with the words of its cues as they are stored now."""

    injection: Injection
    plan: Plan
    message: str  # "" if it is not captured
    cards: tuple[CueCard | MissingCue, ...]
    injected_cues: tuple[Cue, ...]  # those that still exist, with the text as injected, as far as it is known


def read_injection(home: Home, injection: Injection, message: str) -> InjectionView:
    """Read an injection as it can be shown now."""
    plan = planning.plan(message, now=injection.at)
    sources = read_sources(home, (reason.cue for reason in injection.reasons))
    exchange = (
        home.runs.exchange(*to_moment(injection).session_key, injection.at)
        if injection.used is not None and injection.session
        else None
    )
    cards: list[CueCard | MissingCue] = []
    injected_cues: list[Cue] = []
    for reason in injection.reasons:
        used = None if injection.used is None else reason.cue in injection.used
        cue = cue_cards.restore_cue(reason, sources.get(reason.cue), plan, home.user)
        if cue is None:
            cards.append(MissingCue(reason.cue, reason.n_tokens, used))
            continue
        cue = _add_note(home, cue, injection.at)
        injected_cues.append(cue_cards.cut_as_injected(cue, plan))
        bars = (
            cue_cards.measure_use(exchange.prompt, _list_texts(sources[reason.cue]), exchange.answer)
            if exchange
            else ()
        )
        cards.append(replace(_make_card(home, cue, plan), used=used, taken_up=bars))
    return InjectionView(injection, plan, message, tuple(cards), tuple(injected_cues))


def _add_note(home: Home, cue: Cue, injected_at: datetime) -> Cue:
    """Add to a memory the note that stood beside it at that moment; return any other cue unchanged."""
    if cue.memory is None:
        return cue
    return msgspec.structs.replace(
        cue, note=cue_cards.restore_note(cue.memory, _read_history(home, cue.memory), injected_at)
    )


def _read_history(home: Home, memory: Memory) -> Sequence[Memory]:
    """Return every statement on the same path, oldest first, without those forgotten since."""
    with contextlib.suppress(MemoryMissing):
        return home.memories.holder_of(memory.memory_id).history(memory.memory_id)
    return ()


def make_cards(home: Home, recalled: Recalled, injected_cues: Sequence[Cue]) -> tuple[CueCard, ...]:
    """Return the cues of a current recall as cards."""
    return tuple(_make_card(home, cue, recalled.plan) for cue in injected_cues)


def _make_card(home: Home, cue: Cue, plan: Plan) -> CueCard:
    excerpt_cue = msgspec.structs.replace(cue, text=cue_cards.pick_excerpt(mask(cue.text), plan), note=mask(cue.note))
    card = cue_cards.make_card(excerpt_cue, reader=home.user)
    if cue.memory is None:
        return replace(card, project=home.runs.get(cue.run_id).project)
    successor = (
        cue_cards.find_successor(cue.memory, _read_history(home, cue.memory)) if cue.memory.superseded_by else None
    )
    source = _find_source(home, cue.memory)
    return replace(card, source=source, instead=successor, project=cue.memory.project)


def _find_source(home: Home, memory: Memory) -> Hit | None:
    """Return the first turn behind a memory that still exists."""
    with contextlib.suppress(MemoryMissing):
        memories = home.memories.shared if memory.shared_by else home.memories
        turns = [turn for _, turn in memories.sources(memory.memory_id) if turn]
        pieces = home.runs.first_chunks(turns[:1])
        return next((hits[0] for hits in pieces.values()), None)
    return None


def _list_texts(source: Sequence[Hit] | Memory) -> list[str]:
    return [source.text] if isinstance(source, Memory) else [piece.text for piece in source]


def restore_block(home: Home, injection_view: InjectionView, turn_id: str) -> tuple[str, bool]:
    """Return (the injected block, True if it is exactly that one): from the transcript, or rebuilt from its cues.

    turn_id: of the message; "" if it is not captured. A rebuilt block may be exactly the same, too.
    """
    injection = injection_view.injection
    with contextlib.suppress(NotFound):  # its bytes were forgotten and the index is not up to date yet
        if turn_id and (exact := _find_block(home, injection, turn_id)):
            return mask(exact), True
    if not injection_view.injected_cues:
        return "", False
    items = list(map(render_cue, injection_view.injected_cues))
    blocks = [fence.fence_items([*items, *extra_items], injection.nonce) for extra_items in ((), (turn.REMINDER,))]
    exact_block = next((text for text in blocks if fence.hash_block(text) == injection.digest), "")
    return mask(exact_block or blocks[0]), bool(exact_block)


def _find_block(home: Home, injection: Injection, turn_id: str) -> str:
    """Return the block as the client wrote it into its transcript; "" if it did not, or if the run is very large."""
    run_id, _ = home.runs.locate_turn(turn_id)
    if home.runs.get(run_id).jsonl_bytes > _MAX_RUN_BYTES:
        return ""
    for line in home.runs.raw(run_id).split(b"\n"):
        if injection.nonce.encode() in line:
            for text in _walk_strings(line):
                if block := fence.find_block(text, injection.nonce, injection.digest):
                    return block
    return ""


def _walk_strings(line: bytes) -> Iterable[str]:
    """Yield every text in a line of JSON."""
    try:
        todo: list[object] = [msgspec.json.decode(line)]
    except (msgspec.DecodeError, RecursionError):
        return
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            todo += item.values()
        elif isinstance(item, list):
            todo += item


# why not --------------------------------------------------------------------------------------------------------


def find_subjects(home: Home, words: str) -> dict[str, CueSubject]:
    """Return the turns and memories that an id or some words mean."""
    if " " not in words:
        with contextlib.suppress(NotFound, MemoryMissing, UsageError):
            kind, name = home.resolve(words)
            if kind in ("turn", "memory"):
                return to_subjects(read_sources(home, [name]))
    memories = [hit.memory for hit in home.memories.search(words, limit=_MAX_MATCHES)]
    hits = home.search(words, limit=_MAX_MATCHES).hits
    return {**{memory.memory_id: memory for memory in memories}, **{hit.turn_id: hit for hit in hits}}
