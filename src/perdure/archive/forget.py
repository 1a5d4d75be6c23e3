"""Forget turns and memories: select what to forget and preview it, record it, then apply it everywhere.

One journal event is the commit; after it, everything that holds a copy is rewritten. If that is
interrupted, the next opening finishes it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure import text
from perdure.access.redact import mask
from perdure.archive import memory_events, merge, tombstones
from perdure.archive.archive import Archive
from perdure.archive.journal import (
    FilePosition,
    Journal,
    JournalEvent,
    measure_files,
    read_file_ends,
    read_new_events,
    was_rewritten,
)
from perdure.archive.run_files import FORGOTTEN, split_source_lines
from perdure.archive.store import LedgerEntry
from perdure.archive.tombstones import Tombstones
from perdure.capture.lines import Line
from perdure.errors import DamagedRun, NotFound
from perdure.formats.call_text import describe_turn
from perdure.formats.run_turns import parse_run
from perdure.identity import make_turn_id
from perdure.types import OWN_RUNTIME, Memory, Run, Source, Span, Turn

_EVENT_TURNS = 2000  # turns named in one event: a line of the journal stays below a few megabytes


class ForgetTarget(msgspec.Struct, frozen=True):
    """One turn, or the lines of a run around its turns, that is about to be forgotten."""

    turn_id: str
    run: Run
    ranges: tuple[tuple[int, int], ...]
    turn: Turn | None  # None for lines that are no turn
    lines: tuple[bytes, ...] = ()  # those lines

    @property
    def preview(self) -> str:
        """One line that shows its content."""
        if self.turn is None:
            return f"{len(self.ranges)} lines that are not turns (titles, settings, prompts of the client)"
        message_text = self.turn.text("text", "pasted") or describe_turn(
            self.turn, self.run.project, "thinking", "call", "result"
        )
        return text.one_line(mask(message_text), 100)


def target_runs(archive: Archive, entries: Iterable[LedgerEntry]) -> list[ForgetTarget]:
    """Return targets for everything in these runs: their turns and all lines around them."""
    targets = []
    for entry in entries:
        run, lines, turns = _read_content(archive, entry)
        targets += [_to_target(run, turn, lines) for turn in turns]
        turn_offsets = {low for turn in turns for low, _ in turn.lines}
        other_lines = [
            (line, end) for line, end in lines if line.offset not in turn_offsets and not line.raw.startswith(FORGOTTEN)
        ]
        if other_lines:
            ranges = tuple((line.offset, end) for line, end in other_lines)
            targets.append(
                ForgetTarget(
                    make_turn_id(run.source, ranges[0][0]), run, ranges, None, tuple(r.raw for r, _ in other_lines)
                )
            )
    return targets


def target_turns(archive: Archive, entry: LedgerEntry, offsets: set[int]) -> list[ForgetTarget]:
    """Return targets for the turns of a run that begin at these offsets."""
    run, lines, turns = _read_content(archive, entry)
    return [_to_target(run, turn, lines) for turn in turns if turn.offset in offsets]


def target_summaries(archive: Archive, targets: Sequence[ForgetTarget]) -> list[ForgetTarget]:
    """Return targets for the summaries that sessions of our own hold of these turns: of compactions, of left branches.

    They are those written after such a turn in its session, and all in the sessions that continue it.
    """
    first_offsets: dict[Source, int] = {}  # of the sessions, under their own names
    for target in targets:
        source = target.run.source
        if source.runtime == OWN_RUNTIME:
            session_source = replace(source, session=merge.to_base_session(source.session))
            first_offset = first_offsets.get(session_source, target.ranges[0][0])
            first_offsets[session_source] = min(first_offset, target.ranges[0][0])
    if not first_offsets:
        return []
    for source in list(first_offsets):
        first_offsets |= {fork: -1 for fork in _list_forks(archive, source) if fork not in first_offsets}
    return [
        _to_target(run, turn, lines)
        for source, first_offset in first_offsets.items()
        for row_source, entries in archive.ledger.list_session_runs(source, source.session).items()
        for run, lines, turns in (_read_content(archive, entry) for entry in entries)
        for turn in turns
        if turn.is_summary and (turn.offset > first_offset or row_source != source)
    ]


def _list_forks(archive: Archive, source: Source) -> list[Source]:
    """Return the sessions of our own that continue a session, directly or through others."""
    children: dict[str, list[str]] = {}
    for session in archive.ledger.list_sessions(source.user, source.runtime):
        entries = archive.ledger.list_source_runs(replace(source, session=session), high=1)
        run = archive.read_run(entries[0]) if entries else None
        if run is not None and run.fork and run.parent_session:
            children.setdefault(run.parent_session, []).append(session)
    forks: list[str] = []
    open_sessions = [source.session]
    while open_sessions:
        new_forks = [fork for fork in children.get(open_sessions.pop(), ()) if fork not in forks]
        forks += new_forks
        open_sessions += new_forks
    return [replace(source, session=fork) for fork in forks]


def _read_content(archive: Archive, entry: LedgerEntry) -> tuple[Run, list[tuple[Line, int]], Sequence[Turn]]:
    try:
        run, stored_bytes = archive.read_checked(entry)
    except DamagedRun:  # the rest of it can be forgotten all the same
        run, stored_bytes = archive.read_run(entry), archive.read(entry)
    lines = list(split_source_lines(run, stored_bytes))
    return run, lines, parse_run(run, [line for line, _ in lines]).turns


def _to_target(run: Run, turn: Turn, lines: Sequence[tuple[Line, int]]) -> ForgetTarget:
    end_by_offset = {line.offset: end for line, end in lines}
    ranges = tuple((low, end_by_offset.get(low, high)) for low, high in turn.lines)
    return ForgetTarget(make_turn_id(run.source, turn.offset), run, ranges, turn)


def record_tombstones(
    journal: Journal, targets: Sequence[ForgetTarget], memories: Sequence[Memory] = (), *, now: datetime
) -> list[str]:
    """Write the tombstones: from now on these turns and memories are forgotten. Returns the ids of the events."""
    key = get_key(journal, now)
    items = [_describe_target(target, key) for target in targets]
    memory_hashes = [[memory.memory_id, tombstones.hash_memory_with_key(key, memory.text)] for memory in memories]
    parts = [items[i : i + _EVENT_TURNS] for i in range(0, len(items), _EVENT_TURNS)] or [[]]
    first_data = {"turns": parts[0], "memories": memory_hashes} if memory_hashes else {"turns": parts[0]}
    return [
        journal.append(tombstones.EVENT_TYPE, data, now=now).id
        for data in (first_data, *({"turns": p} for p in parts[1:]))
    ]


def get_key(journal: Journal, now: datetime) -> bytes:
    """Return the key of this user's tombstones; make it at the first forgetting. A merged home may have brought
    another.
    """
    key_events = journal.read(type_=tombstones.KEY_EVENT_TYPE)
    event = (
        key_events[0]
        if key_events
        else journal.append(tombstones.KEY_EVENT_TYPE, {"key": secrets.token_hex(32)}, now=now)
    )
    return bytes.fromhex(event.data["key"])


def _describe_target(target: ForgetTarget, key: bytes) -> dict[str, object]:
    if target.turn is not None:
        return {
            **tombstones.describe_turn(target.run.source, target.turn, key),
            "ranges": [list(pair) for pair in target.ranges],
        }
    source = target.run.source
    return {
        "turn": target.turn_id,
        "source": [source.runtime, source.session, source.generation],
        "ranges": [list(pair) for pair in target.ranges],
        "at": 0,
        "native": None,
        "hashes": [],
        "lines": sorted({tombstones.hash_line_with_key(key, line) for line in target.lines}),
    }


_RECHECK_BYTES = 1_000_000  # of a journal: an opening reads this much faster than it records that it did


class TombstoneCache:
    """The tombstones of one user, read once and then as the journal grows: it may be long, and seldom forgets."""

    def __init__(self, journal: Journal) -> None:
        self._root = journal.root
        self._positions: dict[str, FilePosition] = {}
        self._events: dict[str, JournalEvent] = {}
        self._tombstones = Tombstones()

    def get_tombstones(self) -> Tombstones:
        """Return all current tombstones."""
        positions = measure_files(self._root)
        if positions == self._positions:
            return self._tombstones
        if was_rewritten(self._positions, positions):
            self._positions, self._events = {}, {}
        new_events, self._positions = read_new_events(
            self._root, self._positions, positions, (tombstones.KEY_EVENT_TYPE, tombstones.EVENT_TYPE)
        )
        self._events |= {event.key: event for event in new_events}
        if new_events or not self._events:
            self._tombstones = tombstones.collect(sorted(self._events.values(), key=lambda event: event.order))
        return self._tombstones


def load_tombstones(journal: Journal) -> Tombstones:
    """Return all tombstones of a user."""
    return TombstoneCache(journal).get_tombstones()


def list_unapplied(archive: Archive, journal: Journal) -> list[str]:
    """Return the ids of tombstones that were not applied to everything captured before them."""
    old_positions, positions = _read_checked_positions(archive, journal), measure_files(journal.root)
    new_events, new_positions = read_new_events(journal.root, old_positions, positions, (tombstones.EVENT_TYPE,))
    applied_ids = archive.ledger.list_applied()
    event_ids = [event.id for event in new_events if event.id not in applied_ids]
    if not event_ids and _count_bytes(new_positions) > _count_bytes(old_positions) + _RECHECK_BYTES:
        marks = msgspec.json.encode((new_positions, read_file_ends(journal.root, new_positions)))
        archive.ledger.set_meta(f"looked-through {journal.root.name}", marks.decode())
    return event_ids


def _count_bytes(positions: Mapping[str, FilePosition]) -> int:
    return sum(position.n_bytes for position in positions.values())


def _read_checked_positions(archive: Archive, journal: Journal) -> dict[str, FilePosition]:
    """Return how far each file of a journal is known to hold only applied tombstones; each opening would read
    it again.
    """
    marks = archive.ledger.get_meta(f"looked-through {journal.root.name}")
    positions, file_ends = msgspec.json.decode(marks or "[{}, {}]", type=tuple[dict[str, FilePosition], dict[str, str]])
    is_same = (
        not was_rewritten(positions, measure_files(journal.root))
        and read_file_ends(journal.root, positions) == file_ends
    )
    return positions if is_same else {}


def apply_to_archive(archive: Archive, journal: Journal, user: str, event_ids: Sequence[str]) -> list[str]:
    """Apply these tombstones to the archive: rewrite each run that holds a forgotten line or a copy of one.

    They count as applied (`Ledger.set_applied`) only when the caller has cleaned the index as well.
    """
    tombstone_events = [e for e in journal.read(type_=tombstones.EVENT_TYPE) if e.id in set(event_ids)]
    new_tombstones = tombstones.collect([*journal.read(type_=tombstones.KEY_EVENT_TYPE), *tombstone_events])
    return archive.scrub(_list_candidate_runs(archive, user, new_tombstones), new_tombstones)


def add_descendants(memories: Iterable[Memory], ids: Iterable[str]) -> list[Memory]:
    """Return the memories with these ids, and all that were made from them. memories: oldest first."""
    forgotten_ids = set(ids)
    selected = []
    for memory in memories:
        if memory.memory_id in forgotten_ids or forgotten_ids & set(memory.made_from):
            forgotten_ids.add(memory.memory_id)
            selected.append(memory)
    return selected


def add_versions(memories: Iterable[Memory], ids: Iterable[str]) -> set[str]:
    """Return these ids and, for the memory of a file, the ids of its earlier versions: a file is forgotten as a
    whole.
    """
    file_memories = {memory.memory_id: memory for memory in memories if memory.how == memory_events.FILE}
    all_ids: set[str] = set()
    open_ids = list(ids)
    while open_ids:
        memory_id = open_ids.pop()
        if memory_id not in all_ids:
            all_ids.add(memory_id)
            open_ids += file_memories[memory_id].made_from if memory_id in file_memories else ()
    return all_ids


def list_memories_from(memories: Iterable[Memory], targets: Sequence[ForgetTarget]) -> list[str]:
    """Return the ids of the memories that were made from something that is about to be forgotten."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for target in targets:
        ranges.setdefault(target.run.run_id, []).extend(target.ranges)
    return [m.memory_id for m in memories if any(_has_overlap(span, ranges.get(span.run_id, ())) for span in m.sources)]


def _has_overlap(span: Span, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(span.from_offset < high and low < span.to_offset for low, high in ranges)


def has_no_overlap(_: Span) -> bool:
    """Return False: nothing of these bytes was forgotten."""
    return False


class ForgottenItems(msgspec.Struct, frozen=True):
    """Everything of one user that is forgotten, as memories and floor pages refer to it."""

    tombstones: Tombstones
    memory_ids: frozenset[str] = frozenset()  # ids, also of memories that were made from forgotten ones
    is_forgotten: Callable[[Span], bool] = has_no_overlap  # True if some of these bytes were forgotten


def collect_forgotten(archive: Archive, journal: Journal) -> ForgottenItems:
    """Collect what all tombstones of a user add up to.

    A memory is forgotten with any of the turns behind it, with any memory that it was made from, and with its
    own words if these were forgotten after they were stated.
    """
    tombstones, forgotten_ranges = load_tombstones(journal), _ForgottenRanges(archive)
    operations = (
        [op for event in journal.read(type_=memory_events.EVENT_TYPE) for op in event.data["ops"]] if tombstones else []
    )
    return ForgottenItems(
        tombstones,
        frozenset(_find_forgotten_memories(operations, tombstones, forgotten_ranges)),
        forgotten_ranges.is_forgotten,
    )


def apply_to_memories(journal: Journal, forgotten: ForgottenItems) -> list[str]:
    """Remove the forgotten memories from the journal's events.

    Returns the runs in which they were stated, so that the rest of these runs can be read again.
    """
    if not forgotten.memory_ids:
        return []
    operations = [op for event in journal.read(type_=memory_events.EVENT_TYPE) for op in event.data["ops"]]

    def drop_forgotten(event: JournalEvent) -> dict[str, Any] | None:
        remaining_ops = [op for op in event.data["ops"] if op["id"] not in forgotten.memory_ids]
        if len(remaining_ops) == len(event.data["ops"]):
            return None
        return {**{name: value for name, value in event.data.items() if name != "batch"}, "ops": remaining_ops}

    journal.rewrite(memory_events.EVENT_TYPE, drop_forgotten)
    return sorted(
        {
            span.run_id
            for op in operations
            if op["id"] in forgotten.memory_ids
            for span in memory_events.read_sources(op)
        }
    )


def _find_forgotten_memories(
    operations: Sequence[dict[str, Any]], tombstones: Tombstones, forgotten_ranges: _ForgottenRanges
) -> set[str]:
    """Return the ids of the forgotten memories, given all operations of a journal in their order."""
    memory_ids = set(tombstones.memories)
    for op in operations:
        if any(map(forgotten_ranges.is_forgotten, memory_events.read_sources(op))) or (
            op["op"] == "create" and _is_forgotten_statement(op, tombstones)
        ):
            memory_ids.add(op["id"])
    made_from = [(op["id"], set(op["made_from"])) for op in operations if op.get("made_from")]
    while descendants := {memory_id for memory_id, parents in made_from if parents & memory_ids} - memory_ids:
        memory_ids |= descendants
    return memory_ids


def _is_forgotten_statement(op: dict[str, Any], tombstones: Tombstones) -> bool:
    stated_at = memory_events.read_stated_at(op)
    return stated_at is not None and tombstones.is_forgotten_memory(op["text"], stated_at)


class _ForgottenRanges:
    """The forgotten ranges of each run; a run is looked up once."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._ranges: dict[str, tuple[tuple[int, int], ...]] = {}

    def is_forgotten(self, span: Span) -> bool:
        if span.run_id not in self._ranges:
            try:
                self._ranges[span.run_id] = self._archive.read_run(self._archive.get_entry(span.run_id)).forgotten
            except (NotFound, DamagedRun):
                self._ranges[span.run_id] = ()
        return _has_overlap(span, self._ranges[span.run_id])


def _list_candidate_runs(archive: Archive, user: str, tombstones: Tombstones) -> list[LedgerEntry]:
    """Return the runs that can hold forgotten text: those named, and those of the time at which it was said."""
    if tombstones.span_s is None:
        return list(archive.ledger.list_runs(user))
    named_entries = [
        entry
        for runtime, session, generation in tombstones.ranges
        for entry in archive.ledger.list_source_runs(Source(user, runtime, session, generation))
    ]
    near_entries = (
        archive.ledger.list_runs_between(user, *tombstones.span_s)
        if tombstones.hashes or tombstones.turn_by_native_id
        else []
    )
    return sorted(
        {entry.run_id: entry for entry in [*named_entries, *near_entries] if entry.change is not None}.values()
    )
