"""Forget: from what a person points at to the last byte of it. Selection and preview; then one journal event that
is the commit; then everything that holds a copy is rewritten. Interrupted, it is finished at the next opening.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from perdure import text
from perdure.access.redact import mask
from perdure.archive import tombstones as tombs
from perdure.archive.archive import Archive
from perdure.archive.journal import Event, Journal, Read, ends, places, tails, was_rewritten
from perdure.archive.metadata import FORGOTTEN, source_lines
from perdure.archive.store import Held
from perdure.errors import DamagedRun, NotFound
from perdure.formats.of_run import parse_run
from perdure.identity import turn_id
from perdure.memories import events
from perdure.types import Line, Memory, Run, Source, Span, Turn

_EVENT_TURNS = 2000  # turns named in one event: a line of the journal stays below a few megabytes


@dataclass(frozen=True)
class Doomed:
    """One turn, or the lines of a run around its turns, about to be forgotten."""

    turn_id: str
    run: Run
    ranges: tuple[tuple[int, int], ...]
    turn: Turn | None  # None for lines that are no turn
    lines: tuple[bytes, ...] = ()  # those lines

    @property
    def preview(self) -> str:
        """One line that shows what it is."""
        if self.turn is None:
            return f"{len(self.ranges)} lines that are no turn (titles, settings, prompts of the client)"
        words = self.turn.text("text", "pasted") or self.turn.text()
        return text.one_line(mask(words), 100)


def whole_runs(archive: Archive, helds: Iterable[Held]) -> list[Doomed]:
    """Everything in these runs: their turns and all lines around them."""
    found = []
    for held in helds:
        run, lines, turns = _content(archive, held)
        found += [_of_turn(run, turn, lines) for turn in turns]
        taken = {low for turn in turns for low, _ in turn.lines}
        rest = [(line, end) for line, end in lines if line.offset not in taken and not _is_marker(line)]
        if rest:
            ranges = tuple((line.offset, end) for line, end in rest)
            found.append(Doomed(turn_id(run.source, ranges[0][0]), run, ranges, None, tuple(r.raw for r, _ in rest)))
    return found


def _is_marker(line: Line) -> bool:
    return line.raw.startswith(FORGOTTEN)


def single_turns(archive: Archive, held: Held, offsets: set[int]) -> list[Doomed]:
    """The turns of a run that begin at these offsets."""
    run, lines, turns = _content(archive, held)
    return [_of_turn(run, turn, lines) for turn in turns if turn.offset in offsets]


def _content(archive: Archive, held: Held) -> tuple[Run, list[tuple[Line, int]], Sequence[Turn]]:
    try:
        run, stored = archive.whole(held)
    except DamagedRun:  # what is left of it can be forgotten all the same
        run, stored = archive.run(held), archive.read(held)
    lines = list(source_lines(run, stored))
    return run, lines, parse_run(run, [line for line, _ in lines]).turns


def _of_turn(run: Run, turn: Turn, lines: Sequence[tuple[Line, int]]) -> Doomed:
    ends = {line.offset: end for line, end in lines}
    ranges = tuple((low, ends.get(low, high)) for low, high in turn.lines)
    return Doomed(turn_id(run.source, turn.offset), run, ranges, turn)


def record(journal: Journal, doomed: Sequence[Doomed], memories: Sequence[Memory] = (), *, now: datetime) -> list[str]:
    """Write the tombstones: from here on these turns and memories are gone. Returns the ids of the events."""
    key = key_of(journal, now)
    items = [_described(item, key) for item in doomed]
    named = [[memory.memory_id, tombs.keyed_memory(key, memory.text)] for memory in memories]
    parts = [items[i : i + _EVENT_TURNS] for i in range(0, len(items), _EVENT_TURNS)] or [[]]
    first = {"turns": parts[0], "memories": named} if named else {"turns": parts[0]}
    return [journal.append(tombs.TYPE, data, now=now).id for data in (first, *({"turns": p} for p in parts[1:]))]


def key_of(journal: Journal, now: datetime) -> bytes:
    """The key of this user's tombstones, made at the first forgetting. A merged home may have brought another."""
    known = journal.read(type_=tombs.KEY_TYPE)
    event = known[0] if known else journal.append(tombs.KEY_TYPE, {"key": secrets.token_hex(32)}, now=now)
    return bytes.fromhex(event.data["key"])


def _described(item: Doomed, key: bytes) -> dict[str, object]:
    if item.turn is not None:
        return {**tombs.describe(item.run.source, item.turn, key), "ranges": [list(pair) for pair in item.ranges]}
    source = item.run.source
    return {
        "turn": item.turn_id, "source": [source.runtime, source.session, source.generation],
        "ranges": [list(pair) for pair in item.ranges], "at": 0, "native": None, "hashes": [],
        "lines": sorted({tombs.keyed_line(key, line) for line in item.lines}),
    }  # fmt: skip


_LOOK_AGAIN_BYTES = 1_000_000  # of a journal: to read so much costs an opening less than noting that it was read


class Watch:
    """The tombstones of one user, read once and then as the journal grows: it may be long, and seldom forgets."""

    def __init__(self, journal: Journal) -> None:
        """Nothing is read yet."""
        self._root = journal.root
        self._read: dict[str, Read] = {}
        self._events: dict[str, Event] = {}
        self._found = tombs.Tombstones()

    def tombstones(self) -> tombs.Tombstones:
        """All there are now."""
        now = places(self._root)
        if now == self._read:
            return self._found
        if was_rewritten(self._read, now):
            self._read, self._events = {}, {}
        fresh, self._read = tails(self._root, self._read, now, (tombs.KEY_TYPE, tombs.TYPE))
        self._events |= {event.key: event for event in fresh}
        if fresh or not self._events:
            self._found = tombs.collect(sorted(self._events.values(), key=lambda event: event.order))
        return self._found


def load(journal: Journal) -> tombs.Tombstones:
    """All tombstones of a user."""
    return Watch(journal).tombstones()


def unapplied(archive: Archive, journal: Journal) -> list[str]:
    """Ids of tombstones that have not been applied to everything captured before them."""
    known, now = _looked_through(archive, journal), places(journal.root)
    fresh, read = tails(journal.root, known, now, (tombs.TYPE,))
    done = archive.ledger.applied()
    found = [event.id for event in fresh if event.id not in done]
    if not found and _n_bytes(read) > _n_bytes(known) + _LOOK_AGAIN_BYTES:
        noted = msgspec.json.encode((read, ends(journal.root, read)))
        archive.ledger.set_meta(f"looked-through {journal.root.name}", noted.decode())
    return found


def _n_bytes(read: Mapping[str, Read]) -> int:
    return sum(each.n_bytes for each in read.values())


def _looked_through(archive: Archive, journal: Journal) -> dict[str, Read]:
    """How far each file of a journal holds no tombstone that is not applied: every opening would read it again."""
    said = archive.ledger.meta(f"looked-through {journal.root.name}")
    known, its_ends = msgspec.json.decode(said or "[{}, {}]", type=tuple[dict[str, Read], dict[str, str]])
    is_same = not was_rewritten(known, places(journal.root)) and ends(journal.root, known) == its_ends
    return known if is_same else {}


def apply(archive: Archive, journal: Journal, user: str, event_ids: Sequence[str]) -> list[str]:
    """Apply these tombstones to the archive: rewrite each run that holds a forgotten line or a copy of one.

    They count as applied (`Ledger.set_applied`) only when the caller has cleaned the index as well.
    """
    events = [e for e in journal.read(type_=tombs.TYPE) if e.id in set(event_ids)]
    found = tombs.collect([*journal.read(type_=tombs.KEY_TYPE), *events])
    return archive.scrub(_candidates(archive, user, found), found)


def with_descendants(memories: Iterable[Memory], doomed: Iterable[str]) -> list[Memory]:
    """The memories with these ids, and all that were made from them. memories: oldest first."""
    gone = set(doomed)
    found = []
    for memory in memories:
        if memory.memory_id in gone or gone & set(memory.made_from):
            gone.add(memory.memory_id)
            found.append(memory)
    return found


def with_versions(memories: Iterable[Memory], ids: Iterable[str]) -> set[str]:
    """These ids, and for what a file says those of what it said before: a file is forgotten as a whole."""
    files = {memory.memory_id: memory for memory in memories if memory.how == events.FILE}
    found: set[str] = set()
    todo = list(ids)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += files[name].made_from if name in files else ()
    return found


def of_turns(memories: Iterable[Memory], doomed: Sequence[Doomed]) -> list[str]:
    """The ids of the memories that were made of something that is about to be forgotten."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for item in doomed:
        ranges.setdefault(item.run.run_id, []).extend(item.ranges)
    return [m.memory_id for m in memories if any(_overlaps(span, ranges.get(span.run_id, ())) for span in m.sources)]


def _overlaps(span: Span, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(span.from_offset < high and low < span.to_offset for low, high in ranges)


def nothing(_: Span) -> bool:
    """No: of these bytes nothing was forgotten."""
    return False


@dataclass(frozen=True)
class Gone:
    """What is forgotten of one user's, as what was made of it knows it."""

    tombstones: tombs.Tombstones
    memories: frozenset[str] = frozenset()  # ids, also of those that were made of what is forgotten
    overlaps: Callable[[Span], bool] = nothing  # whether some of these bytes were forgotten


def gone(archive: Archive, journal: Journal) -> Gone:
    """What all tombstones of a user add up to.

    A memory goes with any of the turns behind it, with any memory that it was made from, and with its own words where
    these were forgotten after they were stated.
    """
    found, forgotten = load(journal), _Forgotten(archive)
    every = [op for event in journal.read(type_=events.TYPE) for op in event.data["ops"]] if found else []
    return Gone(found, frozenset(_gone(every, found, forgotten)), forgotten.overlaps)


def apply_to_memories(journal: Journal, gone: Gone) -> list[str]:
    """Take the forgotten memories out of the journal's events; returns the runs that they were stated in as well, where
    what is left can be looked at again.
    """
    if not gone.memories:
        return []
    every = [op for event in journal.read(type_=events.TYPE) for op in event.data["ops"]]

    def without(event: Event) -> dict[str, Any] | None:
        kept = [op for op in event.data["ops"] if op["id"] not in gone.memories]
        if len(kept) == len(event.data["ops"]):
            return None
        return {**{name: value for name, value in event.data.items() if name != "batch"}, "ops": kept}

    journal.rewrite(events.TYPE, without)
    return sorted({span.run_id for op in every if op["id"] in gone.memories for span in events.sources(op)})


def _gone(every: Sequence[dict[str, Any]], found: tombs.Tombstones, forgotten: _Forgotten) -> set[str]:
    """The ids of the memories that are forgotten, by all operations of a journal in their order."""
    gone = set(found.memories)
    for op in every:
        if any(map(forgotten.overlaps, events.sources(op))) or (op["op"] == "create" and _was_said(op, found)):
            gone.add(op["id"])
    made_from = [(op["id"], set(op["made_from"])) for op in every if op.get("made_from")]
    while more := {name for name, parents in made_from if parents & gone} - gone:
        gone |= more
    return gone


def _was_said(op: dict[str, Any], found: tombs.Tombstones) -> bool:
    stated_at = events.stated_at(op)
    return stated_at is not None and found.was_memory(op["text"], stated_at)


class _Forgotten:
    """What was forgotten of each run; a run is looked up once."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._ranges: dict[str, tuple[tuple[int, int], ...]] = {}

    def overlaps(self, span: Span) -> bool:
        if span.run_id not in self._ranges:
            try:
                self._ranges[span.run_id] = self._archive.run(self._archive.held(span.run_id)).forgotten
            except (NotFound, DamagedRun):
                self._ranges[span.run_id] = ()
        return _overlaps(span, self._ranges[span.run_id])


def _candidates(archive: Archive, user: str, found: tombs.Tombstones) -> list[Held]:
    """The runs that can hold something of it: those named, and those of the time in which it was said."""
    if found.span_s is None:
        return list(archive.ledger.all(user))
    named = [
        held
        for runtime, session, generation in found.ranges
        for held in archive.ledger.runs_of(Source(user, runtime, session, generation))
    ]
    near = archive.ledger.near(user, *found.span_s) if found.hashes or found.natives else []
    return sorted({held.run_id: held for held in [*named, *near] if held.change is not None}.values())
