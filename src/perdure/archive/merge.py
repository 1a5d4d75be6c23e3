"""How captures of one session by several homes lie beside each other. Pure, and a function of the set of runs alone:
in whatever order homes meet, they end with the same runs.

Two homes may have captured one session at different moments, with other cuts, before and after its file was
rewritten, or on two machines on which it went on differently. What agrees stays under the session's own name; what
does not becomes a source of its own, `<session>~~<hash>`, in the same conversation.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from perdure.archive import metadata
from perdure.identity import run_id
from perdure.types import Run, Source

Stored = tuple[Run, bytes]  # a run with its bytes on disk

_ASIDE = re.compile(r"~~[0-9a-f]{12}\Z")


def base_of(session: str) -> str:
    """The session's own name, whether this source of it was put aside or not.

    >>> base_of("s~~0123456789ab")
    's'
    """
    return _ASIDE.sub("", session)


def is_aside(source: Source) -> bool:
    """Whether this source was put aside when homes merged."""
    return bool(_ASIDE.search(source.session))


def agree(one: Stored, other: Stored) -> bool:
    """Whether two captures of one source hold the same lines where both have some; a forgotten line fits any."""
    a, b = one[0], other[0]
    low, high = max(a.from_offset, b.from_offset), min(a.to_offset, b.to_offset)
    if low >= high or (a.from_offset, a.to_offset, a.sha256) == (b.from_offset, b.to_offset, b.sha256):
        return True
    ours, theirs = _between(one, low, high), _between(other, low, high)
    return ours.keys() == theirs.keys() and all(_same(ours[at], theirs[at]) for at in ours)


def _between(item: Stored, low: int, high: int) -> dict[int, tuple[bytes, int]]:
    """Offset → (line, where it ends) of the lines that are not empty, between two offsets."""
    lines = metadata.source_lines(*item)
    return {line.offset: (line.raw, min(end, high)) for line, end in lines if line.raw and low <= line.offset < high}


def _same(ours: tuple[bytes, int], theirs: tuple[bytes, int]) -> bool:
    forgotten = ours[0].startswith(metadata.FORGOTTEN) or theirs[0].startswith(metadata.FORGOTTEN)
    return ours[1] == theirs[1] if forgotten else ours[0] == theirs[0]


def united(one: Stored, other: Stored) -> Stored:
    """The better of two captures with one id that agree: the longer, or of two equal ones the metadata that was
    captured first; without anything that either of them forgot.
    """
    kept, spare = sorted((one, other), key=_rank)
    have = {line.offset: line.raw for line, _ in metadata.source_lines(*kept)}
    gone = {
        line.offset: line.raw[len(metadata.FORGOTTEN) : -2].decode()
        for line, _ in metadata.source_lines(*spare)
        if line.offset in dict(spare[0].forgotten) and line.raw.startswith(metadata.FORGOTTEN)
    }
    doomed = {offset: turn for offset, turn in gone.items() if not have[offset].startswith(metadata.FORGOTTEN)}
    if not doomed:
        return kept
    ranges, body = metadata.forget_lines(*kept, doomed)
    return replace(kept[0], forgotten=ranges, stored_sha256=hashlib.sha256(body).hexdigest()), body


def _rank(item: Stored) -> tuple[int, str, bytes]:
    run = item[0]
    plain = replace(run, forgotten=(), stored_sha256=None)
    return (-run.to_offset, run.captured_at.isoformat(), metadata.encode(plain))


def arrange(items: Iterable[Stored]) -> list[Stored]:
    """Where all runs of one session belong: each in the first row of runs that it agrees with.

    A row is one source. A run prefers the row that it continues, then the one that its machine captured.
    """
    rows: list[list[Stored]] = []
    for item in _longest(_put(item, base_of(item[0].source.session)) for item in items):
        fitting = [row for row in rows if all(agree(item, other) for other in row)]
        if fitting:
            min(fitting, key=lambda row: _distance(row, item)).append(item)
        else:
            rows.append([item])
    return [_put(item, _name(number, row)) for number, row in enumerate(rows) for item in row]


def _longest(items: Iterable[Stored]) -> list[Stored]:
    """The items without those that another with the same id continues, in an order of their own."""
    kept: dict[str, list[Stored]] = {}
    for item in sorted(items, key=_rank):
        same = kept.setdefault(item[0].run_id, [])
        place = next((n for n, other in enumerate(same) if agree(item, other)), None)
        if place is None:
            same.append(item)
        else:
            same[place] = united(same[place], item)
    found = [item for same in kept.values() for item in same]
    return sorted(found, key=lambda item: (item[0].from_offset, item[0].run_id, item[0].sha256))


def _distance(row: Sequence[Stored], item: Stored) -> tuple[bool, bool]:
    run = item[0]
    return (
        all(other.to_offset != run.from_offset for other, _ in row),
        all(other.machine != run.machine for other, _ in row),
    )


def _name(number: int, row: Sequence[Stored]) -> str:
    run = row[0][0]
    if number == 0:
        return run.source.session
    return f"{run.source.session}~~{hashlib.sha256(f'{run.from_offset} {run.sha256}'.encode()).hexdigest()[:12]}"


def _put(item: Stored, session: str) -> Stored:
    """The item as a run of this session."""
    run, stored = item
    source = Source(run.source.user, run.source.runtime, session, run.source.generation)
    return replace(run, source=source, run_id=run_id(source, run.from_offset, run.started_at)), stored
