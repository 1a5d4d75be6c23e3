"""Prove an archive's store: read its logs from the beginning, and every object that they name."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.archive.verify import ArchiveFinding
from perdure.archive_store import log
from perdure.archive_store.exchange import StoreExchange
from perdure.errors import DamagedStore, StoreFault

_PUT_AGAIN = "`perdure store` puts it there again from this machine, if this machine has it whole"
_WAITS = "nothing to do: it goes there when the store answers; `perdure store` tries now"


def check_store(exchange: StoreExchange) -> list[ArchiveFinding]:
    """Return what is wrong in the store. What was replaced there must be gone: if not, it is deleted."""
    findings: list[ArchiveFinding] = []
    try:
        findings += _check_logs(exchange)
        findings += _check_objects(exchange)
    except StoreFault as error:
        findings.append(ArchiveFinding("problem", exchange.address, f"not checked: {error}", _WAITS))
    waiting = exchange.get_waiting()
    if waiting.n_runs:
        description = f"{waiting.n_runs:,} runs are only on this machine yet"
        findings.append(ArchiveFinding("notice", exchange.address, description, _WAITS))
    return findings + list(_check_erased(exchange))


def _check_erased(exchange: StoreExchange) -> Iterator[ArchiveFinding]:
    """Yield each user of this machine whom another machine erased in the store."""
    erased_keys = set(exchange.known.list_erased())
    for user in exchange.list_local_users():
        if log.make_user_key(user) in erased_keys:
            description = "was erased in the store; what was captured before is on this machine only"
            advice = f"`perdure forget --everything --user {user}` erases it here, too"
            yield ArchiveFinding("notice", user, description, advice)


def _check_logs(exchange: StoreExchange) -> Iterator[ArchiveFinding]:
    """Yield each log that is broken, or shorter than it was read."""
    advice = "restore it in the store (a version or a backup of the bucket)"
    exchange.read_logs()
    for writer in exchange.known.list_writers():
        number, sha256, read_position = 0, "", exchange.known.get_position(writer)
        try:
            for entry, entry_sha256 in log.read_entries(exchange.objects, writer, 0, ""):
                number, sha256 = entry.number, entry_sha256
                if number == read_position[0]:
                    break
        except DamagedStore as error:
            yield ArchiveFinding("problem", f"log/{writer}", f"the log is damaged ({error.detail})", advice)
            continue
        if (number, sha256) != read_position:
            description = f"the log differs from what was read: entry {number:,} of {read_position[0]:,}"
            yield ArchiveFinding("problem", f"log/{writer}", description, advice)


def _check_objects(exchange: StoreExchange) -> Iterator[ArchiveFinding]:
    for stored in exchange.known.list_objects():
        if stored.is_gone:
            if exchange.objects.get(stored.name) is not None:
                exchange.objects.delete(stored.name)
                description = "it was replaced, and was still there; it is deleted now"
                yield ArchiveFinding("notice", stored.name, description, "nothing to do")
        elif exchange.fetch(stored) is None:
            fetched = exchange.known.get_object(stored.name)
            if not fetched.is_gone:
                yield ArchiveFinding("problem", stored.name, fetched.damage, _PUT_AGAIN)
