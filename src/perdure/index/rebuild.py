"""Rebuild: write a new index beside the old one, prove that it answers the same, then replace the old one
in one step.

The old index answers until then. An interrupted rebuild resumes. The proof is a set of queries taken
from the archive itself and put to both: the same ids in the same order, and equal digests. An index
that is damaged, or of an older version, is not compared; then only the new one is checked for
completeness.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from perdure.archive.archive import Archive
from perdure.disk import lock_file
from perdure.errors import IndexFault
from perdure.index import catchup, store
from perdure.index.keyword import search
from perdure.index.store import IndexConnection
from perdure.types import Filters, Principal

_RUNS = """SELECT run_id, captured_in, thread, owner.value, runtime.value, machine.value, agent.value,
    nullif(project.value, ''), conversation.value, session, generation, from_offset, to_offset, started_ms, ended_ms,
    parent_run_id, parent_session, fork, title, intent, n_turns, n_user, n_assistant, n_tool, run.n_calls, n_tokens,
    n_forgotten
  FROM run JOIN name AS owner ON owner.id = run.user JOIN name AS runtime ON runtime.id = run.runtime
    JOIN name AS machine ON machine.id = run.machine JOIN name AS agent ON agent.id = run.agent
    JOIN name AS conversation ON conversation.id = run.conversation
    JOIN name AS project ON project.id = run.project
  ORDER BY run_id"""
_TURNS = """SELECT turn_id, copy_key, run.run_id, role, author, stated_ms, model, turn.n_tokens, is_summary, abandoned
  FROM turn JOIN run ON run.id = turn.run ORDER BY turn_id"""
_CHUNKS = """SELECT turn_id, n, kind.value, text FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id
    JOIN turn ON turn.id = chunk.turn JOIN name AS kind ON kind.id = chunk.kind AND kind.value <> 'picture'
  ORDER BY turn_id, n"""
_FACETS = """SELECT turn_id, kind, value FROM turn_facet JOIN facet ON facet.id = turn_facet.facet
    JOIN turn ON turn.id = turn_facet.turn ORDER BY turn_id, kind, value"""
_ACTION_FACTS = """SELECT turn_id, fact.n, fact.kind, text, detail, key FROM fact
    JOIN turn ON turn.id = fact.turn JOIN fact_key ON fact_key.fact = fact.id ORDER BY turn_id, fact.n, key"""

_MEMORIES = """SELECT owner.value, body FROM memory JOIN name AS owner ON owner.id = memory.user
  ORDER BY owner.value, memory_id"""
_MINED = """SELECT owner.value, source, from_offset, to_offset FROM mined JOIN name AS owner ON owner.id = mined.user
  ORDER BY owner.value, source, from_offset"""
_JUDGED = """SELECT owner.value, nonce FROM judged JOIN name AS owner ON owner.id = judged.user
  ORDER BY owner.value, nonce"""
_INJECTIONS = """SELECT owner.value, nonce, at_ms, session, n_turns, n_memories, n_used_turns, n_used_memories, used,
    body
  FROM injection JOIN name AS owner ON owner.id = injection.user ORDER BY owner.value, nonce"""
_TOLD_CUES = """SELECT owner.value, nonce, cue FROM told JOIN injection ON injection.id = told.injection
    JOIN name AS owner ON owner.id = told.user ORDER BY owner.value, nonce, cue"""
_MEASURED = """SELECT owner.value, place, at_ms, body FROM measured JOIN name AS owner ON owner.id = measured.user
  ORDER BY owner.value, place"""
_QUERIES = (
    _RUNS,
    _TURNS,
    _CHUNKS,
    _FACETS,
    _ACTION_FACTS,
    _MEMORIES,
    _MINED,
    _JUDGED,
    _INJECTIONS,
    _TOLD_CUES,
    _MEASURED,
)


def compute_digest(index: IndexConnection) -> str:
    """Return the digest of an index: 64 hex digits over its logical content, in whatever order it was written.

    Two homes with equal digests hold the same: runs, turns, texts, facets, facts of action, branches, memories,
    and what was mined, injected, used and measured, by their ids, without row numbers, times of capture or paths.
    Vectors and the texts of pictures do not count: they depend on what is installed here.
    """
    sha256 = hashlib.sha256()
    with index.show_all(), index.begin_read():
        for query in _QUERIES:
            for row in index.db.execute(query):
                sha256.update(repr(row).encode("utf-8", "surrogatepass"))
    return sha256.hexdigest()


_N_PROBES = 40  # queries put to both indexes


@dataclass(frozen=True)
class RebuildResult:
    """The result of a rebuild, and what it proved."""

    n_runs: int
    n_chunks: int
    resumed: bool
    compared: bool  # True if there was an old index to compare with
    n_queries: int
    differing: tuple[str, ...]  # queries that the old index answered differently
    same_digest: bool
    damaged: tuple[str, ...]
    differing_vectors: tuple[str, ...] = ()  # chunks whose nearest neighbours changed


class IndexPlace(Protocol):
    """Where the index of a home is: `store.IndexFolder`, or `index_database.IndexDatabase`."""

    def has_index(self) -> bool:
        """Return True if there is an index in use."""

    def is_old(self) -> bool:
        """Return True if an older version of Perdure made the index in use, and it is to be begun again."""

    def open(self, *, create: bool = False, writable: bool = True) -> store.IndexConnection:
        """Open the index in use."""

    def delete(self) -> None:
        """Delete every index of the home."""

    def delete_unused(self) -> None:
        """Delete the indexes that are not in use."""

    def begin_build(self) -> tuple[store.IndexConnection, bool]:
        """Return (an index beside the one in use, True if an earlier rebuild began it)."""

    def replace_with(self, index: Any) -> None:
        """Take an index into use and delete the others."""


CarryVectors = Callable[[store.IndexConnection | None, store.IndexConnection], tuple[str, ...]]
CarryPictures = Callable[[store.IndexConnection], object]


def rebuild_index(
    home: Path,
    place: IndexPlace,
    archive: Archive,
    *,
    carry: CarryVectors | None = None,
    carry_pictures: CarryPictures | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RebuildResult:
    """Build a new index, compare it with the old one and replace that. Raises Busy when another process
    rebuilds this home.

    carry: copies the vectors of the old index into the new index (its second argument); returns the chunks
    that then have other neighbours. carry_pictures: copies the texts of pictures from their cache into an index.
    """
    with lock_file(home / ".rebuild.lock", wait_s=0.2):
        new_index, is_resumed = place.begin_build()
        try:
            with new_index.begin_write():
                new_index.set_meta(building="yes")
            catch_up_result = catchup.catch_up(new_index, archive, progress=progress)
            if carry_pictures is not None:
                carry_pictures(new_index)
            result = _compare_indexes(place, new_index, archive, catch_up_result, is_resumed=is_resumed)
            result = replace(result, differing_vectors=_carry_over(carry, place, new_index))
            with new_index.begin_write() as db:
                db.execute("DELETE FROM meta WHERE key = 'building'")
            new_index.merge_words()
            new_index.checkpoint()
            place.replace_with(new_index)
        finally:
            new_index.close()
        return result


def replace_index(home: Path, place: IndexPlace, archive: Archive) -> None:
    """Make the index again of what the archive holds now, without a look at the old one, and swap them.

    Whoever asks meanwhile is answered by the old one; nothing of it is left then.
    """
    with lock_file(home / ".rebuild.lock"):
        place.delete_unused()  # it may hold what the archive no longer has
        index, _ = place.begin_build()
        try:
            catchup.catch_up(index, archive)
            catchup.catch_up_journals(index, archive)
            index.checkpoint()
            place.replace_with(index)
        finally:
            index.close()


def _compare_indexes(
    place: IndexPlace,
    new_index: store.IndexConnection,
    archive: Archive,
    catch_up_result: catchup.CatchUpResult,
    *,
    is_resumed: bool,
) -> RebuildResult:
    n_chunks = new_index.select("SELECT count(*) FROM chunk")[0][0]
    n_runs = new_index.select("SELECT count(*) FROM run WHERE thread = ''")[0][0]
    old_index = _open_or_none(place)
    if old_index is None:
        return RebuildResult(n_runs, n_chunks, is_resumed, False, 0, (), True, catch_up_result.damaged)
    try:
        catchup.catch_up(old_index, archive)
        probes = _choose_probes(new_index)
        differing = tuple(
            probe_query
            for user, probe_query in probes
            if _search_ids(old_index, user, probe_query) != _search_ids(new_index, user, probe_query)
        )
        has_same_digest = compute_digest(old_index) == compute_digest(new_index)
    finally:
        old_index.close()
    return RebuildResult(
        n_runs, n_chunks, is_resumed, True, len(probes), differing, has_same_digest, catch_up_result.damaged
    )


def _carry_over(carry: CarryVectors | None, place: IndexPlace, new_index: store.IndexConnection) -> tuple[str, ...]:
    """Give a new index what only the old one knows: which texts left it, and with `carry` its vectors."""
    old_index = _open_or_none(place)
    try:
        if old_index is not None:
            record_removed(new_index, list_removed(old_index))
        return carry(old_index, new_index) if carry else ()
    finally:
        if old_index is not None:
            old_index.close()


class RemovedNames(NamedTuple):
    """What left an index and may still be in the caches beside it."""

    texts: list[tuple[bytes]]  # hashes
    pictures: list[tuple[str]]  # digests


def list_removed(index: store.IndexConnection) -> RemovedNames:
    """Return what left an index since the caches were last cleaned."""
    with index.show_all():
        return RemovedNames(index.select("SELECT name FROM gone"), index.select("SELECT digest FROM gone_picture"))


def record_removed(index: store.IndexConnection, removed: RemovedNames) -> None:
    """Record in an index what left the one before it, so that the next cleaning still deletes it from the caches."""
    with index.begin_write() as db:
        db.executemany("INSERT INTO gone VALUES (?, 0) ON CONFLICT DO NOTHING", removed.texts)
        db.executemany("INSERT INTO gone_picture VALUES (?) ON CONFLICT DO NOTHING", removed.pictures)


def _open_or_none(place: IndexPlace) -> store.IndexConnection | None:
    try:
        return place.open()
    except IndexFault:
        return None


def _choose_probes(index: store.IndexConnection) -> list[tuple[str, str]]:
    """Return (user, query): the beginnings of first messages, spread over all runs."""
    rows = index.select(
        """SELECT owner.value, intent FROM run JOIN name AS owner ON owner.id = run.user
           WHERE intent <> '' ORDER BY run_id"""
    )
    step = max(1, len(rows) // _N_PROBES)
    return [(user, " ".join(intent.split()[:8])) for user, intent in rows[::step]][:_N_PROBES]


def _search_ids(index: store.IndexConnection, user: str, query: str) -> list[tuple[str, str]]:
    result = search(index, Principal(user), query, filters=Filters(), limit=20)
    return [(hit.turn_id, hit.run_id) for hit in result.hits]
