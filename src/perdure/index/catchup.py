"""Catch up: project what the archive has and the index lacks, in order, in transactions of limited size.

Any process may do it; the one that holds the write lock works, and the others find the work done.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from perdure.archive.archive import Archive
from perdure.archive.store import LedgerEntry
from perdure.errors import Busy, DamagedRun, DiskFull
from perdure.index import store
from perdure.index.store import IndexConnection
from perdure.types import Run

_MAX_BATCH_RUNS = 2000
_MAX_BATCH_BYTES = 16_000_000  # of the archive, read in one transaction: about two seconds of work


@dataclass(frozen=True)
class ProjectedRun:
    """One run that was projected into the index, in numbers."""

    run: Run
    n_turns: int
    n_chunks: int
    n_malformed: int  # lines that their format does not allow
    took_ms: float


ProjectionCallback = Callable[[ProjectedRun], None]


@dataclass
class CatchUpResult:
    """The result of a catch-up."""

    n_runs: int = 0
    n_chunks: int = 0
    n_bytes: int = 0  # read from the archive
    n_memories: int = 0  # memory rows written
    n_behind: int = 0  # runs left to project when the time ran out
    damaged: tuple[str, ...] = ()  # runs that could not be read, by id


def count_unprojected(index: IndexConnection, archive: Archive, user: str | None = None) -> int:
    """Count the runs (of a user, or of all) that the index has not projected yet."""
    return archive.ledger.count_after(_get_ledger_position(index, archive), user)


def catch_up(
    index: IndexConnection,
    archive: Archive,
    *,
    limit_s: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    on_run: ProjectionCallback | None = None,
    user: str | None = None,
) -> CatchUpResult:
    """Project everything new; stop after `limit_s` seconds.

    progress: called with (runs, bytes) after each batch. on_run: called with each run that is projected.
    """
    result = CatchUpResult()
    deadline = time.monotonic() + limit_s if limit_s is not None else None
    while _project_batch_if_possible(index, archive, result, on_run):
        if progress:
            progress(result.n_runs, result.n_bytes)
        if deadline is not None and time.monotonic() > deadline:
            result.n_behind = count_unprojected(index, archive)
            break
    with contextlib.suppress(Busy, DiskFull):  # another process does it, or the next one with space
        result.n_memories = catch_up_journals(index, archive, user)
    return result


def catch_up_journals(index: IndexConnection, archive: Archive, user: str | None = None) -> int:
    """Bring memories (of one user, or of all) up to date with the journals; return how many rows were written.
    Raises Busy.
    """
    folders = store.list_changed_journals(index, archive.root / "journal", user)
    if not folders:
        return 0
    from perdure.index.apply_journals import apply_journals

    return apply_journals(index, folders)


def _project_batch_if_possible(
    index: IndexConnection, archive: Archive, result: CatchUpResult, on_run: ProjectionCallback | None
) -> bool:
    """Project one batch; leave the rest to another process that holds the lock for long, or to a time with space."""
    try:
        return _project_batch(index, archive, result, on_run)
    except (Busy, DiskFull):
        result.n_behind = count_unprojected(index, archive)
        return False


def _get_ledger_position(index: IndexConnection, archive: Archive) -> int:
    """Return the last ledger change that was projected; 0 when the ledger was built again and counts
    differently.
    """
    is_same_ledger = index.get_meta("epoch") == archive.ledger.get_meta("epoch")
    return int(index.get_meta("change") or 0) if is_same_ledger else 0


def _project_batch(
    index: IndexConnection, archive: Archive, result: CatchUpResult, on_run: ProjectionCallback | None
) -> bool:
    """Project one transaction's worth of runs; return False when nothing is left."""
    if not archive.ledger.list_changes(_get_ledger_position(index, archive), limit=1):
        return False
    from perdure.index.write import has_run, has_run_id  # loaded only when there is something to project

    with index.begin_write():
        entries = archive.ledger.list_changes(_get_ledger_position(index, archive), limit=_MAX_BATCH_RUNS)
        bytes_left, last_change = _MAX_BATCH_BYTES, 0
        for entry in entries:
            if bytes_left < 0:
                break
            try:
                if not (has_run_id(index, entry.run_id) and has_run(index, archive.read_run(entry))):
                    projected = project_run(index, archive, entry)
                    bytes_left -= projected.run.n_bytes
                    result.n_chunks += projected.n_chunks
                    result.n_bytes += projected.run.n_bytes
                    result.n_runs += 1
                    if on_run:
                        on_run(projected)
            except DamagedRun:
                result.damaged = (*result.damaged, entry.run_id)
            last_change = entry.change or last_change
        if last_change:
            index.set_meta(epoch=str(archive.ledger.get_meta("epoch")), change=str(last_change))
    return True


def project_run(index: IndexConnection, archive: Archive, entry: LedgerEntry) -> ProjectedRun:
    """Write one run into the index. Raises DamagedRun."""
    from perdure.index import projection
    from perdure.index.write import write_run

    started_s = time.perf_counter()
    run, parsed = archive.read_turns(entry)
    n_chunks = write_run(index, run, parsed, projection.project_run(run, parsed))
    took_ms = (time.perf_counter() - started_s) * 1000
    return ProjectedRun(run, len(parsed.turns), n_chunks, len(parsed.malformed), took_ms)
