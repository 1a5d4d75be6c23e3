"""Rebuild: a new index beside the old one, proven to answer the same, then put in its place in one step.

The old index answers until the swap. A rebuild that was interrupted goes on where it was. The proof is a set of
queries drawn from the archive itself, asked of both: the same ids in the same order, and equal digests. An index
that is damaged, or of an older version, has no say; then only the new one is checked for completeness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.archive.archive import Archive
from perdure.capture.files import locked
from perdure.errors import IndexFault
from perdure.index import catchup, store
from perdure.index.digest import digest
from perdure.index.keyword import search
from perdure.types import Filters, Principal

_PROBES = 40  # queries asked of both indexes


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild did and proved."""

    n_runs: int
    n_chunks: int
    resumed: bool
    compared: bool  # whether there was an old index to compare with
    n_queries: int
    differing: tuple[str, ...]  # queries that the old index answered otherwise
    same_digest: bool
    damaged: tuple[str, ...]
    differing_vectors: tuple[str, ...] = ()  # chunks whose nearest neighbours are others now


Carry = Callable[[store.Connection | None, store.Connection], tuple[str, ...]]


def rebuild(
    home: Path, archive: Archive, *, carry: Carry | None = None, progress: Callable[[int, int], None] | None = None
) -> Rebuilt:
    """Build, compare and swap. Raises Busy when another process is rebuilding this home.

    carry: gives the new index (the second) the vectors that the old one had, and says what then differs.
    """
    with locked(home / ".rebuild.lock", wait_s=0.2):
        old = store.current(home)
        path, resumed = _unfinished(home, old)
        fresh = store.Connection(path, create=True)
        try:
            with fresh.writing():
                fresh.set_meta(building="yes")
            done = catchup.catch_up(fresh, archive, progress=progress)
            result = _compare(old, fresh, archive, done, resumed=resumed)
            if carry is not None:
                result = replace(result, differing_vectors=_carried(carry, old, fresh))
            with fresh.writing() as db:
                db.execute("DELETE FROM meta WHERE key = 'building'")
            fresh.checkpoint()
        finally:
            fresh.close()
        _swap(home, path)
        return result


def _unfinished(home: Path, old: Path | None) -> tuple[Path, bool]:
    """The file to build in: one that an interrupted rebuild left, or a new one; other left-overs go."""
    found = None
    for path in store.files(home):
        if path == old:
            continue
        if found is None and _is_unfinished(path):
            found = path
        else:
            store.remove([path])
    return (found, True) if found else (store.new_path(home), False)


def _is_unfinished(path: Path) -> bool:
    try:
        connection = store.Connection(path)
    except IndexFault:
        return False
    try:
        return connection.meta("building") == "yes"
    finally:
        connection.close()


def _compare(
    old: Path | None, fresh: store.Connection, archive: Archive, done: catchup.CaughtUp, *, resumed: bool
) -> Rebuilt:
    n_chunks = fresh.rows("SELECT count(*) FROM chunk")[0][0]
    n_runs = fresh.rows("SELECT count(*) FROM run WHERE thread = ''")[0][0]
    before = _readable(old)
    if before is None:
        return Rebuilt(n_runs, n_chunks, resumed, False, 0, (), True, done.damaged)
    try:
        catchup.catch_up(before, archive)
        probes = _probes(fresh)
        differing = tuple(q for user, q in probes if _answer(before, user, q) != _answer(fresh, user, q))
        same = digest(before) == digest(fresh)
    finally:
        before.close()
    return Rebuilt(n_runs, n_chunks, resumed, True, len(probes), differing, same, done.damaged)


def _carried(carry: Carry, old: Path | None, fresh: store.Connection) -> tuple[str, ...]:
    before = _readable(old)
    try:
        return carry(before, fresh)
    finally:
        if before is not None:
            before.close()


def _readable(path: Path | None) -> store.Connection | None:
    try:
        return store.Connection(path) if path else None
    except IndexFault:
        return None


def _probes(index: store.Connection) -> list[tuple[str, str]]:
    """(user, query): the beginnings of what people asked, spread over all runs."""
    rows = index.rows(
        """SELECT owner.value, intent FROM run JOIN name AS owner ON owner.id = run.user
           WHERE intent <> '' ORDER BY run_id"""
    )
    step = max(1, len(rows) // _PROBES)
    return [(user, " ".join(intent.split()[:8])) for user, intent in rows[::step]][:_PROBES]


def _answer(index: store.Connection, user: str, query: str) -> list[tuple[str, str]]:
    found = search(index, Principal(user), query, filters=Filters(), limit=20)
    return [(hit.turn_id, hit.run_id) for hit in found.hits]


def _swap(home: Path, path: Path) -> None:
    """Point index.db to the new file; the old ones go (who still reads them keeps them until they close)."""
    store.point_to(home, path)
    store.remove(p for p in store.files(home) if p != path)
