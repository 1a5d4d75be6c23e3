"""Arrange the captures of one session that several homes made. Pure, and a function of the set of runs alone:
in whatever order homes meet, they end with the same runs.

Two homes may have captured one session at different moments and with other cuts, before and after its file
was rewritten, or on two machines on which it continued differently. What agrees stays under the session's
own name; what does not becomes a source of its own, `<session>~~<hash>`, in the same conversation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure.archive import run_files
from perdure.identity import make_run_id
from perdure.regex import lazy_re
from perdure.types import Run, Source

RunWithBytes = tuple[Run, bytes]  # a run with its bytes on disk

_ASIDE_SUFFIX = lazy_re(r"~~[0-9a-f]{12}\Z")


def to_base_session(session: str) -> str:
    """Return the session's own name, also for a source that was set aside.

    >>> to_base_session("s~~0123456789ab")
    's'
    """
    return _ASIDE_SUFFIX.sub("", session)


def is_set_aside(source: Source) -> bool:
    """Return True if this source was set aside when homes merged."""
    return bool(_ASIDE_SUFFIX.search(source.session))


def is_consistent(first: RunWithBytes, second: RunWithBytes) -> bool:
    """Return True if two captures of one source hold the same lines in the range of both; a forgotten line fits any."""
    first_run, second_run = first[0], second[0]
    low, high = max(first_run.from_offset, second_run.from_offset), min(first_run.to_offset, second_run.to_offset)
    if low >= high or (first_run.from_offset, first_run.to_offset, first_run.sha256) == (
        second_run.from_offset,
        second_run.to_offset,
        second_run.sha256,
    ):
        return True
    ours, theirs = _select_lines(first, low, high), _select_lines(second, low, high)
    return ours.keys() == theirs.keys() and all(_is_same_line(ours[offset], theirs[offset]) for offset in ours)


def _select_lines(pair: RunWithBytes, low: int, high: int) -> dict[int, tuple[bytes, int]]:
    """Return offset → (line, where it ends) of the lines between two offsets that are not empty."""
    lines = run_files.split_source_lines(*pair)
    return {line.offset: (line.raw, min(end, high)) for line, end in lines if line.raw and low <= line.offset < high}


def _is_same_line(ours: tuple[bytes, int], theirs: tuple[bytes, int]) -> bool:
    forgotten = ours[0].startswith(run_files.FORGOTTEN) or theirs[0].startswith(run_files.FORGOTTEN)
    return ours[1] == theirs[1] if forgotten else ours[0] == theirs[0]


def unite(first: RunWithBytes, second: RunWithBytes) -> RunWithBytes:
    """Return the better of two captures that have one id and agree, without anything that either of them forgot.

    The longer one is better; of two equal ones, the metadata that was captured first.
    """
    better, worse = sorted((first, second), key=_to_rank)
    line_by_offset = {line.offset: line.raw for line, _ in run_files.split_source_lines(*better)}
    forgotten_turns = {
        line.offset: line.raw[len(run_files.FORGOTTEN) : -2].decode()
        for line, _ in run_files.split_source_lines(*worse)
        if line.offset in dict(worse[0].forgotten) and line.raw.startswith(run_files.FORGOTTEN)
    }
    new_turns = {
        offset: turn
        for offset, turn in forgotten_turns.items()
        if not line_by_offset[offset].startswith(run_files.FORGOTTEN)
    }
    if not new_turns:
        return better
    ranges, body = run_files.forget_lines(*better, new_turns)
    return replace(better[0], forgotten=ranges, stored_sha256=hashlib.sha256(body).hexdigest()), body


def _to_rank(pair: RunWithBytes) -> tuple[int, str, bytes]:
    run = pair[0]
    plain_run = replace(run, forgotten=(), stored_sha256=None)
    return (-run.to_offset, run.captured_at.isoformat(), run_files.encode_run(plain_run))


def arrange(pairs: Iterable[RunWithBytes]) -> list[RunWithBytes]:
    """Arrange all runs of one session: put each into the first row of runs that it agrees with.

    A row is one source. A run prefers the row that it continues, then the row that its machine captured.
    """
    rows: list[list[RunWithBytes]] = []
    for pair in _drop_continued(_move_to_session(pair, to_base_session(pair[0].source.session)) for pair in pairs):
        fitting_rows = [row for row in rows if all(is_consistent(pair, row_pair) for row_pair in row)]
        if fitting_rows:
            min(fitting_rows, key=lambda row: _measure_distance(row, pair)).append(pair)
        else:
            rows.append([pair])
    return [_move_to_session(pair, _name_source(number, row)) for number, row in enumerate(rows) for pair in row]


def _drop_continued(pairs: Iterable[RunWithBytes]) -> list[RunWithBytes]:
    """Drop each run that another run with the same id continues; return the others in a fixed order."""
    pairs_by_id: dict[str, list[RunWithBytes]] = {}
    for pair in sorted(pairs, key=_to_rank):
        same_id_pairs = pairs_by_id.setdefault(pair[0].run_id, [])
        position = next((n for n, known_pair in enumerate(same_id_pairs) if is_consistent(pair, known_pair)), None)
        if position is None:
            same_id_pairs.append(pair)
        else:
            same_id_pairs[position] = unite(same_id_pairs[position], pair)
    longest = [pair for same_id_pairs in pairs_by_id.values() for pair in same_id_pairs]
    return sorted(longest, key=lambda pair: (pair[0].from_offset, pair[0].run_id, pair[0].sha256))


def _measure_distance(row: Sequence[RunWithBytes], pair: RunWithBytes) -> tuple[bool, bool]:
    run = pair[0]
    return (
        all(row_run.to_offset != run.from_offset for row_run, _ in row),
        all(row_run.machine != run.machine for row_run, _ in row),
    )


def _name_source(number: int, row: Sequence[RunWithBytes]) -> str:
    run = row[0][0]
    if number == 0:
        return run.source.session
    return f"{run.source.session}~~{hashlib.sha256(f'{run.from_offset} {run.sha256}'.encode()).hexdigest()[:12]}"


def _move_to_session(pair: RunWithBytes, session: str) -> RunWithBytes:
    """Return the run as a run of this session, with the id that follows from it."""
    run, stored_bytes = pair
    source = Source(run.source.user, run.source.runtime, session, run.source.generation)
    return replace(run, source=source, run_id=make_run_id(source, run.from_offset, run.started_at)), stored_bytes
