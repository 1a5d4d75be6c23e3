"""Which of two captures of the same range stays in its place when homes merge. Pure and symmetric.

Two homes may have captured one session at different moments, or before and after its file was rewritten.
Whatever the order in which homes meet, they must end with the same runs.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from perdure.archive import metadata
from perdure.identity import run_id
from perdure.types import Run, Source

Stored = tuple[Run, bytes]  # a run with its bytes on disk


def settle(ours: Stored, theirs: Stored) -> tuple[Stored, Stored | None]:
    """(what stays under the common id, what moves to a source of its own or None).

    The longer of two that agree stays; of two equal ones the metadata that was captured first; of two that
    differ the one whose first differing line sorts first, and the other becomes `<session>~<hash of that line>`.
    """
    split = _first_difference(ours, theirs)
    if split is None:
        return (ours if _rank(ours) <= _rank(theirs) else theirs), None
    our_line, their_line = split
    if our_line <= their_line:
        return ours, _moved(theirs, their_line)
    return theirs, _moved(ours, our_line)


def _rank(item: Stored) -> tuple[int, str, bytes]:
    run = item[0]
    plain = replace(run, forgotten=(), stored_sha256=None)
    return (-run.to_offset, run.captured_at.isoformat(), metadata.encode(plain))


def _first_difference(ours: Stored, theirs: Stored) -> tuple[bytes, bytes] | None:
    """The first lines at which two captures differ, or None when one continues the other.

    A forgotten line agrees with anything that ends where it ended.
    """
    if ours[0].to_offset == theirs[0].to_offset and ours[0].sha256 == theirs[0].sha256:
        return None
    for (a, a_end), (b, b_end) in zip(metadata.source_lines(*ours), metadata.source_lines(*theirs), strict=False):
        forgotten = a.raw.startswith(metadata.FORGOTTEN) or b.raw.startswith(metadata.FORGOTTEN)
        last = min(ours[0].to_offset, theirs[0].to_offset)
        same_end = a_end == b_end or max(a_end, b_end) == last + 1 or min(a_end, b_end) == last
        if not same_end or (a.raw != b.raw and not forgotten):
            return a.raw, b.raw
    return None


def _moved(item: Stored, line: bytes) -> Stored:
    run, stored = item
    name = f"{run.source.session}~{hashlib.sha256(line).hexdigest()[:12]}"
    source = Source(run.source.user, run.source.runtime, name, run.source.generation)
    return replace(run, source=source, run_id=run_id(source, run.from_offset, run.started_at)), stored
