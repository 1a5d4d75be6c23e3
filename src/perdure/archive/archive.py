"""The archive: runs as captured bytes, durable before they are acknowledged, never overwritten.

Invariant: a run exists when its metadata file does (or when a pack holds it), and then its bytes exist
too. Writers take turns under one file lock; readers need no lock. Nothing here knows a transcript format:
where forgetting needs the turns of a line, the caller passes in a parser.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from perdure import disk
from perdure.archive import injections, manifest, merge, run_files
from perdure.archive.journal import Journal, get_writer_id
from perdure.archive.store import Ledger, LedgerEntry
from perdure.archive.tombstones import Tombstones
from perdure.capture.lines import Line, find_first_stamp, find_last_stamp
from perdure.capture.transcripts import count_complete_bytes
from perdure.errors import DamagedRun, DiskFull, NewerFormat, NotFound, UsageError
from perdure.formats.run_turns import remove_injected
from perdure.identity import check_user, get_run_month, get_run_time, make_run_id
from perdure.types import Origin, ParsedLines, Run, Source, Turn

FORMAT = 1
_CACHED_MANIFESTS = 8
_CACHED_TURN_BYTES = 4_000_000  # of runs, whose turns stay in memory: the index and the memories read them in turn
_HELD_RUNS = 500  # whose typed turns wait for the rules of statements
_MAX_HELD_CHARS = 10_000  # of such a run; one with more is parsed again
_MIN_CACHED_BYTES = 2_000  # that a run counts for: the objects of a small one are larger than its bytes
_FILL_RUNS = 5000  # rows in one transaction when the ledger is rebuilt
_PACK_BYTES = 512_000_000  # a conversation larger than this stays loose: a pack is rewritten in memory

QUARANTINE = "quarantine"  # in the archive: damaged files that were stored again, by user
_LOOSE_PATHS = (run_files.to_blob_path, run_files.to_metadata_path)

Outcome = Literal["stored", "already", "accepted", "diverged", "gap"]
ParseRun = Callable[[Run, Sequence[Line]], ParsedLines]


class Delta(msgspec.Struct, frozen=True):
    """Some bytes of a source on their way into the archive, with what is known about them."""

    origin: Origin
    user: str
    machine: str
    data: bytes
    from_offset: int = 0
    generation: int | None = None  # None: the latest
    agent: str = "default"
    project: str | None = None
    path: str | None = None
    tags: tuple[str, ...] = ()
    parent_run_id: str | None = None


class StoreResult(msgspec.Struct, frozen=True):
    """The result of storing one delta."""

    outcome: Outcome  # stored; already stored; accepted up to `to_offset` (send the rest); diverged; gap
    to_offset: int  # offset after the last byte that the archive holds of this source
    generation: int
    run_id: str | None = None  # of the new run, or of the run that already held the last of these bytes
    n_bytes: int = 0  # stored by this call


class Archive:
    """The archive of one home. Open it once per process; do not share it between threads."""

    def __init__(self, home: Path, *, parse: ParseRun, writable: bool = True) -> None:
        """Open the archive of a home; create it if it is missing.

        Raises NewerFormat, and changes nothing, when a newer Perdure wrote it.
        """
        self.root = home / "archive"
        self._parse = parse
        self._writable = writable
        self._manifests: dict[
            Path, tuple[tuple[int, int, int], run_files.Manifest, dict[str, run_files.PackedRun]]
        ] = {}
        self._tool_injections: dict[str, injections.ToolInjections] = {}  # by user
        self._turns: dict[tuple[str, int | None], tuple[Run, ParsedLines]] = {}  # by run id and change, oldest first
        self._n_cached_bytes = 0  # of these runs
        self._typed_turns: dict[tuple[str, int | None], tuple[Run, list[Turn]]] = {}  # the same; not taken yet
        self._check_format(writable=writable)
        self.ledger = Ledger(home / "cache" / "ledger.db", writable=writable)
        if self.ledger.is_new:
            with self._lock() if writable else contextlib.nullcontext():
                self._fill_ledger()

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()

    def _check_format(self, *, writable: bool) -> None:
        try:
            check_format(self.root)
        except FileNotFoundError:
            if writable:
                disk.make_folder(self.root)
                disk.replace_file(self.root / "FORMAT", f"{FORMAT}\n".encode())

    def block_writes(self) -> contextlib.AbstractContextManager[int]:
        """Let nobody write to the archive during this block, so that a copy shows one moment."""
        return self._lock()

    def _lock(self) -> contextlib.AbstractContextManager[int]:
        return disk.lock_file(self.root / ".lock", wait_s=300)

    # writing ----------------------------------------------------------------------------------------------

    def store(self, deltas: Sequence[Delta], *, now: datetime, tombstones: dict[str, Tombstones]) -> list[StoreResult]:
        """Store each delta and return one result for each. Stored bytes are durable when this returns.

        tombstones: for each user who has any. Deltas of one source must come in the order of their offsets.
        """
        with self._lock():
            self._repair()
            results: list[StoreResult] = []
            drafts: list[tuple[Run, bytes]] = []
            draft_sources: set[Source] = set()  # of the drafts
            for delta in deltas:
                source = self._choose_source(delta)
                if source in draft_sources:
                    self._commit(drafts)
                    drafts, draft_sources = [], set()
                result, draft = self._plan_delta(source, delta, now, tombstones.get(delta.user))
                if draft:
                    drafts.append(draft)
                    draft_sources.add(source)
                results.append(result)
            self._commit(drafts)
        return results

    def _choose_source(self, delta: Delta) -> Source:
        user, origin = check_user(delta.user), delta.origin
        latest = self.ledger.get_generation(user, origin.runtime, origin.session)
        generation = latest if delta.generation is None else delta.generation
        if generation > latest + 1:
            raise UsageError(
                f"generation {generation} of {origin.session} is not valid: the next generation is {latest + 1}"
            )
        return Source(user, origin.runtime, origin.session, generation)

    def _plan_delta(
        self, source: Source, delta: Delta, now: datetime, tombstones: Tombstones | None
    ) -> tuple[StoreResult, tuple[Run, bytes] | None]:
        """Decide the result for a delta; return it with the run to write, if there is one."""
        data, low = delta.data[: count_complete_bytes(delta.data)], delta.from_offset
        end = self.ledger.get_end(source)
        high = low + len(data)
        if low > end:
            return StoreResult("gap", end, source.generation), None
        if low < end and not self._has_same_bytes(source, data, low, min(high, end)):
            return StoreResult("diverged", end, source.generation), None
        if low < end or not data:
            outcome: Outcome = "accepted" if high > end else "already"
            return StoreResult(outcome, end, source.generation, self.find_holder(source, low, min(high, end))), None
        started_at = find_first_stamp(data) or self._read_time_before(source, delta.from_offset)
        run = self._make_run(source, delta, data, now, started_at)
        stored_bytes = data
        if tombstones:
            run, stored_bytes = self._remove_forgotten(run, data, tombstones)
        return StoreResult("stored", high, source.generation, run.run_id, len(data)), (run, stored_bytes)

    def find_holder(self, source: Source, low: int, high: int) -> str | None:
        """Return the id of the run that holds the last of the bytes [low, high) of a source."""
        entries = self.ledger.list_source_runs(source, low=low, high=high)
        return entries[-1].run_id if entries else None

    def _has_same_bytes(self, source: Source, data: bytes, low: int, high: int) -> bool:
        """Return True if the sent bytes equal the stored ones in [low, high).

        Compares whole runs by hash, and parts of a run by content.
        """
        for entry in self.ledger.list_source_runs(source, low=low, high=high):
            if entry.from_offset >= low and entry.to_offset <= low + len(data):
                sent_part = data[entry.from_offset - low : entry.to_offset - low]
                if hashlib.sha256(sent_part).hexdigest() != entry.sha256:
                    return False
            elif not run_files.has_same_bytes(self.read_run(entry), self.read(entry), data[: high - low], low):
                return False
        return True

    def _make_run(self, source: Source, delta: Delta, data: bytes, now: datetime, started_at: datetime | None) -> Run:
        """Make the metadata of a new run from everything that capture knows."""
        origin = delta.origin
        return Run(
            run_id=make_run_id(source, delta.from_offset, started_at),
            source=source,
            machine=delta.machine,
            agent=delta.agent,
            project=delta.project,
            conversation=origin.conversation,
            from_offset=delta.from_offset,
            to_offset=delta.from_offset + len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            started_at=started_at,
            ended_at=find_last_stamp(data) or started_at,
            captured_at=now,
            parent_run_id=delta.parent_run_id,
            parent_session=origin.parent_session,
            fork=origin.fork,
            path=delta.path,
            cwd=origin.cwd,
            tags=tuple(sorted(set(delta.tags))),
            readable_by=(source.user,),
        )

    def _read_time_before(self, source: Source, offset: int) -> datetime | None:
        """Return when the run before this offset ended: the time of a delta that has no time stamp of its own."""
        earlier_entries = self.ledger.list_source_runs(source, high=offset)
        return self.read_run(earlier_entries[-1]).ended_at if earlier_entries and offset else None

    def _remove_forgotten(self, run: Run, stored_bytes: bytes, tombstones: Tombstones) -> tuple[Run, bytes]:
        """Return the run and its bytes without the lines that the tombstones name."""
        lines = list(run_files.split_source_lines(run, stored_bytes))
        turns = self._parse(run, [line for line, _ in lines]).turns
        turn_by_offset = tombstones.find_forgotten_lines(run.source, lines, turns)
        marker_offsets = {line.offset for line, _ in lines if line.raw.startswith(run_files.FORGOTTEN)}
        forgotten_offsets = marker_offsets & dict(run.forgotten).keys()
        new_turns = {offset: turn for offset, turn in turn_by_offset.items() if offset not in forgotten_offsets}
        if not new_turns:
            return run, stored_bytes
        ranges, body = run_files.forget_lines(run, stored_bytes, new_turns)
        return replace(run, forgotten=ranges, stored_sha256=hashlib.sha256(body).hexdigest()), body

    def _commit(self, drafts: Sequence[tuple[Run, bytes]]) -> None:
        """Write the bytes, the intent in the ledger, the metadata (now the runs exist), and their numbers."""
        if not drafts:
            return
        runs = [run for run, _ in drafts]
        blob_paths = [self.root / run_files.to_blob_path(run.source.user, run.run_id) for run in runs]
        for folder in {blob_path.parent for blob_path in blob_paths}:
            disk.make_folder(folder)
        written_blobs: list[Path] = []
        try:
            self.ledger.begin(runs)
            for blob_path, (_, stored_bytes) in zip(blob_paths, drafts, strict=True):
                written_blobs.append(blob_path)
                disk.write_file(blob_path, stored_bytes, sync=False)
            disk.sync_files(blob_paths, root=self.root)
            self._commit_metadata(runs)
        except BaseException:
            self._undo_commit(runs, written_blobs)
            raise
        self._commit_numbers(runs)

    def _commit_numbers(self, runs: Sequence[Run], *, pack_path: str | None = None) -> None:
        """Record that these runs are stored: in the manifest, then in the ledger, which repeats both after a crash."""
        self._record(map(manifest.make_run_record, runs))
        self.ledger.commit(runs, pack_path=pack_path)

    def _record(self, records: Iterable[manifest.RunRecord]) -> None:
        """Add lines to the manifest. On a full disk `verify` does it later."""
        by_month: dict[tuple[str, str], list[manifest.RunRecord]] = {}
        for record in records:
            by_month.setdefault((record.source.user, get_run_month(record.run)), []).append(record)
        for (user, month), group in by_month.items():
            with contextlib.suppress(DiskFull):
                writer = get_writer_id(self.root.parent)
                manifest.append(self.root / manifest.FOLDER / user / writer / f"{month}.jsonl", group)

    def record_unlisted(self, runs: Iterable[Run]) -> int:
        """Add those of these runs to the manifest that it does not name and that are still stored; return how many.

        The caller blocks writes.
        """
        manifests: dict[str, manifest.ArchiveManifest] = {}
        unlisted = []
        for run in runs:
            user = run.source.user
            if user not in manifests:
                manifests[user] = manifest.ArchiveManifest(self.root / manifest.FOLDER / user)
            entry = self.ledger.find_entry(run.run_id)
            if not manifests[user].knows(run) and entry and entry.change is not None:
                unlisted.append(manifest.make_run_record(run))
        self._record(unlisted)
        return len(unlisted)

    def _commit_metadata(self, runs: Sequence[Run]) -> None:
        paths = [self.root / run_files.to_metadata_path(run.source.user, run.run_id) for run in runs]
        is_single = len(runs) == 1
        for path, run in zip(paths, runs, strict=True):
            disk.replace_file(path, run_files.encode_run(run), sync=is_single)
        if not is_single:
            disk.sync_files(paths, root=self.root)

    def _undo_commit(self, runs: Sequence[Run], blob_paths: Sequence[Path]) -> None:
        """Remove the files of a failed commit: nothing of it was acknowledged."""
        with contextlib.suppress(OSError):
            for run in runs:
                (self.root / run_files.to_metadata_path(run.source.user, run.run_id)).unlink(missing_ok=True)
            for blob_path in blob_paths:
                blob_path.unlink(missing_ok=True)

    def _repair(self) -> None:
        """Finish or undo the commits that a crash interrupted. The caller holds the lock."""
        lost_ids = []
        for entry in self.ledger.list_pending():
            self._finish_replacement(entry)
            path = self.root / run_files.to_metadata_path(entry.user, entry.run_id)
            for temporary in path.parent.glob(f".{path.name}.*.tmp"):
                temporary.unlink(missing_ok=True)
            try:
                self._commit_numbers([run_files.decode_run(path.read_bytes(), location=str(path))])
            except (FileNotFoundError, DamagedRun):  # never committed, or torn by a power cut before the commit
                self._delete_loose_files(entry)
                lost_ids.append(entry.run_id)
        if lost_ids:
            self.ledger.drop(lost_ids)

    def accept_losses(self, missing: Sequence[manifest.RunRecord]) -> None:
        """Expect these missing runs no longer. An index that holds them is stale. The caller blocks writes."""
        self._record(replace(record, removed=True) for record in missing)
        self.ledger.drop([record.run for record in missing])
        self.ledger.set_meta("stale-index", "yes")

    # taking in again --------------------------------------------------------------------------------------

    def store_again(
        self, record: manifest.RunRecord, delta: Delta, *, now: datetime, tombstones: dict[str, Tombstones]
    ) -> None:
        """Store a run that is missing or damaged from the bytes of its transcript, under its own id.

        Its damaged files are set aside; metadata that can be read stays. What was forgotten does not come back.
        """
        source = record.source
        started_at = find_first_stamp(delta.data) or get_run_time(record.run)
        run = self._make_run(source, delta, delta.data, now, started_at)
        with self._lock():
            self._repair()
            paths = [self.root / to_path(source.user, record.run) for to_path in _LOOSE_PATHS]
            with contextlib.suppress(DamagedRun, FileNotFoundError):
                stored_run = run_files.decode_run(paths[1].read_bytes(), location=record.run)
                if (stored_run.run_id, stored_run.sha256) == (record.run, record.sha256):
                    run = replace(stored_run, forgotten=(), stored_sha256=None)
            if run.run_id != record.run:
                raise DamagedRun(f"{record.run} (its bytes begin at another time)")
            user_tombstones = tombstones.get(source.user)
            pair = self._remove_forgotten(run, delta.data, user_tombstones) if user_tombstones else (run, delta.data)
            self._set_aside(source.user, paths)
            self.ledger.drop([record.run])
            self._commit([pair])

    def set_pack_aside(self, path: Path) -> None:
        """Set a damaged pack aside; every run of it that is whole becomes loose."""
        user = path.parent.name
        with self._lock():
            self._repair()
            self._commit([
                (run, stored_bytes)
                for run, stored_bytes in run_files.read_whole_runs(path)
                if hashlib.sha256(stored_bytes).hexdigest() == get_stored_sha256(run)
                and not (self.root / run_files.to_metadata_path(user, run.run_id)).exists()
            ])  # fmt: skip
            self._manifests.pop(path, None)
            self._set_aside(user, [path])

    def _set_aside(self, user: str, paths: Iterable[Path]) -> None:
        """Move damaged files to where nothing reads them; nothing is overwritten."""
        folder = self.root / QUARANTINE / user
        for path in (path for path in paths if path.exists()):
            disk.make_folder(folder)
            path.replace(folder / f"{path.name}.{secrets.token_hex(4)}")
            disk.sync_folder(path.parent)
            disk.sync_folder(folder)

    # reading ----------------------------------------------------------------------------------------------

    def get_entry(self, identifier: str) -> LedgerEntry:
        """Return the ledger entry of this run. Raises NotFound."""
        entry = self.ledger.find_entry(identifier)
        if entry is None or entry.change is None:
            raise NotFound(identifier)
        return entry

    def read_run(self, entry: LedgerEntry) -> Run:
        """Return the metadata of a run."""
        if not entry.pack_path:
            path = self.root / run_files.to_metadata_path(entry.user, entry.run_id)
            try:
                return run_files.decode_run(path.read_bytes(), location=str(path))
            except FileNotFoundError:
                entry = self._find_moved_entry(entry)
        return self._find_packed_run(entry).run

    def read(self, entry: LedgerEntry) -> bytes:
        """Return the stored bytes of a run: as captured, except for forgotten lines."""
        if not entry.pack_path:
            try:
                return (self.root / run_files.to_blob_path(entry.user, entry.run_id)).read_bytes()
            except FileNotFoundError:
                entry = self._find_moved_entry(entry)
        path = self.root / str(entry.pack_path)
        return run_files.read_packed_run(path, self._load_manifest(path)[1], self._find_packed_run(entry))

    def read_lines(self, entry: LedgerEntry) -> list[Line]:
        """Return the lines of a run with their offsets in the source."""
        return [line for line, _ in run_files.split_source_lines(self.read_run(entry), self.read(entry))]

    def read_checked(self, entry: LedgerEntry) -> merge.RunWithBytes:
        """Return a run and its bytes after checking that they belong together.

        Another process may rewrite them between two reads; then they are read again under the lock, so the caller
        must not hold it. Raises DamagedRun when the bytes are not those that were captured.
        """
        pair = self._read_if_valid(entry)
        if pair is None:
            with self._lock() if self._writable else contextlib.nullcontext():
                self._manifests.clear()
                pair = self._read_if_valid(self.ledger.find_entry(entry.run_id) or entry)
        if pair is None:
            raise DamagedRun(entry.run_id)
        return pair

    def read_injected_blocks(self, run: Run) -> dict[str, str]:
        """Return code -> digest of every block that recall put into the session of a run."""
        user = run.source.user
        journal = Journal(self.root / "journal" / user, home=self.root.parent)
        tool_injections = self._tool_injections.setdefault(user, injections.ToolInjections(journal))
        return {**tool_injections.read_digests(), **injections.read_block_digests(journal, run)}

    def read_checked_lines(self, entry: LedgerEntry) -> tuple[Run, list[Line]]:
        """Return a run and its lines with their offsets in the source, after checking that they belong together.

        Raises DamagedRun.
        """
        run, stored_bytes = self.read_checked(entry)
        return run, [line for line, _ in run_files.split_source_lines(run, stored_bytes)]

    def read_turns(self, entry: LedgerEntry) -> tuple[Run, ParsedLines]:
        """Return a run and its turns, without the text that recall put into its session. Raises DamagedRun.

        The newest runs are parsed once for all that need their turns.
        """
        key = entry.run_id, entry.change
        if key not in self._turns:
            run, lines = self.read_checked_lines(entry)
            self._turns[key] = run, remove_injected(self._parse(run, lines), partial(self.read_injected_blocks, run))
            self._n_cached_bytes += _count_cached_bytes(run)
            while len(self._turns) > 1 and self._n_cached_bytes > _CACHED_TURN_BYTES:
                oldest_run, _ = self._turns.pop(next(iter(self._turns)))
                self._n_cached_bytes -= _count_cached_bytes(oldest_run)
        return self._turns[key]

    def hold_typed_turns(self, entry: LedgerEntry, run: Run, parsed: ParsedLines) -> None:
        """Keep what persons typed in a run in memory until it is taken, so that an import parses each run once."""
        typed_turns = _list_typed(parsed)
        if sum(len(part.text) for turn in typed_turns for part in turn.parts) <= _MAX_HELD_CHARS:
            self._typed_turns[entry.run_id, entry.change] = run, typed_turns
        if len(self._typed_turns) > _HELD_RUNS:
            del self._typed_turns[next(iter(self._typed_turns))]

    def take_typed_turns(self, entry: LedgerEntry) -> tuple[Run, list[Turn]]:
        """Return a run and the turns that persons typed in it, and hold them no longer. Raises DamagedRun."""
        held = self._typed_turns.pop((entry.run_id, entry.change), None)
        if held is not None:
            return held
        run, parsed = self.read_turns(entry)
        return run, _list_typed(parsed)

    def _find_moved_entry(self, entry: LedgerEntry) -> LedgerEntry:
        """Return the entry of a run that another process packed meanwhile. Raises DamagedRun when its files are
        missing.
        """
        new_entry = self.ledger.find_entry(entry.run_id)
        if new_entry is None or not new_entry.pack_path:
            raise DamagedRun(f"{entry.run_id} (its files are missing)")
        return new_entry

    def _find_packed_run(self, entry: LedgerEntry) -> run_files.PackedRun:
        path = self.root / str(entry.pack_path)
        try:
            return self._load_manifest(path)[2][entry.run_id]
        except KeyError as error:
            raise DamagedRun(f"{entry.run_id} (not in {path})") from error

    def _load_manifest(
        self, path: Path
    ) -> tuple[tuple[int, int, int], run_files.Manifest, dict[str, run_files.PackedRun]]:
        try:
            status = path.stat()
        except FileNotFoundError as error:
            raise DamagedRun(f"{path} (the pack is missing)") from error
        signature = (status.st_mtime_ns, status.st_ino, status.st_size)
        cached = self._manifests.get(path)
        if cached is None or cached[0] != signature:
            while len(self._manifests) >= _CACHED_MANIFESTS:
                self._manifests.pop(next(iter(self._manifests)))
            manifest = run_files.read_manifest(path)
            cached = (signature, manifest, {packed_run.run.run_id: packed_run for packed_run in manifest.runs})
            self._manifests[path] = cached
        return cached

    def walk(self) -> Iterator[tuple[Run, str | None]]:
        """Yield every committed run found on disk, with the pack that holds it. Does not read the ledger."""
        yield from walk(self.root)

    def _fill_ledger(self) -> None:
        """Read the whole archive into an empty ledger. The caller holds the lock."""
        if self.ledger.get_meta("complete"):
            return
        for path in (self.root / "runs").glob("*/*/*.metadata.json.next"):
            identifier, user = path.name.split(".", 1)[0], path.parent.parent.name
            self._finish_replacement(LedgerEntry(identifier, user, 0, 0, "", None, None))
        for pack_path, group in itertools.groupby(self.walk(), key=lambda pair: pair[1]):
            runs = (run for run, _ in group)
            while batch := list(itertools.islice(runs, _FILL_RUNS)):
                self.ledger.commit(batch, pack_path=pack_path)
        self.ledger.set_meta("complete", "yes")

    # rewriting --------------------------------------------------------------------------------------------

    def scrub(self, entries: Sequence[LedgerEntry], tombstones: Tombstones) -> list[str]:
        """Apply tombstones to stored runs. Returns the ids of the runs that changed."""
        changed_ids = []
        for entry in entries:
            with self._lock():
                if self._scrub_run(self.get_entry(entry.run_id), tombstones):
                    changed_ids.append(entry.run_id)
                    self.ledger.renumber([entry.run_id])
        return changed_ids

    def _scrub_run(self, entry: LedgerEntry, tombstones: Tombstones) -> bool:
        run, stored_bytes = self.read_run(entry), self.read(entry)
        new_run, new_bytes = self._remove_forgotten(run, stored_bytes, tombstones)
        if new_bytes == stored_bytes:
            return False
        if not entry.pack_path:  # metadata first: it tells how to read either state of the bytes
            disk.replace_file(
                self.root / run_files.to_metadata_path(entry.user, entry.run_id), run_files.encode_run(new_run)
            )
            disk.replace_file(self.root / run_files.to_blob_path(entry.user, entry.run_id), new_bytes)
        self._rewrite_pack(self._to_pack_path(run), {entry.run_id: (new_run, new_bytes)})
        if entry.pack_path:
            self._delete_loose_files(entry)
        return True

    def _to_pack_path(self, run: Run) -> Path:
        """Return the path of a run's pack, whether it exists or not. A crash while packing leaves a run in both
        places.
        """
        return self.root / run_files.to_pack_path(run.source.user, run.source.runtime, run.conversation)

    def _rewrite_pack(self, path: Path, new_states: dict[str, tuple[Run, bytes]]) -> None:
        """Replace the runs in `new_states` in a pack that holds them."""
        if path.exists() and new_states.keys() & self._load_manifest(path)[2].keys():
            run_files.write_pack(
                path,
                [new_states.get(run.run_id, (run, stored_bytes)) for run, stored_bytes in run_files.read_pack(path)],
            )

    def _delete_loose_files(self, entry: LedgerEntry) -> None:
        (self.root / run_files.to_metadata_path(entry.user, entry.run_id)).unlink(missing_ok=True)
        (self.root / run_files.to_blob_path(entry.user, entry.run_id)).unlink(missing_ok=True)

    def pack(self, user: str, runtime: str, conversation: str) -> int:
        """Put every run of a conversation into its pack; return how many were loose before."""
        with self._lock():
            self._repair()
            entries = self.ledger.list_conversation_runs(user, runtime, conversation)
            loose_entries = [entry for entry in entries if not entry.pack_path]
            if not loose_entries or sum(entry.to_offset - entry.from_offset for entry in entries) > _PACK_BYTES:
                return 0
            pack_name = run_files.to_pack_path(user, runtime, conversation)
            path = self.root / pack_name
            disk.make_folder(path.parent)
            run_files.write_pack(path, [(self.read_run(entry), self.read(entry)) for entry in entries])
            for run, stored_bytes in run_files.read_pack(path):  # proven readable before the loose files go
                if hashlib.sha256(stored_bytes).hexdigest() != get_stored_sha256(run):
                    raise DamagedRun(f"{run.run_id} in {path}")
            self.ledger.set_pack([entry.run_id for entry in loose_entries], str(pack_name))
            for entry in loose_entries:
                self._delete_loose_files(entry)
            return len(loose_entries)

    def erase(self, user: str) -> int:
        """Delete all runs, packs and events of a user; return how many runs there were."""
        with self._lock():
            entries = list(self.ledger.list_runs(check_user(user)))
            for folder_name in ("runs", "packs", "journal", manifest.FOLDER, QUARANTINE):
                shutil.rmtree(self.root / folder_name / user, ignore_errors=True)
            self.ledger.erase(user)
            return len(entries)

    def adopt(self, theirs: merge.RunWithBytes, tombstones: dict[str, Tombstones]) -> bool:
        """Store a run of another home under its id; return True if that changed anything here.

        Of two captures of one range, keep the longer if it continues the shorter. Where captures differ, keep all
        of them, as separate sources. Raises DamagedRun for bytes that are not those that were captured.
        """
        run, stored_bytes = theirs
        if hashlib.sha256(stored_bytes).hexdigest() != get_stored_sha256(run):
            raise DamagedRun(run.run_id)
        with self._lock():
            self._repair()
            user_tombstones = tombstones.get(check_user(run.source.user))
            return self._merge_run(
                self._remove_forgotten(run, stored_bytes, user_tombstones) if user_tombstones else theirs
            )

    def adopt_new(
        self, pairs: Sequence[merge.RunWithBytes], tombstones: dict[str, Tombstones]
    ) -> list[merge.RunWithBytes]:
        """Store together those runs of another home that meet no bytes here; return the others, for `adopt`."""
        drafts: list[merge.RunWithBytes] = []
        others: list[merge.RunWithBytes] = []
        ranges: dict[Source, list[tuple[int, int]]] = {}  # of the drafts
        with self._lock():
            self._repair()
            for pair in pairs:
                run, stored_bytes = pair
                own_ranges = ranges.setdefault(run.source, [])
                is_apart = all(run.to_offset <= low or run.from_offset >= high for low, high in own_ranges)
                if not (is_apart and self._meets_nothing(run, stored_bytes)):
                    others.append(pair)
                    continue
                own_ranges.append((run.from_offset, run.to_offset))
                user_tombstones = tombstones.get(check_user(run.source.user))
                drafts.append(self._remove_forgotten(run, stored_bytes, user_tombstones) if user_tombstones else pair)
            self._commit(drafts)
        return others

    def _meets_nothing(self, run: Run, stored_bytes: bytes) -> bool:
        """Return True if a whole run of another home is of bytes that no run here has, and no capture was set aside."""
        entries_by_source = self.ledger.list_session_runs(run.source, merge.to_base_session(run.source.session))
        return (
            hashlib.sha256(stored_bytes).hexdigest() == get_stored_sha256(run)
            and self.ledger.find_entry(run.run_id) is None
            and not any(merge.is_set_aside(source) for source in (run.source, *entries_by_source))
            and not self.ledger.list_source_runs(run.source, low=run.from_offset, high=run.to_offset)
        )

    def _merge_run(self, theirs: merge.RunWithBytes) -> bool:
        run = theirs[0]
        entries_by_source = self.ledger.list_session_runs(run.source, merge.to_base_session(run.source.session))
        if any(merge.is_set_aside(source) for source in (run.source, *entries_by_source)) or self._has_conflict(theirs):
            return self._rearrange_session(
                theirs, [entry for entries in entries_by_source.values() for entry in entries]
            )
        entry = self.ledger.find_entry(run.run_id)
        if entry is None:
            self._commit([theirs])
            return True
        ours = self._read_if_valid(entry)
        united = merge.unite(ours, theirs) if ours else theirs
        if united == ours:
            return False
        self._replace_run(entry, united)
        return True

    def _has_conflict(self, theirs: merge.RunWithBytes) -> bool:
        """Return True if a run differs from the stored runs of its source."""
        run = theirs[0]
        for entry in self.ledger.list_source_runs(run.source, low=run.from_offset, high=run.to_offset):
            if (entry.from_offset, entry.to_offset, entry.sha256) != (run.from_offset, run.to_offset, run.sha256):
                ours = self._read_if_valid(entry)
                if ours and not merge.is_consistent(ours, theirs):
                    return True
        return False

    def _read_if_valid(self, entry: LedgerEntry) -> merge.RunWithBytes | None:
        """Return a run and its bytes, or None when they are damaged."""
        try:
            run, stored_bytes = self.read_run(entry), self.read(entry)
        except DamagedRun:
            return None
        return (run, stored_bytes) if hashlib.sha256(stored_bytes).hexdigest() == get_stored_sha256(run) else None

    def _rearrange_session(self, theirs: merge.RunWithBytes, entries: Sequence[LedgerEntry]) -> bool:
        """Arrange all runs of a session again, together with this new one."""
        ours = {entry.run_id: pair for entry in entries if (pair := self._read_if_valid(entry))}
        arranged = {pair[0].run_id: pair for pair in merge.arrange([*ours.values(), theirs])}
        entries_by_id = {entry.run_id: entry for entry in entries}
        moved_ids = [
            identifier
            for identifier in arranged
            if identifier in entries_by_id and arranged[identifier] != ours.get(identifier)
        ]
        dropped_entries = [entries_by_id[identifier] for identifier in ours if identifier not in arranged]
        if dropped_entries or moved_ids:  # an index cannot remove a run: it is rebuilt
            self.ledger.set_meta("stale-index", "yes")
        for identifier in sorted(
            arranged.keys() - entries_by_id.keys()
        ):  # first, so that no run replaced below is the only copy
            self._commit([arranged[identifier]])
        for identifier in moved_ids:
            self._replace_run(entries_by_id[identifier], arranged[identifier])
        self._discard_runs(dropped_entries)
        return arranged != ours

    def _discard_runs(self, entries: Sequence[LedgerEntry]) -> None:
        """Remove runs that are now stored under another id."""
        for entry in entries:
            run = self.read_run(entry)
            self._record([manifest.make_run_record(run, removed=True)])
            path = self._to_pack_path(run)
            if path.exists() and entry.run_id in self._load_manifest(path)[2]:
                remaining = [pair for pair in run_files.read_pack(path) if pair[0].run_id != entry.run_id]
                run_files.write_pack(path, remaining) if remaining else path.unlink()
            self._delete_loose_files(entry)
        self.ledger.drop([entry.run_id for entry in entries])

    def _replace_run(self, entry: LedgerEntry, pair: merge.RunWithBytes) -> None:
        """Replace a stored run by another capture with the same id. A crash leaves either the old or the new one."""
        run, stored_bytes = pair
        if not self._is_in_pack(entry):
            entry = entry._replace(pack_path=None)
            blob_path, metadata_path = self._to_loose_paths(entry)
            disk.make_folder(blob_path.parent)
            disk.replace_file(_to_next_path(blob_path), stored_bytes)
            disk.replace_file(_to_next_path(metadata_path), run_files.encode_run(run))
            self.ledger.reopen(entry.run_id)
            _to_next_path(blob_path).replace(blob_path)
            self._finish_replacement(entry)
        self._rewrite_pack(self._to_pack_path(run), {entry.run_id: pair})
        if entry.pack_path:
            self._delete_loose_files(entry)
        self._commit_numbers([run], pack_path=entry.pack_path)

    def _is_in_pack(self, entry: LedgerEntry) -> bool:
        """Return True if a pack holds this run; it may be missing, or damaged."""
        with contextlib.suppress(DamagedRun):
            return bool(entry.pack_path and self._find_packed_run(entry))
        return False

    def _finish_replacement(self, entry: LedgerEntry) -> None:
        """Complete or undo an interrupted replacement: it counts once its bytes are in place."""
        blob_path, metadata_path = self._to_loose_paths(entry)
        if _to_next_path(metadata_path).exists() and not _to_next_path(blob_path).exists():
            _to_next_path(metadata_path).replace(metadata_path)
            disk.sync_folder(metadata_path.parent)
        _to_next_path(metadata_path).unlink(missing_ok=True)
        _to_next_path(blob_path).unlink(missing_ok=True)

    def _to_loose_paths(self, entry: LedgerEntry) -> tuple[Path, Path]:
        """Return the paths of the bytes and of the metadata of a loose run."""
        relative_paths = (
            run_files.to_blob_path(entry.user, entry.run_id),
            run_files.to_metadata_path(entry.user, entry.run_id),
        )
        return self.root / relative_paths[0], self.root / relative_paths[1]


def _to_next_path(path: Path) -> Path:
    return path.with_name(path.name + ".next")


def check_format(root: Path) -> None:
    """Raise NewerFormat when a newer Perdure wrote this archive folder; FileNotFoundError when it is no archive."""
    path = root / "FORMAT"
    try:
        version = int(path.read_text(encoding="ascii").strip() or 0)
    except ValueError as error:
        raise NewerFormat(f"{path} is not a number") from error
    if version > FORMAT:
        raise NewerFormat(f"{path} says {version}, this Perdure knows {FORMAT}")


def get_stored_sha256(run: Run) -> str:
    """Return the hash that the run's bytes on disk must have."""
    return run.stored_sha256 or run.sha256


def walk(root: Path) -> Iterator[tuple[Run, str | None]]:
    """Yield every committed run under an archive folder, with the pack that holds it. Skips damaged files."""
    for path in (root / "runs").glob("*/*/*.metadata.json"):
        with contextlib.suppress(DamagedRun, FileNotFoundError):
            yield run_files.decode_run(path.read_bytes(), location=str(path)), None
    for path in (root / "packs").glob("*/*.jsonl.zst"):  # last: if a run is in both places, the pack counts
        with contextlib.suppress(DamagedRun):
            for packed_run in run_files.read_manifest(path).runs:
                yield packed_run.run, str(path.relative_to(root))


def list_users(root: Path) -> list[str]:
    """Return the users of whom an archive folder holds anything, by name."""
    folders = (root / name for name in ("journal", manifest.FOLDER, "packs", "runs"))
    return sorted({path.name for folder in folders for path in folder.glob("*")})


def read_stored_runs(root: Path, *, user: str, damaged: list[str]) -> Iterator[tuple[Run, bytes]]:
    """Yield every run of a user under an archive folder with its bytes. Uses no ledger, so it also reads
    another home.

    Appends to `damaged` each run that cannot be read or that belongs to another user.
    """
    for pair in _read_valid_runs(root, user, damaged):
        if pair[0].source.user == user:
            yield pair
        else:
            damaged.append(pair[0].run_id)


def _read_valid_runs(root: Path, user: str, damaged: list[str]) -> Iterator[tuple[Run, bytes]]:
    for path in sorted((root / "runs" / user).glob("*/*.metadata.json")):
        blob_path = path.with_name(path.name.replace(".metadata.json", ".jsonl"))
        try:
            pair = run_files.decode_run(path.read_bytes(), location=str(path)), blob_path.read_bytes()
        except (DamagedRun, FileNotFoundError):
            damaged.append(str(path))
        else:
            yield pair
    for path in sorted((root / "packs" / user).glob("*.jsonl.zst")):
        try:
            pairs = run_files.read_pack(path)
        except DamagedRun:
            damaged.append(str(path))
        else:
            yield from pairs


def _count_cached_bytes(run: Run) -> int:
    return max(run.n_bytes, _MIN_CACHED_BYTES)


def _list_typed(parsed: ParsedLines) -> list[Turn]:
    return [turn for turn in parsed.turns if turn.author == "person" and not turn.is_summary]
