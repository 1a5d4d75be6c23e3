"""Catching up: project what the archive has and the index has not, in order, in transactions of bearable size.

Any process may do it; the one that holds the write lock works, the others find the work done.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from perdure.archive.archive import Archive
from perdure.archive.store import Held
from perdure.errors import Busy, DamagedRun
from perdure.index import journals
from perdure.index.store import Connection
from perdure.types import Run

_BATCH_RUNS = 2000
_BATCH_BYTES = 16_000_000  # of archive read in one transaction: about two seconds of work


@dataclass(frozen=True)
class Projected:
    """One run on its way into the index, in numbers."""

    run: Run
    n_turns: int
    n_chunks: int
    n_malformed: int  # lines that are not what their format allows
    took_ms: float


Note = Callable[[Projected], None]


@dataclass
class CaughtUp:
    """What a catch-up did."""

    n_runs: int = 0
    n_chunks: int = 0
    n_bytes: int = 0  # of archive read
    n_memories: int = 0  # rows of memories that were written
    n_behind: int = 0  # runs still to project when time ran out
    damaged: tuple[str, ...] = ()  # runs that could not be read, by id


def behind(index: Connection, archive: Archive, user: str | None = None) -> int:
    """How many runs (of a user, or of all) the index has not projected yet."""
    return archive.ledger.count_after(_position(index, archive), user)


def catch_up(
    index: Connection,
    archive: Archive,
    *,
    limit_s: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    note: Note | None = None,
    user: str | None = None,
) -> CaughtUp:
    """Project everything new; stop after `limit_s` seconds. progress gets (runs, bytes) after each batch, note each
    run as it is projected.
    """
    done = CaughtUp()
    deadline = time.monotonic() + limit_s if limit_s is not None else None
    while _turn(index, archive, done, note):
        if progress:
            progress(done.n_runs, done.n_bytes)
        if deadline is not None and time.monotonic() > deadline:
            done.n_behind = behind(index, archive)
            break
    with contextlib.suppress(Busy):  # another process is at it
        done.n_memories = follow_journals(index, archive, user)
    return done


def follow_journals(index: Connection, archive: Archive, user: str | None = None) -> int:
    """Bring memories (of one user, or of all) up to the journals; returns how many rows were written. Raises Busy."""
    folders = journals.behind(index, archive.root / "journal", user)
    if not folders:
        return 0
    from perdure.index.follow import follow

    return follow(index, folders)


def _turn(index: Connection, archive: Archive, done: CaughtUp, note: Note | None) -> bool:
    """One batch; when another process is at it for long, leave the rest to it."""
    try:
        return _batch(index, archive, done, note)
    except Busy:
        done.n_behind = behind(index, archive)
        return False


def _position(index: Connection, archive: Archive) -> int:
    """The last change that was projected; 0 when the ledger was made anew and counts differently now."""
    same = index.meta("epoch") == archive.ledger.meta("epoch")
    return int(index.meta("change") or 0) if same else 0


def _batch(index: Connection, archive: Archive, done: CaughtUp, note: Note | None) -> bool:
    """Project one transaction's worth; False when nothing is left."""
    if not archive.ledger.changes(_position(index, archive), limit=1):
        return False
    from perdure.index.write import has, knows  # what is needed for projecting is loaded where something is new

    with index.writing():
        helds = archive.ledger.changes(_position(index, archive), limit=_BATCH_RUNS)
        budget, last = _BATCH_BYTES, 0
        for held in helds:
            if budget < 0:
                break
            try:
                if not (knows(index, held.run_id) and has(index, archive.run(held))):
                    projected = _project(index, archive, held)
                    budget -= projected.run.n_bytes
                    done.n_chunks += projected.n_chunks
                    done.n_bytes += projected.run.n_bytes
                    done.n_runs += 1
                    if note:
                        note(projected)
            except DamagedRun:
                done.damaged = (*done.damaged, held.run_id)
            last = held.change or last
        if last:
            index.set_meta(epoch=str(archive.ledger.meta("epoch")), change=str(last))
    return True


def _project(index: Connection, archive: Archive, held: Held) -> Projected:
    """Write one run into the index."""
    from perdure.formats.of_run import parse_run, without_injected
    from perdure.index.project import project
    from perdure.index.write import write_run

    started_s = time.perf_counter()
    run, lines = archive.load(held)
    parsed = without_injected(parse_run(run, lines), partial(archive.injected, run))
    n_chunks = write_run(index, run, parsed, project(run, parsed))
    took_ms = (time.perf_counter() - started_s) * 1000
    return Projected(run, len(parsed.turns), n_chunks, len(parsed.malformed), took_ms)
