"""Forget: from what a person points at to the last byte of it. Selection and preview; then one journal event that
is the commit; then everything that holds a copy is rewritten. Interrupted, it is finished at the next opening.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure import text
from perdure.access.redact import mask
from perdure.archive import tombstones as tombs
from perdure.archive.archive import Archive
from perdure.archive.journal import Journal
from perdure.archive.metadata import FORGOTTEN, source_lines
from perdure.archive.store import Held
from perdure.formats.of_run import parse_run
from perdure.identity import turn_id
from perdure.types import Line, Run, Source, Turn

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
    run = archive.run(held)
    lines = list(source_lines(run, archive.read(held)))
    return run, lines, parse_run(run, [line for line, _ in lines]).turns


def _of_turn(run: Run, turn: Turn, lines: Sequence[tuple[Line, int]]) -> Doomed:
    ends = {line.offset: end for line, end in lines}
    ranges = tuple((low, ends.get(low, high)) for low, high in turn.lines)
    return Doomed(turn_id(run.source, turn.offset), run, ranges, turn)


def record(journal: Journal, doomed: Sequence[Doomed], *, now: datetime) -> list[str]:
    """Write the tombstones: from here on these turns are gone. Returns the ids of the events."""
    key = _key(journal, now)
    items = [_described(item, key) for item in doomed]
    parts = [items[i : i + _EVENT_TURNS] for i in range(0, len(items), _EVENT_TURNS)]
    return [journal.append(tombs.TYPE, {"turns": part}, now=now).id for part in parts]


def _key(journal: Journal, now: datetime) -> bytes:
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


def load(journal: Journal) -> tombs.Tombstones:
    """All tombstones of a user."""
    return tombs.collect([*journal.read(type_=tombs.KEY_TYPE), *journal.read(type_=tombs.TYPE)])


def unapplied(archive: Archive, journal: Journal) -> list[str]:
    """Ids of tombstones that have not been applied to everything captured before them."""
    done = archive.ledger.applied()
    return [event.id for event in journal.read(type_=tombs.TYPE) if event.id not in done]


def apply(archive: Archive, journal: Journal, user: str, event_ids: Sequence[str]) -> list[str]:
    """Apply these tombstones to the archive: rewrite each run that holds a forgotten line or a copy of one.

    They count as applied (`Ledger.set_applied`) only when the caller has cleaned the index as well.
    """
    events = [e for e in journal.read(type_=tombs.TYPE) if e.id in set(event_ids)]
    found = tombs.collect([*journal.read(type_=tombs.KEY_TYPE), *events])
    return archive.scrub(_candidates(archive, user, found), found)


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
