"""What keeps a home in order: the index and vectors that follow the archive, proofs, packs, merges, copies.

The archive is the truth; everything here can be interrupted and done again.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perdure import disk
from perdure.archive import archive, manifest
from perdure.archive.journal import record_all_writers, record_writers
from perdure.archive.manifest import ArchiveManifest, RunRecord
from perdure.captures import Captures
from perdure.connections import Connections, Progress
from perdure.errors import (
    ArchiveFault,
    Busy,
    DamagedRun,
    DiskFull,
    HomeMissing,
    IndexDamaged,
    IndexFault,
    IndexMissing,
    IndexUnreachable,
    PerdureError,
    ReadOnlyHome,
    StoreFault,
)
from perdure.identity import check_user
from perdure.index import catchup, embedded_texts, store
from perdure.types import Run

# Loaded where they are used: numpy and the models, and what only upkeep needs (verify, backup, rebuild, digest: 10 ms).
if TYPE_CHECKING:
    from perdure.archive.verify import VerifyResult
    from perdure.archive_store.exchange import StoreStatus
    from perdure.index.embed import FillResult
    from perdure.index.home_pictures import PictureResult
    from perdure.index.home_vectors import VectorStatus
    from perdure.index.pictures import PictureCounts
    from perdure.index.rebuild import RebuildResult

SEARCH_CATCH_UP_S = 1.0  # a search brings the index up to date for so long, then answers and says what is missing
_GROUP_RUNS, _GROUP_BYTES = 512, 32_000_000  # of another home, made durable together
UNSETTLED = "unsettled-merge"  # in the ledger, while what a merge brought may hold what was forgotten here


class Merged(msgspec.Struct, frozen=True):
    """What came in from another home."""

    n_runs: int
    n_events: int
    n_forgotten: int  # runs here that the other home's tombstones changed
    damaged: tuple[str, ...] = ()  # could not be taken: the bytes there are not those that were captured
    left_out: tuple[str, ...] = ()  # users of the other home who were not asked for
    n_without_effect: int = 0  # of the events: machines and grants, which count only in the home that made them


class TakenAgain(msgspec.Struct, frozen=True):
    """The result of taking in again what was missing or damaged."""

    run_ids: tuple[str, ...]  # whole again
    lost: tuple[RunRecord, ...]  # no transcript holds their bytes any more


class Upkeep:
    """The upkeep of one home.

    keep_statements: keeps what people state in new runs, for at most so many seconds; returns how many memories are
    new. apply_tombstones: applies what is recorded as forgotten and not yet applied; returns the changed runs.
    n_ignored_events: counts the journal's events of machines and grants of other homes.
    """

    def __init__(
        self,
        connections: Connections,
        captures: Captures,
        *,
        keep_statements: Callable[[float | None], int],
        apply_tombstones: Callable[[], list[str]],
        n_ignored_events: Callable[[], int],
    ) -> None:
        self._connections = connections
        self._captures = captures
        self._path = connections.path
        self._archive = connections.archive
        self._keep_statements = keep_statements
        self._apply_tombstones = apply_tombstones
        self._n_ignored_events = n_ignored_events

    # the index --------------------------------------------------------------------------------------------

    def catch_up(
        self,
        *,
        limit_s: float | None = None,
        progress: Progress | None = None,
        note: Callable[[catchup.ProjectedRun], None] | None = None,
        everyone: bool = False,
    ) -> catchup.CatchUpResult:
        """Bring the index up to date with the archive, making it if there is none; keep what new runs state.

        A home that is only read keeps the index that it has. note: gets each run. everyone: follow the journals of all
        users, not only the principal's.
        """
        if not self._connections.writable:
            return catchup.CatchUpResult(n_behind=self.count_behind())
        started_s, index = time.monotonic(), self._connections.index(create=True)
        user = None if everyone else self._connections.user
        result = catchup.catch_up(index, self._archive, limit_s=limit_s, progress=progress, on_run=note, user=user)
        if self.has_unread_captures():
            left_s = None if limit_s is None else max(0.0, limit_s - (time.monotonic() - started_s))
            with contextlib.suppress(Busy, DiskFull):  # another process is at it, or a later one has space
                result.n_memories += self._keep_statements(left_s)
        return result

    def catch_up_user(
        self, *, limit_s: float, note: Callable[[catchup.ProjectedRun], None] | None = None
    ) -> catchup.CatchUpResult:
        """Index what is new of the principal alone, whatever others captured before; keep what it states."""
        started_s, index, user = time.monotonic(), self._connections.index(create=True), self._connections.user
        result = catchup.catch_up_user(index, self._archive, user, limit_s=limit_s, on_run=note)
        if self.has_unread_captures():
            with contextlib.suppress(Busy, DiskFull):
                left_s = max(0.0, limit_s - (time.monotonic() - started_s))
                result.n_memories += self._keep_statements(left_s)
        return result

    def list_behind(self) -> list[str]:
        """Return the users of whom something was captured that is not indexed yet."""
        return catchup.list_behind(self._connections.index(create=True), self._archive)

    def count_behind(self, user: str = "") -> int:
        """Return how many runs of a user (the principal unless named) are not indexed yet."""
        index = self._connections.index(create=True)
        return catchup.count_unprojected(index, self._archive, user or self._connections.user)

    def has_unread_captures(self) -> bool:
        """Was anything captured that the rules of statements have not read? Asked before they load."""
        connections = self._connections
        if not (connections.writable and connections.config.memories.stated):
            return False
        read_until = int(self._archive.ledger.get_meta(f"stated:{connections.user}") or 0)
        return self._archive.ledger.get_last_change() > read_until

    def catch_up_after_capture(self) -> None:
        """Catch up for a moment; whatever is wrong with the index does not concern the capture.

        Statements are kept by whoever looks next: the rules take a tenth of a second to load.
        """
        connections = self._connections
        try:
            if connections.writable and (connections.has_index() or self._archive.ledger.get_last_change() <= 1):
                catchup.catch_up(connections.index(create=True), self._archive, limit_s=SEARCH_CATCH_UP_S)
                connections.embed_new(connections.index())
        except (IndexFault, PerdureError):
            return

    def catch_up_after_import(self) -> None:
        """Bring the index and the vectors up to an import; `search` says what is wrong with them."""
        with contextlib.suppress(IndexFault):
            self.catch_up()
            self._connections.embed_new(self._connections.index())

    def catch_up_for_search(self, index: store.IndexConnection, *, limit_s: float | None = None) -> int:
        """Archive and index what was captured, if possible; return how many captures cannot be found yet.

        limit_s: for somebody who waits: all of it within so many seconds, the session captured last first, and no
        model is loaded. Without it the outbox is emptied, and the index gets SEARCH_CATCH_UP_S. A home that is only
        read asks the one that writes in this process.
        """
        if self._connections.catch_up_elsewhere:
            self._connections.catch_up_elsewhere(SEARCH_CATCH_UP_S if limit_s is None else limit_s)
        elif self._connections.writable:
            with contextlib.suppress(DiskFull, ReadOnlyHome, Busy):  # what is there is searched all the same
                started_s = time.monotonic()
                self._captures.drain(limit_s=limit_s, newest_first=limit_s is not None)
                if limit_s is None:
                    self.catch_up(limit_s=SEARCH_CATCH_UP_S)
                    self.embed_new()
                else:
                    self.catch_up(limit_s=max(0.0, limit_s - (time.monotonic() - started_s)))
        n_unprojected = catchup.count_unprojected(index, self._archive, self._connections.user)
        return n_unprojected + self._captures.count_waiting()

    def index_for_search(self, *, limit_s: float | None = None) -> store.IndexConnection:
        """Return the index. Where there is none, archive the outbox; a home that held nothing gets its first index.

        limit_s: archive for at most so many seconds.
        """
        try:
            return self._connections.index()
        except IndexMissing:
            held_any = self._archive.ledger.count_all()[0] > 0
            with contextlib.suppress(DiskFull, ReadOnlyHome, Busy):  # what is archived is scanned all the same
                if self._connections.writable and self._captures.drain(limit_s=limit_s) and not held_any:
                    return self._connections.index(create=True)
            if self._connections.catch_up_elsewhere:
                self._connections.catch_up_elsewhere(SEARCH_CATCH_UP_S if limit_s is None else limit_s)
                return self._connections.index()
            raise

    def index_all(self) -> None:
        """Archive and index everything that was captured, where the home can be written."""
        if self._connections.writable:
            self._captures.drain()
            self.catch_up()

    def index_new_statements(self) -> None:
        """Keep, for a moment, what was stated in the last captures: the session that begins should know."""
        with contextlib.suppress(IndexFault, DiskFull, ReadOnlyHome, Busy):
            if self._connections.writable:
                self._captures.drain(limit_s=SEARCH_CATCH_UP_S, newest_first=True)
                if self.has_unread_captures():
                    self.catch_up(limit_s=SEARCH_CATCH_UP_S)

    def rebuild(self, *, progress: Progress | None = None) -> RebuildResult:
        """Make a new index beside the old one, with its vectors, prove that it answers the same, and swap."""
        from perdure.index.rebuild import rebuild_index

        self._captures.drain()
        self.collect_quietly()
        carry = self._connections.vectors().carry_over if self._connections.may_have_vectors() else None
        show = self._connections.pictures().fill_from_cache if self._connections.may_have_pictures() else None
        result = rebuild_index(
            self._path, self._connections.place, self._archive, carry=carry, carry_pictures=show, progress=progress
        )
        self._connections.index()
        if carry is not None:
            self._connections.vectors().delete_unused_slabs()
        return result

    def replace_index(self) -> None:
        """Make an index beside the old one and swap them: what the archive lost is in no page then.

        Others keep their vectors; pictures are read again. Raises Busy.
        """
        from perdure.index.rebuild import replace_index

        self._connections.close_index()
        replace_index(self._path, self._connections.place, self._archive)
        if self._connections.may_have_pictures():
            self._connections.pictures().delete_all()
        if self._connections.may_have_vectors():
            index = self._connections.index()
            with index.show_all():
                self._connections.vectors().keep_indexed(index)

    def digest(self) -> str:
        """Return the digest of everything the index says; equal in homes that hold the same."""
        from perdure.index.rebuild import compute_digest

        self.catch_up()
        catchup.catch_up_journals(self._connections.index(), self._archive)
        return compute_digest(self._connections.index())

    def drop_stale_index(self) -> None:
        """Make an index again that knows runs which a merge put elsewhere: it cannot unlearn them."""
        if not self._archive.ledger.get_meta("stale-index"):
            return
        self._connections.close_index()
        with contextlib.suppress(IndexUnreachable):  # the next opening does it
            self._make_index_again()

    def _make_index_again(self) -> None:
        from perdure.index.rebuild import RemovedNames, list_removed, record_removed

        had_index, removed = self._connections.has_index(), RemovedNames([], [])
        if had_index:
            with contextlib.suppress(IndexDamaged):
                removed = list_removed(self._connections.index())
        self._connections.delete_index()
        if had_index:
            self.catch_up()
            record_removed(self._connections.index(), removed)
            self._show_pictures()
            if self._connections.may_have_vectors():
                index = self._connections.index()
                with index.show_all():
                    self._connections.vectors().carry_over(None, index)
                self._connections.vectors().delete_unused_slabs()
        self._archive.ledger.drop_meta("stale-index")

    def drop_old_index(self) -> None:
        """Begin the index again if an older version made it.

        It is filled like that of a new home: for a moment at each search, and at once by the resident home and by
        commands that need all of it. The cache still has its vectors.
        """
        if self._connections.place.is_old():
            self._connections.close_index()
            self._connections.delete_index()
            self._connections.index(create=True)

    def clean_index(self) -> bool:
        """Project rewritten runs again and leave no old page behind; make a broken index again instead.

        Return False when another process kept an old page in use: the next opening cleans it.
        """
        try:
            if not self._connections.has_index():
                self._connections.place.delete()
                self.discard_derived()
                return True
            with disk.lock_file(self._path / ".rebuild.lock", wait_s=0.2):
                self._connections.place.delete_unused()
                with self._connections.index().show_all():
                    if catchup.catch_up(self._connections.index(), self._archive).n_behind:
                        return False
                    catchup.catch_up_journals(self._connections.index(), self._archive)
                    self._connections.index().checkpoint()
                    self._clean_pictures()
                    self._clean_vectors()
        except (Busy, IndexUnreachable):
            return False
        except IndexFault:
            self._connections.delete_index()
            self.discard_derived()
            self._connections.index(create=True)  # filled like that of a new home
        return True

    def _clean_pictures(self) -> None:
        """Leave no text of a picture that the index no longer holds. Raises Busy."""
        from perdure.index import pictures

        index = self._connections.index()
        if self._connections.may_have_pictures() or any(pictures.list_removed(index)):
            self._connections.pictures().delete_removed(index)
            index.checkpoint()

    def _clean_vectors(self) -> None:
        """Leave no vector of what the index no longer holds. Raises Busy."""
        if self._connections.may_have_vectors():
            self._connections.vectors().delete_removed(self._connections.index())
            self._connections.vectors().delete_unused_slabs()

    def discard_derived(self) -> None:
        """Delete all vectors and texts of pictures: without an index nothing says which are of something forgotten."""
        if self._connections.may_have_pictures():
            self._connections.pictures().delete_all()
        if self._connections.may_have_vectors():
            self._connections.vectors().delete_all()

    # vectors ----------------------------------------------------------------------------------------------

    def embed(
        self, *, most: int | None = None, limit_s: float | None = None, progress: Progress | None = None
    ) -> FillResult:
        """Give chunks their vectors, at most so many or for so many seconds; the next call goes on.

        progress gets (chunks done, all). Raises NotFound without an embedder, Busy while another process is at it,
        ModelFault when the model fails: then what was done until there stays.
        """
        self._captures.drain()
        self.catch_up()
        return self.embed_indexed(most=most, limit_s=limit_s, progress=progress)

    def embed_indexed(
        self, *, most: int | None = None, limit_s: float | None = None, progress: Progress | None = None
    ) -> FillResult:
        """Do the same for what is indexed already."""
        index, user = self._connections.index(), self._connections.user
        return self._connections.vectors().fill(index, user, max_chunks=most, limit_s=limit_s, progress=progress)

    def vector_status(self) -> VectorStatus:
        """Return how many chunks have vectors, and how many wait."""
        return self._connections.vectors().get_status(self._connections.index(), self._connections.user)

    def find_newest_unembedded(self, user: str) -> int:
        """Return the number of the newest chunk if vectors of this user may be missing, else 0."""
        index = self._connections.index()
        with index.show_all():
            return self._connections.vectors().find_newest_unembedded(index, user)

    def count_unembedded(self) -> int:
        """Count the chunks that still get a vector; 0 without an embedder."""
        return self._connections.vectors().count_unembedded(self._connections.index(), self._connections.user)

    def embed_new(self, user: str = "") -> None:
        """Where a user (the principal unless named) has vectors, embed their new chunks for a moment.

        Whatever fails is left to the next call.
        """
        connections = self._connections
        with connections.index().show_all():  # the worker does it for every user
            index = connections.index()
            if connections.may_have_vectors() and embedded_texts.has_new_chunks(index, user or connections.user):
                connections.embed_new(index, user)

    # pictures ---------------------------------------------------------------------------------------------

    def read_pictures(
        self,
        *,
        again: bool = False,
        most: int | None = None,
        limit_s: float | None = None,
        stop: Callable[[], bool] | None = None,
        progress: Progress | None = None,
    ) -> PictureResult:
        """Read the text in pictures of all users, at most so many or for so many seconds; the next call goes on.

        again: also those that could not be read before. progress gets (pictures done, all). Raises RuntimeMissing
        without an engine, Busy while another process is at it.
        """
        self._captures.drain()
        self.catch_up()
        index = self._connections.index()
        with index.show_all():
            return self._connections.pictures().read(
                index, self._archive, again=again, most=most, limit_s=limit_s, stop=stop, progress=progress
            )

    def count_pictures(self) -> PictureCounts:
        """Count the principal's pictures: read, not read, and those that cannot be read."""
        from perdure.index.pictures import count_pictures

        return count_pictures(self._connections.index(), self._connections.user)

    def _show_pictures(self) -> None:
        """Write the known texts of pictures into a new index."""
        if self._connections.may_have_pictures():
            index = self._connections.index()
            with index.show_all():
                self._connections.pictures().fill_from_cache(index)

    # the archive ------------------------------------------------------------------------------------------

    def verify(self, *, progress: Progress | None = None) -> VerifyResult:
        """Prove the archive, and its store if it has one; add to its manifest what that does not name yet."""
        from perdure.archive.verify import verify

        proof = verify(self._path, ledger_runs=self._archive.ledger.list_records(), progress=progress)
        self.list_new(proof)
        self.check_store(proof)
        return proof

    def check_store(self, proof: VerifyResult) -> None:
        """Read every object of the archive's store, and add to a proof what is wrong there."""
        exchange = self._connections.exchange()
        if exchange is not None:
            from perdure.archive_store.check import check_store

            proof.findings += check_store(exchange)

    def list_new(self, proof: VerifyResult) -> None:
        """Add to the manifest what a proof found and the manifest does not name: from now on its loss is noticed."""
        if self._connections.writable and proof.n_unlisted:
            with self._archive.block_writes():
                self._list_new(proof)

    def _list_new(self, proof: VerifyResult) -> None:
        proof.n_listed = self._archive.record_unlisted(proof.unlisted_runs)
        for user, events in proof.unlisted_events.items():
            known = ArchiveManifest(self._archive.root / manifest.FOLDER / user)
            unlisted = [event for event in events if not known.knows_event(event.key)]
            self._connections.journal(user).record_events(unlisted)
            proof.n_listed += len(unlisted)

    def accept_losses(self) -> int:
        """Expect no longer what is missing now: nobody has a copy. Return how many runs and events that are."""
        proof = self.verify()
        with self._archive.block_writes():
            self._archive.accept_losses(proof.missing_runs)
            for user, record in proof.lost_events:
                self._connections.journal(user).record([msgspec.structs.replace(record, removed=True)])
        if (exchange := self._connections.exchange()) is not None:
            exchange.publish(accept_losses=True)
        self.drop_stale_index()
        return len(proof.missing_runs) + len(proof.lost_events)

    def take_again(self, paths: Iterable[Path] | None = None, *, runtime: str | None = None) -> TakenAgain:
        """Take in again the principal's runs that are missing or damaged, from transcripts that still hold their bytes.

        paths: these files and folders, or every supported agent's own. Damaged files are set aside, never deleted.
        """
        proof = self.verify()
        if proof.lost_runs and self._fetch_again(proof.lost_runs):
            proof = self.verify()
        own_packs = self._archive.root / "packs" / self._connections.user
        for path in dict.fromkeys(path for path in proof.damaged_packs if path.parent == own_packs):
            self._archive.set_pack_aside(path)
        if proof.damaged_packs:
            proof = self.verify()
        lost = [record for record in proof.lost_runs if record.source.user == self._connections.user]
        taken = self._captures.take_again(lost, paths, runtime=runtime) if lost else []
        return TakenAgain(tuple(taken), tuple(record for record in lost if record.run not in taken))

    # its store --------------------------------------------------------------------------------------------

    def collect(self) -> int:
        """Merge what other machines put into the archive's store, if there is one; return how many objects.

        Raises StoreFault.
        """
        exchange = self._connections.exchange()
        return exchange.collect(lambda folder, users: self.merge(folder, users=users)) if exchange else 0

    def collect_quietly(self) -> None:
        """Collect if the store answers."""
        if self._connections.config.archive.store:
            with contextlib.suppress(StoreFault, Busy):
                self.collect()

    def exchange_quietly(self) -> None:
        """Collect what is new in the archive's store and put there what is new here, if it answers; else it waits."""
        if self._connections.config.archive.store:
            self.collect_quietly()
            self._connections.publish_quietly()

    def store_status(self) -> StoreStatus | None:
        """Return what is known of the archive's store; None where there is none. Asks only this disk."""
        exchange = self._connections.exchange()
        return exchange.get_status() if exchange else None

    def collect_first(self) -> None:
        """Take over an archive that other machines have filled, and index it: this machine has nothing of it yet."""
        with contextlib.suppress(StoreFault, Busy):
            if self.collect():
                self.catch_up()

    def publish(self) -> int:
        """Put everything new into the archive's store; return how many objects. Raises StoreFault."""
        exchange = self._connections.exchange()
        return exchange.publish() if exchange else 0

    def _fetch_again(self, lost: Iterable[RunRecord]) -> bool:
        """Take lost runs from the archive's store; return True if there is one and it answers."""
        exchange = self._connections.exchange()
        if exchange is None:
            return False
        exchange.known.drop_held_runs(record.run for record in lost)
        with contextlib.suppress(StoreFault):
            return self.collect() > 0
        return False

    def pack(self, *, idle_days: int | None = None, progress: Progress | None = None) -> tuple[int, int]:
        """Pack conversations that were idle for so many days; return how many (conversations, runs) were packed."""
        days = self._connections.config.archive.pack_after_days if idle_days is None else idle_days
        before_s = int(time.time()) - days * 86400 + (1 if days == 0 else 0)
        n_packs = n_runs = 0
        for user, runtime, conversation in self._archive.ledger.list_idle_conversations(before_s):
            n_packed = self._archive.pack(user, runtime, conversation)
            n_packs, n_runs = n_packs + bool(n_packed), n_runs + n_packed
            if progress:
                progress(n_packs, n_runs)
        return n_packs, n_runs

    def merge_words(self, should_stop: Callable[[], bool]) -> None:
        """Join the segments of the full-text index, so that searches take less; leave it to the next night if another
        process writes.
        """
        with contextlib.suppress(Busy, IndexFault, ReadOnlyHome):
            self._connections.index().merge_words(should_stop)

    def merge(self, other: Path, *, users: Collection[str] | None = None, progress: Progress | None = None) -> Merged:
        """Take everything of these users (the principal unless named) from another home's archive.

        In whatever order homes merge, they end the same. Machines and grants of the other home count for nothing here.
        """
        root, names = other / "archive", sorted({check_user(name) for name in users or (self._connections.user,)})
        try:
            archive.check_format(root)
        except FileNotFoundError as error:
            raise HomeMissing(str(other)) from error
        self._captures.drain()
        self._archive.ledger.set_meta(UNSETTLED, "yes")  # until what was forgotten on either side is gone on both
        n_ignored_before = self._n_ignored_events()
        n_events = sum(self._connections.journal(name).merge_from(root / "journal" / name) for name in names)
        n_without_effect = self._n_ignored_events() - n_ignored_before
        changed = self._apply_tombstones()
        damaged: list[str] = []
        n_runs = self._adopt_runs(root, names, damaged, progress)
        self.drop_stale_index()
        self._apply_tombstones()
        self._archive.ledger.drop_meta(UNSETTLED)
        left_out = tuple(name for name in archive.list_users(root) if name not in names)
        return Merged(n_runs, n_events, len(changed), tuple(damaged), left_out, n_without_effect)

    def _adopt_runs(self, root: Path, users: Iterable[str], damaged: list[str], progress: Progress | None) -> int:
        """Take the runs of these users; return how many changed anything here. damaged: gets the ids of bad runs."""
        tombstones, n_runs, n_seen = self._connections.tombstones(), 0, 0
        items = (item for name in users for item in archive.read_stored_runs(root, user=name, damaged=damaged))
        while group := _take_group(items):
            others = self._archive.adopt_new(group, tombstones)
            n_runs, n_seen = n_runs + len(group) - len(others), n_seen + len(group)
            for item in others:
                try:
                    n_runs += self._archive.adopt(item, tombstones)
                except DamagedRun:
                    damaged.append(item[0].run_id)
            if progress:
                progress(n_seen, n_runs)
        return n_runs

    def backup(
        self, target: Path, *, prove: bool = True, progress: Callable[[int], None] | None = None
    ) -> tuple[int, str]:
        """Write a backup and prove it by restoring it beside; return (size in bytes, digest)."""
        from perdure.archive import verify

        self._captures.drain()
        self.collect_quietly()
        with self._archive.block_writes():
            proof = verify.verify(self._path, ledger_runs=self._archive.ledger.list_records())
            if not proof.ok:
                raise ArchiveFault(f"{self._path}: not backed up, because {_describe_problems(proof)}")
            self._list_new(proof)
            record_writers(self._path)
            n_bytes = verify.write_backup(self._path, target, proof.digest, progress=progress)
        if prove:
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".perdure-prove-") as folder:
                restore(target, Path(folder) / "home")
        return n_bytes, proof.digest


def _take_group(items: Iterator[tuple[Run, bytes]]) -> list[tuple[Run, bytes]]:
    """Return the next runs that are made durable together."""
    group: list[tuple[Run, bytes]] = []
    n_bytes = 0
    for item in items:
        group.append(item)
        n_bytes += len(item[1])
        if len(group) >= _GROUP_RUNS or n_bytes >= _GROUP_BYTES:
            break
    return group


def _describe_problems(proof: VerifyResult) -> str:
    """Say how many problems a proof found, and name the first."""
    problems = [finding for finding in proof.findings if finding.severity == "problem"]
    more = f" (and {len(problems) - 1:,} more problems)" if len(problems) > 1 else ""
    return f"{problems[0].where}: {problems[0].what}{more}"


def restore(source: Path, target: Path) -> VerifyResult:
    """Make a home from a backup, and prove that it holds what was backed up. Raises ArchiveFault if not."""
    from perdure.archive import verify

    was_there = target.exists()
    try:
        digest = verify.restore_backup(source, target)
        proof = verify.verify(target)
        if not proof.ok or proof.digest != digest:
            raise ArchiveFault(f"{source}: the restored archive differs from the original")
        record_all_writers(target)
    except ArchiveFault:  # half a home would look like one; nothing was there before
        shutil.rmtree(target, ignore_errors=True)
        if was_there:
            disk.make_folder(target)
        raise
    return proof
