"""Catch up: project what the archive has and the index lacks, in order, in transactions of limited size.

Any process may do it; the one that holds the write lock works, and the others find the work done. One user's runs can
be projected before those of others that were captured earlier: the index keeps how far it has come, for all
(`change`) and, of the users who are ahead of that, for each (`change:` and the number of the user's name).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from msgspec import Struct

from perdure.archive.archive import Archive
from perdure.archive.store import LedgerEntry
from perdure.errors import Busy, DamagedRun, DiskFull
from perdure.index import store
from perdure.index.store import IndexConnection
from perdure.types import Run

_MAX_BATCH_RUNS = 2000
_MAX_BATCH_BYTES = 16_000_000  # of the archive, read in one transaction: about two seconds of work
_MAX_USER_BATCH_BYTES = 100_000  # of one user, while others wait for the same lock; larger runs go in parts
_PART_S = 0.5  # of one transaction of a large run


class ProjectedRun(Struct, frozen=True):
    """One run that was projected into the index, in numbers."""

    run: Run
    n_turns: int
    n_chunks: int
    n_malformed: int  # lines that their format does not allow
    took_ms: float


ProjectionCallback = Callable[[ProjectedRun], None]


class CatchUpResult(Struct):
    """The result of a catch-up."""

    n_runs: int = 0
    n_chunks: int = 0
    n_bytes: int = 0  # read from the archive
    n_memories: int = 0  # memory rows written
    n_behind: int = 0  # runs left to project when the time ran out
    damaged: tuple[str, ...] = ()  # runs that could not be read, by id


def count_unprojected(index: IndexConnection, archive: Archive, user: str | None = None) -> int:
    """Count the runs (of a user, or of all) that the index has not projected yet."""
    if user is not None:
        return archive.ledger.count_after(_get_user_position(index, archive, user), user)
    position = _get_ledger_position(index, archive)
    if not index.select("SELECT 1 FROM meta WHERE key LIKE 'change:%' LIMIT 1"):
        return archive.ledger.count_after(position)
    users = archive.ledger.find_newest_changes(position)
    return sum(archive.ledger.count_after(_get_user_position(index, archive, name), name) for name in users)


def list_behind(index: IndexConnection, archive: Archive) -> list[str]:
    """Return the users of whom the index has not projected every run."""
    newest_changes = archive.ledger.find_newest_changes(_get_ledger_position(index, archive))
    return [user for user, change in newest_changes.items() if change > _get_user_position(index, archive, user)]


def catch_up_user(
    index: IndexConnection,
    archive: Archive,
    user: str,
    *,
    limit_s: float,
    on_run: ProjectionCallback | None = None,
) -> CatchUpResult:
    """Project what is new of one user, and what their journal says; leave everybody else's to others.

    Each transaction is short, because all users wait for the same lock. The last user who catches up moves the
    position of all.
    """
    result, deadline_s = CatchUpResult(), time.monotonic() + limit_s
    while _project_batch_if_possible(index, archive, result, on_run, user):
        if time.monotonic() > deadline_s:
            break
    result.n_behind = count_unprojected(index, archive, user)
    with contextlib.suppress(Busy, DiskFull):
        result.n_memories = catch_up_journals(index, archive, user)
        if result.n_runs and not list_behind(index, archive):
            _join_positions(index, archive)
    return result


def _join_positions(index: IndexConnection, archive: Archive) -> None:
    """Move the position of all to the newest change, if every user has come so far."""
    with index.begin_write():
        newest_changes = archive.ledger.find_newest_changes(_get_ledger_position(index, archive))
        if newest_changes and not list_behind(index, archive):
            epoch = str(archive.ledger.get_meta("epoch"))
            index.set_meta(epoch=epoch, change=str(max(newest_changes.values())))
            index.db.execute("DELETE FROM meta WHERE key LIKE 'change:%'")


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
    index: IndexConnection,
    archive: Archive,
    result: CatchUpResult,
    on_run: ProjectionCallback | None,
    user: str | None = None,
) -> bool:
    """Project one batch; leave the rest to another process that holds the lock for long, or to a time with space."""
    try:
        return _project_batch(index, archive, result, on_run, user)
    except (Busy, DiskFull):
        result.n_behind = count_unprojected(index, archive)
        return False


def _get_ledger_position(index: IndexConnection, archive: Archive) -> int:
    """Return the last ledger change that was projected; 0 when the ledger was built again and counts
    differently.
    """
    is_same_ledger = index.get_meta("epoch") == archive.ledger.get_meta("epoch")
    return int(index.get_meta("change") or 0) if is_same_ledger else 0


def _get_user_position(index: IndexConnection, archive: Archive, user: str) -> int:
    """Return the last ledger change up to which all runs of a user were projected."""
    position, number = _get_ledger_position(index, archive), index.find_name("user", user)
    epoch, _, change = ((number is not None and index.get_meta(f"change:{number}")) or "").partition(" ")
    return max(position, int(change)) if change and epoch == archive.ledger.get_meta("epoch") else position


def _set_position(index: IndexConnection, archive: Archive, user: str | None, change: int) -> None:
    epoch = str(archive.ledger.get_meta("epoch"))
    if user is None:
        index.set_meta(epoch=epoch, change=str(change))
    else:
        index.set_meta(**{f"change:{index.add_name('user', user)}": f"{epoch} {change}"})


def _project_batch(
    index: IndexConnection,
    archive: Archive,
    result: CatchUpResult,
    on_run: ProjectionCallback | None,
    user: str | None,
) -> bool:
    """Project one transaction's worth of runs, of all or of one user; return False when nothing is left."""

    def get_position() -> int:
        is_of_all = user is None
        return _get_ledger_position(index, archive) if is_of_all else _get_user_position(index, archive, str(user))

    first_entries = archive.ledger.list_changes(get_position(), limit=1, user=user)
    if not first_entries:
        return False
    if user is not None and _is_large(first_entries[0]):
        _project_in_parts(index, archive, first_entries[0], result, on_run)
        return True
    from perdure.index.write import has_run, has_run_id, is_in_parts  # loaded only when there is something to project

    with index.begin_write():
        entries = archive.ledger.list_changes(get_position(), limit=_MAX_BATCH_RUNS, user=user)
        bytes_left, last_change = _MAX_BATCH_BYTES if user is None else _MAX_USER_BATCH_BYTES, 0
        for entry in entries:
            if bytes_left < 0 or (user is not None and _is_large(entry)):
                break
            try:
                is_whole = has_run_id(index, entry.run_id) and not is_in_parts(index, entry.run_id)
                if not (is_whole and has_run(index, archive.read_run(entry))):
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
            _set_position(index, archive, user, last_change)
    return True


def _is_large(entry: LedgerEntry) -> bool:
    return entry.to_offset - entry.from_offset > _MAX_USER_BATCH_BYTES


def _project_in_parts(
    index: IndexConnection,
    archive: Archive,
    entry: LedgerEntry,
    result: CatchUpResult,
    on_run: ProjectionCallback | None,
) -> None:
    """Project one large run of a user in transactions that others can wait for, and move the user's position."""
    from perdure.index import projection
    from perdure.index.write import has_run, has_run_id, is_in_parts, write_run_in_parts

    def is_valid() -> bool:
        """Was it forgotten, or rewritten by a merge, since it was read?"""
        present = archive.ledger.find_entry(entry.run_id)
        return present is not None and (present.change, present.sha256) == (entry.change, entry.sha256)

    started_s = time.perf_counter()
    try:
        is_whole = has_run_id(index, entry.run_id) and not is_in_parts(index, entry.run_id)
        if not (is_whole and has_run(index, archive.read_run(entry))):
            run, parsed = archive.read_turns(entry)
            archive.hold_typed_turns(entry, run, parsed)
            rows = projection.project_run(run, parsed)
            n_chunks = write_run_in_parts(index, run, parsed, rows, part_s=_PART_S, is_valid=is_valid)
            if n_chunks is None:
                return
            result.n_chunks, result.n_bytes = result.n_chunks + n_chunks, result.n_bytes + run.n_bytes
            result.n_runs += 1
            if on_run:
                took_ms = (time.perf_counter() - started_s) * 1000
                on_run(ProjectedRun(run, len(parsed.turns), n_chunks, len(parsed.malformed), took_ms))
    except DamagedRun:
        result.damaged = (*result.damaged, entry.run_id)
    with index.begin_write():
        _set_position(index, archive, entry.user, entry.change or 0)


def project_run(index: IndexConnection, archive: Archive, entry: LedgerEntry) -> ProjectedRun:
    """Write one run into the index. Raises DamagedRun."""
    from perdure.index import projection
    from perdure.index.write import write_run

    started_s = time.perf_counter()
    run, parsed = archive.read_turns(entry)
    archive.hold_typed_turns(entry, run, parsed)
    n_chunks = write_run(index, run, parsed, projection.project_run(run, parsed))
    took_ms = (time.perf_counter() - started_s) * 1000
    return ProjectedRun(run, len(parsed.turns), n_chunks, len(parsed.malformed), took_ms)
