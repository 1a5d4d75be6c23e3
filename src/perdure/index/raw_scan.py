"""Index a part of the archive for one question, while there is no index. Slow and complete; the result says so.

The runs of the principal in which a word can occur come into an index in memory, and all runs of those who let the
principal read some: what may be read is decided there, as in the real index.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from perdure.archive.archive import Archive
from perdure.archive.store import LedgerEntry
from perdure.errors import DamagedRun
from perdure.index.catchup import project_run
from perdure.index.store import TemporaryIndex
from perdure.index.visibility import list_grants_in_force
from perdure.types import Principal

_N_LETTERS = 3  # first letters of a word that a run must hold: the index finds other endings, too


def build_temporary_index(archive: Archive, principal: Principal, terms: Sequence[str]) -> TemporaryIndex:
    """Return an index of the runs that may match these words, or of all runs without words. Close it after use."""
    index = TemporaryIndex()
    beginnings = _list_beginnings(index, terms)
    with index.begin_write():
        for entry in _list_runs(archive, principal):
            with contextlib.suppress(DamagedRun):  # `verify` reports it; the other runs are still searched
                if entry.user != principal.user or _can_match(archive.read(entry), beginnings):
                    project_run(index, archive, entry)
    return index


def _list_runs(archive: Archive, principal: Principal) -> Iterator[LedgerEntry]:
    """Yield the runs of a principal, and of those who share any."""
    owners = {grant.owner for grant in list_grants_in_force(principal, datetime.now(UTC))}
    for user in (principal.user, *sorted(owners)):
        yield from archive.ledger.list_runs(user)


def _list_beginnings(index: TemporaryIndex, terms: Sequence[str]) -> list[bytes]:
    """Return the first letters of each word; none if any run can match.

    JSON may escape what is not ASCII, so with such a word any run can.
    """
    words = [token for term in terms for token in index.tokenize(term)[:1]]
    return [word[:_N_LETTERS].encode() for word in words] if all(map(str.isascii, terms)) else []


def _can_match(stored_bytes: bytes, beginnings: Sequence[bytes]) -> bool:
    lowered = stored_bytes.lower()
    return not beginnings or any(beginning in lowered for beginning in beginnings)
